"""Grids of trainings, each arm at many rates, strengths and numbers of updates: what they decide.

A verdict on what learns better must not hang on a rate or a start. Every cell of a grid has five or
ten trainings, each on a split of its own; rates stand a factor of 10^¼ or 10^½ apart and reach to
both sides of each arm's best. In a robustness table an arm stands at the rate of its least median
validation loss, in every cell anew, and trainings are compared in pairs, of the same split and the
same start of all weights that both arms have. A line of the table is one pair. The predictions of
the chapter on layers and on couplings that are numbers were written before any of these tables was
made.

The regions were written before the confirming tables were drawn, on splits that no grid has: B10 up
to 200 updates, B10b up to 60, B10d starts up to g = 0.3, B8c starts from g = 0.6 on, B11 starts up
to g = 0.3.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.study import WITHIN, four_digits, train_arm
from compendium.c24_training.token_tasks import (
    MARKS,
    TEST,
    Task,
    copy_task,
    digit_task,
    recall_task,
)
from compendium.common.rows import (
    Columns,
    array_of,
    median_rows,
    numbered,
    parameter_product,
    share_rows,
)
from spinformer.core.random import torch_generator
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.module import SpinTransformerModule

# What spins may lose against attention and still stand in its place.
MARGIN = 0.05
# Two decades by quarters.
R = (0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1)


class Grid(NamedTuple):
    """Trainings of a task on `splits`, of every arm at its `rates`.

    `cells`: arms, their starting strengths and their numbers of updates; the rate falls to zero
    over these, and a network is looked at after half of them, too, into its layers if it has many.
    """

    task: Callable[[int], Task]
    splits: Sequence[int]
    rates: dict[str, tuple[float, ...]]
    cells: Sequence[tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]]
    depth: int = 1


MIXERS = ("attention", "averaging", "identity")
LAYERS = ("layer of spins", "layer of attention", "layer of averaging", "layer of identity")
_BOTH = ("saddle", "frozen couplings")
_NUMBERS = ("numbers", "frozen numbers")
GRIDS = {
    "recall": Grid(
        recall_task,
        range(20, 30),
        {"saddle": R[1:5], "frozen couplings": R[2:6], "answers only": R[2:7:2]},
        [((*_BOTH, "answers only"), (0.6,), (200,))],
    ),
    "recall_longer": Grid(
        recall_task,
        range(20, 25),
        {"saddle": R[2:4], "frozen couplings": R[3:5]},
        [(_BOTH, (0.6,), (400,))],
    ),
    "copies": Grid(
        copy_task,
        range(20, 30),
        {"saddle": R[2:6], "frozen couplings": R[3:7]},
        [(_BOTH, (0.6,), (60, 100)), (_BOTH, (2.0,), (60,))],
    ),
    "digits": Grid(
        digit_task,
        range(20, 25),
        dict.fromkeys(_NUMBERS, (*R[2::2], 0.32)),
        [(_NUMBERS, (0.3, 0.6, 2.0), (200,))],
    ),
    "depth": Grid(
        digit_task,
        range(20, 25),
        {"saddle": R[1:8:2]},
        [(("saddle",), (0.3, 0.6, 0.2, 0.45), (120,))],
        depth=4,
    ),
    # Couplings that start weaker still.
    "digits_weaker": Grid(
        digit_task,
        range(20, 25),
        dict.fromkeys(_NUMBERS, (R[6], R[8], 0.32)),
        [(_NUMBERS, (0.1, 0.2), (200,))],
    ),
    "depth_weaker": Grid(
        digit_task,
        range(20, 25),
        {"saddle": R[1:4:2]},
        [(("saddle",), (0.1, 0.15), (120,))],
        depth=4,
    ),
}
# Spins and attention change places again on splits drawn after the verdict.
GRIDS |= {
    f"layers_{name}{again}": Grid(
        task,
        splits,
        dict.fromkeys(arms, R[1:last:2]),
        [(arms, (0.6,), (200,)), (LAYERS[:1], (0.3, 2.0), (200,))],
    )
    for name, task, last in (("digits", digit_task, 8), ("recall", recall_task, 6))
    for again, splits, arms in (
        ("", range(20, 25), MIXERS + LAYERS),
        ("_again", range(25, 30), LAYERS[:2]),
    )
}


def grid_rows(
    name: str, *, arm: str, strength: float, updates: int, count: int | None = None
) -> Rows:
    """A row for each rate, split and look: test accuracy, test and validation loss in bits.

    Of all splits, or the first `count`. With a look inside, the correlations of the spins in the
    `first` and the `last` layer, and what is left in the last one of input tokens from different
    samples.
    """
    chosen = GRIDS[name]
    found = train_arm(
        arm,
        chosen.task,
        parameter_product(rate=chosen.rates[arm], split=chosen.splits[:count], strength=[strength]),
        steps=updates,
        depth=chosen.depth,
        looks=(updates // 2, updates),
        probed=40 if chosen.depth > 1 else 0,
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


TABLES = {
    name: Table(
        path=Path(__file__).with_name(f"grid_{name}.csv"),
        units=[
            {"arm": arm, "strength": strength, "updates": updates}
            for arms, strengths, lengths in one.cells
            for strength, updates, arm in product(strengths, lengths, arms)
        ],
        rows=partial(grid_rows, name),
        # The fewer the deeper: at the largest rates a deep stack amplifies rounding early.
        small={
            "arm": next(iter(one.rates)),
            "strength": one.cells[0][1][0] if name.endswith("weaker") else 0.6,
            "updates": 20 // one.depth,
            "count": 2,
        },
        seconds=5.0,
        rtol=0.05,
        within=WITHIN,
    )
    for name, one in GRIDS.items()
}


# How many answers each accuracy is from; of copies four are asked in each of the samples.
ASKED = {"digits": TEST, "recall": TEST, "copies": MARKS * TEST}
# Splits of the confirming tables, which no grid has.
FRESH_SPLITS = range(30, 42)
# What the lines of a confirming table may differ by on two processors.
WITHIN_LEADS = {"value": 0.1, "low": 0.1, "high": 0.1}


class Cell(NamedTuple):
    """Trainings of a grid: an arm, the strength from which its couplings start, its updates."""

    arm: str
    strength: float
    updates: int

    def values(self, table: Columns, column: str, *axes: str, **chosen: float) -> np.ndarray:
        """A column of the cell's rows of a grid's table, as `array_of` gives it."""
        return array_of(table, column, *axes, **self._asdict(), **chosen)


def rates_of(name: str, cell: Cell) -> np.ndarray:
    """The rates at which a cell was trained, in increasing order."""
    table = TABLES[name].read()
    here = np.full(len(table["rate"]), True)
    for column, value in cell._asdict().items():
        here &= table[column] == value
    return np.unique(table["rate"][here])


def best_rate(name: str, cell: Cell, *, seen: int) -> float:
    """The rate of the least median validation loss after `seen` updates."""
    held = cell.values(TABLES[name].read(), "held", "rate", "split", seen=seen)
    return float(rates_of(name, cell)[np.median(held, axis=1).argmin()])


def trainings(
    name: str, cell: Cell, *, seen: int, column: str = "accuracy", rate: float | None = None
) -> np.ndarray:
    """A `column` of the trainings of a cell after `seen` updates, in the order of their splits.

    At the given `rate`, or at the arm's own best.
    """
    if rate is None:
        rate = best_rate(name, cell, seen=seen)
    table = TABLES[name].read()
    return cell.values(table, column, "split", rate=rate, seen=seen)


def accuracy_lead(name: str, first: Cell, second: Cell, *, seen: int) -> np.ndarray:
    """How much more accurate the first cell is on each split, each at its own best rate."""
    return trainings(name, first, seen=seen) - trainings(name, second, seen=seen)


def fresh_trainings(
    name: str, cell: Cell, *, looks: Sequence[int], splits: Sequence[int] = FRESH_SPLITS
) -> np.ndarray:
    """Accuracies (looks, splits) of new trainings, at the rate that the grid had chosen."""
    rate = best_rate(name, cell, seen=cell.updates)
    trained = train_arm(
        cell.arm,
        GRIDS[name].task,
        parameter_product(rate=[rate], split=splits, strength=[cell.strength]),
        steps=cell.updates,
        looks=looks,
        probed=0,
        depth=GRIDS[name].depth,
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
    name: str, first: Cell, second: Cell, *, task: str, seen: int, margin: float = 0.0
) -> Rows:
    """A line for each split of a grid, each cell at its own best rate."""
    return lead_rows(
        trainings(name, first, seen=seen),
        trainings(name, second, seen=seen),
        task=task,
        runs=_runs(task, first, GRIDS[name].splits),
        margin=margin,
    )


def fresh_leads(
    name: str,
    first: Cell,
    second: Cell,
    *,
    task: str,
    looks: Sequence[int],
    splits: Sequence[int] = FRESH_SPLITS,
    margin: float = 0.0,
) -> Rows:
    """A line for each of the `splits` after each of the `looks`, from new trainings."""
    ahead = fresh_trainings(name, first, looks=looks, splits=splits)
    behind = fresh_trainings(name, second, looks=looks, splits=splits)
    runs = _runs(task, first, splits)
    rows = []
    for place, look in enumerate(looks):
        lines = lead_rows(ahead[place], behind[place], task=task, runs=runs, margin=margin)
        rows += [{"seen": look} | line for line in lines]
    return rows


@stored(
    "settings_B10",
    [
        *parameter_product(null=("frozen couplings", "answers only"), updates=(200,)),
        {"null": "frozen couplings", "updates": 400},
    ],
    seconds=0.1,
)
def settings_b10(null: str, updates: int) -> Rows:
    """What the saddle with everything trained is ahead of a null in recall, split by split."""
    name = "recall" if updates == 200 else "recall_longer"
    cells = [Cell(arm, 0.6, updates) for arm in ("saddle", null)]
    rows = []
    for seen in (updates // 2, updates):
        lines = stored_leads(name, *cells, task="recall", seen=seen)
        rows += [{"seen": seen} | line for line in lines]
    return rows


@stored(
    "confirm_B10",
    parameter_product(null=("frozen couplings", "answers only"), updates=(200,)),
    seconds=40.0,
    within=WITHIN_LEADS,
)
def confirm_b10(null: str, updates: int) -> Rows:
    """As `settings_b10`, from new splits."""
    cells = [Cell(arm, 0.6, updates) for arm in ("saddle", null)]
    return fresh_leads("recall", *cells, task="recall", looks=(updates // 2, updates))


@stored(
    "settings_B10b",
    [
        {"strength": 0.6, "updates": 60},
        {"strength": 0.6, "updates": 100},
        {"strength": 2.0, "updates": 60},
    ],
    seconds=0.1,
)
def settings_b10b(strength: float, updates: int) -> Rows:
    """What the saddle is ahead of frozen couplings on copies, split by split."""
    cells = [Cell(arm, strength, updates) for arm in _BOTH]
    rows = []
    for seen in (updates // 2, updates):
        lines = stored_leads("copies", *cells, task="copies", seen=seen)
        rows += [{"seen": seen} | line for line in lines]
    return rows


@stored(
    "confirm_B10b",
    parameter_product(strength=(0.6, 2.0), updates=(60,)),
    seconds=40.0,
    within=WITHIN_LEADS,
)
def confirm_b10b(strength: float, updates: int) -> Rows:
    """As `settings_b10b`, from new splits."""
    cells = [Cell(arm, strength, updates) for arm in _BOTH]
    looks = (updates // 2, updates)
    return fresh_leads("copies", *cells, task="copies", looks=looks, splits=FRESH_SPLITS[:6])


@stored("settings_B10d", parameter_product(strength=(0.1, 0.2, 0.3, 0.6, 2.0)), seconds=0.1)
def settings_b10d(strength: float) -> Rows:
    """What couplings that are numbers gain on the digits by being trained, split by split."""
    name = "digits" if strength >= 0.3 else "digits_weaker"
    cells = [Cell(arm, strength, 200) for arm in _NUMBERS]
    rows = []
    for seen in (100, 200):
        lines = stored_leads(name, *cells, task="digits", seen=seen)
        rows += [{"seen": seen} | line for line in lines]
    return rows


@stored(
    "confirm_B10d",
    parameter_product(strength=(0.1, 0.2, 0.3)),
    seconds=20.0,
    within=WITHIN_LEADS,
)
def confirm_b10d(strength: float) -> Rows:
    """As `settings_b10d`, from new splits."""
    name = "digits" if strength >= 0.3 else "digits_weaker"
    cells = [Cell(arm, strength, 200) for arm in _NUMBERS]
    splits = FRESH_SPLITS[:6]
    return fresh_leads(name, *cells, task="digits", looks=(100, 200), splits=splits)


@stored(
    "settings_B8c",
    parameter_product(task=("digits", "recall"), strength=(0.3, 0.6, 2.0)),
    seconds=0.1,
)
def settings_b8c(task: str, strength: float) -> Rows:
    """What spins in a layer may still lose against attention there, of 0.05, split by split."""
    cells = [Cell("layer of spins", strength, 200), Cell("layer of attention", 0.6, 200)]
    return [
        line
        for again in ("", "_again")
        for line in stored_leads(
            f"layers_{task}{again}", *cells, task=task, seen=200, margin=MARGIN
        )
    ]


@stored(
    "confirm_B8c",
    parameter_product(task=("digits", "recall"), strength=(0.6, 2.0)),
    seconds=20.0,
    within=WITHIN_LEADS,
)
def confirm_b8c(task: str, strength: float) -> Rows:
    """As `settings_b8c`, from new splits."""
    cells = [Cell("layer of spins", strength, 200), Cell("layer of attention", 0.6, 200)]
    splits = FRESH_SPLITS[:6]
    name = f"layers_{task}"
    rows = fresh_leads(name, *cells, task=task, looks=(200,), splits=splits, margin=MARGIN)
    return [{column: row[column] for column in row if column != "seen"} for row in rows]


def driven_growth(first: np.ndarray, last: np.ndarray, undriven: np.ndarray) -> np.ndarray:
    """The smaller of what correlations grow by along a stack and what the share of the last ones
    that is left undriven lacks to one half."""
    return np.minimum(last - first, 0.5 - undriven / last)


@stored(
    "settings_B11",
    parameter_product(strength=(0.1, 0.15, 0.2, 0.3, 0.45, 0.6), rate=R[1:4:2]),
    seconds=0.1,
)
def settings_b11(strength: float, rate: float) -> Rows:
    """`driven_growth` of five stacks half way and at the end, by the median."""
    name = "depth" if strength >= 0.2 else "depth_weaker"
    cell = Cell("saddle", strength, 120)
    rows = []
    for seen in (60, 120):
        growth = driven_growth(
            trainings(name, cell, seen=seen, column="first", rate=rate),
            trainings(name, cell, seen=seen, column="last", rate=rate),
            trainings(name, cell, seen=seen, column="undriven", rate=rate),
        )
        (line,) = median_rows(growth)
        rows.append({"data": f"g{strength} rate {rate}", "seen": seen} | line)
    return rows


@stored(
    "confirm_B11",
    parameter_product(strength=(0.1, 0.15, 0.2, 0.22, 0.25, 0.3), rate=R[1:4:2]),
    small={"strength": 0.2, "rate": 0.0018, "count": 2, "updates": 8},
    seconds=5.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def confirm_b11(strength: float, rate: float, count: int | None = None, updates: int = 120) -> Rows:
    """As `settings_b11`, from new splits, five for each line."""
    # No two lines have a split in common.
    start = round(1000 * strength) + (500 if rate > 0.003 else 0)
    splits = range(start, start + 5)[:count]
    cells = parameter_product(rate=[rate], split=splits, strength=[strength])
    looks = (updates // 2, updates)
    trained = train_arm("saddle", digit_task, cells, depth=4, steps=updates, looks=looks, probed=40)
    rows = []
    for place, seen in enumerate(looks):
        layers = [looked[place].layers for _, _, _, looked in trained]
        growth = driven_growth(
            np.array([one[0]["correlation"] for one in layers]),
            np.array([one[-1]["correlation"] for one in layers]),
            np.array([one[-1]["undriven"] for one in layers]),
        )
        (line,) = median_rows(growth)
        rows.append({"data": f"new g{strength} rate {rate}", "seen": seen} | line)
    return rows


# Off by less than this a system is right, and so many of those that are trusted may be wrong.
TOLERANCE = 0.2
ACCEPTED = 0.05
COUPLINGS = {"weak": (0.1, 0.3, 1.0), "strong": (2.0, 5.0)}
PAIRS_EACH = 60  # at every strength
# Which couplings each solver is asked for: strong ones have no fixed point to be found.
SOLVED = (("weak", "saddle"), ("strong", "saddle"), ("weak", "fixed point"))


@torch.no_grad()
def judged_rows(data: int, dim: int, beta: float, couplings: str, solver: str) -> Rows:
    """Of random pairs that are trusted the share that may be wrong, less the share that is.

    Two tokens are the one case in which spins of any dimension are solved exactly with fields that
    point anywhere. The meter is wrong if it trusts a system (off by less than `TOLERANCE`) whose
    mean spins are off by more.
    """
    generator = torch_generator(data)
    trusted = 0
    wrong = 0
    for strength in COUPLINGS[couplings]:
        module = SpinTransformerModule(
            dim,
            heads=1,
            coupling_strength=strength,
            beta=beta,
            solver=solver,
            normalize=False,
            dtype=torch.float64,
        )
        module.warned = True  # its meter is asked instead
        size = 2 * torch.rand(PAIRS_EACH, 1, 1, generator=generator, dtype=torch.float64)
        tokens = torch.randn(PAIRS_EACH, 2, dim, generator=generator, dtype=torch.float64)
        tokens = size * tokens
        _, parts = module(tokens, return_parts=True)
        for place in parts.validity().trusted(TOLERANCE)[:, 0].nonzero().flatten().tolist():
            bond = parts.couplings[place, 0].numpy()
            exact = two_spins(bond, fields=tokens[place].numpy(), beta=beta)
            truth = torch.tensor(exact.magnetization)
            off = (parts.spins[place] - truth).norm() / truth.norm()
            trusted += 1
            wrong += int(off > TOLERANCE)
    return share_rows(wrong, trials=trusted, bound=ACCEPTED, sign=-1)


settings_b8b = stored(
    "settings_B8b",
    numbered(
        [
            {"dim": dim, "beta": beta, "couplings": couplings, "solver": solver}
            for dim in (2, 3, 4, 16)
            for beta in (0.5, 1.5, 3.0)
            for couplings, solver in SOLVED
        ],
        first=0,
    ),
    seconds=0.2,
)(judged_rows)
