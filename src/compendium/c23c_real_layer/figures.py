"""Drawings of the chapter on a real layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import points


def plot_depth(axis: Axes, *, curves: Mapping[str, np.ndarray], half: Callable[..., float]) -> None:
    """Means over texts of {label: (layers, texts)} against the layer, with `half` intervals."""
    tones = ("black", "blue", "red", "green", "orange", "purple", "sky")
    count = len(curves)
    for place, ((label, values), tone) in enumerate(zip(curves.items(), tones, strict=False)):
        # A little apart, so that bars do not cover each other.
        depth = np.arange(len(values)) + 0.05 * (place - (count - 1) / 2)
        bars = [half(row) for row in values]
        points(axis, depth, values.mean(axis=1), bars, tone, fmt="o-", ms=4, label=label)
    axis.set_xlabel("layer")
