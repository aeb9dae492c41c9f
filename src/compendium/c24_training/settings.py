"""Tables of settings, read from the grids of trainings.

An arm stands at the rate of its least median validation loss, in every cell anew. Figures are of
trainings in pairs, the same split and the same start of all weights that both arms have: the median,
and the range of the five, which holds the median of what they are drawn from with 94 %.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c24_training import grids

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
    table = _read(grid)
    look, _, updates = seen.partition(" of ")
    chosen = {"arm": arm, "strength": strength, "updates": int(updates), "seen": int(look)}
    here = np.all([table[key] == value for key, value in chosen.items()], axis=0)
    if not here.any():
        raise ValueError(f"seen, arm and strength must be in the grid {grid}, got {chosen}")
    rates = np.unique(table["rate"][here]) if rate is None else [rate]
    best = min(rates, key=lambda r: float(np.median(table["held"][here & (table["rate"] == r)])))
    return np.asarray(table[name][here & (table["rate"] == best)])


def told(values: np.ndarray) -> Rows:
    """A line of a table of settings: median and range."""
    value, low, high = np.median(values), values.min(), values.max()
    return [{"value": value, "low": low, "high": high, "runs": len(values)}]


def gap(
    grid: str, *, arms: Sequence[tuple[str, float]], seen: str, measure: str
) -> np.ndarray:
    """How far the first of two (arm, strength) is ahead of the second, training by training.

    In "accuracy", or in "bits" an answer.
    """
    first, second = (
        trainings(grid, arm=arm, strength=strength, seen=seen, name=measure)
        for arm, strength in arms
    )
    return first - second if measure == "accuracy" else second - first


def _half(values: np.ndarray, splits: str) -> np.ndarray:
    return values[:5] if splits == "first five" else values[5:]


def needed_rows(null: str, strength: float, seen: str, measure: str, splits: str, task: str) -> Rows:
    """What the saddle with everything trained is ahead of the `null`."""
    grid = "recall_longer" if seen.endswith("400") else task
    ahead = gap(grid, arms=[("saddle", strength), (null, strength)], seen=seen, measure=measure)
    return told(_half(ahead, splits))


def driven_rows(strength: float, rate: float, seen: str) -> Rows:
    """Whether correlations grow along the stack and less than half of them are left undriven.

    The smaller of what they grow by and what the share left undriven lacks to a half.
    """
    first, last, undriven = (
        trainings("depth", arm="saddle", strength=strength, seen=seen, name=name, rate=rate)
        for name in ("first", "last", "undriven")
    )
    return told(np.minimum(last - first, 0.5 - undriven / last))


def mixer_rows(task: str, mixer: str, seen: str, measure: str) -> Rows:
    """What a layer with this mixer is ahead of attention without a layer around it."""
    arms = [(f"layer of {mixer}", 0.6), ("attention", 0.6)]
    return told(gap(f"layers_{task}", arms=arms, seen=seen, measure=measure))


def exchange_rows(task: str, strength: float, seen: str, measure: str) -> Rows:
    """What spins in a layer may be behind attention there, less what they are behind."""
    arms = [("layer of spins", strength), ("layer of attention", 0.6)]
    ahead = gap(f"layers_{task}", arms=arms, seen=seen, measure=measure)
    return told(ahead + SAME * (1.0 if measure == "accuracy" else 3.0))


def number_rows(strength: float, seen: str, measure: str) -> Rows:
    """What couplings that are numbers gain on the digits by being trained."""
    arms = [("numbers", strength), ("frozen numbers", strength)]
    return told(gap("digits", arms=arms, seen=seen, measure=measure))


def _table(row: str, rows: Callable[..., Rows], **choices: Sequence[Any]) -> Table:
    units = [dict(zip(choices, unit, strict=True)) for unit in itertools.product(*choices.values())]
    return Table(path=_HERE / f"settings_{row}.csv", units=units, rows=rows, seconds=1.0)


MEASURES, HALVES = ("accuracy", "bits"), ("first five", "last five")
_LOOKS = ("100 of 200", "200 of 200")
