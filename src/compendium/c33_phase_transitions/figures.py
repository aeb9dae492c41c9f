"""Drawings of chapter 33: the loop, how regimes are told apart, portraits, families."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.c33_phase_transitions.orbits import REGIME_COLORS
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import label_panels


def show_loop() -> Figure:
    """A schematic: the window of four tokens, attention, the next token, and the way back."""
    figure, axis = plt.subplots(figsize=(7.4, 2.7))
    tokens = ("$x_{t-3}$", "$x_{t-2}$", "$x_{t-1}$", "$x_t$")
    boxes = {f"token{k}": (0.11 * k, 0.5, text) for k, text in enumerate(tokens)}
    boxes |= {
        "attention": (0.64, 0.5, "attention $A_t$"),
        "next": (1.0, 0.5, "next token\n$x_{t+1}$"),
    }
    draw_boxes(
        boxes,
        axis=axis,
        arrows=["token3 attention next"],
        bent=["next token3"],
        colors={"attention": "blue", "next": "orange"},
    )
    for x, y, text in (
        (0.165, 0.8, "window of $T = 4$ tokens"),
        (0.64, 0.8, r"softmax with factor $\gamma$"),
        (1.0, 0.8, r"tanh with factor $\beta$"),
        (0.66, -0.03, "becomes the newest, the oldest drops out"),
        (0.66, -0.16, r"position $t$ mod 4 enters with weight $\varepsilon$"),
    ):
        axis.text(x, y, text, ha="center", fontsize=9)
    return figure


def show_portraits(
    orbits: Sequence[np.ndarray], *, betas: Sequence[float], found: Sequence[Attractors],
    strobe: int,
) -> Figure:  # fmt: skip
    """The first two overlaps of orbits (steps, P): every step pale, every `strobe`-th colored."""
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
