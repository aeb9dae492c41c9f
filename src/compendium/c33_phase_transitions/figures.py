"""Drawings of chapter 33: the loop, how regimes are told apart, portraits, families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from compendium.c33_phase_transitions.orbits import REGIME_COLORS
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.plot.style import COLORS, label_panels


def show_loop() -> Figure:
    """A schematic: the window of four tokens, attention, the next token, and the way back."""
    figure, axis = plt.subplots(figsize=(7.4, 2.7))
    axis.set(xlim=(-0.2, 11.2), ylim=(-1.3, 2.3))
    axis.axis("off")
    boxes = [
        *((1.05 * k, 0.85, f"$x_{{t-{3 - k}}}$" if k < 3 else "$x_t$", "0.92") for k in range(4)),
        (5.3, 1.9, "attention $A_t$", COLORS["sky"]),
        (8.6, 2.3, "next token $x_{t+1}$", COLORS["orange"]),
    ]
    for left, width, text, color in boxes:
        style: dict[str, Any] = {"boxstyle": "round,pad=0.03", "fc": color, "ec": COLORS["black"]}
        axis.add_patch(FancyBboxPatch((left, 0.5), width, 0.8, **style))
        axis.text(left + width / 2, 0.9, text, ha="center", va="center", color="black")
    arrow = {"arrowstyle": "->", "lw": 1.5, "color": COLORS["black"]}
    line = {**arrow, "arrowstyle": "-"}
    for end, start, props in (
        ((5.25, 0.9), (4.1, 0.9), arrow),
        ((8.55, 0.9), (7.3, 0.9), arrow),
        ((9.75, 0.42), (9.75, -0.4), line),
        ((3.6, -0.4), (9.78, -0.4), line),
        ((3.6, 0.42), (3.6, -0.43), arrow),
    ):
        axis.annotate("", end, start, arrowprops=props)
    for x, y, text, color in (
        (2.0, 1.6, "window of $T = 4$ tokens", "black"),
        (6.25, 1.6, r"softmax with factor $\gamma$", "black"),
        (9.75, 1.6, r"tanh with factor $\beta$", "black"),
        (6.6, -0.75, "becomes the newest, the oldest drops out", "black"),
        (6.6, -1.2, r"position $t$ mod 4 enters with weight $\varepsilon$", "0.35"),
    ):
        axis.text(x, y, text, ha="center", fontsize=9, color=color)
    return figure


def show_portraits(
    orbits: Sequence[np.ndarray], *, betas: Sequence[float], found: Sequence[Attractors],
    strobe: int,
) -> Figure:  # fmt: skip
    """The first two overlaps of orbits (steps, P): every step pale, every `strobe`-th colored.

    found[i] describes orbit i first of its batch: regime and period stand above the panel.
    """
    rows = -(-len(orbits) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(8.6, 3.0 * rows), squeeze=False)
    for axis, orbit, beta, one in zip(axes.flat, orbits, betas, found, strict=False):
        regime, period = Regime(one.regime[0]), int(one.period[0])
        size, color = 5.0 if period else 1.6, REGIME_COLORS[regime]
        style = {"marker": ".", "ls": "", "mew": 0, "rasterized": True}
        pale, strobed = orbit[: 8 * strobe * max(period, 500)], orbit[::strobe]
        axis.plot(pale[:, 0], pale[:, 1], ms=0.6 * size, color="0.75", **style)
        axis.plot(strobed[:, 0], strobed[:, 1], ms=size, color=color, **style)
        text = f"{regime.label}{f', {period} steps' if period else ''}"
        axis.set_title(rf"     $\beta$ = {beta:g}: {text}", fontsize=8)
        axis.set_aspect("equal", adjustable="datalim")
        axis.locator_params(nbins=4)
        axis.set_xlabel("$m^o_1$")
    for row in axes:
        row[0].set_ylabel("$m^o_2$")
    label_panels(list(axes.flat))
    return figure
