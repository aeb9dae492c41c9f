"""Results at one rate and starting strength an arm: five splits, two starts each, on test data."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.trainings import four_digits, train_arm
from compendium.common.classifiers import ARMS
from compendium.common.images import digit_labels, digits
from compendium.common.rows import Columns, array_of, grid
from compendium.common.spin_modules import sample_module
from compendium.common.token_tasks import Task, copy_task, digit_rows, digit_task, recall_task
from spinformer.spins.module import SpinTransformerModule

PENALTIES = (0.001, 0.01, 0.1, 1.0)
RATES, STRENGTHS = (3e-3, 1e-2, 3e-2), (0.3, 0.6, 2.0)
SPLITS, STARTS = 5, 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)


@stored("references", [{"split": split} for split in range(SPLITS)])
def REFERENCES(split: int) -> Rows:
    """Test accuracies on the split of `digit_task`; the penalty is tuned on its validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    pixels, labels = digits(), digit_labels()
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


_COMMON = ("saddle", "one step", "frozen couplings", "free spins", "attention", "transformer")
_DIGITS = (
    *("saddle", "one step", "couplings only", "read-out only", "frozen couplings"),
    *("no response", "attention", "transformer", "free spins", "limited"),
)
_USUAL, _STRONG = (0.01, 0.6), (0.01, 2.0)
# Task, depth of the stacks, updates of a training, and the arms that take part with their rate and
# starting strength: those with the least mean loss in `TUNING`.
EXPERIMENTS: dict[str, tuple[Callable[[int], Task], int, int, dict[str, tuple[float, float]]]] = {
    "digits": (
        digit_task,
        2,
        200,
        dict.fromkeys(_DIGITS, _USUAL)
        | dict.fromkeys(("one step", "couplings only"), _STRONG)
        | {"read-out only": (0.03, 2.0), "free spins": (0.03, 0.6)},
    ),
    "recall": (
        recall_task,
        1,
        200,
        dict.fromkeys(_COMMON, _USUAL) | {"one step": _STRONG, "free spins": (0.003, 0.6)},
    ),
    "depth": (
        digit_task,
        4,
        120,
        dict.fromkeys(("saddle", "attention"), (0.003, 0.6))
        | dict.fromkeys(("attention with skip", "transformer"), _USUAL),
    ),
    "copies": (
        copy_task,
        1,
        400,
        dict.fromkeys((*_COMMON[:3], "positions", *_COMMON[3:]), _STRONG)
        | dict.fromkeys(("attention", "transformer"), (0.03, 0.6))
        | {"frozen couplings": (0.03, 2.0), "free spins": _USUAL},
    ),
}


@stored(
    "tuning",
    [
        {"experiment": name, "arm": arm}
        for name in ("digits", "recall", "depth")
        for arm in EXPERIMENTS[name][-1]
    ],
)
def TUNING(experiment: str, arm: str) -> Rows:
    """Validation loss of both trainings at each rate and, if an arm has them, starting strength."""
    task, depth, steps, _ = EXPERIMENTS[experiment]

    def held(split: int) -> Task:
        return task(split)._replace(test=task(split).validation)

    fixed = {"strength", "coupling_limit"} & {*ARMS[arm].options}
    strengths = STRENGTHS if ARMS[arm].kind == "spins" and not fixed else (0.6,)
    cells = grid(rate=RATES, strength=strengths, split=TUNING_SPLITS)
    found = train_arm(arm, held, cells, depth=depth, steps=steps, looks=(steps,), probed=0)
    return [
        {**cell, "accuracy": look.accuracy, "loss": np.nan_to_num(look.loss, nan=math.inf)}
        for cell, _, _, (look,) in found
    ]


def _trained(experiment: str, arm: str, **options: Any) -> Iterator[tuple[Any, ...]]:
    """Split and start of each training, the network, its task and its looks."""
    task, depth, steps, arms = EXPERIMENTS[experiment]
    rate, strength = arms[arm]
    cells = grid(split=range(SPLITS), start=range(STARTS), rate=[rate], strength=[strength])
    for cell, *rest in train_arm(arm, task, cells, depth=depth, steps=steps, **options):
        yield {name: cell[name] for name in ("split", "start")}, *rest


def result_rows(*, experiment: str, arm: str) -> Rows:
    """A row for each split, start, look and layer.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first.
    """
    (_, _, steps, _), rows = EXPERIMENTS[experiment], []
    for run, model, task, looks in _trained(experiment, arm, looks=(0, steps // 4, steps)):
        for look, (layer, module) in product(looks, enumerate(model.layers)):
            drawn = dict.fromkeys(("noise", "off_spins", "off_output", "expected"), math.nan)
            if look.step == steps and isinstance(module, SpinTransformerModule):
                below = nn.Sequential(*model.layers[:layer])
                with torch.no_grad():
                    state = below(model.embed(task.test[0][:2]))
                sampled = sample_module(module, state)
                drawn = {name: float(sampled[name].mean()) for name in drawn}
            place = {"step": look.step, "layer": layer + 1, "accuracy": look.accuracy}
            told = four_digits({"loss": look.loss, **look.layers[layer], **drawn})
            rows.append({**run, **place, **told})
    return rows


def copies_rows(*, experiment: str, arm: str) -> Rows:
    """Test accuracies. Couplings of places come to the crowd's 0.34 in recall, too."""
    looks = (EXPERIMENTS[experiment][2],)
    return [
        {**run, **four_digits({"accuracy": look.accuracy})}
        for run, _, _, (look,) in _trained(experiment, arm, looks=looks, probed=0)
    ]


DIGITS, RECALL, DEPTH, COPIES = (
    Table(
        path=Path(__file__).with_name(f"{name}.csv"),
        units=[{"experiment": name, "arm": arm} for arm in arms],
        rows=copies_rows if name == "copies" else result_rows,
    )
    for name, (*_, arms) in EXPERIMENTS.items()
)


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()
