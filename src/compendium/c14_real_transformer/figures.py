"""Drawings of chapter 14: what a layer does, shares of falls, parts of steps, stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.heads import head_map
from spinformer.plot.style import COLORS, DIVERGING, label_panels


def layer_scheme() -> Figure:
    """A landscape with a step and its steepest descent, and the stages of a layer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), width_ratios=(1, 1.25))
    keys = np.array([[1.5, 1.0], [1.4, -1.3], [-1.7, 0.2]])
    grid = np.linspace(-2.6, 2.6, 80)
    points = np.stack(np.meshgrid(grid, grid), -1)
    energy = -np.log(np.exp(points @ (keys - keys.mean(0)).T).mean(-1))
    left.contour(grid, grid, energy, levels=14, colors="0.75", linewidths=0.8)
    left.plot(*keys.T, "o", color=COLORS["orange"], ms=7)
    for name, end, tone, spot in (
        ("its energy asks", (0.75, 0.15), "green", (0.15, 1.75)),
        ("the layer adds", (-0.45, 0.5), "blue", (-2.3, 1.6)),
    ):
        left.annotate("", end, (-0.3, -0.6), arrowprops={"color": COLORS[tone], "width": 2})
        left.text(*spot, name, color=COLORS[tone], fontsize=9)
    left.plot(-0.3, -0.6, "o", color=COLORS["black"])
    left.text(-0.2, -1.0, "hidden state", fontsize=9)
    left.text(0.75, -1.9, "keys", color=COLORS["orange"], fontsize=9)
    left.set(xticks=[], yticks=[], title="landscape of the keys")
    left.grid(False)
    names = ("attention", "+ state", "LayerNorm", "feed-\nforward")
    boxes = {str(n): (0.02 + 0.32 * n, 0.5, name) for n, name in enumerate(names)}
    draw_boxes(boxes, axis=right, arrows=["0 1 2 3"], colors={"0": "blue"})
    bent = {"arrowstyle": "-|>", "lw": 1.2, "connectionstyle": "arc3,rad=-0.35"}
    right.annotate("", (0.34, 0.62), (-0.08, 0.82), arrowprops=bent)
    right.text(-0.1, 0.9, "residual connection", fontsize=9)
    told = "energies are read by the layer's own $W_Q$ after every stage"
    right.text(0.5, 0.12, told, ha="center", fontsize=9)
    right.set_title("stages of a layer")
    label_panels([left, right])
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
    figure, (left, axis) = plt.subplots(1, 2, figsize=(9.6, 3.6), width_ratios=(1.5, 1))
    head_map(left, -changes["whole"], label="fall of own $U$", limit=3.0, digits=1)
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
    label_panels([left, axis])
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
    axis.set(xlabel="layer", ylabel="change of own $U$ per head", xticks=range(len(values)))
    axis.legend(ncols=2, fontsize=8)
    return figure
