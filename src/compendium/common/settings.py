"""The picture of a table of settings: what decides a verdict, at every combination of choices."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from bookmaker.settings import FIGURES
from spinformer.plot.style import COLORS


def show_settings(table: Mapping[str, np.ndarray], *, value: str) -> Figure:
    """Draw the specification curve of a table of settings, as `Table.read()` gives it.

    Above, every combination in the order of its figure with its interval, named `value` on the
    axis, blue where it speaks for the statement, red where against it; below, a mark for the
    choices of each combination, of those that were not the same in all.
    """
    order = np.argsort(table["value"], kind="stable")
    choices = [
        (f"{name} {choice}", (table[name] == choice)[order])
        for name in table
        if name not in FIGURES and len(np.unique(table[name])) > 1
        for choice in np.unique(table[name])
    ]
    middle, low, high = (table[name][order] for name in ("value", "low", "high"))
    place = np.arange(len(order))
    figure, (above, below) = plt.subplots(
        2,
        1,
        figsize=(6.4, 2.4 + 0.17 * len(choices)),
        sharex=True,
        height_ratios=[2.0, 0.17 * len(choices)],
    )
    for side, color in ((middle > 0, "blue"), (middle <= 0, "red")):
        bars = [(middle - low)[side], (high - middle)[side]]
        above.errorbar(place[side], middle[side], bars, fmt="o", markersize=4, color=COLORS[color])
    above.axhline(0.0, color=COLORS["black"], linewidth=0.8)
    above.set_ylabel(value)
    for row, (_, chosen) in enumerate(choices):
        below.plot(place[chosen], np.full(chosen.sum(), row), "s", markersize=3, color="#666666")
    below.set_yticks(range(len(choices)), [name for name, _ in choices], fontsize=8)
    below.set_ylim(len(choices) - 0.5, -0.5)
    below.set_xticks([])
    below.set_xlabel("combinations of choices, in the order of what they give")
    return figure
