"""Ways to close a loop, drawn for the chapter on heads."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from spinformer.plot.style import COLORS


def loop_scheme() -> Figure:
    """Four ways to feed what a head returns back into its next query."""
    figure, axes = plt.subplots(1, 4, figsize=(9.6, 2.5))
    loops = (
        ("keys", "keys $k_j$", "as they are"),
        ("balanced", "rewritten keys", "as they are"),
        ("readback", "values $v_j$", "$W_Q W_O$"),
        ("sub-layer", "all heads", "+ state, LayerNorm, $W_Q$"),
    )
    for axis, (name, returned, back) in zip(axes, loops, strict=True):
        tone = "orange" if "key" in returned else "blue"
        for y, text, color in ((1.1, "query", "black"), (-0.5, returned, tone)):
            frame = {"boxstyle": "round,pad=0.5", "fc": "none", "ec": COLORS[color], "lw": 1.6}
            axis.text(0, y, text, ha="center", va="center", fontsize=9, bbox=frame)
        style = {"arrowstyle": "-|>", "color": "0.45", "lw": 1.4}
        axis.annotate("", (0.35, -0.1), (0.35, 0.7), arrowprops=style)
        axis.annotate("", (-0.35, 0.7), (-0.35, -0.1), arrowprops=style)
        axis.text(0.45, 0.3, "softmax", fontsize=8, va="center")
        axis.text(0.0, -1.3, f"back: {back}", fontsize=8.5, ha="center")
        axis.set(xlim=(-1.3, 1.3), ylim=(-1.5, 1.7), title=name)
        axis.set_axis_off()
    return figure
