"""The atlas of regimes: a row a model, a window and a prefix, a column an inverse temperature."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from compendium.c42d_while_a_model_learns.atlas import BETAS, FRONTS
from compendium.c42d_while_a_model_learns.gemma import STEPS as GEMMA_STEPS
from compendium.c42d_while_a_model_learns.other_conventions import VARIANTS, WINDOW
from compendium.common.drawing import REGIME_COLORS
from compendium.common.prefixes import PREFIXES
from compendium.common.rows import Columns, groupby
from spinformer.core.regimes import Regime
from spinformer.plot.style import COLORS, label_panels

# Regimes in the order of the columns of the tables, and their colors.
REGIMES = {
    "fixed": ("fixed point", COLORS["black"]),
    "cycle": ("cycle", COLORS["blue"]),
    "curve": ("closed curve", REGIME_COLORS[Regime.QUASI_PERIODIC]),
    "chaotic": ("chaos", REGIME_COLORS[Regime.CHAOTIC]),
    "undecided": ("undecided", REGIME_COLORS[Regime.UNDECIDED]),
}
# What stands in front of the windows, in the words of the figures.
NAMES = {
    "none": "nothing in front",
    "first token": "first token",
    "template": "template",
    "prompt": "prompt",
}
Row = tuple[str, dict[str, np.ndarray]]


def show_atlas(shipped: Columns, optional: Columns, small: Columns) -> None:
    """Draw the atlas of the two large models beside that of the small ones.

    shipped: the table `atlas`. optional: the table `gemma`. small: the table `learning`.
    """
    left: list[Row] = []
    for name, table, steps in (("", shipped, shipped["steps"]), ("Gemma, ", optional, GEMMA_STEPS)):
        # Directions align over a third of the tokens, which must not be fewer than a window has.
        exponent = np.where(table["window"] <= steps // 3, table["exponent"], np.nan)
        shown = {**table, "exponent": exponent}
        left += [
            (f"{name}{NAMES[front]}, T = {window}", rows)
            for front in PREFIXES
            for window, rows in groupby(_chosen(shown, "prefix", front), "window")
        ]
    last = _chosen(small, "update", small["update"].max())
    right: list[Row] = [
        (f"{size}, T = {window}", rows) for (size, window), rows in groupby(last, "size", "window")
    ]
    first = _chosen(small, "update", 0)
    right += [(f"{size}, fresh, T = 4", rows) for size, rows in groupby(first, "size")]
    fig, axes = plt.subplots(1, 2, figsize=(9.6, 8.6))
    _draw(axes[0], left)
    _draw(axes[1], right)
    _show_colors(fig)
    label_panels(list(axes))


def show_conventions(shipped: Columns, variants: Columns) -> None:
    """Draw the atlas at one window beside what other conventions give, a panel a prefix.

    shipped: the table `atlas`. variants: the table `conventions`.
    """
    fig, axes = plt.subplots(1, 2, figsize=(9.6, 2.8), sharey=True)
    here = _chosen(shipped, "window", WINDOW)
    for axis, front in zip(axes, FRONTS, strict=True):
        rows: list[Row] = [("as in the atlas", _chosen(here, "prefix", front))]
        of_front = _chosen(variants, "prefix", front)
        rows += [(variant, _chosen(of_front, "variant", variant)) for variant in VARIANTS]
        _draw(axis, rows)
        axis.set_title(NAMES[front])
    _show_colors(fig)
    label_panels(list(axes))


def _show_colors(fig: Figure) -> None:
    """Name the colors of the regimes below a figure."""
    handles = [Patch(color=color, label=label) for label, color in REGIMES.values()]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _chosen(table: Columns, name: str, value: object) -> dict[str, np.ndarray]:
    """The rows of a table in which a column has a value."""
    here = table[name] == value
    return {key: column[here] for key, column in table.items()}


def _draw(axis: Axes, rows: Sequence[Row]) -> None:
    """Draw a grid of cells, each divided by the fractions of its regimes."""
    for place, (_, table) in enumerate(rows):
        for column, beta in enumerate(BETAS):
            here = table["beta"] == beta
            if not here.any():
                continue
            total = table["texts"][here].sum()
            begin = column + 0.04
            for name, (_, color) in REGIMES.items():
                width = 0.92 * table[name][here].sum() / total
                axis.barh(place, width, left=begin, height=0.86, color=color)
                begin += width
            if table["exponent"][here].mean() > 0:
                axis.text(column + 0.5, place, "+", ha="center", va="center", color="white")
    axis.set_xticks(np.arange(len(BETAS)) + 0.5, [f"{beta:g}" for beta in BETAS])
    axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axis.set(xlabel="inverse temperature β", xlim=(0, len(BETAS)), ylim=(len(rows) - 0.5, -0.5))
    axis.grid(visible=False)
