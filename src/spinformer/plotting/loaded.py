"""Drawings of attention with many features, and with a residual connection and further blocks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spinformer.core.statistics import mean_interval
from spinformer.plotting.boxes import BOX, draw_arrow, draw_box
from spinformer.plotting.style import COLORS, label_panels
