"""Drawings of chapter 24a: how near students come to their teachers."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compendium.common.drawing import quartiles
from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS

TONES = {"saddle": "blue", "penalty": "orange", "limited": "red", "saddle, longer draws": "sky"}


def draw_lesson() -> Figure:
    """Who answers, who fits, and what is compared in the end."""
    figure, axis = plt.subplots(figsize=(8.2, 2.4))
    draw_boxes(
        {
            "fields": (0.0, 0.5, "random\nfields $H$"),
            "teacher": (
                0.4,
                1.0,
                "teacher: couplings $J(H)$\nfrom $A=W_QW_K^{\\top}$, $\\beta$, $g$",
            ),
            "student": (0.4, 0.0, "student: the same\nwith weights of its own"),
            "answers": (0.75, 1.0, "answers $m$\nand noise"),
            "fit": (0.75, 0.0, "answers,\nfitted"),
            "error": (1.0, 0.5, "$\\hat A$ against $A$"),
        },
        axis=axis,
        arrows=["fields teacher answers fit error", "fields student fit"],
        colors={"teacher": "blue", "student": "green"},
    )
    return figure


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
