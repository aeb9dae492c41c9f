"""Drawings of the chapter on demonstrations: the idea, and what was measured over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from spinformer.plot.style import COLORS


def draw_episode(axis: Axes, images: np.ndarray, *, words: Sequence[str]) -> None:
    """A row of digits, (n, 8, 8) in [−1, 1], each with its word below; the last is the query."""
    places = [*(1.25 * np.arange(len(images) - 1)), 1.25 * len(images) - 0.35]
    for place, image, word in zip(places, images, words, strict=True):
        axis.imshow(image, cmap="gray_r", vmin=-1, vmax=1, extent=(place, place + 1, 0, 1))
        axis.text(place + 0.5, -0.28, word, ha="center", va="center", fontsize=11)
    last = places[-1]
    style = {"arrowstyle": "->", "lw": 1.4}
    axis.annotate("", xy=(last - 0.2, 0.5), xytext=(last - 0.9, 0.5), arrowprops=style)
    axis.text(0.0, 1.12, "demonstrations", fontsize=10)
    axis.text(last, 1.12, "query", fontsize=10)
    axis.set(xlim=(-0.1, last + 1.1), ylim=(-0.5, 1.3), aspect="equal")
    axis.set_axis_off()


def draw_landscape(
    axis: Axes, energies: Mapping[int, np.ndarray], *, line: np.ndarray, tops: Mapping[int, float]
) -> None:
    """Energies along the line from B (−1) to A (1), one curve a number of copies of A.

    `tops` are the positions of the edge between the basins, NaN where there is one basin only.
    """
    for tone, (copies, energy) in zip(("black", "blue", "orange"), energies.items(), strict=False):
        axis.plot(line, energy, color=COLORS[tone], label=f"{copies} : 1")
        height = np.interp(tops[copies], line, energy)
        axis.plot(tops[copies], height, "v", color=COLORS[tone], ms=8, mec="white")
    axis.set(xlabel="position of the query (B at −1, A at 1)", ylabel="energy $E$")
    axis.set_xlim(line[0], line[-1])
    axis.legend(title="copies of A and B", loc="lower left")
