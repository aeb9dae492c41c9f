"""The stored tables of chapter 24c: tuning, results, references.

Networks, rates and splits are those of chapter 24 (`training.tables`), of starting strengths two.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table
from compendium.c24_training import tables as earlier
from compendium.c24_training.fitting import fit
from compendium.c24_training.tables import SPLITS, STARTS, Experiment, choice, networks, tune
from compendium.c24c_copies_and_characters.tasks import character_task, copy_task, masked_count_bits
from compendium.common.classifiers import TokenClassifier, parameter_count
from compendium.common.token_tasks import Task
from spinformer.spins.module import SpinTransformerModule

EXPERIMENTS = {
    "copies": Experiment(
        task=copy_task,
        depth=1,
        steps=400,
        arms=(
            *("saddle", "one step", "frozen couplings", "positions"),
            *("free spins", "attention", "transformer"),
        ),
    ),
    "characters": Experiment(
        task=character_task,
        depth=2,
        steps=250,
        arms=(
            *("saddle", "one step", "frozen couplings", "positions"),
            *("attention", "transformer"),
        ),
    ),
    "recall": replace(earlier.EXPERIMENTS["recall"], arms=("positions",)),
}
STRENGTHS = (0.6, 2.0)
_HERE = Path(__file__).parent


def tuning_rows(*, experiment: str, arm: str) -> Rows:
    """Validation loss of every cell of the grid, as `training.tables.tune` has it.

    >>> callable(tuning_rows)
    True
    """
    return tune(EXPERIMENTS[experiment], arm=arm, strengths=STRENGTHS)


def _units(name: str) -> list[dict[str, str]]:
    return [{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms]


TUNING = {
    name: Table(path=_HERE / f"tuning_{name}.csv", units=_units(name), rows=tuning_rows)
    for name in ("copies", "characters")
}


def chosen_setting(experiment: str, *, arm: str) -> tuple[float, float]:
    """Rate and strength that tuning chose; for recall those of the saddle in chapter 24.

    >>> chosen_setting("recall", arm="positions") == choice("recall", arm="saddle")
    True
    """
    if experiment in TUNING:
        return choice(experiment, arm=arm, tuning=TUNING[experiment])
    return choice(experiment, arm="saddle")


def result_rows(*, experiment: str, arm: str, steps: int | None = None) -> Rows:
    """A row for each of five splits with two starts: test accuracy, bits an answer, the meter.

    After `steps` updates, those of the experiment if none are given. The meter is that of 40 test
    samples, its mean over the layers: shares of systems that `converged` and that are `physical`,
    `distance` from the saddle.

    >>> callable(result_rows)
    True
    """
    chosen = EXPERIMENTS[experiment]
    rate, strength = chosen_setting(experiment, arm=arm)
    runs = [(split, start) for split in range(SPLITS) for start in range(STARTS)]
    found = train(
        chosen, arm=arm, runs=runs, rate=rate, strength=strength, steps=steps or chosen.steps
    )
    return [
        {"split": split, "start": start, **row}
        for (split, start), row in zip(runs, found, strict=True)
    ]


def train(
    experiment: Experiment,
    *,
    arm: str,
    runs: list[tuple[int, int]],
    rate: float,
    strength: float,
    steps: int,
) -> Rows:
    """What trainings of the (split, start) in `runs`, side by side, give on their test sets.

    >>> given = {"arm": "attention", "rate": 0.01, "strength": 0.6}
    >>> sorted(train(EXPERIMENTS["copies"], runs=[(0, 0)], steps=1, **given)[0])[:2]
    ['accuracy', 'bits']
    """
    models, tasks, seeds = networks(experiment, arm=arm, runs=runs, strength=strength)
    found = fit(
        models,
        tasks=tasks,
        steps=steps,
        rates=[rate] * len(runs),
        seeds=seeds,
        looks=(steps,),
        probed=0,
    )
    return [
        {
            "parameters": parameter_count(model),
            "accuracy": float(f"{looks[0].accuracy:.4g}"),
            "bits": float(f"{looks[0].loss / math.log(2):.4g}"),
            **_meter(model, task),
        }
        for model, task, looks in zip(models, tasks, found, strict=True)
    ]


def _meter(model: TokenClassifier, task: Task) -> dict[str, float]:
    with torch.no_grad():
        model(task.test[0][:40])
    told = [
        layer.validity().summary()
        for layer in model.layers
        if isinstance(layer, SpinTransformerModule)
    ]
    return {
        name: float(f"{np.mean([one[name] for one in told]):.4g}") if told else math.nan
        for name in ("converged", "physical", "distance")
    }


RESULTS = {
    name: Table(path=_HERE / f"{name}.csv", units=_units(name), rows=result_rows)
    for name in EXPERIMENTS
}
SHORTER = Table(
    path=_HERE / "shorter.csv",
    units=[
        {"experiment": "copies", "arm": arm, "steps": 100}
        for arm in ("saddle", "one step", "frozen couplings", "attention", "transformer")
    ],
    rows=result_rows,
)


def count_rows(*, split: int) -> Rows:
    """Bits per masked character from counts.

    >>> callable(count_rows)
    True
    """
    return [masked_count_bits(split)]


COUNTS = Table(
    path=_HERE / "counts.csv", units=[{"split": split} for split in range(SPLITS)], rows=count_rows
)
