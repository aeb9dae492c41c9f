"""Drawings of learning through the limit: losses, horizons."""

import matplotlib.pyplot as plt
import numpy as np

from compendium.common.drawing import MOTION_COLORS, means_at
from compendium.common.rows import Columns, array_of, groups
from spinformer.plot.style import COLORS, label_panels

# Color, line and name of every arm that is drawn.
ARMS = {
    "limit": ("blue", "-", "limit"),
    "straight, 9900": ("orange", "-", "straight-through, N = 9,900"),
    "score, 9900": ("red", "-", "REINFORCE, N = 9,900"),
    "limit, one step": ("blue", ":", "limit, cut after one step"),
    "limit, shuffled": ("purple", ":", "limit, shuffled targets"),
}


def show_losses(table: Columns, *, tables: dict[str, float]) -> None:
    """Loss at N = 9,900 by the share of the budget, and what tables of counts reach."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.9))
    for axis, task in zip(axes, ("cycle", "bytes"), strict=True):
        for arm, (color, line, name) in ARMS.items():
            own = (table["arm"] == arm) & (table["task"] == task)
            style = {"fmt": line, "label": name if axis is axes[0] else None}
            means_at(axis, table["share"][own], table["n9900"][own], color, **style)
        axis.set(xlabel="share of the path-steps", ylabel="loss (bits per bit)", title=task)
    for (name, value), dash in zip(tables.items(), ("--", "-."), strict=True):
        axes[1].axhline(value, color=COLORS["black"], ls=dash, lw=1, label=name)
    axes[0].set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    label_panels(list(axes))


def show_horizons(growth: Columns, shares: Columns, *, rates: dict[str, float]) -> None:
    """Norm of the gradient with e^{λk}, λ of `rates`, and what of it the network of N bits has."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.7))
    for motion, own in groups(growth, "motion"):
        steps, logs = np.unique(own["horizon"]), np.log(array_of(own, "norm", "horizon", "start"))
        mean, band = logs.mean(axis=1), 2 * logs.std(axis=1) / np.sqrt(logs.shape[1])
        shade = COLORS[MOTION_COLORS[motion]]
        left.plot(steps, np.exp(mean), "o-", ms=4, color=shade, label=motion)
        left.fill_between(steps, *np.exp([mean - band, mean + band]), color=shade, alpha=0.2)
        if motion in rates:
            guide = np.exp(mean[-1] + rates[motion] * (steps - steps[-1]))
            left.plot(steps, guide, "--", color=shade, lw=1)
    left.set(xlabel="horizon k (tokens)", ylabel="norm of the gradient", yscale="log")
    left.set(xlim=(0, 140), ylim=(0.05, 1e10))

    sizes, steps = np.unique(shares["size"]), np.unique(shares["horizon"])
    chaos = [("chaos at 1.28", size, f"N = {size:,}", "-") for size in sizes]
    colors = [*plt.get_cmap("cividis")(np.linspace(0.0, 0.9, len(sizes))), COLORS["blue"]]
    curves = [*chaos, ("periodic", sizes[-1], "periodic, N = 999,999", ":")]
    for (motion, size, name, line), color in zip(curves, colors, strict=True):
        rows = array_of(shares, "share", "horizon", "start", motion=motion, size=size)
        right.plot(steps, np.median(rows, axis=1), line, color=color, label=name)
    right.axhline(0.5, color="0.5", ls="--", lw=1)
    right.set(xlabel="horizon k (tokens)", ylabel="share of the limit's gradient", ylim=(-0.5, 2.0))
    for axis in (left, right):
        axis.legend(fontsize=8)
    label_panels([left, right])
