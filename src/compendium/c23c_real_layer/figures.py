"""Drawings of the chapter on a real layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS


def show_head_idea() -> None:
    """A head of a trained layer read as a spin system, and what is compared with what."""
    _, axis = plt.subplots(figsize=(8.8, 2.9))
    draw_boxes(
        {
            "layer": (0.0, 0.85, "tokens $x_i$"),
            "head": (0.36, 0.85, "attention, weights $P_{ij}$\nvalues $v_j$"),
            "output": (0.98, 0.85, "attention output\n$\\sum_j P_{ij} v_j$"),
            "spins": (0.36, 0.2, "fields $v_i$, couplings $g P_{ij}$\nspins $u_i$"),
            "parts": (0.98, 0.2, "own, $P_{ij} + P_{ji}$,\nall orders, Onsager, response"),
        },
        axis=axis,
        arrows=[
            ("layer", "head", ""),
            ("head", "output", ""),
            ("head", "spins", ""),
            ("spins", "parts", ""),
            ("parts", "output", ""),
        ],
        colors={"head": "blue", "output": "blue", "spins": "red", "parts": "red"},
    )


def plot_depth(axis: Axes, *, curves: Mapping[str, np.ndarray], half: Callable[..., float]) -> None:
    """Means over texts of {label: (layers, texts)} against the layer, with `half` intervals."""
    tones = ("black", "blue", "red", "green", "orange", "purple", "sky")
    count = len(curves)
    for place, ((label, values), tone) in enumerate(zip(curves.items(), tones, strict=False)):
        # A little apart, so that bars do not cover each other.
        depth = np.arange(len(values)) + 0.05 * (place - (count - 1) / 2)
        bars = [half(row) for row in values]
        axis.errorbar(
            depth,
            values.mean(axis=1),
            bars,
            fmt="o-",
            ms=4,
            capsize=2,
            color=COLORS[tone],
            label=label,
        )
    axis.set_xlabel("layer")
