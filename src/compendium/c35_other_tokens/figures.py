"""Drawings of the chapter on tokens that are not made of bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.core.statistics import share_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

SHADES = {2: "black", 3: "blue", 4: "green", 8: "orange"}


def show_two_draws() -> Figure:
    """A schematic: a token of many sites, one die each, beside a token that is one word of a list.

    >>> figure = show_two_draws()
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9))
    places = (1.05, 0.75, 0.15)
    sites = {
        "attention": (0.08, 0.6, "attention\n$A$"),
        "mean": (1.0, 0.6, "overlaps\nof the token"),
    }
    for number, (y, text) in enumerate(
        zip(places, ("site 1: a  b  c", "site 2: a  b  c", "site $N$: a  b  c"), strict=True)
    ):
        sites[f"site{number}"] = (0.54, y, text)
    names = [f"site{number}" for number in range(3)]
    draw_boxes(
        sites,
        axis=axes[0],
        arrows=[("attention", n, "") for n in names] + [(n, "mean", "") for n in names],
        colors=dict.fromkeys(names, "blue"),
    )
    axes[0].text(0.54, 0.45, "⋮", ha="center", va="center")
    axes[0].text(0.54, -0.12, "$N$ draws: their noise averages out", ha="center", fontsize=9)
    draw_boxes(
        {
            "attention": (0.08, 0.6, "attention\n$A$"),
            "list": (0.54, 0.6, "one list of words\ncat\nsat\nmat\n⋮"),
            "mean": (1.0, 0.6, "overlaps\nof the word"),
        },
        axis=axes[1],
        arrows=[("attention", "list", ""), ("list", "mean", "")],
        colors={"list": "red"},
    )
    axes[1].text(0.54, -0.12, "one draw: its noise stays", ha="center", fontsize=9)
    for axis in axes:
        axis.set(xlim=(-0.15, 1.25), ylim=(-0.2, 1.2))
    label_panels(list(axes))
    return figure


def show_deviations(table: Mapping[str, np.ndarray], *, seeds: Sequence[int]) -> Figure:
    """Deviation against N for sites and words, and its ratio to the linear theory for sites.

    `table` has the columns of `DEVIATIONS`; medians over the networks `seeds`,
    bars from the smallest to the largest.

    >>> rows = {"letters": np.full(2, 3), "words": np.zeros(2, int), "seed": np.zeros(2, int),
    ...         "size": np.array([30, 300]), "deviation": np.array([0.3, 0.1]),
    ...         "predicted": np.array([0.3, 0.1])}
    >>> figure = show_deviations(rows, seeds=[0])
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6))
    mine = np.isin(table["seed"], list(seeds))
    kinds = sorted(set(zip(table["words"][mine], table["letters"][mine], strict=True)))
    markers = iter("osD^vP*X")
    for words, letters in kinds:
        keep = mine & (table["words"] == words) & (table["letters"] == letters)
        sizes = np.unique(table["size"][keep])
        groups = [keep & (table["size"] == size) for size in sizes]
        color = COLORS["red"] if words else COLORS[SHADES.get(int(letters), "purple")]
        mark = next(markers)
        text = f"{words} words, $q={letters}$" if words else f"sites, $q={letters}$"
        _bars(axes[0], sizes, [table["deviation"][g] for g in groups], color, mark, text)
        if not words:
            ratio = [table["deviation"][g] / table["predicted"][g] for g in groups]
            shift = 1.0 + 0.12 * (list(SHADES).index(int(letters)) - 1.5)
            _bars(axes[1], sizes * shift, ratio, color, mark, text)
    axes[0].set(xscale="log", yscale="log", xlabel="sites $N$", ylabel="deviation of a text")
    axes[0].set_ylim(top=3e3)  # room for the legend
    axes[0].legend(fontsize=7, ncol=2, loc="upper right")
    axes[1].axhline(1.0, color="0.5", lw=1)
    axes[1].set(xscale="log", xlabel="sites $N$", ylabel="measured over linear theory")
    label_panels(list(axes))
    return figure


def _bars(
    axis: Axes,
    x: np.ndarray,
    samples: Sequence[np.ndarray],
    color: str,
    marker: str,
    label: str,
) -> None:
    """Medians with bars from the smallest to the largest of each sample."""
    middle = np.array([np.median(values) for values in samples])
    low = middle - np.array([values.min() for values in samples])
    high = np.array([values.max() for values in samples]) - middle
    axis.errorbar(
        x, middle, (low, high), color=color, marker=marker, ms=4, lw=1, capsize=2, label=label
    )


def show_shares(
    table: Mapping[str, np.ndarray], *, families: Mapping[str, tuple[int, int]]
) -> Figure:
    """Share of networks with lasting chaos and with quasi-periodic motion against the letters.

    `families` gives the first seed of each and the seed after its last.

    >>> rows = {"letters": np.array([2, 2, 3, 3]), "seed": np.array([0, 1, 0, 1]),
    ...         "lasting": np.array([1, 0, 0, 0]), "quasi": np.array([2, 0, 1, 0])}
    >>> figure = show_shares(rows, families={"first": (0, 2)})
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), sharey=True)
    letters = np.unique(table["letters"])
    for axis, name, title in zip(
        axes, ("lasting", "quasi"), ("chaos", "quasi-periodic motion"), strict=True
    ):
        for number, (family, (low, high)) in enumerate(families.items()):
            points = []
            for q in letters:
                keep = (table["letters"] == q) & (table["seed"] >= low) & (table["seed"] < high)
                hits = int((table[name][keep] > 0).sum())
                ends = share_interval(hits, trials=int(keep.sum()))
                points.append((hits / keep.sum(), *ends))
            share, below, above = np.array(points).T
            x = np.arange(len(letters)) + 0.16 * (number - 0.5 * (len(families) - 1))
            axis.errorbar(
                x, share, (share - below, above - share), fmt="os"[number % 2], ms=5, capsize=3,
                color=COLORS["red" if name == "lasting" else "green"],
                mfc="white" if number else None, label=f"{family} family",
            )  # fmt: skip
        axis.set_xticks(range(len(letters)), [str(q) for q in letters])
        axis.set(xlabel="letters $q$", title=title, ylim=(0.0, None))
        axis.legend(fontsize=8)
    axes[0].set_ylabel("share of networks")
    label_panels(list(axes))
    return figure


def show_words(table: Mapping[str, np.ndarray], *, threshold: float) -> Figure:
    """Gap between a list of words and its sites against log₂ V / N, and spread of a draw.

    `table` has the columns of `WORDS`.

    >>> rows = {"size": np.full(2, 30), "share": np.array([0.2, 0.8]), "gap": np.array([0.3, 0.1]),
    ...         "error": np.full(2, 0.01), "frozen": np.array([0.2, 0.0]),
    ...         "spread": np.array([0.1, 0.2]), "sites": np.array([0.2, 0.2])}
    >>> figure = show_words(rows, threshold=0.37)
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4))
    sizes = np.unique(table["size"])
    for size, color, mark in zip(sizes, ("sky", "blue", "green", "black"), "osD^", strict=False):
        keep = table["size"] == size
        order = np.argsort(table["share"][keep])
        share = table["share"][keep][order]
        shade = {"color": COLORS[color], "marker": mark, "ms": 4, "lw": 1}
        axes[0].errorbar(
            share, table["gap"][keep][order], table["error"][keep][order], capsize=2,
            label=f"$N = {size}$", **shade,
        )  # fmt: skip
        ratio = (table["spread"][keep] / table["sites"][keep])[order]
        axes[1].plot(share, ratio, label=f"$N = {size}$", **shade)
    one = table["size"] == sizes[0]
    order = np.argsort(table["share"][one])
    axes[0].plot(
        table["share"][one][order], table["frozen"][one][order], "--", color=COLORS["red"],
        label="$N\\to\\infty$",
    )  # fmt: skip
    for axis in axes:
        axis.axvline(threshold, color="0.5", lw=1, ls=":")
        axis.set_xlabel(r"size of the list, $\log_2 V/N$")
    axes[0].set_ylabel("gap of the means")
    axes[1].set_ylabel("spread of a draw over that of sites")
    axes[1].set_ylim(bottom=0.0)
    axes[0].legend(fontsize=8)
    label_panels(list(axes))
    return figure
