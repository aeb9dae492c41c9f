"""Grids of trainings, each arm at many rates, strengths and numbers of updates: what they decide.

A verdict on what learns better must not hang on a rate or a start. Every cell of a grid has five or
ten trainings, each on a split of its own; rates stand a factor of 10^¼ or 10^½ apart and reach to
both sides of each arm's best. In a table of settings an arm stands at the rate of its least median
validation loss, in every cell anew, and trainings are compared in pairs, of the same split and the
same start of all weights that both arms have; their median counts. The predictions of the chapter
on layers and on couplings that are numbers were written before any of these tables was made.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.study import WITHIN, four_digits, train_arm
from compendium.c24_training.token_tasks import Task, copy_task, digit_task, recall_task
from compendium.common.rows import array_of, grid, median_rows, share_rows
from spinformer.core.random import torch_generator
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.module import SpinTransformerModule

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


def grid_rows(
    name: str, *, arm: str, strength: float, updates: int, count: int | None = None
) -> Rows:
    """A row for each rate, split and look: test accuracy, test and validation loss in bits.

    Of all splits, or the first `count`. With a look inside, the correlations of the spins in the
    `first` and the `last` layer, and what is left in the last one of input tokens from different
    samples.
    """
    task, splits, rates, _, depth = GRIDS[name]
    cells = grid(rate=rates[arm], split=splits[:count], strength=[strength])
    options: Any = {"steps": updates, "looks": (updates // 2, updates), "depth": depth}
    options["probed"] = 40 if depth > 1 else 0
    rows = []
    for cell, _, _, looks in train_arm(arm, task, cells, **options):
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
            for arms, strengths, lengths in one.cells
            for strength, updates, arm in product(strengths, lengths, arms)
        ],
        rows=partial(grid_rows, name),
        # The fewer the deeper: at the largest rates a deep stack amplifies rounding early.
        small={
            "arm": next(iter(one.rates)),
            "strength": 0.6,
            "updates": 20 // one.depth,
            "count": 2,
        },
        seconds=5.0,
        rtol=0.05,
        within=WITHIN,
    )
    for name, one in GRIDS.items()
}


_MEASURES, _LOOKS = ("accuracy", "bits"), ("100 of 200", "200 of 200")
_HALVES, _TASKS = ("first five", "last five"), ("digits", "recall")
_STRENGTHS = (0.3, 0.6, 2.0)


def trainings(
    grid: str, *, arm: str, strength: float, seen: str, name: str, rate: float | None = None
) -> np.ndarray:
    """Column `name` of the trainings of a cell, in the order of their splits.

    `seen`: "60 of 100" updates. At the given `rate`, or at the arm's own best.
    """
    look, updates = map(int, seen.split(" of "))
    cell = {"arm": arm, "strength": strength, "updates": updates, "seen": look}
    if rate is not None:
        cell["rate"] = rate
    table = TABLES[grid].read()
    held, found = (array_of(table, column, "rate", "split", **cell) for column in ("held", name))
    return np.asarray(found[np.median(held, axis=1).argmin()])


def gap(grid: str, *, arms: Sequence[tuple[str, float]], seen: str, measure: str) -> np.ndarray:
    """How far the first of two (arm, strength) is ahead, in "accuracy" or "bits" an answer."""
    look: Any = {"seen": seen, "name": measure}
    first, second = (trainings(grid, arm=arm, strength=start, **look) for arm, start in arms)
    return first - second if measure == "accuracy" else second - first


def _needed(task: str, null: str, strength: float, *seen: str, halves: int = 2) -> Rows:
    cell: dict[str, Any] = {"task": [task], "null": [null], "strength": [strength], "seen": seen}
    return grid(**cell, measure=_MEASURES, splits=_HALVES[:halves])


def _lead(task: str, null: str, strength: float, seen: str, measure: str, splits: str) -> Rows:
    """What the saddle with everything trained is ahead of the `null`."""
    name = "recall_longer" if seen.endswith("400") else task
    ahead = gap(name, arms=[("saddle", strength), (null, strength)], seen=seen, measure=measure)
    return median_rows(ahead[:5] if splits == "first five" else ahead[5:])


B10 = stored(
    "settings_B10",
    [
        *_needed("recall", "frozen couplings", 0.6, *_LOOKS),
        *_needed("recall", "frozen couplings", 0.6, "200 of 400", "400 of 400", halves=1),
        *_needed("recall", "answers only", 0.6, *_LOOKS),
    ],
    seconds=0.1,
)(_lead)
B10b = stored(
    "settings_B10b",
    [
        *_needed("copies", "frozen couplings", 0.6, "30 of 60", "60 of 60"),
        *_needed("copies", "frozen couplings", 0.6, "50 of 100", "100 of 100"),
        *_needed("copies", "frozen couplings", 2.0, "30 of 60", "60 of 60"),
    ],
    seconds=0.1,
)(_lead)


@stored(
    "settings_B11",
    grid(strength=(0.2, 0.3, 0.45, 0.6), rate=R[1:8:2], seen=("60 of 120", "120 of 120")),
    seconds=0.1,
)
def B11(**cell: Any) -> Rows:
    """Whether correlations grow along the stack and less than half of them are left undriven.

    The smaller of what they grow by and what the share left undriven lacks to a half.
    """
    first, last, undriven = (
        trainings("depth", arm="saddle", name=name, **cell)
        for name in ("first", "last", "undriven")
    )
    return median_rows(np.minimum(last - first, 0.5 - undriven / last))


@stored(
    "settings_B1b",
    grid(task=_TASKS, mixer=("spins", "averaging", "identity"), seen=_LOOKS, measure=_MEASURES),
    seconds=0.1,
)
def B1b(task: str, mixer: str, **look: str) -> Rows:
    """What a layer with this mixer is ahead of attention without a layer around it."""
    arms = [(f"layer of {mixer}", 0.6), ("attention", 0.6)]
    return median_rows(gap(f"layers_{task}", arms=arms, **look))


@stored(
    "settings_B8c",
    grid(task=_TASKS, splits=_HALVES, strength=_STRENGTHS, seen=_LOOKS),
    seconds=0.1,
)
def B8c(task: str, splits: str, strength: float, seen: str) -> Rows:
    """How much accuracy spins in a layer may still lose against attention there, of 0.05."""
    arms = [("layer of spins", strength), ("layer of attention", 0.6)]
    name = f"layers_{task}" + ("_again" if splits == "last five" else "")
    return median_rows(gap(name, arms=arms, seen=seen, measure="accuracy") + 0.05)


@stored("settings_B10d", grid(strength=_STRENGTHS, seen=_LOOKS, measure=_MEASURES), seconds=0.1)
def B10d(strength: float, **look: str) -> Rows:
    """What couplings that are numbers gain on the digits by being trained."""
    arms = [("numbers", strength), ("frozen numbers", strength)]
    return median_rows(gap("digits", arms=arms, **look))


TOLERANCE, ACCEPTED = 0.2, 0.05
COUPLINGS = {"weak": (0.1, 0.3, 1.0), "strong": (2.0, 5.0)}
EACH = 60  # pairs at every strength


@stored(
    "settings_B8b",
    [
        {"dim": dim, "couplings": couplings, "beta": beta, "solver": solver}
        for dim, beta in product((2, 3, 4, 16), (0.5, 1.5, 3.0))
        for couplings, solver in (("weak", "saddle"), ("strong", "saddle"), ("weak", "fixed point"))
    ],
    seconds=0.2,
)
@torch.no_grad()
def METER(dim: int, couplings: str, beta: float, solver: str) -> Rows:
    """Of random pairs that are trusted the share that may be wrong, less the share that is.

    Two tokens are the one case in which spins of any dimension are solved exactly with fields that
    point anywhere. The meter is wrong if it trusts a system (off by less than `TOLERANCE`) whose
    mean spins are off by more.
    """
    generator = torch_generator(0)
    trusted = wrong = 0
    options: Any = {"beta": beta, "solver": solver, "normalize": False, "dtype": torch.float64}
    for strength in COUPLINGS[couplings]:
        module = SpinTransformerModule(dim, heads=1, coupling_strength=strength, **options)
        module.warned = True  # its meter is asked instead
        size = 2 * torch.rand(EACH, 1, 1, generator=generator, dtype=torch.float64)
        tokens = size * torch.randn(EACH, 2, dim, generator=generator, dtype=torch.float64)
        _, parts = module(tokens, return_parts=True)
        for place in parts.validity().trusted(TOLERANCE)[:, 0].nonzero().flatten().tolist():
            bond, fields = parts.couplings[place, 0].numpy(), tokens[place].numpy()
            truth = torch.tensor(two_spins(bond, fields=fields, beta=beta).magnetization)
            off = (parts.spins[place] - truth).norm() / truth.norm()
            trusted, wrong = trusted + 1, wrong + int(off > TOLERANCE)
    return share_rows(wrong, trials=trusted, bound=ACCEPTED, sign=-1)
