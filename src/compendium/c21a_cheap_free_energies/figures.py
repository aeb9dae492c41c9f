"""Drawings of the chapter on cheap free energies of Ising systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from compendium.c21a_cheap_free_energies.study import Trend
from compendium.c21a_cheap_free_energies.unrolled import state_evolution
from compendium.common.drawing import size_errors
from spinformer.plot.style import COLORS, label_panels
from spinformer.spins.mean_field import glass_state, instability_beta

TONES = {"naive": "orange", "tap": "blue", "adaptive": "green", "beliefs": "purple"}
MARKS = {"naive": "o", "tap": "s", "adaptive": "D", "beliefs": "^"}


def show_laws(
    laws: Mapping[tuple[str, str], Trend],
    *,
    live: Mapping[int, Sequence[Mapping[str, float]]],
    names: Mapping[str, str],
) -> None:
    """Squared errors for Gaussian couplings against size: stored (filled) and `live` (open)."""
    _, axis = plt.subplots(figsize=(6.4, 4.0))
    for theory, name in names.items():
        _plot(axis, laws["gaussian", theory], theory, name)
        means = {n: np.mean([run[theory] for run in runs]) for n, runs in live.items()}
        means = {n: mean for n, mean in means.items() if mean > 0}
        open_marks: dict[str, Any] = {"mfc": "none", "ms": 8, "color": COLORS[TONES[theory]]}
        axis.plot(list(means), list(means.values()), MARKS[theory], **open_marks)
    tap = laws["gaussian", "tap"]
    guide = 2.0 * tap.value[0] * tap.sizes[0] / tap.sizes
    axis.plot(tap.sizes, guide, ":", color=COLORS["black"], lw=1)
    axis.set_ylabel("squared error of $m_i$")
    axis.legend(loc="center right", bbox_to_anchor=(1.0, 0.66))


def show_couplings(laws: Mapping[tuple[str, str], Trend], *, names: Mapping[str, str]) -> None:
    """Squared errors against size for the three kinds of couplings that are not Gaussian."""
    titles = {"patterns": "memory", "rotated": "rotated spectrum", "sparse": "sparse graph"}
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.6), sharey=True)
    for axis, (kind, title) in zip(axes, titles.items(), strict=True):
        for theory, name in names.items():
            _plot(axis, laws[kind, theory], theory, name)
        axis.set_title(title)
    axes[0].set_ylabel("squared error of $m_i$")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    label_panels(list(axes))


def _plot(axis: Axes, fall: Trend, theory: str, name: str) -> None:
    style = {"fmt": MARKS[theory] + "-", "label": name}
    size_errors(axis, fall.sizes, fall.value, fall.error, TONES[theory], **style)


def show_diagram(
    overlaps: Sequence[np.ndarray],
    *,
    ladder: np.ndarray,
    betas: tuple[float, float],
    field_std: float,
) -> None:
    """The line of de Almeida and Thouless, and histograms of overlaps at two `betas`."""
    _, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
    fields = np.array([0.0, 0.02, 0.05, *np.linspace(0.1, 1.2, 9)])
    line = [instability_beta(field_std=float(f)) for f in fields]
    axes[0].plot(line, fields, color=COLORS["black"])
    axes[0].fill_betweenx(fields, line, 4.0, color=COLORS["purple"], alpha=0.2, lw=0)
    axes[0].text(2.9, 0.42, "many\nstates", ha="center")
    axes[0].text(0.75, 0.85, "one\nstate", ha="center")
    for beta, letter in zip(betas, "bc", strict=True):
        axes[0].plot(beta, field_std, "o", color=COLORS["red"], ms=5)
        axes[0].annotate(letter, (beta, field_std), (5, 4), textcoords="offset points")
    axes[0].plot([0.6, 1.0, 1.4], [0.5] * 3, "s", color=COLORS["blue"], ms=4)
    axes[0].set(xlabel=r"inverse temperature $\beta$", ylabel=r"fields $\Delta$", xlim=(0.3, 3.4))
    bins = np.linspace(-1, 1, 41)
    for axis, beta in zip(axes[1:], betas, strict=True):
        column = int(np.argmin(np.abs(ladder - beta)))
        for run, tone in zip(overlaps, ("blue", "orange", "green"), strict=False):
            height, _ = np.histogram(run[:, column].ravel(), bins, density=True)
            axis.stairs(height, bins, color=COLORS[tone], lw=1.3)
        q = glass_state(beta, field_std=field_std).value
        axis.axvline(q, color=COLORS["black"], ls=":", lw=1)
        axis.set(xlabel="overlap of two copies", title=rf"$\beta = {beta}$")
    axes[1].set_ylabel("density")
    label_panels(list(axes))


def show_depth(depth: Mapping[float, np.ndarray], *, field_std: float) -> None:
    """Distances of successive layers beside state evolution, and the depth that they need."""
    _, axes = plt.subplots(1, 2, figsize=(9.2, 3.6))
    for (beta, (measured, foretold)), tone in zip(
        depth.items(), ("green", "blue", "red"), strict=False
    ):
        layer = np.arange(1, len(measured) + 1)
        # Below, the quadrature of state evolution has no digits left.
        seen = foretold > 1e-7
        axes[0].plot(layer[seen], foretold[seen], color=COLORS[tone], lw=1)
        label = rf"$\beta = {beta}$"
        axes[0].plot(layer, measured, "o", ms=3.5, color=COLORS[tone], label=label)
    axes[0].set(yscale="log", xlabel="layer", ylabel="distance of successive layers")
    axes[0].legend()
    edge = instability_beta(field_std=field_std)
    betas = np.linspace(0.2, 0.985 * edge, 40)
    needed = []
    for beta in betas:
        square, pair = state_evolution(200, beta=float(beta), field_std=field_std)
        close = square[1:] + square[:-1] - 2 * pair[1:] < 1e-6
        needed.append(int(np.argmax(close)) + 1 if close.any() else np.nan)
    axes[1].plot(betas, needed, color=COLORS["black"])
    axes[1].axvline(edge, color=COLORS["black"], ls=":", lw=1)
    axes[1].set(xlabel=r"inverse temperature $\beta$", ylabel="layers to $10^{-3}$", yscale="log")
    label_panels(list(axes))
