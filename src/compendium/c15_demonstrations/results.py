"""The stored tables and what they say.

`boundary` and `labelings` have one line a seed, a quantity and its argument. Columns after those of
the unit: `seed`; `measure`, what was measured; `part`, the images ("valid": images of the training
classes that were held out, "test": the classes that were held out); `x` and `y`, arguments of the
measure (k_A and k_B of a shift, copies, kick, number); `value`. Shifts are medians over episodes,
inf where the boundary of half of them leaves the line. A training amplifies rounding: rows computed
again on another processor agree within the scatter over seeds.

Tables of settings: whether another training would turn what the chapter found. The trainings are
those of table `boundary` (counts balanced, the same on other seeds and splits, counts matched to
the query's class), and for `settings_A16` one at three times their rate. `settings_A16b`: how the
boundary saturates, on a scale where a step of regression stands at −1/2 and retrieval with an
exponential at +1/2. `settings_A16`: less than half of a kick to the query should be left after the
layers, if they pull it back; value: one half less the share that is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c15_demonstrations import basins, boundary
from compendium.c15_demonstrations.episodes import Pool, draw_episodes, streams
from compendium.c15_demonstrations.model import Weights, accuracy, train
from compendium.common.rows import grid, mean_rows, rows_of

_FOLDER = Path(__file__).parent
COUNTS = ((2, 1), (4, 2), (8, 4), (4, 1), (8, 2), (8, 1))
COPIES = (1, 2, 4, 8)

# Name, part, x, y and the values of all seeds.
Measures = Iterable[tuple[str, str, float, float, np.ndarray]]


@stored(
    _FOLDER / "boundary.csv",
    units=[
        {"training": name, "first_seed": first, "count": 10, "steps": 700, "episodes": 100}
        for name, first in (("balanced", 0), ("linear", 0), ("matched", 0), ("balanced", 10))
    ],
)
def BOUNDARY(training: str, first_seed: int, count: int, steps: int, episodes: int) -> Rows:
    """Train, then measure boundary law, accuracy and kicks.

    The second balanced training has ten other seeds: other classes, weights and episodes.
    """
    seeds = range(first_seed, first_seed + count)
    kind, goal = ("linear", "balanced") if training == "linear" else ("softmax", training)
    weights, pools = train(seeds, steps=steps, goal=goal, kind=kind)
    laws = [m for part in ("valid", "test") for m in _law(weights, pools, part, kind, episodes)]
    return _rows(seeds, [*laws, *_kicks(weights, pools, kind, episodes)])


def _law(weights: Weights, pools: list[Pool], part: str, kind: str, count: int) -> Measures:
    drawn = streams(pools, 5)
    lines = draw_episodes(pools, part=part, count=count, shown=(1, 1), seeds=drawn)
    start = boundary.boundary(weights, lines, kind=kind)
    there = np.isfinite(start)
    slopes = boundary.stiffness(weights, lines, position=np.where(there, start, 0.0), kind=kind)

    def median(values: np.ndarray) -> np.ndarray:
        kept = (row[keep] for row, keep in zip(values, there, strict=True))
        return np.array([np.median(row) if row.size else np.inf for row in kept])

    yield "on the line", part, 0, 0, there.mean(1)
    for name in ("stiffness", "past attention", "in context"):
        yield name, part, 0, 0, median(slopes[name])
    scales = {"shift": 1.0, "scaled shift": slopes["stiffness"]}
    scales |= {name: slopes[name] for name in ("first layer", "second layer")}
    for shown in COUNTS:
        moved = boundary.shifts(weights, lines, shown=shown, kind=kind)
        for name, slope in scales.items():
            yield name, part, *shown, median(np.where(np.isinf(moved), np.inf, moved * slope))


def _kicks(weights: Weights, pools: list[Pool], kind: str, count: int) -> Measures:
    for control, copies in product(basins.CONTROLS, COPIES):
        drawn = basins.draw_queries(pools, count=count, copies=copies, control=control, seed=3)
        yield f"accuracy, {control}", "test", copies, 0, accuracy(weights, drawn, kind=kind)
        if kind == "linear":
            continue
        shares, moved = basins.return_shares(weights, drawn)
        yield f"radius, {control}", "test", copies, 0, basins.radius(shares)
        if control == "none" and copies in (1, 8):
            for kick, share, distance in zip(basins.KICKS, shares.T, moved.T, strict=True):
                yield f"returned, copies {copies}", "test", kick, 0, share
                yield f"moved, copies {copies}", "test", kick, 0, distance
    sides = () if kind == "linear" else ((False, "copies of both"), (True, "copies of one side"))
    drawn = basins.draw_queries(pools, count=count, copies=1, seed=3)
    for copies, (own, name) in product(COPIES, sides):
        shares, _ = basins.return_shares(weights, drawn, copies=copies, own_only=own)
        yield f"radius, {name}", "test", copies, 0, basins.radius(shares)


@stored(
    _FOLDER / "labelings.csv",
    units=grid(labelings=(1, 4, 16, 64, 0), first_seed=[0], count=[10], steps=[1000], trials=[100]),
)
def LABELINGS(labelings: int, first_seed: int, count: int, steps: int, trials: int) -> Rows:
    """Train on so many labelings (0: a new one in every episode), then the conflict trials."""
    seeds = range(first_seed, first_seed + count)
    weights, pools = train(seeds, steps=steps, labelings=labelings)
    return _rows(seeds, _conflicts(weights, pools, trials))


def _conflicts(weights: Weights, pools: list[Pool], count: int) -> Measures:
    shares = basins.conflict_shares(weights, pools, count=count)
    for number, share in zip(basins.NUMBERS, shares.T, strict=True):
        yield "demonstration wins", "valid", number, 0, share
    yield "half point", "valid", 0, 0, basins.half_point(shares)
    drawn = basins.draw_queries(pools, count=count, copies=4, seed=3)
    yield "accuracy, none", "test", 4, 0, accuracy(weights, drawn)


def _rows(seeds: range, found: Measures) -> Rows:
    rows: Rows = []
    for name, part, x, y, values in found:
        rows += rows_of(seed=seeds, measure=name, part=part, x=x, y=y, value=values)
    return rows


def column(table: dict[str, np.ndarray], measure: str, **choice: Any) -> np.ndarray:
    """Values (x, seeds) of a measure in a table that was read, both axes in rising order.

    `choice` gives the other columns, as `training="balanced"`, `part="test"`, `x=1.0`.
    """
    choice["measure"] = measure
    kept = np.all([table[name] == value for name, value in choice.items()], axis=0)
    order = np.lexsort((table["seed"][kept], table["y"][kept], table["x"][kept]))
    return table["value"][kept][order].reshape(-1, len(np.unique(table["seed"][kept])))


def law_slopes(table: dict[str, np.ndarray], *, most: float, **choice: Any) -> np.ndarray:
    """Slope of shift times stiffness against log(k_A/k_B), through zero, for each seed (S,).

    Of ratios up to `most` to 1.
    """
    values = column(table, "scaled shift", **choice)
    ratios = np.array([x / y for x, y in sorted(COUNTS)])
    h = np.log(ratios[ratios <= most])
    return np.asarray((h[:, None] * values[ratios <= most]).sum(0) / (h**2).sum())


def saturation(table: dict[str, np.ndarray], *, most: float = 8.0, **choice: Any) -> np.ndarray:
    """Shift at `most` : 1 over shift at 2 : 1 (S,), of the seeds whose boundary is on the line.

    log2(most), so 3 at 8 and 2 at 4, where the boundary moves with log(k_A/k_B), as in retrieval
    with an exponential of the score; 7/3 and 9/5 where it moves with (k_A − k_B)/(k_A + k_B), as
    after a step of linear regression.
    """
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
    _FOLDER / "settings_A16b.csv",
    units=grid(training=STORED, images=("training classes", "unseen classes"), ratio=(4, 8)),
    seconds=0.5,
)
def LAW(training: str, images: str, ratio: int) -> Rows:
    """How the boundary of the stored trainings saturates: one row of `settings_A16b`."""
    part = {"training classes": "valid", "unseen classes": "test"}[images]
    found = saturation(BOUNDARY.read(), most=ratio, part=part, **STORED[training])
    memory, regression = laws(ratio)
    return mean_rows((found - regression) / (memory - regression) - 0.5)


_fast = cache(lambda: train(range(300, 306), steps=700, rate=6e-3))


@stored(
    _FOLDER / "settings_A16.csv",
    units=grid(training=(*STORED, FAST), demonstrations=(1, 8), kick=(0.5, 2.0)),
    seconds=0.5,
)
def PULL(training: str, demonstrations: int, kick: float) -> Rows:
    """What is left of a kick to the query, unseen classes: one row of `settings_A16`."""
    if training == FAST:
        weights, pools = _fast()
        drawn = basins.draw_queries(pools, count=100, copies=demonstrations, seed=3)
        moved = basins.return_shares(weights, drawn)[1].T
    else:
        name = f"moved, copies {demonstrations}"
        moved = column(BOUNDARY.read(), name, part="test", **STORED[training])
    return mean_rows(0.5 - moved[basins.KICKS.index(kick)] / kick)
