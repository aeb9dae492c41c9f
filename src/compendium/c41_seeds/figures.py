"""Drawings of the chapter on sweeps over a seed."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from scipy.stats import chi2, norm

from spinformer.plot.style import COLORS


def show_sweep() -> None:
    """A schematic: one chapter, many points, workers that take them, one table."""
    _, axis = plt.subplots(figsize=(7.6, 2.8))
    axis.set(xlim=(0, 10), ylim=(0, 4))
    axis.axis("off")

    def box(x: float, y: float, width: float, height: float, text: str, color: str) -> None:
        patch = FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0.06", facecolor=color, edgecolor="0.3"
        )
        axis.add_patch(patch)
        axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", color="black")

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.4"})

    box(0.1, 1.5, 1.7, 1.0, "chapter", "0.92")
    seeds = ("seed 0", "seed 10", "seed 20", "…")
    for row, text in enumerate(seeds):
        y = 3.2 - 0.95 * row
        box(2.9, y, 1.4, 0.55, text, "white")
        arrow((1.9, 2.0), (2.8, y + 0.27))
        arrow((4.4, y + 0.27), (5.2, 2.9 if row % 2 == 0 else 1.2))
    box(5.3, 2.5, 1.5, 0.8, "worker", COLORS["sky"])
    box(5.3, 0.8, 1.5, 0.8, "worker", COLORS["sky"])
    arrow((6.9, 2.9), (7.8, 2.2))
    arrow((6.9, 1.2), (7.8, 1.8))
    box(7.9, 1.3, 1.9, 1.4, "one row\nfor each\npoint", "0.92")


def plot_pulls(axis: Axes, pulls: Sequence[float]) -> None:
    """Sorted deviations in units of their errors, beside what a normal distribution expects."""
    ordered = np.sort(np.asarray(pulls, dtype=float))
    expected = norm.ppf((np.arange(len(ordered)) + 0.5) / len(ordered))
    ends = np.array([-2.6, 2.6])
    axis.plot(ends, ends, color=COLORS["black"], lw=1, label="normal")
    axis.plot(expected, ordered, "o", ms=4, color=COLORS["blue"], label="seeds")
    axis.set(xlabel="expected, sorted", ylabel="deviation (standard errors)")
    axis.legend()


def plot_margins(axis: Axes, shares: dict[str, np.ndarray]) -> None:
    """Figures as shares of the bounds they must stay below, one dot a seed."""
    for row, values in enumerate(shares.values()):
        spread = np.linspace(-0.2, 0.2, len(values))
        axis.plot(values, row + spread, "o", ms=3, color=COLORS["blue"])
    axis.axvline(1.0, color=COLORS["red"], lw=1.5)
    axis.set_yticks(range(len(shares)), list(shares))
    axis.invert_yaxis()
    axis.set(xlim=(0, 1.15), xlabel="share of the bound")


def plot_misses(axis: Axes, found: Sequence[float], *, size: int) -> None:
    """How often root mean squares of `size` deviations pass a bound, between two extremes."""
    ordered = np.sort(np.asarray(found, dtype=float))
    bounds = np.linspace(0.0, 3.2, 200)
    together = 2 * norm.sf(bounds)
    alone = chi2.sf(size * bounds**2, size)
    axis.plot(bounds, together, "--", color=COLORS["black"], lw=1, label="all spins as one")
    axis.plot(bounds, alone, ":", color=COLORS["black"], lw=1, label="independent spins")
    passed = 1 - np.arange(len(ordered)) / len(ordered)
    axis.step(ordered, passed, where="pre", color=COLORS["blue"], label="runs")
    for bound in (1.5, 3.0):
        axis.axvline(bound, color=COLORS["red"], lw=1)
    axis.set(xlabel="bound (standard errors)", ylabel="share of runs beyond it")
    axis.set(yscale="log", ylim=(1e-3, 1.5), xlim=(0, 3.2))
    axis.legend(loc="lower left")
