"""Drawings of learning through the limit: three gradients, their quality, losses, horizons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compendium.common.drawing import points
from compendium.common.rows import array_of
from spinformer.core.statistics import mean_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, MOTION_COLORS, label_panels

# Color and name of every estimator.
GRADIENTS = {
    "limit": ("blue", "limit"),
    "straight": ("orange", "straight-through"),
    "score": ("red", "REINFORCE"),
    "score, no baseline": ("purple", "REINFORCE, no baseline"),
}
Columns = Mapping[str, np.ndarray]


def show_three_gradients() -> Figure:
    """Weights, mean, draw, cost, and the ways back from the cost to the weights."""
    figure, axis = plt.subplots(figsize=(7.4, 2.9))
    boxes = {
        "weights": (0.02, 0.55, "weights W"),
        "mean": (0.33, 0.55, "mean of the\nnext token"),
        "draw": (0.64, 0.55, "drawn\ntoken"),
        "cost": (0.97, 0.55, "cost of what\nfollows"),
    }
    draw_boxes(boxes, axis=axis, arrows=["weights mean", "mean draw: N bits", "draw cost"])

    def back(start: float, end: float, height: float, color: str, word: str) -> None:
        shade = COLORS[color]
        arrow = {"arrowstyle": "-|>", "color": shade, "lw": 1.6}
        axis.plot([start, start], [0.38, height], color=shade, lw=1.6)
        axis.plot([start, end], [height, height], color=shade, lw=1.6)
        axis.annotate("", xy=(end, 0.38), xytext=(end, height), arrowprops=arrow)
        axis.text((start + end) / 2, height - 0.085, word, color=shade, ha="center", fontsize=9)

    back(0.94, 0.36, 0.2, "orange", "straight-through: past the draw, as if it were its mean")
    back(1.0, 0.02, -0.02, "red", "REINFORCE: cost × gradient of log P(draw)")
    arrow = {"arrowstyle": "-|>", "color": COLORS["blue"], "lw": 1.6}
    bent = arrow | {"connectionstyle": "arc3,rad=0.42"}
    axis.annotate("", xy=(0.33, 0.72), xytext=(0.97, 0.72), arrowprops=bent)
    axis.text(0.65, 0.93, "limit: no draw at all", color=COLORS["blue"], ha="center", fontsize=9)
    axis.set(xlim=(-0.1, 1.1), ylim=(-0.15, 1.15))
    return figure


def show_quality(table: Columns) -> Figure:
    """Bias against the exact gradient, and variance of one path, against N."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5))
    for estimator, (color, name) in GRADIENTS.items():
        own = table["estimator"] == estimator
        style = {"fmt": "o-", "ms": 4, "label": name}
        if estimator in ("limit", "straight"):
            exact = own & (table["size"] < 50)
            _draw_means(left, table["size"], table["bias"], exact, color, **style)
        if estimator != "limit":
            _draw_means(right, table["size"], table["variance"], own, color, **style)
    left.set(xscale="log", yscale="log", xlabel="bits N", ylabel="bias / exact gradient")
    left.set_xticks([3, 6, 9, 15], ["3", "6", "9", "15"])
    left.set_xticks([], minor=True)
    right.set(xscale="log", yscale="log", xlabel="bits N", ylabel="variance of a path / gradient²")
    left.legend()
    right.legend(fontsize=8)
    label_panels([left, right])
    return figure


def show_losses(table: Columns, *, tables: Mapping[str, float]) -> Figure:
    """Loss at N = 9,900 by the share of the budget, two tasks; means and intervals over seeds.

    `tables`: bits per bit of the controls without a network, drawn into the second panel.
    """
    arms = {
        "limit": ("blue", "-", "limit"),
        "straight, 9900": ("orange", "-", "straight-through, N = 9,900"),
        "score, 9900": ("red", "-", "REINFORCE, N = 9,900"),
        "limit, one step": ("blue", ":", "limit, cut after one step"),
        "limit, shuffled": ("purple", ":", "limit, shuffled targets"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.9))
    for axis, task in zip(axes, ("cycle", "bytes"), strict=True):
        for arm, (color, line, label) in arms.items():
            own = (table["arm"] == arm) & (table["task"] == task)
            _draw_means(axis, table["share"], table["n9900"], own, color, fmt=line, label=label)
        axis.set(xlabel="share of the path-steps", ylabel="loss (bits per bit)", title=task)
    for (name, value), dash in zip(tables.items(), ("--", "-."), strict=False):
        axes[1].axhline(value, color=COLORS["black"], ls=dash, lw=1, label=name)
    axes[0].set_ylim(bottom=0.0)
    handles, labels = axes[1].get_legend_handles_labels()
    first, words = axes[0].get_legend_handles_labels()
    both = dict(zip(words + labels, first + handles, strict=True))
    figure.legend(both.values(), both.keys(), loc="outside lower center", ncols=3, fontsize=8)
    label_panels(list(axes))
    return figure


def show_horizons(growth: Columns, shares: Columns, *, rates: Mapping[str, float]) -> Figure:
    """Norm of the gradient by the motion, and what of it the network of N bits has.

    `rates`: leading exponent of each chaotic motion, drawn as e^{λk}.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.7))
    for motion in dict.fromkeys(growth["motion"].tolist()):
        steps = np.unique(growth["horizon"][growth["motion"] == motion])
        logs = np.log(array_of(growth, "norm", "horizon", "start", motion=motion))
        mean, band = logs.mean(axis=1), 2 * logs.std(axis=1) / np.sqrt(logs.shape[1])
        shade = COLORS[MOTION_COLORS[motion]]
        left.plot(steps, np.exp(mean), "o-", ms=4, color=shade, label=motion)
        left.fill_between(steps, np.exp(mean - band), np.exp(mean + band), color=shade, alpha=0.2)
        if motion in rates:
            guide = np.exp(mean[-1] + rates[motion] * (steps - steps[-1]))
            left.plot(steps, guide, "--", color=shade, lw=1)
    left.set(xlabel="horizon k (tokens)", ylabel="norm of the gradient", yscale="log")
    left.set(xlim=(0, 140), ylim=(0.05, 1e10))
    left.legend(fontsize=8)

    def draw(motion: str, size: int, **style: Any) -> None:
        rows = array_of(shares, "share", "horizon", "start", motion=motion, size=size)
        right.plot(np.unique(shares["horizon"]), np.median(rows, axis=1), **style)

    cold = plt.get_cmap("cividis")
    sizes = np.unique(shares["size"])
    for place, size in enumerate(sizes):
        color = cold(0.9 * place / max(len(sizes) - 1, 1))
        draw("chaos at 1.28", size, color=color, label=f"N = {size:,}")
    draw("periodic", sizes[-1], color=COLORS["blue"], ls=":", label="periodic, N = 999,999")
    right.axhline(0.5, color="0.5", ls="--", lw=1)
    right.set(xlabel="horizon k (tokens)", ylabel="share of the limit's gradient", ylim=(-0.5, 2.0))
    right.legend(fontsize=8)
    label_panels([left, right])
    return figure


def _draw_means(
    axis: Axes, across: np.ndarray, values: np.ndarray, own: np.ndarray, color: str, **style: Any
) -> None:
    """Means of `values[own]` at every value of `across`, with Student's intervals over the rest."""
    places = np.unique(across[own])
    rows = [values[own & (across == place)] for place in places]
    error = [np.ptp(mean_interval(row)) / 2 if len(row) > 1 else 0.0 for row in rows]
    points(axis, places, [row.mean() for row in rows], error, color, **style)
