"""Drawings of networks of finite size beside their mean field."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compendium.common.drawing import intervals, points
from spinformer.core.statistics import Estimate
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

REGIMES = {"driven": "black", "quasi-periodic": "green", "periodic": "blue", "chaotic": "red"}


def show_token_loop() -> Figure:
    """A schematic: a token of N bits, the overlaps that are all attention sees, the next token."""
    figure, axis = plt.subplots(figsize=(8.4, 2.6))
    boxes = {
        "bits": (0.0, 0.5, "token: $N$ bits\n$x_i = \\pm1$"),
        "overlaps": (0.34, 0.5, "$4P$ overlaps $m$\naverages over $N$ bits"),
        "attention": (0.68, 0.5, "attention $A$\n$P$ numbers"),
        "next": (1.0, 0.5, "next token\n$N$ bits"),
    }
    draw_boxes(
        boxes,
        axis=axis,
        arrows=["bits overlaps attention next"],
        bent=["next bits"],
        colors={"overlaps": "orange", "attention": "orange"},
    )
    words = {0.17: "noise of order\n$N^{-1/2}$", 0.51: "deterministic", 0.84: "independent\ndraws"}
    for place, word in words.items():
        axis.text(place, 0.8, word, ha="center", fontsize=8.5)
    axis.set_ylim(-0.1, 1.05)
    return figure


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
    for axis, found in zip(axes, (single, average, missed), strict=True):
        for name, ratio in found.items():
            kept = ratio.error < 0.3
            value, error = ratio.value[kept], ratio.error[kept]
            style = {"fmt": "o-", "ms": 3, "lw": 0.8, "capsize": 1.5, "label": name}
            points(axis, sizes[kept], value, error, REGIMES[name], **style)
        axis.set(xscale="log", xlabel="bits $N$")
    axes[0].set_ylabel("error of a text over $σ/\\sqrt{N}$")
    axes[1].set_ylabel("error of the average over $b/N$")
    axes[2].set(ylabel="share that the linear law misses", yscale="log")
    for axis, height in zip(axes, (1.0, 1.0, 0.1), strict=True):
        axis.axhline(height, color="0.4", ls="--", lw=1)
    for axis in axes[:2]:
        axis.set_ylim(0.0, 1.6)
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

    def draw(
        axis: Axes, x: np.ndarray, pair: tuple[np.ndarray, np.ndarray], name: str, color: str
    ) -> np.ndarray:
        ends = [np.quantile(pair[0], q, axis=0, method="lower") for q in (0.25, 0.5, 0.75)]
        low, middle, high = np.minimum(np.exp(ends), 1e300)
        style = {"ms": 4, "lw": 1, "label": f"{name}measured"}
        intervals(axis, x, (low, middle, np.minimum(high, 1e18)), color, **style)
        theory = np.exp(np.median(pair[1], axis=0))
        axis.plot(x, theory, color=COLORS[color], label=f"{name}theory")
        return theory

    for (token, pair), color in zip(by_gamma.items(), ("sky", "purple"), strict=False):
        draw(axes[0], gammas, pair, f"token {token}, ", color)
    last = draw(axes[1], tokens, by_token, "", "red")[-1]
    line = last * np.exp(rate * (tokens - tokens[-1]))
    axes[1].plot(tokens, line, "--", color=COLORS["black"], lw=1, label="$e^{2λt}$")
    axes[0].set_xscale("log", base=2)
    axes[0].set_xlabel("steepness γ of the softmax")
    axes[1].set_xlabel("token")
    for axis in axes:
        axis.set(yscale="log", ylabel="onset: bits $N$")
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylim(30.0, 1e9)  # room for the legend
    label_panels(list(axes))
    return figure
