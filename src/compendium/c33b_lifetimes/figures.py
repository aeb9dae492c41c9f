"""Drawings of chaos that ends: the idea, and lifetimes with their intervals."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from compendium.common.drawing import intervals
from spinformer.plot.style import COLORS, label_panels


def show_leaking_chaos() -> Figure:
    """A schematic: a chaotic set with a hole, an orbit that finds it, the attractor beyond."""
    figure, axis = plt.subplots(figsize=(6.4, 2.6))
    rng = np.random.default_rng(0)
    cloud = rng.uniform(-1, 1, (1500, 2)) * (1.5, 0.9)
    inside = (cloud[:, 0] / 1.5) ** 2 + (cloud[:, 1] / 0.9) ** 2 < 1
    hole = np.hypot(cloud[:, 0] - 1.0, cloud[:, 1] + 0.2) < 0.2
    axis.plot(*cloud[inside & ~hole].T, ".", ms=2, color=COLORS["purple"], alpha=0.5)
    axis.add_patch(Circle((1.0, -0.2), 0.2, fill=False, ls="--", color=COLORS["red"], lw=1.5))
    path = np.array([[-1.0, 0.2], [0.2, 0.6], [-0.4, -0.5], [0.6, 0.3], [-0.7, 0.0], [1.0, -0.2]])
    axis.plot(*path.T, "o-", ms=4, lw=0.9, color=COLORS["black"])
    angle = np.linspace(0, 2 * np.pi, 100)
    axis.plot(2.9 + 0.45 * np.cos(angle), 0.5 * np.sin(angle), color=COLORS["blue"], lw=2.5)
    arrow = {"arrowstyle": "->", "color": COLORS["black"], "lw": 1.4}
    axis.annotate("", xy=(2.45, 0.0), xytext=(1.02, -0.2), arrowprops=arrow)
    for x, y, text, color in (
        (0.0, 1.0, "chaotic set", "purple"),
        (1.45, -0.62, "hole", "red"),
        (2.9, 0.72, "attractor", "blue"),
        (1.85, 0.02, "no way back", "black"),
    ):
        axis.text(x, y, text, ha="center", fontsize=9, color=COLORS[color])
    axis.set(xlim=(-1.7, 3.6), ylim=(-1.0, 1.2), aspect="equal")
    axis.axis("off")
    return figure


def show_lifetimes(table: Mapping[str, np.ndarray]) -> Figure:
    """Lifetimes of `LIFETIMES` by β, with intervals; an arrow up from `low` where nothing ended."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True)
    whole = table["chaotic"] > 0.9 * table["copies"]
    for axis, side in zip(axes, (table["beta"] < 1.27, table["beta"] > 1.27), strict=True):
        ended, never = side & whole & (table["escaped"] > 0), side & whole & (table["escaped"] == 0)
        ends = [table[name][ended] for name in ("low", "lifetime", "high")]
        intervals(axis, table["beta"][ended], ends, "purple", ms=4)
        at, low = table["beta"][never], table["low"][never]
        axis.plot(at, low, marker=r"$\uparrow$", ms=11, ls="", color=COLORS["purple"])
        axis.axhline(1e5, color="0.5", lw=1)
        axis.set(yscale="log", xlabel=r"inverse temperature $\beta$")
        axis.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("lifetime (steps)")
    label_panels(list(axes))
    return figure
