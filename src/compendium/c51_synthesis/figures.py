"""Drawings of chapter 51: three views of the readers of a few keys, and where each ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

Views = Mapping[str, np.ndarray]
# One color and mark for each view.
VIEWS = {
    "memory": ("black", ""),
    "equilibrium": ("blue", "o"),
    "all at once": ("red", "s"),
}


def show_three_views() -> None:
    """The schematic: keys and readers in the middle, the three questions asked of them."""
    _, axis = plt.subplots(figsize=(8.4, 2.9))
    boxes = {
        "keys": (0.0, 0.5, "keys $x_i$"),
        "readers": (0.36, 0.5, "$N$ readers,\neach looks at one key;\nmean of all: $\\xi$"),
        "energy": (0.88, 0.98, "energy: where does\na query come to rest?"),
        "free": (0.88, 0.5, "free energy: what is the\nmean in equilibrium?"),
        "motion": (0.88, 0.02, "dynamics: where does\nrepeated looking lead?"),
    }
    colors = {"energy": "black", "free": "blue", "motion": "red"}
    arrows = ["keys readers", *(f"readers {view}" for view in colors)]
    draw_boxes(boxes, axis=axis, arrows=arrows, colors=colors)


def show_agreement(
    betas: np.ndarray,
    *,
    memory: np.ndarray,
    exact: Views,
    first: Views,
    needed: Views,
    predicted: Views,
) -> None:
    """Three means and their first corrections against β; readers needed for a given accuracy.

    exact and first {view: (betas,)}: sums without approximation and rest plus b/N; needed and
    predicted {view: (betas,)}: the smallest N that is close enough, counted and from b.
    """
    _, axes = plt.subplots(1, 2, figsize=(8.8, 3.5))
    axes[0].plot(betas, memory, color=COLORS["black"], label="rest of the memory")
    for name, values in exact.items():
        color, mark = COLORS[VIEWS[name][0]], VIEWS[name][1]
        axes[0].plot(betas, values, mark, ms=4, color=color, label=f"{name}, exact")
        axes[0].plot(betas, first[name], "--", lw=1, color=color)
        axes[1].plot(betas, needed[name], mark, ms=4, color=color, label=f"{name}, counted")
        axes[1].plot(betas, predicted[name], "--", lw=1, color=color)
    axes[0].set(ylabel=r"mean of what is seen, $\langle\xi\rangle$")
    axes[1].set(ylabel="readers needed", yscale="log")
    for axis in axes:
        axis.set_xlabel(r"inverse temperature $\beta$")
        axis.legend()
    label_panels(list(axes))


def show_change_times(
    barriers: Mapping[float, np.ndarray], *, times: Mapping[float, np.ndarray]
) -> None:
    """Times to change sides {β: (sizes, 2)} against NβΔE {β: (sizes,)}, with slopes 1 and 2."""
    _, axis = plt.subplots(figsize=(6.0, 3.8))
    first, last = next(iter(barriers)), max(barrier.max() for barrier in barriers.values())
    for column, (fill, word) in enumerate((("none", "one at a time"), ("full", "all at once"))):
        for (beta, barrier), tone in zip(barriers.items(), ("sky", "blue", "green"), strict=False):
            how: dict[str, Any] = {"fillstyle": fill, "ms": 5, "color": COLORS[tone]}
            label = rf"$\beta = {beta:g}$, {word}"
            axis.semilogy(barrier, times[beta][:, column], "o", label=label, **how)
        reach = np.array([0.0, last])
        line = times[first][-1, column] * np.exp((1 + column) * (reach - barriers[first][-1]))
        axis.semilogy(reach, line, "--", lw=1, color=COLORS["black"])
    axis.set(xlabel=r"barrier in the memory's energy, $N\beta\Delta E$", ylabel="sweeps to change")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def show_motion(
    betas: np.ndarray,
    *,
    degrees: np.ndarray,
    speed: np.ndarray,
    edges: np.ndarray,
    turns: np.ndarray,
    chain: np.ndarray,
) -> None:
    """Speed (betas, degrees) of turned attention with the edge of rest; turns a step at one β.

    Rows of edges are (edge of rest, β), of turns (angle, turns of the map), of chain (angle, turns
    of finitely many readers).
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.8, 3.6))
    drawn = axes[0].pcolormesh(degrees, betas, speed, shading="nearest")
    fig.colorbar(drawn, ax=axes[0], label=r"late speed $|\xi' - \xi|$")
    axes[0].plot(*edges.T, color="white", lw=2)
    axes[0].axhline(2.0, color="white", ls=":", lw=1.5)
    axes[0].set(xlabel=r"angle of the values $\varphi$ (degrees)")
    axes[0].set_ylabel(r"inverse temperature $\beta$")
    axes[0].grid(False)
    axes[1].plot(*turns.T, color=COLORS["green"], label=r"attention, $N\to\infty$")
    axes[1].plot(*chain.T, "s", ms=4, color=COLORS["red"], label="readers, exact")
    axes[1].set(xlabel=r"angle of the values $\varphi$ (degrees)", ylabel="turns in a step")
    axes[1].legend(loc="upper left")
    label_panels(list(axes))
