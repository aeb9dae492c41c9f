"""Drawings of the chapter on a real layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import means


def plot_depth(axis: Axes, *, curves: Mapping[str, np.ndarray]) -> None:
    """Means over texts of {label: (layers, texts)} against the layer, with 95 % intervals."""
    tones = ("black", "blue", "red", "green", "orange", "purple", "sky")
    for place, ((label, values), tone) in enumerate(zip(curves.items(), tones, strict=False)):
        # A little apart, so that bars do not cover each other.
        depth = np.arange(len(values)) + 0.05 * (place - (len(curves) - 1) / 2)
        means(axis, depth, values.T, tone, fmt="o-", ms=4, label=label)
    axis.set_xlabel("layer")
