"""Drawings of patterns that interact: the idea, kinds of rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

KIND_COLORS = ("#8fd3c0", "#f6d58d", "#a9cbe8")
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


def draw_kinds(
    axis: Axes, entries: np.ndarray, *, betas: Any, kappas: Any, lines: Mapping[str, Any]
) -> None:
    """Kinds of rest over (β, κ), and predicted lines, by name arrays β, κ along each."""
    kind = np.where(entries == 1, 0, np.where(entries > max(entries.max(), 2) / 2, 2, 1))
    axis.pcolormesh(betas, kappas, kind, cmap=ListedColormap(KIND_COLORS), vmin=0, vmax=2)
    for style, (name, (across, along)) in zip(("-", "--", ":"), lines.items(), strict=True):
        axis.plot(across, along, style, color=COLORS["black"], lw=1.4, label=name)
    axis.set(
        xscale="log", xlabel="inverse temperature β", xlim=betas[[0, -1]], ylim=kappas[[0, -1]]
    )
    axis.grid(False)
