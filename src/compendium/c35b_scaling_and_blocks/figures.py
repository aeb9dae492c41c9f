"""Drawings of attention with many features, a residual connection and a feed-forward block."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from compendium.common.rows import Columns
from spinformer.core.statistics import mean_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def show_two_additions() -> None:
    """A schematic: more features per bit, and two blocks beside attention."""
    _, axes = plt.subplots(1, 2, figsize=(8.4, 2.8), width_ratios=(1.0, 1.7))
    rng = np.random.default_rng(0)
    for left, wide, words in ((0.0, 3, "few"), (6.0, 14, "many")):
        signs, extent = rng.choice([-1.0, 1.0], (18, wide)), (left, left + wide, 0, 18)
        axes[0].imshow(signs, cmap="PuOr", vmin=-2, vmax=2, extent=extent)
        axes[0].text(left + wide / 2, 19.0, words, ha="center", fontsize=9)
    axes[0].text(-1.2, 9, "bits", rotation=90, va="center", ha="center", fontsize=9)
    axes[0].text(10, -2.2, "features", ha="center", fontsize=9)
    axes[0].set(xlim=(-2, 21), ylim=(-3.5, 21))
    axes[0].axis("off")
    boxes = {
        "token": (0.0, 0.45, "window"),
        "attention": (0.33, 0.45, "attention"),
        "feed": (0.66, 0.45, "feed-\nforward"),
        "next": (1.0, 0.45, "next\ntoken"),
    }
    arrows = ["token attention feed next"]
    draw_boxes(boxes, axis=axes[1], arrows=arrows, colors={"feed": "green"})
    arrow = {"arrowstyle": "-|>", "lw": 1.4, "color": COLORS["red"]}
    arrow["connectionstyle"] = "arc3,rad=-0.4"
    axes[1].annotate("", xy=(0.97, 0.63), xytext=(0.03, 0.58), arrowprops=arrow)
    axes[1].text(0.5, 1.02, "residual: every bit hears itself", ha="center", fontsize=8.5)
    label_panels(list(axes))


def _means_by_size(axis: Axes, table: Columns, column: str, rows: np.ndarray, **how: Any) -> None:
    """Means of a column over seeds against the number of bits, with 95 % intervals."""
    sizes = np.unique(table["size"])
    groups = [table[column][rows & (table["size"] == size)] for size in sizes]
    low, high = np.array([mean_interval(group) for group in groups]).T
    half = 0.5 * (high - low)
    axis.errorbar(sizes, low + half, half, ms=4, lw=1, **how)


def show_scores(table: Columns) -> None:
    """Deviation of the softmax's arguments and tokens attended, against N, by rule."""
    _, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    words = ("γ fixed, P = αN", "unit variance, P = αN", "unit variance, P = 3")
    looks = (("o-", "blue"), ("s-", "green"), ("^-", "red"))
    rules = dict.fromkeys(table["rule"].tolist())
    for rule, label, (marker, color) in zip(rules, words, looks, strict=True):
        how: dict[str, Any] = {"fmt": marker, "color": COLORS[color], "label": label}
        for axis, column in zip(axes, ("deviation", "attended"), strict=True):
            _means_by_size(axis, table, column, table["rule"] == rule, **how)
    for axis in axes:
        axis.set(xscale="log", xlabel="bits $N$")
        axis.set_xticks([300, 600, 1200, 2400], ["300", "600", "1200", "2400"])
        axis.minorticks_off()
    axes[0].set(yscale="log", ylabel="deviation of the scores")
    axes[0].set_ylim(top=2e4)
    axes[0].legend(fontsize=8, loc="upper left")
    axes[1].set(ylim=(0.8, 4), ylabel="tokens attended, of 4")
    label_panels(list(axes))


def show_load(paths: Columns, *, limits: Columns, onsets: Columns, largest: float) -> None:
    """Distance of texts from the theory; its largest gain by load; overlaps around the limit."""
    _, axes = plt.subplots(1, 3, figsize=(9.0, 3.3))
    kinds = (("without", "red", "theory without load"), ("with", "blue", "theory at the load"))
    for column, color, label in kinds:
        how: dict[str, Any] = {"fmt": "o-", "color": COLORS[color], "label": label}
        _means_by_size(axes[0], paths, column, paths["size"] > 0, **how)
    axes[0].set(ylabel="distance of a text", ylim=(0.03, 0.9))
    axes[1].plot(limits["load"][1:], limits["gain"][1:], color=COLORS["black"])
    axes[1].axhline(limits["onset"][0], color=COLORS["orange"], ls="--", lw=1.2)
    axes[1].text(1.18, limits["onset"][0] * 1.08, "needed to move", ha="right", fontsize=8.5)
    axes[1].axvline(largest, color="0.5", lw=1)
    axes[1].set(xlabel="load $α$", ylabel="largest gain", yscale="log")
    axes[1].set_yticks([1, 2, 4], ["1", "2", "4"])
    axes[1].minorticks_off()
    for load, marker in zip(np.unique(onsets["load"]), "os^v", strict=False):
        rows, label = onsets["load"] == load, f"α = {load:g}"
        _means_by_size(axes[2], onsets, "overlap", rows, fmt=marker + "-", label=label)
    axes[2].set(ylabel="overlap with the few", ylim=(0.02, 3))
    axes[2].legend(fontsize=8, ncols=2, loc="upper center")
    for axis in (axes[0], axes[2]):
        axis.set(xscale="log", yscale="log", xlabel="bits $N$")
        axis.set_xticks([300, 1200], ["300", "1200"])
        axis.minorticks_off()
    axes[0].legend(fontsize=8, loc="upper center")
    label_panels(list(axes))
