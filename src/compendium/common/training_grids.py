"""Grids of trainings, each arm at many rates, strengths and numbers of updates.

A verdict on what learns better must not hang on a rate or a start. Every cell of a grid has five or
ten trainings, each on a split of its own; rates stand a factor of 10^¼ or 10^½ apart and reach to
both sides of each arm's best. In a robustness table an arm stands at the rate of its least median
validation loss, in every cell anew, and trainings are compared in pairs, of the same split and the
same start of all weights that both arms have. A line of the table is one pair.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.common.rows import Columns, array_of, parameter_product
from compendium.common.token_tasks import MARKS, TEST, Task
from compendium.common.token_training import WITHIN, four_digits, train_arm

# Learning rates: two decades by quarters.
QUARTERS = (0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1)
# How many answers each accuracy is from; of copies four are asked in each of the samples.
ASKED = {"digits": TEST, "recall": TEST, "copies": MARKS * TEST}
# Splits of the confirming tables, which no grid has.
FRESH_SPLITS = range(30, 42)
# What the lines of a confirming table may differ by on two processors.
WITHIN_LEADS = {"value": 0.1, "low": 0.1, "high": 0.1}


class Grid(NamedTuple):
    """Trainings of a task on `splits`, of every arm at its `rates`: the table `grid_NAME.csv`.

    `cells`: arms, their starting strengths and their numbers of updates; the rate falls to zero
    over these, and a network is looked at after half of them, too, into its layers if it has many.
    """

    name: str
    folder: Path
    task: Callable[[int], Task]
    splits: Sequence[int]
    rates: dict[str, tuple[float, ...]]
    cells: Sequence[tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]]
    depth: int = 1

    @property
    def table(self) -> Table:
        """The stored table of all trainings of the grid."""
        strengths = self.cells[0][1]
        return Table(
            path=self.folder / f"grid_{self.name}.csv",
            units=[
                {"arm": arm, "strength": strength, "updates": updates}
                for arms, starts, lengths in self.cells
                for strength, updates, arm in product(starts, lengths, arms)
            ],
            rows=partial(grid_rows, self),
            # At large rates the first updates overshoot, and what rounding leaves grows at once.
            small={
                "arm": next(iter(self.rates)),
                "strength": 0.6 if 0.6 in strengths else strengths[0],
                "updates": 20 // self.depth,
                "count": 2,
                "lowest": 3,
            },
            seconds=5.0,
            rtol=0.05,
            within=WITHIN,
        )


def grid_rows(
    grid: Grid,
    *,
    arm: str,
    strength: float,
    updates: int,
    count: int | None = None,
    lowest: int | None = None,
) -> Rows:
    """A row for each rate, split and look: test accuracy, test and validation loss in bits.

    Of all splits, or the first `count`, at all rates of the arm, or at its `lowest`. With a look
    inside, the correlations of the spins in the `first` and the `last` layer, and what is left in
    the last one of input tokens from different samples.
    """
    found = train_arm(
        arm,
        grid.task,
        parameter_product(
            rate=sorted(grid.rates[arm])[:lowest], split=grid.splits[:count], strength=[strength]
        ),
        steps=updates,
        depth=grid.depth,
        looks=(updates // 2, updates),
        probed=40 if grid.depth > 1 else 0,
    )
    rows = []
    for cell, _, _, looks in found:
        for look in looks:
            told = {"accuracy": look.accuracy}
            for column, loss in (("bits", look.loss), ("held", look.held)):
                told[column] = loss / math.log(2) if math.isfinite(loss) else 99.0
            if look.layers:
                first = look.layers[0]["correlation"]
                last = look.layers[-1]["correlation"]
                told |= {"first": first, "last": last, "undriven": look.layers[-1]["undriven"]}
            place = {"rate": cell["rate"], "split": cell["split"], "seen": look.step}
            rows.append(place | four_digits(told))
    return rows


class Cell(NamedTuple):
    """Trainings of a grid: an arm, the strength from which its couplings start, its updates."""

    arm: str
    strength: float
    updates: int

    def values(self, table: Columns, column: str, *axes: str, **chosen: float) -> np.ndarray:
        """A column of the cell's rows of a grid's table, as `array_of` gives it."""
        return array_of(table, column, *axes, **self._asdict(), **chosen)


def rates_of(grid: Grid, cell: Cell) -> np.ndarray:
    """The rates at which a cell was trained, in increasing order."""
    table = grid.table.read()
    here = np.full(len(table["rate"]), True)
    for column, value in cell._asdict().items():
        here &= table[column] == value
    return np.unique(table["rate"][here])


def best_rate(grid: Grid, cell: Cell, *, seen: int) -> float:
    """The rate of the least median validation loss after `seen` updates."""
    held = cell.values(grid.table.read(), "held", "rate", "split", seen=seen)
    return float(rates_of(grid, cell)[np.median(held, axis=1).argmin()])


def trainings(
    grid: Grid, cell: Cell, *, seen: int, column: str = "accuracy", rate: float | None = None
) -> np.ndarray:
    """A `column` of the trainings of a cell after `seen` updates, in the order of their splits.

    At the given `rate`, or at the arm's own best.
    """
    if rate is None:
        rate = best_rate(grid, cell, seen=seen)
    table = grid.table.read()
    return cell.values(table, column, "split", rate=rate, seen=seen)


def accuracy_lead(grid: Grid, first: Cell, second: Cell, *, seen: int) -> np.ndarray:
    """How much more accurate the first cell is on each split, each at its own best rate."""
    return trainings(grid, first, seen=seen) - trainings(grid, second, seen=seen)


def fresh_trainings(
    grid: Grid, cell: Cell, *, looks: Sequence[int], splits: Sequence[int] = FRESH_SPLITS
) -> np.ndarray:
    """Accuracies (looks, splits) of new trainings.

    They have the best rate of the grid's cell of the same arm whose start is nearest.
    """
    starts = [strength for _, strengths, _ in grid.cells for strength in strengths]
    nearest = min(starts, key=lambda start: abs(math.log(start / cell.strength)))
    rate = best_rate(grid, cell._replace(strength=nearest), seen=cell.updates)
    trained = train_arm(
        cell.arm,
        grid.task,
        parameter_product(rate=[rate], split=splits, strength=[cell.strength]),
        steps=cell.updates,
        looks=looks,
        probed=0,
        depth=grid.depth,
    )
    return np.array([[look.accuracy for look in seen] for _, _, _, seen in trained]).T


def difference_intervals(first: np.ndarray, second: np.ndarray, *, asked: int) -> np.ndarray:
    """95 % intervals (n, 2) of the difference of two shares of `asked` answers each.

    One success and one failure are added to each of both [agresti2000simple], so that the interval
    of two networks without a mistake has a width. That both answered the same questions is not
    used, which would make it narrower.
    """
    shares = (np.array([first, second]) * asked + 1) / (asked + 2)
    middle = shares[0] - shares[1]
    half = 1.96 * np.sqrt((shares * (1 - shares)).sum(0) / (asked + 2))
    # Shares near 0 or 1 are drawn inwards, and the difference may come to lie outside.
    low = np.minimum(middle - half, first - second)
    high = np.maximum(middle + half, first - second)
    return np.stack([low, high], axis=1)


def lead_rows(
    first: np.ndarray,
    second: np.ndarray,
    *,
    task: str,
    runs: Sequence[str],
    margin: float = 0.0,
) -> Rows:
    """A line for each pair of trainings: what the first is ahead in accuracy, and a `margin`.

    `runs` names the pairs: lines of the same trainings have the same name.
    """
    ends = difference_intervals(first, second, asked=ASKED[task]) + margin
    return [
        {"data": run, "value": value + margin, "low": low, "high": high, "runs": 2}
        for run, value, (low, high) in zip(runs, first - second, ends, strict=True)
    ]


def _runs(task: str, cell: Cell, splits: Sequence[int]) -> list[str]:
    return [f"{task} g{cell.strength} {cell.updates} split {split}" for split in splits]


def stored_leads(
    grid: Grid, first: Cell, second: Cell, *, task: str, seen: int, margin: float = 0.0
) -> Rows:
    """A line for each split of a grid, each cell at its own best rate."""
    return lead_rows(
        trainings(grid, first, seen=seen),
        trainings(grid, second, seen=seen),
        task=task,
        runs=_runs(task, first, grid.splits),
        margin=margin,
    )


def fresh_leads(
    grid: Grid,
    first: Cell,
    second: Cell,
    *,
    task: str,
    looks: Sequence[int],
    splits: Sequence[int] = FRESH_SPLITS,
    margin: float = 0.0,
) -> Rows:
    """A line for each of the `splits` after each of the `looks`, from new trainings."""
    ahead = fresh_trainings(grid, first, looks=looks, splits=splits)
    behind = fresh_trainings(grid, second, looks=looks, splits=splits)
    runs = _runs(task, first, splits)
    rows = []
    for place, look in enumerate(looks):
        lines = lead_rows(ahead[place], behind[place], task=task, runs=runs, margin=margin)
        rows += [{"seen": look} | line for line in lines]
    return rows
