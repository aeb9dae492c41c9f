"""Drawings of chapter 33: the loop, how regimes are told apart, portraits, families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from spinformer.core.checks import check_integer
from spinformer.dmft.attractors import Attractors, Regime, Thresholds
from spinformer.plot.orbits import REGIME_COLORS
from spinformer.plot.style import COLORS, label_panels


def show_loop() -> Figure:
    """A schematic: the window of four tokens, attention, the next token, and the way back.

    >>> plt.close(show_loop())
    """
    figure, axis = plt.subplots(figsize=(7.4, 2.7))
    axis.set(xlim=(-0.2, 11.2), ylim=(-1.3, 2.3))
    axis.axis("off")
    boxes = [
        *((1.05 * k, 0.85, f"$x_{{t-{3 - k}}}$" if k < 3 else "$x_t$", "0.92") for k in range(4)),
        (5.3, 1.9, "attention $A_t$", COLORS["sky"]),
        (8.6, 2.3, "next token $x_{t+1}$", COLORS["orange"]),
    ]
    for left, width, text, color in boxes:
        shape = FancyBboxPatch(
            (left, 0.5), width, 0.8, boxstyle="round,pad=0.03", fc=color, ec=COLORS["black"]
        )
        axis.add_patch(shape)
        axis.text(left + width / 2, 0.9, text, ha="center", va="center", color="black")
    arrow = {"arrowstyle": "->", "lw": 1.5, "color": COLORS["black"]}
    axis.annotate("", (5.25, 0.9), (4.1, 0.9), arrowprops=arrow)
    axis.annotate("", (8.55, 0.9), (7.3, 0.9), arrowprops=arrow)
    axis.text(2.0, 1.6, "window of $T = 4$ tokens", ha="center", fontsize=9)
    axis.text(6.25, 1.6, r"softmax with factor $\gamma$", ha="center", fontsize=9)
    axis.text(9.75, 1.6, r"tanh with factor $\beta$", ha="center", fontsize=9)
    axis.annotate("", (9.75, 0.42), (9.75, -0.4), arrowprops={**arrow, "arrowstyle": "-"})
    axis.annotate("", (3.6, -0.4), (9.78, -0.4), arrowprops={**arrow, "arrowstyle": "-"})
    axis.annotate("", (3.6, 0.42), (3.6, -0.43), arrowprops=arrow)
    axis.text(6.6, -0.75, "becomes the newest, the oldest drops out", ha="center", fontsize=9)
    axis.text(6.6, -1.2, r"position $t$ mod 4 enters with weight $\varepsilon$", ha="center",
              fontsize=9, color="0.35")  # fmt: skip
    return figure


def show_regime_plane(found: Attractors, *, thresholds: Thresholds) -> Figure:
    """Leading exponent against Birkhoff digits of every orbit, with the borders between regimes.

    >>> from spinformer.dmft import Context, Network, find_attractors
    >>> found = find_attractors(
    ...     Network.document(), Context(np.full((4, 3), 0.1), 0), beta=np.array([0.5, 0.6]),
    ...     transient=100, kept=100, exponent_steps=40, bins=8,
    ... )
    >>> plt.close(show_regime_plane(found, thresholds=Thresholds()))
    """
    figure, axis = plt.subplots(figsize=(6.6, 3.8))
    for regime in Regime:
        mine = found.regime == regime
        if mine.any():
            axis.plot(
                found.exponents.value[mine, 0],
                found.digits[mine],
                "o" if regime == Regime.PERIODIC else ".",
                ms=3 if regime == Regime.PERIODIC else 4,
                mfc="none" if regime == Regime.PERIODIC else None,
                color=REGIME_COLORS[regime],
                label=f"{regime.label} ({mine.sum()})",
                rasterized=True,
            )
    for sign in (-1.0, 1.0):
        axis.axvline(sign * thresholds.neutral, color="0.3", ls="--", lw=1)
    axis.axhline(thresholds.digits_regular, color=COLORS["orange"], ls="--", lw=1)
    axis.axhline(thresholds.digits_chaotic, color=COLORS["purple"], ls="--", lw=1)
    axis.set_xscale("symlog", linthresh=1e-3)
    axis.set_xticks([-0.1, -0.01, 0.0, 0.01, 0.1])
    axis.set_xlabel("leading exponent (nats per step)")
    axis.set_ylabel("Birkhoff digits")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def show_portraits(
    orbits: Sequence[np.ndarray], *, betas: Sequence[float], found: Sequence[Attractors],
    strobe: int,
) -> Figure:  # fmt: skip
    """The first two overlaps of orbits (steps, P): every step pale, every `strobe`-th colored.

    found[i] describes orbit i first of its batch: regime and period stand above the panel.

    >>> from spinformer.dmft import Context, Network, find_attractors
    >>> one = find_attractors(
    ...     Network.document(), Context(np.full((1, 4, 3), 0.1), 0), beta=0.5,
    ...     transient=100, kept=100, exponent_steps=40, bins=8,
    ... )
    >>> plt.close(show_portraits([np.zeros((8, 3))], betas=[0.5], found=[one], strobe=4))
    """
    strobe = check_integer("strobe", strobe, low=1)
    rows = -(-len(orbits) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(8.6, 3.0 * rows), squeeze=False)
    for axis, orbit, beta, one in zip(axes.flat, orbits, betas, found, strict=False):
        regime, period = Regime(one.regime[0]), one.period[0]
        size = 5.0 if period else 1.6
        pale = orbit[: 8 * strobe * max(int(period), 500)]
        axis.plot(pale[:, 0], pale[:, 1], ".", ms=0.6 * size, color="0.75", mew=0, rasterized=True)
        axis.plot(
            orbit[::strobe, 0],
            orbit[::strobe, 1],
            ".",
            ms=size,
            color=REGIME_COLORS[regime],
            mew=0,
            rasterized=True,
        )
        text = f"{regime.label}{f', {period} steps' if period else ''}"
        axis.set_title(rf"     $\beta$ = {beta:g}: {text}", fontsize=8)
        axis.set_aspect("equal", adjustable="datalim")
        axis.locator_params(nbins=4)
        axis.set_xlabel("$m^o_1$")
    for row in axes:
        row[0].set_ylabel("$m^o_2$")
    for letter, axis in zip("abcdefgh", axes.flat, strict=False):
        axis.set_title(letter, loc="left", fontweight="bold")
    return figure


def show_families(
    betas: np.ndarray, *, periods: Mapping[int, np.ndarray], exponents: Mapping[int, np.ndarray]
) -> Figure:
    """Period and leading exponent of attractors that were followed up and down in β (n,).

    periods[p], exponents[p]: (n,), of the family that has period p at β = 1.27; 0: no period.

    >>> plt.close(show_families(np.array([1.0, 1.1]), periods={4: np.array([4, 8])},
    ...                         exponents={4: np.array([-0.1, -0.2])}))
    """
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.0, 5.2), sharex=True)
    for index, family in enumerate(periods):
        style: dict[str, Any] = {
            "marker": "osD^v"[index % 5],
            "mfc": "none",
            "color": COLORS[("blue", "green", "red", "purple", "orange")[index % 5]],
        }
        label = f"{family} steps at 1.27"
        shown = np.where(periods[family] > 0, periods[family], 2)
        top.plot(betas, shown, ls="", ms=3.5, label=label, **style)
        bottom.plot(betas, exponents[family], ms=3, lw=0.8, **style)
    top.set_yscale("log", base=2)
    top.axhline(2, color="0.5", ls="--", lw=0.8)
    top.set_ylabel("period (steps)")
    top.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    bottom.axhline(0, color="0.3", lw=0.8)
    bottom.set_xlabel(r"inverse temperature $\beta$")
    bottom.set_ylabel("leading exponent (nats per step)")
    label_panels([top, bottom])
    return figure
