"""Orbit diagrams: what an attractor visits, against a parameter, colored by regime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from spinformer.core.checks import check_array, check_integer
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.plot.style import COLORS, label_panels

REGIME_COLORS: dict[Regime, str] = {
    Regime.PERIODIC: COLORS["black"],
    Regime.QUASI_PERIODIC: COLORS["orange"],
    Regime.CHAOTIC: COLORS["purple"],
    Regime.UNDECIDED: COLORS["sky"],
    Regime.TRANSIENT_CHAOS: COLORS["green"],
}

_ROWS = 330  # of a drawn diagram


def diagram_image(
    counts: np.ndarray, *, columns: int, regime: np.ndarray | None = None, only: Sequence[int] = ()
) -> np.ndarray:
    """Which cells of an orbit diagram were visited, (bins, columns), from counts (B, bins).

    Neighbouring values of the parameter share a column when B exceeds `columns`; with `regime`
    and `only`, just the parameters whose code is listed count. Entries are shares in [0, 1] of
    the column's parameters that visited the cell.

    >>> diagram_image(np.array([[1, 0], [2, 0], [0, 0], [0, 5]]), columns=2)
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


def orbit_diagram(found: Attractors, *, columns: int = 900) -> np.ndarray:
    """The attractors of a batch (B,) as an RGB image (bins, columns, 3), in their order.

    Black: values visited on periodic orbits. Yellow: on all others, whose section is orange if
    quasi-periodic, purple if chaotic, green if its chaos ended, blue if undecided.

    >>> from spinformer.dmft.attractors import find_attractors

    >>> from spinformer.dmft.network import Context, Network
    >>> found = find_attractors(
    ...     Network.document(), Context(np.full((4, 3), 0.1), 0), beta=np.array([0.5, 0.6]),
    ...     transient=100, kept=100, exponents=0, bins=8,
    ... )
    >>> orbit_diagram(found).shape
    (8, 2, 3)
    """
    image = np.ones((found.histogram.shape[1], min(columns, len(found.regime)), 3))
    wandering = [
        Regime.UNDECIDED,
        Regime.TRANSIENT_CHAOS,
        Regime.QUASI_PERIODIC,
        Regime.CHAOTIC,
    ]
    layers: tuple[tuple[np.ndarray, list[Regime], str, float], ...] = (
        (found.histogram, wandering, COLORS["yellow"], 0.35),
        *((found.section, [regime], REGIME_COLORS[regime], 1.0) for regime in wandering),
        (found.histogram, [Regime.PERIODIC], REGIME_COLORS[Regime.PERIODIC], 1.0),
    )
    for counts, regimes, color, strength in layers:
        visited = diagram_image(counts, columns=columns, regime=found.regime, only=regimes) > 0
        ink = strength * visited[..., None]
        image = (1 - ink) * image + ink * np.array(to_rgb(color))
    return image


def show_orbit_diagram(
    betas: np.ndarray, found: Attractors, *, chosen: np.ndarray | None = None
) -> Figure:
    """Draw the orbit diagram over `betas` (B,), and below it the two leading exponents.

    chosen: (B,) booleans, which of them to draw; None: all. The scale of the exponents is linear
    below 0.01 and logarithmic beyond.

    >>> from spinformer.dmft.attractors import find_attractors

    >>> from spinformer.dmft.network import Context, Network
    >>> betas = np.array([0.5, 0.6])
    >>> found = find_attractors(
    ...     Network.document(), Context(np.full((4, 3), 0.1), 0), beta=betas,
    ...     transient=100, kept=100, exponent_steps=40, bins=8,
    ... )
    >>> figure = show_orbit_diagram(betas, found)
    >>> len(figure.axes)
    2
    >>> plt.close(figure)
    """
    betas = check_array("betas", betas, shape=found.regime.shape)
    if found.exponents.value.shape[-1] < 2:
        raise ValueError("found must hold two exponents of every orbit, got fewer")
    if chosen is not None:
        chosen = np.flatnonzero(check_array("chosen", chosen, shape=betas.shape))
        check_integer("number of chosen betas", len(chosen), low=1)
        estimate = found.exponents
        betas = betas[chosen]
        found = replace(
            found,
            regime=found.regime[chosen],
            histogram=found.histogram[chosen],
            section=found.section[chosen],
            exponents=replace(estimate, value=estimate.value[chosen], error=estimate.error[chosen]),
        )
    left, right = betas[0], betas[-1]
    if left == right:
        # A diagram of one β is a strip as wide as nothing; give it some width.
        left, right = left - 0.5, right + 0.5
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7.2, 6.2), sharex=True, height_ratios=(3, 1.4), layout="constrained"
    )
    # Rows of the image no thinner than the pixels of the figure, or visits would be lost between.
    bins = found.histogram.shape[1]
    edges = np.linspace(0, bins, min(bins, _ROWS) + 1).astype(int)[:-1]
    coarse = replace(
        found,
        histogram=np.add.reduceat(found.histogram, edges, axis=1),
        section=np.add.reduceat(found.section, edges, axis=1),
    )
    top.imshow(
        orbit_diagram(coarse),
        origin="lower",
        aspect="auto",
        extent=(left, right, -1, 1),
        interpolation="nearest",
    )
    reach = np.abs(np.linspace(-1, 1, found.histogram.shape[1])[found.histogram.any(axis=0)]).max()
    top.set_ylim(-1.05 * reach, 1.05 * reach)
    top.grid(False)
    top.set_ylabel("overlap $m^o_1$")
    pale = Patch(
        color=COLORS["yellow"], alpha=0.35, label="values off the plane, where not periodic"
    )
    top.legend(handles=[pale], loc="upper left", fontsize=8)
    rates = found.exponents.value
    for regime in Regime:
        chosen = found.regime == regime
        bottom.plot(
            betas[chosen],
            rates[chosen, 0],
            ".",
            ms=1.5,
            color=REGIME_COLORS[regime],
            label=regime.label,
            rasterized=True,
        )
    bottom.plot(betas, rates[:, 1], ".", ms=0.7, color="0.6", rasterized=True, label="second")
    bottom.axhline(0, color="0.3", lw=0.8)
    bottom.set_yscale("symlog", linthresh=0.01)
    bottom.set_ylim(-0.5, 0.5)
    bottom.set_yticks([-0.1, -0.01, 0.0, 0.01, 0.1])
    bottom.set_xlabel(r"inverse temperature $\beta$")
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
