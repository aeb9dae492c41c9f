"""Episodes: a few labelled digits, then one more digit that asks for its label.

Of the ten classes of digits six are for training and four are kept for the test; which ones, a
seed decides. An episode takes two classes, A and B, gives each a word (one of WORDS), and shows
k_A digits of A and k_B of B, each together with its word: the demonstrations. The query is one
more digit of A or B without a word. Several seeds are drawn at once, on axis 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from compendium.common.images import digit_labels, digits
from spinformer.core.random import numpy_generator
from spinformer.core.records import record

WORDS = 8
TRAINING_CLASSES = 6
PARTS = ("train", "valid", "test")


@record
class Pools:
    """Images of one seed's split: `rows[part]` is a list of arrays of row numbers, one a class.

    `classes` are the ten classes in the order of the split, the first six for training.
    """

    classes: np.ndarray
    rows: dict[str, list[np.ndarray]]


@record
class Episodes:
    """Row numbers of the images and the words beside them, (S, B, T) both, query last.

    The demonstrations of A come first, then those of B; the query's word is WORDS, "no word".
    `pair` (S, B, 2): the words of A and B. `target` (S, B): the right word for the query.
    `classes` (S, B, 2): A and B by their place in the part's list of classes.
    """

    rows: Tensor
    words: Tensor
    pair: Tensor
    target: Tensor
    classes: np.ndarray


def digit_inputs() -> Tensor:
    """All digits as inputs (1797, 64), float64: each with mean 0 and norm 8 over its pixels."""
    images = digits()
    images = images - images.mean(1, keepdims=True)
    return torch.as_tensor(8.0 * images / np.linalg.norm(images, axis=1, keepdims=True))


def split_digits(seed: int) -> Pools:
    """The classes and images of a seed: 6 classes, three quarters of their images for training.

    The last quarter ("valid") and the four other classes ("test") are never trained on.
    """
    generator = np.random.default_rng([seed, 1])
    classes, labels = generator.permutation(10), digit_labels()
    rows: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for place, number in enumerate(classes):
        found = generator.permutation(np.flatnonzero(labels == number))
        if place < TRAINING_CLASSES:
            first = len(found) * 3 // 4
            rows["train"].append(found[:first])
            rows["valid"].append(found[first:])
        else:
            rows["test"].append(found)
    return Pools(classes=classes, rows=rows)


def draw_labelings(count: int, *, seed: int) -> np.ndarray:
    """`count` labelings (count, 6): each gives the six training classes different words."""
    draws = np.random.default_rng([seed, 5]).random((count, WORDS))
    return draws.argsort(1)[:, :TRAINING_CLASSES]


def draw_episodes(
    pools: Sequence[Pools],
    *,
    part: str,
    count: int,
    shown: tuple[int, int],
    seeds: Sequence[np.random.Generator | int],
    share_a: float = 0.5,
    labelings: Sequence[np.ndarray] | None = None,
) -> Episodes:
    """`count` episodes for each seed, with `shown` = (k_A, k_B) demonstrations.

    The query is of class A with probability `share_a`. Words are two different ones at random;
    with `labelings` (one array (M, 6) a seed) one of the M labelings, drawn for each episode,
    gives both.
    """
    columns: list[list[np.ndarray]] = [[], [], [], [], []]
    for place, (pool, seed) in enumerate(zip(pools, seeds, strict=True)):
        generator, rows = numpy_generator(seed), pool.rows[part]
        classes = generator.random((count, len(rows))).argsort(1)[:, :2]
        if labelings is None:
            pair = generator.random((count, WORDS)).argsort(1)[:, :2]
        else:
            table = labelings[place]
            chosen = generator.integers(len(table), size=count)
            pair = np.take_along_axis(table[chosen], classes, 1)
        side = np.where(generator.random((count, 1)) < share_a, 0, 1)
        which = np.repeat([0, 1], shown)
        kinds = np.concatenate([classes[:, which], np.take_along_axis(classes, side, 1)], 1)
        sizes = np.array([len(row) for row in rows])
        table = np.stack([np.resize(row, sizes.max()) for row in rows])
        columns[0].append(table[kinds, (generator.random(kinds.shape) * sizes[kinds]).astype(int)])
        columns[1].append(np.concatenate([pair[:, which], np.full((count, 1), WORDS)], 1))
        columns[2].append(pair)
        columns[3].append(np.take_along_axis(pair, side, 1)[:, 0])
        columns[4].append(classes)
    images, words, pair, target, classes = (np.stack(column) for column in columns)
    return Episodes(
        rows=torch.as_tensor(images),
        words=torch.as_tensor(words),
        pair=torch.as_tensor(pair),
        target=torch.as_tensor(target),
        classes=classes,
    )
