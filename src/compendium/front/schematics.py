"""Schematics of the pages that open the parts: a layer with its mask, spins, a generator."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def draw_layer() -> None:
    """A layer of a transformer, from below, and who may look at whom under a causal mask."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.4), width_ratios=(1.7, 1.0))
    attention = "attention: each query weighs all keys\nand takes the mean of the values"
    draw_boxes(
        {
            "tokens": (0.35, 0.0, "tokens: one vector for each word"),
            "qkv": (0.35, 0.22, "three linear maps of each vector:\nquery, key, value"),
            "mix": (0.35, 0.47, attention),
            "add": (0.35, 0.72, "add the input again (residual), normalize"),
            "local": (0.35, 0.93, "feed-forward network, token by token"),
        },
        axis=left,
        arrows=["tokens qkv mix add local"],
        colors={"mix": "red", "add": "blue", "local": "green"},
    )
    # From behind one box to the edge of another, however wide their words are set.
    left.plot([0.35, 1.08, 1.08], [0.0, 0.0, 0.72], color=COLORS["blue"], lw=1.2)
    around = {"arrowstyle": "-|>", "lw": 1.2, "color": COLORS["blue"], "shrinkA": 0, "shrinkB": 0}
    end = next(text for text in left.texts if text.get_text().startswith("add the input"))
    around["patchB"] = end.get_bbox_patch()
    left.annotate("", xy=(0.35, 0.72), xytext=(1.08, 0.72), arrowprops=around)
    left.set(xlim=(-0.25, 1.25), ylim=(-0.08, 1.05))
    right.set_anchor("N")
    right.imshow(np.tril(np.ones((5, 5))), cmap=ListedColormap(["white", COLORS["sky"]]))
    for axis in (right.xaxis, right.yaxis):
        axis.set_ticks(range(5), ("the", "spin", "that", "you", "turn"))
        axis.set_ticks(np.arange(4) + 0.5, minor=True)
    right.grid(False)
    right.grid(True, which="minor", color=COLORS["black"], alpha=0.3)
    right.tick_params(which="both", length=0)
    right.set(xlabel="is looked at", ylabel="looks")
    right.spines[:].set_visible(True)
    label_panels([left, right])


def draw_spins() -> None:
    """Four coupled spins, each in a field of its own, and the mean direction in which it points."""
    _, axis = plt.subplots(figsize=(6.4, 2.2))
    places = np.array([[0.0, 0.0], [1.6, 0.5], [3.2, 0.0], [1.6, -0.7]])
    fields = np.radians([80.0, 20.0, 110.0, -30.0])
    answers = np.radians([68.0, 38.0, 90.0, 0.0])
    for i in range(4):
        for j in range(i):
            axis.plot(*places[[i, j]].T, color="0.75", lw=2.5, zorder=1)
    arrow = {"arrowstyle": "-|>", "lw": 2.2, "mutation_scale": 15, "shrinkA": 0, "shrinkB": 0}
    for place, field, answer in zip(places, fields, answers, strict=True):
        axis.plot(*place, "o", color="white", mec="black", ms=9, zorder=3)
        for angle, tone, reach in ((field, "blue", 0.75), (answer, "red", 0.55)):
            tip = place + reach * np.array([np.cos(angle), np.sin(angle)])
            drawn = {**arrow, "color": COLORS[tone]}
            axis.annotate("", xy=tuple(tip), xytext=tuple(place), arrowprops=drawn, zorder=4)
    told: dict[str, Any] = {"fontsize": 10, "va": "center"}
    axis.text(4.0, 0.5, "field: the token that goes in", color=COLORS["blue"], **told)
    axis.text(4.0, 0.1, "mean spin: what comes out", color=COLORS["red"], **told)
    axis.text(4.0, -0.3, "coupling: who heeds whom", color="0.5", **told)
    axis.set(xlim=(-0.5, 7.6), ylim=(-1.15, 1.05), aspect="equal")
    axis.set_axis_off()


def draw_generator() -> None:
    """A window of four tokens from which the next is written, and the window that moves on."""
    _, axis = plt.subplots(figsize=(8.4, 2.2))
    draw_boxes(
        {
            "window": (0.02, 0.75, "the last four tokens\n$N$ bits each"),
            "overlaps": (0.35, 0.75, "overlaps with\na few features"),
            "attention": (0.65, 0.75, "attention:\n$A_t$"),
            "token": (0.98, 0.75, "next token,\nbit by bit at $1/\\beta$"),
        },
        axis=axis,
        arrows=["window overlaps attention token"],
        bent=["token window: the window moves on by one"],
        colors={"attention": "red", "token": "blue"},
    )
    axis.set_ylim(0.05, 1.0)
