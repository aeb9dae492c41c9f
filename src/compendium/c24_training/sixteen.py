"""Tasks of sixteen tokens with several answers a sample: masked copies.

Tokens are (count, 16, features), labels (count, 16) with −100 where nothing is asked. Features are
one-hot, times the root of their number: embedded, they are about as large as the positions.

Networks, rates and splits of the stored tables are those of `tables`, of starting strengths two.
Couplings of places come to the crowd's 0.34 in recall, too.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from bookmaker.tables import Rows, Table
from compendium.c24_training.study import fit
from compendium.c24_training.tables import SPLITS, STARTS, Experiment, choice, networks, tune
from compendium.common.classifiers import parameter_count
from compendium.common.token_tasks import TEST, VALIDATION, Task
from spinformer.core.random import torch_generator

TOKENS = 16
# Copies: kinds of content, and marks, each of which one source and one masked token bear.
SYMBOLS, MARKS = 8, 4


def copy_task(split: int) -> Task:
    """Four of 16 tokens are masked and marked; each has the content of the token with its mark.

    Every token but the masked ones holds one of 8 contents, drawn alike; of these 12, four sources
    bear one of four marks each, and the masked tokens bear the same. All stand anywhere. New
    samples without end; `split` draws the test set, the validation set is the same for all.
    """

    def sample(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        content = torch.randint(SYMBOLS, (count, TOKENS), generator=generator)
        places = torch.rand(count, TOKENS, generator=generator).argsort(-1)
        sources, masked = places[:, :MARKS], places[:, MARKS : 2 * MARKS]
        labels = torch.full((count, TOKENS), -100)
        labels.scatter_(1, masked, content.gather(1, sources))
        tokens = torch.zeros(count, TOKENS, SYMBOLS + MARKS + 1)
        tokens[..., :SYMBOLS] = one_hot(content, SYMBOLS)
        rows = torch.arange(count)[:, None]
        tokens[rows, masked] = 0.0
        tokens[rows, masked, -1] = 1.0
        for chosen in (sources, masked):
            tokens[rows, chosen, SYMBOLS + torch.arange(MARKS)] = 1.0
        return math.sqrt(tokens.shape[-1]) * tokens, labels

    return Task(
        sample=sample,
        validation=sample(VALIDATION, torch_generator(12345)),
        test=sample(TEST, torch_generator(20000 + split)),
        shape=_shape(SYMBOLS + MARKS + 1, SYMBOLS),
    )


def _shape(features: int, classes: int) -> dict[str, object]:
    return {"tokens": TOKENS, "features": features, "classes": classes, "readout": "every"}


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
}
STRENGTHS = (0.6, 2.0)
_HERE = Path(__file__).parent


def tuning_rows(*, experiment: str, arm: str) -> Rows:
    """Validation loss of every cell of the grid, as `tune` has it."""
    return tune(EXPERIMENTS[experiment], arm=arm, strengths=STRENGTHS)


def _units(name: str) -> list[dict[str, str]]:
    return [{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms]


TUNING = {
    name: Table(path=_HERE / f"tuning_{name}.csv", units=_units(name), rows=tuning_rows)
    for name in EXPERIMENTS
}


def chosen_setting(experiment: str, *, arm: str) -> tuple[float, float]:
    """Rate and strength that tuning chose."""
    return choice(experiment, arm=arm, tuning=TUNING[experiment])


def result_rows(*, experiment: str, arm: str, steps: int | None = None) -> Rows:
    """A row for each of five splits with two starts: test accuracy, bits an answer.

    After `steps` updates, those of the experiment if none are given.
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
    """What trainings of the (split, start) in `runs`, side by side, give on their test sets."""
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
        }
        for model, looks in zip(models, found, strict=True)
    ]


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
