"""Drawings of asymmetric networks: two groups of spins, the window, random couplings."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.c31_asymmetric_hopfield.study import (
    EXPONENTS,
    MEMORY,
    ORDER,
    analog_exponent_theory,
    asymmetric_gain,
    asymmetric_magnetization,
)
from compendium.common.drawing import points, quartiles
from spinformer.core.statistics import Estimate
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def show_pair_and_window() -> Figure:
    """A schematic: two groups of spins joined by overlaps, and attention over a window."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), width_ratios=(1, 1.5))
    heights = np.linspace(0.05, 0.8, 5)
    for place, color in ((0.0, "blue"), (1.0, "red")):
        for overlap in (0.25, 0.6):
            left.plot([place, 0.5], [heights, np.full(5, overlap)], color="0.75", lw=0.7, zorder=1)
        left.plot(np.full(5, place), heights, "o", ms=11, color=COLORS[color], zorder=2)
    left.plot([0.5, 0.5], [0.25, 0.6], "s", ms=12, color=COLORS["black"], zorder=2)
    for x, y, text in (
        (0.0, 0.94, "spins $x$"),
        (1.0, 0.94, "spins $y$"),
        (0.5, 0.72, "overlaps $m_a$"),
        (0.25, -0.12, "features $W^x$"),
        (0.75, -0.12, "features $W^y$"),
    ):
        left.text(x, y, text, ha="center", fontsize=9)
    left.set(xlim=(-0.2, 1.2), ylim=(-0.25, 1.1))
    left.set_axis_off()
    boxes = {
        "window": (0.0, 0.5, "the last $T$ tokens\nnewest: the query\nall: keys, values"),
        "softmax": (0.52, 0.5, "softmax\nwhich token?"),
        "token": (1.0, 0.5, "next token\nbit by bit"),
    }
    arrows = ["window softmax: $m^q, m^k$", "softmax token: $A$"]
    bent, colors = ["token window"], {"softmax": "orange"}
    draw_boxes(boxes, axis=right, arrows=arrows, bent=bent, colors=colors)
    right.text(0.5, 0.93, "the new token enters, the oldest leaves", ha="center", fontsize=9)
    label_panels([left, right])
    return figure


def show_random_networks(
    *, lengths: Mapping[float, np.ndarray], sizes: np.ndarray, live: Mapping[float, Estimate]
) -> Figure:
    """Memory, order, cycles and Lyapunov exponents of symmetric and of asymmetric networks.

    From the tables, but for the cycles: lengths (sizes, networks) by symmetry. live: by β.
    """
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.2))
    label_panels(list(axes.ravel()))
    axis, memory = axes[0, 0], MEMORY.read()
    for symmetry, color in ((1.0, "red"), (0.5, "orange"), (0.0, "blue")):
        rows = (memory["symmetry"] == symmetry) & (memory["beta"] == 2.0)
        lag, kept, error = (memory[name][rows] for name in ("lag", "kept", "error"))
        points(axis, lag, kept, error, color, fmt="o-", ms=4, label=f"η = {symmetry:g}")
    axis.set(xscale="log", xlabel="lag τ (parallel updates)", ylabel="autocorrelation $C(τ)$")
    axis, order, ramp = axes[0, 1], ORDER.read(), np.linspace(0.4, 2.1, 120)
    critical = 1.0 / asymmetric_gain(2.0)
    theory = [asymmetric_magnetization(2.0, mean=ratio * critical) for ratio in ramp]
    axis.plot(ramp, theory, color=COLORS["black"], label="theory")
    points(axis, order["ratio"], order["order"], order["error"], "blue", label="η = 0")
    axis.set(xlabel="mean coupling $J_0$ / critical value", ylabel="magnetization $|m|$")
    axis = axes[1, 0]
    for (symmetry, table), color in zip(lengths.items(), ("red", "blue"), strict=True):
        quartiles(axis, sizes, table.T, color, ms=4, label=f"η = {symmetry:g}")
    axis.set(yscale="log", xlabel="spins $N$", ylabel="cycle length (updates)")
    for axis in (axes[0, 0], axes[0, 1], axes[1, 0]):
        axis.legend()
    axis, exponents, betas = axes[1, 1], EXPONENTS.read(), np.linspace(0.5, 4.2, 75)
    theory = [analog_exponent_theory(beta) for beta in betas]
    axis.plot(betas, theory, color=COLORS["black"], label="theory, η = 0")
    for symmetry, color in ((0.0, "blue"), (1.0, "red")):
        rows = (exponents["symmetry"] == symmetry) & (exponents["size"] == 500)
        beta, rate, error = (exponents[name][rows] for name in ("beta", "exponent", "error"))
        points(axis, beta, rate, error, color, ms=4, label=f"η = {symmetry:.0f}, stored")
    value, error = np.transpose([(one.value, one.error) for one in live.values()])
    style = {"fmt": "s", "ms": 8, "mfc": "none", "label": "η = 0, run now"}
    points(axis, list(live), value, error, "orange", **style)
    axis.axhline(0.0, color="0.6", linewidth=0.8)
    axis.set(xlabel="inverse temperature β", ylabel="Lyapunov exponent (per update)")
    axis.legend(fontsize=8, loc="lower right")
    return figure
