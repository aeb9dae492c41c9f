"""Where a head, or a whole attention sub-layer, ends up if its step is repeated.

A transformer takes one attention step a layer. Repeating it, keys and values held fixed,
shows which fixed points there are to step towards. There is more than one way to close the
loop from a head's output to its next query:

* "keys": the query is replaced by the attention average of the keys, as in the continuous
  Hopfield network of document 001 (V = K). Its energy falls at every step.
* "balanced": the same after rewriting W_Q W_Kᵀ = U S Vᵀ as (U√S)(V√S)ᵀ and centring the keys:
  no attention weight of the model changes, but the stored patterns do.
* "readback": the head's own values (V ≠ K), written to the residual stream by W_O and read
  again by the same head's W_Q.
* "sub-layer": what the model does in full: x ← LayerNorm(x + attention(x)), all heads at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from spinformer.core.checks import check_choice, check_integer, check_real
from spinformer.hopfield.fixed_points import (
    KINDS,
    classify,
    effective_entries,
    find_fixed_points,
)
from spinformer.language.minilm import LanguageModel, LayerTrace, layer_norm, project

LOOPS = ("keys", "balanced", "readback", "sub-layer")


@dataclass(frozen=True)
class EndPoints:
    """Where the queries of one sequence end, for every head of a layer.

    `count` (H,): distinct end points; `largest` (H,): share of the queries in the largest
    basin; `shares` (H, 3): shares of the queries that end in a fixed point of each of the
    `KINDS` (single pattern, metastable, global average); `entries` (H,): median over the
    queries of the fewest softmax entries that sum to 0.9 at the end; `resting` (H,): share
    of the queries that came to rest (the others are in no other figure).
    """

    count: np.ndarray
    largest: np.ndarray
    shares: np.ndarray
    entries: np.ndarray
    resting: np.ndarray


@torch.no_grad()
def end_points(
    model: LanguageModel,
    layer: int,
    trace: LayerTrace,
    loop: str,
    *,
    sequence: int = 0,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> EndPoints:
    """Repeat a layer's attention from each query of one sequence until it rests.

    `loop` is one of LOOPS (see the module). A state rests when a step is shorter than
    `tolerance` in units of the largest key norm ("keys", "balanced"), of the root mean
    square value ("readback") or state ("sub-layer").
    """
    check_choice("loop", loop, LOOPS)
    layer = check_integer("layer", layer, low=0, high=model.architecture.layers - 1)
    sequence = check_integer("sequence", sequence, low=0, high=trace.inputs.shape[0] - 1)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    beta = model.architecture.beta
    if loop in ("keys", "balanced"):
        queries, keys = (
            (trace.queries, trace.keys) if loop == "keys" else balanced_gauge(model, layer, trace)
        )
        return _stack(
            [
                _from_hopfield(
                    keys[sequence, head], queries[sequence, head], beta, tolerance, max_steps
                )
                for head in range(model.architecture.heads)
            ]
        )
    keys = trace.keys[sequence]
    if loop == "readback":
        values = readback_values(model, layer, trace)[sequence]
        rows = []
        for head in range(model.architecture.heads):

            def average(states: torch.Tensor, head: int = head) -> torch.Tensor:
                return torch.softmax(beta * states @ keys[head].mT, dim=-1) @ values[head]

            states, rested = repeat(
                average, trace.queries[sequence, head], tolerance=tolerance, max_steps=max_steps
            )
            attention = torch.softmax(beta * states @ keys[head].mT, dim=-1)
            rows.append(_from_states(states, attention, rested))
        return _stack(rows)
    states, rested = repeat(
        lambda states: sublayer_step(model, layer, trace, states=states, sequence=sequence),
        trace.inputs[sequence],
        tolerance=tolerance,
        max_steps=max_steps,
    )
    queries = project(model, layer, "query", states=states)
    attention = torch.softmax(beta * queries @ keys.mT, dim=-1)
    return _stack([_from_states(states, weights, rested) for weights in attention])


@torch.no_grad()
def loop_eigenvalues(
    model: LanguageModel, layer: int, trace: LayerTrace, loop: str, *, sequence: int = 0
) -> np.ndarray:
    """Eigenvalues of a loop's Jacobian where the first token's query ends: complex (H, d).

    For loop "keys" or "readback" with values w_j the Jacobian of Σ_j a_j w_j with respect to
    the query is β Σ_j a_j w_j (k_j − Σ_i a_i k_i)ᵀ. With w = k it is β times a covariance:
    real eigenvalues ≥ 0. A negative or complex one excludes an energy that the loop descends
    as a gradient step; one below −1 makes the state jump to and fro.
    """
    check_choice("loop", loop, ("keys", "readback"))
    beta = model.architecture.beta
    keys = trace.keys[sequence]
    values = keys if loop == "keys" else readback_values(model, layer, trace)[sequence]
    spectra = []
    for stored, returned, query in zip(keys, values, trace.queries[sequence, :, :1], strict=True):

        def average(
            states: torch.Tensor, stored: torch.Tensor = stored, returned: torch.Tensor = returned
        ) -> torch.Tensor:
            return torch.softmax(beta * states @ stored.mT, dim=-1) @ returned

        state, _ = repeat(average, query)
        weights = torch.softmax(beta * state @ stored.mT, dim=-1)
        jacobian = beta * (weights.mT * returned).mT @ (stored - weights @ stored)
        spectra.append(torch.linalg.eigvals(jacobian).numpy())
    return np.stack(spectra)


@torch.no_grad()
def repeat(
    step: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply `step` to the rows of `start` (S, d), each on its own, until all rest.

    Returns the states and, for each, whether its last step was shorter than `tolerance`
    times the root mean square norm of the states. Cycles are possible and do not rest.
    """
    states = start.clone()
    rested = torch.zeros(len(start), dtype=torch.bool)
    for _ in range(max_steps):
        moving = ~rested
        old = states[moving]
        new = step(old)
        states[moving] = new
        scale = float(states.square().sum(-1).mean().sqrt())
        rested[moving] = (new - old).norm(dim=-1) <= tolerance * scale
        if bool(rested.all()):
            break
    return states, rested


def distinct_states(states: torch.Tensor, *, tolerance: float = 1e-3) -> torch.Tensor:
    """Number the states (S, d) by the point each lies at: labels (S,) from 0, in order.

    Two states lie at the same point if they differ by at most `tolerance` times the root
    mean square norm of all.
    """
    radius = check_real("tolerance", tolerance, low=0.0, open_low=True) * float(
        states.square().sum(-1).mean().sqrt()
    )
    labels = torch.full((len(states),), -1)
    while bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        near = (states - states[first]).norm(dim=-1) <= radius
        labels[near & (labels < 0)] = int(labels.max()) + 1
    return labels


def sublayer_step(
    model: LanguageModel, layer: int, trace: LayerTrace, *, states: torch.Tensor, sequence: int = 0
) -> torch.Tensor:
    """LayerNorm(x + attention(x)) of states (S, D), keys and values of `trace` held fixed."""
    prefix = f"encoder.layer.{layer}.attention.output"
    queries = project(model, layer, "query", states=states)
    logits = model.architecture.beta * queries @ trace.keys[sequence].mT
    heads = (torch.softmax(logits, dim=-1) @ trace.values[sequence]).transpose(0, 1).flatten(1)
    matrix, bias = (model.weights[f"{prefix}.dense.{part}"] for part in ("weight", "bias"))
    return layer_norm(model, prefix, states + functional.linear(heads, matrix, bias))


def balanced_gauge(
    model: LanguageModel, layer: int, trace: LayerTrace
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (B, H, N, d) in the gauge in which both maps have equal Gram matrices.

    Attention depends on W_Q W_Kᵀ alone: q → Aᵀq, k → A⁻¹k changes no logit, but it changes
    what "the Hopfield network that stores the keys" is. Here W_Q W_Kᵀ = U S Vᵀ is split
    into U√S and V√S, and the keys are centred (their mean adds the same number to all
    logits of a query). Biases are left out of the decomposition.
    """
    sizes = model.architecture
    name = f"encoder.layer.{layer}.attention.self"
    gauges = []
    for head in range(sizes.heads):
        rows = slice(head * sizes.head_width, (head + 1) * sizes.head_width)
        query_map, key_map = (
            model.weights[f"{name}.{which}.weight"][rows].mT for which in ("query", "key")
        )
        triangle_q = torch.linalg.qr(query_map).R
        triangle_k = torch.linalg.qr(key_map).R
        left, singular, _ = torch.linalg.svd(triangle_q @ triangle_k.mT)
        gauges.append(torch.linalg.solve(triangle_q, left * singular.sqrt()))
    gauge = torch.stack(gauges)
    keys = trace.keys @ torch.linalg.inv(gauge).mT
    return trace.queries @ gauge, keys - keys.mean(-2, keepdim=True)


def readback_values(model: LanguageModel, layer: int, trace: LayerTrace) -> torch.Tensor:
    """Each head's values as its own query map reads them, (B, H, N, d).

    Value v of head h is written to the residual stream as W_O v and read again by the same
    head as W_Q W_O v + b_Q: the loop a head makes through the model's own matrices, without
    the other heads, the residual and the normalisation.
    """
    sizes = model.architecture
    output = model.weights[f"encoder.layer.{layer}.attention.output.dense.weight"]
    read = []
    for head in range(sizes.heads):
        columns = output[:, head * sizes.head_width : (head + 1) * sizes.head_width]
        written = trace.values[:, head] @ columns.mT
        read.append(project(model, layer, "query", states=written)[:, head])
    return torch.stack(read, dim=1)


def _from_hopfield(
    keys: torch.Tensor, queries: torch.Tensor, beta: float, tolerance: float, max_steps: int
) -> EndPoints:
    found = find_fixed_points(
        keys, beta=beta, starts=queries, tolerance=tolerance, max_steps=max_steps
    )
    entries = np.repeat(found.entries.numpy(), found.basin.numpy())
    kinds = np.repeat(np.array(found.kinds, dtype=object), found.basin.numpy())
    return _summary(found.basin.numpy(), kinds, entries, len(queries))


def _from_states(states: torch.Tensor, attention: torch.Tensor, rested: torch.Tensor) -> EndPoints:
    basin = torch.bincount(distinct_states(states[rested])) if bool(rested.any()) else rested[:0]
    kinds = np.array(classify(attention[rested]), dtype=object)
    entries = effective_entries(attention[rested]).numpy()
    return _summary(basin.numpy(), kinds, entries, len(states))


def _summary(basin: np.ndarray, kinds: np.ndarray, entries: np.ndarray, total: int) -> EndPoints:
    return EndPoints(
        count=np.array([len(basin)]),
        largest=np.array([basin.max(initial=0) / total]),
        shares=np.array([[(kinds == kind).sum() / total for kind in KINDS]]),
        entries=np.array([np.median(entries) if len(entries) else np.nan]),
        resting=np.array([len(entries) / total]),
    )


def _stack(rows: list[EndPoints]) -> EndPoints:
    return EndPoints(
        *(
            np.concatenate([getattr(row, name) for row in rows])
            for name in ("count", "largest", "shares", "entries", "resting")
        )
    )
