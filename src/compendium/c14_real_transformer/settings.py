"""Table of settings of A14c: whether depth or length of a toy's training would turn its direction.

value: the change by training of the mean cosine over layers between a step and the descent of its
layer's overlap energy, counted in the direction that the goal asks for: up for "recall", down for
"translate" and "avoid". Three layers: the long trainings of table `toy`, after each eighth. Two and
six layers: short trainings of their own, seeds 100 to 104.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c14_real_transformer.toy import GOALS, ToyTask, read_toy, train_toy
from spinformer.core.statistics import mean_interval

COPIES = 5
SHORT = 120


def setting_rows(goal: str, layers: int) -> Rows:
    """One goal and depth: a row for each length of training."""
    if layers == 3:
        found = read_toy()[goal]
        steps, cosine = found["step"], found["cosine"].mean(-1)
    else:
        task = ToyTask(goal=goal, layers=layers, batch=64, copies=COPIES, seed=100)
        trained = train_toy(task, steps=SHORT, record_every=SHORT)
        steps, cosine = np.array(trained.steps), trained.cosine.mean(-1)
    rows = []
    for step, values in zip(steps[1:], cosine[1:], strict=True):
        change = (values - cosine[0]) * (1 if goal == "recall" else -1)
        low, high = mean_interval(change)
        rows.append({"steps": int(step), "value": change.mean(), "low": low, "high": high})
    return [row | {"runs": cosine.shape[1]} for row in rows]


SETTINGS = Table(
    path=Path(__file__).with_name("settings_A14c.csv"),
    units=[{"goal": goal, "layers": layers} for goal in GOALS for layers in (3, 2, 6)],
    rows=setting_rows,
    checked=1,
    seconds=6.0,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)
