"""Tasks of sixteen tokens with several answers a sample: masked copies, masked characters.

Tokens are (count, 16, features), labels (count, 16) with −100 where nothing is asked. Features are
one-hot, times the root of their number: embedded, they are about as large as the positions.

Networks, rates and splits of the stored tables are those of `tables`, of starting strengths two.
Couplings of places come to the crowd's 0.34 in recall, too.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from bookmaker.tables import Rows, Table
from compendium.c24_training.study import fit
from compendium.c24_training.tables import SPLITS, STARTS, Experiment, choice, networks, tune
from compendium.common.classifiers import TokenClassifier, parameter_count
from compendium.common.help_text import ALPHABET, WEIGHTS, cut_text, mixed
from compendium.common.token_tasks import TEST, VALIDATION, Task
from spinformer.core.random import torch_generator
from spinformer.spins.module import SpinTransformerModule

TOKENS = 16
# Copies: kinds of content, and marks, each of which one source and one masked token bear.
SYMBOLS, MARKS = 8, 4
# Characters: three of a window are masked, this far apart, the first at 1 to 4.
APART, MASKS = 5, 3


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


def text_parts(split: int) -> dict[str, Tensor]:
    """The text for `split`: validation is its first tenth always, test the one number 1 + 2 split.

    Splits count modulo five; the test parts of five splits share nothing.
    """
    return cut_text(validation=0, test=1 + 2 * (split % 5))


def character_task(split: int) -> Task:
    """Windows of 16 characters of `help_text`, three of them masked: which are they?

    Masked are places r, r + 5 and r + 10, r drawn from 1 to 4, so that both neighbours of a masked
    character are there. Judged on windows one after the other, every second of the part, with
    r = 1, 2, 3, 4 in turn.
    """
    parts = text_parts(split)
    train = parts["train"]

    def sample(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(train) - TOKENS, (count,), generator=generator)
        first = torch.randint(1, APART, (count,), generator=generator)
        return masked_windows(train, starts=starts, first=first)

    held = {}
    for name in ("validation", "test"):
        starts = torch.arange(0, len(parts[name]) - TOKENS, 2 * TOKENS)
        first = 1 + torch.arange(len(starts)) % (APART - 1)
        held[name] = masked_windows(parts[name], starts=starts, first=first)
    return Task(sample=sample, **held, shape=_shape(len(ALPHABET) + 1, len(ALPHABET)))


def masked_windows(text: Tensor, *, starts: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Windows of `text` from `starts` on, masked from place `first` on: tokens and labels."""
    found = text[starts[:, None] + torch.arange(TOKENS)]
    masked = first[:, None] + APART * torch.arange(MASKS)
    labels = torch.full_like(found, -100).scatter_(1, masked, found.gather(1, masked))
    shown = found.scatter(1, masked, len(ALPHABET))
    features = len(ALPHABET) + 1
    return math.sqrt(features) * one_hot(shown, features).float(), labels


def masked_count_bits(split: int) -> dict[str, float]:
    """Bits per masked character of the test windows, from counts in the training part.

    unigram: p(c). bigram: given the character a before, (n_ac + κ p(c))/(n_a + κ). trigram: given
    both neighbours, (n_acb + κ q(c))/(n_ab + κ), where q ∝ p(c|a) p(b|c) is what pairs say of both.
    κ is chosen on the validation windows.
    """
    size, parts = len(ALPHABET), text_parts(split)
    train = parts["train"].numpy()
    one = (np.bincount(train, minlength=size) + 1.0) / (len(train) + size)
    two = np.bincount(train[:-1] * size + train[1:], minlength=size**2).reshape(size, size)
    # Axes: the character before, the one after, the one between.
    codes = (train[:-2] * size + train[2:]) * size + train[1:-1]
    three = np.bincount(codes, minlength=size**3).reshape(size, size, size)
    task = character_task(split)

    def bits(held: tuple[Tensor, Tensor], table: np.ndarray) -> float:
        shown, labels = held[0].argmax(-1).numpy(), held[1].numpy()
        rows, places = np.nonzero(labels >= 0)
        near = shown[rows, places - 1], shown[rows, places + 1], labels[rows, places]
        return float(-np.log2(table[near]).mean())

    def whole(table: np.ndarray) -> np.ndarray:
        return np.broadcast_to(table, (size, size, size))

    options = [mixed(two, below=one, weight=weight) for weight in WEIGHTS]
    pairs = min(options, key=lambda table: bits(task.validation, whole(table[:, None])))
    both = pairs[:, None, :] * pairs.T[None]
    both = both / both.sum(-1, keepdims=True)
    options = [mixed(three, below=both, weight=weight) for weight in WEIGHTS]
    triples = min(options, key=lambda table: bits(task.validation, table))
    return {
        "unigram": bits(task.test, whole(one)),
        "bigram": bits(task.test, whole(pairs[:, None])),
        "trigram": bits(task.test, triples),
    }


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
    "characters": Experiment(
        task=character_task,
        depth=2,
        steps=250,
        arms=(
            *("saddle", "one step", "frozen couplings", "positions"),
            *("attention", "transformer"),
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
    for name in ("copies", "characters")
}


def chosen_setting(experiment: str, *, arm: str) -> tuple[float, float]:
    """Rate and strength that tuning chose."""
    return choice(experiment, arm=arm, tuning=TUNING[experiment])


def result_rows(*, experiment: str, arm: str, steps: int | None = None) -> Rows:
    """A row for each of five splits with two starts: test accuracy, bits an answer, the meter.

    After `steps` updates, those of the experiment if none are given. The meter is that of 40 test
    samples, its mean over the layers: shares of systems that `converged` and that are `physical`,
    `distance` from the saddle.
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
    """Bits per masked character from counts."""
    return [masked_count_bits(split)]


COUNTS = Table(
    path=_HERE / "counts.csv", units=[{"split": split} for split in range(SPLITS)], rows=count_rows
)
