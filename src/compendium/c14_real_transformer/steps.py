"""What attention steps do to the energies they are said to minimize, per layer and per head.

Two energies of a head with keys k_j at a query q: the Hopfield energy ½q·q − β⁻¹ lse_j(β k_j·q)
[bal2020energy, Eq. (7)] in the head's own space, and the overlap energy U of
`spinformer.language.heads`, where also stands what a head's *common* and *specific* steps are and
how the null turns and exchanges heads; the layer's bias stays.

Shapes: B sequences of N tokens, H heads of width d, model width D, L layers from 0; entries of
(H, H) have the head that writes first.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bookmaker.tables import Rows, stored
from compendium.common.models import (
    compose_heads,
    encoder,
    head_maps,
    layer_modules,
)
from compendium.common.rows import mean_rows, parameter_product, rows_of, share_rows
from compendium.common.text_units import named_windows, window_traces
from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.continuous import energy as hopfield_energy
from spinformer.language.heads import HeadReport, head_report, overlap_energy, random_rotations
from spinformer.language.text import TEXTS, sample_texts, text_windows
from spinformer.language.traces import LayerTrace, output_matrix, project, trace_layers
from spinformer.language.untrained import random_weights

STAGES = ("hopfield", "attention", "residual", "layer norm", "feed forward")
STAGES_OF_U = STAGES[2:]
LENGTHS = (32, 128, 512)
PARTS = ("whole", "common", "specific")
SEEDS = 10


def stage_energies(
    model: nn.Module, trace: LayerTrace, kind: str, *, scale: float = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Energy of every head and token before the layer, and after each stage of it, (B, H, N).

    Stage "hopfield": the query is replaced by softmax(β q·k) k, the step with V = K; the others: by
    what the head's query map reads of the state. kind: "overlap", or "hopfield", with queries
    written `scale` times as long and keys as much shorter.
    """

    def energy(queries: Tensor) -> Tensor:
        if kind == "hopfield":
            return hopfield_energy(trace.keys / scale, states=scale * queries, beta=trace.beta)
        return overlap_energy(queries, keys=trace.keys, beta=trace.beta)

    states = (trace.attended, trace.residual, trace.normalized, trace.outputs)
    read = (project(model, trace.layer, "query", states=state) for state in states)
    queries = (_returned(trace, trace.keys), *read)
    return energy(trace.queries), dict(zip(STAGES, map(energy, queries), strict=True))


@torch.no_grad()
def query_energy(trace: LayerTrace, *, turned: Seed | None = None) -> np.ndarray:
    """Mean overlap energy (H,) of a layer's queries, or of them `turned` by rotations of a seed."""
    queries = trace.queries
    if turned is not None:
        queries = queries @ random_rotations(queries, seed=turned)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta).mean((0, 2)).numpy()


@torch.no_grad()
def step_alignment(
    model: nn.Module, trace: LayerTrace, *, draws: int = 40, seed: Seed = 0
) -> dict[str, np.ndarray]:
    """Cosines of a layer's attention step Σ_h W_O^h o_h with the descent −∇Σ_h U_h.

    Of the whole (N, D) arrays of a sequence without their means over tokens: `layer` (B,); of all
    sequences together: `pooled` (), and with heads turned and permuted `null` (draws,).
    """
    generator = numpy_generator(seed)
    reads, writes = head_maps(model, trace.layer)
    # The mean key adds the same to every token and goes with the mean.
    returned = _returned(trace, trace.values)
    returned = returned - returned.mean(-2, keepdim=True)
    wanted = _returned(trace, trace.keys)
    wanted = wanted - wanted.mean(-2, keepdim=True)
    descent = torch.einsum("hdD,bhnd->bnD", reads, wanted)

    def cosine(outputs: Tensor, *dim: int) -> np.ndarray:
        step = torch.einsum("hDd,bhnd->bnD", outputs, returned)
        lengths = step.square().sum(dim) * descent.square().sum(dim)
        return ((step * descent).sum(dim) / lengths.sqrt()).numpy()

    null = [cosine(_exchanged(writes, trace, generator), 0, 1, 2) for _ in range(draws)]
    return {
        "layer": cosine(writes, 1, 2),
        "pooled": cosine(writes, 0, 1, 2),
        "null": np.array(null),
    }


def _exchanged(writes: Tensor, trace: LayerTrace, generator: np.random.Generator) -> Tensor:
    """Output maps (H, D, d) of the null: of another head, behind a rotation."""
    turns = random_rotations(trace.values, seed=generator)
    return writes[torch.from_numpy(generator.permutation(len(writes)))] @ turns


@torch.no_grad()
def weight_alignment(model: nn.Module, layer: int) -> np.ndarray:
    """Cosines between W_O W_V of head h and W_QᵀW_K of head g, as long vectors: (H, H)."""
    reads, writes = head_maps(model, layer)
    maps = layer_modules(model, layer).attention.self
    value = maps.value.weight.view_as(reads)
    key = maps.key.weight.view_as(reads)
    writing = functional.normalize((writes @ value).flatten(1))
    matching = functional.normalize((reads.mT @ key).flatten(1))
    return (writing @ matching.mT).numpy()


def _returned(trace: LayerTrace, values: Tensor) -> Tensor:
    """What every head would return of `values` (B, H, N, d), (B, H, N, d)."""
    return torch.softmax(trace.beta * trace.queries @ trace.keys.mT, dim=-1) @ values


def head_steps(model: nn.Module, trace: LayerTrace) -> HeadReport:
    """What each head does to its own overlap energy, see `HeadReport`; (B, H) each."""
    return head_report(
        trace.queries,
        keys=trace.keys,
        values=trace.values,
        states=trace.inputs,
        read=lambda states: project(model, trace.layer, "query", states=states),
        output=output_matrix(model, trace.layer),
        draws=0,
    )


@torch.no_grad()
def turned_steps(
    model: nn.Module, trace: LayerTrace, *, seed: Seed = 0
) -> tuple[np.ndarray, float]:
    """One draw of the null: mean change of U_h by what stands in the place of head h, (H,).

    And the change of Σ_h U_h / H by all of them and the layer's bias together.
    """
    reads, writes = head_maps(model, trace.layer)
    writes = _exchanged(writes, trace, numpy_generator(seed))
    returned = _returned(trace, trace.values)
    bias = layer_modules(model, trace.layer).attention.output.dense.bias
    step = torch.einsum("hDv,bhnv->bnD", writes, returned) + bias

    def energy(moved: Tensor | float) -> Tensor:
        return overlap_energy(trace.queries + moved, keys=trace.keys, beta=trace.beta)

    before = energy(0.0)
    alone = energy(returned @ compose_heads(reads, writes))
    together = energy(torch.einsum("hqD,bnD->bhnq", reads, step))
    return (alone - before).mean((0, 2)).numpy(), float((together - before).mean())


def stage_changes(model: nn.Module, trace: LayerTrace) -> np.ndarray:
    """Mean change of U_h over heads and tokens after each of STAGES_OF_U: (stages, B)."""
    before, after = stage_energies(model, trace, "overlap")
    return np.stack([(after[s] - before).mean((1, 2)).numpy() for s in STAGES_OF_U])


def traces_of(sources: Sequence[str], length: int) -> list[LayerTrace]:
    """The layers on windows of `length` tokens in the first 512 of each text, as one batch."""
    parts = [text_windows(encoder(), sample_texts()[name], length) for name in sources]
    windows = torch.cat([part[: max(LENGTHS) // length] for part in parts])
    return trace_layers(encoder().model, windows)


_UNITS = parameter_product(length=LENGTHS, source=TEXTS)


@stored("steps", _UNITS, checked=3, seconds=4.0, rtol=1e-3, within=dict.fromkeys(PARTS, 1e-4))
def steps_table(length: int, source: str) -> Rows:
    """What heads do to their own energies in one text, means over all windows in its first 512."""
    rows = []
    for trace in traces_of([source], length):
        report = head_steps(encoder().model, trace)
        rows += rows_of(
            layer=trace.layer,
            head=range(report.whole.shape[1]),
            whole=report.whole.mean(0),
            common=report.common.mean(0),
            specific=report.specific.mean(0),
        )
    return rows


@stored("stages", _UNITS, checked=3, seconds=4.0, rtol=1e-3, within={"change": 1e-4})
def stages_table(length: int, source: str) -> Rows:
    """Change of Σ_h U_h / H by a whole layer in one text, means likewise."""
    changes = [stage_changes(encoder().model, trace)[-1] for trace in traces_of([source], length)]
    return rows_of(layer=range(len(changes)), change=np.mean(changes, axis=1))


@stored("turned", parameter_product(length=LENGTHS, seed=range(SEEDS)), seconds=6.0)
def turned_table(length: int, seed: int) -> Rows:
    """One draw over all windows of all texts: `turned_steps`, `residual` the same for all heads."""
    rows = []
    for trace in traces_of(TEXTS, length):
        alone, together = turned_steps(encoder().model, trace, seed=seed)
        heads = range(len(alone))
        rows += rows_of(layer=trace.layer, head=heads, whole=alone, residual=together)
    return rows


@stored(
    "untrained", parameter_product(kind=("initial", "shuffled"), seed=range(SEEDS)), seconds=2.0
)
def untrained_table(kind: str, seed: int) -> Rows:
    """Mean overlap energy of one draw of weights, over heads and one window of each text."""
    control = random_weights(encoder().model, kind, seed=seed)
    windows = [text_windows(encoder(), text, 128)[:1] for text in sample_texts().values()]
    traces = trace_layers(control, torch.cat(windows))
    return [{"layer": t.layer, "energy": float(query_energy(t).mean())} for t in traces]


LOWERED = 0.9  # a head descends if its energy falls, heads together if so many of them do


@stored(
    "descents",
    [
        unit | {"values": values}
        for unit in named_windows(sources=TEXTS, lengths=(32, 128), windows=(0, 1))
        for values in ("keys", "own")
    ],
    seconds=1.0,
    within=dict.fromkeys(("value", "low", "high"), 0.03),
)
def descents_table(data: str, source: str, length: int, window: int, values: str) -> Rows:
    """Fraction of heads whose energy falls in an attention step, minus `LOWERED`.

    With `values` "keys" the step is the softmax average of the keys, and the energy the Hopfield
    energy of the query, which no such step can raise; with "own" it is what the head adds to the
    state, and the energy is U.
    """
    falls = []
    for trace in window_traces(source, length, window):
        if values == "keys":
            before, after = stage_energies(encoder().model, trace, "hopfield")
            change = (after["hopfield"] - before).mean((0, 2)).numpy()
        else:
            change = head_steps(encoder().model, trace).whole.mean(0)
        falls.append(change < 0)
    heads = np.concatenate(falls)
    return share_rows(int(heads.sum()), trials=len(heads), bound=LOWERED)


@stored(
    "settings_A14b",
    [
        {"data": f"{unit['source']} {unit['length']}"} | unit
        for unit in parameter_product(source=TEXTS, length=(32, 128))
    ],
    seconds=4.0,
    within=dict.fromkeys(("value", "low", "high"), 0.01),
)
def settings_A14b(data: str, source: str, length: int) -> Rows:
    """Minus the change of Σ_h U_h / H by the layer that raises it most, over windows of a text."""
    changes = [stage_changes(encoder().model, trace)[-1] for trace in traces_of([source], length)]
    return mean_rows(-max(changes, key=np.mean))


@stored(
    "turned_depths",
    parameter_product(source=TEXTS, window=LENGTHS),
    checked=1,
    seconds=1.0,
    within={"value": 0.01, "low": 0.02, "high": 0.02},
)
def turned_depths(source: str, window: int) -> Rows:
    """ln of how much deeper a model's overlap energy is than for queries in ten turns.

    In the layer where that is least, over windows of so many tokens of a text.
    """
    ratios = []
    for trace in traces_of([source], window):
        draws = [query_energy(trace, turned=seed).mean() for seed in range(10)]
        ratios.append(np.log(query_energy(trace).mean() / np.array(draws)))
    return mean_rows(min(ratios, key=np.mean))
