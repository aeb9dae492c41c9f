"""Tables of settings: whether another training would turn what chapter 15 found.

`settings_A16`: demonstrations pull the query if less of a kick to it is left after the layers than
with demonstrations of other classes; value: what is left with those, less what is left with the
right ones. `settings_A16b`: how the boundary saturates, on a scale where a step of regression
stands at −1/2 and retrieval with an exponential at +1/2.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c15_demonstrations.basins import draw_queries, return_shares
from compendium.c15_demonstrations.boundary import boundary, draw_lines, shifts
from compendium.c15_demonstrations.episodes import Pools, split_digits
from compendium.c15_demonstrations.model import Weights
from compendium.c15_demonstrations.training import Lessons, train
from spinformer.core.statistics import mean_interval

SEEDS = 6
STEPS = (350, 700)
RATES = (1e-3, 2e-3, 4e-3)
# Images and the ratio of counts: on unseen classes the boundary leaves the line beyond 4 : 1.
PLACES = {"training classes, 8 : 1": ("valid", 8), "unseen classes, 4 : 1": ("test", 4)}


@cache
def _trained(steps: int, rate: float, kind: str = "softmax") -> tuple[Weights, list[Pools]]:
    lessons = Lessons(first_seed=300, count=SEEDS, steps=steps, rate=rate, kind=kind)
    return train(lessons), [split_digits(seed) for seed in lessons.seeds]


def saturations(
    weights: Weights, pools: list[Pools], *, part: str, most: int, kind: str = "softmax"
) -> np.ndarray:
    """Shift at `most` : 1 over shift at 2 : 1, placed between the laws: regression −½, memory ½.

    One number a training, from the medians over 100 lines; trainings in which one of the two
    medians leaves the line are left out.
    """
    lines = draw_lines(pools, part=part, count=100, seed=5)
    there = np.isfinite(boundary(weights, lines, kind=kind))
    far, near = (
        np.array(
            [
                np.median(row[keep]) if keep.any() else np.inf
                for row, keep in zip(
                    shifts(weights, lines, shown=(k, 1), kind=kind), there, strict=True
                )
            ]
        )
        for k in (most, 2)
    )
    known = np.isfinite(far) & np.isfinite(near)
    memory, regression = np.log2(most), 3 * (most - 1) / (most + 1)
    found = (far[known] / near[known] - regression) / (memory - regression) - 0.5
    return np.asarray(found)


def _row(values: np.ndarray) -> Rows:
    low, high = mean_interval(values)
    return [{"value": float(values.mean()), "low": low, "high": high, "runs": len(values)}]


def law_rows(steps: int, rate: float, images: str) -> Rows:
    """How the boundary of readers trained so saturates: one row of `settings_A16b`."""
    part, most = PLACES[images]
    return _row(saturations(*_trained(steps, rate), part=part, most=most))


def left_of_a_kick(
    weights: Weights, pools: list[Pools], *, demonstrations: int, kick: float, control: str = "none"
) -> np.ndarray:
    """Distance of the last hidden state from the unmoved one over its norm, over the kick: (S,)."""
    drawn = draw_queries(pools, count=100, copies=demonstrations, control=control, seed=3)
    return np.asarray(return_shares(weights, drawn, kicks=[kick], seed=4)[1][:, 0] / kick)


def pull_rows(steps: int, rate: float, demonstrations: int, kick: float) -> Rows:
    """What demonstrations of the query's classes take off a kick, unseen classes: one row."""
    place = {"demonstrations": demonstrations, "kick": kick}
    own, other = (
        left_of_a_kick(*_trained(steps, rate), control=control, **place)
        for control in ("none", "other classes")
    )
    return _row(other - own)


_TRAININGS = [{"steps": steps, "rate": rate} for steps in STEPS for rate in RATES]
PULL = Table(
    path=Path(__file__).with_name("settings_A16.csv"),
    units=[
        {**training, "demonstrations": count, "kick": kick}
        for training in _TRAININGS
        for count in (1, 8)
        for kick in (0.5, 2.0)
    ],
    rows=pull_rows,
    seconds=14.0,
    within={"value": 0.05, "low": 0.1, "high": 0.1},
)
LAW = Table(
    path=Path(__file__).with_name("settings_A16b.csv"),
    units=[{**training, "images": images} for training in _TRAININGS for images in PLACES],
    rows=law_rows,
    seconds=14.0,
    within={"value": 0.2, "low": 0.3, "high": 0.3},
)
