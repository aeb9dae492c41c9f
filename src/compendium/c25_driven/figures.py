"""Drawings of the chapter on driven spins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from compendium.c25_driven.study import OrderMoments, binder
from compendium.common.drawing import points
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

TONES = ("sky", "blue", "purple", "black")


def show_driven_idea() -> None:
    """The schematic of a driven network: from data and spins to fields to new spins."""
    _, axis = plt.subplots(figsize=(8.4, 2.6))
    draw_boxes(
        {
            "data": (0.02, 0.9, "data $x_i(t)$"),
            "spins": (0.02, 0.35, "spins $s_j(t)$"),
            "field": (0.48, 0.62, "local fields\n$g_i = x_i + \\sum_j J_{ij} s_j$"),
            "new": (0.98, 0.62, "spins $s_i(t+1)$\ndrawn anew"),
        },
        axis=axis,
        arrows=["data field", "spins field new"],
        bent=["new spins: next step"],
        colors={"field": "blue", "new": "red"},
    )


def show_order(
    order: Mapping[int, OrderMoments], *, stored: Mapping[int, OrderMoments], critical: float
) -> None:
    """|M| of `order` and Binder's ratio of `stored`, by size, and the theory's point."""
    _, axes = plt.subplots(1, 2, figsize=(9.2, 3.5))
    for axis, runs in zip(axes, (order, stored), strict=True):
        axis.axvline(critical, color=COLORS["black"], ls=":", lw=1)
        for (size, run), tone in zip(runs.items(), TONES, strict=False):
            look: dict[str, Any] = {"ms": 4, "label": f"$N = {size}$"}
            if axis is axes[0]:
                axis.plot(run.betas, run.absolute.mean(0), "o-", color=COLORS[tone], **look)
            else:
                points(axis, run.betas, binder(run), _jackknife(run), tone, fmt="o-", **look)
        axis.set_xlabel(r"inverse temperature $\beta$")
        axis.legend()
    axes[0].set_ylabel(r"$\langle |M| \rangle$")
    axes[1].set_ylabel("Binder's ratio")
    label_panels(list(axes))


def _jackknife(run: OrderMoments) -> np.ndarray:
    """Standard errors of Binder's ratio over the networks of a run, one left out at a time."""
    count = len(run.second)
    left = [binder(run, [k for k in range(count) if k != n]) for n in range(count)]
    return np.sqrt((count - 1) * np.var(left, axis=0))
