"""The diagram of chapter 33: attractors along β, by regime."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from compendium.common.drawing import PARAMETERS, REGIME_COLORS
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.plot.style import COLORS, label_panels

_ROWS = 480  # of a drawn diagram, where values are


def _orbit_image(classified: Attractors, *, rows: int) -> np.ndarray:
    """The attractors of a batch (B,) as an RGB image (rows, at most 900, 3), in their order.

    Black: values on periodic orbits. Yellow: on all others, with their section in their color.
    """
    columns, cells = classified.histogram.shape
    image = np.ones((rows, min(900, columns), 3))
    edges = [np.linspace(0, columns, image.shape[1], endpoint=False).astype(int)]
    edges.append(np.linspace(0, cells, rows, endpoint=False).astype(int))
    wandering = [Regime.UNDECIDED, Regime.TRANSIENT_CHAOS, Regime.QUASI_PERIODIC, Regime.CHAOTIC]
    layers: tuple[tuple[np.ndarray, list[Regime], str, float], ...] = (
        (classified.histogram, wandering, COLORS["yellow"], 0.35),
        *((classified.section, [regime], REGIME_COLORS[regime], 1.0) for regime in wandering),
        (classified.histogram, [Regime.PERIODIC], REGIME_COLORS[Regime.PERIODIC], 1.0),
    )
    for counts, regimes, color, strength in layers:
        visited = (counts > 0) & np.isin(classified.regime, regimes)[:, None]
        for axis, starts in enumerate(edges):
            visited = np.logical_or.reduceat(visited, starts, axis=axis)
        ink = strength * visited.T[..., None]
        image = (1 - ink) * image + ink * np.array(to_rgb(color))
    return image


def show_orbit_diagram(classified: Attractors, *, beta: np.ndarray) -> Figure:
    """Draw attractors along β (B,), and below them the leading exponent and the second."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7.2, 6.2), sharex=True, height_ratios=(3, 1.4), layout="constrained"
    )
    wide = 0.5 * (beta[0] == beta[-1])  # a diagram of one value is a strip
    # Rows of the image no thinner than the pixels of the figure, or visits would be lost between.
    bins = classified.histogram.shape[1]
    low, high = classified.span
    seen = np.linspace(low, high, bins)[classified.histogram.any(axis=0)]
    reach = 1.05 * max(np.abs(seen).max(), high / bins)
    image = _orbit_image(classified, rows=min(bins, round(_ROWS * (high - low) / (2 * reach))))
    top.imshow(
        image,
        extent=(beta[0] - wide, beta[-1] + wide, low, high),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    top.grid(False)
    top.set(ylim=(-reach, reach), ylabel="overlap $m^o_1$")
    word = "all values, where not periodic"
    pale = Patch(color=COLORS["yellow"], alpha=0.35, label=word)
    top.legend(handles=[pale], loc="upper left", fontsize=8)
    rates = classified.exponents.value
    dots = partial(bottom.plot, ls="", marker=".", rasterized=True)
    for regime, color in REGIME_COLORS.items():
        chosen = classified.regime == regime
        dots(beta[chosen], rates[chosen, 0], ms=1.5, color=color, label=regime.label)
    dots(beta, rates[:, 1], ms=0.7, color="0.6", label="second")
    bottom.axhline(0, color="0.3", lw=0.8)
    bottom.set_yscale("symlog", linthresh=0.01)
    bottom.set(ylim=(-0.5, 0.5), yticks=[-0.1, -0.01, 0.0, 0.01, 0.1])
    bottom.set(xlabel=PARAMETERS["beta"], ylabel="exponents (nats per step)")
    figure.legend(
        *bottom.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=6,
        fontsize=8,
        markerscale=6,
        handletextpad=0.1,
    )
    label_panels([top, bottom])
    return figure
