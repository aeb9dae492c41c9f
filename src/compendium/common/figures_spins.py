"""Errors against the number of spins, as chapters 21a and 25 draw them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from spinformer.plot.style import COLORS


def plot_size_errors(
    axis: Axes,
    *,
    sizes: np.ndarray,
    value: np.ndarray,
    error: np.ndarray,
    label: str,
    color: str,
    mark: str,
) -> None:
    """Errors against the number of spins on logarithmic axes, with bars and ticks at the sizes.

    Values within their error of zero, which noise may have made negative, are left out.
    """
    keep = value > error
    line, tone = mark + "-", COLORS[color]
    points = sizes[keep], value[keep], error[keep]
    axis.errorbar(*points, fmt=line, ms=4, capsize=2, color=tone, label=label)
    axis.set(xscale="log", yscale="log", xlabel="spins $N$")
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()
