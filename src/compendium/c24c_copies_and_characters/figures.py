"""Drawings of chapter 24c: the copying task, bits of arms, the race of keys and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS

RECIPE_COLORS = {
    "as before": COLORS["blue"],
    "half the rate": COLORS["orange"],
    "fixed fields": COLORS["green"],
}


def draw_copies() -> Figure:
    """One sample of masked copies: sixteen tokens, four sources, four masked, arrows by mark."""
    figure, axis = plt.subplots(figsize=(9.2, 2.5))
    contents = "cafbdahgbecfgdha"
    sources, masked = {1: 0, 6: 1, 8: 2, 13: 3}, {4: 2, 7: 0, 11: 3, 15: 1}
    shades = [COLORS[name] for name in ("blue", "red", "green", "orange")]
    for place, content in enumerate(contents):
        mark = sources.get(place, masked.get(place))
        shown = "?" if place in masked else content
        box = {
            "boxstyle": "square,pad=0.35",
            "fc": "0.88" if place in masked else "white",
            "ec": "0.6" if mark is None else shades[mark],
            "lw": 1.0 if mark is None else 2.4,
        }
        axis.text(place, 0.0, shown, ha="center", va="center", fontsize=11, bbox=box)
    for place, mark in masked.items():
        (source,) = (at for at, other in sources.items() if other == mark)
        side = -0.35 if place > source else 0.35
        axis.annotate(
            "",
            xy=(place, 0.32),
            xytext=(source, 0.32),
            arrowprops={
                "arrowstyle": "-|>",
                "color": shades[mark],
                "lw": 1.5,
                "connectionstyle": f"arc3,rad={side}",
            },
        )
    axis.set(xlim=(-0.8, 15.8), ylim=(-0.6, 2.0))
    axis.axis("off")
    return figure


def draw_references(values: Mapping[str, float], *, axis: Axes) -> None:
    """Dotted vertical lines with their names along them, low enough to cover no row."""
    for name, value in values.items():
        axis.axvline(value, color="0.4", ls=":", lw=1)
        axis.annotate(
            name,
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color="0.4",
        )


def draw_race(axis: Axes, *, starts: Sequence[float]) -> None:
    """Paths of scores w and keys a: a' = 2 a (w − 1), w' = a², from w = 0 and `starts` of a.

    On a path (w − 1)² − a²/2 stays as it is. Solid are paths that learn, dashed those that lose a;
    the dotted line parts them.
    """
    for start in starts:
        constant = 1 - start**2 / 2
        learns = constant < 0
        scores = np.linspace(0, 2 if learns else 1 - np.sqrt(constant), 200)
        keys = np.sqrt(np.maximum(2 * ((scores - 1) ** 2 - constant), 0.0))
        color = COLORS["blue"] if learns else COLORS["red"]
        axis.plot(scores, keys, "-" if learns else "--", color=color)
        axis.plot(0, start, "o", ms=4, color=color)
    axis.plot([0, 1], [np.sqrt(2), 0], ":", color=COLORS["black"])
    axis.set_xlabel("scores $w$")
    axis.set_ylabel("keys in the fields $a$")
    axis.set(xlim=(-0.05, 2), ylim=(0, None))


def draw_stuck(table: Mapping[str, np.ndarray], *, axis: Axes) -> None:
    """Accuracy of trainings against the keys' share in their fields, a color a recipe."""
    for recipe, color in RECIPE_COLORS.items():
        here = table["recipe"] == recipe
        if here.any():
            axis.plot(
                table["keys"][here], table["accuracy"][here], ".", ms=8, color=color, label=recipe
            )
    axis.set_xlabel("share of keys in the fields")
    axis.set_ylabel("accuracy of recall")
    axis.set(xlim=(0, None), ylim=(0, 1.05))


def draw_freed(accuracies: Mapping[str, np.ndarray], *, axis: Axes) -> None:
    """Accuracy of restarted trainings, a row for what was drawn anew."""
    for row, values in enumerate(accuracies.values()):
        shifts = row + 0.3 * np.linspace(-1, 1, len(values))
        axis.plot(values, shifts, ".", ms=8, color=COLORS["blue"])
    axis.set_yticks(range(len(accuracies)), list(accuracies))
    axis.invert_yaxis()
    axis.set_xlabel("accuracy after the restart")
    axis.set(xlim=(0, 1.05))
