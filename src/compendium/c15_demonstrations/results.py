"""The stored tables and what they say.

`boundary` has one line a seed, a measure and its arguments `x` and `y` (k_A and k_B of a shift,
copies, kick); `part` are the images ("valid": images of the training classes that were held out,
"test": the classes that were held out). Shifts are medians over episodes, inf where the boundary of
half of them leaves the line. A training amplifies rounding: rows computed again on another
processor agree within the scatter over seeds.
"""

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c15_demonstrations import boundary
from compendium.c15_demonstrations.model import (
    Pool,
    Weights,
    draw_episodes,
    streams,
    train,
)
from compendium.common.rows import grid, mean_rows, rows_of

COUNTS = ((2, 1), (4, 2), (8, 4), (4, 1), (8, 2), (8, 1))
COPIES = (1, 2, 4, 8)
EPISODES = 100  # of each training, for a measure

# Name, part, x, y and the values of all seeds.
Measures = Iterable[tuple[str, str, float, float, np.ndarray]]


@stored(
    "boundary",
    grid(training=("balanced", "linear", "matched"), first_seed=(0,))
    + grid(training=("balanced",), first_seed=(10,)),
)
def BOUNDARY(training: str, first_seed: int) -> Rows:
    """Train, then measure the boundary law and, with softmax attention, kicks."""
    seeds = range(first_seed, first_seed + 10)
    kind, goal = ("linear", "balanced") if training == "linear" else ("softmax", training)
    weights, pools = train(seeds, steps=700, goal=goal, kind=kind)
    measures = [*_law(weights, pools, "valid", kind), *_law(weights, pools, "test", kind)]
    if kind == "softmax":
        measures += _kicks(weights, pools)
    return [
        row
        for name, part, x, y, values in measures
        for row in rows_of(seed=seeds, measure=name, part=part, x=x, y=y, value=values)
    ]


def _law(weights: Weights, pools: list[Pool], part: str, kind: str) -> Measures:
    drawn = streams(pools, 5)
    lines = draw_episodes(pools, part=part, count=EPISODES, shown=(1, 1), seeds=drawn)
    start = boundary.boundary(weights, lines, kind=kind)
    there = np.isfinite(start)
    slopes = boundary.stiffness(weights, lines, position=np.where(there, start, 0.0), kind=kind)

    def median(values: np.ndarray) -> np.ndarray:
        kept = (row[keep] for row, keep in zip(values, there, strict=True))
        return np.array([np.median(row) if row.size else np.inf for row in kept])

    for name in ("past attention", "in context"):
        yield name, part, 0, 0, median(slopes[name])
    for shown in COUNTS:
        moved = boundary.shifts(weights, lines, shown=shown, kind=kind)
        yield "shift", part, *shown, median(moved)
        scaled = np.where(np.isinf(moved), np.inf, moved * slopes["stiffness"])
        yield "scaled shift", part, *shown, median(scaled)


def _kicks(weights: Weights, pools: list[Pool]) -> Measures:
    for control, copies in product(boundary.CONTROLS, COPIES):
        drawn = boundary.draw_queries(pools, count=EPISODES, copies=copies, control=control, seed=3)
        shares, moved = boundary.return_shares(weights, drawn)
        yield f"radius, {control}", "test", copies, 0, boundary.radius(shares)
        if control == "none" and copies in (1, 8):
            for kick, distance in zip(boundary.KICKS, moved.T, strict=True):
                yield f"moved, copies {copies}", "test", kick, 0, distance
    drawn = boundary.draw_queries(pools, count=EPISODES, copies=1, seed=3)
    sides = ((False, "copies of both"), (True, "copies of one side"))
    for copies, (own, name) in product(COPIES, sides):
        shares, _ = boundary.return_shares(weights, drawn, copies=copies, own_only=own)
        yield f"radius, {name}", "test", copies, 0, boundary.radius(shares)


@stored("labelings", grid(labelings=(1, 4, 16, 64, 0)))
def LABELINGS(labelings: int) -> Rows:
    """Train on so many labelings (0: a new one in every episode), then the conflict trials."""
    weights, pools = train(range(10), steps=1000, labelings=labelings)
    wins = boundary.conflict_shares(weights, pools, count=EPISODES).T.ravel()
    number, seed = np.repeat(boundary.NUMBERS, 10), np.tile(range(10), len(boundary.NUMBERS))
    return rows_of(number=number, seed=seed, wins=wins)


def column(table: dict[str, np.ndarray], measure: str, **choice: Any) -> np.ndarray:
    """Values (x, seeds) of a measure for a `choice` of the other columns, axes in rising order."""
    choice["measure"] = measure
    kept = np.all([table[name] == value for name, value in choice.items()], axis=0)
    order = np.lexsort((table["seed"][kept], table["y"][kept], table["x"][kept]))
    return table["value"][kept][order].reshape(-1, len(np.unique(table["seed"][kept])))


def law_slopes(table: dict[str, np.ndarray], *, most: float, **choice: Any) -> np.ndarray:
    """Slope of shift times stiffness against log(k_A/k_B) up to log `most`, for each seed (S,)."""
    ratios = np.array([x / y for x, y in sorted(COUNTS)])
    h = np.log(ratios[ratios <= most])
    return np.asarray(h @ column(table, "scaled shift", **choice)[ratios <= most] / (h @ h))


def saturation(table: dict[str, np.ndarray], *, most: float = 8.0, **choice: Any) -> np.ndarray:
    """Shift at `most` : 1 over shift at 2 : 1 (S,), of the seeds whose boundary is on the line."""
    far, near = (column(table, "shift", x=x, y=1.0, **choice)[0] for x in (most, 2.0))
    known = np.isfinite(far) & np.isfinite(near)
    return np.asarray(far[known] / near[known])


STORED = {
    "balanced": {"training": "balanced", "first_seed": 0},
    "other splits": {"training": "balanced", "first_seed": 10},
    "matched": {"training": "matched", "first_seed": 0},
}
FAST = "rate 0.006"


def laws(most: float) -> tuple[float, float]:
    """Shift at `most` : 1 over shift at 2 : 1 of a memory and of a step of linear regression."""
    return float(np.log2(most)), 3 * (most - 1) / (most + 1)


@stored(
    "settings_A16b",
    grid(training=STORED, images=("training classes", "unseen classes"), ratio=(4, 8)),
    seconds=0.5,
)
def LAW(training: str, images: str, ratio: int) -> Rows:
    """How the boundary saturates: −½ as a step of linear regression, ½ as a memory."""
    part = {"training classes": "valid", "unseen classes": "test"}[images]
    found = saturation(BOUNDARY.read(), most=ratio, part=part, **STORED[training])
    memory, regression = laws(ratio)
    return mean_rows((found - regression) / (memory - regression) - 0.5)


_fast = cache(lambda: train(range(300, 306), steps=700, rate=6e-3))


@stored(
    "settings_A16",
    grid(training=(*STORED, FAST), demonstrations=(1, 8), kick=(0.5, 2.0)),
    seconds=0.5,
)
def PULL(training: str, demonstrations: int, kick: float) -> Rows:
    """One half less what is left of a kick to the query, unseen classes."""
    if training == FAST:
        weights, pools = _fast()
        drawn = boundary.draw_queries(pools, count=EPISODES, copies=demonstrations, seed=3)
        moved = boundary.return_shares(weights, drawn)[1].T
    else:
        name = f"moved, copies {demonstrations}"
        moved = column(BOUNDARY.read(), name, part="test", **STORED[training])
    return mean_rows(0.5 - moved[boundary.KICKS.index(kick)] / kick)
