"""Drawings of many networks: gauges, a predictor."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from spinformer.dmft.network import Network
from spinformer.plot.style import COLORS, label_panels


def show_gauge(one: Network, two: Network, *, first: np.ndarray, second: np.ndarray) -> Figure:
    """Two sign tables of one network in two gauges, and the orbits (steps,) that both show."""
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.7), width_ratios=(1, 1, 2.2))
    features, segments = one.features, one.segments
    for axis, network, title in zip(axes, (one, two), ("its weights", "relabeled"), strict=False):
        signs = np.concatenate([network.semantic, network.position], axis=2)
        axis.imshow(signs.reshape(-1, signs.shape[2]), cmap="PuOr", vmin=-2, vmax=2, aspect="auto")
        axis.set_xticks([1, segments + (network.bits - 1) / 2], ["segments", "position"])
        middles = features * np.arange(4) + (features - 1) / 2
        axis.set_yticks(middles, ["output", "value", "query", "key"])
        axis.axvline(segments - 0.5, color="black", lw=1)
        axis.hlines(features * np.arange(1, 4) - 0.5, *axis.get_xlim(), color="black", lw=1)
        axis.tick_params(length=0)
        axis.grid(False)
        axis.set_title(title, loc="right")
    axes[2].plot(first, "o-", ms=6, lw=1, color=COLORS["sky"], label="its motion")
    axes[2].plot(second, "k.", ms=4, label="of the relabeled network")
    axes[2].set(xlabel="step", ylabel="size of the attention")
    axes[2].legend(loc="upper left")
    label_panels(list(axes))
    return figure


def show_predictor(
    *, score: np.ndarray, label: np.ndarray, threshold: float, area: float
) -> Figure:
    """Held-out networks by score, with and without chaos, and the curve of the two rates."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(1.4, 1))
    bins = np.linspace(0.0, max(float(score.max()), threshold) + 1e-9, 21)
    for chosen, color, word in ((~label, "black", "without"), (label, "purple", "with")):
        heights = np.histogram(score[chosen], bins)[0] / max(1, chosen.sum())
        name = f"{word} chaos ({chosen.sum()})"
        axes[0].stairs(heights, bins, lw=1.8, color=COLORS[color], label=name)
    axes[0].axvline(threshold, color="black", ls="--", lw=1)
    axes[0].set_xlabel(r"score $\beta_{\rm top}/\beta_c$, 0 for a real eigenvalue")
    axes[0].set_ylabel("share of the held-out networks")
    axes[0].legend()
    cuts = [np.inf, *np.unique(score)[::-1]]
    hits, false = ([(score[who] >= cut).mean() for cut in cuts] for who in (label, ~label))
    axes[1].plot(false, hits, color=COLORS["purple"], label=f"area {area:.2f}")
    axes[1].plot([0, 1], [0, 1], color="0.5", lw=1, label="chance")
    axes[1].set(xlabel="share called chaotic of those without", ylabel="of those with chaos")
    axes[1].legend(loc="lower right")
    label_panels(list(axes))
    return figure
