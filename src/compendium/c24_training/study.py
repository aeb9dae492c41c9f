"""Results of trainings at one rate and starting strength an arm: five splits, two starts each, on
test data."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bookmaker.tables import Rows, Table, stored
from compendium.common.images import digit_labels, digits
from compendium.common.rows import Columns, array_of, parameter_product
from compendium.common.spin_modules import sample_module
from compendium.common.token_classifiers import ARMS
from compendium.common.token_tasks import Task, copy_task, digit_rows, digit_task, recall_task
from compendium.common.token_training import WITHIN, four_digits, train_arm
from spinformer.spins.module import SpinTransformerModule

PENALTIES = (0.001, 0.01, 0.1, 1.0)
RATES = (3e-3, 1e-2, 3e-2)
STRENGTHS = (0.3, 0.6, 2.0)
SPLITS = 5
STARTS = 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)


@stored("references", [{"split": split} for split in range(SPLITS)], seconds=1.0)
def references_table(split: int) -> Rows:
    """Test accuracies on the split of `digit_task`; the penalty is tuned on its validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    pixels = digits()
    labels = digit_labels()
    train, held, test = digit_rows(split)
    regressions = [
        LogisticRegression(C=c, max_iter=2000).fit(pixels[train], labels[train]) for c in PENALTIES
    ]
    best = max(regressions, key=lambda model: float(model.score(pixels[held], labels[held])))
    nearest = KNeighborsClassifier(1).fit(pixels[train], labels[train])
    return [
        {"method": name, "accuracy": round(model.score(pixels[test], labels[test]), 4)}
        for name, model in (("logistic regression", best), ("nearest neighbour", nearest))
    ]


class Setting(NamedTuple):
    """The learning rate of an arm and the strength from which its couplings start."""

    rate: float
    strength: float = 0.6


class Experiment(NamedTuple):
    """A task, the depth of stacks and the updates of a training; the `arms` that take part, with
    the setting of its least mean loss in `tuning_table`."""

    task: Callable[[int], Task]
    depth: int
    updates: int
    arms: dict[str, Setting]


EXPERIMENTS = {
    "digits": Experiment(
        digit_task,
        depth=2,
        updates=200,
        arms={
            "saddle": Setting(0.01),
            "one step": Setting(0.01, strength=2.0),
            "couplings only": Setting(0.01, strength=2.0),
            "read-out only": Setting(0.03, strength=2.0),
            "frozen couplings": Setting(0.01),
            "no response": Setting(0.01),
            "attention": Setting(0.01),
            "transformer": Setting(0.01),
            "free spins": Setting(0.03),
            "limited": Setting(0.01),
        },
    ),
    "recall": Experiment(
        recall_task,
        depth=1,
        updates=200,
        arms={
            "saddle": Setting(0.01),
            "one step": Setting(0.01, strength=2.0),
            "frozen couplings": Setting(0.01),
            "free spins": Setting(0.003),
            "attention": Setting(0.01),
            "transformer": Setting(0.01),
        },
    ),
    "depth": Experiment(
        digit_task,
        depth=4,
        updates=120,
        arms={
            "saddle": Setting(0.003),
            "attention": Setting(0.003),
            "attention with skip": Setting(0.01),
            "transformer": Setting(0.01),
        },
    ),
    "copies": Experiment(
        copy_task,
        depth=1,
        updates=400,
        arms={
            "saddle": Setting(0.01, strength=2.0),
            "one step": Setting(0.01, strength=2.0),
            "frozen couplings": Setting(0.03, strength=2.0),
            "positions": Setting(0.01, strength=2.0),
            "free spins": Setting(0.01),
            "attention": Setting(0.03),
            "transformer": Setting(0.03),
        },
    ),
}
TUNED = [
    {"experiment": name, "arm": arm}
    for name in ("digits", "recall", "depth")
    for arm in EXPERIMENTS[name].arms
]


@stored(
    "tuning",
    TUNED,
    checked=TUNED.index({"experiment": "recall", "arm": "attention"}),
    seconds=2.0,
    rtol=0.05,
    within=WITHIN,
)
def tuning_table(experiment: str, arm: str) -> Rows:
    """Validation loss of both trainings at each rate and, if an arm has them, starting strength."""
    chosen = EXPERIMENTS[experiment]

    def held(split: int) -> Task:
        return chosen.task(split)._replace(test=chosen.task(split).validation)

    fixed = {"coupling_strength", "coupling_limit"} & {*ARMS[arm].options}
    strengths = STRENGTHS if ARMS[arm].kind == "spins" and not fixed else (0.6,)
    cells = parameter_product(rate=RATES, strength=strengths, split=TUNING_SPLITS)
    found = train_arm(
        arm,
        held,
        cells,
        depth=chosen.depth,
        steps=chosen.updates,
        looks=(chosen.updates,),
        probed=0,
    )
    return [one.cell | {"loss": np.nan_to_num(one.looks[0].loss, nan=math.inf)} for one in found]


def result_rows(
    *, experiment: str, arm: str, splits: int = SPLITS, updates: int | None = None
) -> Rows:
    """A row for each split, start, look and layer; of copies only the accuracies in the end.

    After the `updates` of the experiment, or so many.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first.
    """
    chosen = EXPERIMENTS[experiment]
    steps = chosen.updates if updates is None else updates
    rate, strength = chosen.arms[arm]
    inside = experiment != "copies"
    found = train_arm(
        arm,
        chosen.task,
        parameter_product(
            split=range(splits), start=range(STARTS), rate=[rate], strength=[strength]
        ),
        depth=chosen.depth,
        steps=steps,
        looks=(0, steps // 4, steps) if inside else (steps,),
        probed=40 if inside else 0,
    )
    rows = []
    for cell, model, own, looks in found:
        run = {name: cell[name] for name in ("split", "start")}
        if not inside:
            rows.append(run | four_digits({"accuracy": looks[0].accuracy}))
            continue
        for look, (layer, module) in product(looks, enumerate(model.layers)):
            drawn = dict.fromkeys(("noise", "off_spins", "off_output", "expected"), math.nan)
            if look.step == steps and isinstance(module, SpinTransformerModule):
                below = nn.Sequential(*model.layers[:layer])
                with torch.no_grad():
                    state = below(model.embed(own.test[0][:2]))
                sampled = sample_module(module, state)
                drawn = {name: float(sampled[name].mean()) for name in drawn}
            place = {"step": look.step, "layer": layer + 1, "accuracy": look.accuracy}
            rows.append(run | place | four_digits(look.layers[layer] | drawn))
    return rows


def _results(name: str, **settings: Any) -> Table:
    return Table(
        path=Path(__file__).with_name(f"{name}.csv"),
        units=[{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms],
        rows=result_rows,
        rtol=0.05,
        within=WITHIN,
        **settings,
    )


# A whole arm where its trainings take seconds, elsewhere the first updates of one with spins.
_SHORT: dict[str, Any] = {"arm": "saddle", "splits": 1, "updates": 8}
DIGITS = _results("digits", small={"experiment": "digits"} | _SHORT, seconds=5.0)
RECALL = _results(
    "recall", checked=list(EXPERIMENTS["recall"].arms).index("attention"), seconds=2.0
)
DEPTH = _results("depth", small={"experiment": "depth"} | _SHORT, seconds=3.0)
COPIES = _results(
    "copies", checked=list(EXPERIMENTS["copies"].arms).index("attention"), seconds=6.0
)


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()
