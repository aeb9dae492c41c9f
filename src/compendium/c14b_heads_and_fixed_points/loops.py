"""Where a head, or a whole attention sub-layer, ends up if its step is repeated.

Keys and values stay fixed. Ways to close the loop from a head's output to its next query:

* "keys": q ← Σ_j a_j k_j, the continuous Hopfield network of [bal2020energy, Eq. (12)] (V = K);
* "balanced": the same after rewriting W_Q W_Kᵀ = U S Vᵀ as (U√S)(V√S)ᵀ and centering the keys;
* "readback": q ← Σ_j a_j w_j, w the head's own values, written by its W_O and read by its W_Q;
* "turned": a control of "readback", the values turned by one random rotation a head;
* "sub-layer": x ← LayerNorm(x + attention(x)), all heads at once.

A *gain* g stands in front of the values of a loop. A fixed point repels as soon as the derivative
has an eigenvalue outside of the unit circle. An iteration with a short step, q ← q + η(f(q) − q),
still goes to it as long as no eigenvalue has a real part of 1 or more.

Lengths are measured, in the loops "keys" and "balanced", in units of the largest norm of a head's
keys, in the others of the root mean square norm of the states that are iterated.

Of a second model, SmolLM2, every sixth layer. The memory of a head is what the last token sees,
all keys turned by their positions; each fourth token asks as if it stood last. "readback" is over
the median size of the states, which the norm would divide by, held fixed. Written before the run:
by their keys the heads show all three kinds of resting points (each more than 0.05 of the queries
less the error over texts), and some attend to at most one key in 32; through its own values no head
has more than one resting point, and negative feedback leads in more than half of them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from bookmaker.tables import Rows, stored
from compendium.common.decoder import Decoder, encode
from compendium.common.models import (
    compose_heads,
    decoder,
    encoder,
    head_maps,
    layer_modules,
)
from compendium.common.rows import mean_rows, parameter_product, rows_of
from compendium.common.text_units import named_windows, unread_windows, window_traces
from spinformer.core.random import Seed
from spinformer.hopfield.fixed_points import KINDS, classify, effective_entries, find_fixed_points
from spinformer.language.heads import random_rotations
from spinformer.language.text import TEXTS, sample_texts, text_windows
from spinformer.language.traces import LayerTrace, output_matrix, project, trace_layers

MERGE_RADIUS = 1e-5  # two end points nearer than this, in units of their size, are one
LOOPS = ("keys", "balanced", "readback", "sub-layer")
SHARES = ("single", "metastable", "average")  # as in `hopfield.fixed_points.KINDS`
GAINS = (0.5, 1.0, 1.414, 2.0, 2.828, 4.0, 8.0)
TOLERANCE = 1e-7  # in the units above: a hundredth of the radius that joins end points
SHORT_STEP = 0.1


def attend(keys: Tensor, *, values: Tensor, beta: float) -> Callable[[Tensor], Tensor]:
    """The step of a head's loop: queries (S, d) to attention averages of `values` (N, d)."""
    return lambda queries: torch.softmax(beta * queries @ keys.mT, dim=-1) @ values


def readback_values(model: nn.Module, trace: LayerTrace, *, turned: Seed | None = None) -> Tensor:
    """Values as each head's query map reads them, W_Q W_O v + b_Q, (B, H, N, d), or `turned`."""
    bias = layer_modules(model, trace.layer).attention.self.query.bias
    read = trace.values @ compose_heads(*head_maps(model, trace.layer))
    values = read + bias.unflatten(0, (len(trace.queries[0]), 1, -1))
    return values if turned is None else values @ random_rotations(values, seed=turned)


def balanced_gauge(model: nn.Module, trace: LayerTrace) -> tuple[Tensor, Tensor]:
    """Queries and centered keys (B, H, N, d) for which both maps have equal Gram matrices."""
    maps = layer_modules(model, trace.layer).attention.self
    heads = trace.queries.shape[1]
    triangle_q = torch.linalg.qr(maps.query.weight.unflatten(0, (heads, -1)).mT).R
    triangle_k = torch.linalg.qr(maps.key.weight.unflatten(0, (heads, -1)).mT).R
    left, singular, _ = torch.linalg.svd(triangle_q @ triangle_k.mT)
    gauge = torch.linalg.solve(triangle_q, left * singular.sqrt().unsqueeze(-2))
    keys = trace.keys @ torch.linalg.inv(gauge).mT
    return trace.queries @ gauge, keys - keys.mean(-2, keepdim=True)


def sublayer_step(model: nn.Module, trace: LayerTrace, states: Tensor) -> Tensor:
    """LayerNorm(x + attention(x)) of states (S, D) among the first sequence's keys and values."""
    queries = project(model, trace.layer, "query", states=states)
    logits = trace.beta * queries @ trace.keys[0].mT
    heads = (torch.softmax(logits, dim=-1) @ trace.values[0]).transpose(0, 1).flatten(1)
    following: Tensor = layer_modules(model, trace.layer).attention.output(heads, states)
    return following


@torch.no_grad()
def repeat(
    step: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    tolerance: float = TOLERANCE,
    max_steps: int = 1000,
) -> tuple[Tensor, Tensor]:
    """Apply `step` to the rows of `start` (S, d), each on its own, until all rest.

    The states (S, d), and which of them rest (S,): a row is moved no more while its last step is at
    most `tolerance` of the root mean square norm of all states.
    """
    states = start.clone()
    moved = torch.full((len(states),), torch.inf, dtype=states.dtype)

    def moving() -> Tensor:
        return moved > tolerance * states.square().sum(-1).mean().sqrt()

    for _ in range(max_steps):
        rows = moving()
        if not bool(rows.any()):
            break
        new = step(states[rows])
        moved[rows] = (new - states[rows]).norm(dim=-1)
        states[rows] = new
    return states, ~moving()


def count_points(states: Tensor) -> int:
    """At how many points the states (S, d) lie.

    A state lies at the first point that it differs from by at most MERGE_RADIUS times the root
    mean square norm of all.
    """
    count = 0
    radius = MERGE_RADIUS * states.square().sum(-1).mean().sqrt()
    while len(states):
        states = states[(states - states[0]).norm(dim=-1) > radius]
        count += 1
    return count


def ends_of(states: Tensor, rests: Tensor, logits: Tensor) -> dict[str, float]:
    """Where the queries of a head ended (see `repeat`), states that attend with logits (S, N).

    SHARES: shares of the queries that end in a fixed point of each of the `KINDS`; `count`:
    distinct end points; `resting`: share of the queries that came to rest (the others are in no
    other figure).
    """
    kinds = classify(torch.softmax(logits[rests], dim=-1))
    return _summary(kinds, count_points(states[rests]), total=len(rests))


def memory_ends(
    keys: Tensor, queries: Tensor, *, beta: float, tolerance: float = TOLERANCE
) -> dict[str, float]:
    """Where queries (S, d) end among keys (N, d) that are stored, as `ends_of` says it."""
    found = find_fixed_points(keys, beta=beta, starts=queries, tolerance=tolerance, max_steps=1000)
    kinds = np.repeat(found.kinds, found.basin).tolist()
    return _summary(kinds, len(found.kinds), total=len(queries))


def _summary(kinds: Sequence[str], count: int, *, total: int) -> dict[str, float]:
    shares = {name: kinds.count(kind) / total for name, kind in zip(SHARES, KINDS, strict=True)}
    return shares | {"count": count, "resting": len(kinds) / total}


@torch.no_grad()
def end_points(model: nn.Module, trace: LayerTrace, loop: str) -> Rows:
    """Attention repeated from each query of the first sequence, in one of LOOPS, a row a head."""
    keys = trace.keys[0]
    queries = trace.queries[0]
    beta = trace.beta
    if loop == "sub-layer":
        states, rests = repeat(partial(sublayer_step, model, trace), trace.inputs[0])
        asked = project(model, trace.layer, "query", states=states)
        return [ends_of(states, rests, logits) for logits in beta * asked @ keys.mT]
    if loop == "readback":
        rows = []
        for own, values, asked in zip(keys, readback_values(model, trace)[0], queries, strict=True):
            states, rests = repeat(attend(own, values=values, beta=beta), asked)
            rows.append(ends_of(states, rests, beta * states @ own.mT))
        return rows
    if loop == "balanced":
        all_queries, all_keys = balanced_gauge(model, trace)
        queries = all_queries[0]
        keys = all_keys[0]
    return [memory_ends(*pair, beta=beta) for pair in zip(keys, queries, strict=True)]


def loop_jacobian(keys: Tensor, *, values: Tensor, at: Tensor, beta: float) -> Tensor:
    """The derivative (d, d) of `attend` at a query (d,), β Σ_j a_j w_j (k_j − Σ_i a_i k_i)ᵀ."""
    weights = torch.softmax(beta * keys @ at, dim=-1)
    return beta * (weights.unsqueeze(-1) * values).mT @ (keys - weights @ keys)


def leading_eigenvalue(matrix: Tensor) -> complex:
    """The one of largest modulus of a matrix (d, d)."""
    found = np.linalg.eigvals(matrix.numpy())
    return complex(found[np.abs(found).argmax()])


def _short_step(step: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    return states + SHORT_STEP * (step(states) - states)


@torch.no_grad()
def gain_sweep(
    trace: LayerTrace,
    values: Tensor,
    *,
    gains: Sequence[float],
    every: int = 8,
    max_steps: int = 300,
) -> dict[str, np.ndarray]:
    """Iterate every head's loop from every `every`-th query of the first sequence at each gain.

    `values` (B, H, N, d) of the loop. Arrays (G, H): "resting", share of the queries that come to
    rest; "count", distinct points where they rest; "leading", the eigenvalue of largest modulus
    (complex) of the derivative at the point that short steps from the first token's query lead to,
    NaN if they lead nowhere.
    """
    keys = trace.keys[0]
    starts = trace.queries[0, :, ::every]
    shape = (len(gains), len(keys))
    resting = np.zeros(shape)
    count = np.zeros(shape, dtype=int)
    leading = np.full(shape, np.nan, dtype=complex)
    for row, gain in enumerate(gains):
        for head, own in enumerate(keys):
            louder = gain * values[0, head]
            step = attend(own, values=louder, beta=trace.beta)
            ends, rested = repeat(step, starts[head], max_steps=max_steps)
            resting[row, head] = float(rested.double().mean())
            count[row, head] = count_points(ends[rested])
            points, found = repeat(
                partial(_short_step, step),
                trace.queries[0, head, :1],
                tolerance=SHORT_STEP * TOLERANCE,
                max_steps=10 * max_steps,
            )
            if found.all():
                slope = loop_jacobian(own, values=louder, at=points[0], beta=trace.beta)
                leading[row, head] = leading_eigenvalue(slope)
    return {"resting": resting, "count": count, "leading": leading}


def first_traces(source: str) -> list[LayerTrace]:
    """The layers on the first 128 tokens of one of the seven texts."""
    return trace_layers(encoder().model, text_windows(encoder(), sample_texts()[source], 128)[:1])


@stored(
    "ends",
    parameter_product(loop=LOOPS, source=TEXTS),
    checked=len(TEXTS),
    seconds=4.0,
    within={"count": 1} | dict.fromkeys((*SHARES, "resting"), 0.02),
)
def ends_table(loop: str, source: str) -> Rows:
    """The end points of one text in one loop, one row a layer and head."""
    return [
        {"layer": trace.layer, "head": head} | ends
        for trace in first_traces(source)
        for head, ends in enumerate(end_points(encoder().model, trace, loop))
    ]


SHOWN = 0.02  # of its queries a head has on average at fixed points of a kind that it shows


def kinds_rows(source: str, length: int, window: int, loop: str) -> Rows:
    """Mean fraction of a head's queries at the rarest of the three kinds, minus `SHOWN`."""
    heads = [
        row
        for trace in window_traces(source, length, window)
        for row in end_points(encoder().model, trace, loop)
    ]
    fractions = [np.array([row[kind] for row in heads]) for kind in SHARES]
    return mean_rows(min(fractions, key=np.mean) - SHOWN)


@stored(
    "settings_A15",
    [
        unit | {"loop": loop}
        for unit in named_windows(sources=TEXTS, lengths=(32, 128), windows=(0, 1))
        for loop in ("keys", "readback")
    ],
    seconds=4.0,
    within=dict.fromkeys(("value", "low", "high"), 0.02),
)
def settings_A15(data: str, source: str, length: int, window: int, loop: str) -> Rows:
    """Heads of MiniLM iterated on their keys, and through their own values."""
    return kinds_rows(source, length, window, loop)


@stored(
    "confirm_A15",
    [unit | {"loop": "keys"} for unit in unread_windows()],
    seconds=4.0,
    within=dict.fromkeys(("value", "low", "high"), 0.02),
)
def confirm_A15(data: str, source: str, length: int, window: int, loop: str) -> Rows:
    """Text that was not read before, on the keys."""
    return kinds_rows(source, length, window, loop)


@stored(
    "gain",
    parameter_product(loop=("readback", "turned"), source=TEXTS),
    seconds=8.0,
    within={"resting": 0.07, "count": 1, "real": 2e-3, "imaginary": 2e-3},
)
def gain_table(loop: str, source: str) -> Rows:
    """The sweep of one text in one loop, one row a layer, gain and head."""
    rows = []
    for trace in first_traces(source):
        seed = 1000 * TEXTS.index(source) + trace.layer if loop == "turned" else None
        values = readback_values(encoder().model, trace, turned=seed)
        sweep = gain_sweep(trace, values, gains=GAINS)
        number, head = np.indices(sweep["count"].shape).reshape(2, -1)
        leading = sweep["leading"].ravel()
        rows += rows_of(
            layer=trace.layer,
            gain=np.array(GAINS)[number],
            head=head,
            resting=sweep["resting"].ravel(),
            count=sweep["count"].ravel(),
            real=leading.real,
            imaginary=leading.imag,
        )
    return rows


@torch.no_grad()
def memory_of(model: Decoder, number: int, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, read-back values (H, N, d), queries (H, S, d) of a text (1, N, D), as its end sees."""
    trace = trace_layers(model.model, inputs, layers=[number])[0]
    last = inputs.shape[1] - 1
    shared = model.heads // trace.keys.shape[1]
    keys = trace.keys[0].repeat_interleave(shared, 0)
    values = trace.values[0].repeat_interleave(shared, 0)

    def asked(states: Tensor) -> Tensor:
        queries = project(model.model, number, "query", states=states[:, None], start=last)
        return queries[:, :, 0].transpose(0, 1)

    size = trace.inputs[0].square().mean(-1).sqrt().median()
    output = output_matrix(model.model, number).unflatten(1, (model.heads, -1))
    read = []
    for head in range(model.heads):
        # Large, so that the norm's small constant does not count; then its division undone.
        written = 1e4 * values[head] @ output[:, head].T
        scale = written.square().mean(-1, keepdim=True).sqrt() / (1e4 * size)
        read.append(asked(written)[head] * scale)
    return keys.double(), torch.stack(read).double(), asked(trace.inputs[0, ::4]).double()


@stored(
    "generator",
    [{"layer": layer} for layer in range(0, 30, 6)],
    seconds=5.0,
    within={"single": 0.05, "metastable": 0.05, "average": 0.05, "real": 0.01, "imaginary": 0.01},
)
def generator_table(layer: int) -> Rows:
    """One row a text and head: kinds of resting points by its keys; what its own values lead to."""
    model = decoder()
    beta = model.head_width**-0.5
    rows: Rows = []
    for source, text in sample_texts().items():
        numbers = encode(model, text)[:128]
        keys, read, queries = memory_of(model, layer, model.embedding[numbers][None])
        for head in range(model.heads):
            now = effective_entries(torch.softmax(beta * queries[head] @ keys[head].mT, -1))
            ends = memory_ends(keys[head], queries[head], beta=beta, tolerance=1e-6)
            step = attend(keys[head], values=read[head], beta=beta)
            states, rests = repeat(step, queries[head], tolerance=1e-6)
            back = ends_of(states, rests, beta * states @ keys[head].mT)
            slope = loop_jacobian(keys[head], values=read[head], at=states[0], beta=beta)
            leading = leading_eigenvalue(slope)
            about = {"source": source, "head": head, "entries": now.median().item()}
            led_to = {
                "count": back["count"],
                "resting": back["resting"],
                "real": leading.real,
                "imaginary": abs(leading.imag),
            }
            # The kinds are those of the keys, the counts those of the head's own values.
            rows.append(about | ends | led_to)
    return rows
