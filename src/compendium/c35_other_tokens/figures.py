"""Drawings of the chapter on tokens that are not made of bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import intervals
from compendium.common.rows import Columns
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

SHADES = {2: "black", 3: "blue", 4: "green", 8: "orange"}


def show_two_draws() -> None:
    """A schematic: a token of many sites, one die each, beside one that is a word of a list."""
    _, axes = plt.subplots(1, 2, figsize=(8.4, 2.9))
    sites = {
        n: (0.54, y, f"site {n}: a  b  c") for n, y in (("1", 1.05), ("2", 0.75), ("$N$", 0.15))
    }
    words = {"list": (0.54, 0.6, "one list of words\ncat\nsat\nmat\n⋮")}
    for axis, middle, color, ending, note in (
        (axes[0], sites, "blue", "token", "$N$ draws: their noise averages out"),
        (axes[1], words, "red", "word", "one draw: its noise stays"),
    ):
        ends = {"attention": (0.08, 0.6, "attention\n$A$")}
        ends["mean"] = (1.0, 0.6, f"overlaps\nof the {ending}")
        arrows = [f"attention {name} mean" for name in middle]
        colors = dict.fromkeys(middle, color)
        draw_boxes(ends | middle, axis=axis, arrows=arrows, colors=colors)
        axis.text(0.54, -0.12, note, ha="center", fontsize=9)
    axes[0].text(0.54, 0.45, "⋮", ha="center", va="center")
    for axis in axes:
        axis.set(xlim=(-0.15, 1.25), ylim=(-0.2, 1.2))
    label_panels(list(axes))


def show_deviations(table: Columns, *, seeds: Sequence[int]) -> None:
    """Deviation against N for sites and words, and its ratio to the linear theory for sites.

    `table` has the columns of `DEVIATIONS`; medians over the networks `seeds`,
    bars from the smallest to the largest.
    """
    _, axes = plt.subplots(1, 2, figsize=(8.4, 3.6))
    mine = np.isin(table["seed"], list(seeds))
    kinds = sorted(set(zip(table["words"][mine], table["letters"][mine], strict=True)))
    markers = iter("osD^vP*X")
    for words, letters in kinds:
        keep = mine & (table["words"] == words) & (table["letters"] == letters)
        sizes = np.unique(table["size"][keep])
        groups = [keep & (table["size"] == size) for size in sizes]
        color = "red" if words else SHADES.get(int(letters), "purple")
        text = f"{words} words, $q={letters}$" if words else f"sites, $q={letters}$"
        style = {"fmt": next(markers) + "-", "label": text}
        _bars(axes[0], sizes, [table["deviation"][g] for g in groups], color, **style)
        if not words:
            ratio = [table["deviation"][g] / table["predicted"][g] for g in groups]
            shift = 1.0 + 0.12 * (list(SHADES).index(int(letters)) - 1.5)
            _bars(axes[1], sizes * shift, ratio, color, **style)
    axes[0].set(xscale="log", yscale="log", xlabel="sites $N$", ylabel="deviation of a text")
    axes[0].set_ylim(top=3e3)  # room for the legend
    axes[0].legend(fontsize=7, ncol=2, loc="upper right")
    axes[1].axhline(1.0, color="0.5", lw=1)
    axes[1].set(xscale="log", xlabel="sites $N$", ylabel="measured over linear theory")
    label_panels(list(axes))


def _bars(
    axis: Axes, x: np.ndarray, samples: Sequence[np.ndarray], color: str, **style: Any
) -> None:
    """Medians with bars from the smallest to the largest of each sample."""
    ends = np.array([np.quantile(values, (0.0, 0.5, 1.0)) for values in samples]).T
    intervals(axis, x, ends, color, ms=4, lw=1, **style)


def show_words(table: Columns, *, threshold: float) -> None:
    """Gap between a list of words and its sites against log₂ V / N, and spread of a draw.

    `table` has the columns of `WORDS`.
    """
    _, axes = plt.subplots(1, 2, figsize=(8.4, 3.4))
    sizes = np.unique(table["size"])
    for size, color, mark in zip(sizes, ("sky", "blue", "green", "black"), "osD^", strict=False):
        rows = np.flatnonzero(table["size"] == size)
        rows = rows[np.argsort(table["share"][rows])]
        share, gap, error = (table[name][rows] for name in ("share", "gap", "error"))
        shade: dict[str, Any] = {"color": COLORS[color], "marker": mark, "ms": 4, "lw": 1}
        axes[0].errorbar(share, gap, error, capsize=2, label=f"$N = {size}$", **shade)
        axes[1].plot(share, table["spread"][rows] / table["sites"][rows], **shade)
    # The limit does not depend on the size.
    limit: dict[str, Any] = {"color": COLORS["red"], "label": "$N\\to\\infty$"}
    axes[0].plot(share, table["frozen"][rows], "--", **limit)
    for axis in axes:
        axis.axvline(threshold, color="0.5", lw=1, ls=":")
        axis.set_xlabel(r"size of the list, $\log_2 V/N$")
    axes[0].set_ylabel("gap of the means")
    axes[1].set_ylabel("spread of a draw over that of sites")
    axes[1].set_ylim(bottom=0.0)
    axes[0].legend(fontsize=8)
    label_panels(list(axes))
