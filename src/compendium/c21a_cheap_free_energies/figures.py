"""The drawing that chapters 21a and 21b share."""

from __future__ import annotations

import matplotlib.pyplot as plt

from spinformer.plot.boxes import draw_boxes


def show_echo() -> None:
    """The schematic of a spin that hears its own echo."""
    _, axis = plt.subplots(figsize=(8.4, 2.4))
    draw_boxes(
        {
            "spin": (0.02, 0.6, "spin $i$\n$m_i$"),
            "others": (0.5, 0.6, "its neighbours\nturn by $(1-m_j^2)\\, J_{ji}\\, m_i$"),
            "field": (0.98, 0.6, "field at $i$\n$h_i + \\sum_j J_{ij} m_j$"),
        },
        axis=axis,
        arrows=[("spin", "others", ""), ("others", "field", "")],
        bent=[("field", "spin", "less its own echo, $m_i \\sum_j J_{ij}^2 (1-m_j^2)$")],
        colors={"spin": "red", "field": "blue"},
    )
