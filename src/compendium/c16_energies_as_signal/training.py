"""Training many copies at once: each has its own split of the digits, start and batches.

Adam (Kingma and Ba 2015), the rate falling to zero along a cosine. A copy's result does not
depend on which others are trained beside it (up to rounding).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from compendium.c16_energies_as_signal.network import initial_weights
from compendium.c16_energies_as_signal.signals import signal_loss
from compendium.common.copies import update_copies
from compendium.common.token_tasks import digit_patches
from spinformer.core.random import torch_generator

TEST, VALIDATION = 599, 298  # images of a split; validation chooses rates and the like
# The batches of a copy come from another stream than its first weights.
_BATCHES = 1_000_003
BATCH = 32

# By part of the split: tokens (C, n, 16, 4) and labels (C, n).
Digits = dict[str, tuple[Tensor, Tensor]]


def split_digits(seeds: Sequence[int]) -> Digits:
    """The digits as 16 patches of 2 x 2 pixels, one split for every seed.

    900 images are there to "train" on, 298 for "validation", 599 to "test" on. Tokens are centred
    and scaled by mean and deviation of all that are not for the test.
    """
    patches, digits = digit_patches(2, 2)
    tokens, labels = [], []
    for seed in seeds:
        order = torch.randperm(len(digits), generator=torch_generator(seed))
        own = patches[order]
        tokens.append((own - own[TEST:].mean()) / own[TEST:].std())
        labels.append(digits[order])
    images, numbers = torch.stack(tokens), torch.stack(labels)
    parts = {
        "train": slice(TEST + VALIDATION, None),
        "validation": slice(TEST, TEST + VALIDATION),
        "test": slice(TEST),
    }
    return {name: (images[:, rows], numbers[:, rows]) for name, rows in parts.items()}


def draw_batch(data: Digits, *, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """BATCH images and labels to train on for every copy, drawn by its own generator."""
    tokens, labels = data["train"]
    chosen = torch.stack(
        [torch.randint(labels.shape[1], (BATCH,), generator=g) for g in generators]
    )
    rows = torch.arange(len(labels)).unsqueeze(-1)
    return tokens[rows, chosen], labels[rows, chosen]


def train_copies(
    signal: str,
    *,
    seeds: Sequence[int],
    rate: float,
    data: Digits,
    steps: int,
    keep: Collection[int] = (),
) -> dict[int, dict[str, Tensor]]:
    """Weights of all copies after each number of updates in `keep` and at the end, by number.

    Copy c starts from `seeds[c]` and uses split c of `data`.
    """
    generators = [torch_generator(seed + _BATCHES) for seed in seeds]
    weights = initial_weights(seeds)

    def losses() -> Tensor:
        tokens, labels = draw_batch(data, generators=generators)
        return signal_loss(weights, signal, tokens=tokens, labels=labels, generators=generators)

    return update_copies(weights, losses=losses, rate=rate, steps=steps, keep=keep)
