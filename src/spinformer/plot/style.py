"""One figure style for the whole book: sizes, a colour-blind-safe palette, small helpers."""

import sys

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.plot.vector import figure_svg

# Okabe and Ito (2008): distinguishable with every common form of colour blindness.
COLORS: dict[str, str] = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "black": "#000000",
}

# A perceptually uniform map of signed quantities; that of magnitudes is the style's default.
DIVERGING = "PuOr"


def use_style() -> None:
    """Set the book's defaults of matplotlib: sizes in inches and a color-blind-safe palette.

    In a notebook figures are shown as SVG.
    """
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.8),
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": cycler(color=list(COLORS.values())),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.25,
            "grid.linewidth": 0.6,
            "axes.labelsize": 10,
            "axes.titlesize": 10,
            "legend.fontsize": 9,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "image.cmap": "cividis",
        }
    )
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
        if "inline" in plt.rcParams["backend"]:
            # As soon as it is loaded the backend of notebooks asks for PNG.
            plt.switch_backend(plt.rcParams["backend"])
        formatters = shell.display_formatter.formatters
        for formatter in formatters.values():
            formatter.pop(Figure, None)
        formatters["image/svg+xml"].for_type(Figure, figure_svg)


def label_panels(axes: list[Axes]) -> None:
    """Write the letters a, b, c, … above the upper left corner of each panel.

    Parameters
    ----------
    axes : list of matplotlib.axes.Axes
        The panels in order.
    """
    for letter, axis in zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False):
        axis.set_title(letter, loc="left", fontweight="bold")
