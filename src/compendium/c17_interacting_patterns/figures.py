"""The drawing of the idea: patterns that interact."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

FRAME = {"boxstyle": "square,pad=0.5", "fc": COLORS["orange"]}
WEIGHTS = (0.35, 0.9, 0.55, 0.2, 0.15)


def interaction_scheme() -> Figure:
    """Two panels: a query that looks at patterns, and the same with links among the patterns."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9))
    places = np.linspace(-2.0, 2.0, len(WEIGHTS))
    for axis, title in zip(axes, ("attention", "patterns interact"), strict=True):
        for index, (place, weight) in enumerate(zip(places, WEIGHTS, strict=True)):
            axis.plot([0, place], [0.1, 1.85], color=COLORS["blue"], lw=0.5 + 3 * weight, alpha=0.7)
            axis.plot(place, 2.0, "o", ms=21, color="white", mec=COLORS["black"], zorder=3)
            axis.text(place, 2.0, f"$x_{index + 1}$", ha="center", va="center", zorder=4)
        axis.text(0, 0, "$ξ$", ha="center", va="center", bbox=FRAME)
        axis.text(0.35, 0.0, "state: sees each pattern with weight $p_i$", va="center", fontsize=9)
        axis.set(xlim=(-2.7, 2.9), ylim=(-0.5, 3.3), title=title)
        axis.set_axis_off()
    for a, b, bend, color in ((1, 2, 0.6, "green"), (0, 1, 0.6, "green"), (1, 4, 0.35, "red")):
        style = {"arrowstyle": "<->", "connectionstyle": f"arc3,rad={bend}", "lw": 1.5}
        style |= {"color": COLORS[color], "mutation_scale": 9, "shrinkA": 2, "shrinkB": 2}
        axes[1].annotate("", (places[a], 2.22), (places[b], 2.22), arrowprops=style)
    axes[1].text(-2.3, 3.0, "attract ($J>0$)", color=COLORS["green"], ha="left", fontsize=9)
    axes[1].text(2.5, 3.0, "repel ($J<0$)", color=COLORS["red"], ha="right", fontsize=9)
    label_panels(list(axes))
    return figure
