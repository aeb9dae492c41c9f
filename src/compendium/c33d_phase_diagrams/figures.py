"""The drawing of a phase diagram."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from compendium.c33_phase_transitions.orbits import PARAMETERS, REGIME_COLORS, draw_plane
from compendium.c33d_phase_diagrams.study import BETAS, UPWARDS
from spinformer.dmft.attractors import Regime
from spinformer.plot.style import COLORS, label_panels


def show_plane(
    layers: Mapping[str, np.ndarray],
    *,
    name: str,
    curves: Mapping[str, np.ndarray],
    changed: np.ndarray,
    point: tuple[float, float],
) -> Figure:
    """Regimes and exponents of a plane of `name`, with curves and marked points (n, 2) on top."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 4.1), sharey=True)
    plane, upwards = (layers["regime"], layers["exponent"]), UPWARDS[name]
    draw_plane((left, right), *plane, across=BETAS, upwards=upwards)
    red, blue, green = COLORS["red"], COLORS["blue"], COLORS["green"]
    for axis in (left, right):
        for (word, curve), line, color in zip(
            curves.items(), ("-", "--"), (red, blue), strict=True
        ):
            axis.plot(*curve.T, line, color=color, lw=1.6, label=word)
        axis.plot(*point, "o", ms=8, mfc="none", mew=1.6, color=green, label="document")
        axis.set(xlabel=PARAMETERS["beta"], xlim=BETAS[[0, -1]], ylim=upwards[[0, -1]])
    left.plot(*changed.T, "x", ms=4, mew=1.1, color=red, label="another label later")
    left.set_ylabel(PARAMETERS[name])
    regimes = [Patch(color=REGIME_COLORS[code], label=code.label) for code in Regime]
    handles = [*regimes, *left.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    label_panels([left, right])
    return figure
