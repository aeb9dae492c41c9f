"""Drawings of phase diagrams, basins, and attractors that are followed by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from compendium.c33d_phase_diagrams.attractors import Basins, Uncertainty
from spinformer.dmft.attractors import Regime
from spinformer.plot.orbits import PARAMETERS, REGIME_COLORS, draw_cells, draw_plane
from spinformer.plot.style import COLORS, label_panels

_NUMBERED = ["blue", "orange", "green", "red", "purple", "sky", "yellow"]


def show_plane(
    layers: Mapping[str, np.ndarray],
    *,
    across: np.ndarray,
    upwards: np.ndarray,
    name: str,
    curves: Mapping[str, np.ndarray],
    changed: np.ndarray,
    point: tuple[float, float],
) -> Figure:
    """Regimes and leading exponents of a plane, with curves (n, 2) of (β, value) on top.

    layers: "regime" and "exponent", arrays (values, β). name: "gamma" or "epsilon". changed:
    (n, 2) points (β, value) that are marked, point: one that is circled.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 4.1), sharey=True)
    draw_plane((left, right), layers["regime"], layers["exponent"], across=across, upwards=upwards)
    handles: list[Any] = [Patch(color=REGIME_COLORS[code], label=code.label) for code in Regime]
    styles = zip(("red", "blue", "green"), ("-", "--", ":"), strict=True)
    for (word, curve), (color, style) in zip(curves.items(), styles, strict=False):
        for axis in (left, right):
            axis.plot(*curve.T, style, color=COLORS[color], lw=1.6)
        handles.append(Line2D([], [], ls=style, color=COLORS[color], lw=1.6, label=word))
    red, green = COLORS["red"], COLORS["green"]
    if len(changed):
        left.plot(*changed.T, "x", ms=4, mew=1.1, color=red)
        handles.append(Line2D([], [], ls="", marker="x", color=red, label="another label later"))
    handles.append(Line2D([], [], ls="", marker="o", mfc="none", color=green, label="document"))
    for axis in (left, right):
        axis.plot(*point, "o", ms=8, mfc="none", mew=1.6, color=green)
        axis.set_xlabel(PARAMETERS["beta"])
        axis.set_xlim(across[0], across[-1])
        axis.set_ylim(upwards[0], upwards[-1])
    left.set_ylabel(PARAMETERS[name])
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    label_panels([left, right])
    return figure


def show_crowds(
    planes: Mapping[str, Mapping[str, np.ndarray]],
    *,
    across: Mapping[str, np.ndarray],
    upwards: Mapping[str, np.ndarray],
) -> Figure:
    """Number of attractors and hysteresis of several planes, one row of panels for each.

    planes: by name, layers "attractors" and "hysteresis", arrays (values, β) of all cells, or of
    each so-manieth row and column.
    """
    size = (8.8, 3.3 * len(planes))
    figure, axes = plt.subplots(len(planes), 2, figsize=size, squeeze=False, sharex=True)
    counts = ListedColormap([COLORS[color] for color in ("black", "orange", "sky", "yellow")])
    ways = ListedColormap([COLORS["black"], COLORS["orange"]])
    for row, (name, layers) in zip(axes, planes.items(), strict=True):
        coarse = len(across[name]) // layers["attractors"].shape[1]
        grid = {"across": across[name][::coarse], "upwards": upwards[name][::coarse]}
        number = np.minimum(layers["attractors"], 4)
        draw_cells(row[0], number, **grid, cmap=counts, vmin=0.5, vmax=4.5)
        draw_cells(row[1], layers["hysteresis"], **grid, cmap=ways, vmin=0, vmax=1)
        row[0].set_ylabel(PARAMETERS[name])
    words = (["1 attractor", "2", "3", "4 or more"], ["up and down agree", "they differ"])
    above: dict[str, Any] = {
        "loc": "lower center",
        "bbox_to_anchor": (0.5, 1.08),
        "ncols": 4,
        "fontsize": 8,
    }
    for column, palette in enumerate((counts, ways)):
        axes[-1, column].set_xlabel(PARAMETERS["beta"])
        handles = [Patch(color=palette(k), label=word) for k, word in enumerate(words[column])]
        axes[0, column].legend(handles=handles, **above)
    label_panels(list(axes.flat))
    return figure


def show_basins(values: np.ndarray, found: Basins, *, names: Sequence[str]) -> Figure:
    """A slice of starts, by attractor and by settling time; `values` along both axes.

    names: of the attractors, in the order of their numbers.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4.1), sharey=True)
    colors = [COLORS[name] for name in _NUMBERED[: len(names)]]
    palette = ListedColormap([COLORS["black"], *colors])
    grid = {"across": values, "upwards": values}
    draw_cells(left, found.number.T, **grid, cmap=palette, vmin=-1.5, vmax=len(names) - 0.5)
    norm = LogNorm(max(1, found.time.min()), max(2, found.time.max()))
    times = draw_cells(right, found.time.T, **grid, norm=norm)
    figure.colorbar(times, ax=right, label="steps until settled")
    handles = [Patch(color=color, label=word) for color, word in zip(colors, names, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names))
    for axis in (left, right):
        axis.set_xlabel("first component of the newest attention vector")
    left.set_ylabel("second component")
    label_panels([left, right])
    return figure


def show_uncertainty(found: Uncertainty, *, drawn: float) -> Figure:
    """Share of starts that end elsewhere against how far they were moved, and `drawn` by lot."""
    figure, axis = plt.subplots(figsize=(6.4, 3.3))
    points: dict[str, Any] = {
        "fmt": "o",
        "ms": 4,
        "capsize": 2,
        "color": COLORS["blue"],
        "label": "measured",
    }
    axis.errorbar(found.distances, found.shares, 2 * found.errors, **points)
    axis.axhline(drawn, color=COLORS["red"], ls="--", label="two starts drawn by lot")
    smooth = found.shares[-1] * found.distances / found.distances[-1]
    axis.plot(found.distances, smooth, ":", color="0.4", label="smooth border, exponent 1")
    axis.set(xscale="log", yscale="log", ylim=(1e-3, 1.0))
    axis.set(xlabel="distance of two starts", ylabel="share ending apart")
    axis.legend(loc="lower left")
    return figure
