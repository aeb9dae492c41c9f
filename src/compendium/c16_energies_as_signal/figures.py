"""Drawings of the chapter on energies as a training signal: what feeds what, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from spinformer.plot.style import COLORS, label_panels


def show_signals() -> Figure:
    """A network of four layers, the energies that its heads have, and the loss that its end has."""
    figure, axis = plt.subplots(figsize=(7.4, 2.9))
    axis.set(xlim=(0, 10.4), ylim=(0, 4.0))
    axis.axis("off")
    layers = [(2.1 + 1.5 * k, 1.15, f"layer {k + 1}") for k in range(4)]
    for left, width, text in ((0.1, 1.5, "16 patches"), *layers, (8.4, 1.15, "read-out")):
        box = FancyBboxPatch(
            (left, 1.7), width, 0.7, boxstyle="round,pad=0.02", fc="0.92", ec=COLORS["black"]
        )
        axis.add_patch(box)
        axis.text(left + width / 2, 2.05, text, ha="center", va="center", color="black")
    for left, right in ((1.6, 2.1), (3.25, 3.6), (4.75, 5.1), (6.25, 6.6), (7.75, 8.4)):
        _arrow(axis, (left, 2.05), (right, 2.05), COLORS["black"])
    for k, (left, width, _) in enumerate(layers):
        center = left + width / 2
        _arrow(axis, (center, 2.4), (center, 3.0), COLORS["red"])
        axis.text(center, 3.15, f"$E_{k + 1}(q, k)$", ha="center", color=COLORS["red"])
    _arrow(axis, (8.98, 1.7), (8.98, 1.05), COLORS["blue"])
    _arrow(axis, (7.9, 0.8), (0.9, 0.8), COLORS["blue"])
    for x, y, text, color, size in (
        (4.92, 3.65, "energies: defined in every layer, need no labels", "red", 9),
        (8.98, 0.72, "cross-entropy", "blue", None),
        (8.98, 0.3, "needs labels", "blue", 9),
        (4.4, 0.3, "its gradient reaches all layers; does that of $\\sum_l E_l$ agree?", "blue", 9),
    ):
        axis.text(x, y, text, ha="center", color=COLORS[color], fontsize=size)
    return figure


def show_scores(
    values: Mapping[str, np.ndarray], *, groups: Mapping[str, str], titles: Sequence[str]
) -> Figure:
    """Accuracies in percent as dots with intervals, one panel a read-out, one row a source.

    values[name]: (panels, 3) mean, low and high end. groups[name]: a color of the book. Dashed
    lines: the rows "random" and "PCA".
    """
    names = list(values)
    figure, axes = plt.subplots(
        1, len(titles), figsize=(8.6, 0.9 + 0.27 * len(names)), sharey=True, squeeze=False
    )
    for panel, axis in enumerate(axes[0]):
        for bar, style in (("random", ":"), ("PCA", "--")):
            axis.axvline(values[bar][panel, 0], color="0.5", ls=style, lw=1)
        for row, name in enumerate(names):
            mean, low, high = values[name][panel]
            ends, color = [[mean - low], [high - mean]], COLORS[groups[name]]
            axis.errorbar(mean, row, xerr=ends, fmt="o", ms=4, color=color)
        axis.set(xlabel=f"test accuracy (%), {titles[panel]}")
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    label_panels(list(axes[0]))
    return figure


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color, "lw": 1.4})
