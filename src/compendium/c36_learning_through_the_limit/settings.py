"""Tables of settings of C19, C19b, C19c and C19d: groups of trainings, and of starts.

The tables `confirm_…` read trainings (`learning_again`) that were made after the regions of their
rows had been written.
"""

from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table, stored
from compendium.c36_learning_through_the_limit.horizons import (
    exponents,
    gradient_norms,
    growth_slopes,
    growth_table,
    shares_left,
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
from compendium.common.finite_size import limit_exponents, settled_ensemble, spread_windows
from compendium.common.rows import (
    array_of,
    mean_rows,
    median_rows,
    near_rows,
    numbered,
    parameter_product,
)
from spinformer.core.statistics import student_interval
from spinformer.dmft.network import Network

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
_GROUPS = {1.266: 10, 1.28: 4}
_FEW = 8
_AHEAD = 80


@stored(
    "settings_C19c",
    [
        {"data": f"{beta}-{group}", "part": "growth", "beta": beta, "bits": 0, "tokens": first}
        for beta, groups in _GROUPS.items()
        for group in range(groups)
        for first in (8, 32)
    ]
    + [
        {"data": f"{bits}-{n}", "part": "finite size", "beta": 1.28, "bits": bits, "tokens": _AHEAD}
        for bits in (999, 9999, 99_999, 999_999)
        for n in range(3)
    ],
    seconds=0.1,
)
def settings_c19c(data: str, part: str, beta: float, bits: int, tokens: int) -> Rows:
    """Growth of the gradient in chaos, and what is left of it at finite size.

    Growth: a quarter minus the distance from 1 of the growth over the Lyapunov exponent. Growth
    is the mean over the starts of a group between `tokens` and 128 tokens ahead. Finite
    size: half minus the share of the gradient that is left at so many bits, eighty tokens ahead;
    the median of eight starts. ahead: the tokens times the exponent.
    """
    motion = f"chaos at {beta}"
    group = int(data.split("-")[1])
    exponent = exponents()[motion]
    ahead = {"ahead": round(tokens * exponent, 1)}
    if part == "growth":
        growth = growth_slopes(growth_table.read(), motion, first=tokens, last=128)
        return [ahead | _growth_row(np.array_split(growth / exponent, _GROUPS[beta])[group])]
    left = array_of(
        shares_left_table.read(), "share", "start", motion=motion, size=bits, horizon=tokens
    )
    return [ahead | median_rows(_LOST - left[_chosen(group, _FEW)])[0]]


def _growth_row(growth: np.ndarray) -> dict[str, Any]:
    ends = (growth.mean(), *student_interval(growth))
    return near_rows(ends, aim=1.0, within=_OFF, runs=len(growth))[0]


# Other β where the exponents of all of sixteen random contexts are at least 0.03.
@stored(
    "confirm_C19c",
    numbered(
        [
            {"part": "growth", "beta": beta, "bits": 0, "ahead": (3.0, 4.0, 6.0)[k % 3]}
            for k, beta in enumerate((1.278, 1.29, 1.32, 1.42, 1.47, 1.58, 1.75, 1.87, 2.09, 2.23))
        ]
        + [
            {"part": "finite size", "beta": beta, "bits": 10 ** (3 + k % 4) - 1, "ahead": 12.0}
            for k, beta in enumerate((1.29, 1.42, 1.87, 2.09, 1.32, 1.47, 1.58, 1.278))
        ]
    ),
    seconds=5.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def confirm_c19c(data: int, part: str, beta: float, bits: int, ahead: float) -> Rows:
    """The same at `ahead` over the exponent, growth to four times as far, of a hundred starts."""
    network = Network.poclopez2024()
    exponent = limit_exponents(beta).mean()
    tokens = round(ahead / exponent)
    if part == "growth":
        starts = settled_ensemble(data, beta=beta, count=100, settle=30_000).state()
        norms = gradient_norms(network, starts, beta=beta, horizons=(tokens, 4 * tokens))
        growth = np.log(norms[:, 1] / norms[:, 0]) / (3 * tokens)
        return [{"tokens": tokens} | _growth_row(growth / exponent)]
    windows, position = spread_windows(beta, count=_FEW, settle=30_000, seed=data)
    left = [
        shares_left(
            bits,
            beta=beta,
            window=window,
            position=position,
            steps=tokens,
            seed=100 * data + number,
        )[-1]
        for number, window in enumerate(windows)
    ]
    return [{"tokens": tokens} | median_rows(_LOST - np.array(left))[0]]


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
