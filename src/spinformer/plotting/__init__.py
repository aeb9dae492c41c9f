"""The figure style of the book and the drawings that chapters share."""

from spinformer.plotting.style import COLORS, DIVERGING, SEQUENTIAL, label_panels, use_style

__all__ = ["COLORS", "DIVERGING", "SEQUENTIAL", "label_panels", "use_style"]
