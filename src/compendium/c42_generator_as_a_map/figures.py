"""Drawings of the generator as a map: the idea, rests, motions, voices, loops."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np

from compendium.common.drawing import points
from compendium.common.rows import Columns, groups
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

HUES = dict(zip((2, 4, 8, 16, 32), ("sky", "blue", "orange", "green", "purple"), strict=True))


def show_voices_scheme() -> None:
    """A schematic: a window of words, the model, N voices, their mean fed back."""
    _, axis = plt.subplots(figsize=(7.2, 2.4))
    boxes = {
        "window": (0.0, 0.85, "window of\nT words"),
        "model": (0.3, 0.85, "language\nmodel"),
        "law": (0.65, 0.85, "law of the next word,\nat inverse temperature β"),
        "voices": (1.0, 0.85, "N voices\nsay a word"),
    }
    ahead = ["window model", "model law", "law voices"]
    draw_boxes(boxes, axis=axis, arrows=ahead, bent=["voices window: mean of their words"])


def show_rests(rests: Columns) -> None:
    """Size of the leading multiplier against β, one line a window; its place in the plane."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), width_ratios=(1.5, 1))
    angle = np.linspace(0, np.pi, 100)
    right.plot(np.cos(angle), np.sin(angle), color="0.6", lw=1)
    for (span, bits), rows in groups(rests, "span", "bits"):
        if bits == 32:
            style = {"ms": 3, "lw": 0.9, "color": COLORS[HUES[span]]}
            left.plot(rows["beta"], rows["size"], "o-", label=f"T = {span}", **style)
            right.plot(rows["real"], rows["imaginary"], "o-", **style)
    left.axhline(1, color="0.5", lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="size of the leading multiplier")
    left.legend()
    right.set(xlabel="real part", ylabel="imaginary part", aspect="equal")
    label_panels([left, right])


def show_motions(motions: Columns, branches: Columns) -> None:
    """Exponents of all starts against β; how far from the rest orbits are, up and down in β."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4))
    for span, rows in groups(motions, "span"):
        color, shift = COLORS[HUES[span]], 0.004 * (np.log2(span) - 3)
        left.plot(rows["beta"] + shift, rows["exponent"], ".", ms=4, alpha=0.6, color=color)
        means = [(beta, one["exponent"].mean()) for beta, one in groups(rows, "beta")]
        left.plot(*zip(*means, strict=True), "-", lw=1, color=color, label=f"T = {span}")
    left.axhline(0, color="0.5", lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="leading exponent (nats a token)")
    left.legend()
    for (span, way), rows in groups(branches, "span", "way"):
        mark, face = ("^", COLORS[HUES[span]]) if way == "up" else ("v", "none")
        for start, one in groups(rows, "start"):
            label = f"T = {span}, {way}" if start == 0 else None
            style = {"ms": 4, "lw": 0.7, "color": COLORS[HUES[span]], "mfc": face, "label": label}
            right.plot(one["beta"], one["away"], f"{mark}-", **style)
    right.set(xlabel="inverse temperature β", ylabel="distance from the rest", yscale="log")
    right.legend(fontsize=8)
    label_panels([left, right])


def show_circles(
    circles: Columns, cycle: Columns, onset: Columns, lost: Mapping[int, float]
) -> None:
    """Square of the small oscillation's size against β, its tokens, where starts beside it go."""
    _, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 3.2))
    for span, rows in groups(circles, "span"):
        color = COLORS[HUES[span]]
        left.plot(rows["beta"], rows["size"] ** 2, "o", ms=5, color=color, label=f"T = {span}")
        left.axvline(lost[span], color=color, lw=1, ls="--")
    left.set(xlabel="inverse temperature β", ylabel="mean square distance", ylim=(0, None))
    left.legend()
    middle.plot(cycle["token"], cycle["away"], "o-", ms=5, lw=0.8, color=COLORS["blue"])
    middle.set(xlabel="token", ylabel="distance from the rest", ylim=(0, None))
    for (beta, share), rows in groups(onset, "beta", "share"):
        label = f"β = {beta}" if share == 1 else None
        style = {"ms": 4, "mfc": "none", "color": COLORS["orange"], "label": label}
        right.plot(rows["token"], rows["size"], "o-" if beta > 0.614 else "v:", **style)
    right.set(xlabel="token", ylabel="size of the oscillation", ylim=(0, None))
    right.legend()
    label_panels([left, middle, right])


def show_voices(voices: Columns, noise: Columns) -> None:
    """Deviation at the first token against N, and the distance of laws against the token."""
    _, axes = plt.subplots(1, 3, figsize=(9.6, 3.3))
    for (beta, rows), mark, hue in zip(groups(noise, "beta"), "os", ("blue", "red"), strict=True):
        error = 1.96 * rows["error"]
        style = {"fmt": mark, "ms": 5, "label": f"β = {beta:g}"}
        points(axes[0], rows["voices"], rows["deviation"], error, hue, **style)
        axes[0].plot(rows["voices"], rows["noise"], lw=1, color=COLORS[hue])
    axes[0].set(xscale="log", yscale="log", xlabel="voices N", ylabel="distance at the first token")
    axes[0].legend()
    for axis, (beta, some) in zip(axes[1:], groups(voices, "beta"), strict=True):
        for count, rows in groups(some, "voices"):
            shade = plt.get_cmap("cividis")(np.log10(count) / 6)
            axis.plot(rows["step"], rows["distance"], lw=1.3, color=shade, label=f"N = {count:,}")
            if count == 1:
                axis.plot(rows["step"], rows["apart"], color=COLORS["red"], ls="--", lw=1)
        axis.set(xlabel="token", ylabel="distance of laws", ylim=(-0.02, 1.02))
        axis.set_title(f"β = {beta:g}")
    axes[1].legend(fontsize=7.5)
    label_panels(list(axes))


def show_diagram(diagram: Columns) -> None:
    """Two coordinates of the last tokens of each stream, against β."""
    _, axes = plt.subplots(2, 1, figsize=(7.6, 4.6), sharex=True)
    for axis, name, label in zip(axes, ("the", "line"), ('" the"', "a line's end"), strict=True):
        axis.plot(diagram["beta"], diagram[name], ".", ms=1.5, color=COLORS["black"])
        axis.set(ylabel=f"along {label}")
    axes[1].set(xlabel="inverse temperature β")
    label_panels(list(axes))


def show_loops(loops: Columns) -> None:
    """Lengths of greedy loops and of the ways to them, one column of points a window."""
    _, axes = plt.subplots(1, 2, figsize=(8.0, 3.2), sharex=True)
    closed, spans = loops["loop"] > 0, np.unique(loops["span"])
    at = np.log2(loops["span"]) + np.random.default_rng(0).uniform(-0.2, 0.2, len(closed))
    labels = {"way": "tokens before the loop", "loop": "length of the loop"}
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        shown = np.maximum(loops[name][closed], 0.7)
        axis.plot(at[closed], shown, "o", ms=4, alpha=0.5, color=COLORS["blue"])
        axis.set(yscale="log", xlabel="window T", ylabel=label)
        axis.set_xticks(np.log2(spans), [str(span) for span in spans])
    axes[0].plot(at[~closed], loops["way"][~closed], "^", ms=5, color=COLORS["red"])
    label_panels(list(axes))
