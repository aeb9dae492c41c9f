"""The drawing of many features, and of the load up to which they move."""

import matplotlib.pyplot as plt

from compendium.common.drawing import means_at
from compendium.common.rows import Columns, groups
from spinformer.plot.style import COLORS, label_panels


def show_load(paths: Columns, *, limits: Columns, onsets: Columns, largest: float) -> None:
    """Distance of texts from the theory; its largest gain by load; overlaps around the limit."""
    _, axes = plt.subplots(1, 3, figsize=(9.0, 3.3))
    for column, color, name in (("without", "red", "without"), ("with", "blue", "at the")):
        style = {"fmt": "o-", "ms": 4, "label": f"theory {name} load"}
        means_at(axes[0], paths["size"], paths[column], color, **style)
    axes[0].set(ylabel="distance of a text", ylim=(0.03, 0.9))
    axes[1].plot(limits["load"][1:], limits["gain"][1:], color=COLORS["black"])
    axes[1].axhline(limits["onset"][0], color=COLORS["orange"], ls="--", lw=1.2)
    axes[1].text(1.18, limits["onset"][0] * 1.08, "needed to move", ha="right", fontsize=8.5)
    axes[1].axvline(largest, color="0.5", lw=1)
    axes[1].set(xlabel="load $α$", ylabel="largest gain", yscale="log")
    axes[1].set_yticks([1, 2, 4], ["1", "2", "4"])
    axes[1].minorticks_off()
    for number, (load, rows) in enumerate(groups(onsets, "load")):
        style = {"fmt": "os^v"[number] + "-", "ms": 4, "label": f"α = {load:g}"}
        means_at(axes[2], rows["size"], rows["overlap"], f"C{number}", **style)
    axes[2].set(ylabel="overlap with the few", ylim=(0.02, 3))
    for axis, columns in ((axes[0], 1), (axes[2], 2)):
        axis.set(xscale="log", yscale="log", xlabel="bits $N$")
        axis.set_xticks([300, 1200], ["300", "1200"])
        axis.minorticks_off()
        axis.legend(fontsize=8, ncols=columns, loc="upper center")
    label_panels(list(axes))
