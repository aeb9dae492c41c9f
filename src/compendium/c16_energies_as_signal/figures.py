"""Drawings of the chapter on energies as a training signal: what feeds what, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels


def show_signals() -> Figure:
    """A network of four layers, the energies that its heads have, and the loss that its end has."""
    figure, axis = plt.subplots(figsize=(7.4, 2.9))
    axis.set(xlim=(0, 10.4), ylim=(0, 4.0))
    axis.axis("off")
    layers = 2.7 + 1.5 * np.arange(4)
    boxes = (0.85, "16 patches"), *((x, f"layer {k + 1}") for k, x in enumerate(layers))
    frame = {"boxstyle": "round,pad=0.8", "fc": "0.92", "ec": COLORS["black"]}
    for x, text in (*boxes, (9.0, "read-out")):
        axis.text(x, 2.05, text, ha="center", va="center", color="black", bbox=frame)
    flow = zip((1.6, *(layers + 0.5)), (*(layers - 0.5), 8.4), strict=True)
    arrows = [("black", (start, 2.05), (end, 2.05)) for start, end in flow]
    arrows += [("red", (x, 2.45), (x, 3.0)) for x in layers]
    arrows += [("blue", (9.0, 1.65), (9.0, 1.05)), ("blue", (7.9, 0.8), (0.9, 0.8))]
    for color, start, end in arrows:
        style = {"arrowstyle": "->", "color": COLORS[color], "lw": 1.4}
        axis.annotate("", end, start, arrowprops=style)
    for x, y, text, color, size in (
        *((x, 3.15, f"$E_{k + 1}(q, k)$", "red", None) for k, x in enumerate(layers)),
        (4.92, 3.65, "energies: defined in every layer, need no labels", "red", 9),
        (9.0, 0.72, "cross-entropy", "blue", None),
        (9.0, 0.3, "needs labels", "blue", 9),
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
    size = (8.6, 0.9 + 0.27 * len(names))
    figure, axes = plt.subplots(1, len(titles), figsize=size, sharey=True)
    for panel, axis in enumerate(axes):
        for bar, style in (("random", ":"), ("PCA", "--")):
            axis.axvline(values[bar][panel, 0], color="0.5", ls=style, lw=1)
        for row, name in enumerate(names):
            mean, low, high = values[name][panel]
            ends, color = [[mean - low], [high - mean]], COLORS[groups[name]]
            axis.errorbar(mean, row, xerr=ends, fmt="o", ms=4, color=color)
        axis.set(xlabel=f"test accuracy (%), {titles[panel]}")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    label_panels(list(axes))
    return figure
