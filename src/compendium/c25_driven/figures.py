"""Drawings of the chapter on driven spins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from compendium.c25_driven.study import BETAS, binder
from compendium.common.drawing import points
from spinformer.plot.style import COLORS, label_panels

TONES = ("sky", "blue", "purple", "black")


def show_order(
    order: Mapping[int, np.ndarray],
    *,
    betas: np.ndarray,
    stored: Mapping[int, np.ndarray],
    critical: float,
) -> None:
    """|M| of `order` at `betas` and Binder's ratio of `stored`, by size, and the theory's point."""
    _, axes = plt.subplots(1, 2, figsize=(9.2, 3.5))
    for (size, moments), tone in zip(order.items(), TONES, strict=False):
        style: dict[str, Any] = {"ms": 4, "color": COLORS[tone], "label": f"$N = {size}$"}
        axes[0].plot(betas, moments[0].mean(0), "o-", **style)
    for (size, moments), tone in zip(stored.items(), TONES, strict=True):
        # The jackknife over networks, one left out at a time.
        count = moments.shape[1]
        left = [binder(np.delete(moments, n, axis=1)) for n in range(count)]
        error = np.sqrt((count - 1) * np.var(left, axis=0))
        style = {"fmt": "o-", "ms": 4, "label": f"$N = {size}$"}
        points(axes[1], BETAS, binder(moments), error, tone, **style)
    for axis, label in zip(axes, (r"$\langle |M| \rangle$", "Binder's ratio"), strict=True):
        axis.axvline(critical, color=COLORS["black"], ls=":", lw=1)
        axis.set(xlabel=r"inverse temperature $\beta$", ylabel=label)
        axis.legend()
    label_panels(list(axes))
