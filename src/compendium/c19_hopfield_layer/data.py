"""Bags of handwritten digits with one label each."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from compendium.common.images import digit_labels, digits
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

RULES = ("needle", "majority")
PARTS = ("train", "validation", "test")
TARGET = 9
SIZE = 11


@record
class Bags:
    """images: (bags, SIZE, 64) in [−1, 1]; classes: (bags, SIZE); labels: (bags,), 0 or 1."""

    images: Tensor
    classes: Tensor
    labels: Tensor


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Images and classes, read once: reading takes as long as training on them."""
    return digits(), digit_labels()


def split_digits(seed: Seed) -> dict[str, np.ndarray]:
    """Indices of `images.digits` for training (60 %), validation and test (20 % each)."""
    order = numpy_generator(seed).permutation(len(_digits()[1]))
    cuts = (len(order) * 3 // 5, len(order) * 4 // 5)
    return dict(zip(PARTS, np.split(order, cuts), strict=True))


def draw_bags(count: int, *, rule: str, part: str, seed: int) -> Bags:
    """`count` bags of one part of the split that belongs to `seed`.

    Needle: even bags hold no 9, odd ones exactly one, at a random place. Majority: digits are
    drawn independently, the label is 1 where at least 6 of the 11 are 5 or larger.
    """
    indices = split_digits(seed)[part]
    rng = numpy_generator(np.random.default_rng([seed, PARTS.index(part), RULES.index(rule)]))
    images, kinds = _digits()
    classes = kinds[indices]
    if rule == "needle":
        rest, targets = indices[classes != TARGET], indices[classes == TARGET]
        chosen = rng.choice(rest, (count, SIZE))
        odd = np.arange(1, count, 2)
        chosen[odd, rng.integers(SIZE, size=len(odd))] = rng.choice(targets, len(odd))
    else:
        chosen = rng.choice(indices, (count, SIZE))
    classes = kinds[chosen]
    labels = (classes == TARGET).any(1) if rule == "needle" else (classes >= 5).sum(1) > SIZE // 2
    return Bags(
        images=torch.as_tensor(images[chosen], dtype=torch.float32),
        classes=torch.as_tensor(classes),
        labels=torch.as_tensor(labels, dtype=torch.float32),
    )
