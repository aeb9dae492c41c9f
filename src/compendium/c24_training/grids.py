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

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bookmaker.tables import Rows, Table
from compendium.c24_training.sixteen import copy_task
from compendium.c24_training.study import four_digits, train_arm
from compendium.common.token_tasks import Task, digit_task, recall_task
from spinformer.core.records import record

_HERE = Path(__file__).parent
# Two decades by quarters.
R = (0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1)


@record
class Grid:
    """Trainings of a task at a depth: on `splits`, and for every arm at so many `rates`.

    `cells`: arms, their starting strengths and their numbers of updates; the rate falls to zero
    over these, and a network is looked at after half of them, too. `probed` samples for a look
    inside the layers.
    """

    task: Callable[[int], Task]
    depth: int
    splits: Sequence[int]
    rates: dict[str, tuple[float, ...]]
    cells: Sequence[tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]]
    probed: int = 0


MIXERS = ("attention", "averaging", "identity")
LAYERS = ("layer of spins", "layer of attention", "layer of averaging", "layer of identity")
GRIDS = {
    "recall": Grid(
        task=recall_task,
        depth=1,
        splits=range(20, 30),
        rates={"saddle": R[1:5], "frozen couplings": R[2:6], "answers only": R[2:7:2]},
        cells=[
            (("saddle", "frozen couplings"), (0.6,), (200,)),
            (("answers only",), (0.6,), (200,)),
        ],
    ),
    "recall_longer": Grid(
        task=recall_task,
        depth=1,
        splits=range(20, 25),
        rates={"saddle": R[2:4], "frozen couplings": R[3:5]},
        cells=[(("saddle", "frozen couplings"), (0.6,), (400,))],
    ),
    "copies": Grid(
        task=copy_task,
        depth=1,
        splits=range(20, 30),
        rates={"saddle": R[2:6], "frozen couplings": R[3:7]},
        cells=[
            (("saddle", "frozen couplings"), (0.6,), (60, 100)),
            (("saddle", "frozen couplings"), (2.0,), (60,)),
        ],
    ),
    "digits": Grid(
        task=digit_task,
        depth=1,
        splits=range(20, 25),
        rates=dict.fromkeys(("numbers", "frozen numbers"), (*R[2::2], 0.32)),
        cells=[(("numbers", "frozen numbers"), (0.3, 0.6, 2.0), (200,))],
    ),
    "depth": Grid(
        task=digit_task,
        depth=4,
        splits=range(20, 25),
        rates={"saddle": R[1:8:2]},
        cells=[(("saddle",), (0.3, 0.6, 0.2, 0.45), (120,))],
        probed=40,
    ),
    # Spins and attention change places again on splits drawn after the verdict.
    **{
        f"layers_{name}{again}": Grid(
            task=task,
            depth=1,
            splits=splits,
            rates=dict.fromkeys(MIXERS + LAYERS, R[1:last:2]),
            cells=[(arms, (0.6,), (200,)), (LAYERS[:1], (0.3, 2.0), (200,))],
        )
        for name, task, last in (("digits", digit_task, 8), ("recall", recall_task, 6))
        for again, splits, arms in (
            ("", range(20, 25), MIXERS + LAYERS),
            ("_again", range(25, 30), LAYERS[:2]),
        )
    },
}


def grid_rows(name: str, *, arm: str, strength: float, updates: int) -> Rows:
    """A row for each rate, split and look: `seen` updates, test accuracy and loss, validation loss.

    Losses in bits an answer. With a look inside, `first` and `last` are the correlations of the
    spins in the first and the last layer, `undriven` what is left in the last one of input tokens
    from different samples, `residual` that of its output.
    """
    grid = GRIDS[name]
    runs = list(itertools.product(grid.rates[arm], grid.splits))
    _, _, found = train_arm(
        arm,
        grid.task,
        runs=[(split, 0, rate, strength) for rate, split in runs],
        depth=grid.depth,
        steps=updates,
        looks=(updates // 2, updates),
        probed=grid.probed,
    )
    rows = []
    for (rate, split), looks in zip(runs, found, strict=True):
        for look in looks:
            bits, held = (
                x / math.log(2) if math.isfinite(x) else 99.0 for x in (look.loss, look.held)
            )
            told = {"accuracy": look.accuracy, "bits": bits, "held": held}
            if look.layers:
                last = look.layers[-1]
                told |= {"first": look.layers[0]["correlation"], "last": last["correlation"]}
                told |= {"undriven": last["undriven"], "residual": last["residual"]}
            rows.append({"rate": rate, "split": split, "seen": look.step, **four_digits(told)})
    return rows


TABLES = {
    name: Table(
        path=_HERE / f"grid_{name}.csv",
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
