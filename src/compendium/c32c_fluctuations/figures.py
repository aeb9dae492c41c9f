"""Drawings of corrections to the mean field at finite size."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.c32_paths_to_mean_fields.figures import REGIMES
from spinformer.plot.style import COLORS, label_panels


def show_averaging() -> Figure:
    """A schematic: the value at the average and the average of the values, on a bent curve.

    >>> figure = show_averaging()
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(6.4, 3.0))
    x = np.linspace(-1.2, 3.4, 200)
    axis.plot(x, np.tanh(x), color=COLORS["black"], lw=2)
    axis.text(2.75, 1.04, "next mean $f(w)$", ha="center")
    middle, width = 1.0, 0.8
    cloud = np.exp(-0.5 * ((x - middle) / width) ** 2)
    axis.fill_between(x, -1.35, -1.35 + 0.55 * cloud, color=COLORS["blue"], alpha=0.35)
    axis.text(1.0, -1.2, "windows of many texts", ha="center", fontsize=8.5)
    z = np.linspace(-4, 4, 401)
    weight = np.exp(-0.5 * z**2)
    mean = float(weight @ np.tanh(middle + width * z) / weight.sum())
    axis.plot([middle], [np.tanh(middle)], "o", color=COLORS["black"], ms=7)
    axis.text(middle - 0.15, np.tanh(middle) + 0.12, "naive: $f(⟨w⟩)$", ha="right")
    axis.plot([middle], [mean], "D", color=COLORS["red"], ms=7)
    axis.text(middle + 0.15, mean - 0.22, "closure: $⟨f(w)⟩$", color=COLORS["red"])
    axis.plot([middle, middle], [-0.8, mean - 0.1], color="0.6", lw=0.8, ls=":")
    axis.set_ylim(-1.4, 1.35)
    axis.axis("off")
    return figure


def show_breaks(
    sizes: np.ndarray, *, measured: np.ndarray, expected: np.ndarray, rate: float
) -> Figure:
    """Tokens until the 1/N law of the average text fails, against N; (starts, sizes) each.

    rate: Lyapunov exponent, for a line of slope 1/(2 rate) for each e-fold of N.

    >>> figure = show_breaks(
    ...     np.array([1e4, 1e5]), measured=np.ones((3, 2)), expected=np.ones((3, 2)), rate=0.1
    ... )
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(5.8, 3.5))
    low, middle, high = np.quantile(measured, [0.25, 0.5, 0.75], axis=0)
    axis.errorbar(
        sizes,
        middle,
        [middle - low, high - middle],
        fmt="o",
        ms=5,
        capsize=2,
        color=COLORS["red"],
        label="measured: law off by half",
    )
    axis.plot(
        sizes,
        np.median(expected, axis=0),
        color=COLORS["blue"],
        label=r"computed: $300\,b^2/\sigma^2=N$",
    )
    center = len(sizes) // 2
    axis.plot(
        sizes,
        middle[center] + np.log(sizes / sizes[center]) / (2.0 * rate),
        color=COLORS["black"],
        ls="--",
        lw=1,
        label=r"slope $1/(2\lambda)$",
    )
    axis.set_xscale("log")
    axis.set_xlabel("bits $N$")
    axis.set_ylabel("tokens until the $1/N$ law fails")
    axis.legend(fontsize=8)
    return figure


def show_closures(
    sizes: np.ndarray, *, ratios: Mapping[str, np.ndarray], expansions: Mapping[str, np.ndarray]
) -> Figure:
    """Error over that of the naive mean field: of the closure, and of the 1/N correction.

    Each entry is (3, sizes): geometric mean over the starts, and the ends of its interval.

    >>> flat = {"driven": np.ones((3, 2))}
    >>> figure = show_closures(np.array([30, 300]), ratios=flat, expansions=flat)
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.5), sharey=True)
    for axis, found in zip(axes, (ratios, expansions), strict=True):
        for name, (value, low, high) in found.items():
            axis.errorbar(
                sizes,
                value,
                [value - low, high - value],
                fmt="o-",
                ms=3.5,
                lw=0.9,
                capsize=2,
                color=COLORS[REGIMES[name]],
                label=name,
            )
        axis.axhline(1.0, color="0.4", ls="--", lw=1)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(5e-3, 50.0)
        axis.set_xlabel("bits $N$")
    axes[0].set_ylabel("error over that of the naive mean field")
    axes[0].set_title("Gaussian closure", fontsize=10)
    axes[1].set_title("$1/N$ correction", fontsize=10)
    axes[0].legend(fontsize=8)
    label_panels(list(axes))
    return figure


_LAW_COLORS = {
    "driven": "black",
    "quasi-periodic": "green",
    "chaos at 1.28": "red",
    "chaos at 1.4": "purple",
}


def show_stationary_laws(table: Mapping[str, np.ndarray]) -> Figure:
    """Distance of the stationary law at N bits from the attractor's measure, and its null.

    >>> table = {name: np.array([1.0, 2.0]) for name in ("bits", "distance", "floor")}
    >>> table |= {"regime": np.array(["driven"] * 2), "seed": np.zeros(2, dtype=int)}
    >>> figure = show_stationary_laws(table)
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(6.0, 3.8))
    for name, color in _LAW_COLORS.items():
        for seed, style in ((0, "o-"), (1, "x")):
            rows = (table["regime"] == name) & (table["seed"] == seed)
            if not rows.any():
                continue
            bits = table["bits"][rows]
            label = name if seed == 0 else None
            axis.plot(
                bits, table["distance"][rows], style, ms=4.5, lw=1, color=COLORS[color], label=label
            )
        rows = table["regime"] == name
        floor = float(table["floor"][rows].mean()) if rows.any() else 0.0
        if floor > 1e-12:  # four points have no scatter
            axis.axhline(floor, ls=":", lw=1.2, color=COLORS[color])
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("bits $N$")
    axis.set_ylabel("Wasserstein-1 distance of the laws")
    axis.legend(fontsize=8)
    return figure


def show_exponents(table: Mapping[str, np.ndarray], *, limits: Mapping[float, float]) -> Figure:
    """Growth of the distance of texts that share their noise, against N; lines: N → ∞.

    limits: mean-field exponent of every β.

    >>> table = {name: np.array([1.0, 2.0]) for name in ("bits", "growth", "error")}
    >>> table |= {"beta": np.full(2, 1.28), "seed": np.zeros(2, dtype=int)}
    >>> figure = show_exponents(table, limits={1.28: 0.14})
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(6.0, 3.6))
    colors = ("green", "blue", "red", "purple")
    for (beta, limit), color in zip(limits.items(), colors, strict=False):
        for seed, style, label in ((0, "o-", f"$β$ = {beta:g}"), (1, "x", None)):
            rows = (table["beta"] == beta) & (table["seed"] == seed)
            axis.errorbar(
                table["bits"][rows],
                table["growth"][rows],
                2.0 * table["error"][rows],
                fmt=style,
                ms=4.5,
                lw=1,
                capsize=2,
                color=COLORS[color],
                label=label,
            )
        axis.axhline(limit, color=COLORS[color], ls="--", lw=1)
    axis.set_xscale("log")
    axis.set_xlabel("bits $N$")
    axis.set_ylabel("Lyapunov exponent (nats a token)")
    axis.legend(fontsize=8)
    return figure
