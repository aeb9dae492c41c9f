"""Tables of settings of C19, C19b, C19c and C19d: groups of trainings, and of starts.

The tables `confirm_…` read trainings (`learning_again`) that were made after the regions of their
rows had been written.
"""

import numpy as np

from bookmaker.tables import Rows, Table, stored
from compendium.c36_learning_through_the_limit.horizons import (
    CHAOTIC,
    exponents,
    growth_slopes,
    growth_table,
    shares_left_table,
)
from compendium.c36_learning_through_the_limit.learning import (
    LEARNING_AGAIN,
    SIZES,
    TASKS,
    column,
    excess,
    learning_table,
)
from compendium.common.rows import array_of, mean_rows, median_rows, near_rows, parameter_product
from spinformer.core.statistics import student_interval

# Bits per bit that a training in the limit may lose at finite N; by how much the growth of a
# gradient, over the Lyapunov exponent, may be off 1; what share of a gradient counts as lost.
_LOSS = 0.02
_OFF = 0.25
_LOST = 0.5


def _chosen(group: int, size: int) -> slice:
    """Which seeds or starts are in a group of so many."""
    return slice(group * size, (group + 1) * size)


def _gain(table: Table, task: str, *, rival: str, measure: str, share: float) -> np.ndarray:
    """Bits per bit by which the limit ends below a rival of N = 9,900, seed by seed."""
    ours = column(task, "limit", measure=measure, share=share, table=table)
    theirs = column(task, f"{rival}, 9900", measure=measure, share=share, table=table)
    return theirs - ours


# Tasks and groups of five seeds in `learning`, of four in `learning_again`, and of two of a
# training in the limit alone.
_FIVES = [("cycle", group) for group in range(4)] + [("bytes", group) for group in range(2)]
_FOURS = [("cycle", group) for group in range(5)] + [("bytes", group) for group in range(7)]
_TWOS = [("cycle", group) for group in range(10)] + [("bytes", group) for group in range(5)]


@stored(
    "settings_C19",
    [
        {"data": f"{task}-{unit['rival']}-{group}", "task": task, "group": group} | unit
        for task, group in _FIVES
        for unit in parameter_product(
            rival=("score", "straight"), size=(990, 9900), budget=(0.25, 1.0)
        )
    ],
    seconds=0.1,
)
def settings_c19(data: str, task: str, group: int, rival: str, size: int, budget: float) -> Rows:
    """Bits per bit by which the limit ends below a rival of N = 9,900, at `size`; five seeds."""
    gain = _gain(learning_table, task, rival=rival, measure=f"n{size}", share=budget)
    return mean_rows(gain[_chosen(group, 5)])


@stored(
    "confirm_C19",
    [
        {"data": f"{task}-score-{group}-again", "task": task, "group": group} | unit
        for task, group in _FOURS
        for unit in parameter_product(rival=("score",), size=(990, 9900), budget=(0.25, 1.0))
    ],
    seconds=0.1,
)
def confirm_c19(data: str, task: str, group: int, rival: str, size: int, budget: float) -> Rows:
    """The same of other seeds, four a line."""
    gain = _gain(LEARNING_AGAIN, task, rival=rival, measure=f"n{size}", share=budget)
    return mean_rows(gain[_chosen(group, 4)])


@stored(
    "settings_C19b",
    [
        {"data": f"{task}-{group}", "task": task, "group": group} | unit
        for task, group in _TWOS
        for unit in parameter_product(size=SIZES, budget=(0.25, 1.0))
    ],
    seconds=0.1,
)
def settings_c19b(data: str, task: str, group: int, size: int, budget: float) -> Rows:
    """0.02 bits per bit minus the excess of two trainings in the limit."""
    lost = excess(task, size, share=budget)
    return mean_rows(_LOSS - lost[_chosen(group, 2)])


@stored(
    "confirm_C19b",
    [
        {"data": f"{task}-{group}-again", "task": task, "group": group} | unit
        for task, group in _FOURS
        for unit in parameter_product(size=SIZES[1:], budget=(0.25, 1.0))
    ],
    seconds=0.1,
)
def confirm_c19b(data: str, task: str, group: int, size: int, budget: float) -> Rows:
    """The same of other seeds, four a line."""
    lost = excess(task, size, share=budget, table=LEARNING_AGAIN)
    return mean_rows(_LOSS - lost[_chosen(group, 4)])


# Groups of starts behind a line of C19c, and the tokens ahead at which the shares are read.
_GROUPS = {"chaos at 1.266": 10, "chaos at 1.28": 4}
_FEW = 8
_AHEAD = 80


@stored(
    "settings_C19c",
    [
        {
            "data": f"{motion}-{group}",
            "part": "growth",
            "motion": motion,
            "bits": 0,
            "group": group,
            "first": first,
        }
        for motion in CHAOTIC
        for group in range(_GROUPS[motion])
        for first in (8, 32)
    ]
    + [
        {
            "data": f"{bits}-{group}",
            "part": "finite size",
            "motion": CHAOTIC[1],
            "bits": bits,
            "group": group,
            "first": 0,
        }
        for bits in (999, 9999, 99_999, 999_999)
        for group in range(3)
    ],
    seconds=0.1,
)
def settings_c19c(data: str, part: str, motion: str, bits: int, group: int, first: int) -> Rows:
    """Growth of the gradient in chaos, and what is left of it at finite size.

    Growth: a quarter minus the distance from 1 of the growth over the Lyapunov exponent. Growth
    is the mean over the starts of a group between `first` and 128 tokens ahead. Finite
    size: half minus the share of the gradient that is left at so many bits, eighty tokens ahead;
    the median of eight starts.
    """
    if part == "growth":
        growth = growth_slopes(growth_table.read(), motion, first=first, last=128)
        own = np.array_split(growth / exponents()[motion], _GROUPS[motion])[group]
        return near_rows((own.mean(), *student_interval(own)), aim=1.0, within=_OFF, runs=len(own))
    left = array_of(
        shares_left_table.read(), "share", "start", motion=motion, size=bits, horizon=_AHEAD
    )
    return median_rows(_LOST - left[_chosen(group, _FEW)])


@stored(
    "settings_C19d",
    [
        {"data": task, "task": task, "smallest": smallest, "largest": largest, "middle": middle}
        for task in TASKS
        for smallest, largest in ((99, 9900), (99, 99_000), (990, 99_000))
        for middle in ("mean", "median")
    ],
    seconds=0.1,
)
def settings_c19d(data: str, task: str, smallest: int, largest: int, middle: str) -> Rows:
    """Power of N of the "mean" or "median" excess of the seeds, 2,000 times drawn again."""
    sizes = [size for size in SIZES if smallest <= size <= largest]
    lost = np.array([excess(task, size) for size in sizes])
    seeds = lost.shape[1]
    drawn = np.vstack(
        [np.arange(seeds), np.random.default_rng(0).integers(seeds, size=(2000, seeds))]
    )
    levels = np.log(np.maximum(getattr(np, middle)(lost[:, drawn], axis=-1), 1e-6))
    powers = np.polyfit(np.log(sizes), levels, 1)[0]
    low, high = np.quantile(powers[1:], (0.025, 0.975))
    return near_rows((powers[0], low, high), aim=-1.0, within=0.25, runs=seeds)
