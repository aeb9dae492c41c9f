"""Drawings of the generator as a map: the idea, rests, motions, voices, loops."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

Columns = Mapping[str, np.ndarray]
HUES = dict(zip((2, 4, 8, 16, 32), ("sky", "blue", "orange", "green", "purple"), strict=True))


def show_voices_scheme() -> Figure:
    """A schematic: a window of soft tokens, the model, N voices, their mean fed back."""
    figure, axis = plt.subplots(figsize=(7.2, 2.5))
    heights = 2.2 * np.random.default_rng(3).dirichlet(np.ones(9))
    axis.bar(0.22 + 0.55 * np.arange(4), 0.5, 0.45, color=COLORS["sky"], alpha=0.6)
    axis.bar(3.75, 1.2, 1.5, -0.35, fill=False, lw=1.5)
    axis.bar(5.3 + 0.16 * np.arange(9), heights, 0.12, color=COLORS["orange"])
    axis.plot(np.full(5, 8.0), 0.9 - 0.28 * np.arange(5), "o", ms=8, color=COLORS["green"])
    bent = "arc3,rad=-0.18"
    ahead = [((x, 0.25), (y, 0.25), None) for x, y in ((2.25, 2.95), (4.55, 5.2), (6.8, 7.8))]
    for start, end, style in (*ahead, ((8.0, -0.45), (1.85, -0.1), bent)):
        arrow = {"arrowstyle": "->", "color": COLORS["black"], "lw": 1.3, "connectionstyle": style}
        axis.annotate("", xy=end, xytext=start, arrowprops=arrow)
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
        chosen = (rests["span"] == span) & (rests["bits"] == 32)
        beta, size, x, y = (rests[name][chosen] for name in ("beta", "size", "real", "imaginary"))
        color = COLORS[HUES[int(span)]]
        left.plot(beta, size, "o-", ms=4, color=color, label=f"T = {span}")
        right.plot(x, y, "o-", ms=3, lw=0.8, color=color)
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
        chosen, color = motions["span"] == span, COLORS[HUES[int(span)]]
        beta, rates = motions["beta"][chosen], motions["exponent"][chosen]
        left.plot(beta + shift, rates, ".", ms=4, alpha=0.6, color=color)
        means = [rates[beta == one].mean() for one in np.unique(beta)]
        left.plot(np.unique(beta), means, "-", lw=1, color=color, label=f"T = {span}")
    left.axhline(0, color="0.5", lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="leading exponent (nats a token)")
    left.legend()
    for start, mark, name in (("rest", "o", "the rest"), ("text", "s", "a text")):
        for span in np.unique(basins["span"]):
            chosen = (basins["span"] == span) & (basins["from"] == start)
            style = {"mfc": "none"} if start == "text" else {}
            style |= {"color": COLORS[HUES[int(span)]], "label": f"T = {span}, from {name}"}
            away = basins["away_300"][chosen]
            right.plot(basins["beta"][chosen], away, f"{mark}-", ms=5, lw=0.8, **style)
    right.set(xlabel="inverse temperature β", ylabel="distance from the rest", yscale="log")
    right.legend(fontsize=8)
    label_panels([left, right])
    return figure


def show_voices(voices: Columns, noise: Columns) -> Figure:
    """Deviation at the first token against N, and the distance of laws against the token."""
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.3))
    shades = plt.get_cmap("cividis")
    counts = np.unique(voices["voices"])
    for beta, mark, hue in ((0.5, "o", "blue"), (1.0, "s", "red")):
        rows = noise["beta"] == beta
        n, found, error, told = (
            noise[name][rows] for name in ("voices", "deviation", "error", "noise")
        )
        style = {"fmt": mark, "ms": 5, "color": COLORS[hue], "label": f"β = {beta:g}"}
        axes[0].errorbar(n, found, 1.96 * error, **style)
        axes[0].plot(n, told, lw=1, color=COLORS[hue])
    axes[0].set(xscale="log", yscale="log", xlabel="voices N", ylabel="distance at the first token")
    axes[0].legend()
    for axis, beta in zip(axes[1:], (0.5, 1.0), strict=True):
        for k, count in enumerate(counts):
            chosen = (voices["beta"] == beta) & (voices["voices"] == count)
            step, gap, apart = (voices[name][chosen] for name in ("step", "distance", "apart"))
            axis.plot(step, gap, lw=1.3, color=shades(k / len(counts)), label=f"N = {count:,}")
            if count == 1:
                axis.plot(step, apart, color=COLORS["red"], ls="--", lw=1)
        axis.set(xlabel="token", ylabel="distance of laws", ylim=(-0.02, 1.02))
        axis.set_title(f"β = {beta:g}")
    axes[1].legend(fontsize=7.5)
    label_panels(list(axes))
    return figure


def show_diagram(diagram: Columns) -> Figure:
    """Two coordinates of the last tokens of each stream, against β."""
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.6), sharex=True)
    labels = {"the": 'along " the"', "line": "along a line's end"}
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
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
    labels = {"way": "tokens before the loop", "loop": "length of the loop"}
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        shown = np.maximum(loops[name][closed], 0.7)
        axis.plot(at[closed], shown, "o", ms=4, alpha=0.5, color=COLORS["blue"])
        axis.set(yscale="log", xlabel="window T", ylabel=label)
        spans = np.unique(loops["span"])
        axis.set_xticks(np.log2(spans), [str(s) for s in spans])
    axes[0].plot(at[~closed], loops["way"][~closed], "^", ms=5, color=COLORS["red"])
    label_panels(list(axes))
    return figure
