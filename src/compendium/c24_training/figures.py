"""Drawings of trained stacks: what is trained, differences in pairs, courses, depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.core.statistics import mean_interval
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

ARM_COLORS = {
    "saddle": COLORS["blue"],
    "limited": COLORS["sky"],
    "penalty": COLORS["green"],
    "one step": COLORS["orange"],
    "no response": COLORS["purple"],
    "attention": COLORS["red"],
    "attention with skip": COLORS["orange"],
    "transformer": COLORS["black"],
}


def draw_trained_parts() -> Figure:
    """A stack with one module: what carries weights, and which of them are the couplings."""
    figure, axis = plt.subplots(figsize=(8.6, 2.6))
    draw_boxes(
        {
            "tokens": (0.0, 0.35, "tokens"),
            "fields": (0.24, 0.35, "fields $H$\nembedding,\nmap in"),
            "couplings": (0.5, 0.95, "couplings $J(H)$\n$W_Q, W_K, \\beta, g$"),
            "spins": (0.5, 0.35, "spins in equilibrium\n$-dF/dH$"),
            "out": (0.77, 0.35, "magnetizations\nmap out"),
            "read": (1.0, 0.35, "read-out"),
        },
        axis=axis,
        arrows=[
            ("tokens", "fields", ""),
            ("fields", "couplings", ""),
            ("fields", "spins", ""),
            ("couplings", "spins", ""),
            ("spins", "out", ""),
            ("out", "read", ""),
        ],
        colors={"couplings": "red", "spins": "blue", "read": "green"},
    )
    return figure


def draw_differences(
    rows: Sequence[tuple[str, tuple[float, float, float]]], *, axis: Axes, unit: str
) -> None:
    """One line a comparison: the mean difference and its interval, about a line at zero."""
    for place, (_, (mean, low, high)) in enumerate(rows):
        away = low > 0 or high < 0
        color = COLORS["blue"] if away else "0.5"
        axis.plot([low, high], [place, place], color=color, lw=2)
        axis.plot(mean, place, "o", color=color, ms=5)
    axis.axvline(0, color=COLORS["black"], lw=0.8)
    axis.set_yticks(range(len(rows)), [label for label, _ in rows])
    axis.invert_yaxis()
    axis.set_xlabel(unit)


def draw_levels(levels: Mapping[str, np.ndarray], *, axis: Axes, unit: str) -> None:
    """One line an arm: all its trainings as dots, their mean as a bar."""
    for place, (arm, values) in enumerate(levels.items()):
        color = ARM_COLORS.get(arm, "0.45")
        axis.plot(values, np.full(len(values), place), ".", color=color, ms=5, alpha=0.6)
        axis.plot(values.mean(), place, "|", color=color, ms=16, mew=2.5)
    axis.set_yticks(range(len(levels)), list(levels))
    axis.invert_yaxis()
    axis.set_xlabel(unit)


def draw_layers(
    curves: Mapping[str, np.ndarray], *, axis: Axes, label: str, dashed: bool = False
) -> None:
    """Mean and interval over trainings (trainings, layers) of each arm, against the layer."""
    for arm, values in curves.items():
        layers = np.arange(1, values.shape[1] + 1)
        mean = values.mean(0)
        ends = np.array([mean_interval(column) for column in values.T])
        axis.errorbar(
            layers,
            mean,
            [mean - ends[:, 0], ends[:, 1] - mean],
            fmt="o--" if dashed else "o-",
            mfc="white" if dashed else None,
            capsize=2,
            color=ARM_COLORS.get(arm, "0.45"),
            label=arm,
        )
        axis.set_xticks(layers)
    axis.set_xlabel("layer")
    axis.set_ylabel(label)


def draw_couplings(stages: Mapping[str, np.ndarray], *, marked: tuple[int, int]) -> Figure:
    """Couplings (N, N) of one sample at several stages; a ring marks row and column `marked`."""
    figure, axes = plt.subplots(1, len(stages), figsize=(3.6 * len(stages), 3.3), squeeze=False)
    for axis, (name, couplings) in zip(axes[0], stages.items(), strict=True):
        image = axis.imshow(couplings, cmap="Blues", vmin=0)
        axis.plot(marked[1], marked[0], "o", mfc="none", mec=COLORS["red"], ms=13, mew=1.8)
        axis.set_title(name)
        axis.set_xlabel("token that is looked at")
        figure.colorbar(image, ax=axis, fraction=0.046)
    axes[0, 0].set_ylabel("token that looks")
    label_panels(list(axes[0]))
    return figure
