"""Drawings of the chapters on Ising systems: schematics, errors against size, Binder's ratios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels

TONES = ("sky", "blue", "purple", "black")


def show_driven_idea() -> None:
    """The schematic of a driven network: from data and spins to fields to new spins.

    >>> show_driven_idea()
    """
    _, axis = plt.subplots(figsize=(8.4, 2.6))
    draw_boxes(
        {
            "data": (0.02, 0.9, "data $x_i(t)$"),
            "spins": (0.02, 0.35, "spins $s_j(t)$"),
            "field": (0.48, 0.62, "local fields\n$g_i = x_i + \\sum_j J_{ij} s_j$"),
            "new": (0.98, 0.62, "spins $s_i(t+1)$\ndrawn anew"),
        },
        axis=axis,
        arrows=[("data", "field", ""), ("spins", "field", ""), ("field", "new", "")],
        bent=[("new", "spins", "next step")],
        colors={"field": "blue", "new": "red"},
    )


def show_module_idea() -> None:
    """The schematic of a spin system as a layer: fields in, mean spins out.

    >>> show_module_idea()
    """
    _, axis = plt.subplots(figsize=(8.4, 2.6))
    draw_boxes(
        {
            "data": (0.02, 0.85, "data as\nfields $h_i$"),
            "spins": (0.5, 0.85, "coupled spins $s_i = \\pm 1$\nweights $J_{ij}$"),
            "out": (0.98, 0.85, "mean spins\n$m_i = \\langle s_i \\rangle$"),
            "energy": (0.5, 0.2, "free energy $F(h)$\na sum over $2^N$ states"),
        },
        axis=axis,
        arrows=[
            ("data", "spins", ""),
            ("spins", "out", ""),
            ("spins", "energy", ""),
            ("energy", "out", "$-\\partial F/\\partial h_i$"),
        ],
        colors={"spins": "red", "energy": "blue"},
    )


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

    >>> figure, axis = plt.subplots()
    >>> one = {"sizes": np.array([8, 16]), "value": np.ones(2), "error": 0.1 * np.ones(2)}
    >>> plot_size_errors(axis, **one, label="one", color="blue", mark="o")
    >>> axis.get_xscale()
    'log'
    """
    keep = value > error
    axis.errorbar(
        sizes[keep],
        value[keep],
        error[keep],
        fmt=mark + "-",
        ms=4,
        capsize=2,
        color=COLORS[color],
        label=label,
    )
    axis.set(xscale="log", yscale="log", xlabel="spins $N$")
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()


def show_order(order: Mapping[int, Any], *, stored: Mapping[int, Any], critical: float) -> None:
    """|M| of `order`, Binder's ratio of `stored`, {size: OrderMoments}, and the theory's point.

    >>> from compendium.c25_driven.study import order_moments
    >>> runs = {8: order_moments(8, betas=np.array([0.5, 1.5]), systems=2, steps=6)}
    >>> show_order(runs, stored=runs, critical=1.1)
    """
    _, axes = plt.subplots(1, 2, figsize=(9.2, 3.5))
    for axis, runs in zip(axes, (order, stored), strict=True):
        axis.axvline(critical, color=COLORS["black"], ls=":", lw=1)
        for (size, moments), tone in zip(runs.items(), TONES, strict=False):
            style = {"color": COLORS[tone], "label": f"$N = {size}$", "marker": "o", "ms": 4}
            if axis is axes[0]:
                axis.plot(moments.betas, moments.absolute.mean(0), **style)
            else:
                axis.errorbar(
                    moments.betas, moments.binder(), _jackknife(moments), capsize=2, **style
                )
        axis.set_xlabel(r"inverse temperature $\beta$")
        axis.legend()
    axes[0].set_ylabel(r"$\langle |M| \rangle$")
    axes[1].set_ylabel("Binder's ratio")
    label_panels(list(axes))


def _jackknife(moments: Any) -> np.ndarray:
    """Standard errors of Binder's ratio over the networks of a run, one left out at a time."""
    count = len(moments.second)
    left = [
        1.0
        - np.delete(moments.fourth, n, 0).mean(0)
        / (3.0 * np.delete(moments.second, n, 0).mean(0) ** 2)
        for n in range(count)
    ]
    return np.sqrt((count - 1) * np.var(left, axis=0))
