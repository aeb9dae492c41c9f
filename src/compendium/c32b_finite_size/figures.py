"""Drawings of networks of finite size beside their mean field, and of corrections to it."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.common.drawing import intervals, points
from spinformer.core.statistics import Estimate
from spinformer.plot.style import COLORS, label_panels

REGIMES = {"driven": "black", "quasi-periodic": "green", "periodic": "blue", "chaotic": "red"}


def show_spreading_texts() -> Figure:
    """A schematic: single texts fan out around the limit, their average drifts off more slowly."""
    figure, axis = plt.subplots(figsize=(6.8, 2.8))
    rng = np.random.default_rng(3)
    time = np.linspace(0.0, 1.0, 60)
    limit = 0.5 * np.sin(5.0 * time)
    for _ in range(7):
        walk = np.cumsum(rng.normal(size=60)) * 0.045 * np.exp(0.9 * time)
        axis.plot(time, limit + walk - walk[0], color=COLORS["sky"], lw=0.9)
    axis.plot(time, limit - 0.18 * time**2, "--", color=COLORS["red"], lw=1.8)
    axis.plot(time, limit, color=COLORS["black"], lw=2.2)
    for up, color, word in (
        (0.05, "black", "limit"),
        (-0.22, "red", "average text: off by $1/N$"),
        (0.42, "blue", "single texts: off by $1/\\sqrt{N}$"),
    ):
        axis.text(1.02, limit[-1] + up, word, va="center", color=COLORS[color])
    axis.set(xlim=(0.0, 1.55), xlabel="token", ylabel="overlap", xticks=[], yticks=[])
    axis.grid(visible=False)
    return figure


def show_laws(
    sizes: np.ndarray, *, single: Mapping[str, Estimate], average: Mapping[str, Estimate],
    missed: Mapping[str, Estimate],
) -> Figure:  # fmt: skip
    """Measured over theory against N by regime: single texts, their average, what is missed."""
    figure, axes = plt.subplots(1, 3, figsize=(10.0, 3.6))
    style = {"fmt": "o-", "ms": 3, "lw": 0.8, "capsize": 1.5}
    for axis, found, height, word, scale in (
        (axes[0], single, 1.0, "error of a text over $σ/\\sqrt{N}$", {"ylim": (0.0, 1.6)}),
        (axes[1], average, 1.0, "error of the average over $b/N$", {"ylim": (0.0, 1.6)}),
        (axes[2], missed, 0.1, "share that the linear law misses", {"yscale": "log"}),
    ):
        for name, ratio in found.items():
            kept = ratio.error < 0.3
            value, error = ratio.value[kept], ratio.error[kept]
            points(axis, sizes[kept], value, error, REGIMES[name], label=name, **style)
        axis.axhline(height, color="0.4", ls="--", lw=1)
        axis.set(xscale="log", xlabel="bits $N$", ylabel=word, **scale)
    axes[2].legend(fontsize=8)
    label_panels(list(axes))
    return figure


def show_onsets(
    gammas: np.ndarray, *, by_gamma: Mapping[int, tuple[np.ndarray, np.ndarray]],
    tokens: np.ndarray, by_token: tuple[np.ndarray, np.ndarray], rate: float,
) -> Figure:  # fmt: skip
    """ln N of the onset against the steepness, and against time in chaos; beside it the theory.

    Pairs are (measured, computed), each (starts, n); `rate` per token is a line beside the last.
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6))
    for axis, x, (measured, computed), name, color in (
        (axes[0], gammas, by_gamma[4], "token 4, ", "sky"),
        (axes[0], gammas, by_gamma[8], "token 8, ", "purple"),
        (axes[1], tokens, by_token, "", "red"),
    ):
        ends = np.exp(np.quantile(measured, [0.25, 0.5, 0.75], axis=0, method="lower"))
        low, middle, high = np.minimum(ends, np.array([[1e300], [1e300], [1e18]]))
        intervals(axis, x, (low, middle, high), color, ms=4, lw=1, label=f"{name}measured")
        theory = np.exp(np.median(computed, axis=0))
        axis.plot(x, theory, color=COLORS[color], label=f"{name}theory")
    line = theory[-1] * np.exp(rate * (tokens - tokens[-1]))
    axes[1].plot(tokens, line, "--", color=COLORS["black"], lw=1, label="$e^{2λt}$")
    axes[0].set_xscale("log", base=2)
    for axis, word in zip(axes, ("steepness γ of the softmax", "token"), strict=True):
        axis.set(yscale="log", xlabel=word, ylabel="onset: bits $N$")
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylim(30.0, 1e9)  # room for the legend
    label_panels(list(axes))
    return figure


def show_closures(
    sizes: np.ndarray, *, ratios: Mapping[str, np.ndarray], expansions: Mapping[str, np.ndarray]
) -> Figure:
    """Errors of the closure and of the 1/N correction over the naive ones, (3, sizes) by motion."""
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.5), sharey=True)
    style = {"fmt": "o-", "ms": 3.5, "lw": 0.9}
    for axis, found, title in (
        (axes[0], ratios, "Gaussian closure"),
        (axes[1], expansions, "$1/N$ correction"),
    ):
        for name, (value, low, high) in found.items():
            intervals(axis, sizes, (low, value, high), REGIMES[name], label=name, **style)
        axis.axhline(1.0, color="0.4", ls="--", lw=1)
        axis.set(xscale="log", yscale="log", ylim=(5e-3, 50.0), xlabel="bits $N$", title=title)
    axes[0].set_ylabel("error over that of the naive mean field")
    axes[0].legend(fontsize=8)
    label_panels(list(axes))
    return figure
