"""Where a head, or a whole attention sub-layer, ends up if its step is repeated.

A transformer takes one attention step a layer. Repeating it, keys and values held fixed,
shows which fixed points there are to step towards; `loops` tells the ways to close the loop.

Lengths. In the loops "keys" and "balanced" they are measured in units of the largest norm of a
head's keys, in "readback" and "sub-layer" of the root mean square norm of the states that are
iterated. Two end points are one if they are closer than `hopfield.fixed_points.MERGE_RADIUS` of
the unit, in every loop; the default tolerance leaves states much nearer to their ends than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows
from compendium.c14b_heads_and_fixed_points.loops import (
    attend,
    balanced_gauge,
    readback_values,
    sublayer_step,
)
from spinformer.core.solve import Solution, Status, status_of
from spinformer.hopfield.fixed_points import (
    KINDS,
    MERGE_RADIUS,
    classify,
    effective_entries,
    find_fixed_points,
)
from spinformer.language.encoder import LanguageModel, LayerTrace, project

LOOPS = ("keys", "balanced", "readback", "sub-layer")
SHARES = ("single", "metastable", "average")  # as in `hopfield.fixed_points.KINDS`


@torch.no_grad()
def end_points(
    model: LanguageModel,
    trace: LayerTrace,
    loop: str,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> Rows:
    """Repeat a layer's attention from each query of the first sequence until it rests.

    `loop` is one of LOOPS. A state rests when a step is shorter than `tolerance` in the units of
    the module; "keys" and "balanced" finish slow starts with Newton's method (see
    `find_fixed_points`). A row for each head, as `ends_of` says.
    """
    keys, heads = trace.keys[0], range(model.architecture.heads)
    limits: Any = {"tolerance": tolerance, "max_steps": max_steps}
    if loop in ("keys", "balanced"):
        pair = (trace.queries, trace.keys) if loop == "keys" else balanced_gauge(model, trace)
        queries, keys = (each[0] for each in pair)
        return [memory_ends(keys[h], queries[h], beta=trace.beta, **limits) for h in heads]
    if loop == "readback":
        values, rows = readback_values(model, trace)[0], []
        for head in heads:
            step = attend(keys[head], values=values[head], beta=trace.beta)
            found = repeat(step, trace.queries[0, head], **limits)
            rows.append(ends_of(found, trace.beta * found.value @ keys[head].mT))
        return rows
    found = repeat(
        lambda states: sublayer_step(model, trace, states=states), trace.inputs[0], **limits
    )
    queries = project(model, trace.layer, "query", states=found.value)
    return [ends_of(found, logits) for logits in trace.beta * queries @ keys.mT]


@torch.no_grad()
def repeat(
    step: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> Solution[torch.Tensor]:
    """Apply `step` to the rows of `start` (S, d), each on its own, until all rest.

    Value: the states (S, d). Residual (S,): the length of a row's last step over the root mean
    square norm of all finite states; a row is moved no more while it is at most `tolerance`. Status
    (S,): CONVERGED for these; DIVERGED if a step left the finite numbers (value: the state before);
    CYCLE if a state that does not rest came back, within `tolerance`, to where it had been after
    half of `max_steps` (so that periods up to `max_steps`/2 are seen); else STEP_LIMIT, as for
    states that all shrink to zero, since a step is measured by the states themselves.
    """
    states = start.detach().clone()
    moved = torch.full((len(states),), torch.inf, dtype=states.dtype)
    steps = torch.zeros(len(states), dtype=torch.int64)
    finite = torch.ones(len(states), dtype=torch.bool)
    middle, returned, scale = states, ~finite, 1.0
    for number in range(1, max_steps + 1):
        # Measured anew every time: while one state runs away, all steps look short beside it.
        moving = finite & (moved > tolerance * scale)
        if not bool(moving.any()):
            break
        old = states[moving]
        new = step(old)
        held = new.square().sum(-1).isfinite()
        new = torch.where(held.unsqueeze(-1), new, old)
        states[moving], finite[moving], steps[moving] = new, held, number
        moved[moving] = torch.where(held, (new - old).norm(dim=-1), torch.inf)
        if bool(finite.any()):
            scale = float(states[finite].square().sum(-1).mean().sqrt())
        if number == max_steps // 2:
            middle = states.clone()
        elif number > max_steps // 2 > 0:
            returned |= (states - middle).norm(dim=-1) <= tolerance * scale
    rests = moved <= tolerance * scale
    status = status_of(rests)
    status[~rests & returned] = int(Status.CYCLE)
    status[~finite] = int(Status.DIVERGED)
    return Solution(
        value=states,
        residual=torch.where(moved > 0, moved / scale, 0.0),
        steps=steps,
        status=status,
    )


def distinct_states(states: torch.Tensor) -> torch.Tensor:
    """Number the states (S, d) by the point each lies at: labels (S,) from 0, in order.

    A state lies at the first point that it differs from by at most MERGE_RADIUS times the root
    mean square norm of all.
    """
    labels = torch.full((len(states),), -1)
    radius = MERGE_RADIUS * float(states.square().sum(-1).mean().sqrt()) if len(states) else 0.0
    while bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        near = (states - states[first]).norm(dim=-1) <= radius
        labels[near & (labels < 0)] = int(labels.max()) + 1
    return labels


def memory_ends(
    keys: torch.Tensor, queries: torch.Tensor, *, beta: float, tolerance: float, max_steps: int
) -> dict[str, Any]:
    """Where queries (S, d) end among keys (N, d) that are stored, as `ends_of` says it."""
    found = find_fixed_points(
        keys, beta=beta, starts=queries, tolerance=tolerance, max_steps=max_steps
    )
    basin = found.basin.numpy()
    kinds = np.repeat(np.array(found.kinds, dtype=object), basin)
    return _summary(basin, kinds, np.repeat(found.entries.numpy(), basin), len(queries))


def ends_of(solution: Solution[torch.Tensor], logits: torch.Tensor) -> dict[str, Any]:
    """Where the queries of a head ended, whose states attend with these logits (S, N).

    SHARES: shares of the queries that end in a fixed point of each of the `KINDS`; `count`:
    distinct end points; `largest`: share of the queries in the largest basin; `entries`: median
    over the queries of the fewest softmax entries that sum to 0.9 at the end, NaN if none rests;
    `resting`: share of the queries that came to rest (the others are in no other figure).
    """
    rested = solution.converged
    attention = torch.softmax(logits[rested], dim=-1)
    basin = torch.bincount(distinct_states(solution.value[rested])).numpy()
    kinds = np.array(classify(attention), dtype=object)
    return _summary(basin, kinds, effective_entries(attention).numpy(), len(rested))


def _summary(
    basin: np.ndarray, kinds: np.ndarray, entries: np.ndarray, total: int
) -> dict[str, Any]:
    shares = {name: (kinds == kind).sum() / total for name, kind in zip(SHARES, KINDS, strict=True)}
    return {
        **shares,
        "count": len(basin),
        "largest": basin.max(initial=0) / total,
        "entries": float(np.median(entries)) if len(entries) else np.nan,
        "resting": len(entries) / total,
    }
