"""The drawing of chapter 32."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from spinformer.plot.boxes import draw_boxes


def show_token_loop() -> Figure:
    """A schematic: a token of N bits, the overlaps that are all attention sees, the next token."""
    figure, axis = plt.subplots(figsize=(8.4, 2.6))
    boxes = {
        "bits": (0.0, 0.5, "token: $N$ bits\n$x_i = \\pm1$"),
        "overlaps": (0.34, 0.5, "$4P$ overlaps $m$\naverages over $N$ bits"),
        "attention": (0.68, 0.5, "attention $A$\n$P$ numbers"),
        "next": (1.0, 0.5, "next token\n$N$ bits"),
    }
    arrows, bent = ["bits overlaps attention next"], ["next bits"]
    colors = {"overlaps": "orange", "attention": "orange"}
    draw_boxes(boxes, axis=axis, arrows=arrows, bent=bent, colors=colors)
    words = {0.17: "noise of order\n$N^{-1/2}$", 0.51: "deterministic", 0.84: "independent\ndraws"}
    for place, word in words.items():
        axis.text(place, 0.8, word, ha="center", fontsize=8.5)
    axis.set_ylim(-0.1, 1.05)
    return figure
