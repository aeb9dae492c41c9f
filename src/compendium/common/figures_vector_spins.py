"""Drawings of the chapters on vector spins: the idea, a layer beside a spin system, shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from spinformer.plot.boxes import draw_boxes
from spinformer.plot.style import COLORS, SEQUENTIAL, label_panels

PART_COLORS = {
    "residual": "black",
    "first_step": "blue",
    "higher_orders": "sky",
    "response": "red",
}
PART_LABELS = {
    "residual": "residual",
    "first_step": "one attention step",
    "higher_orders": "higher orders of mixing",
    "response": "response of the couplings",
}


def show_saddle_idea(field: float = 1.0) -> None:
    """Spins in fields, and the height of the integrand over the complex t of one spin at β = 1."""
    _, axes = plt.subplots(1, 2, figsize=(8.8, 3.3))
    _draw_spins(axes[0])
    real, imaginary = np.meshgrid(np.linspace(0.25, 1.6, 200), np.linspace(-1.0, 1.0, 200))
    t = real + 1j * imaginary
    height = np.real(t - 0.5 * np.log(t) + field**2 / (4 * t))
    best = (1 + np.sqrt(1 + 4 * field**2)) / 4
    top = best - 0.5 * np.log(best) + field**2 / (4 * best)
    axes[1].contourf(real, imaginary, height - top, levels=14, cmap=SEQUENTIAL)
    axes[1].axvline(best, color="white", lw=1.5)
    axes[1].plot(best, 0.0, "o", color=COLORS["red"])
    axes[1].annotate("$t^*$", (best, 0.0), (8, 6), textcoords="offset points", color="white")
    axes[1].set(xlabel="real part of $t$", ylabel="imaginary part of $t$")
    axes[1].grid(visible=False)
    label_panels(list(axes))


def _draw_spins(axis: Axes) -> None:
    """Five arrows on a ring, each beside the arrow of its field, with lines between them."""
    angles = np.linspace(0, 2 * np.pi, 5, endpoint=False) + 0.3
    places = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    fields = np.array([[0.3, 0.1], [0.1, 0.3], [-0.2, 0.25], [0.3, -0.1], [0.25, 0.2]])
    mean = 0.6 * fields + 0.4 * fields.mean(axis=0)
    for i in range(5):
        for j in range(i):
            axis.plot(*places[[i, j]].T, color="0.8", lw=1)
    for shift, color, name in ((fields, "orange", "field $h_i$"), (mean, "blue", "spin $u_i$")):
        unit = 0.45 * shift / np.linalg.norm(shift, axis=1, keepdims=True)
        arrows: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.012, "zorder": 3}
        axis.quiver(*places.T, *unit.T, color=COLORS[color], label=name, **arrows)
    axis.set(xlim=(-1.6, 1.6), ylim=(-1.7, 1.6), aspect="equal")
    axis.legend(loc="lower center", ncols=2)
    axis.set_axis_off()


def show_layer_beside_spins() -> None:
    """A transformer layer above, the spin system below, alike parts in alike colours."""
    _, axes = plt.subplots(2, 1, figsize=(8.8, 3.6))
    names = ("in", "mix", "add", "norm", "ff", "out")
    places = (0.0, 0.25, 0.47, 0.67, 0.88, 1.08)
    words = (
        (
            "tokens\n$x_i$",
            "attention\nmixes tokens",
            "+ residual",
            "LayerNorm",
            "feed-forward\nmixes channels",
            "out",
        ),
        (
            "fields\n$h_i$",
            "couplings\n$J_{ij}(h)$",
            "$h_i + \\sum_j$\n$2J_{ij}\\langle u_j\\rangle$",
            "length of\na spin",
            "response\n$C\\,\\partial J/\\partial h$",
            "$m_i$",
        ),
    )
    for axis, row in zip(axes, words, strict=True):
        draw_boxes(
            {name: (x, 0.5, text) for name, x, text in zip(names, places, row, strict=True)},
            axis=axis,
            arrows=[(one, two, "") for one, two in pairwise(names)],
            bent=[("in", "add", "")],
            colors={"mix": "blue", "norm": "orange", "ff": "red"},
        )
    for axis in axes:
        axis.set(xlim=(-0.08, 1.14), ylim=(0.25, 1.0))
    label_panels(list(axes))


def plot_shares(axis: Axes, *, values: Sequence[float], table: Any, name: str) -> None:
    """Shares of the four parts (an `Estimate` (values, parts)) with their standard errors."""
    for index, part in enumerate(PART_LABELS):
        color, label = COLORS[PART_COLORS[part]], PART_LABELS[part]
        value, error = table.value[:, index], table.error[:, index]
        axis.errorbar(values, value, error, color=color, label=label, marker=".")
    axis.set(xscale="log", xlabel=name)


def show_share_bars(controls: Mapping[str, Mapping[str, float]]) -> None:
    """Stacked bars of {control: {part: share}}; a negative share starts where the last one ends."""
    _, axis = plt.subplots(figsize=(7.2, 3.8))
    for place, shares in enumerate(controls.values()):
        left = 0.0
        for part, width in shares.items():
            axis.barh(place, width, left=left, color=COLORS[PART_COLORS[part]], height=0.7)
            left += width
    axis.set_yticks(range(len(controls)), list(controls))
    axis.invert_yaxis()
    axis.set_xlabel("share of $m$")
    keys = [Patch(color=COLORS[PART_COLORS[part]]) for part in PART_LABELS]
    place_below: Any = {
        "loc": "upper center",
        "bbox_to_anchor": (0.4, -0.14),
        "ncols": 2,
        "fontsize": 8,
    }
    axis.legend(keys, list(PART_LABELS.values()), **place_below)
    axis.grid(axis="y", visible=False)


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


def show_theories(components: Sequence[int], wrong: Mapping[str, np.ndarray]) -> None:
    """Errors of theories: squared ones (components, systems) by name, drawn as their roots."""
    styles = {
        "naive": ("naive", "orange", "o-"),
        "tap": ("TAP", "blue", "s-"),
        "adaptive": ("adaptive TAP", "green", "D-"),
        "saddle": ("saddle point", "black", "^-"),
        "corrected": ("corrected saddle point", "black", "^--"),
    }
    _, axis = plt.subplots()
    for name, squares in wrong.items():
        label, color, mark = styles[name]
        middle = squares.mean(axis=1) ** 0.5
        bar = squares.std(axis=1, ddof=1) / squares.shape[1] ** 0.5 / (2 * middle)
        # On a logarithmic axis a bar may not reach zero.
        bars = np.stack([np.minimum(bar, 0.9 * middle), bar])
        axis.errorbar(
            components, middle, bars, fmt=mark, ms=4, capsize=2, color=COLORS[color], label=label
        )
    axis.set(xscale="log", yscale="log", xlabel="components $D$", ylabel="error of $m$")
    axis.set_xticks(components, [str(n) for n in components])
    axis.minorticks_off()
    axis.legend(loc="lower left", fontsize=8)


def show_head_idea() -> None:
    """A head of a trained layer read as a spin system, and what is compared with what."""
    _, axis = plt.subplots(figsize=(8.8, 2.9))
    draw_boxes(
        {
            "layer": (0.0, 0.85, "tokens $x_i$"),
            "head": (0.36, 0.85, "attention, weights $P_{ij}$\nvalues $v_j$"),
            "output": (0.98, 0.85, "attention output\n$\\sum_j P_{ij} v_j$"),
            "spins": (0.36, 0.2, "fields $v_i$, couplings $g P_{ij}$\nspins $u_i$"),
            "parts": (0.98, 0.2, "own, $P_{ij} + P_{ji}$,\nall orders, Onsager, response"),
        },
        axis=axis,
        arrows=[
            ("layer", "head", ""),
            ("head", "output", ""),
            ("head", "spins", ""),
            ("spins", "parts", ""),
            ("parts", "output", ""),
        ],
        colors={"head": "blue", "output": "blue", "spins": "red", "parts": "red"},
    )


def plot_depth(axis: Axes, *, curves: Mapping[str, np.ndarray], half: Callable[..., float]) -> None:
    """Means over texts of {label: (layers, texts)} against the layer, with `half` intervals."""
    tones = ("black", "blue", "red", "green", "orange", "purple", "sky")
    count = len(curves)
    for place, ((label, values), tone) in enumerate(zip(curves.items(), tones, strict=False)):
        # A little apart, so that bars do not cover each other.
        depth = np.arange(len(values)) + 0.05 * (place - (count - 1) / 2)
        bars = [half(row) for row in values]
        axis.errorbar(
            depth,
            values.mean(axis=1),
            bars,
            fmt="o-",
            ms=4,
            capsize=2,
            color=COLORS[tone],
            label=label,
        )
    axis.set_xlabel("layer")
