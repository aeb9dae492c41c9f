"""Tasks of sixteen tokens with several answers a sample: masked copies.

Tokens are (count, 16, features), labels (count, 16) with −100 where nothing is asked. Features are
one-hot, times the root of their number: embedded, they are about as large as the positions.

Networks and splits of the stored table are those of `tables`. Couplings of places come to the
crowd's 0.34 in recall, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from bookmaker.tables import Rows, stored
from compendium.c24_training.study import four_digits, train_arm
from compendium.c24_training.tables import SPLITS, STARTS
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
        shape={
            "tokens": TOKENS,
            "features": SYMBOLS + MARKS + 1,
            "classes": SYMBOLS,
            "readout": "every",
        },
    )


UPDATES = 400
# Rate and starting strength of the least mean validation loss of two trainings, rates half a decade
# apart, strengths 0.6 and 2.
CHOSEN = {
    "saddle": (0.01, 2.0),
    "one step": (0.01, 2.0),
    "frozen couplings": (0.03, 2.0),
    "positions": (0.01, 2.0),
    "free spins": (0.01, 0.6),
    "attention": (0.03, 0.6),
    "transformer": (0.03, 0.6),
}


def train(arm: str, *, runs: Sequence[tuple[int, int]]) -> Rows:
    """What trainings of the (split, start) in `runs`, side by side, give on their test sets."""
    models, _, found = train_arm(
        arm,
        copy_task,
        runs=[(*run, *CHOSEN[arm]) for run in runs],
        depth=1,
        steps=UPDATES,
        looks=(UPDATES,),
        probed=0,
    )
    return [
        {
            "split": split,
            "start": start,
            "parameters": parameter_count(model),
            **four_digits({"accuracy": look.accuracy, "bits": look.loss / math.log(2)}),
        }
        for (split, start), model, (look,) in zip(runs, models, found, strict=True)
    ]


@stored(
    Path(__file__).with_name("copies.csv"),
    units=[{"experiment": "copies", "arm": arm} for arm in CHOSEN],
)
def COPIES(experiment: str, arm: str) -> Rows:
    """A row for each of five splits with two starts: test accuracy, bits an answer."""
    return train(arm, runs=[(s, start) for s in range(SPLITS) for start in range(STARTS)])
