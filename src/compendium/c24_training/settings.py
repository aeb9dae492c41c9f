"""Tables of settings, read from the grids of trainings, and how often the meter is wrong.

An arm stands at the rate of its least median validation loss, in every cell anew. Trainings are
compared in pairs, of the same split and the same start of all weights that both arms have.

Two tokens are the one case in which spins of any dimension are solved exactly with fields that
point anywhere. The meter is wrong if it trusts a system (off by less than `TOLERANCE`) whose mean
spins are off by more.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training import grids
from compendium.common.exact_spins import two_spins
from compendium.common.rows import array_of, grid, median_rows, share_rows
from spinformer.core.random import torch_generator
from spinformer.spins.module import SpinTransformerModule

_MEASURES, _LOOKS = ("accuracy", "bits"), ("100 of 200", "200 of 200")
_HALVES, _TASKS = ("first five", "last five"), ("digits", "recall")
_STRENGTHS = (0.3, 0.6, 2.0)


@cache
def _read(grid: str) -> dict[str, np.ndarray]:
    return grids.TABLES[grid].read()


def trainings(
    grid: str, *, arm: str, strength: float, seen: str, name: str, rate: float | None = None
) -> np.ndarray:
    """Column `name` of the trainings of a cell, in the order of their splits.

    `seen`: "60 of 100" updates. At the given `rate`, or at the arm's own best.
    """
    look, _, updates = seen.partition(" of ")
    cell = {"arm": arm, "strength": strength, "updates": int(updates), "seen": int(look)}
    if rate is not None:
        cell["rate"] = rate
    held, found = (
        array_of(_read(grid), column, "rate", "split", **cell) for column in ("held", name)
    )
    return np.asarray(found[np.median(held, axis=1).argmin()])


def gap(grid: str, *, arms: Sequence[tuple[str, float]], seen: str, measure: str) -> np.ndarray:
    """How far the first of two (arm, strength) is ahead, in "accuracy" or "bits" an answer."""
    first, second = (
        trainings(grid, arm=arm, strength=strength, seen=seen, name=measure)
        for arm, strength in arms
    )
    return first - second if measure == "accuracy" else second - first


def _judged(row: str, units: Rows) -> Callable[[Callable[..., np.ndarray]], Table]:
    """The table of a row from what gives the samples of a unit, of which the median counts."""
    path = Path(__file__).with_name(f"settings_{row}.csv")
    return lambda samples: Table(
        path=path, units=units, rows=lambda **unit: median_rows(samples(**unit)), seconds=1.0
    )


def _needed(task: str, null: str, strength: float, *seen: str, halves: int = 2) -> Rows:
    cell: dict[str, Any] = {"task": [task], "null": [null], "strength": [strength], "seen": seen}
    return grid(**cell, measure=_MEASURES, splits=_HALVES[:halves])


def _lead(
    task: str, null: str, strength: float, seen: str, measure: str, splits: str
) -> np.ndarray:
    """What the saddle with everything trained is ahead of the `null`."""
    name = "recall_longer" if seen.endswith("400") else task
    ahead = gap(name, arms=[("saddle", strength), (null, strength)], seen=seen, measure=measure)
    return ahead[:5] if splits == "first five" else ahead[5:]


B10 = _judged(
    "B10",
    [
        *_needed("recall", "frozen couplings", 0.6, *_LOOKS),
        *_needed("recall", "frozen couplings", 0.6, "200 of 400", "400 of 400", halves=1),
        *_needed("recall", "answers only", 0.6, *_LOOKS),
    ],
)(_lead)
B10b = _judged(
    "B10b",
    [
        *_needed("copies", "frozen couplings", 0.6, "30 of 60", "60 of 60"),
        *_needed("copies", "frozen couplings", 0.6, "50 of 100", "100 of 100"),
        *_needed("copies", "frozen couplings", 2.0, "30 of 60", "60 of 60"),
    ],
)(_lead)


@_judged(
    "B11",
    grid(strength=(0.2, 0.3, 0.45, 0.6), rate=grids.R[1:8:2], seen=("60 of 120", "120 of 120")),
)
def B11(**cell: Any) -> np.ndarray:
    """Whether correlations grow along the stack and less than half of them are left undriven.

    The smaller of what they grow by and what the share left undriven lacks to a half.
    """
    first, last, undriven = (
        trainings("depth", arm="saddle", name=name, **cell)
        for name in ("first", "last", "undriven")
    )
    return np.minimum(last - first, 0.5 - undriven / last)


@_judged(
    "B1b",
    grid(task=_TASKS, mixer=("spins", "averaging", "identity"), seen=_LOOKS, measure=_MEASURES),
)
def B1b(task: str, mixer: str, **look: str) -> np.ndarray:
    """What a layer with this mixer is ahead of attention without a layer around it."""
    return gap(f"layers_{task}", arms=[(f"layer of {mixer}", 0.6), ("attention", 0.6)], **look)


@_judged("B8c", grid(task=_TASKS, splits=_HALVES, strength=_STRENGTHS, seen=_LOOKS))
def B8c(task: str, splits: str, strength: float, seen: str) -> np.ndarray:
    """How much accuracy spins in a layer may still lose against attention there, of 0.05."""
    arms = [("layer of spins", strength), ("layer of attention", 0.6)]
    name = f"layers_{task}" + ("_again" if splits == "last five" else "")
    return gap(name, arms=arms, seen=seen, measure="accuracy") + 0.05


@_judged("B10d", grid(strength=_STRENGTHS, seen=_LOOKS, measure=_MEASURES))
def B10d(strength: float, **look: str) -> np.ndarray:
    """What couplings that are numbers gain on the digits by being trained."""
    return gap("digits", arms=[("numbers", strength), ("frozen numbers", strength)], **look)


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
    seconds=3.0,
)
@torch.no_grad()
def METER(dim: int, couplings: str, beta: float, solver: str) -> Rows:
    """Of random pairs that are trusted the share that may be wrong, less the share that is."""
    generator = torch_generator(0)
    trusted = wrong = 0
    options: Any = {"beta": beta, "solver": solver, "normalize": False, "dtype": torch.float64}
    for strength in COUPLINGS[couplings]:
        module = SpinTransformerModule(dim, heads=1, strength=strength, **options)
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
