"""Drawings of chaos that switches: the idea, the two parts, their dwells, the time scales."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

CALM, WILD = COLORS["blue"], COLORS["red"]


def show_two_readings() -> Figure:
    """A schematic: two attractors, of which each keeps what it has, and one with two parts."""
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 2.6))
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    rng = np.random.default_rng(0)
    for axis, words in zip(axes, ("two attractors", "one attractor, two parts"), strict=True):
        axis.plot(-1.3 + 0.45 * np.cos(angle), 0.5 * np.sin(angle), color=CALM, lw=2.5)
        cloud = rng.normal((1.2, 0.0), 0.3, (500, 2))
        axis.plot(*cloud.T, ".", ms=2, color=WILD, alpha=0.6)
        axis.set_title(words, fontsize=10)
        axis.set(xlim=(-2.2, 2.4), ylim=(-1.2, 1.2))
        axis.axis("off")
    axes[0].axvline(0.0, color=COLORS["black"], ls="--", lw=1.2)
    axes[0].text(0.06, -1.15, "no orbit crosses", fontsize=8.5)
    arrow = {"arrowstyle": "->", "lw": 1.4, "connectionstyle": "arc3,rad=-0.35"}
    for side in (1, -1):
        ends = [(far * side, 0.35 * side) for far in (0.6, -0.75)]
        axes[1].annotate("", xy=ends[0], xytext=ends[1], arrowprops=arrow)
    axes[1].text(-0.1, 0.0, "after many\nsteps", ha="center", va="center", fontsize=8.5)
    label_panels(list(axes))
    return figure


def show_parts(points: np.ndarray, *, state: np.ndarray, curve: np.ndarray) -> Figure:
    """Strobed overlaps (n, P) by part, with the closed curve (m, P), and the series by part."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.5), width_ratios=(1.0, 1.5))
    dots: dict[str, Any] = {"ls": "", "marker": ".", "rasterized": True}
    for part, color, name in ((1, WILD, "wild part"), (0, CALM, "calm part")):
        mine = state == part
        left.plot(*points[mine, :2].T, ms=1.2, color=color, **dots)
        left.plot([], [], "o", ms=5, color=color, label=name)
        right.plot(np.where(mine, points[:, 0], np.nan), ms=1.6, color=color, **dots)
    left.plot(*curve[:, :2].T, ms=1, color=COLORS["black"], **dots)
    left.plot([], [], color=COLORS["black"], label="closed curve")
    left.set(xlabel="first output overlap", ylabel="second output overlap")
    left.set_ylim(top=0.62)
    left.legend(loc="upper left", fontsize=8)
    right.set(xlabel="flashes (clock periods)", ylabel="first output overlap")
    label_panels([left, right])
    return figure


def show_survival_of_dwells(lengths: np.ndarray, *, which: np.ndarray, long: int) -> Figure:
    """Share of dwells (n,) in flashes longer than a time, by part, and exponentials past `long`."""
    figure, axis = plt.subplots(figsize=(5.6, 3.5))
    for part, color, name in ((0, CALM, "calm"), (1, WILD, "wild")):
        mine = np.sort(lengths[which == part])
        if not len(mine):
            continue
        axis.step(mine, 1.0 - np.arange(len(mine)) / len(mine), color=color, label=name)
        left = mine[mine > long] - long
        if len(left):
            time = np.linspace(long, mine.max(), 50)
            line = len(left) / len(mine) * np.exp(-(time - long) / left.mean())
            axis.plot(time, line, color=COLORS["black"], lw=1, ls="--")
    axis.axvline(long, color="0.5", lw=1)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5 / max(len(lengths), 1))
    axis.set(xlabel="dwell (flashes)", ylabel="share of dwells that are longer")
    axis.legend()
    return figure


def show_time_scales(
    orbits: dict[str, np.ndarray], *, kept: np.ndarray, dwells: dict[str, np.ndarray]
) -> Figure:
    """Slow times with their nulls, and mean remaining dwells, against β, from the stored tables.

    kept: which rows of the orbits are drawn.
    """
    figure, axes = plt.subplots(1, 3, figsize=(8.8, 3.3), width_ratios=(1.3, 0.6, 1.3))
    betas = np.unique(orbits["beta"])
    near = betas < 1.275
    for axis, chosen in zip(axes[:2], (betas[near], betas[~near]), strict=True):
        for name, color, marker, words in (
            ("slow", COLORS["black"], "o", "slowest mode"),
            ("next", COLORS["sky"], "v", "next mode"),
            ("surrogate", COLORS["orange"], "s", "same spectrum"),
            ("shuffled", COLORS["green"], "^", "shuffled"),
        ):
            rows = [orbits[name][(orbits["beta"] == beta) & kept] for beta in chosen]
            mean = np.array([row.mean() for row in rows])
            error = np.array([1.96 * row.std(ddof=1) / np.sqrt(len(row)) for row in rows])
            axis.errorbar(chosen, mean, error, fmt=marker, ms=4, color=color, label=words)
        axis.set(yscale="log", ylim=(20, 3000), xlabel=r"$\beta$")
    axes[0].set_ylabel("time (tokens)")
    axes[0].legend(fontsize=8, loc="upper right")
    axes[1].tick_params(labelleft=False)
    for part, color in (("calm", CALM), ("wild", WILD)):
        rows = (dwells["part"] == part) & (dwells["seed"] == dwells["seed"].min())
        error = 1.96 * dwells["excess"][rows] / np.sqrt(dwells["long"][rows])
        how: dict[str, Any] = {"fmt": "o", "ms": 4, "color": color, "label": part}
        axes[2].errorbar(dwells["beta"][rows], dwells["excess"][rows], error, **how)
    axes[2].set(yscale="log", ylim=(200, 5000), xlabel=r"$\beta$")
    axes[2].set_ylabel("remaining dwell (tokens)")
    axes[2].legend(loc="upper right")
    for axis in (axes[0], axes[2]):
        axis.set_xticks([1.2655, 1.2665])
    label_panels(list(axes))
    return figure
