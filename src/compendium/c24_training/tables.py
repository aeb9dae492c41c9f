"""The stored tables: choices made on validation data, and results.

Networks have 32 channels and two heads. An experiment is a task at a depth; its networks see
batches of 32. Every arm is tuned over the same grid, two trainings of full length a cell, by their
mean validation loss; results are of five other splits with two starts each, on test data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from bookmaker.tables import Rows, Table
from compendium.c24_training.study import LayerProbe, Look, fit, sample_module
from compendium.common.classifiers import ARMS, TokenClassifier, build_classifier, parameter_count
from compendium.common.token_tasks import Task, digit_images, digit_task, recall_task
from spinformer.core.records import record
from spinformer.spins.module import SpinTransformerModule

PENALTIES = (0.001, 0.01, 0.1, 1.0)


def reference_rows(*, split: int) -> Rows:
    """Test accuracies on the split of `digit_task`; the penalty is tuned on its validation."""
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


RATES = (3e-3, 1e-2, 3e-2)
STRENGTHS = (0.3, 0.6, 2.0)
SPLITS, STARTS = 5, 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)
SAMPLED = 2
_HERE = Path(__file__).parent


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


def tune(experiment: Experiment, *, arm: str) -> Rows:
    """Validation loss of every cell of the grid: rates, and starting strengths of a spin arm.

    A row for each of the two trainings of a cell.
    """
    strengths = STRENGTHS if ARMS[arm].starts else (0.6,)
    tasks = {split: experiment.task(split) for split in TUNING_SPLITS}
    runs = list(itertools.product(RATES, strengths, TUNING_SPLITS))
    shape = {"depth": experiment.depth, **tasks[TUNING_SPLITS[0]].shape}
    found = fit(
        [build_classifier(arm, seed=1000 * split, strength=g, **shape) for _, g, split in runs],
        tasks=[tasks[split] for _, _, split in runs],
        steps=experiment.steps,
        rates=[rate for rate, _, _ in runs],
        seeds=[1000 * split for _, _, split in runs],
        looks=(experiment.steps,),
        validate=True,
        probed=0,
    )
    return [
        {
            "rate": rate,
            "strength": strength,
            "split": split,
            "accuracy": looks[0].accuracy,
            "loss": looks[0].loss if math.isfinite(looks[0].loss) else math.inf,
        }
        for (rate, strength, split), looks in zip(runs, found, strict=True)
    ]


def tuning_rows(*, experiment: str, arm: str) -> Rows:
    """`tune` of an experiment by name."""
    return tune(EXPERIMENTS[experiment], arm=arm)


TUNING = Table(
    path=_HERE / "tuning.csv",
    units=[
        {"experiment": name, "arm": arm}
        for name, experiment in EXPERIMENTS.items()
        for arm in experiment.arms
    ],
    rows=tuning_rows,
)


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


def networks(
    experiment: Experiment, *, arm: str, runs: Sequence[tuple[int, int]], strength: float
) -> tuple[list[TokenClassifier], list[Task], list[int]]:
    """Fresh networks of the (split, start) in `runs`, their tasks, and the seeds of both."""
    made = {split: experiment.task(split) for split in dict.fromkeys(split for split, _ in runs)}
    tasks = [made[split] for split, _ in runs]
    seeds = [1000 * split + start for split, start in runs]
    shape = {"depth": experiment.depth, "strength": strength, **tasks[0].shape}
    return [build_classifier(arm, seed=seed, **shape) for seed in seeds], tasks, seeds


def result_rows(*, experiment: str, arm: str) -> Rows:
    """What five splits with two starts each gave: a row for each look and layer.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first; means over the samples.
    """
    chosen = EXPERIMENTS[experiment]
    rate, strength = choice(experiment, arm=arm)
    runs = [(split, start) for split in range(SPLITS) for start in range(STARTS)]
    models, tasks, seeds = networks(chosen, arm=arm, runs=runs, strength=strength)
    found = fit(
        models,
        tasks=tasks,
        steps=chosen.steps,
        rates=[rate] * len(runs),
        seeds=seeds,
        looks=(0, chosen.steps // 4, chosen.steps),
    )
    rows = []
    for (split, start), model, task, looks in zip(runs, models, tasks, found, strict=True):
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
REFERENCES = Table(
    path=_HERE / "references.csv",
    units=[{"split": split} for split in range(SPLITS)],
    rows=reference_rows,
)
