"""Drawings of the chapter on demonstrations: the idea, and what was measured over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from spinformer.core.statistics import mean_interval
from spinformer.plot.style import COLORS


def draw_episode(axis: Axes, images: np.ndarray, *, words: Sequence[str]) -> None:
    """A row of digits, (n, 8, 8) in [−1, 1], each with its word below; the last is the query."""
    for place, (image, word) in enumerate(zip(images, words, strict=True)):
        left = place * 1.25 + (0.9 if place == len(images) - 1 else 0.0)
        axis.imshow(image, cmap="gray_r", vmin=-1, vmax=1, extent=(left, left + 1, 0, 1))
        axis.text(left + 0.5, -0.28, word, ha="center", va="center", fontsize=11)
    end = len(images) * 1.25 + 0.75
    axis.annotate(
        "", xy=(end - 1.3, 0.5), xytext=(end - 2.0, 0.5), arrowprops={"arrowstyle": "->", "lw": 1.4}
    )
    axis.set(xlim=(-0.1, end), ylim=(-0.5, 1.3), aspect="equal")
    axis.text(0.0, 1.12, "demonstrations", fontsize=10)
    axis.text(end - 1.15, 1.12, "query", fontsize=10)
    axis.set_axis_off()


def draw_landscape(
    axis: Axes, energies: Mapping[int, np.ndarray], *, line: np.ndarray, tops: Mapping[int, float]
) -> None:
    """Energies along the line from B (−1) to A (1), one curve a number of copies of A.

    `tops` are the positions of the edge between the basins, NaN where there is one basin only.
    """
    for tone, (copies, energy) in zip(("black", "blue", "orange"), energies.items(), strict=False):
        label = f"{copies} : 1"
        axis.plot(line, energy, color=COLORS[tone], label=label)
        if np.isfinite(tops[copies]):
            height = np.interp(tops[copies], line, energy)
            axis.plot(tops[copies], height, "v", color=COLORS[tone], ms=8, mec="white")
    axis.set(xlabel="position of the query (B at −1, A at 1)", ylabel="energy $E$")
    axis.set_xlim(line[0], line[-1])
    axis.legend(title="copies of A and B", loc="lower left")


def draw_interval(axis: Axes, x: Any, *, samples: np.ndarray, **style: Any) -> None:
    """Means over seeds with Student's 95 % intervals; `samples` is (points, seeds)."""
    means = samples.mean(1)
    ends = np.array([mean_interval(row) for row in samples])
    axis.errorbar(x, means, yerr=np.abs(ends.T - means), capsize=2, **style)
