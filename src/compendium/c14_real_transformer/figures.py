"""Drawings of chapters 14 and 14b: what a layer does, which ways close a loop, shares and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from spinformer.plot.heads import head_map
from spinformer.plot.style import COLORS, DIVERGING, label_panels


def _box(axis: Axes, place: tuple[float, float], text: str, color: str) -> None:
    x, y = place
    patch = FancyBboxPatch(
        (x - 0.75, y - 0.32), 1.5, 0.64, boxstyle="round,pad=0.06", fc="none", ec=color, lw=1.6
    )
    axis.add_patch(patch)
    axis.text(x, y, text, ha="center", va="center", fontsize=9)


def _arrow(
    axis: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0
) -> None:
    style = {"arrowstyle": "-|>", "color": "0.45", "lw": 1.4}
    style["connectionstyle"] = f"arc3,rad={bend}"
    axis.annotate("", end, start, arrowprops=style)


def layer_scheme() -> Figure:
    """A landscape with a step and its steepest descent, and the stages of a layer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), width_ratios=(1, 1.25))
    keys = np.array([[1.5, 1.0], [1.4, -1.3], [-1.7, 0.2]])
    grid = np.linspace(-2.6, 2.6, 80)
    points = np.stack(np.meshgrid(grid, grid), -1)
    energy = -np.log(np.exp(points @ (keys - keys.mean(0)).T).mean(-1))
    left.contour(grid, grid, energy, levels=14, colors="0.75", linewidths=0.8)
    left.plot(*keys.T, "o", color=COLORS["orange"], ms=7)
    for name, (x, y), tone, spot in (
        ("its energy asks", (1.05, 0.75), "green", (0.15, 1.75)),
        ("the layer adds", (-0.15, 1.1), "blue", (-2.3, 1.6)),
    ):
        left.annotate(
            "", (-0.3 + x, -0.6 + y), (-0.3, -0.6), arrowprops={"color": COLORS[tone], "width": 2}
        )
        left.text(*spot, name, color=COLORS[tone], fontsize=9)
    left.plot(-0.3, -0.6, "o", color=COLORS["black"])
    left.text(-0.2, -1.0, "hidden state", fontsize=9)
    left.text(0.75, -1.9, "keys", color=COLORS["orange"], fontsize=9)
    left.set(xticks=[], yticks=[], title="landscape of the keys")
    left.grid(False)
    right.set(xlim=(-1, 8.4), ylim=(-1.6, 2.2), xticks=[], yticks=[], title="stages of a layer")
    right.grid(False)
    for x, text in (
        (0, "attention"),
        (2.4, "+ state"),
        (4.8, "LayerNorm"),
        (7.2, "feed-\nforward"),
    ):
        _box(right, (x, 0.0), text, COLORS["blue" if x == 0 else "black"])
        if x:
            _arrow(right, (x - 1.6, 0.0), (x - 0.8, 0.0))
    _arrow(right, (-0.7, 1.3), (2.4, 0.4), -0.35)
    right.text(-0.8, 1.5, "residual connection", fontsize=9)
    right.text(
        3.6, -1.2, "energies are read by the layer's own $W_Q$ after every stage", ha="center",
        fontsize=9,
    )  # fmt: skip
    for spine in right.spines.values():
        spine.set_visible(False)
    label_panels([left, right])
    return figure


def loop_scheme() -> Figure:
    """Four ways to feed what a head returns back into its next query."""
    figure, axes = plt.subplots(1, 4, figsize=(9.6, 2.5))
    for axis, (name, returned, back) in zip(
        axes,
        (
            ("keys", "keys $k_j$", "as they are"),
            ("balanced", "rewritten keys", "as they are"),
            ("readback", "values $v_j$", "$W_Q W_O$"),
            ("sub-layer", "all heads", "+ state, LayerNorm, $W_Q$"),
        ),
        strict=True,
    ):
        axis.set(xlim=(-1.3, 1.3), ylim=(-1.5, 1.7), xticks=[], yticks=[], title=name)
        axis.grid(False)
        for spine in axis.spines.values():
            spine.set_visible(False)
        _box(axis, (0.0, 1.1), "query", COLORS["black"])
        _box(axis, (0.0, -0.5), returned, COLORS["orange" if "key" in returned else "blue"])
        _arrow(axis, (0.35, 0.7), (0.35, -0.1))
        _arrow(axis, (-0.35, -0.1), (-0.35, 0.7))
        axis.text(0.45, 0.3, "softmax", fontsize=8, va="center")
        axis.text(0.0, -1.3, f"back: {back}", fontsize=8.5, ha="center")
    return figure


def share_maps(
    shares: Mapping[str, np.ndarray], *, stages: Sequence[str], titles: Mapping[str, str]
) -> Figure:
    """Maps (layers, stages) of shares between 0 and 1, one panel a name of `shares`."""
    figure, axes = plt.subplots(1, len(shares), figsize=(9.4, 3.4), sharey=True, squeeze=False)
    for axis, (name, values) in zip(axes[0], shares.items(), strict=True):
        image = axis.imshow(values, cmap=DIVERGING, vmin=0, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            tone = "white" if abs(value - 0.5) > 0.35 else "black"
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=tone)
        axis.grid(False)
        axis.set_xticks(range(len(stages)), [s.replace(" ", "\n") for s in stages], fontsize=8)
        axis.set(title=titles[name])
    axes[0, 0].set(ylabel="layer")
    figure.colorbar(image, ax=axes[0].tolist(), label="share that fell", shrink=0.85)
    label_panels(list(axes[0]))
    return figure


def step_parts(changes: Mapping[str, np.ndarray], *, errors: Mapping[str, np.ndarray]) -> Figure:
    """Changes (L, H) of each head's own U: falls by the "whole", "specific" against "common"."""
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), width_ratios=(1.5, 1))
    head_map(axes[0], -changes["whole"], label="fall of own $U$", limit=3.0, digits=1)
    axis = axes[1]
    for layer, tone in zip(range(len(changes["whole"])), list(COLORS.values()) * 8, strict=False):
        axis.errorbar(
            changes["common"][layer], changes["specific"][layer],
            xerr=abs(errors["common"][layer]), yerr=abs(errors["specific"][layer]),
            fmt="o", ms=3.5, lw=0.8, color=tone, label=str(layer),
        )  # fmt: skip
    line = np.linspace(-30, 30, 601)
    axis.plot(line, -line, "--", color=COLORS["black"], lw=0.8)
    axis.axhline(0, color=COLORS["black"], lw=0.8)
    axis.axvline(0, color=COLORS["black"], lw=0.8)
    axis.set_xscale("symlog", linthresh=0.1)
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set(xlim=(-10, 1), ylim=(-40, 4), xlabel="change by the common part")
    axis.set_ylabel("change by the specific part")
    axis.legend(title="layer", ncols=2, fontsize=7.5, columnspacing=0.6, handletextpad=0.1)
    label_panels(list(axes))
    return figure


def stage_lines(
    changes: Mapping[str, np.ndarray],
    *,
    errors: Mapping[str, Sequence[float]],
    null: np.ndarray | None = None,
) -> Figure:
    """Change (L,) of each layer's own energy after each stage of it, side by side for every layer.

    null: (draws, L), of the first stage.
    """
    figure, axis = plt.subplots(figsize=(6.4, 3.4))
    tones = ("blue", "orange", "green")
    for place, ((name, values), tone) in enumerate(zip(changes.items(), tones, strict=False)):
        at = np.arange(len(values)) + 0.22 * (place - 1)
        axis.errorbar(at, values, errors[name], fmt="o", ms=5, color=COLORS[tone], label=name)
    if null is not None:
        at = np.arange(null.shape[1]) - 0.34
        axis.errorbar(
            at, null.mean(0), 2 * null.std(0, ddof=1), fmt="s", ms=3, color="0.6", label="null"
        )
    axis.axhline(0, color=COLORS["black"], lw=0.8)
    axis.set(xlabel="layer", ylabel="change of own $U$ per head")
    axis.set_xticks(range(len(next(iter(changes.values())))))
    axis.legend(ncols=2, fontsize=8)
    return figure


def class_maps(classes: Mapping[str, np.ndarray], *, names: Sequence[str]) -> tuple[Figure, Axes]:
    """Maps (L, H) of the operating classes 1 … 4, and an empty panel at the right."""
    shades = [COLORS[name] for name in ("red", "orange", "green", "blue")]
    figure, axes = plt.subplots(1, len(classes) + 1, figsize=(10, 3.2))
    for axis, (title, values) in zip(axes[:-1], classes.items(), strict=True):
        axis.imshow(values, cmap=ListedColormap(shades), vmin=0.5, vmax=4.5, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            axis.text(j, i, names[value - 1], ha="center", va="center", fontsize=7)
        axis.grid(False)
        axis.set(xlabel="head", ylabel="layer", title=title, xticks=range(0, values.shape[1], 2))
    label_panels(list(axes))
    return figure, axes[-1]
