"""Drawings of the generator as a map: the idea, rests, motions, voices, loops."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from spinformer.core.statistics import mean_interval
from spinformer.plot.style import COLORS, label_panels

Columns = Mapping[str, np.ndarray]
HUES = dict(zip((2, 4, 8, 16, 32), ("sky", "blue", "orange", "green", "purple"), strict=True))


def show_voices_scheme() -> Figure:
    """A schematic: a window of soft tokens, the model, N voices, their mean fed back."""
    figure, axis = plt.subplots(figsize=(7.2, 2.5))
    arrow = {"arrowstyle": "->", "color": COLORS["black"], "lw": 1.3}
    for k in range(4):
        axis.add_patch(Rectangle((0.55 * k, 0), 0.45, 0.5, color=COLORS["sky"], alpha=0.6))
    axis.add_patch(Rectangle((3.0, -0.35), 1.5, 1.2, fill=False, lw=1.5))
    rng = np.random.default_rng(3)
    for k, height in enumerate(rng.dirichlet(np.ones(9))):
        axis.add_patch(Rectangle((5.25 + 0.16 * k, 0), 0.12, 2.2 * height, color=COLORS["orange"]))
    for k in range(5):
        axis.plot(8.0, 0.9 - 0.28 * k, "o", ms=8, color=COLORS["green"])
    for start, end in ((2.25, 2.95), (4.55, 5.2), (6.8, 7.8)):
        axis.annotate("", xy=(end, 0.25), xytext=(start, 0.25), arrowprops=arrow)
    axis.annotate(
        "",
        xy=(1.85, -0.1),
        xytext=(8.0, -0.45),
        arrowprops={**arrow, "connectionstyle": "arc3,rad=-0.18"},
    )
    for x, y, text in (
        (1.05, 0.72, "window of T tokens"),
        (3.75, 0.2, "language\nmodel"),
        (5.95, 1.25, "law of the next word,\nat inverse temperature β"),
        (8.35, 1.15, "N voices"),
        (5.0, -1.2, "the mean of the words they say"),
    ):
        axis.text(x, y, text, ha="center", va="center", fontsize=9)
    axis.set(xlim=(-0.2, 9.2), ylim=(-1.3, 1.6))
    axis.axis("off")
    return figure


def show_rests(rests: Columns) -> Figure:
    """Size of the leading multiplier against β, one line a window; its place in the plane."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), width_ratios=(1.5, 1))
    angle = np.linspace(0, np.pi, 100)
    right.plot(np.cos(angle), np.sin(angle), color="0.6", lw=1)
    for span in np.unique(rests["span"]):
        chosen = rests["span"] == span
        color = COLORS[HUES[int(span)]]
        left.plot(
            rests["beta"][chosen],
            rests["size"][chosen],
            "o-",
            ms=4,
            color=color,
            label=f"T = {span}",
        )
        right.plot(
            rests["real"][chosen], rests["imaginary"][chosen], "o-", ms=3, lw=0.8, color=color
        )
    left.axhline(1, color="0.5", lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="size of the leading multiplier")
    left.legend()
    right.set(xlabel="real part", ylabel="imaginary part", aspect="equal")
    label_panels([left, right])
    return figure


def show_motions(motions: Columns, basins: Columns) -> Figure:
    """Exponents of all starts against β; how far starts at the rest and in a text end from it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4))
    for shift, span in zip((-0.008, 0.0, 0.008), np.unique(motions["span"]), strict=True):
        chosen = motions["span"] == span
        color = COLORS[HUES[int(span)]]
        at = motions["beta"][chosen] + shift
        left.plot(at, motions["exponent"][chosen], ".", ms=4, alpha=0.6, color=color)
        betas = np.unique(motions["beta"][chosen])
        means = [motions["exponent"][chosen & (motions["beta"] == beta)].mean() for beta in betas]
        left.plot(betas, means, "-", lw=1, color=color, label=f"T = {span}")
    left.axhline(0, color="0.5", lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="leading exponent (nats a token)")
    left.legend()
    for start, mark in (("rest", "o"), ("text", "s")):
        for span in np.unique(basins["span"]):
            chosen = (basins["span"] == span) & (basins["from"] == start)
            right.plot(
                basins["beta"][chosen],
                basins["away_300"][chosen],
                f"{mark}-",
                ms=5,
                lw=0.8,
                mfc="none" if start == "text" else None,
                color=COLORS[HUES[int(span)]],
                label=f"T = {span}, from {'the rest' if start == 'rest' else 'a text'}",
            )
    right.set(xlabel="inverse temperature β", ylabel="distance from the rest", yscale="log")
    right.legend(fontsize=8)
    label_panels([left, right])
    return figure


def show_voices(voices: Columns, noise: Columns) -> Figure:
    """Deviation at the first token against N, and the distance of laws against the token."""
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.3))
    shades = plt.get_cmap("cividis")
    counts = np.unique(voices["voices"])
    for beta, mark, color in ((0.5, "o", "blue"), (1.0, "s", "red")):
        rows = noise["beta"] == beta
        n = noise["voices"][rows]
        axes[0].errorbar(
            n,
            noise["deviation"][rows],
            1.96 * noise["error"][rows],
            fmt=mark,
            ms=5,
            color=COLORS[color],
            label=f"β = {beta:g}",
        )
        axes[0].plot(n, noise["noise"][rows], lw=1, color=COLORS[color])
    axes[0].set(xscale="log", yscale="log", xlabel="voices N", ylabel="distance at the first token")
    axes[0].legend()
    for axis, beta in zip(axes[1:], (0.5, 1.0), strict=True):
        for k, count in enumerate(counts):
            chosen = (voices["beta"] == beta) & (voices["voices"] == count)
            axis.plot(
                voices["step"][chosen],
                voices["distance"][chosen],
                lw=1.3,
                color=shades(k / len(counts)),
                label=f"N = {count:,}",
            )
        chosen = (voices["beta"] == beta) & (voices["voices"] == 1)
        axis.plot(
            voices["step"][chosen], voices["apart"][chosen], color=COLORS["red"], ls="--", lw=1
        )
        axis.set(
            xlabel="token", ylabel="distance of laws", ylim=(-0.02, 1.02), title=f"β = {beta:g}"
        )
    axes[1].legend(fontsize=7.5)
    label_panels(list(axes))
    return figure


def show_diagram(diagram: Columns) -> Figure:
    """Two coordinates of the last tokens of each stream, against β."""
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.6), sharex=True)
    for axis, name, label in zip(
        axes, ("the", "line"), ('along " the"', "along a line's end"), strict=True
    ):
        axis.plot(diagram["beta"], diagram[name], ".", ms=1.5, color=COLORS["black"])
        axis.set(ylabel=label)
    axes[1].set(xlabel="inverse temperature β")
    label_panels(list(axes))
    return figure


def show_loops(loops: Columns) -> Figure:
    """Lengths of greedy loops and of the ways to them, one column of points a window."""
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.2), sharex=True)
    rng = np.random.default_rng(0)
    closed = loops["loop"] > 0
    at = np.log2(loops["span"]) + rng.uniform(-0.2, 0.2, len(loops["span"]))
    for axis, name, label in zip(
        axes, ("way", "loop"), ("tokens before the loop", "length of the loop"), strict=True
    ):
        axis.plot(
            at[closed],
            np.maximum(loops[name][closed], 0.7),
            "o",
            ms=4,
            alpha=0.5,
            color=COLORS["blue"],
        )
        axis.set(yscale="log", xlabel="window T", ylabel=label)
        spans = np.unique(loops["span"])
        axis.set_xticks(np.log2(spans), [str(s) for s in spans])
    axes[0].plot(at[~closed], loops["way"][~closed], "^", ms=5, color=COLORS["red"])
    label_panels(list(axes))
    return figure


def interval_text(values: np.ndarray) -> str:
    """A mean with its 95 % interval, in words of numbers."""
    low, high = mean_interval(values)
    return f"{values.mean():+.2f} ({low:+.2f} to {high:+.2f})"
