"""How far attention, hidden neurons eliminated, goes with neurons of two finite time scales.

Random memories (normal patterns, COUNT of width DIM) and normal queries. The reference is
the adiabatic flow, ρ = 0.

Predicted before the shares were computed: the share of queries that end at another rest grows in
proportion to ρ while it is small (the boundary of a basin moves by O(ρ)), is below 2 % at ρ =
0.01, and saturates below 25 % for ρ ≥ 10, if the hidden neurons start at Xv. There, v first jumps
to its attention step, so that iterated unit steps of attention differ from the adiabatic flow
about as often. If the hidden neurons start at 0, visible ones that are faster than they forget the
query: for ρ ≥ 10 more than half end elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c12c_two_time_scales.two_time_scales import flow, slow_flow, softmax_lagrangian
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import share_interval
from spinformer.hopfield.continuous import retrieve

COUNT, DIM = 24, 8
APART = 0.05  # rests at a larger distance are different ones


@record
class Share:
    """Queries that ended elsewhere, of those tried, Wilson's interval, and those not at rest."""

    count: int
    tried: int
    low: float
    high: float
    undecided: int


@record
class Errors:
    """Largest distances over all times and queries, one entry for each ρ (n,).

    plain: between v of the full and of the adiabatic flow; corrected: of its first correction.
    """

    ratios: np.ndarray
    plain: np.ndarray
    corrected: np.ndarray


def memories(count: int, *, queries: int, seed: Seed = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """`count` random memories, patterns (COUNT, DIM) and `queries` (n, DIM) of each."""
    generator = numpy_generator(seed)
    shapes = ((COUNT, DIM), (queries, DIM))
    return [tuple(generator.standard_normal(s) for s in shapes) for _ in range(count)]  # type: ignore[misc]


def ends(
    drawn: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    beta: float,
    ratio: float | None,
    hidden_start: str = "adiabatic",
) -> tuple[np.ndarray, np.ndarray]:
    """Where all queries end, (n, DIM), and whether they rest there, (n,) booleans.

    `ratio` ρ; 0 for the adiabatic flow; None for unit steps of attention.
    """
    points, resting = [], []
    for patterns, queries in drawn:
        if ratio is None:
            steps = retrieve(
                torch.as_tensor(patterns),
                queries=torch.as_tensor(queries),
                beta=beta,
                tolerance=1e-8,
            )
            points.append(steps.states.numpy())
            resting.append(steps.converged.numpy())
            continue
        given: dict[str, Any] = {
            "queries": queries,
            "points": 2,
            "accuracy": 1e-6,
            "tolerance": 1e-4,
        }
        if ratio == 0.0:
            found = slow_flow(patterns, beta=beta, duration=200.0, **given)
        else:
            found = flow(
                patterns,
                ratio=ratio,
                hidden_lagrangian=softmax_lagrangian(beta),
                hidden_start=hidden_start,
                duration=200.0 * max(1.0, ratio),
                **given,
            )
        points.append(found.value)
        resting.append(found.converged)
    return np.concatenate(points), np.concatenate(resting)


def elsewhere(one: tuple[np.ndarray, np.ndarray], *, other: tuple[np.ndarray, np.ndarray]) -> Share:
    """How many of the queries of `ends` end at another place in `other`, of those that rest in
    both.
    """
    both = one[1] & other[1]
    apart = np.linalg.norm(one[0] - other[0], axis=1) > APART
    count, tried = int((apart & both).sum()), int(both.sum())
    low, high = share_interval(count, trials=tried)
    return Share(count=count, tried=tried, low=low, high=high, undecided=int((~both).sum()))


STARTS: dict[str, Any] = {
    "in balance": ("adiabatic", (0.03, 0.3, 1.0, 3.0, 30.0)),
    "empty": ("zero", (0.03, 0.3, 1.0, 3.0, 10.0)),
    "unit steps": ("adiabatic", (0.0,)),
}


@stored(
    Path(__file__).with_name("ends.csv"),
    units=[{"start": start, "ratio": r} for start, (_, ratios) in STARTS.items() for r in ratios],
    seconds=3.0,
    within={"count": 2, "tried": 2, "low": 0.02, "high": 0.02},
)
def ENDS(start: str, ratio: float) -> Rows:
    """Queries that end elsewhere than in attention in continuous time, β = 0.8, 200 queries."""
    drawn = memories(10, queries=20, seed=0)
    found = elsewhere(
        ends(drawn, beta=0.8, ratio=0.0),
        other=ends(drawn, beta=0.8, ratio=ratio or None, hidden_start=STARTS[start][0]),
    )
    return [{name: getattr(found, name) for name in ("count", "tried", "low", "high")}]


def adiabatic_errors(
    drawn: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    beta: float,
    ratios: Sequence[float],
    duration: float = 3.0,
) -> Errors:
    """How far full and slow flows part within `duration`, at a time in which few basins matter."""
    values = np.asarray(ratios, dtype=float)
    plain, corrected = np.zeros(len(values)), np.zeros(len(values))
    for patterns, queries in drawn:
        given: dict[str, Any] = {
            "queries": queries,
            "duration": duration,
            "points": 61,
            "accuracy": 1e-11,
        }
        reference = slow_flow(patterns, beta=beta, **given).visible
        for index, ratio in enumerate(values):
            full = flow(
                patterns, ratio=float(ratio), hidden_lagrangian=softmax_lagrangian(beta), **given
            ).visible
            better = slow_flow(patterns, beta=beta, ratio=float(ratio), **given).visible
            for errors, other in ((plain, reference), (corrected, better)):
                gap = float(np.linalg.norm(full - other, axis=-1).max())
                errors[index] = max(errors[index], gap)
    return Errors(ratios=values, plain=plain, corrected=corrected)
