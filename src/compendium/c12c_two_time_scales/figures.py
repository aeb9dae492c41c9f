"""Drawings of neurons with two time scales: the network, the particle, the edge of stability."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels


def two_kinds_scheme() -> Figure:
    """Two panels: visible and hidden neurons joined by patterns, and a ball in a valley."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9))
    visible, hidden = np.linspace(-1, 1, 3), np.linspace(-1.5, 1.5, 4)
    for a in visible:
        for b in hidden:
            axes[0].plot([a, b], [0, 1.5], color=COLORS["black"], lw=0.6, alpha=0.5)
    axes[0].plot(visible, 0 * visible, "o", ms=20, color=COLORS["orange"], mec=COLORS["black"])
    axes[0].plot(hidden, 0 * hidden + 1.5, "o", ms=20, color=COLORS["sky"], mec=COLORS["black"])
    axes[0].text(1.8, 0, r"visible $v$, time $τ_v$", va="center", fontsize=9)
    axes[0].text(1.8, 1.5, r"hidden $h$, time $τ_h$", va="center", fontsize=9)
    axes[0].text(1.8, 0.75, "patterns $X$,\nboth ways the same", va="center", fontsize=9)
    axes[0].set(xlim=(-1.9, 4.2), ylim=(-0.5, 2.0))
    across = np.linspace(-2.2, 2.2, 200)
    height = 0.25 * across**4 - across**2 + 0.15 * across
    axes[1].plot(across, height, color=COLORS["black"])
    place = 0.28
    axes[1].plot(
        place, 0.25 * place**4 - place**2 + 0.15 * place + 0.1, "o", ms=12, color="#E69F00"
    )
    axes[1].annotate(
        "", (1.15, -0.72), (0.42, -0.02), arrowprops={"arrowstyle": "->", "color": COLORS["red"]}
    )
    axes[1].text(0.95, 0.0, "force $-∇E$", color=COLORS["red"], fontsize=9)
    axes[1].text(-1.0, 0.55, r"mass $ρ=τ_h/τ_v$, friction $1+ρ$", fontsize=9, ha="center")
    axes[1].set(xlim=(-2.4, 2.4), ylim=(-1.3, 1.1))
    for axis, title in zip(axes, ("two kinds of neurons", "what they amount to"), strict=True):
        axis.set_axis_off()
        axis.set_title(title)
    label_panels(list(axes))
    return figure


def draw_edges(axis: Axes, ratios: Sequence[float]) -> None:
    """Edges of stability Re a = 1 − ρ (Im a)²/(1 + ρ)² in the plane of the slope a of attention."""
    imaginary = np.linspace(-5, 5, 201)
    styles = ("--", "-.", "-", ":")
    axis.axvline(1.0, color=COLORS["black"], lw=1, label="ρ → 0")
    for ratio, style, colour in zip(ratios, styles, ("sky", "blue", "red", "purple"), strict=False):
        edge = 1.0 - ratio * imaginary**2 / (1.0 + ratio) ** 2
        axis.plot(edge, imaginary, style, color=COLORS[colour], label=f"ρ = {ratio:g}")
    axis.set(xlabel="Re a", ylabel="Im a", xlim=(-4, 2), ylim=(-5, 5))
