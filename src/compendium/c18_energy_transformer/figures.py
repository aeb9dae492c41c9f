"""Drawings of the energy transformer: its parts, two tokens as angles, and what trainings gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

# From the plain transformer to the energy transformer.
ARM_COLORS = {
    "untied": COLORS["black"],
    "tied": COLORS["sky"],
    "tied values": COLORS["green"],
    "query side": COLORS["orange"],
    "energy": COLORS["red"],
}


def _box(axis: Axes, x: float, y: float, text: str, color: str) -> None:
    style = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": color, "lw": 1.6}
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=style)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": "0.35", "lw": 1.4, "shrinkA": 2, "shrinkB": 2}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)


def draw_parts() -> Figure:
    """The step of a plain layer beside the step of an energy transformer."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.9))
    for axis in axes:
        axis.set(xlim=(0, 10), ylim=(0, 8))
        axis.axis("off")
    plain, joint = axes
    plain.set_title("plain layer: two steps of two maps")
    for y, text, color in (
        (0.6, "tokens $x$", COLORS["black"]),
        (2.2, "layer norm 1", "0.5"),
        (3.8, "attention  $W_Q, W_K, W_V, W_O$", COLORS["blue"]),
        (5.4, "layer norm 2", "0.5"),
        (7.0, "feed-forward  $W_1, W_2$", COLORS["green"]),
    ):
        _box(plain, 5, y, text, color)
    for y in (0.6, 2.2, 3.8, 5.4):
        _arrow(plain, (5, y + 0.4), (5, y + 1.2))
    plain.text(5, 7.75, "each adds what it says to $x$", ha="center", fontsize=8)
    joint.set_title("energy transformer: one gradient step")
    for x, y, text, color in (
        (5, 0.6, "tokens $x$", COLORS["black"]),
        (5, 2.2, "layer norm $g = \\nabla L(x)$", "0.5"),
        (2.2, 4.2, "attention energy\n$W_Q, W_K$", COLORS["blue"]),
        (7.8, 4.2, "memory energy\n$\\xi$", COLORS["green"]),
        (5, 6.2, "$E(g)$: one number for all tokens", COLORS["red"]),
    ):
        _box(joint, x, y, text, color)
    _arrow(joint, (5, 1.0), (5, 1.8))
    _arrow(joint, (4.4, 2.6), (2.6, 3.5))
    _arrow(joint, (5.6, 2.6), (7.4, 3.5))
    _arrow(joint, (2.6, 4.9), (4.4, 5.8))
    _arrow(joint, (7.4, 4.9), (5.6, 5.8))
    joint.text(
        5,
        7.35,
        "$x \\leftarrow x - \\alpha\\,\\partial E/\\partial g$, $T$ times",
        ha="center",
        fontsize=9,
    )
    label_panels(list(axes))
    return figure


def draw_landscape(
    energies: np.ndarray, *, angles: np.ndarray, paths: Mapping[str, np.ndarray]
) -> Figure:
    """The energy of two tokens with three components, as a map over their two angles.

    energies: (n, n), rows the second angle; angles: (n,), degrees; paths: by name
    (steps, starts, 2), degrees, continuous.
    """
    figure, axes = plt.subplots(
        1, len(paths), figsize=(4.3 * len(paths), 3.9), sharey=True, squeeze=False
    )
    for axis, (name, path) in zip(axes[0], paths.items(), strict=True):
        filled = axis.contourf(angles, angles, energies, levels=18)
        for index in range(path.shape[1]):
            first, second = path[:, index].T
            axis.plot(first, second, color="white", lw=1.2)
            axis.plot(first[0], second[0], "o", color="white", ms=4)
            axis.plot(first[-1], second[-1], "s", color=COLORS["red"], ms=6, mec="white")
        axis.set(
            title=name,
            xlabel="angle of token 1 (degrees)",
            xlim=(angles[0], angles[-1]),
            ylim=(angles[0], angles[-1]),
            xticks=(-180, -90, 0, 90, 180),
            yticks=(-180, -90, 0, 90, 180),
        )
        axis.grid(False)
    axes[0, 0].set_ylabel("angle of token 2 (degrees)")
    figure.colorbar(filled, ax=list(axes[0]), label="energy $E$", shrink=0.9)
    label_panels(list(axes[0]))
    return figure


def draw_ladder(
    differences: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
    *,
    bands: Mapping[str, float],
    labels: Mapping[str, str],
) -> Figure:
    """Mean differences with their intervals, one panel a task, one colour a split.

    differences: by task, by comparison, a list over splits of (mean, low, high). bands: by task
    the half width of what counts as no difference. labels: the axis of each task.
    """
    figure, axes = plt.subplots(
        1, len(differences), figsize=(4.6 * len(differences), 3.5), sharey=True, squeeze=False
    )
    shades = (COLORS["blue"], COLORS["orange"], COLORS["green"])
    for axis, (task, rows) in zip(axes[0], differences.items(), strict=True):
        axis.axvspan(-bands[task], bands[task], color="0.85", lw=0, label="no difference")
        axis.axvline(0, color="0.4", lw=0.8)
        for place, found in enumerate(rows.values()):
            for split, (mean, low, high) in enumerate(found):
                height = place + 0.16 * (split - (len(found) - 1) / 2)
                axis.plot([low, high], [height, height], color=shades[split], lw=2)
                axis.plot(
                    mean,
                    height,
                    "o",
                    ms=5,
                    color=shades[split],
                    label=f"split {split}" if place == 0 else None,
                )
        axis.set(xlabel=labels[task], yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5))
        axis.set_yticklabels(list(rows))
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles))
    if axes.size > 1:
        label_panels(list(axes[0]))
    return figure


def draw_paths(
    times: Sequence[int],
    *,
    curves: Mapping[str, Mapping[str, np.ndarray]],
    labels: Mapping[str, str],
    trained: int,
) -> Figure:
    """Means over seeds against the number of steps, shaded ± one deviation, a panel a quantity.

    curves: by quantity, by arm, (len(times), seeds), NaN where there is nothing at a time.
    """
    rows = -(-len(curves) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(8.2, 2.9 * rows), squeeze=False)
    for axis, (quantity, arms) in zip(axes.flat, curves.items(), strict=False):
        for arm, values in arms.items():
            mean, spread = values.mean(1), values.std(1, ddof=1) if values.shape[1] > 1 else 0.0
            axis.plot(times, mean, "o-", ms=3.5, color=ARM_COLORS[arm], label=arm)
            axis.fill_between(
                times, mean - spread, mean + spread, color=ARM_COLORS[arm], alpha=0.18, lw=0
            )
        axis.axvline(trained, color="0.4", ls=":", lw=1)
        axis.set(xlabel="steps", ylabel=labels[quantity])
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles))
    label_panels(list(axes.flat))
    return figure


def draw_alignment(
    epochs: Sequence[int],
    *,
    tasks: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]],
) -> Figure:
    """Alignment with the own energy along the training, one panel a task, and the null as a band.

    tasks: by task, by arm, (mean, half interval, spread of the null) over `epochs`; the band is
    twice the spread of the null of the arm, NaN where it has none.
    """
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(4.3 * len(tasks), 3.4), sharey=True, squeeze=False
    )
    for axis, (task, arms) in zip(axes[0], tasks.items(), strict=True):
        for arm, (mean, half, null) in arms.items():
            axis.errorbar(
                epochs, mean, yerr=half, fmt="o-", ms=4, capsize=2, color=ARM_COLORS[arm], label=arm
            )
            axis.fill_between(epochs, -2 * null, 2 * null, color=ARM_COLORS[arm], alpha=0.15, lw=0)
        axis.axhline(0, color="0.4", lw=0.8)
        axis.set(xlabel="epochs", title=task)
    axes[0, 0].set_ylabel("cosine with $-\\partial E/\\partial g$")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles))
    if axes.size > 1:
        label_panels(list(axes[0]))
    return figure
