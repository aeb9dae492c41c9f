"""The stored tables: one line a seed, a quantity and its argument.

Columns after those of the unit: `seed`; `measure`, what was measured; `part`, the images ("valid":
images of the training classes that were held out, "test": the classes that were held out); `x`
and `y`, arguments of the measure (k_A and k_B of a shift, copies, kick, number); `value`. Shifts
are medians over episodes, inf where the boundary of half of them leaves the line.

A training amplifies rounding: rows computed again on another processor agree within the scatter
over seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c15_demonstrations.basins import (
    CONTROLS,
    KICKS,
    conflict_shares,
    draw_queries,
    radius,
    return_shares,
)
from compendium.c15_demonstrations.boundary import boundary, draw_lines, shifts, stiffness
from compendium.c15_demonstrations.episodes import Pools, split_digits
from compendium.c15_demonstrations.model import Weights
from compendium.c15_demonstrations.training import Lessons, accuracy, labelings_of, train
from compendium.common.rows import rows_of

COUNTS = ((2, 1), (4, 2), (8, 4), (4, 1), (8, 2), (8, 1))
COPIES = (1, 2, 4, 8)
# Copies of the contradicting demonstration; fractions are fields below zero.
NUMBERS = tuple(float(2**power) for power in range(-8, 9, 2))


def boundary_rows(training: str, *, first_seed: int, count: int, steps: int, episodes: int) -> Rows:
    """Train, then measure accuracy, boundary law and kicks: see the module and its siblings."""
    linear = training == "linear"
    lessons = Lessons(
        first_seed=first_seed, count=count, steps=steps,
        goal="balanced" if linear else training, kind="linear" if linear else "softmax",
    )  # fmt: skip
    weights, pools = train(lessons), [split_digits(seed) for seed in lessons.seeds]
    rows = _Rows(lessons.seeds)
    for part in ("valid", "test"):
        _add_boundary(rows, weights, pools, part=part, kind=lessons.kind, episodes=episodes)
    for control in CONTROLS:
        for copies in COPIES:
            drawn = draw_queries(pools, count=episodes, copies=copies, control=control, seed=3)
            right = accuracy(weights, drawn, kind=lessons.kind)
            rows.add(f"accuracy, {control}", part="test", x=copies, values=right)
            if not linear:
                shares, moved = return_shares(weights, drawn, seed=4)
                rows.add(f"radius, {control}", part="test", x=copies, values=radius(shares))
                if control == "none" and copies in (1, 8):
                    for place, kick in enumerate(KICKS):
                        name = f"copies {copies}"
                        rows.add(f"returned, {name}", part="test", x=kick, values=shares[:, place])
                        rows.add(f"moved, {name}", part="test", x=kick, values=moved[:, place])
    if not linear:
        drawn = draw_queries(pools, count=episodes, copies=1, seed=3)
        for copies in COPIES:
            for own in (False, True):
                shares, _ = return_shares(weights, drawn, copies=copies, own_only=own, seed=4)
                name = "copies of one side" if own else "copies of both"
                rows.add(f"radius, {name}", part="test", x=copies, values=radius(shares))
    return rows.found


def labelings_rows(labelings: int, *, first_seed: int, count: int, steps: int, trials: int) -> Rows:
    """Train on so many labelings (0: a new one in every episode), then the conflict trials."""
    lessons = Lessons(
        first_seed=first_seed, count=count, steps=steps, labelings=labelings, shuffled=0.0
    )
    weights, pools = train(lessons), [split_digits(seed) for seed in lessons.seeds]
    tables = labelings_of(lessons)
    rows = _Rows(lessons.seeds)
    shares = conflict_shares(
        weights, pools, labelings=tables, numbers=NUMBERS, count=trials, seed=1
    )
    for place, number in enumerate(NUMBERS):
        rows.add("demonstration wins", part="valid", x=number, values=shares[:, place])
    rows.add("half point", part="valid", x=0, values=half_point(shares))
    drawn = draw_queries(pools, count=trials, copies=4, seed=3)
    rows.add("accuracy, none", part="test", x=4, values=accuracy(weights, drawn))
    return rows.found


def half_point(shares: Any) -> np.ndarray:
    """The number of copies at which rows of `shares` (S, NUMBERS) rise through one half.

    Linear in the logarithm of the number; 0 where the share is above one half throughout, inf
    where it is below throughout.
    """
    logs, found = np.log(NUMBERS), []
    for row in shares:
        if row[0] >= 0.5 or (row < 0.5).all():
            found.append(0.0 if row[0] >= 0.5 else np.inf)
            continue
        last = int(np.argmax(row >= 0.5))
        ends = slice(last - 1, last + 1)
        found.append(np.exp(np.interp(0.5, row[ends], logs[ends])))
    return np.array(found)


def column(table: dict[str, np.ndarray], measure: str, **choice: Any) -> np.ndarray:
    """Values (x, seeds) of a measure in a table that was read, both axes in rising order.

    `choice` gives the other columns, as `training="balanced"`, `part="test"`, `x=1.0`.
    """
    kept = table["measure"] == measure
    for name, value in choice.items():
        kept &= table[name] == value
    if not kept.any():
        raise ValueError(f"the table has no rows of {measure!r} with {choice}")
    order = np.lexsort((table["seed"][kept], table["y"][kept], table["x"][kept]))
    return table["value"][kept][order].reshape(-1, len(np.unique(table["seed"][kept])))


def law_slopes(
    table: dict[str, np.ndarray], measure: str, *, most: float = 8.0, **choice: Any
) -> np.ndarray:
    """Slope of shift times stiffness against log(k_A/k_B), through zero, for each seed (S,).

    `measure` is one of "scaled shift", "first layer", "second layer"; ratios up to `most` to 1.
    """
    values = column(table, measure, **choice)
    kept = table["measure"] == measure
    shown = sorted(set(zip(table["x"][kept], table["y"][kept], strict=True)))
    ratios = np.array([x / y for x, y in shown])
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


class _Rows:
    """Lines of a table, one for each seed."""

    def __init__(self, seeds: list[int]) -> None:
        self.seeds, self.found = seeds, list[dict[str, Any]]()

    def add(self, measure: str, *, part: str, x: float, values: np.ndarray, y: float = 0) -> None:
        about = {"seed": self.seeds, "measure": measure, "part": part, "x": float(x), "y": float(y)}
        self.found += rows_of(**about, value=values)


def _add_boundary(
    rows: _Rows, weights: Weights, pools: list[Pools], *, part: str, kind: str, episodes: int
) -> None:
    lines = draw_lines(pools, part=part, count=episodes, seed=5)
    start = boundary(weights, lines, kind=kind)
    there = np.isfinite(start)
    slopes = stiffness(weights, lines, position=np.where(there, start, 0.0), kind=kind)

    def median(values: np.ndarray) -> np.ndarray:
        return np.array(
            [np.median(row[keep]) if keep.any() else np.inf
             for row, keep in zip(values, there, strict=True)]
        )  # fmt: skip

    rows.add("on the line", part=part, x=0, values=there.mean(1))
    rows.add("stiffness", part=part, x=0, values=median(slopes.effective))
    rows.add("past attention", part=part, x=0, values=median(slopes.past))
    rows.add("in context", part=part, x=0, values=median(slopes.context))
    for shown in COUNTS:
        moved = shifts(weights, lines, shown=shown, kind=kind)
        for measure, slope in (
            ("shift", 1.0),
            ("scaled shift", slopes.effective),
            ("first layer", slopes.layers[0]),
            ("second layer", slopes.layers[1]),
        ):
            x, y = shown
            scaled = np.where(np.isinf(moved), np.inf, moved * slope)
            rows.add(measure, part=part, x=x, y=y, values=median(scaled))


_FOLDER = Path(__file__).parent
_FULL = {"count": 10, "steps": 700, "episodes": 100}
# Seeds 0 to 9, and for the balanced training ten others: other classes, weights and episodes.
BOUNDARY = Table(
    path=_FOLDER / "boundary.csv",
    units=[
        {"training": "balanced", "first_seed": 0, **_FULL},
        {"training": "linear", "first_seed": 0, **_FULL},
        {"training": "matched", "first_seed": 0, **_FULL},
        {"training": "balanced", "first_seed": 10, **_FULL},
    ],
    rows=boundary_rows,
)
LABELINGS = Table(
    path=_FOLDER / "labelings.csv",
    units=[
        {"labelings": number, "first_seed": 0, "count": 10, "steps": 1000, "trials": 100}
        for number in (1, 4, 16, 64, 0)
    ],
    rows=labelings_rows,
)
