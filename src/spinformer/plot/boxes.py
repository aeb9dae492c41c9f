"""Block diagrams: boxes with a few words each and arrows between them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from spinformer.plot.style import COLORS


def draw_boxes(
    boxes: Mapping[str, tuple[float, float, str]],
    *,
    axis: Axes,
    arrows: Sequence[str] = (),
    bent: Sequence[str] = (),
    colors: Mapping[str, str] | None = None,
) -> None:
    """Draw a block diagram: boxes with a few words each, connected by arrows.

    The panel loses its axes.

    Parameters
    ----------
    boxes : mapping of str to tuple (x, y, text)
        The boxes by name, with x and y in [0, 1].
    axis : matplotlib.axes.Axes
        Panel that is drawn on.
    arrows : sequence of str, default ()
        Each arrow is "from to", "from to: label", or a chain such as "one two three".
    bent : sequence of str, default ()
        Arrows of the same form that run below the row of boxes, for feedback.
    colors : mapping of str to str, or None, default None
        Name in `COLORS` of the frame of a box, which is black otherwise.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> axis = plt.figure().subplots()
    >>> draw_boxes({"a": (0, 0, "in"), "b": (1, 0, "out")}, axis=axis, arrows=["a b"])
    >>> len(axis.texts)
    3
    """
    patches = {}
    shades = colors or {}
    for name, (x, y, text) in boxes.items():
        edge = COLORS[shades.get(name, "black")]
        frame = {"boxstyle": "round,pad=0.45", "fc": "white", "ec": edge, "lw": 1.4}
        drawn = axis.text(x, y, text, ha="center", va="center", fontsize=9, bbox=frame, zorder=3)
        patches[name] = drawn.get_bbox_patch()
    style = {"arrowstyle": "-|>", "color": COLORS["black"], "lw": 1.2, "shrinkA": 3, "shrinkB": 3}
    drawn_as = [*((arrow, "arc3") for arrow in arrows), *((a, "arc3,rad=-0.35") for a in bent)]
    for arrow, curve in drawn_as:
        ends, _, label = arrow.partition(": ")
        for one, two in pairwise(ends.split()):
            (x0, y0) = boxes[one][:2]
            (x1, y1) = boxes[two][:2]
            patched = style | {"patchA": patches[one], "patchB": patches[two]}
            patched["connectionstyle"] = curve
            axis.annotate("", xy=(x1, y1), xytext=(x0, y0), arrowprops=patched)
            if label:
                drop = 0.09 if curve == "arc3" else -0.45 * abs(x1 - x0)
                axis.text((x0 + x1) / 2, (y0 + y1) / 2 + drop, label, ha="center", fontsize=8)
    axis.set(xlim=(-0.1, 1.1), ylim=(-0.1, 1.1))
    axis.set_axis_off()
