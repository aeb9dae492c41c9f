"""Tables of settings of A14a, A14b and A14c.

A14a: share of the model's heads whose own energy falls by a part of what they add, less one half;
A14b: of its layers that leave their own energy lower, less five sixths (Wilson's intervals). A14c:
whether depth or length of a toy's training would turn its direction, or another text the depth of
the model's energies.

value, toy: the change by training of the mean cosine over layers between a step and the descent of
its layer's overlap energy, counted in the direction that the goal asks for: up for "recall", down
for "translate" and "avoid". Three layers: the long trainings of tables `toy` and `toy_longer`,
after each eighth. Two and six layers: short trainings of their own, seeds 100 to 104. Model: ln of
how much deeper its overlap energy is than for turned queries, in the layer where that is least, one
text in windows of one length.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c14_real_transformer.energies import query_energy
from compendium.c14_real_transformer.steps import LENGTHS, PARTS, STAGES, STEPS, traces_of
from compendium.c14_real_transformer.toy import GOALS, LONGER, TOY, ToyTask, read_toy, train_toy
from compendium.common.rows import grid, mean_rows, share_rows
from spinformer.language.text import TEXTS

COPIES = 5
SHORT = 120


def depth_rows(source: str, window: int) -> Rows:
    """The model in one text, ten draws of turns."""
    ratios = []
    for trace in traces_of([source], window):
        draws = [query_energy(trace, turned=seed).mean() for seed in range(10)]
        ratios.append(np.log(query_energy(trace).mean() / np.array(draws)))
    return [{"steps": 0, **mean_rows(min(ratios, key=np.mean))[0]}]


def setting_rows(goal: str, layers: int, window: int) -> Rows:
    """One goal and depth: a row for each length of training. Or one text of the model."""
    if window:
        return depth_rows(goal.removeprefix("depth in "), window)
    if layers == 3:
        kept = [read_toy(table)[goal] for table in (TOY, LONGER)]
        trained = [(one["step"], one["cosine"]) for one in kept]
    else:
        task = ToyTask(goal=goal, layers=layers, batch=64, copies=COPIES, seed=100)
        short = train_toy(task, steps=SHORT, record_every=SHORT)
        trained = [(short["step"], short["cosine"])]
    sign = 1 if goal == "recall" else -1
    return [
        {"steps": int(step)} | mean_rows(sign * (values - cosine[0]).mean(-1))[0]
        for steps, cosine in trained
        for step, values in zip(steps[1:], cosine[1:], strict=True)
    ]


def lower_rows(length: int, source: str, part: str) -> Rows:
    """One text in windows of one length, by a part of a head's step or by the "whole layer"."""
    layer = part == "whole layer"
    table = (STAGES if layer else STEPS).read()
    here = (table["length"] == length) & (table["source"] == source)
    falls = table["feed forward" if layer else part][here] < 0
    return share_rows(int(falls.sum()), trials=len(falls), bound=5 / 6 if layer else 1 / 2)


HEADS, PASSES = (
    Table(
        path=Path(__file__).with_name(f"settings_{row}.csv"),
        units=[unit | {"part": part} for part in parts for unit in STEPS.units],
        rows=lower_rows,
        seconds=0.1,
    )
    for row, parts in (("A14a", PARTS), ("A14b", ("whole layer",)))
)
SETTINGS = Table(
    path=Path(__file__).with_name("settings_A14c.csv"),
    units=[
        *grid(goal=GOALS, layers=(3, 2, 6), window=(0,)),
        *grid(goal=[f"depth in {name}" for name in TEXTS], layers=(6,), window=LENGTHS),
    ],
    rows=setting_rows,
    checked=1,
    seconds=6.0,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)
