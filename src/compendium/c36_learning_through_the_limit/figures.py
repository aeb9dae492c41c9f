"""Drawings of learning through the limit: three gradients, their quality, losses, horizons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import MOTION_COLORS, points
from compendium.common.rows import Columns, array_of
from spinformer.core.statistics import mean_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

# Color and name of every estimator.
GRADIENTS = {
    "limit": ("blue", "limit"),
    "straight": ("orange", "straight-through"),
    "score": ("red", "REINFORCE"),
    "score, no baseline": ("purple", "REINFORCE, no baseline"),
}


def show_three_gradients() -> None:
    """Weights, mean, draw, cost, and the ways back from the cost to the weights."""
    _, axis = plt.subplots(figsize=(7.4, 2.9))
    boxes = {
        "weights": (0.02, 0.55, "weights W"),
        "mean": (0.33, 0.55, "mean of the\nnext token"),
        "draw": (0.64, 0.55, "drawn\ntoken"),
        "cost": (0.97, 0.55, "cost of what\nfollows"),
    }
    draw_boxes(boxes, axis=axis, arrows=["weights mean", "mean draw: N bits", "draw cost"])
    for end, edge, bend, height, color, word in (
        (0.33, 0.72, 0.42, 0.93, "blue", "limit: no draw at all"),
        (0.36, 0.38, -0.3, 0.29, "orange", "straight-through: the draw as its mean"),
        (0.02, 0.38, -0.4, -0.02, "red", "REINFORCE: cost × gradient of log P(draw)"),
    ):
        arrow = {"arrowstyle": "-|>", "color": COLORS[color], "lw": 1.6}
        arrow["connectionstyle"] = f"arc3,rad={bend}"
        axis.annotate("", xy=(end, edge), xytext=(0.97, edge), arrowprops=arrow)
        axis.text((end + 0.97) / 2, height, word, color=COLORS[color], ha="center", fontsize=9)
    axis.set(xlim=(-0.1, 1.1), ylim=(-0.15, 1.15))


def show_quality(table: Columns) -> None:
    """Bias against the exact gradient, and variance of one path, against N."""
    _, axes = plt.subplots(1, 2, figsize=(8.6, 3.5))
    for estimator, (color, name) in GRADIENTS.items():
        own = table["estimator"] == estimator
        for axis, column, chosen in (
            (axes[0], "bias", own & (table["size"] < 50) & (estimator in ("limit", "straight"))),
            (axes[1], "variance", own & (estimator != "limit")),
        ):
            if chosen.any():
                style = {"fmt": "o-", "ms": 4, "label": name}
                _draw_means(axis, table["size"], table[column], chosen, color, **style)
    for axis, label in zip(
        axes, ("bias / exact gradient", "variance of a path / gradient²"), strict=True
    ):
        axis.set(xscale="log", yscale="log", xlabel="bits N", ylabel=label)
        axis.legend(fontsize=8)
    axes[0].set_xticks([3, 6, 9, 15], ["3", "6", "9", "15"])
    axes[0].set_xticks([], minor=True)
    label_panels(list(axes))


def show_losses(table: Columns, *, tables: Mapping[str, float]) -> None:
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
            style = {"fmt": line, "label": label if axis is axes[0] else None}
            _draw_means(axis, table["share"], table["n9900"], own, color, **style)
        axis.set(xlabel="share of the path-steps", ylabel="loss (bits per bit)", title=task)
    for (name, value), dash in zip(tables.items(), ("--", "-."), strict=False):
        axes[1].axhline(value, color=COLORS["black"], ls=dash, lw=1, label=name)
    axes[0].set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    label_panels(list(axes))


def show_horizons(growth: Columns, shares: Columns, *, rates: Mapping[str, float]) -> None:
    """Norm of the gradient by the motion, and what of it the network of N bits has.

    `rates`: leading exponent of each chaotic motion, drawn as e^{λk}.
    """
    _, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.7))
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

    sizes = np.unique(shares["size"])
    curves = [
        ("chaos at 1.28", size, f"N = {size:,}", {"color": plt.get_cmap("cividis")(shade)})
        for size, shade in zip(sizes, np.linspace(0.0, 0.9, len(sizes)), strict=True)
    ]
    cycle = {"color": COLORS["blue"], "ls": ":"}
    for motion, size, label, style in (
        *curves,
        ("periodic", sizes[-1], "periodic, N = 999,999", cycle),
    ):
        rows = array_of(shares, "share", "horizon", "start", motion=motion, size=size)
        right.plot(np.unique(shares["horizon"]), np.median(rows, axis=1), label=label, **style)
    right.axhline(0.5, color="0.5", ls="--", lw=1)
    right.set(xlabel="horizon k (tokens)", ylabel="share of the limit's gradient", ylim=(-0.5, 2.0))
    right.legend(fontsize=8)
    label_panels([left, right])


def _draw_means(
    axis: Axes, across: np.ndarray, values: np.ndarray, own: np.ndarray, color: str, **style: Any
) -> None:
    """Means of `values[own]` at every value of `across`, with Student's intervals over the rest."""
    places = np.unique(across[own])
    rows = [values[own & (across == place)] for place in places]
    error = [np.ptp(mean_interval(row)) / 2 if len(row) > 1 else 0.0 for row in rows]
    points(axis, places, [row.mean() for row in rows], error, color, **style)
