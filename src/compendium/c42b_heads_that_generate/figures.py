"""Drawings of the heads of two models: who climbs, which stage undoes it, which kind it is."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from compendium.common.drawing import points
from compendium.common.rows import Columns
from spinformer.plot.style import COLORS, label_panels

# Of MiniLM's 72 heads, lower and higher by the intervals of chapter 14.
ENCODER = {"whole": (38, 7), "common": (49, 2), "specific": (6, 49)}


def lower_and_higher(heads: Columns, name: str) -> tuple[int, int]:
    """How many heads' U falls, and rises, by a step: 95 % intervals on one side of zero."""
    mean, half = heads[name], heads[f"{name}_error"]
    return int((mean + half < 0).sum()), int((mean - half > 0).sum())


def show_heads_of_two(heads: Columns) -> None:
    """Shares of heads that descend and climb in both models; layers by stage; climbing by kind."""
    _, axes = plt.subplots(1, 3, figsize=(10.2, 3.4), width_ratios=(1, 1.2, 1))
    own = np.array([lower_and_higher(heads, name) for name in ENCODER]) / len(heads["head"])
    for label, shares, shift, color in (
        ("encoder", np.array(list(ENCODER.values())) / 72, -0.18, "sky"),
        ("generator", own, 0.18, "blue"),
    ):
        place, style = np.arange(3) + shift, {"color": COLORS[color], "width": 0.32}
        axes[0].bar(place, shares[:, 1], label=label, **style)
        axes[0].bar(place, -shares[:, 0], **style)
    axes[0].set_xticks(range(3), list(ENCODER))
    axes[0].set(ylabel="share of heads: U falls (down), rises (up)", ylim=(-1, 1))
    axes[0].legend()
    first = heads["head"] == 0
    layer = heads["layer"][first] + 1
    for name, label, color in (("attention", "attention", "green"), ("block", "the block", "red")):
        mean, half = heads[f"layer_{name}"][first], heads[f"layer_{name}_error"][first]
        style = {"fmt": "o-", "ms": 3, "lw": 0.9, "capsize": 0, "label": f"after {label}"}
        points(axes[1], layer, mean, half, color, **style)
    axes[1].set(xlabel="layer", ylabel="change of U, all heads of the layer", yscale="symlog")
    axes[1].set_ylim(-300, 300)
    axes[1].legend(loc="lower right")
    shades = np.where(heads["sink"] > 0.5, COLORS["purple"], COLORS["green"])
    axes[2].scatter(heads["sink"], heads["whole_z"], s=10, c=shades, alpha=0.7)
    for axis in axes:
        axis.axhline(0, color="0.3", lw=1)
    axes[2].set(xlabel="attention on the first token", ylabel="change of U, spreads of the null")
    axes[2].set_yscale("symlog")
    label_panels(list(axes))
