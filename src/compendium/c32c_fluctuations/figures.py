"""Drawings of corrections to the mean field at finite size."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.c32_paths_to_mean_fields.figures import REGIMES
from compendium.common.drawing import intervals, points, quartiles
from spinformer.plot.style import COLORS, label_panels


def show_breaks(
    sizes: np.ndarray, *, measured: np.ndarray, expected: np.ndarray, rate: float
) -> Figure:
    """Tokens until the 1/N law fails, against N; (starts, sizes). A line of slope 1/(2 `rate`)."""
    figure, axis = plt.subplots(figsize=(5.8, 3.5))
    quartiles(axis, sizes, measured, "red", ms=5, label="measured: law off by half")
    computed = np.median(expected, axis=0)
    axis.plot(sizes, computed, color=COLORS["blue"], label=r"computed: $300\,b^2/\sigma^2=N$")
    center = len(sizes) // 2
    line = np.median(measured, axis=0)[center] + np.log(sizes / sizes[center]) / (2.0 * rate)
    axis.plot(sizes, line, color=COLORS["black"], ls="--", lw=1, label=r"slope $1/(2\lambda)$")
    axis.set(xscale="log", xlabel="bits $N$", ylabel="tokens until the $1/N$ law fails")
    axis.legend(fontsize=8)
    return figure


def show_closures(
    sizes: np.ndarray, *, ratios: Mapping[str, np.ndarray], expansions: Mapping[str, np.ndarray]
) -> Figure:
    """Errors of the closure and of the 1/N correction over the naive ones, (3, sizes) by motion."""
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.5), sharey=True)
    for axis, found in zip(axes, (ratios, expansions), strict=True):
        for name, (value, low, high) in found.items():
            style = {"fmt": "o-", "ms": 3.5, "lw": 0.9, "label": name}
            intervals(axis, sizes, (low, value, high), REGIMES[name], **style)
        axis.axhline(1.0, color="0.4", ls="--", lw=1)
        axis.set(xscale="log", yscale="log", ylim=(5e-3, 50.0), xlabel="bits $N$")
    axes[0].set_ylabel("error over that of the naive mean field")
    axes[0].set_title("Gaussian closure", fontsize=10)
    axes[1].set_title("$1/N$ correction", fontsize=10)
    axes[0].legend(fontsize=8)
    label_panels(list(axes))
    return figure


def show_exponents(table: Mapping[str, np.ndarray], *, limits: Mapping[float, float]) -> Figure:
    """Growth of the distance of texts that share their noise, against N; lines: N → ∞."""
    figure, axis = plt.subplots(figsize=(6.0, 3.6))
    colors = ("green", "blue", "red", "purple")
    for (beta, limit), color in zip(limits.items(), colors, strict=False):
        for seed, style, label in ((0, "o-", f"$β$ = {beta:g}"), (1, "x", None)):
            rows = (table["beta"] == beta) & (table["seed"] == seed)
            bits, value, error = (table[column][rows] for column in ("bits", "growth", "error"))
            points(axis, bits, value, 2.0 * error, color, fmt=style, ms=4.5, lw=1, label=label)
        axis.axhline(limit, color=COLORS[color], ls="--", lw=1)
    axis.set(xscale="log", xlabel="bits $N$", ylabel="Lyapunov exponent (nats a token)")
    axis.legend(fontsize=8)
    return figure
