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

from compendium.c33d_phase_diagrams.attractors import Basins, Followed, Uncertainty
from spinformer.dmft.attractors import Regime
from spinformer.dmft.regimes import Diagram
from spinformer.plot.orbits import (
    PARAMETERS,
    REGIME_COLORS,
    draw_cells,
    draw_plane,
    orbit_image,
)
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


def show_followed(found: Followed) -> Figure:
    """Leading exponents and shares of attractors that were matched by identity, by name."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.2, 5.2), sharex=True)
    lasting = [name for name in np.unique(found.name) if (found.name == name).sum() > 1]
    markers = "osD^vP*X<>"
    share = found.orbits / found.trials
    spread = np.stack([share - found.low, found.high - share]).clip(0.0)
    for index, name in enumerate(np.unique(found.name)):
        mine = found.name == name
        color, marker = "0.6", "."
        if name in lasting:
            place = lasting.index(name)
            color = COLORS[_NUMBERED[place % len(_NUMBERED)]]
            marker = markers[place % len(markers)]
        how: dict[str, Any] = {"color": color, "marker": marker, "ms": 4, "lw": 0.9, "mfc": "none"}
        top.plot(found.beta[mine], found.exponent[mine], **how)
        beside = found.beta[mine] + 2e-5 * (index % 5 - 2)
        bottom.errorbar(beside, share[mine], spread[:, mine], **how)
    top.axhline(0, color="0.3", lw=0.8)
    top.set_ylabel("leading exponent\n(nats per step)")
    bottom.set(xlabel=PARAMETERS["beta"], ylabel="share of random contexts")
    label_panels([top, bottom])
    return figure


def show_longer(found: Mapping[int, Diagram]) -> Figure:
    """Orbit diagrams and leading exponents per window of several lengths T of the window."""
    size = (2.3 * len(found) + 0.6, 4.6)
    shared: dict[str, Any] = {"squeeze": False, "sharex": True, "sharey": "row"}
    figure, axes = plt.subplots(2, len(found), figsize=size, **shared)
    place: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    for (window, one), top, bottom in zip(found.items(), axes[0], axes[1], strict=True):
        betas = one.values["beta"]
        image = orbit_image(one, columns=len(betas))
        top.imshow(image, extent=(betas[0], betas[-1], -1, 1), **place)
        top.grid(False)
        top.set_ylim(-0.8, 0.8)
        top.set_xlabel(f"T = {window}")
        top.xaxis.set_label_position("top")
        for regime in Regime:
            chosen = one.regime == regime
            rate = window * one.exponents.value[chosen, 0]
            bottom.plot(betas[chosen], rate, ".", ms=3, color=REGIME_COLORS[regime])
        bottom.axhline(0, color="0.3", lw=0.8)
        bottom.set(ylim=(-1.0, 1.0), xlabel=r"$\beta$")
    axes[0, 0].set_ylabel("overlap $m^o_1$")
    axes[1, 0].set_ylabel("exponent (nats per $T$ tokens)")
    dots: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4}
    handles = [Line2D([], [], color=REGIME_COLORS[r], label=r.label, **dots) for r in Regime]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
    label_panels(list(axes.flat))
    return figure
