"""What the stacks are trained on: digits cut into patches, recall of pairs, masked copies.

Tokens are (count, N, features), labels (count,), or (count, N) with −100 where none is asked for.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from compendium.common.patches import digit_patches
from spinformer.core.random import torch_generator

VALIDATION = 297
TEST = 500
# Recall: pairs of a key and a value.
PAIRS = 7
KEYS = 8
VALUES = 8
# Copies: tokens, kinds of content, and marks, each of which one source and one masked token bear.
TOKENS = 16
SYMBOLS = 8
MARKS = 4
Sample = Callable[[int, Generator], tuple[Tensor, Tensor]]


class Task(NamedTuple):
    """`sample(count, generator)` draws tokens and labels to train on; `validation` and `test` are
    fixed sets of both; `shape` is what a `TokenClassifier` must know."""

    sample: Sample
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    shape: dict[str, Any]


def digit_rows(split: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which of the digits are for training, validation and test.

    The validation set is the same for every `split`, which draws the test set of the others.
    """
    aside = torch.randperm(1797, generator=torch_generator(12345))
    others = aside[VALIDATION:]
    others = others[torch.randperm(len(others), generator=torch_generator(split))]
    return others[TEST:], aside[:VALIDATION], others[:TEST]


def digit_task(split: int) -> Task:
    """Digits of `digit_rows` as 8 patches, 2 pixels high and 4 wide; read from the mean token."""
    train, held, test = digit_rows(split)
    tokens, labels = digit_patches(2, 4)
    tokens = (tokens - tokens[train].mean()) / tokens[train].std()

    def sample(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        chosen = train[torch.randint(len(train), (count,), generator=generator)]
        return tokens[chosen], labels[chosen]

    shape = {"tokens": 8, "features": 8, "classes": 10, "readout": "mean"}
    return Task(sample, (tokens[held], labels[held]), (tokens[test], labels[test]), shape)


def recall_task(split: int) -> Task:
    """7 tokens hold a key and a value each, the last one a key: which value belongs to it?

    Keys are 7 of 8, in any order, values any of 8, both one-hot; the last token is marked.
    """

    def sample(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        keys = torch.rand(count, KEYS, generator=generator).argsort(-1)[:, :PAIRS]
        values = torch.randint(VALUES, (count, PAIRS), generator=generator)
        asked = torch.randint(PAIRS, (count, 1), generator=generator)
        tokens = torch.zeros(count, PAIRS + 1, KEYS + VALUES + 1)
        tokens[:, :, :KEYS] = one_hot(torch.cat([keys, keys.gather(1, asked)], 1), KEYS)
        tokens[:, :PAIRS, KEYS:-1] = one_hot(values, VALUES)
        tokens[:, PAIRS, -1] = 1.0
        return 3 * tokens, values.gather(1, asked)[:, 0]

    return _endless(sample, split, classes=VALUES, readout="last")


def copy_task(split: int) -> Task:
    """Four of 16 tokens are masked and marked; each has the content of the token with its mark.

    Every token but the masked ones holds one of 8 contents, and four of these twelve bear a mark
    each. Features are one-hot, times the root of their number: embedded as large as positions.
    """

    def sample(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        content = torch.randint(SYMBOLS, (count, TOKENS), generator=generator)
        places = torch.rand(count, TOKENS, generator=generator).argsort(-1)
        sources = places[:, :MARKS]
        masked = places[:, MARKS : 2 * MARKS]
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

    return _endless(sample, split, classes=SYMBOLS, readout="every")


def _endless(sample: Sample, split: int, **shape: Any) -> Task:
    """New samples without end; `split` draws the test set, the validation set is one for all."""
    test = sample(TEST, torch_generator(20000 + split))
    _, tokens, features = test[0].shape
    validation = sample(VALIDATION, torch_generator(12345))
    return Task(sample, validation, test, {"tokens": tokens, "features": features, **shape})


def crowd_share(draws: int, *, kinds: int) -> float:
    """How often one of `draws` values is guessed right by the most frequent of them, in the mean.

    For n draws of K kinds, none comes more often than m with P = n! [xⁿ] (Σ_{k≤m} xᵏ/k!)^K / Kⁿ,
    and the mean of the largest number is Σ_m (1 − P).
    """
    mean = 0.0
    for most in range(draws):
        part = np.polynomial.Polynomial([1 / math.factorial(k) for k in range(most + 1)])
        powers = (part**kinds).coef
        below = powers[draws] * math.factorial(draws) / kinds**draws if len(powers) > draws else 0.0
        mean += 1 - below
    return mean / draws
