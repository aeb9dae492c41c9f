"""Drawings of asymmetric networks: two groups of spins, the window, random couplings."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.common.drawing import points, quartiles
from spinformer.core.statistics import Estimate
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def show_pair_and_window() -> Figure:
    """A schematic: two groups of spins joined by overlaps, and attention over a window."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), width_ratios=(1, 1.5))
    for place, name, color in ((0.0, "x", "blue"), (1.0, "y", "red")):
        heights = np.linspace(0.05, 0.8, 5)
        for a in (0.25, 0.6):
            for height in heights:
                left.plot([place, 0.5], [height, a], color="0.75", lw=0.7, zorder=1)
        left.plot(np.full(5, place), heights, "o", ms=11, color=COLORS[color], zorder=2)
        left.text(place, 0.94, f"spins ${name}$", ha="center")
    left.plot([0.5, 0.5], [0.25, 0.6], "s", ms=12, color=COLORS["black"], zorder=2)
    left.text(0.5, 0.72, "overlaps $m_a$", ha="center", fontsize=9)
    left.text(0.25, -0.12, "features $W^x$", ha="center", fontsize=9)
    left.text(0.75, -0.12, "features $W^y$", ha="center", fontsize=9)
    left.set(xlim=(-0.2, 1.2), ylim=(-0.25, 1.1))
    left.set_axis_off()
    boxes = {
        "window": (0.0, 0.5, "the last $T$ tokens\nnewest: the query\nall: keys, values"),
        "softmax": (0.52, 0.5, "softmax\nwhich token?"),
        "token": (1.0, 0.5, "next token\nbit by bit"),
    }
    draw_boxes(
        boxes,
        axis=right,
        arrows=["window softmax: $m^q, m^k$", "softmax token: $A$"],
        bent=["token window"],
        colors={"softmax": "orange"},
    )
    right.text(0.5, 0.93, "the new token enters, the oldest leaves", ha="center", fontsize=9)
    label_panels([left, right])
    return figure


def show_random_networks(
    *, memory: Mapping[float, Estimate], lags: np.ndarray, ordered: Mapping[float, Estimate],
    order_theory: np.ndarray, lengths: Mapping[float, np.ndarray], sizes: np.ndarray,
    exponents: Mapping[str, np.ndarray], live: Mapping[float, Estimate], chaos_theory: np.ndarray,
) -> Figure:  # fmt: skip
    """Memory, order, cycles and Lyapunov exponents of symmetric and of asymmetric networks."""
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.2))
    axis = axes[0, 0]
    for (symmetry, kept), color in zip(memory.items(), ("red", "orange", "blue"), strict=False):
        style = {"fmt": "o-", "ms": 4, "label": f"η = {symmetry:g}"}
        points(axis, lags, kept.value, kept.error, color, **style)
    axis.set(xscale="log", xlabel="lag τ (parallel updates)", ylabel="autocorrelation $C(τ)$")
    axis = axes[0, 1]
    axis.plot(*order_theory, color=COLORS["black"], label="theory")
    values, errors = ([getattr(m, part) for m in ordered.values()] for part in ("value", "error"))
    points(axis, list(ordered), values, errors, "blue", label="η = 0")
    axis.set(xlabel="mean coupling $J_0$ / critical value", ylabel="magnetization $|m|$")
    axis = axes[1, 0]
    for (symmetry, table), color in zip(lengths.items(), ("red", "blue"), strict=False):
        quartiles(axis, sizes, table.T, color, ms=4, label=f"η = {symmetry:g}")
    axis.set(yscale="log", xlabel="spins $N$", ylabel="cycle length (updates)")
    for axis in (axes[0, 0], axes[0, 1], axes[1, 0]):
        axis.legend()
    axis = axes[1, 1]
    axis.plot(*chaos_theory, color=COLORS["black"], label="theory, η = 0")
    for symmetry, color in ((0.0, "blue"), (1.0, "red")):
        kept_rows = (exponents["symmetry"] == symmetry) & (exponents["size"] == 500)
        beta, rate, error = (exponents[name][kept_rows] for name in ("beta", "exponent", "error"))
        points(axis, beta, rate, error, color, ms=4, label=f"η = {symmetry:.0f}, stored")
    for number, (at, one) in enumerate(live.items()):
        style = {"fmt": "s", "ms": 8, "mfc": "none", "label": None if number else "η = 0, run now"}
        points(axis, [at], [one.value], [one.error], "orange", **style)
    axis.axhline(0.0, color="0.6", linewidth=0.8)
    axis.set(xlabel="inverse temperature β", ylabel="Lyapunov exponent (per update)")
    axis.legend(fontsize=8, loc="lower right")
    label_panels(list(axes.ravel()))
    return figure
