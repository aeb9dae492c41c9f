"""Drawings of bifurcations: multipliers, the staircase, strobed portraits."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compendium.c33c_bifurcations.cycles import Cycle
from spinformer.plot.style import COLORS, label_panels

Columns = Mapping[str, np.ndarray]
_BETA = r"inverse temperature $\beta$"


def show_three_ways() -> Figure:
    """A schematic: where a multiplier leaves the unit circle, and what is seen strobed."""
    figure, axes = plt.subplots(1, 4, figsize=(8.6, 2.3), width_ratios=[1.25, 1, 1, 1])
    _unit_circle(axes[0])
    blue, red, green = (COLORS[name] for name in ("blue", "red", "green"))
    for color, turn in ((blue, 0.0), (red, 0.5), (green, 0.24), (green, -0.24)):
        arrow = {"arrowstyle": "->", "lw": 1.8, "color": color}
        way = np.array([np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)])
        axes[0].annotate("", xy=1.3 * way, xytext=0.7 * way, arrowprops=arrow)
    axes[0].set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
    x = np.linspace(0, 1, 60)
    axes[1].invert_xaxis()
    axes[2].plot([0, 0.4], [0.5, 0.5], color=red)
    axes[2].plot([0.4, 1], [0.5, 0.5], color=red, ls="--")
    for sign, style in ((1, "-"), (-1, "--")):
        axes[1].plot(1 - x**2, 0.5 + sign * 0.45 * x, color=blue, ls=style)
        axes[2].plot(0.4 + 0.6 * x**2, 0.5 + sign * 0.4 * x, color=red)
    angle = 2 * np.pi * 0.242 * np.arange(24)
    axes[3].plot(np.cos(angle), np.sin(angle), ".", color=green)
    axes[3].plot(np.cos(angle[:6]), np.sin(angle[:6]), color=green, lw=0.7)
    axes[3].plot(0, 0, "x", color=green)
    axes[3].set_aspect("equal")
    for axis, title in zip(axes, ("multipliers", "fold", "flip", "Neimark-Sacker"), strict=True):
        axis.axis("off")
        axis.text(0.5, -0.1, title, transform=axis.transAxes, ha="center", fontsize=9.5)
    label_panels(list(axes))
    return figure


def _unit_circle(axis: Axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angle), np.sin(angle), color="0.5", lw=1)
    axis.set_aspect("equal")


def show_multipliers(branch: Cycle, *, eigenvalues: np.ndarray, critical: np.ndarray) -> Figure:
    """Eigenvalues (n,) of one step at onset; multipliers of a branch, `critical` ones marked."""
    figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.6), width_ratios=[1, 1.2])
    for axis in axes:
        _unit_circle(axis)
        axis.set_xlabel("real part")
    axes[0].plot(eigenvalues.real, eigenvalues.imag, "o", ms=5, color=COLORS["blue"])
    axes[0].set_ylabel("imaginary part")
    paths = branch.multipliers
    color = np.broadcast_to(branch.beta[:, None], paths.shape)
    drawn = axes[1].scatter(paths.real, paths.imag, c=color, s=9, cmap="cividis")
    axes[1].plot(critical.real, critical.imag, "D", ms=7, mfc="none", mew=1.6, color=COLORS["red"])
    figure.colorbar(drawn, ax=axes[1], label=_BETA)
    label_panels(list(axes))
    return figure


def show_staircase(table: Columns, *, tongues: Columns, live: Columns, on_curve: float) -> Figure:
    """Rotation number against β with the locked windows, and the exponents near the end."""
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.5), width_ratios=[1.25, 1, 1])
    here = table["extent"] < on_curve
    beta, turns = table["beta"][here], table["rotation"][here]
    sky, blue = {"color": COLORS["sky"], "alpha": 0.35, "lw": 0}, COLORS["blue"]
    for axis in axes[:2]:
        for p, q, low, high in zip(*(tongues[k] for k in ("p", "q", "low", "high")), strict=True):
            axis.fill_between([low, high], [p / q] * 2, [0.2] * 2, **sky)
        axis.plot(beta, turns, ".", ms=2.5, color=COLORS["black"])
    axes[0].plot(live["beta"], live["rotation"], "o", ms=5, mfc="none", color=COLORS["red"])
    axes[1].set_xlim(1.2661, 1.26762)
    beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5, "color": blue}
    for axis, limits, names in (
        (axes[0], (0.2405, 0.2875), ((1, 4), (4, 15), (3, 11), (2, 7))),
        (axes[1], (0.2763, 0.2845), ((5, 18), (7, 25), (9, 32), (11, 39), (13, 46))),
    ):
        for p, q in names:
            axis.annotate(f"{p}/{q}", (axis.get_xlim()[0], p / q), (3, 2), **beside)
            axis.axhline(p / q, color=blue, lw=0.5, alpha=0.5)
        axis.set_ylim(limits)
    for name, color in (("first", "purple"), ("second", "orange")):
        axes[2].plot(beta, table[name][here], ".", ms=3, color=COLORS[color], label=name)
    axes[2].axhline(0.0, color="0.4", lw=0.8)
    axes[2].set(xlim=(1.26745, 1.26758), ylim=(-0.023, 0.011))
    axes[2].legend(loc="lower left", markerscale=3)
    for axis in axes[1:]:
        axis.locator_params(axis="x", nbins=3)
    words = ("turns a clock period", "", "Lyapunov exponent (nats a step)")
    for axis, word in zip(axes, words, strict=True):
        axis.set(xlabel=_BETA, ylabel=word)
        axis.ticklabel_format(useOffset=False)
    label_panels(list(axes))
    return figure


def show_portraits(
    points: Sequence[np.ndarray], *, titles: Sequence[str], marked: Mapping[str, np.ndarray]
) -> Figure:
    """Strobed portraits (n, P), a panel each; in the second, cycles by the color of their marks."""
    figure, axes = plt.subplots(1, len(points), figsize=(10.2, 3.0))
    for axis, cloud, title in zip(axes, points, titles, strict=True):
        axis.plot(*cloud[:, :2].T, ".", ms=1.4, color=COLORS["black"])
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(r"$m^o_1$")
        axis.locator_params(nbins=4)
    for (color, flash), mark in zip(marked.items(), "os", strict=True):
        axes[1].plot(*flash[:, :2].T, mark, ms=5, mfc="none", mew=1.3, color=COLORS[color])
    axes[0].set_ylabel(r"$m^o_2$")
    label_panels(list(axes))
    return figure
