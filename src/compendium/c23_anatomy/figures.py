"""Drawings of the chapter that takes a layer apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from spinformer.plot.style import COLORS

PART_COLORS = {"residual": "black", "first_step": "blue", "higher_orders": "sky", "response": "red"}
PART_LABELS = {
    "residual": "residual",
    "first_step": "one attention step",
    "higher_orders": "higher orders of mixing",
    "response": "response of the couplings",
}


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
