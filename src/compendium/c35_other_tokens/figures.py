"""The drawing of deviations from the mean field."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

from compendium.common.drawing import intervals
from compendium.common.rows import Columns, array_of, groups
from spinformer.plot.style import label_panels

SHADES = {2: "black", 3: "blue", 4: "green", 8: "orange"}


def show_deviations(table: Columns, *, seeds: Sequence[int]) -> None:
    """Deviation against N, and over the linear theory: medians over `seeds`, least to largest."""
    _, axes = plt.subplots(1, 2, figsize=(8.4, 3.6))
    mine = np.isin(table["seed"], list(seeds))
    kinds = groups({name: column[mine] for name, column in table.items()}, "words", "letters")
    for ((words, letters), rows), marker in zip(kinds, "osD^vP*", strict=True):
        color = "red" if words else SHADES[letters]
        text = f"{words} words, $q={letters}$" if words else f"sites, $q={letters}$"
        names = ("size", "deviation", "predicted")
        sizes, deviation, predicted = (array_of(rows, name, "seed", "size") for name in names)
        style = {"fmt": marker + "-", "label": text, "ms": 4, "lw": 1}
        ends = np.quantile(deviation, (0.0, 0.5, 1.0), axis=0)
        intervals(axes[0], sizes[0], ends, color, **style)
        if not words:
            ends = np.quantile(deviation / predicted, (0.0, 0.5, 1.0), axis=0)
            shift = 1.0 + 0.12 * (list(SHADES).index(letters) - 1.5)
            intervals(axes[1], sizes[0] * shift, ends, color, **style)
    axes[0].set(xscale="log", yscale="log", xlabel="sites $N$", ylabel="deviation of a text")
    axes[0].set_ylim(top=3e3)  # room for the legend
    axes[0].legend(fontsize=7, ncol=2, loc="upper right")
    axes[1].axhline(1.0, color="0.5", lw=1)
    axes[1].set(xscale="log", xlabel="sites $N$", ylabel="measured over linear theory")
    label_panels(list(axes))
