"""Grids of trainings: every arm at every rate, strength and number of updates.

A verdict on what learns better must not hang on a rate or a start. Every cell of a grid has five or
ten trainings, each on a split of its own; rates stand a factor of 10^¼ or 10^½ apart and reach to
both sides of each arm's best. `settings` compares arms, each at the rate that its own validation
loss chooses, by the median.

Predictions, written before any of these tables was made. In a layer with skips and a feed-forward
network spins come within 0.05 of attention's accuracy, on the digits and in recall; on the digits
averaging in a layer beats attention without one, in recall neither averaging nor identity gets
beyond the crowd. Couplings that are numbers gain less than 0.05 on the digits from being trained.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bookmaker.tables import Rows, Table
from compendium.c24_training.trainings import four_digits, train_arm
from compendium.common.rows import grid as combinations
from compendium.common.token_tasks import Task, copy_task, digit_task, recall_task

# Two decades by quarters.
R = (0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1)


class Grid(NamedTuple):
    """Trainings of a task on `splits`, of every arm at its `rates`.

    `cells`: arms, their starting strengths and their numbers of updates; the rate falls to zero
    over these, and a network is looked at after half of them, too.
    """

    task: Callable[[int], Task]
    splits: Sequence[int]
    rates: dict[str, tuple[float, ...]]
    cells: Sequence[tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]]
    depth: int = 1
    probed: int = 0


MIXERS = ("attention", "averaging", "identity")
LAYERS = ("layer of spins", "layer of attention", "layer of averaging", "layer of identity")
_BOTH, _NUMBERS = ("saddle", "frozen couplings"), ("numbers", "frozen numbers")
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
        probed=40,
    ),
    # Spins and attention change places again on splits drawn after the verdict.
    **{
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
    },
}


def grid_rows(name: str, *, arm: str, strength: float, updates: int) -> Rows:
    """A row for each rate, split and look: test accuracy, test and validation loss in bits.

    With a look inside, the correlations of the spins in the `first` and the `last` layer, and what
    is left in the last one of input tokens from different samples.
    """
    grid = GRIDS[name]
    cells = combinations(rate=grid.rates[arm], split=grid.splits, strength=[strength])
    options: Any = {"steps": updates, "looks": (updates // 2, updates), "probed": grid.probed}
    rows = []
    for cell, _, _, looks in train_arm(arm, grid.task, cells, depth=grid.depth, **options):
        for look in looks:
            told = {"accuracy": look.accuracy}
            for column, loss in (("bits", look.loss), ("held", look.held)):
                told[column] = loss / math.log(2) if math.isfinite(loss) else 99.0
            if look.layers:
                first, last = look.layers[0]["correlation"], look.layers[-1]["correlation"]
                told |= {"first": first, "last": last, "undriven": look.layers[-1]["undriven"]}
            place = {"rate": cell["rate"], "split": cell["split"], "seen": look.step}
            rows.append({**place, **four_digits(told)})
    return rows


TABLES = {
    name: Table(
        path=Path(__file__).with_name(f"grid_{name}.csv"),
        units=[
            {"arm": arm, "strength": strength, "updates": updates}
            for arms, strengths, lengths in grid.cells
            for strength, updates, arm in itertools.product(strengths, lengths, arms)
        ],
        rows=partial(grid_rows, name),
        rtol=0.0,
    )
    for name, grid in GRIDS.items()
}
