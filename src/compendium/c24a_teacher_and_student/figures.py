"""Drawings of chapter 24a: how near students come to their teachers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from compendium.common.drawing import quartiles
from spinformer.plot.style import COLORS

TONES = {"saddle": "blue", "penalty": "orange", "limited": "red", "saddle, longer draws": "sky"}


def draw_recovery(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    axis: Axes,
    bound: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Errors of students (samples; teachers, samples) as medians with quartiles, and the bound."""
    for name, (samples, errors) in curves.items():
        quartiles(axis, samples, errors, TONES[name], fmt="o-", label=name)
    if bound is not None:
        axis.plot(*bound, "--", color=COLORS["black"], label="bound of the noise")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("samples")
    axis.set_ylabel(r"relative error of $W_Q W_K^\top$")
