"""The stored tables: choices made on validation data, and results.

Networks have 32 channels and two heads. An experiment is a task at a depth; its networks see
batches of 32. Every arm is tuned over the same grid, two trainings of full length a cell, by their
mean validation loss; results are of five other splits with two starts each, on test data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.study import four_digits, sample_module, train_arm
from compendium.common.classifiers import ARMS, TokenClassifier, parameter_count
from compendium.common.rows import grid, groups
from compendium.common.token_tasks import Task, digit_images, digit_task, recall_task
from spinformer.core.records import record
from spinformer.spins.module import SpinTransformerModule

PENALTIES = (0.001, 0.01, 0.1, 1.0)
RATES = (3e-3, 1e-2, 3e-2)
STRENGTHS = (0.3, 0.6, 2.0)
SPLITS, STARTS = 5, 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)
SAMPLED = 2
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
    scores = {"logistic regression": best, "nearest neighbour": nearest}
    return [
        {"method": name, "accuracy": float(np.round(model.score(pixels[test], labels[test]), 4))}
        for name, model in scores.items()
    ]


@record
class Experiment:
    """A task, the depth of the stacks, the updates of a training, and the arms that take part."""

    task: Callable[[int], Task]
    depth: int
    steps: int
    arms: tuple[str, ...]


EXPERIMENTS = {
    "digits": Experiment(
        task=digit_task,
        depth=2,
        steps=200,
        arms=(
            *("saddle", "one step", "couplings only", "read-out only", "frozen couplings"),
            *("no response", "attention", "transformer", "free spins", "limited"),
        ),
    ),
    "recall": Experiment(
        task=recall_task,
        depth=1,
        steps=200,
        arms=(
            *("saddle", "one step", "frozen couplings", "free spins"),
            *("attention", "transformer"),
        ),
    ),
    "depth": Experiment(
        task=digit_task,
        depth=4,
        steps=120,
        arms=("saddle", "attention", "attention with skip", "transformer"),
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
    chosen = EXPERIMENTS[experiment]
    cells = grid(
        rate=RATES, strength=STRENGTHS if ARMS[arm].starts else (0.6,), split=TUNING_SPLITS
    )
    _, _, found = train_arm(
        arm,
        chosen.task,
        runs=[(cell["split"], 0, cell["rate"], cell["strength"]) for cell in cells],
        depth=chosen.depth,
        steps=chosen.steps,
        looks=(chosen.steps,),
        validate=True,
        probed=0,
    )
    return [
        {
            **cell,
            "accuracy": look.accuracy,
            "loss": math.inf if math.isnan(look.loss) else look.loss,
        }
        for cell, (look,) in zip(cells, found, strict=True)
    ]


def choice(experiment: str, *, arm: str) -> tuple[float, float]:
    """The rate and the starting strength with the lowest mean validation loss."""
    losses = {
        (rate, strength): rows["loss"].mean()
        for (task, who, rate, strength), rows in groups(
            TUNING.read(), "experiment", "arm", "rate", "strength"
        )
        if (task, who) == (experiment, arm)
    }
    return min(losses, key=lambda cell: losses[cell])


def result_rows(*, experiment: str, arm: str) -> Rows:
    """What five splits with two starts each gave: a row for each look and layer.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first; means over the samples.
    """
    chosen = EXPERIMENTS[experiment]
    rate, strength = choice(experiment, arm=arm)
    runs = [(split, start, rate, strength) for split in range(SPLITS) for start in range(STARTS)]
    models, tasks, found = train_arm(
        arm,
        chosen.task,
        runs=runs,
        depth=chosen.depth,
        steps=chosen.steps,
        looks=(0, chosen.steps // 4, chosen.steps),
    )
    rows = []
    for (split, start, *_), model, task, looks in zip(runs, models, tasks, found, strict=True):
        for look, layer in product(looks, range(chosen.depth)):
            drawn = dict.fromkeys(("noise", "off_spins", "off_output", "expected"), math.nan)
            module = model.layers[layer]
            if look is looks[-1] and isinstance(module, SpinTransformerModule):
                sampled = sample_module(module, _inputs(model, task.test[0][:SAMPLED], layer))
                drawn = {name: float(getattr(sampled, name).mean()) for name in drawn}
            rows.append(
                {
                    "split": split,
                    "start": start,
                    "parameters": parameter_count(model),
                    "step": look.step,
                    "layer": layer + 1,
                    "accuracy": look.accuracy,
                    **four_digits({"loss": look.loss, **look.layers[layer], **drawn}),
                }
            )
    return rows


@torch.no_grad()
def _inputs(model: TokenClassifier, tokens: Tensor, layer: int) -> Tensor:
    state = model.embed(tokens)
    for before in model.layers[:layer]:
        state = before(state)
    return state


def _results(name: str) -> Table:
    return Table(
        path=_HERE / f"{name}.csv",
        units=[{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms],
        rows=result_rows,
    )


DIGITS, RECALL, DEPTH = (_results(name) for name in EXPERIMENTS)
