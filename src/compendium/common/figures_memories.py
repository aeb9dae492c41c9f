"""Schematics of memories: valleys at three temperatures, scores as levels, who holds the weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from spinformer.plot.style import COLORS


def draw_valleys(axes: Sequence[Axes]) -> None:
    """Three panels, cold to hot: deep valleys of patterns, a rough floor, a bowl; not to scale."""
    x = np.linspace(-1.0, 1.0, 801)
    rough = 0.10 * np.sin(19 * x) + 0.08 * np.sin(31 * x + 1.0) + 0.05 * np.sin(47 * x + 2.0)
    wells = sum(np.exp(-(((x - place) / 0.06) ** 2)) for place in (-0.55, 0.1, 0.62))
    bowl = 0.5 * x**2
    told = (
        (0.9, 1.0, "cold: $T < T_M$", "the state stays\nin its pattern's valley"),
        (0.0, 1.0, "warmer: $T_M < T < T_g$", "patterns are gone,\na rough floor is left"),
        (0.0, 0.0, "hot: $T > T_g$", "one bowl:\nevery state is visited"),
    )
    for axis, (depth, roughness, title, note) in zip(axes, told, strict=True):
        height = bowl + roughness * rough - depth * wells
        axis.plot(x, height, color=COLORS["black"], lw=1.4)
        place = np.argmin(np.abs(x - 0.1)) if depth else np.argmin(height)
        axis.plot(x[place], height[place] + 0.06, "o", color=COLORS["orange"], ms=9)
        axis.set_title(title, fontsize=10)
        axis.text(0.0, 1.05, note, ha="center", va="top", fontsize=9)
        axis.set(xlim=(-1.05, 1.05), ylim=(-1.1, 1.1), xticks=[], yticks=[], xlabel="states")
        axis.grid(False)
    axes[0].set_ylabel("free energy")


def draw_levels(axis: Axes) -> None:
    """Scores of a query: one of its own pattern, a bell of the others; who outweighs whom."""
    score = np.linspace(-1.0, 1.15, 500)
    bell = np.exp(-0.5 * (score / 0.16) ** 2)
    tilted = np.exp(-0.5 * ((score - 0.32) / 0.16) ** 2)
    axis.fill_between(score, 0, bell, color=COLORS["sky"], alpha=0.45, lw=0)
    axis.fill_between(score, 0, 0.62 * tilted, color=COLORS["orange"], alpha=0.45, lw=0)
    axis.plot([1.0, 1.0], [0.0, 1.0], color=COLORS["green"], lw=3)
    edge = 0.76
    axis.plot([edge, edge], [0.0, 0.55], ":", color=COLORS["black"], lw=1.2)
    for place, height, note, color in (
        (-0.05, 1.06, "how many patterns\nhave this overlap", COLORS["blue"]),
        (0.45, 0.74, "who holds\ntheir weight", COLORS["red"]),
        (edge + 0.02, 0.36, " largest\n of others", COLORS["black"]),
        (1.0, 1.06, "the query's\nown pattern", COLORS["green"]),
    ):
        left = "left" if "largest" in note else "center"
        axis.text(place, height, note, ha=left, va="bottom", fontsize=9, color=color)
    axis.set(xlim=(-0.7, 1.2), ylim=(0, 1.4), yticks=[], xticks=[0, 1])
    axis.set_xticklabels(["0", "1"])
    axis.set_xlabel("overlap with the query")
    axis.grid(False)
