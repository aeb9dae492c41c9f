"""Drawings of the chapter on the Hopfield layer: its parts, learning curves, paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from spinformer.core.statistics import mean_interval
from spinformer.plot.style import COLORS

SHADES = {
    "mean": "black",
    "gated": "blue",
    "hopfield": "orange",
    "hopfield, rest": "green",
    "static": "purple",
}


def draw_parts(axis: Axes) -> None:
    """The layer as a drawing: a query becomes a state, hops over keys, and reads values."""
    boxes = {
        "query": (0.8, 2.0, "sky"),
        "state ξ": (3.4, 2.0, "orange"),
        "keys $k_i$": (3.4, 0.4, "blue"),
        "patterns": (0.8, 0.4, "sky"),
        "values $v_i$": (6.0, 0.4, "blue"),
        "output": (6.0, 2.0, "sky"),
    }
    for name, (x, y, color) in boxes.items():
        style = {"boxstyle": "round,pad=0.45", "facecolor": COLORS[color], "alpha": 0.45}
        axis.text(x, y, name, ha="center", va="center", bbox=style)
    arrows = [
        ((1.3, 2.0), (2.75, 2.0), "start", (2.0, 2.12)),
        ((1.45, 0.4), (2.65, 0.4), "project", (2.05, 0.52)),
        ((3.4, 0.72), (3.4, 1.68), "scores β k·ξ", (2.65, 1.15)),
        ((4.1, 2.0), (5.4, 2.0), "read Σ p v", (4.75, 2.12)),
        ((6.0, 0.72), (6.0, 1.68), "", (0.0, 0.0)),
    ]
    for tail, head, text, place in arrows:
        axis.annotate("", head, tail, arrowprops={"arrowstyle": "->", "lw": 1.4})
        axis.text(*place, text, ha="center", va="bottom", fontsize=9)
    below = {"arrowstyle": "->", "lw": 1.4, "connectionstyle": "arc3,rad=0.22"}
    axis.annotate("", (5.6, 0.15), (1.3, 0.15), arrowprops=below)
    axis.text(3.4, -0.62, "project", ha="center", fontsize=9)
    loop = {
        "arrowstyle": "->",
        "lw": 1.8,
        "color": COLORS["red"],
        "connectionstyle": "arc3,rad=-1.6",
    }
    axis.annotate("", (3.75, 2.3), (3.05, 2.3), arrowprops=loop)
    axis.text(3.4, 3.2, "hop ξ ← Σ p k until it rests", ha="center", color=COLORS["red"])
    axis.set(xlim=(0, 6.9), ylim=(-0.7, 3.5))
    axis.axis("off")


def draw_learning_curves(
    axis: Axes,
    *,
    accuracy: Mapping[str, Mapping[int, ArrayLike]],
    poolings: Sequence[str],
) -> None:
    """Mean test accuracy over seeds against the number of bags, with Student's intervals.

    accuracy: by pooling and number of bags, one entry a seed. Points are set side by side.
    """
    for place, pooling in enumerate(poolings):
        sizes = sorted(accuracy[pooling])
        means = np.array([np.asarray(accuracy[pooling][size]).mean() for size in sizes])
        ends = np.array([mean_interval(accuracy[pooling][size]) for size in sizes])
        shift = 1.0 + 0.035 * (place - len(poolings) / 2)
        axis.errorbar(
            shift * np.array(sizes),
            means,
            yerr=np.abs(ends.T - means),
            fmt="o-",
            ms=4,
            capsize=2,
            color=COLORS[SHADES[pooling]],
            label=pooling,
        )
    axis.set(xscale="log", xlabel="training bags", ylabel="test accuracy")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend()


def draw_differences(axis: Axes, *, differences: Mapping[str, ArrayLike], against: str) -> None:
    """Paired differences of the accuracy in percentage points, with Student's interval."""
    for row, (_, values) in enumerate(differences.items()):
        points = 100 * np.asarray(values)
        low, high = mean_interval(points)
        axis.plot(points, np.full(len(points), row + 0.18), ".", ms=4, color=COLORS["sky"])
        axis.plot([low, high], [row, row], "-", lw=3, color=COLORS["blue"])
        axis.plot(points.mean(), row, "o", ms=5, color=COLORS["blue"])
    axis.axvline(0.0, color=COLORS["black"], ls=":", lw=1)
    axis.set_yticks(range(len(differences)), list(differences))
    axis.invert_yaxis()
    axis.set_xlabel(f"accuracy minus that of {against} (points)")
