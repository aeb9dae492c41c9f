"""Training many copies at once: each has its own split of the digits, start, batches and rate.

Adam (Kingma and Ba 2015), the rate falling to zero along a cosine. A copy's result does not
depend on which others are trained beside it (up to rounding).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from compendium.c16_energies_as_signal.network import Shape, initial_weights
from compendium.c16_energies_as_signal.signals import signal_loss
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
    rates: Sequence[float],
    data: Digits,
    steps: int,
    keep: Sequence[int] = (),
) -> dict[int, dict[str, Tensor]]:
    """Weights of all copies after each number of updates in `keep` and at the end, by number.

    Copy c starts from `seeds[c]`, uses split c of `data`, the rate `rates[c]`.
    """
    generators = [torch_generator(seed + _BATCHES) for seed in seeds]
    weights = {
        name: weight.requires_grad_()
        for name, weight in initial_weights(shape, seeds=seeds).items()
    }
    optimizer = CopiesAdam(weights, rates=torch.tensor(list(rates)))
    kept = {}
    for step in range(steps + 1):
        if step in keep or step == steps:
            kept[step] = {name: weight.detach().clone() for name, weight in weights.items()}
        if step == steps:
            break
        tokens, labels = data.batch(generators)
        losses = signal_loss(
            weights,
            shape,
            signal=signal,
            tokens=tokens,
            labels=labels,
            generators=generators,
        )
        if not bool(torch.isfinite(losses.detach()).all()):
            raise RuntimeError(f"the loss is no longer finite in update {step + 1}: lower rates")
        optimizer.step(losses.sum(), scale=cooled(step, steps))
    return kept


def cooled(step: int, steps: int) -> float:
    """The share of a rate that is left along the cosine."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


class CopiesAdam:
    """Adam whose rate differs from copy to copy: `rates` (C,) for weights (C, ...).

    Weights that a loss does not reach stay as they are.
    """

    def __init__(self, weights: dict[str, Tensor], *, rates: Tensor) -> None:
        self.weights, self.rates, self.taken = weights, rates, 0
        self.first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def step(self, loss: Tensor, *, scale: float = 1.0) -> None:
        """One update along the gradient of the scalar `loss`, at `scale` times the rates."""
        slopes = torch.autograd.grad(loss, list(self.weights.values()), allow_unused=True)
        self.taken += 1
        small, large = 1 - 0.9**self.taken, 1 - 0.999**self.taken
        with torch.no_grad():
            for (name, weight), slope in zip(self.weights.items(), slopes, strict=True):
                if slope is None:
                    continue
                first, second = self.first[name], self.second[name]
                first.lerp_(slope, 0.1)
                second.mul_(0.999).addcmul_(slope, slope, value=0.001)
                rate = (scale * self.rates).reshape(-1, *[1] * (weight.ndim - 1))
                weight -= rate * (first / small) / ((second / large).sqrt() + 1e-8)
