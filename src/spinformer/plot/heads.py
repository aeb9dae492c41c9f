"""Plots of the overlap energies of attention heads, for one layer or for many."""

import re
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from spinformer.core.checks import check_instance
from spinformer.language.heads import HeadReport
from spinformer.plot.style import COLORS, DIVERGING, label_panels

_PARTS = {"whole": "black", "common": "sky", "specific": "orange"}


def show_heads(reports: HeadReport | Sequence[HeadReport]) -> Figure:
    """Plot how attention heads change their own overlap energy.

    One report is drawn as points for each head: the parts of its change and its alignment, with
    the null distribution in gray. Several reports, one for each layer, are drawn as two maps
    (layer, head) of the change by the whole output and by its specific part. Both are in standard
    deviations of the null, so that heads of any model can be compared.

    Parameters
    ----------
    reports : HeadReport or sequence of HeadReport
        Report of one layer, or reports of several layers.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError
        If `reports` holds anything else.
    """
    if isinstance(reports, HeadReport):
        return _layer(reports)
    found = [check_instance("reports", report, HeadReport) for report in reports]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 1.8 + 0.3 * len(found)), sharey=True)
    for axis, name in zip(axes, ("whole", "specific"), strict=True):
        head_map(axis, np.stack([r.z(name) for r in found]), label="z", limit=6.0, digits=0)
        axis.set_title(f"change of $U$, {name} step")
    label_panels(list(axes))
    return figure


def _layer(report: HeadReport) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    heads = np.arange(report.energy.shape[1])
    for axis, names in ((left, list(_PARTS)), (right, ["centered_cosine"])):
        for place, name in enumerate(names):
            at = heads + 0.2 * (place - (len(names) - 1) / 2)
            null = getattr(report, f"null_{name}", None)
            if null is not None and len(null) > 1:
                spread = 2 * null.std(0, ddof=1)
                axis.errorbar(at, null.mean(0), spread, fmt="none", color="0.75", lw=5)
            axis.errorbar(
                at, getattr(report, name).mean(0), np.nan_to_num(report.half(name)),
                fmt="o", ms=4, color=COLORS[_PARTS.get(name, "black")], label=name,
            )  # fmt: skip
        axis.axhline(0, color=COLORS["black"], lw=0.8)
        axis.set(xlabel="head", xticks=heads)
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylabel("change of own $U$")
    left.legend(ncols=3, fontsize=8)
    right.set_ylabel("centered cosine with descent")
    label_panels([left, right])
    return figure


def head_map(axis: Axes, values: np.ndarray, *, label: str, limit: float, digits: int = 2) -> None:
    """Draw a heat map of a signed quantity of every head, with the numbers written in.

    Parameters
    ----------
    axis : matplotlib.axes.Axes
        Panel that is drawn on.
    values : ndarray, shape (L, H)
        The quantity, by layer and head.
    label : str
        Label of the color bar.
    limit : float
        Absolute value at which the colors saturate.
    digits : int, default 2
        Number of decimal places of the numbers.

    Examples
    --------
    >>> head_map(plt.gca(), np.eye(2) - 0.5, label="cosine", limit=1.0)
    >>> plt.close()
    """
    norm = TwoSlopeNorm(vmin=-limit, vcenter=0.0, vmax=limit)
    image = axis.imshow(values, cmap=DIVERGING, norm=norm, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        tone = "white" if abs(value) > 0.7 * limit else "black"
        number = f"{np.round(value, digits) + 0.0:.{digits}f}"
        # Without the zero before the point, where it is the whole integer part.
        text = re.sub(r"^(-?)0\.", r"\1.", number)
        axis.text(j, i, text, ha="center", va="center", fontsize=6.5, color=tone)
    axis.grid(False)
    axis.set(xlabel="head", ylabel="layer", xticks=range(0, values.shape[1], 2))
    axis.figure.colorbar(image, ax=axis, label=label, shrink=0.85)
