"""Drawings of trained stacks: what is trained, accuracies by arm and rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from compendium.c24_training.grids import GRIDS
from compendium.c24_training.settings import trainings
from compendium.common.drawing import intervals
from spinformer.plot.style import COLORS

ARM_COLORS = {
    "saddle": COLORS["blue"],
    "limited": COLORS["sky"],
    "answers only": COLORS["green"],
    "one step": COLORS["orange"],
    "no response": COLORS["purple"],
    "attention": COLORS["red"],
    "attention with skip": COLORS["orange"],
    "transformer": COLORS["black"],
}


def draw_rates(grid: str, *, axis: Axes, seen: str, guess: float) -> None:
    """Accuracy against the rate, from g = 0.6: medians, second least and most; `guess` dotted."""
    cell: Any = {"strength": 0.6, "seen": seen, "name": "accuracy"}
    for arm, rates in GRIDS[grid].rates.items():
        found = np.sort([trainings(grid, arm=arm, rate=rate, **cell) for rate in rates])
        ends = [found[:, 1], np.median(found, axis=1), found[:, -2]]
        intervals(axis, rates, ends, ARM_COLORS.get(arm, "0.45"), fmt="o-", label=arm)
    axis.axhline(guess, color="0.5", ls=":")
    axis.set(xscale="log", xlabel="learning rate", ylabel=f"accuracy, {grid}")
    axis.legend(fontsize=8)


def draw_levels(levels: Mapping[str, np.ndarray], *, axis: Axes, unit: str) -> None:
    """One line an arm: all its trainings as dots, their mean as a bar."""
    for place, (arm, values) in enumerate(levels.items()):
        color = ARM_COLORS.get(arm, "0.45")
        axis.plot(values, np.full(len(values), place), ".", color=color, ms=5, alpha=0.6)
        axis.plot(values.mean(), place, "|", color=color, ms=16, mew=2.5)
    axis.set_yticks(range(len(levels)), list(levels))
    axis.invert_yaxis()
    axis.set_xlabel(unit)
