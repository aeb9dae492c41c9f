"""Table of settings of A14c: whether depth or length of a toy's training would turn its direction.

value: the change by training of the mean cosine over layers between a step and the descent of its
layer's overlap energy, counted in the direction that the goal asks for: up for "recall", down for
"translate" and "avoid".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c14_real_transformer.toy import GOALS, ToyTask, train_toy
from spinformer.core.statistics import mean_interval

COPIES = 5


def direction(goal: str, change: np.ndarray) -> np.ndarray:
    """The change of the cosine, counted as the goal would have it."""
    return change if goal == "recall" else -change


def setting_rows(goal: str, layers: int, steps: int) -> Rows:
    """One goal, depth and length of training, seeds 100 to 104."""
    task = ToyTask(goal=goal, layers=layers, batch=64, copies=COPIES, seed=100)
    cosine = train_toy(task, steps=steps, record_every=steps).cosine.mean(-1)
    values = direction(goal, cosine[-1] - cosine[0])
    low, high = mean_interval(values)
    return [{"value": float(values.mean()), "low": low, "high": high, "runs": COPIES}]


SETTINGS = Table(
    path=Path(__file__).with_name("settings_A14c.csv"),
    units=[
        {"goal": goal, "layers": layers, "steps": steps}
        for goal in GOALS
        for layers in (2, 3, 6)
        for steps in (200, 800)
    ],
    rows=setting_rows,
    seconds=5.0,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)
