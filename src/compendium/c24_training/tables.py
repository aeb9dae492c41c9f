"""The stored tables: choices made on validation data, and results.

Networks have 32 channels and two heads. An experiment is a task at a depth; its networks see
batches of 32. Every arm is tuned over the same grid, two trainings of full length a cell, by their
mean validation loss; results are of five other splits with two starts each, on test data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.common.classifiers import ARMS, TokenClassifier, parameter_count
from compendium.common.rows import Columns, array_of, grid
from compendium.common.spin_modules import sample_module
from compendium.common.token_tasks import Task, copy_task, digit_images, digit_task, recall_task
from compendium.common.trained_stacks import four_digits, train_arm
from spinformer.core.statistics import mean_interval
from spinformer.spins.module import SpinTransformerModule

PENALTIES = (0.001, 0.01, 0.1, 1.0)
RATES = (3e-3, 1e-2, 3e-2)
STRENGTHS = (0.3, 0.6, 2.0)
SPLITS, STARTS = 5, 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)
SAMPLED = 2
_RUNS = grid(split=range(SPLITS), start=range(STARTS))
_HERE = Path(__file__).parent


@stored(_HERE / "references.csv", units=[{"split": split} for split in range(SPLITS)])
def REFERENCES(split: int) -> Rows:
    """Test accuracies on the split of `digit_task`; the penalty is tuned on its validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    pixels, labels, (train, held, test) = digit_images(split)
    regressions = [
        LogisticRegression(C=c, max_iter=2000).fit(pixels[train], labels[train]) for c in PENALTIES
    ]
    best = max(regressions, key=lambda model: float(model.score(pixels[held], labels[held])))
    nearest = KNeighborsClassifier(1).fit(pixels[train], labels[train])
    return [
        {"method": name, "accuracy": float(np.round(model.score(pixels[test], labels[test]), 4))}
        for name, model in (("logistic regression", best), ("nearest neighbour", nearest))
    ]


class Experiment(NamedTuple):
    """A task, the depth of the stacks, the updates of a training, and the arms that take part."""

    task: Callable[[int], Task]
    depth: int
    steps: int
    arms: tuple[str, ...]


_COMMON = ("saddle", "one step", "frozen couplings", "free spins", "attention", "transformer")
EXPERIMENTS = {
    "digits": Experiment(
        digit_task,
        2,
        200,
        (
            *("saddle", "one step", "couplings only", "read-out only", "frozen couplings"),
            *("no response", "attention", "transformer", "free spins", "limited"),
        ),
    ),
    "recall": Experiment(recall_task, 1, 200, _COMMON),
    "depth": Experiment(
        digit_task, 4, 120, ("saddle", "attention", "attention with skip", "transformer")
    ),
}


@stored(
    _HERE / "tuning.csv",
    units=[
        {"experiment": name, "arm": arm}
        for name, experiment in EXPERIMENTS.items()
        for arm in experiment.arms
    ],
)
def TUNING(experiment: str, arm: str) -> Rows:
    """Validation loss of every cell of the grid: rates, and starting strengths of a spin arm.

    A row for each of the two trainings of a cell.
    """
    task, depth, steps, _ = EXPERIMENTS[experiment]
    strengths = STRENGTHS if ARMS[arm].starts else (0.6,)

    def held(split: int) -> Task:
        return replace(task(split), test=task(split).validation)

    cells = grid(rate=RATES, strength=strengths, split=TUNING_SPLITS)
    options: Any = {"depth": depth, "steps": steps, "looks": (steps,), "probed": 0}
    return [
        {
            **cell,
            "accuracy": look.accuracy,
            "loss": math.inf if math.isnan(look.loss) else look.loss,
        }
        for cell, _, _, (look,) in train_arm(arm, held, cells, **options)
    ]


def choice(experiment: str, *, arm: str) -> dict[str, float]:
    """The rate and the starting strength with the lowest mean validation loss."""
    table, axes = TUNING.read(), ("rate", "strength", "split")
    rates, strengths, losses = (
        array_of(table, name, *axes, experiment=experiment, arm=arm)
        for name in ("rate", "strength", "loss")
    )
    best = np.unravel_index(losses.mean(-1).argmin(), losses.shape[:-1])
    return {"rate": float(rates[best][0]), "strength": float(strengths[best][0])}


def _named(cell: dict[str, Any], model: TokenClassifier) -> dict[str, int]:
    numbers = parameter_count(model)
    return {"split": cell["split"], "start": cell["start"], "parameters": numbers}


def result_rows(*, experiment: str, arm: str) -> Rows:
    """What five splits with two starts each gave: a row for each look and layer.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first; means over the samples.
    """
    task, depth, steps, _ = EXPERIMENTS[experiment]
    cells = [{**run, **choice(experiment, arm=arm)} for run in _RUNS]
    options: Any = {"depth": depth, "steps": steps, "looks": (0, steps // 4, steps)}
    rows = []
    for cell, model, made, seen in train_arm(arm, task, cells, **options):
        for look, (layer, module) in product(seen, enumerate(model.layers)):
            drawn = dict.fromkeys(("noise", "off_spins", "off_output", "expected"), math.nan)
            if look.step == steps and isinstance(module, SpinTransformerModule):
                with torch.no_grad():
                    state = model.embed(made.test[0][:SAMPLED])
                    for before in model.layers[:layer]:
                        state = before(state)
                sampled = sample_module(module, state)
                drawn = {name: float(sampled[name].mean()) for name in drawn}
            place = {"step": look.step, "layer": layer + 1, "accuracy": look.accuracy}
            told = four_digits({"loss": look.loss, **look.layers[layer], **drawn})
            rows.append({**_named(cell, model), **place, **told})
    return rows


DIGITS, RECALL, DEPTH = (
    Table(
        path=_HERE / f"{name}.csv",
        units=[{"experiment": name, "arm": arm} for arm in experiment.arms],
        rows=result_rows,
    )
    for name, experiment in EXPERIMENTS.items()
)

# Rate and starting strength of the least mean validation loss of two trainings on copies, rates
# half a decade apart, strengths 0.6 and 2.
CHOSEN = {
    "saddle": (0.01, 2.0),
    "one step": (0.01, 2.0),
    "frozen couplings": (0.03, 2.0),
    "positions": (0.01, 2.0),
    "free spins": (0.01, 0.6),
    "attention": (0.03, 0.6),
    "transformer": (0.03, 0.6),
}


@stored(_HERE / "copies.csv", units=[{"experiment": "copies", "arm": arm} for arm in CHOSEN])
def COPIES(experiment: str, arm: str) -> Rows:
    """A row for each of five splits with two starts: test accuracy, bits an answer.

    Couplings of places come to the crowd's 0.34 in recall, too.
    """
    cells = [{**run, **dict(zip(("rate", "strength"), CHOSEN[arm], strict=True))} for run in _RUNS]
    options: Any = {"steps": 400, "looks": (400,), "probed": 0}
    return [
        {
            **_named(cell, model),
            **four_digits({"accuracy": look.accuracy, "bits": look.loss / math.log(2)}),
        }
        for cell, model, _, (look,) in train_arm(arm, copy_task, cells, **options)
    ]


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()


def difference(table: Columns, *, arm: str, other: str) -> tuple[float, float, float]:
    """Accuracy of `arm` less that of `other`, by split and start: mean, interval (Student)."""
    mine, theirs = (values_of(table, arm=one, name="accuracy") for one in (arm, other))
    return float((mine - theirs).mean()), *mean_interval(mine - theirs)
