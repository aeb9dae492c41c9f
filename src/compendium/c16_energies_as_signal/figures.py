"""The drawing of the chapter on energies as a training signal: what feeds what."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS


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
