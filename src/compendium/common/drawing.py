"""Points with error bars, intervals, quartiles; colors of regimes, labels of parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from spinformer.core.regimes import Regime
from spinformer.core.statistics import student_interval
from spinformer.plot.style import COLORS

# A color of the palette for every kind of motion of the mean field.
MOTION_COLORS = {
    "driven": "black",
    "periodic": "blue",
    "quasi-periodic": "orange",
    "chaos at 1.266": "purple",
    "chaos at 1.28": "red",
}

REGIME_COLORS: dict[Regime, str] = {
    Regime.PERIODIC: COLORS["black"],
    Regime.QUASI_PERIODIC: COLORS["orange"],
    Regime.CHAOTIC: COLORS["purple"],
    Regime.UNDECIDED: COLORS["sky"],
    Regime.TRANSIENT_CHAOS: COLORS["green"],
}

# What the parameters of a network are called along an axis.
PARAMETERS = {
    "beta": r"inverse temperature $\beta$",
    "gamma": r"attention $\gamma$",
    "epsilon": r"share of the position $\varepsilon$",
}


def points(
    axis: Axes, x: ArrayLike, value: ArrayLike, error: ArrayLike, color: str, **style: Any
) -> None:
    """Points (n,) with errors (n,) or (2, n); `color` is a name in COLORS, or matplotlib's."""
    look: dict[str, Any] = {"fmt": "o", "capsize": 2} | style
    axis.errorbar(x, value, error, color=COLORS.get(color, color), **look)


def intervals(axis: Axes, x: ArrayLike, ends: ArrayLike, color: str, **style: Any) -> None:
    """Points (n,) with the ends of their intervals: `ends` is (3, n), low, value, high."""
    low, value, high = np.asarray(ends)
    points(axis, x, value, [value - low, high - value], color, **style)


def quartiles(axis: Axes, x: ArrayLike, rows: np.ndarray, color: str, **style: Any) -> None:
    """Median and quartiles of samples (samples, n)."""
    intervals(axis, x, np.quantile(rows, [0.25, 0.5, 0.75], axis=0), color, **style)


def means(axis: Axes, x: ArrayLike, rows: np.ndarray, color: str, **style: Any) -> None:
    """Mean and Student's interval of samples (samples, n)."""
    low, high = np.transpose([student_interval(column) for column in rows.T])
    intervals(axis, x, [low, rows.mean(0), high], color, **style)


def means_at(axis: Axes, across: np.ndarray, values: np.ndarray, color: str, **style: Any) -> None:
    """Mean and Student's interval of the values (n,) at each of the places `across` (n,)."""
    places = np.unique(across)
    rows = [values[across == place] for place in places]
    ends = [(student_interval(row)[0], row.mean(), student_interval(row)[1]) for row in rows]
    intervals(axis, places, np.transpose(ends), color, **style)


def size_errors(
    axis: Axes, sizes: np.ndarray, value: np.ndarray, error: np.ndarray, color: str, **style: Any
) -> None:
    """Errors against the number of spins on logarithmic axes, with bars and ticks at the sizes.

    Values within their error of zero, which noise may have made negative, are left out.
    """
    keep = value > error
    points(axis, sizes[keep], value[keep], error[keep], color, ms=4, **style)
    axis.set(xscale="log", yscale="log", xlabel="spins $N$")
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()


def draw_trainings(
    axis: Axes, levels: Mapping[str, np.ndarray], unit: str, colors: Sequence[str]
) -> None:
    """A row for each condition, first at the top: its trainings as dots, their mean as a bar."""
    for row, (values, color) in enumerate(zip(levels.values(), colors, strict=True)):
        axis.plot(values, np.full(len(values), row), ".", color=color, ms=5, alpha=0.6)
        axis.plot(values.mean(), row, "|", color=color, ms=16, mew=2.5)
    axis.set_yticks(range(len(levels)), list(levels))
    axis.set(xlabel=unit, ylim=(len(levels) - 0.5, -0.5))
