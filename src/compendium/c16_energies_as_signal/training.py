"""Training many copies at once: each has its own split of the digits, start and batches.

Adam (Kingma and Ba 2015), the rate falling to zero along a cosine. A copy's result does not
depend on which others are trained beside it (up to rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from compendium.c16_energies_as_signal.network import Shape, initial_weights
from compendium.c16_energies_as_signal.signals import signal_loss
from compendium.common.copies import cooled
from compendium.common.token_tasks import digits_as_tokens
from spinformer.core.random import torch_generator
from spinformer.core.records import record

VALIDATION = 298  # images of the training part of a split that choose rates and the like
# The batches of a copy come from another stream than its first weights.
_BATCHES = 1_000_003
BATCH = 32


@record
class Digits:
    """The digits as 16 patches of 2 x 2 pixels, one split a copy: tokens (C, n, 16, 4), labels
    (C, n), of 900 images to train on, 298 to choose with and 599 to test on."""

    train: Tensor
    train_labels: Tensor
    validation: Tensor
    validation_labels: Tensor
    test: Tensor
    test_labels: Tensor

    def batch(self, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
        """BATCH images and labels to train on for every copy, drawn by its own generator."""
        copies, count = self.train_labels.shape
        drawn = [torch.randint(count, (BATCH,), generator=one) for one in generators]
        rows, chosen = torch.arange(copies).unsqueeze(-1), torch.stack(drawn)
        return self.train[rows, chosen], self.train_labels[rows, chosen]


def split_digits(seeds: Sequence[int]) -> Digits:
    """One split of the 1797 digits for every seed."""
    splits = [digits_as_tokens(seed=seed) for seed in seeds]
    tokens = torch.stack([split.train_tokens for split in splits])
    labels = torch.stack([split.train_labels for split in splits])
    return Digits(
        train=tokens[:, VALIDATION:],
        train_labels=labels[:, VALIDATION:],
        validation=tokens[:, :VALIDATION],
        validation_labels=labels[:, :VALIDATION],
        test=torch.stack([split.test_tokens for split in splits]),
        test_labels=torch.stack([split.test_labels for split in splits]),
    )


def train_copies(
    shape: Shape,
    *,
    signal: str,
    seeds: Sequence[int],
    rate: float,
    data: Digits,
    steps: int,
    keep: Sequence[int] = (),
) -> dict[int, dict[str, Tensor]]:
    """Weights of all copies after each number of updates in `keep` and at the end, by number.

    Copy c starts from `seeds[c]` and uses split c of `data`.
    """
    generators = [torch_generator(seed + _BATCHES) for seed in seeds]
    weights = initial_weights(shape, seeds=seeds)

    def losses() -> Tensor:
        tokens, labels = data.batch(generators)
        return signal_loss(
            weights, shape, signal=signal, tokens=tokens, labels=labels, generators=generators
        )

    return update_copies(weights, losses=losses, rate=rate, steps=steps, keep=keep)


def update_copies(
    weights: dict[str, Tensor],
    *,
    losses: Callable[[], Tensor],
    rate: float,
    steps: int,
    keep: Sequence[int] = (),
) -> dict[int, dict[str, Tensor]]:
    """Lower the losses (C,) of the next batch, again and again, by changing `weights` in place.

    Returns the weights after each number of updates in `keep` and at the end, by number. Weights
    that a loss does not reach stay as they are.
    """
    optimizer = torch.optim.Adam([weight.requires_grad_() for weight in weights.values()])
    kept = {}
    for step in range(steps + 1):
        if step in keep or step == steps:
            kept[step] = {name: weight.detach().clone() for name, weight in weights.items()}
        if step == steps:
            break
        found = losses()
        if not bool(torch.isfinite(found.detach()).all()):
            raise RuntimeError(f"the loss is no longer finite in update {step + 1}: lower rates")
        optimizer.param_groups[0]["lr"] = rate * cooled(step, steps)
        optimizer.zero_grad()
        found.sum().backward()
        optimizer.step()
    return kept
