"""Drawings of attention with many features, a residual connection and a feed-forward block."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.core.statistics import mean_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def show_two_additions() -> Figure:
    """A schematic: more features per bit, and two blocks beside attention.

    >>> figure = show_two_additions()
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.8), width_ratios=(1.0, 1.7))
    rng = np.random.default_rng(0)
    for column, (wide, words) in enumerate(((3, "few"), (14, "many"))):
        signs = rng.choice([-1.0, 1.0], (18, wide))
        left = 0.0 if column == 0 else 6.0
        axes[0].imshow(signs, cmap="PuOr", vmin=-2, vmax=2, extent=(left, left + wide, 0, 18))
        axes[0].text(left + wide / 2, 19.0, words, ha="center", fontsize=9)
    axes[0].text(-1.2, 9, "bits", rotation=90, va="center", ha="center", fontsize=9)
    axes[0].text(10, -2.2, "features", ha="center", fontsize=9)
    axes[0].set_xlim(-2, 21)
    axes[0].set_ylim(-3.5, 21)
    axes[0].axis("off")
    draw_boxes(
        {
            "token": (0.0, 0.45, "window"),
            "attention": (0.33, 0.45, "attention"),
            "feed": (0.66, 0.45, "feed-\nforward"),
            "next": (1.0, 0.45, "next\ntoken"),
        },
        axis=axes[1],
        arrows=[("token", "attention", ""), ("attention", "feed", ""), ("feed", "next", "")],
        colors={"feed": "green"},
    )
    arrow = {
        "arrowstyle": "-|>",
        "lw": 1.4,
        "color": COLORS["red"],
        "connectionstyle": "arc3,rad=-0.4",
    }
    axes[1].annotate("", xy=(0.97, 0.63), xytext=(0.03, 0.58), arrowprops=arrow)
    axes[1].text(0.5, 1.02, "residual: every bit hears itself", ha="center", fontsize=8.5)
    label_panels(list(axes))
    return figure


def show_scores(table: dict[str, np.ndarray]) -> Figure:
    """Deviation of the softmax's arguments and tokens attended, against N, by rule.

    >>> from bookmaker table 35b_scaling_and_blocks import SCORES
    >>> figure = show_scores(SCORES.read())
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    words = ("γ fixed, P = αN", "unit variance, P = αN", "unit variance, P = 3")
    looks = (("o", "blue"), ("s", "green"), ("^", "red"))
    for rule, label, (marker, color) in zip(
        dict.fromkeys(table["rule"].tolist()), words, looks, strict=True
    ):
        sizes = np.unique(table["size"])
        for axis, column in zip(axes, ("deviation", "attended"), strict=True):
            rows = [table[column][(table["rule"] == rule) & (table["size"] == n)] for n in sizes]
            ends = np.array([mean_interval(row) for row in rows])
            mean = ends.mean(axis=1)
            axis.errorbar(
                sizes, mean, mean - ends[:, 0], fmt=marker + "-", ms=4, lw=1, color=COLORS[color],
                label=label,
            )  # fmt: skip
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xticks([300, 600, 1200, 2400], ["300", "600", "1200", "2400"])
        axis.minorticks_off()
        axis.set_xlabel("bits $N$")
    axes[0].set_yscale("log")
    axes[0].set_ylim(top=2e4)
    axes[0].set_ylabel("deviation of the scores")
    axes[0].legend(fontsize=8, loc="upper left")
    axes[1].set_ylim(0.8, 4)
    axes[1].set_ylabel("tokens attended, of 4")
    label_panels(list(axes))
    return figure


def show_load(
    paths: dict[str, np.ndarray],
    *,
    limits: dict[str, np.ndarray],
    onsets: dict[str, np.ndarray],
    largest: float,
) -> Figure:
    """Distance of texts from the theory; its largest gain by load; overlaps around the limit.

    >>> from bookmaker table 35b_scaling_and_blocks import LIMITS, ONSETS, PATHS
    >>> tables = {"limits": LIMITS.read(), "onsets": ONSETS.read()}
    >>> figure = show_load(PATHS.read(), **tables, largest=0.58)
    >>> len(figure.axes)
    3
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.3))
    for column, color, label in (
        ("without", "red", "theory without load"),
        ("with", "blue", "theory at the load"),
    ):
        sizes = np.unique(paths["size"])
        ends = np.array([mean_interval(paths[column][paths["size"] == n]) for n in sizes])
        mean = ends.mean(axis=1)
        axes[0].errorbar(
            sizes, mean, mean - ends[:, 0], fmt="o-", ms=4, lw=1, color=COLORS[color], label=label
        )
    axes[0].set_ylabel("distance of a text")
    axes[0].set_ylim(0.03, 0.9)
    axes[1].plot(limits["load"][1:], limits["gain"][1:], color=COLORS["black"])
    axes[1].axhline(limits["onset"][0], color=COLORS["orange"], ls="--", lw=1.2)
    axes[1].text(1.18, limits["onset"][0] * 1.08, "needed to move", ha="right", fontsize=8.5)
    axes[1].axvline(largest, color="0.5", lw=1)
    axes[1].set_xlabel("load $α$")
    axes[1].set_ylabel("largest gain")
    axes[1].set_yscale("log")
    axes[1].set_yticks([1, 2, 4], ["1", "2", "4"])
    axes[1].minorticks_off()
    for number, load in enumerate(np.unique(onsets["load"])):
        sizes = np.unique(onsets["size"])
        rows = [(onsets["load"] == load) & (onsets["size"] == n) for n in sizes]
        ends = np.array([mean_interval(onsets["overlap"][row]) for row in rows])
        mean = ends.mean(axis=1)
        axes[2].errorbar(
            sizes, mean, mean - ends[:, 0], fmt="os^v"[number] + "-", ms=4, lw=1,
            label=f"α = {load:g}",
        )  # fmt: skip
    axes[2].set_ylabel("overlap with the few")
    axes[2].set_ylim(0.02, 3)
    axes[2].legend(fontsize=8, ncols=2, loc="upper center")
    for axis in (axes[0], axes[2]):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks([300, 1200], ["300", "1200"])
        axis.minorticks_off()
        axis.set_xlabel("bits $N$")
    axes[0].legend(fontsize=8, loc="upper center")
    label_panels(list(axes))
    return figure


def show_differences(differences: dict[str, dict[str, list[tuple[float, float, float]]]]) -> Figure:
    """Paired differences from the bare network: {measure: {condition: [(mean, low, high), ...]}}.

    One entry for each family of networks.

    >>> figure = show_differences({"chaos": {"feed 1": [(0.01, -0.01, 0.03)]}})
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(
        1, len(differences), figsize=(3.0 * len(differences) + 0.6, 3.4), sharey=True, squeeze=False
    )
    for axis, (measure, found) in zip(axes[0], differences.items(), strict=True):
        axis.axvline(0.0, color="0.5", lw=1)
        for row, families in enumerate(found.values()):
            for shift, ((mean, low, high), color) in enumerate(
                zip(families, ("black", "sky"), strict=False)
            ):
                label = ("first family", "second family")[shift] if row == 0 else None
                axis.errorbar(
                    mean, row + 0.22 * shift, xerr=[[mean - low], [high - mean]], fmt="o", ms=4,
                    color=COLORS[color], label=label,
                )  # fmt: skip
        axis.set_yticks(range(len(found)), list(found))
        axis.set_xlabel(f"change of {measure}")
    axes[0, 0].set_ylim(len(next(iter(differences.values()))) - 0.4, -1.3)
    axes[0, 0].legend(fontsize=8, loc="upper left", ncols=2)
    label_panels(list(axes[0]))
    return figure


def show_first_modes(modes: dict[str, np.ndarray]) -> Figure:
    """Turns a token of the mode that first becomes unstable, (networks,) for each condition.

    >>> figure = show_first_modes({"bare": np.array([0.0, 0.1]), "residual": np.zeros(2)})
    >>> len(figure.axes)
    1
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(5.6, 3.2))
    for (name, turns), color in zip(modes.items(), ("black", "red", "green"), strict=False):
        ordered = np.sort(turns)
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        axis.step(ordered, share, where="post", color=COLORS[color], label=name)
    axis.set_xlabel("turns a token")
    axis.set_ylabel("share of networks at or below")
    axis.set_ylim(0, 1.02)
    axis.legend(loc="lower right")
    return figure
