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

import numpy as np
import torch

from compendium.c14b_heads_and_fixed_points.loops import (
    attend,
    balanced_gauge,
    readback_values,
    sublayer_step,
)
from spinformer.core.checks import check_tensor
from spinformer.core.records import record
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


@record
class EndPoints:
    """Where the queries of one sequence end, for every head of a layer.

    `count` (H,): distinct end points; `largest` (H,): share of the queries in the largest
    basin; `shares` (H, 3): shares of the queries that end in a fixed point of each of the
    `KINDS` (single pattern, metastable, global average); `entries` (H,): median over the
    queries of the fewest softmax entries that sum to 0.9 at the end, NaN if none rests;
    `resting` (H,): share of the queries that came to rest (the others are in no other figure).
    """

    count: np.ndarray
    largest: np.ndarray
    shares: np.ndarray
    entries: np.ndarray
    resting: np.ndarray


@torch.no_grad()
def end_points(
    model: LanguageModel,
    trace: LayerTrace,
    loop: str,
    *,
    sequence: int = 0,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> EndPoints:
    """Repeat a layer's attention from each query of one sequence until it rests.

    `loop` is one of LOOPS. A state rests when a step is shorter than `tolerance` in the units of
    the module; "keys" and "balanced" finish slow starts with Newton's method (see
    `find_fixed_points`).
    """
    heads = range(model.architecture.heads)
    if loop in ("keys", "balanced"):
        queries, keys = (
            (trace.queries, trace.keys) if loop == "keys" else balanced_gauge(model, trace)
        )
        return _stack(
            [
                _from_hopfield(
                    keys[sequence, head], queries[sequence, head], trace.beta, tolerance, max_steps
                )
                for head in heads
            ]
        )
    keys = trace.keys[sequence]
    if loop == "readback":
        values = readback_values(model, trace)[sequence]
        rows = []
        for head in heads:
            solution = repeat(
                attend(keys[head], values=values[head], beta=trace.beta),
                trace.queries[sequence, head],
                tolerance=tolerance,
                max_steps=max_steps,
            )
            attention = torch.softmax(trace.beta * solution.value @ keys[head].mT, dim=-1)
            rows.append(_from_states(solution, attention))
        return _stack(rows)
    solution = repeat(
        lambda states: sublayer_step(model, trace, states=states, sequence=sequence),
        trace.inputs[sequence],
        tolerance=tolerance,
        max_steps=max_steps,
    )
    queries = project(model, trace.layer, "query", states=solution.value)
    attention = torch.softmax(trace.beta * queries @ keys.mT, dim=-1)
    return _stack([_from_states(solution, weights) for weights in attention])


@torch.no_grad()
def repeat(
    step: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
    throw: bool = False,
) -> Solution[torch.Tensor]:
    """Apply `step` to the rows of `start` (S, d), each on its own, until all rest.

    Value: the states (S, d). Residual (S,): the length of a row's last step over the root mean
    square norm of all finite states; a row is moved no more while it is at most `tolerance`. Status
    (S,): CONVERGED for these; DIVERGED if a step left the finite numbers (value: the state before);
    CYCLE if a state that does not rest came back, within `tolerance`, to where it had been after
    half of `max_steps` (so that periods up to `max_steps`/2 are seen); else STEP_LIMIT, as for
    states that all shrink to zero, since a step is measured by the states themselves. With `throw`
    NotConverged is raised unless all rest.
    """
    states = check_tensor("start", start, ndim=2).detach().clone()
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
        if new.shape != old.shape:
            raise ValueError(
                f"step must return the shape of its argument, {tuple(old.shape)}, "
                f"got {tuple(new.shape)}"
            )
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
    solution = Solution(
        value=states,
        residual=torch.where(moved > 0, moved / scale, 0.0),
        steps=steps,
        status=status,
    )
    if throw:
        solution.require("a state of rest")
    return solution


def distinct_states(states: torch.Tensor, *, merge_radius: float = MERGE_RADIUS) -> torch.Tensor:
    """Number the states (S, d) by the point each lies at: labels (S,) from 0, in order.

    A state lies at the first point that it differs from by at most `merge_radius` times the root
    mean square norm of all.
    """
    labels = torch.full((len(states),), -1)
    radius = merge_radius * float(states.square().sum(-1).mean().sqrt()) if len(states) else 0.0
    while bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        near = (states - states[first]).norm(dim=-1) <= radius
        labels[near & (labels < 0)] = int(labels.max()) + 1
    return labels


def _from_hopfield(
    keys: torch.Tensor, queries: torch.Tensor, beta: float, tolerance: float, max_steps: int
) -> EndPoints:
    found = find_fixed_points(
        keys,
        beta=beta,
        starts=queries,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    entries = np.repeat(found.entries.numpy(), found.basin.numpy())
    kinds = np.repeat(np.array(found.kinds, dtype=object), found.basin.numpy())
    return _summary(found.basin.numpy(), kinds, entries, len(queries))


def _from_states(solution: Solution[torch.Tensor], attention: torch.Tensor) -> EndPoints:
    rested = solution.converged
    basin = torch.bincount(distinct_states(solution.value[rested])).numpy()
    kinds = np.array(classify(attention[rested]), dtype=object)
    entries = effective_entries(attention[rested]).numpy()
    return _summary(basin, kinds, entries, len(rested))


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
        **{
            name: np.concatenate([getattr(row, name) for row in rows])
            for name in ("count", "largest", "shares", "entries", "resting")
        }
    )
