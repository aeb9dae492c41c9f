"""Tables of settings, read from the grids of trainings.

An arm stands at the rate of its least median validation loss, in every cell anew. Trainings are
compared in pairs, of the same split and the same start of all weights that both arms have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c24_training import grids
from compendium.common.rows import array_of, grid, median_rows

_HERE = Path(__file__).parent
# What an accuracy may be off and still be called the same.
SAME = 0.05


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
    """How far the first of two (arm, strength) is ahead of the second, training by training.

    In "accuracy", or in "bits" an answer.
    """
    first, second = (
        trainings(grid, arm=arm, strength=strength, seen=seen, name=measure)
        for arm, strength in arms
    )
    return first - second if measure == "accuracy" else second - first


def needed_rows(
    null: str, strength: float, seen: str, measure: str, splits: str, task: str
) -> Rows:
    """What the saddle with everything trained is ahead of the `null`."""
    grid = "recall_longer" if seen.endswith("400") else task
    ahead = gap(grid, arms=[("saddle", strength), (null, strength)], seen=seen, measure=measure)
    return median_rows(ahead[:5] if splits == "first five" else ahead[5:])


def driven_rows(strength: float, rate: float, seen: str) -> Rows:
    """Whether correlations grow along the stack and less than half of them are left undriven.

    The smaller of what they grow by and what the share left undriven lacks to a half.
    """
    first, last, undriven = (
        trainings("depth", arm="saddle", strength=strength, seen=seen, name=name, rate=rate)
        for name in ("first", "last", "undriven")
    )
    return median_rows(np.minimum(last - first, 0.5 - undriven / last))


def mixer_rows(task: str, mixer: str, seen: str, measure: str) -> Rows:
    """What a layer with this mixer is ahead of attention without a layer around it."""
    arms = [(f"layer of {mixer}", 0.6), ("attention", 0.6)]
    return median_rows(gap(f"layers_{task}", arms=arms, seen=seen, measure=measure))


def exchange_rows(task: str, splits: str, strength: float, seen: str) -> Rows:
    """How much accuracy spins in a layer may still lose against attention there."""
    arms = [("layer of spins", strength), ("layer of attention", 0.6)]
    grid = f"layers_{task}" + ("_again" if splits == "last five" else "")
    return median_rows(gap(grid, arms=arms, seen=seen, measure="accuracy") + SAME)


def number_rows(strength: float, seen: str, measure: str) -> Rows:
    """What couplings that are numbers gain on the digits by being trained."""
    arms = [("numbers", strength), ("frozen numbers", strength)]
    return median_rows(gap("digits", arms=arms, seen=seen, measure=measure))


def _settings(row: str, rows: Callable[..., Rows], *choices: dict[str, Sequence[Any]]) -> Table:
    units = [unit for names in choices for unit in grid(**names)]
    return Table(path=_HERE / f"settings_{row}.csv", units=units, rows=rows, seconds=1.0)


def _needed(task: str, null: str, strength: float, *seen: str, halves: int = 2) -> dict[str, Any]:
    first = {"task": [task], "null": [null], "strength": [strength], "seen": seen}
    return {**first, "measure": _MEASURES, "splits": ("first five", "last five")[:halves]}


_MEASURES, _LOOKS = ("accuracy", "bits"), ("100 of 200", "200 of 200")
_FROZEN = "frozen couplings"
TABLES = {
    "B10": _settings(
        "B10",
        needed_rows,
        _needed("recall", _FROZEN, 0.6, *_LOOKS),
        _needed("recall", _FROZEN, 0.6, "200 of 400", "400 of 400", halves=1),
        _needed("recall", "answers only", 0.6, *_LOOKS),
    ),
    "B10b": _settings(
        "B10b",
        needed_rows,
        _needed("copies", _FROZEN, 0.6, "30 of 60", "60 of 60", "50 of 100", "100 of 100"),
        _needed("copies", _FROZEN, 2.0, "30 of 60", "60 of 60"),
    ),
    "B11": _settings(
        "B11",
        driven_rows,
        {
            "strength": (0.2, 0.3, 0.45, 0.6),
            "rate": grids.GRIDS["depth"].rates["saddle"],
            "seen": ("60 of 120", "120 of 120"),
        },
    ),
    "B1b": _settings(
        "B1b",
        mixer_rows,
        {
            "task": ("digits", "recall"),
            "mixer": ("spins", "averaging", "identity"),
            "seen": _LOOKS,
            "measure": _MEASURES,
        },
    ),
    "B8c": _settings(
        "B8c",
        exchange_rows,
        {
            "task": ("digits", "recall"),
            "splits": ("first five", "last five"),
            "strength": (0.3, 0.6, 2.0),
            "seen": _LOOKS,
        },
    ),
    "B10d": _settings(
        "B10d",
        number_rows,
        {"strength": (0.3, 0.6, 2.0), "seen": _LOOKS, "measure": _MEASURES},
    ),
}
