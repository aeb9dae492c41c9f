"""Tables of settings: whether another training would turn what chapter 15 found.

The trainings are those of table `boundary` (counts balanced, the same on other seeds and splits,
counts matched to the query's class), and for `settings_A16` one at three times their rate.
`settings_A16b`: how the boundary saturates, on a scale where a step of regression stands at −1/2
and retrieval with an exponential at +1/2. `settings_A16`: less than half of a kick to the query
should be left after the layers, if they pull it back; value: one half less the share that is left.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c15_demonstrations.basins import KICKS, draw_queries, return_shares
from compendium.c15_demonstrations.episodes import Pools, split_digits
from compendium.c15_demonstrations.measurements import BOUNDARY, column, saturation
from compendium.c15_demonstrations.model import Weights
from compendium.c15_demonstrations.training import Lessons, train
from compendium.common.rows import grid, mean_rows

STORED = {
    "balanced": {"training": "balanced", "first_seed": 0},
    "other splits": {"training": "balanced", "first_seed": 10},
    "matched": {"training": "matched", "first_seed": 0},
}
FAST = "rate 0.006"


def laws(most: float) -> tuple[float, float]:
    """Shift at `most` : 1 over shift at 2 : 1 of a memory and of a step of linear regression."""
    return float(np.log2(most)), 3 * (most - 1) / (most + 1)


@stored(
    Path(__file__).with_name("settings_A16b.csv"),
    units=grid(training=STORED, images=("training classes", "unseen classes"), ratio=(4, 8)),
    seconds=0.5,
)
def LAW(training: str, images: str, ratio: int) -> Rows:
    """How the boundary of the stored trainings saturates: one row of `settings_A16b`."""
    part = {"training classes": "valid", "unseen classes": "test"}[images]
    found = saturation(BOUNDARY.read(), most=ratio, part=part, **STORED[training])
    memory, regression = laws(ratio)
    return mean_rows((found - regression) / (memory - regression) - 0.5)


@cache
def _fast() -> tuple[Weights, list[Pools]]:
    lessons = Lessons(first_seed=300, count=6, steps=700, rate=6e-3)
    return train(lessons), [split_digits(seed) for seed in lessons.seeds]


@stored(
    Path(__file__).with_name("settings_A16.csv"),
    units=grid(training=(*STORED, FAST), demonstrations=(1, 8), kick=(0.5, 2.0)),
    seconds=0.5,
)
def PULL(training: str, demonstrations: int, kick: float) -> Rows:
    """What is left of a kick to the query, unseen classes: one row of `settings_A16`."""
    if training == FAST:
        weights, pools = _fast()
        drawn = draw_queries(pools, count=100, copies=demonstrations, seed=3)
        left = return_shares(weights, drawn, kicks=[kick], seed=4)[1][:, 0]
    else:
        name = f"moved, copies {demonstrations}"
        moved = column(BOUNDARY.read(), name, part="test", **STORED[training])
        left = moved[KICKS.index(kick)]
    return mean_rows(0.5 - left / kick)
