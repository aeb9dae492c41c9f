"""The picture of a table of settings: what decides a verdict, at every combination of choices."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from bookmaker.tables import choices
from compendium.common.drawing import intervals
from spinformer.plot.style import COLORS

# Of an interval that includes zero.
UNDECIDED = "#888888"


def show_settings(table: Mapping[str, np.ndarray], *, value: str) -> Figure:
    """Draw the specification curve of a table of settings, as `Table.read()` gives it.

    Every combination in the order of its figure: blue where the whole interval speaks for the
    statement, red where it speaks against it, grey where it is undecided; below, a mark for each
    choice that was not the same in all.
    """
    order = np.argsort(table["value"], kind="stable")
    chosen = {
        f"{name} {choice}": (table[name] == choice)[order]
        for name in choices(table)
        for choice in np.unique(table[name])
        if (table[name] != choice).any()
    }
    ends = np.array([table[name][order] for name in ("low", "value", "high")])
    place = np.arange(len(order))
    size = 0.17 * len(chosen)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(6.4, 2.4 + size), sharex=True, height_ratios=[2.0, size]
    )
    low, _, high = ends
    sides = {"blue": low > 0, "red": high < 0, UNDECIDED: (low <= 0) & (high >= 0)}
    for color, side in sides.items():
        intervals(above, place[side], ends[:, side], color, ms=4, capsize=0)
    above.axhline(0.0, color=COLORS["black"], linewidth=0.8)
    above.set(ylabel=value)
    rows, marks = np.nonzero(list(chosen.values()))
    below.plot(marks, rows, "s", markersize=3, color="#666666")
    below.set_yticks(range(len(chosen)), list(chosen), fontsize=8)
    below.set(ylim=(len(chosen) - 0.5, -0.5), xticks=[])
    below.set_xlabel("combinations of choices, in the order of what they give")
    return figure
