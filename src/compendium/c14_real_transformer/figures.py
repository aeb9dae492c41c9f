"""What a layer does, drawn for chapter 14."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def layer_scheme() -> Figure:
    """A landscape with a step and its steepest descent, and the stages of a layer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), width_ratios=(1, 1.25))
    keys = np.array([[1.5, 1.0], [1.4, -1.3], [-1.7, 0.2]])
    grid = np.linspace(-2.6, 2.6, 80)
    points = np.stack(np.meshgrid(grid, grid), -1)
    energy = -np.log(np.exp(points @ (keys - keys.mean(0)).T).mean(-1))
    left.contour(grid, grid, energy, levels=14, colors="0.75", linewidths=0.8)
    left.plot(*keys.T, "o", color=COLORS["orange"], ms=7)
    for name, end, tone, spot in (
        ("its energy asks", (0.75, 0.15), "green", (0.15, 1.75)),
        ("the layer adds", (-0.45, 0.5), "blue", (-2.3, 1.6)),
    ):
        left.annotate("", end, (-0.3, -0.6), arrowprops={"color": COLORS[tone], "width": 2})
        left.text(*spot, name, color=COLORS[tone], fontsize=9)
    left.plot(-0.3, -0.6, "o", color=COLORS["black"])
    left.text(-0.2, -1.0, "hidden state", fontsize=9)
    left.text(0.75, -1.9, "keys", color=COLORS["orange"], fontsize=9)
    left.set(xticks=[], yticks=[], title="landscape of the keys")
    left.grid(False)
    names = ("attention", "+ state", "LayerNorm", "feed-\nforward")
    boxes = {str(n): (0.02 + 0.32 * n, 0.5, name) for n, name in enumerate(names)}
    draw_boxes(boxes, axis=right, arrows=["0 1 2 3"], colors={"0": "blue"})
    bent = {"arrowstyle": "-|>", "lw": 1.2, "connectionstyle": "arc3,rad=-0.35"}
    right.annotate("", (0.34, 0.62), (-0.08, 0.82), arrowprops=bent)
    right.text(-0.1, 0.9, "residual connection", fontsize=9)
    told = "energies are read by the layer's own $W_Q$ after every stage"
    right.text(0.5, 0.12, told, ha="center", fontsize=9)
    right.set_title("stages of a layer")
    label_panels([left, right])
    return figure
