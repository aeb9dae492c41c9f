"""Drawings of bifurcations: multipliers, the staircase, strobed portraits, branches, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS, label_panels

Columns = Mapping[str, np.ndarray]
_KINDS = {"fold": ("o", "blue"), "flip": ("s", "red"), "torus": ("D", "green")}


def show_three_ways() -> Figure:
    """A schematic: where a multiplier leaves the unit circle, and what is seen strobed.

    >>> figure = show_three_ways()
    >>> len(figure.axes)
    4
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 4, figsize=(8.6, 2.3), width_ratios=[1.25, 1, 1, 1])
    _unit_circle(axes[0])
    arrow = {"arrowstyle": "->", "lw": 1.8}
    turn = 2 * np.pi * 0.24
    ways = (("blue", 1 + 0j), ("red", -1 + 0j), ("green", np.exp(1j * turn)))
    for color, out in (*ways, ("green", np.exp(-1j * turn))):
        tip, tail = 1.3 * out, 0.7 * out
        axes[0].annotate(
            "", xy=(tip.real, tip.imag), xytext=(tail.real, tail.imag),
            arrowprops={**arrow, "color": COLORS[color]},
        )  # fmt: skip
    axes[0].set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
    x = np.linspace(0, 1, 60)
    axes[1].plot(1 - x**2, 0.5 + 0.45 * x, color=COLORS["blue"])
    axes[1].plot(1 - x**2, 0.5 - 0.45 * x, color=COLORS["blue"], ls="--")
    axes[1].invert_xaxis()
    axes[2].plot([0, 0.4], [0.5, 0.5], color=COLORS["red"])
    axes[2].plot([0.4, 1], [0.5, 0.5], color=COLORS["red"], ls="--")
    for sign in (1, -1):
        axes[2].plot(0.4 + 0.6 * x**2, 0.5 + sign * 0.4 * x, color=COLORS["red"])
    angle = 2 * np.pi * 0.242 * np.arange(24)
    axes[3].plot(np.cos(angle), np.sin(angle), ".", color=COLORS["green"])
    axes[3].plot(*np.array([np.cos(angle[:6]), np.sin(angle[:6])]), color=COLORS["green"], lw=0.7)
    axes[3].plot(0, 0, "x", color=COLORS["green"])
    axes[3].set_aspect("equal")
    titles = ("multipliers", "fold", "flip", "Neimark-Sacker")
    for axis, title in zip(axes, titles, strict=True):
        axis.axis("off")
        axis.text(0.5, -0.1, title, transform=axis.transAxes, ha="center", fontsize=9.5)
    label_panels(list(axes))
    return figure


def _unit_circle(axis: Axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angle), np.sin(angle), color="0.5", lw=1)
    axis.set_aspect("equal")


def show_multipliers(
    paths: np.ndarray, *, values: np.ndarray, eigenvalues: np.ndarray, critical: np.ndarray
) -> Figure:
    """Eigenvalues of the disordered state at onset, and multipliers of a cycle along β.

    eigenvalues: (n,) of one step. paths: (m, n) multipliers at the `values` of β (m,). critical:
    (2,) the pair at the Neimark-Sacker point.

    >>> figure = show_multipliers(
    ...     np.zeros((2, 3)), values=np.arange(2.0), eigenvalues=np.ones(3), critical=np.ones(2)
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.6), width_ratios=[1, 1.2])
    for axis in axes:
        _unit_circle(axis)
        axis.set_xlabel("real part")
    axes[0].plot(eigenvalues.real, eigenvalues.imag, "o", ms=5, color=COLORS["blue"])
    axes[0].set_ylabel("imaginary part")
    color = np.broadcast_to(values[:, None], paths.shape)
    drawn = axes[1].scatter(paths.real, paths.imag, c=color, s=9, cmap="cividis")
    axes[1].plot(critical.real, critical.imag, "D", ms=7, mfc="none", mew=1.6, color=COLORS["red"])
    figure.colorbar(drawn, ax=axes[1], label=r"inverse temperature $\beta$")
    label_panels(list(axes))
    return figure


def show_staircase(table: Columns, *, tongues: Columns, live: Columns, on_curve: float) -> Figure:
    """Rotation number against β with the locked windows, and the exponents near the end.

    table: columns of `STAIRCASE`, tongues: of `TONGUES`; live: `beta` and
    `rotation` of a smaller run. on_curve: extent below which a point is on the curve.

    >>> one = {name: np.array([0.25]) for name in ("beta", "rotation", "extent", "first", "second")}
    >>> window = {name: np.array([1.0]) for name in ("p", "q", "low", "high")}
    >>> figure = show_staircase(one, tongues=window, live=one, on_curve=0.3)
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.5), width_ratios=[1.25, 1, 1])
    here = table["extent"] < on_curve
    beta, turns = table["beta"][here], table["rotation"][here]
    for axis in axes[:2]:
        for p, q, low, high in zip(*(tongues[k] for k in ("p", "q", "low", "high")), strict=True):
            axis.fill_between(
                [low, high], [p / q] * 2, [0.2] * 2, color=COLORS["sky"], alpha=0.35, lw=0
            )
        axis.plot(beta, turns, ".", ms=2.5, color=COLORS["black"])
        axis.set_xlabel(r"inverse temperature $\beta$")
    axes[0].plot(live["beta"], live["rotation"], "o", ms=5, mfc="none", color=COLORS["red"])
    axes[0].set_ylabel("turns a clock period")
    axes[1].set_xlim(1.2661, 1.26762)
    for axis, low, names in (
        (axes[0], 0.2405, ((1, 4), (4, 15), (3, 11), (2, 7))),
        (axes[1], 0.2763, ((5, 18), (7, 25), (9, 32), (11, 39), (13, 46))),
    ):
        for p, q in names:
            axis.annotate(
                f"{p}/{q}",
                (axis.get_xlim()[0], p / q),
                xytext=(3, 2),
                fontsize=7.5,
                textcoords="offset points",
                color=COLORS["blue"],
            )
            axis.axhline(p / q, color=COLORS["blue"], lw=0.5, alpha=0.5)
        axis.set_ylim(low, 0.2845 if axis is axes[1] else 0.2875)
    for name, color in (("first", "purple"), ("second", "orange")):
        axes[2].plot(beta, table[name][here], ".", ms=3, color=COLORS[color], label=name)
    axes[2].axhline(0.0, color="0.4", lw=0.8)
    axes[2].set_xlim(1.26745, 1.26758)
    axes[2].set_ylim(-0.023, 0.011)
    axes[2].legend(loc="lower left", markerscale=3)
    axes[2].set_ylabel("Lyapunov exponent (nats a step)")
    axes[2].set_xlabel(r"inverse temperature $\beta$")
    for axis in axes[1:]:
        axis.locator_params(axis="x", nbins=3)
    for axis in axes:
        axis.ticklabel_format(useOffset=False)
    label_panels(list(axes))
    return figure


def show_portraits(
    points: Sequence[np.ndarray], *, titles: Sequence[str], marks: Mapping[int, Sequence[Columns]]
) -> Figure:
    """Strobed portraits, one panel each: points (n, P), the first two features drawn.

    marks: by panel, cycles to be marked: `points` (k, P) and a `marker`.

    >>> figure = show_portraits([np.zeros((3, 3))], titles=["one"], marks={})
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, len(points), figsize=(10.2, 3.0), squeeze=False)
    for number, (axis, cloud, title) in enumerate(zip(axes[0], points, titles, strict=True)):
        axis.plot(cloud[:, 0], cloud[:, 1], ".", ms=1.4, color=COLORS["black"])
        for mark in marks.get(number, ()):
            axis.plot(
                mark["points"][:, 0], mark["points"][:, 1], str(mark["marker"]), ms=5,
                mfc="none", mew=1.3, color=str(mark["color"]),
            )  # fmt: skip
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(r"$m^o_1$")
        axis.locator_params(nbins=4)
        axis.text(-0.02, 1.08, "abcdef"[number], transform=axis.transAxes, fontweight="bold")
    axes[0, 0].set_ylabel(r"$m^o_2$")
    return figure


def show_branches(table: Columns) -> Figure:
    """Extent of m^o_1 of cycles against β; solid where stable, with folds, flips and tori.

    table: columns of `CYCLES`.

    >>> row = {"family": "28", "kind": "cycle", "at": 1.0, "extent": 1.0, "stable": 1}
    >>> figure = show_branches({name: np.array([value]) for name, value in row.items()})
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 4, figsize=(10.6, 3.6), width_ratios=[0.9, 0.9, 1.5, 1])
    groups = (["16"], ["44"], ["28", "56 doubled", "56 other"], ["16 large"])
    colors = {"16": "black", "44": "purple", "28": "black", "56 doubled": "orange",
              "56 other": "sky", "16 large": "black"}  # fmt: skip
    for axis, names in zip(axes, groups, strict=True):
        for name in names:
            rows = table["family"] == name
            cycles = rows & (table["kind"] == "cycle")
            for stable, alpha, size in ((0, 0.35, 3), (1, 1.0, 6)):
                part = cycles & (table["stable"] == stable)
                axis.plot(
                    table["at"][part], table["extent"][part], ".", ms=size, alpha=alpha,
                    color=COLORS[colors[name]], label=name if stable else None,
                )  # fmt: skip
            for kind, (marker, color) in _KINDS.items():
                part = rows & (table["kind"] == kind)
                axis.plot(
                    table["at"][part], table["extent"][part], marker, ms=7, mfc="none", mew=1.5,
                    color=COLORS[color],
                )  # fmt: skip
        axis.set_xlabel(r"inverse temperature $\beta$")
        axis.ticklabel_format(useOffset=False)
        axis.locator_params(axis="x", nbins=3)
        axis.legend(fontsize=8, title="steps", title_fontsize=8)
    axes[0].set_ylabel(r"extent of $m^o_1$")
    label_panels(list(axes))
    return figure


def show_curves(table: Columns, *, limits: Sequence[tuple[float, float]]) -> Figure:
    """Bifurcation curves in (β, γ) and (β, ε), that of closed-curve births by its rotation.

    table: columns of `CURVES`. limits: the closed form's β at γ = 0 with its
    γ, and at ε = 0 with its ε.

    >>> row = {"curve": "torus", "plane": "gamma", "beta": 1.0, "gamma": 1.0, "epsilon": 0.0,
    ...     "rotation": 0.25}
    >>> figure = show_curves(
    ...     {name: np.array([value]) for name, value in row.items()}, limits=[(1, 0), (1, 0)]
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    styles = {"16": ("black", "-"), "44": ("purple", "-"), "28 fold": ("blue", "--"),
              "28 flip": ("red", "--")}  # fmt: skip
    for axis, plane, limit in zip(axes, ("gamma", "epsilon"), limits, strict=True):
        rows = table["plane"] == plane
        for curve in np.unique(table["curve"][rows]):
            part = rows & (table["curve"] == curve)
            if curve == "torus":
                turning = part & np.isfinite(table["rotation"])
                drawn = axis.scatter(
                    table["beta"][turning], table[plane][turning], c=table["rotation"][turning],
                    s=12, cmap="viridis", vmin=0.23, vmax=0.45,
                )  # fmt: skip
                continue
            color, dash = styles[next(name for name in styles if str(curve).startswith(name))]
            for sign in np.unique(table["sign"][part]):
                half = part & (table["sign"] == sign)
                axis.plot(table["beta"][half], table[plane][half], dash, lw=1, color=COLORS[color])
        axis.plot(*limit, "*", ms=13, color=COLORS["red"], clip_on=False, zorder=5)
        axis.set_xlabel(r"inverse temperature $\beta$")
    figure.colorbar(drawn, ax=axes[1], label="turns a clock period")
    axes[0].set_ylabel(r"sharpness $\gamma$")
    axes[1].set_ylabel(r"weight of the position $\varepsilon$")
    label_panels(list(axes))
    return figure
