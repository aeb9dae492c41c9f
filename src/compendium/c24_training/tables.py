"""The stored tables: choices made on validation data, and results.

Networks have 32 channels and two heads. An experiment is a task at a depth; its networks see
batches of 32. Every arm is tuned over the same grid, two trainings of full length a cell, by their
mean validation loss; results are of five other splits with two starts each, on test data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.study import LayerProbe, Look, sample_module, train_arm
from compendium.common.classifiers import ARMS, TokenClassifier, parameter_count
from compendium.common.rows import grid
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
    losses = [look.loss if math.isfinite(look.loss) else math.inf for (look,) in found]
    return [
        {**cell, "accuracy": look.accuracy, "loss": loss}
        for cell, (look,), loss in zip(cells, found, losses, strict=True)
    ]


def choice(experiment: str, *, arm: str) -> tuple[float, float]:
    """The rate and the starting strength with the lowest mean validation loss."""
    table = TUNING.read()
    here = (table["experiment"] == experiment) & (table["arm"] == arm)
    cells = sorted(set(zip(table["rate"][here], table["strength"][here], strict=True)))

    def loss(cell: tuple[float, float]) -> float:
        rows = here & (table["rate"] == cell[0]) & (table["strength"] == cell[1])
        return float(table["loss"][rows].mean())

    rate, strength = min(cells, key=loss)
    return float(rate), float(strength)


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
        for look in looks:
            for layer, probe in enumerate(look.layers):
                drawn = dict.fromkeys(_DRAWN, math.nan)
                if look is looks[-1]:
                    drawn = _sampled(model, task, layer)
                about = {"split": split, "start": start, "parameters": parameter_count(model)}
                rows.append({**about, **_row(look, layer, probe), **drawn})
    return rows


_DRAWN = ("noise", "off_spins", "off_output", "expected")


def _row(look: Look, layer: int, probe: LayerProbe) -> dict[str, float]:
    values = {name: getattr(probe, name) for name in probe.__dataclass_fields__}
    return {
        "step": look.step,
        "layer": layer + 1,
        "accuracy": look.accuracy,
        "loss": float(f"{look.loss:.4g}"),
        **{name: float(f"{value:.4g}") for name, value in values.items()},
    }


def _sampled(model: TokenClassifier, task: Task, layer: int) -> dict[str, float]:
    module = model.layers[layer]
    if not isinstance(module, SpinTransformerModule):
        return dict.fromkeys(_DRAWN, math.nan)
    with torch.no_grad():
        state = model.embed(task.test[0][:SAMPLED])
        for before in list(model.layers)[:layer]:
            state = before(state)
    drawn = sample_module(module, state)
    return {name: float(f"{float(getattr(drawn, name).mean()):.4g}") for name in _DRAWN}


def _results(name: str) -> Table:
    return Table(
        path=_HERE / f"{name}.csv",
        units=[{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms],
        rows=result_rows,
    )


DIGITS, RECALL, DEPTH = (_results(name) for name in EXPERIMENTS)
