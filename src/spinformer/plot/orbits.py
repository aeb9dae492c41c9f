"""Orbit diagrams and phase diagrams: what attractors visit, and their regimes, in colors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from spinformer.core.checks import check_array, check_instance, check_integer
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.dmft.regimes import Diagram
from spinformer.plot.style import COLORS, DIVERGING, label_panels

REGIME_COLORS: dict[Regime, str] = {
    Regime.PERIODIC: COLORS["black"],
    Regime.QUASI_PERIODIC: COLORS["orange"],
    Regime.CHAOTIC: COLORS["purple"],
    Regime.UNDECIDED: COLORS["sky"],
    Regime.TRANSIENT_CHAOS: COLORS["green"],
}

# What the parameters of a network are called along an axis.
PARAMETERS = {
    "beta": r"inverse temperature $\beta$",
    "gamma": r"attention $\gamma$",
    "epsilon": r"share of the position $\varepsilon$",
}

_ROWS = 480  # of a drawn diagram, where values are


def _diagram_image(
    counts: np.ndarray, *, columns: int, regime: np.ndarray | None = None, only: Sequence[int] = ()
) -> np.ndarray:
    """Which cells of an orbit diagram were visited, (bins, columns), from counts (B, bins).

    Neighbouring values of the parameter share a column when B exceeds `columns`; with `regime`
    and `only`, just the parameters whose code is listed count. Entries are shares in [0, 1] of
    the column's parameters that visited the cell.

    >>> _diagram_image(np.array([[1, 0], [2, 0], [0, 0], [0, 5]]), columns=2)
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    counts = check_array("counts", counts, ndim=2, low=0.0)
    check_integer("rows of counts", len(counts), low=1)
    columns = min(check_integer("columns", columns, low=1), len(counts))
    visited = counts > 0
    if regime is not None:
        regime = check_array("regime", regime, shape=(len(counts),))
        visited = visited & np.isin(regime, list(only))[:, None]
    edges = np.linspace(0, len(counts), columns + 1).astype(int)
    return np.stack([visited[a:b].mean(axis=0) for a, b in pairwise(edges)], 1)


def _orbit_image(found: Attractors, *, columns: int = 900) -> np.ndarray:
    """The attractors of a batch (B,) as an RGB image (bins, columns, 3), in their order.

    Black: values visited on periodic orbits. Yellow: on all others, whose section is orange if
    quasi-periodic, purple if chaotic, green if its chaos ended, blue if undecided.

    >>> from spinformer.dmft.network import Network
    >>> from spinformer.dmft.regimes import orbit_diagram
    >>> found = orbit_diagram(
    ...     Network.document(), beta=[0.5, 0.6], transient=100, kept=100, exponent_steps=40, bins=8
    ... )
    >>> _orbit_image(found).shape
    (8, 2, 3)
    """
    image = np.ones((found.histogram.shape[1], min(columns, len(found.regime)), 3))
    wandering = [Regime.UNDECIDED, Regime.TRANSIENT_CHAOS, Regime.QUASI_PERIODIC, Regime.CHAOTIC]
    layers: tuple[tuple[np.ndarray, list[Regime], str, float], ...] = (
        (found.histogram, wandering, COLORS["yellow"], 0.35),
        *((found.section, [regime], REGIME_COLORS[regime], 1.0) for regime in wandering),
        (found.histogram, [Regime.PERIODIC], REGIME_COLORS[Regime.PERIODIC], 1.0),
    )
    for counts, regimes, color, strength in layers:
        visited = _diagram_image(counts, columns=columns, regime=found.regime, only=regimes) > 0
        ink = strength * visited[..., None]
        image = (1 - ink) * image + ink * np.array(to_rgb(color))
    return image


def show_orbit_diagram(found: Diagram) -> Figure:
    """Draw a diagram along one parameter, and below it the leading exponent and the second, if any.

    The scale of the exponents is linear below 0.01 and logarithmic beyond.

    >>> from spinformer.dmft.network import Network
    >>> from spinformer.dmft.regimes import orbit_diagram
    >>> found = orbit_diagram(
    ...     Network.document(), beta=[0.5, 0.6], transient=100, kept=100, exponent_steps=40, bins=8
    ... )
    >>> figure = show_orbit_diagram(found)
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    name, values = _axes(found, 1)[0]
    left, right = values[0], values[-1]
    if left == right:
        # A diagram of one value is a strip as wide as nothing; give it some width.
        left, right = left - 0.5, right + 0.5
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7.2, 6.2), sharex=True, height_ratios=(3, 1.4), layout="constrained"
    )
    # Rows of the image no thinner than the pixels of the figure, or visits would be lost between.
    bins = found.histogram.shape[1]
    seen = np.linspace(*found.span, bins)[found.histogram.any(axis=0)]
    low, high = found.span
    if low == -high:
        low, high = np.array([-1.05, 1.05]) * max(np.abs(seen).max(), high / bins)
    rows = min(bins, round(_ROWS * np.ptp(found.span) / (high - low)))
    edges = np.linspace(0, bins, rows + 1).astype(int)[:-1]
    coarse = replace(
        found,
        histogram=np.add.reduceat(found.histogram, edges, axis=1),
        section=np.add.reduceat(found.section, edges, axis=1),
    )
    top.imshow(
        _orbit_image(coarse),
        origin="lower",
        aspect="auto",
        extent=(left, right, *found.span),
        interpolation="nearest",
    )
    top.set_ylim(low, high)
    top.grid(False)
    top.set_ylabel("state" if found.disordered is None else "overlap $m^o_1$")
    pale = Patch(
        color=COLORS["yellow"], alpha=0.35, label="values off the plane, where not periodic"
    )
    top.legend(handles=[pale], loc="upper left", fontsize=8)
    rates = found.exponents.value
    for regime in Regime:
        chosen = found.regime == regime
        bottom.plot(
            values[chosen],
            rates[chosen, 0],
            ".",
            ms=1.5,
            color=REGIME_COLORS[regime],
            label=regime.label,
            rasterized=True,
        )
    if rates.shape[1] > 1:
        bottom.plot(values, rates[:, 1], ".", ms=0.7, color="0.6", rasterized=True, label="second")
    bottom.axhline(0, color="0.3", lw=0.8)
    bottom.set_yscale("symlog", linthresh=0.01)
    bottom.set_ylim(-0.5, 0.5)
    bottom.set_yticks([-0.1, -0.01, 0.0, 0.01, 0.1])
    bottom.set_xlabel(PARAMETERS.get(name, name))
    bottom.set_ylabel("exponents (nats per step)")
    figure.legend(
        *bottom.get_legend_handles_labels(),
        markerscale=6,
        ncols=6,
        loc="outside lower center",
        fontsize=8,
        handletextpad=0.1,
    )
    label_panels([top, bottom])
    return figure


def show_phase_diagram(found: Diagram) -> Figure:
    """Draw a diagram over two parameters: the regime of every cell, and its leading exponent.

    >>> from spinformer.dmft.network import Network
    >>> from spinformer.dmft.regimes import phase_diagram
    >>> grid = {"beta": [0.5, 0.6], "gamma": [1.0, 2.0]}
    >>> figure = show_phase_diagram(phase_diagram(Network.document(), transient=100, **grid))
    >>> len(figure.axes)
    3
    >>> plt.close(figure)
    """
    (upwards, rows), (across, columns) = _axes(found, 2)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 4.1), sharey=True)
    draw_plane(
        (left, right), found.regime, found.exponents.value[..., 0], across=columns, upwards=rows
    )
    for axis in (left, right):
        axis.set_xlabel(PARAMETERS.get(across, across))
    left.set_ylabel(PARAMETERS.get(upwards, upwards))
    handles = [Patch(color=REGIME_COLORS[code], label=code.label) for code in Regime]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
    label_panels([left, right])
    return figure


def draw_plane(
    axes: tuple[Axes, Axes],
    regime: np.ndarray,
    exponent: np.ndarray,
    *,
    across: np.ndarray,
    upwards: np.ndarray,
) -> None:
    """Regimes (m, n) on one panel and leading exponents, with their scale, on another."""
    palette = ListedColormap([REGIME_COLORS[code] for code in Regime])
    _draw_cells(axes[0], regime, across=across, upwards=upwards, cmap=palette, vmin=-0.5, vmax=4.5)
    scale: dict[str, Any] = {"cmap": DIVERGING, "vmin": -0.2, "vmax": 0.2}
    rates = _draw_cells(axes[1], exponent, across=across, upwards=upwards, **scale)
    axes[1].figure.colorbar(rates, ax=axes[1], label="leading exponent (nats per step)")


def _draw_cells(
    axis: Axes, image: np.ndarray, *, across: np.ndarray, upwards: np.ndarray, **how: Any
) -> AxesImage:
    """An image whose cells are centered on the values of its axes."""
    half = [
        0.5 * (values[1] - values[0]) if len(values) > 1 else 0.5 for values in (across, upwards)
    ]
    left, right = across[0] - half[0], across[-1] + half[0]
    low, high = upwards[0] - half[1], upwards[-1] + half[1]
    axis.grid(False)
    place: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    return axis.imshow(image, extent=(left, right, low, high), **place, **how)


def _axes(found: Diagram, number: int) -> list[tuple[str, np.ndarray]]:
    """Names and values of the axes of a diagram that has so many, from one start."""
    axes = list(check_instance("found", found, Diagram).values.items())
    if len(axes) != number or found.regime.ndim != number:
        raise ValueError(
            f"found must be a diagram over {number} parameter(s) from one start, got "
            f"{[name for name, _ in axes]} and shape {found.regime.shape}"
        )
    return axes
