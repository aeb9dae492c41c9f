"""Drawings of the chapter on vector spins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import points
from spinformer.plot.style import COLORS, label_panels


def show_saddle_idea(field: float = 1.0) -> None:
    """Spins in fields, and the height of the integrand over the complex t of one spin at β = 1."""
    _, axes = plt.subplots(1, 2, figsize=(8.8, 3.3))
    _draw_spins(axes[0])
    real, imaginary = np.meshgrid(np.linspace(0.25, 1.6, 200), np.linspace(-1.0, 1.0, 200))
    t = real + 1j * imaginary
    height = np.real(t - 0.5 * np.log(t) + field**2 / (4 * t))
    best = (1 + np.sqrt(1 + 4 * field**2)) / 4
    top = best - 0.5 * np.log(best) + field**2 / (4 * best)
    axes[1].contourf(real, imaginary, height - top, levels=14)
    axes[1].axvline(best, color="white", lw=1.5)
    axes[1].plot(best, 0.0, "o", color=COLORS["red"])
    axes[1].annotate("$t^*$", (best, 0.0), (8, 6), textcoords="offset points", color="white")
    axes[1].set(xlabel="real part of $t$", ylabel="imaginary part of $t$")
    axes[1].grid(visible=False)
    label_panels(list(axes))


def _draw_spins(axis: Axes) -> None:
    """Five arrows on a ring, each beside the arrow of its field, with lines between them."""
    angles = np.linspace(0, 2 * np.pi, 5, endpoint=False) + 0.3
    places = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    fields = np.array([[0.3, 0.1], [0.1, 0.3], [-0.2, 0.25], [0.3, -0.1], [0.25, 0.2]])
    mean = 0.6 * fields + 0.4 * fields.mean(axis=0)
    for i in range(5):
        for j in range(i):
            axis.plot(*places[[i, j]].T, color="0.8", lw=1)
    for shift, color, name in ((fields, "orange", "field $h_i$"), (mean, "blue", "spin $u_i$")):
        unit = 0.45 * shift / np.linalg.norm(shift, axis=1, keepdims=True)
        arrows: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.012, "zorder": 3}
        axis.quiver(*places.T, *unit.T, color=COLORS[color], label=name, **arrows)
    axis.set(xlim=(-1.6, 1.6), ylim=(-1.7, 1.6), aspect="equal")
    axis.legend(loc="lower center", ncols=2)
    axis.set_axis_off()


def show_theories(components: Sequence[int], wrong: Mapping[str, np.ndarray]) -> None:
    """Errors of theories: squared ones (components, systems) by name, drawn as their roots."""
    styles = {
        "naive": ("naive", "orange", "o-"),
        "tap": ("TAP", "blue", "s-"),
        "adaptive": ("adaptive TAP", "green", "D-"),
        "saddle": ("saddle point", "black", "^-"),
        "corrected": ("corrected saddle point", "black", "^--"),
    }
    _, axis = plt.subplots()
    for name, squares in wrong.items():
        label, color, mark = styles[name]
        middle = squares.mean(axis=1) ** 0.5
        bar = squares.std(axis=1, ddof=1) / squares.shape[1] ** 0.5 / (2 * middle)
        # On a logarithmic axis a bar may not reach zero.
        bars = np.stack([np.minimum(bar, 0.9 * middle), bar])
        points(axis, components, middle, bars, color, fmt=mark, ms=4, label=label)
    axis.set(xscale="log", yscale="log", xlabel="components $D$", ylabel="error of $m$")
    axis.set_xticks(components, [str(n) for n in components])
    axis.minorticks_off()
    axis.legend(loc="lower left", fontsize=8)
