"""The drawing of lifetimes against the number of bits."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from compendium.common.drawing import intervals
from spinformer.plot.style import COLORS, label_panels


def show_escapes(
    table: Mapping[str, np.ndarray], *, laws: Sequence[tuple[float, int, str, np.ndarray]]
) -> Figure:
    """Lifetimes of cycles against N; laws: β, cycle, label, both fits' intercepts and slopes."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.5))
    looks = [*zip(("blue", "red", "green", "orange"), "os^D", [left] * 4, strict=True)]
    looks.append(("blue", "o", right))
    for (beta, cycle, label, law), (color, marker, axis) in zip(laws, looks, strict=True):
        rows = (table["beta"] == beta) & (table["cycle"] == cycle) & (table["seed"] == 0)
        size, *ends = (table[name][rows] for name in ("size", "low", "lifetime", "high"))
        intervals(axis, size, ends, color, fmt=marker, ms=4, lw=0.9, label=label)
        axis.set(yscale="log", xlabel="bits $N$")
        at = np.linspace(size.min(), size.max(), 60)
        axis.plot(at, np.exp(law[0] + law[1] * at), color=COLORS[color], lw=1.2)
        power, name = np.exp(law[2] + law[3] * np.log(at)), "power law" if axis is right else None
        axis.plot(at, power, color="0.5", lw=1, ls="--", label=name)
        axis.legend(fontsize=8)
    left.set_ylabel(r"mean time to escape, $\tau$ (tokens)")
    label_panels([left, right])
    return figure
