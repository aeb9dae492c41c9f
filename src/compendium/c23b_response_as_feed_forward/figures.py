"""Drawings of the chapter on the response as a feed-forward network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import matplotlib.pyplot as plt
import numpy as np

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, label_panels


def show_response_idea() -> None:
    """The response is an average over the other tokens; a per-token network sees only its own."""
    _, axis = plt.subplots(figsize=(8.8, 2.8))
    draw_boxes(
        {
            "own": (0.02, 0.2, "own token $h_i$"),
            "others": (0.02, 0.85, "all tokens"),
            "weights": (0.42, 0.85, "couplings $J$, correlations $C$\nweights $G$ of sum zero"),
            "response": (0.96, 0.85, "response $r_i$"),
            "network": (0.42, 0.2, "feed-forward network\nthe same for every token"),
            "guess": (0.96, 0.2, "its guess of $r_i$"),
        },
        axis=axis,
        arrows=[
            ("others", "weights", ""),
            ("weights", "response", ""),
            ("own", "network", ""),
            ("network", "guess", ""),
            ("guess", "response", ""),
        ],
        colors={"weights": "blue", "response": "red", "network": "green", "guess": "green"},
    )


def show_learned(table: Mapping[str, np.ndarray], *, half: Callable[[np.ndarray], float]) -> None:
    """R² of the table `LEARNED` of chapter 23b: (a) unseen systems, (b) other prototypes.

    `half` gives half the interval of a mean from its samples.
    """
    _, axes = plt.subplots(1, 2, figsize=(8.8, 3.4))
    cases = (("clusters", 1.0, "green"), ("clusters", 3.0, "purple"), ("random", 1.0, "blue"))
    runs = ((1500, 400), (1500, 2500), (3000, 2500))
    for axis, column in zip(axes, ("test", "elsewhere"), strict=True):
        for surroundings, gamma, color in cases:
            points = []
            for place, (systems, steps) in enumerate(runs):
                rows = (table["surroundings"] == surroundings) & (table["gamma"] == gamma)
                rows &= (table["systems"] == systems) & (table["steps"] == steps)
                values = table[column][rows]
                if len(values) and np.isfinite(values).all():
                    points.append((place, values.mean(), half(values)))
            if points:
                x, mean, bar = np.array(points).T
                label = f"{surroundings}, $\\gamma = {gamma:g}$"
                axis.errorbar(x, mean, bar, color=COLORS[color], fmt="o-", capsize=3, label=label)
        axis.set_xticks(range(3), [f"{n}\n{k}" for n, k in runs])
        axis.set_xlabel("systems, training steps")
    axes[0].set(ylabel="$R^2$", ylim=(0, 1))
    axes[1].set(ylabel="$R^2$ on other clusters")
    axes[1].axhline(0, color="0.5", lw=0.8)
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(loc="lower right", fontsize=8)
    label_panels(list(axes))
