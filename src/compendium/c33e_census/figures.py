"""Drawings of many networks: gauges, shares of regimes, onsets, predictors."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.core.statistics import share_interval
from spinformer.dmft.attractors import Regime
from spinformer.dmft.network import Network
from spinformer.plot.orbits import REGIME_COLORS
from spinformer.plot.style import COLORS, label_panels


def show_gauge(one: Network, two: Network, *, first: np.ndarray, second: np.ndarray) -> Figure:
    """Two sign tables of one network in two gauges, and the orbits (steps,) that both show.

    >>> network = Network.document()
    >>> figure = show_gauge(network, network, first=np.zeros(9), second=np.zeros(9))
    >>> len(figure.axes)
    3
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.7), width_ratios=(1, 1, 2.2))
    for axis, network, title in zip(axes, (one, two), ("its weights", "relabeled"), strict=False):
        signs = np.concatenate([network.semantic, network.position], axis=2)
        table = signs.reshape(-1, signs.shape[2])
        axis.imshow(table, cmap="PuOr", vmin=-2, vmax=2, aspect="auto")
        axis.set_xticks([1, network.segments + (network.bits - 1) / 2], ["segments", "position"])
        axis.set_yticks(
            network.features * np.arange(4) + (network.features - 1) / 2,
            ["output", "value", "query", "key"],
        )
        axis.axvline(network.segments - 0.5, color=COLORS["black"], lw=1)
        for edge in range(1, 4):
            axis.axhline(edge * network.features - 0.5, color=COLORS["black"], lw=1)
        axis.tick_params(length=0)
        axis.grid(False)
        axis.set_title(title, loc="right")
    axes[2].plot(first, "o-", ms=6, lw=1, color=COLORS["sky"], label="its motion")
    axes[2].plot(second, "k.", ms=4, label="of the relabeled network")
    axes[2].set_xlabel("step")
    axes[2].set_ylabel("size of the attention")
    axes[2].legend(loc="upper left")
    label_panels(list(axes))
    return figure


def plot_shares(
    axis: Axes, at: np.ndarray, *, counts: np.ndarray, trials: np.ndarray, color: str, label: str
) -> None:
    """Shares counts/trials, each (n,), at abscissas (n,), with Wilson's 95 % intervals.

    >>> figure, axis = plt.subplots()
    >>> plot_shares(
    ...     axis, np.arange(2), counts=np.ones(2), trials=np.full(2, 4), color="k", label="x"
    ... )
    >>> plt.close(figure)
    """
    share = counts / trials
    ends = np.array(
        [share_interval(int(k), trials=int(n)) for k, n in zip(counts, trials, strict=True)]
    )
    axis.errorbar(
        at,
        share,
        yerr=np.abs(ends.T - share),
        fmt="o",
        ms=5,
        capsize=3,
        color=COLORS.get(color, color),
        label=label,
    )


def show_onsets(
    *, predicted: np.ndarray, measured: np.ndarray, rotates: np.ndarray, top: float, tick: float
) -> Figure:
    """Measured against predicted onset of each network (n,), and the ratio's distribution.

    rotates: (n,) booleans, complex leading eigenvalue. measured: 0 where there is none up to
    `top`. tick: one even step of β.

    >>> ones = np.ones(3)
    >>> figure = show_onsets(
    ...     predicted=ones, measured=ones, rotates=ones > 0, top=3.0, tick=0.06
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), width_ratios=(1.2, 1))
    inside = (measured > 0) & (predicted <= top)
    kinds = ((~rotates, "blue", "s", "real"), (rotates, "orange", "o", "complex"))
    for chosen, color, marker, word in kinds:
        keep = inside & chosen
        axes[0].plot(
            predicted[keep],
            measured[keep],
            marker,
            ms=3.5,
            mfc="none",
            color=COLORS[color],
            label=f"{word} eigenvalue",
        )
        axes[1].hist(
            (measured - predicted)[keep] / tick,
            bins=np.arange(-24.5, 5.5, 1.0),
            histtype="step",
            lw=1.6,
            color=COLORS[color],
        )
    axes[0].plot([0, top], [0, top], color=COLORS["black"], lw=1)
    axes[0].set_xlabel(r"onset in closed form, $\beta_c/(1-\varepsilon)$")
    axes[0].set_ylabel(r"measured onset, $\beta$")
    axes[0].legend(loc="upper left")
    axes[1].set_xlabel("measured minus predicted (even steps)")
    axes[1].set_ylabel("networks")
    label_panels(list(axes))
    return figure


def show_regimes(
    shares: dict[str, tuple[np.ndarray, str]], *, document: dict[str, float]
) -> Figure:
    """For each regime the networks ordered by the share of β in it, and the one of the document.

    shares: by name, the values (n,) and a color.

    >>> figure = show_regimes({"chaos": (np.ones(3), "purple")}, document={"chaos": 0.5})
    >>> plt.close(figure)
    """
    figure, axis = plt.subplots(figsize=(6.8, 3.6))
    for name, (values, color) in shares.items():
        order = np.sort(values)
        rank = (np.arange(len(order)) + 0.5) / len(order)
        axis.step(order, 1.0 - rank, color=COLORS[color], label=name)
        axis.plot(
            document[name],
            (values > document[name]).mean(),
            "*",
            ms=13,
            mec=COLORS["black"],
            color=COLORS[color],
        )
    axis.plot(
        [], [], "*", ms=11, color="white", mec=COLORS["black"], label="the document's network"
    )
    axis.set_xlabel(r"share of $\beta$ and contexts in a regime")
    axis.set_ylabel("share of networks with more")
    axis.legend(loc="upper right")
    return figure


def show_predictor(
    *, score: np.ndarray, label: np.ndarray, threshold: float, area: float
) -> Figure:
    """Held-out networks by score, with and without chaos, and the curve of the two rates.

    >>> figure = show_predictor(
    ...     score=np.arange(4.0), label=np.arange(4) > 1, threshold=2.0, area=1.0
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(1.4, 1))
    bins = np.linspace(0.0, max(float(score.max()), threshold) + 1e-9, 21)
    for chosen, regime, word in (
        (~label, Regime.PERIODIC, "without chaos"),
        (label, Regime.CHAOTIC, "with chaos"),
    ):
        axes[0].hist(
            score[chosen],
            bins=bins,
            weights=np.full(int(chosen.sum()), 1.0 / max(1, chosen.sum())),
            histtype="step",
            lw=1.8,
            color=REGIME_COLORS[regime],
            label=f"{word} ({chosen.sum()})",
        )
    axes[0].axvline(threshold, color=COLORS["black"], ls="--", lw=1)
    axes[0].set_xlabel(r"score $\beta_{\rm top}/\beta_c$, 0 for a real eigenvalue")
    axes[0].set_ylabel("share of the held-out networks")
    axes[0].legend()
    cuts = np.concatenate([[np.inf], np.unique(score)[::-1]])
    hits = [(score[label] >= cut).mean() for cut in cuts]
    false = [(score[~label] >= cut).mean() for cut in cuts]
    axes[1].plot(false, hits, color=COLORS["purple"], label=f"area {area:.2f}")
    axes[1].plot([0, 1], [0, 1], color="0.5", lw=1, label="chance")
    axes[1].set_xlabel("share called chaotic of those without")
    axes[1].set_ylabel("of those with chaos")
    axes[1].legend(loc="lower right")
    label_panels(list(axes))
    return figure


def show_large(
    sizes: np.ndarray, *, medians: np.ndarray, errors: np.ndarray, theory: np.ndarray,
    radii: np.ndarray, shares: np.ndarray, law: np.ndarray
) -> Figure:  # fmt: skip
    """Median onset against P with the independent-eigenvalue estimate, and the radial law.

    >>> one = np.ones(2)
    >>> figure = show_large(
    ...     one, medians=one, errors=one, theory=one, radii=one, shares=one, law=one
    ... )
    >>> plt.close(figure)
    """
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    axes[0].plot(radii, law, color=COLORS["black"], lw=1, label="limit")
    axes[0].plot(radii, shares, "o", ms=4, color=COLORS["blue"], label="random signs")
    axes[0].set_xlabel(r"modulus $|\mu|$")
    axes[0].set_ylabel("share of eigenvalues below")
    axes[1].errorbar(
        sizes, medians, yerr=errors, fmt="o", ms=4, capsize=3, color=COLORS["blue"],
        label="random signs",
    )  # fmt: skip
    axes[1].plot(sizes, theory, color=COLORS["orange"], label="independent eigenvalues")
    axes[1].axhline(1.0, color=COLORS["black"], lw=1, label="limit")
    axes[1].set_xscale("log", base=2)
    axes[1].set_xlabel("features $P$")
    axes[1].set_ylabel(r"median of $\beta_c\sqrt{P/L}$")
    for axis in axes:
        axis.legend()
    label_panels(list(axes))
    return figure
