"""Drawings of the chapter that takes a layer apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

PART_COLORS = {"residual": "black", "first_step": "blue", "higher_orders": "sky", "response": "red"}
PART_LABELS = {
    "residual": "residual",
    "first_step": "one attention step",
    "higher_orders": "higher orders of mixing",
    "response": "response of the couplings",
}


def show_layer_beside_spins() -> None:
    """A transformer layer above, the spin system below, alike parts in alike colours."""
    _, axes = plt.subplots(2, 1, figsize=(8.8, 3.6))
    places = {"in": 0.0, "mix": 0.25, "add": 0.47, "norm": 0.67, "ff": 0.88, "out": 1.08}
    rows = (
        "tokens\n$x_i$|attention\nmixes tokens|+ residual|LayerNorm|feed-forward\nmixes channels|"
        "out",
        "fields\n$h_i$|couplings\n$J_{ij}(h)$|$h_i + \\sum_j$\n$2J_{ij}\\langle u_j\\rangle$|"
        "length of\na spin|response\n$C\\,\\partial J/\\partial h$|$m_i$",
    )
    for axis, row in zip(axes, rows, strict=True):
        words = zip(places.items(), row.split("|"), strict=True)
        draw_boxes(
            {name: (x, 0.5, text) for (name, x), text in words},
            axis=axis,
            arrows=["in mix add norm ff out"],
            bent=["in add"],
            colors={"mix": "blue", "norm": "orange", "ff": "red"},
        )
        axis.set(xlim=(-0.08, 1.14), ylim=(0.25, 1.0))
    label_panels(list(axes))


def show_share_bars(controls: Mapping[str, Mapping[str, float]]) -> None:
    """Stacked bars of {control: {part: share}}; a negative share starts where the last one ends."""
    _, axis = plt.subplots(figsize=(7.2, 3.8))
    for place, shares in enumerate(controls.values()):
        left = 0.0
        for part, width in shares.items():
            axis.barh(place, width, left=left, color=COLORS[PART_COLORS[part]], height=0.7)
            left += width
    axis.set_yticks(range(len(controls)), list(controls))
    axis.invert_yaxis()
    axis.set_xlabel("share of $m$")
    keys = [Patch(color=COLORS[PART_COLORS[part]]) for part in PART_LABELS]
    below: Any = {"bbox_to_anchor": (0.4, -0.14), "ncols": 2, "fontsize": 8}
    axis.legend(keys, list(PART_LABELS.values()), loc="upper center", **below)
    axis.grid(axis="y", visible=False)
