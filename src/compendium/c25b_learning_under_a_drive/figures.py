"""Drawings of driven spins that learn: the layer, training curves, and bits per character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import means
from spinformer.core.statistics import mean_interval
from spinformer.plot.style import COLORS

ARM_COLORS = {
    "driven": COLORS["blue"],
    "one step": COLORS["sky"],
    "naive": COLORS["green"],
    "symmetric": COLORS["red"],
    "frozen": COLORS["orange"],
    "uniform": "0.55",
    "attention": COLORS["black"],
    "shuffled": COLORS["purple"],
}


def draw_seeds(axis: Axes, values: Mapping[str, np.ndarray]) -> None:
    """One row an arm: a dot a seed, and the mean with its interval; `values` {arm: (seeds,)}."""
    for row, (arm, seeds) in enumerate(values.items()):
        shifts = row - 0.18 + 0.36 * np.arange(len(seeds)) / max(len(seeds) - 1, 1)
        axis.plot(seeds, shifts, ".", ms=5, color=ARM_COLORS[arm], alpha=0.8)
        low, high = mean_interval(seeds)
        axis.plot([low, high], [row + 0.32] * 2, color="0.3", lw=1.5)
        axis.plot(seeds.mean(), row + 0.32, "|", color="0.3", ms=9)
    axis.set_yticks(range(len(values)), list(values))
    axis.invert_yaxis()


def draw_fates(
    axis: Axes, *, updates: Sequence[int], paths: np.ndarray, learned: np.ndarray
) -> None:
    """Paths of the arm "driven" (seeds, updates), a line a seed, broken where it did not learn."""
    names = {True: "driven, learned", False: "driven, stuck"}
    for path, good in zip(paths, learned.tolist(), strict=True):
        style = "-" if good else "--"
        axis.plot(updates, path, style, color=ARM_COLORS["driven"], lw=1, label=names.pop(good, ""))


def draw_paths(
    axis: Axes, *, updates: Sequence[int], values: Mapping[str, np.ndarray], label: str
) -> None:
    """Means over seeds with their intervals against updates; `values` {arm: (seeds, updates)}."""
    for arm, paths in values.items():
        color = ARM_COLORS[arm]
        low, high = np.transpose([mean_interval(column) for column in paths.T])
        axis.plot(updates, paths.mean(0), "o-", ms=4, color=color, label=arm)
        axis.fill_between(updates, low, high, color=color, alpha=0.2, lw=0)
    axis.set(xlabel="updates", ylabel=label)


def draw_bits(
    axis: Axes, *, bits: Mapping[str, tuple[np.ndarray, np.ndarray]], counts: Mapping[str, float]
) -> None:
    """Bits per character of each arm, (in one pass, from the past alone); dotted: `counts`."""
    for place, (arm, (one_pass, past_alone)) in enumerate(bits.items()):
        look: Any = {"color": ARM_COLORS[arm], "capsize": 3}
        means(axis, [place - 0.12], one_pass[:, None], **look, fmt="s", mfc="none")
        means(axis, [place + 0.12], past_alone[:, None], **look)
    for name, value in counts.items():
        axis.axhline(value, color="0.4", ls=":", lw=1)
        style: Any = {"color": "0.4", "fontsize": 8, "va": "bottom", "ha": "right"}
        axis.annotate(name, (len(bits) - 0.45, value), **style)
    axis.set_xticks(range(len(bits)), list(bits))
    axis.set(ylabel="bits per character", xlim=(-0.5, len(bits) - 0.4))
