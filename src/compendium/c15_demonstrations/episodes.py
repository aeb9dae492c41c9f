"""Episodes: a few labelled digits, then one more digit that asks for its label.

Of the ten classes of digits six are for training and four are kept for the test; which ones, a
seed decides. An episode takes two classes, A and B, gives each a word (one of WORDS), and shows
k_A digits of A and k_B of B, each together with its word: the demonstrations. The query is one
more digit of A or B without a word. Several seeds are drawn at once, on axis 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compendium.common.images import digit_labels, digits
from spinformer.core.random import numpy_generator

WORDS = 8

# One seed's split: for each part the row numbers of its classes, an array a class; and "labelings",
# each the different words of the six training classes.
Pool = dict[str, list[np.ndarray]]
Counts = tuple[float, float]


class Episodes(NamedTuple):
    """Row numbers of the images and the words beside them, (S, B, T) both, query last.

    The demonstrations of A come first, then those of B; the query's word is WORDS, "no word".
    `pair` (S, B, 2): the words of A and B. `target` (S, B): the right word for the query.
    `classes` (S, B, 2): A and B by their place in the part's list of classes.
    """

    rows: Tensor
    words: Tensor
    pair: Tensor
    target: Tensor
    classes: Tensor

    @property
    def images(self) -> Tensor:
        """The images themselves as inputs, (S, B, T, 64)."""
        return digit_inputs()[self.rows]


@cache
def digit_inputs() -> Tensor:
    """All digits as inputs (1797, 64), float64: each with mean 0 and norm 8 over its pixels."""
    images = digits()
    images = images - images.mean(1, keepdims=True)
    return torch.as_tensor(8.0 * images / np.linalg.norm(images, axis=1, keepdims=True))


def split_digits(seed: int, *, labelings: int = 0) -> Pool:
    """The classes and images of a seed: 6 classes, three quarters of their images for training.

    The last quarter ("valid") and the four other classes ("test") are never trained on. Without
    `labelings` every episode has its own words.
    """
    generator, labels = np.random.default_rng([seed, 1]), digit_labels()
    kinds = [generator.permutation(np.flatnonzero(labels == k)) for k in generator.permutation(10)]
    words = np.random.default_rng([seed, 5]).random((labelings, WORDS)).argsort(1)
    return {
        "train": [rows[: len(rows) * 3 // 4] for rows in kinds[:6]],
        "valid": [rows[len(rows) * 3 // 4 :] for rows in kinds[:6]],
        "test": kinds[6:],
        "labelings": list(words[:, :6]),
    }


def streams(pools: Sequence[Pool], seed: int) -> list[np.random.Generator]:
    """A generator for the episodes of each training."""
    return [np.random.default_rng([seed, place]) for place in range(len(pools))]


def draw_episodes(
    pools: Sequence[Pool],
    *,
    part: str,
    count: int,
    shown: tuple[int, int],
    seeds: Sequence[np.random.Generator | int],
    share_a: float = 0.5,
) -> Episodes:
    """`count` episodes for each seed, with `shown` = (k_A, k_B) demonstrations.

    The query is of class A with probability `share_a`. Words are two different ones at random; for
    the training classes of a split with labelings one of these, drawn for each episode, gives both.
    """
    drawn = []
    for pool, seed in zip(pools, seeds, strict=True):
        generator, rows = numpy_generator(seed), pool[part]
        classes = generator.random((count, len(rows))).argsort(1)[:, :2]
        if part == "test" or not pool["labelings"]:
            pair = generator.random((count, WORDS)).argsort(1)[:, :2]
        else:
            chosen = generator.integers(len(pool["labelings"]), size=count)
            pair = np.take_along_axis(np.stack(pool["labelings"])[chosen], classes, 1)
        side = np.where(generator.random((count, 1)) < share_a, 0, 1)
        which = np.repeat([0, 1], shown)
        kinds = np.concatenate([classes[:, which], np.take_along_axis(classes, side, 1)], 1)
        sizes = np.array([len(row) for row in rows])
        table = np.stack([np.resize(row, sizes.max()) for row in rows])
        chosen = (generator.random(kinds.shape) * sizes[kinds]).astype(int)
        words = np.concatenate([pair[:, which], np.full((count, 1), WORDS)], 1)
        target = np.take_along_axis(pair, side, 1)[:, 0]
        drawn.append((table[kinds, chosen], words, pair, target, classes))
    columns = zip(*drawn, strict=True)
    return Episodes(*(torch.as_tensor(np.stack(column)) for column in columns))
