"""Tables of settings of C19, C19b and C19d, read from the stored trainings.

`settings_C19b`: 0.02 bits per bit less the excess of the loss at N over that in the limit.
`settings_C19`: bits per bit by which training in the limit ends below a rival, pairs of seeds.
`settings_C19d`: a quarter less the distance of the power of the excess from −1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c36_learning_through_the_limit.horizons import GROWTH, RATES, growth_slopes
from compendium.c36_learning_through_the_limit.training import LEARNING, SIZES, TASKS, column
from compendium.common.rows import grid, mean_rows, median_interval, near_rows
from spinformer.core.statistics import mean_interval

_FOLDER = Path(__file__).parent


@stored(
    _FOLDER / "settings_C19.csv",
    units=grid(task=TASKS, rival=("score", "straight"), size=SIZES, budget=(0.25, 1.0)),
    seconds=0.5,
)
def RIVALS(task: str, rival: str, size: int, budget: float) -> Rows:
    """Against a rival trained at N = 9,900, tested at `size`, after a share of the budget."""
    table = LEARNING.read()
    ours, theirs = (
        column(table, task=task, arm=arm, measure=f"n{size}", share=budget)
        for arm in ("limit", f"{rival}, 9900")
    )
    return mean_rows(theirs - ours)


def excess(task: str, size: int, *, share: float = 1.0) -> np.ndarray:
    """Loss at N = `size` less that in the limit, (seeds,), of trainings in the limit."""
    ours: Any = {"task": task, "arm": "limit", "share": share}
    at_size, limit = (column(LEARNING.read(), measure=m, **ours) for m in (f"n{size}", "limit"))
    return np.asarray(at_size - limit)


@stored(
    _FOLDER / "settings_C19b.csv",
    units=grid(task=TASKS, size=SIZES, budget=(0.25, 0.5, 1.0)),
    seconds=0.5,
)
def EXCESSES(task: str, size: int, budget: float) -> Rows:
    """Trained in the limit, tested at `size`, after a share of the budget."""
    return mean_rows(0.02 - excess(task, size, share=budget))


@stored(
    _FOLDER / "settings_C19c.csv",
    units=grid(
        motion=("chaos at 1.266", "chaos at 1.28"),
        first=(8, 16, 32),
        last=(64, 128),
        middle=("mean", "median"),
    ),
    seconds=0.5,
)
def GROWTHS(motion: str, *, first: int, last: int, middle: str) -> Rows:
    """Half less the distance from 1 of the gradient's growth over the exponent of the motion."""
    rates = RATES.read()
    found = growth_slopes(GROWTH.read(), motion, first=first, last=last)
    found = found / rates["rate"][rates["motion"] == motion]
    interval = (found.mean(), *mean_interval(found))
    interval = interval if middle == "mean" else median_interval(found)
    return near_rows(interval, aim=1.0, within=0.5, runs=len(found))


@stored(
    _FOLDER / "settings_C19d.csv",
    units=[
        {"task": task, "smallest": smallest, "largest": largest, "middle": middle}
        for task in TASKS
        for smallest, largest in ((99, 9900), (99, 99_000), (990, 99_000))
        for middle in ("mean", "median")
    ],
    seconds=1.0,
)
def POWERS(task: str, smallest: int, largest: int, middle: str) -> Rows:
    """The power by a straight line through the "mean" or "median" excess of the seeds.

    The interval is that of 2,000 draws of the seeds with replacement.
    """
    sizes = [size for size in SIZES if smallest <= size <= largest]
    found = np.array([excess(task, size) for size in sizes])
    seeds = found.shape[1]
    drawn = np.random.default_rng(0).integers(seeds, size=(2000, seeds))
    chosen = np.concatenate([np.arange(seeds)[None], drawn])
    reduce = np.mean if middle == "mean" else np.median
    levels = np.log(np.maximum(reduce(found[:, chosen], axis=-1), 1e-6))
    powers = np.polyfit(np.log(sizes), levels, 1)[0]
    interval = (powers[0], *np.quantile(powers[1:], (0.025, 0.975)))
    return near_rows(interval, aim=-1.0, within=0.25, runs=seeds)
