"""Drawings of phase diagrams, basins, and attractors that are followed by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from compendium.c33d_phase_diagrams.basins import Basins, Uncertainty
from compendium.c33d_phase_diagrams.following import Followed
from spinformer.core.checks import check_array, check_integer
from spinformer.dmft.attractors import Attractors, Regime
from spinformer.plot.orbits import REGIME_COLORS, orbit_diagram
from spinformer.plot.style import COLORS, DIVERGING, label_panels

NAMES = {"gamma": r"attention $\gamma$", "epsilon": r"share of the position $\varepsilon$"}
_NUMBERED = ["blue", "orange", "green", "red", "purple", "sky", "yellow"]
_BETA = r"inverse temperature $\beta$"


def _picture(
    axis: Axes, image: np.ndarray, across: np.ndarray, upwards: np.ndarray, **how: Any
) -> AxesImage:
    """An image whose cells are centered on the values of its axes."""
    half = [0.5 * (values[1] - values[0]) for values in (across, upwards)]
    extent = (
        across[0] - half[0],
        across[-1] + half[0],
        upwards[0] - half[1],
        upwards[-1] + half[1],
    )
    axis.grid(False)
    return axis.imshow(
        image, origin="lower", aspect="auto", extent=extent, interpolation="nearest", **how
    )


def show_plane(
    layers: Mapping[str, np.ndarray],
    *,
    across: np.ndarray,
    upwards: np.ndarray,
    name: str,
    curves: Mapping[str, np.ndarray] | None = None,
    changed: np.ndarray | None = None,
    point: tuple[float, float] | None = None,
) -> Figure:
    """Regimes and leading exponents of a plane, with curves (n, 2) of (β, value) on top.

    layers: "regime" and "exponent", arrays (values, β). name: "gamma" or "epsilon". changed:
    (n, 2) points (β, value) that are marked, point: one that is circled.

    >>> regime, values = np.zeros((2, 3), dtype=int), np.array([0.0, 1.0, 2.0])
    >>> figure = show_plane(
    ...     {"regime": regime, "exponent": -0.1 * np.ones((2, 3))},
    ...     across=values, upwards=values[:2], name="gamma",
    ... )
    >>> plt.close(figure)
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 4.1), sharey=True)
    palette = ListedColormap([REGIME_COLORS[regime] for regime in Regime])
    shape = (len(upwards), len(across))
    regime = check_array("layers['regime']", layers["regime"], shape=shape)
    _picture(left, regime, across, upwards, cmap=palette, vmin=-0.5, vmax=4.5)
    rates = _picture(
        right, layers["exponent"], across, upwards, cmap=DIVERGING, vmin=-0.2, vmax=0.2
    )
    figure.colorbar(rates, ax=right, label="leading exponent (nats per step)")
    handles: list[Patch | Line2D] = [
        Patch(color=REGIME_COLORS[regime], label=regime.label) for regime in Regime
    ]
    styles = zip(("red", "blue", "green"), ("-", "--", ":"), strict=True)
    for (word, curve), (color, style) in zip((curves or {}).items(), styles, strict=False):
        for axis in (left, right):
            axis.plot(*curve.T, style, color=COLORS[color], lw=1.6)
        handles.append(Line2D([], [], ls=style, color=COLORS[color], lw=1.6, label=word))
    if changed is not None and len(changed):
        left.plot(*changed.T, "x", ms=4, mew=1.1, color=COLORS["red"])
        handles.append(
            Line2D([], [], ls="", marker="x", color=COLORS["red"], label="another label later")
        )
    if point is not None:
        for axis in (left, right):
            axis.plot(*point, "o", ms=8, mfc="none", mew=1.6, color=COLORS["green"])
        handles.append(
            Line2D([], [], ls="", marker="o", mfc="none", color=COLORS["green"], label="document")
        )
    for axis in (left, right):
        axis.set_xlabel(_BETA)
        axis.set_xlim(across[0], across[-1])
        axis.set_ylim(upwards[0], upwards[-1])
    left.set_ylabel(NAMES[name])
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

    >>> layer, values = np.ones((2, 3), dtype=int), np.array([0.0, 1.0, 2.0])
    >>> figure = show_crowds(
    ...     {"gamma": {"attractors": layer, "hysteresis": layer}},
    ...     across={"gamma": values}, upwards={"gamma": values[:2]},
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(
        len(planes), 2, figsize=(8.8, 3.3 * len(planes)), squeeze=False, sharex=True
    )
    counts = ListedColormap([COLORS[color] for color in ("black", "orange", "sky", "yellow")])
    ways = ListedColormap([COLORS["black"], COLORS["orange"]])
    for row, (name, layers) in zip(axes, planes.items(), strict=True):
        coarse = len(across[name]) // layers["attractors"].shape[1]
        grid = across[name][::coarse], upwards[name][::coarse]
        number = np.minimum(layers["attractors"], 4)
        _picture(row[0], number, *grid, cmap=counts, vmin=0.5, vmax=4.5)
        _picture(row[1], layers["hysteresis"], *grid, cmap=ways, vmin=0, vmax=1)
        row[0].set_ylabel(NAMES[name])
    for axis in axes[-1]:
        axis.set_xlabel(_BETA)
    for column, (palette, words) in enumerate(
        (
            (counts, ["1 attractor", "2", "3", "4 or more"]),
            (ways, ["up and down agree", "they differ"]),
        )
    ):
        handles = [Patch(color=palette(code), label=word) for code, word in enumerate(words)]
        axes[0, column].legend(
            handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=4, fontsize=8
        )
    label_panels(list(axes.flat))
    return figure


def show_basins(values: np.ndarray, found: Basins, *, names: Sequence[str]) -> Figure:
    """A slice of starts, by attractor and by settling time; `values` along both axes.

    names: of the attractors, in the order of their numbers.

    >>> found = Basins(number=np.zeros((2, 2), dtype=int), time=np.full((2, 2), 400))
    >>> plt.close(show_basins(np.array([-0.5, 0.5]), found, names=["cycle"]))
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4.1), sharey=True)
    check_integer("number of names", len(names), low=1, high=len(_NUMBERED))
    palette = ListedColormap([COLORS["black"]] + [COLORS[name] for name in _NUMBERED[: len(names)]])
    _picture(left, found.number.T, values, values, cmap=palette, vmin=-1.5, vmax=len(names) - 0.5)
    norm = LogNorm(max(1, found.time.min()), max(2, found.time.max()))
    times = _picture(right, found.time.T, values, values, norm=norm)
    figure.colorbar(times, ax=right, label="steps until settled")
    handles = [
        Patch(color=COLORS[color], label=word)
        for color, word in zip(_NUMBERED, names, strict=False)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names))
    for axis in (left, right):
        axis.set_xlabel("first component of the newest attention vector")
    left.set_ylabel("second component")
    label_panels([left, right])
    return figure


def show_uncertainty(found: Uncertainty, *, drawn: float) -> Figure:
    """Share of starts that end elsewhere against how far they were moved, and `drawn` by lot.

    >>> from compendium.c33d_phase_diagrams.basins import uncertainty_exponent
    >>> flags = np.array([[True, False, False], [True, True, False], [True, True, True]])
    >>> flags = np.tile(flags, 40)
    >>> plt.close(show_uncertainty(uncertainty_exponent(flags, distances=(1, 2, 4)), drawn=0.3))
    """
    figure, axis = plt.subplots(figsize=(6.4, 3.3))
    axis.errorbar(
        found.distances,
        found.shares,
        2 * found.errors,
        fmt="o",
        ms=4,
        capsize=2,
        color=COLORS["blue"],
        label="measured",
    )
    axis.axhline(drawn, color=COLORS["red"], ls="--", label="two starts drawn by lot")
    smooth = found.shares[-1] * found.distances / found.distances[-1]
    axis.plot(found.distances, smooth, ":", color="0.4", label="smooth border, exponent 1")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(1e-3, 1.0)
    axis.set_xlabel("distance of two starts")
    axis.set_ylabel("share ending apart")
    axis.legend(loc="lower left")
    return figure


def show_followed(found: Followed) -> Figure:
    """Leading exponents and shares of attractors that were matched by identity, by name.

    >>> from spinformer.dmft import Context, Network, Thresholds
    >>> from compendium.c33d_phase_diagrams.following import global_continuation
    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> found = global_continuation(
    ...     Network.document(), starts, np.array([0.5]), thresholds=Thresholds(longest=64),
    ...     reach=0.01, transient=400, kept=400, exponent_steps=400,
    ... )
    >>> plt.close(show_followed(found))
    """
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.2, 5.2), sharex=True)
    lasting = [name for name in np.unique(found.name) if (found.name == name).sum() > 1]
    markers = "osD^vP*X<>"
    share = found.orbits / found.trials
    spread = np.stack([share - found.low, found.high - share]).clip(0.0)
    for index, name in enumerate(np.unique(found.name)):
        mine = found.name == name
        color = "0.6"
        marker = "."
        if name in lasting:
            place = lasting.index(name)
            color = COLORS[_NUMBERED[place % len(_NUMBERED)]]
            marker = markers[place % len(markers)]
        how = {"color": color, "marker": marker, "ms": 4, "lw": 0.9, "mfc": "none"}
        top.plot(found.beta[mine], found.exponent[mine], **how)
        bottom.errorbar(
            found.beta[mine] + 2e-5 * (index % 5 - 2), share[mine], spread[:, mine], **how
        )
    top.axhline(0, color="0.3", lw=0.8)
    top.set_ylabel("leading exponent\n(nats per step)")
    bottom.set_ylabel("share of random contexts")
    bottom.set_xlabel(_BETA)
    label_panels([top, bottom])
    return figure


def show_longer(betas: np.ndarray, found: Mapping[int, Attractors]) -> Figure:
    """Orbit diagrams and leading exponents per window of several lengths T of the window.

    found: attractors over `betas` (n,), by T.

    >>> from spinformer.dmft import Context, Network, find_attractors
    >>> betas = np.array([0.5, 0.6])
    >>> found = find_attractors(
    ...     Network.document(), Context(np.full((4, 3), 0.1), 0), beta=betas, transient=100,
    ...     kept=100, exponents=1, exponent_steps=100, bins=8,
    ... )
    >>> plt.close(show_longer(betas, {4: found}))
    """
    figure, axes = plt.subplots(
        2,
        len(found),
        figsize=(2.3 * len(found) + 0.6, 4.6),
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for (window, one), top, bottom in zip(found.items(), axes[0], axes[1], strict=True):
        image = orbit_diagram(one, columns=len(betas))
        top.imshow(
            image,
            origin="lower",
            aspect="auto",
            extent=(betas[0], betas[-1], -1, 1),
            interpolation="nearest",
        )
        top.grid(False)
        top.set_ylim(-0.8, 0.8)
        top.set_xlabel(f"T = {window}")
        top.xaxis.set_label_position("top")
        for regime in Regime:
            chosen = one.regime == regime
            rate = window * one.exponents.value[chosen, 0]
            bottom.plot(betas[chosen], rate, ".", ms=3, color=REGIME_COLORS[regime])
        bottom.axhline(0, color="0.3", lw=0.8)
        bottom.set_ylim(-1.0, 1.0)
        bottom.set_xlabel(r"$\beta$")
    axes[0, 0].set_ylabel("overlap $m^o_1$")
    axes[1, 0].set_ylabel("exponent (nats per $T$ tokens)")
    handles = [
        Line2D([], [], ls="", marker="o", ms=4, color=REGIME_COLORS[regime], label=regime.label)
        for regime in Regime
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
    label_panels(list(axes.flat))
    return figure
