"""Trainings of the few-shot reader: what the episodes of a training are like, and the loop.

The goals differ in how demonstrations and query are drawn, never in the model:

* "balanced": k of each class, k = 0 … 8; the query is of either class alike;
* "matched": k_A and k_B on their own; the query is of A with probability k_A/(k_A + k_B), as if
  demonstrations and query came from one lopsided source;
* "neutral": k_A and k_B on their own; the query is of either class alike, so that the counts say
  nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from compendium.c15_demonstrations.episodes import (
    Episodes,
    digit_inputs,
    draw_episodes,
    draw_labelings,
    split_digits,
)
from compendium.c15_demonstrations.model import WIDTH, Weights, initial_weights, read
from compendium.common.copies import cooled
from spinformer.core.records import record

MOST = 8  # demonstrations of a class
BATCH = 32


@record
class Lessons:
    """How to train: the first seed and how many, steps, and what the episodes are like.

    labelings: how many labelings of the six classes there are, 0 for a new one in every episode.
    shuffled: share of the batches whose pixels are shuffled, all images of a batch alike; without
    them the model learns the features of its six classes and no others.
    """

    first_seed: int = 0
    count: int = 10
    steps: int = 1000
    goal: str = "balanced"
    kind: str = "softmax"
    labelings: int = 0
    shuffled: float = 0.5
    rate: float = 2e-3

    @property
    def seeds(self) -> list[int]:
        """The seeds that are trained together."""
        return list(range(self.first_seed, self.first_seed + self.count))


def train(lessons: Lessons) -> Weights:
    """Train by Adam on the cross-entropy of the query's word; weights in float64, detached.

    Weights, classes and episodes of a seed are its own; the sizes k of the demonstrations and the
    shuffles of a step are shared by the seeds that are trained together.
    """
    inputs = digit_inputs().float()
    pools = [split_digits(seed) for seed in lessons.seeds]
    tables = labelings_of(lessons)
    generators = [np.random.default_rng([seed, 3]) for seed in lessons.seeds]
    shared = np.random.default_rng([lessons.first_seed, 4])
    weights = {name: w.requires_grad_() for name, w in initial_weights(lessons.seeds).items()}
    optimizer = torch.optim.Adam(list(weights.values()), lr=lessons.rate, betas=(0.9, 0.99))
    for step in range(lessons.steps):
        warm = min(1.0, (step + 1) / 50)
        optimizer.param_groups[0]["lr"] = lessons.rate * warm * cooled(step, lessons.steps)
        shown, share_a = _sizes(lessons.goal, shared)
        episodes = draw_episodes(
            pools, part="train", count=BATCH, shown=shown, seeds=generators,
            share_a=share_a, labelings=tables,
        )  # fmt: skip
        images = inputs[episodes.rows]
        if shared.random() < lessons.shuffled:
            images = images[..., torch.as_tensor(shared.permutation(WIDTH))]
        logits = read(weights, images=images, words=episodes.words, kind=lessons.kind).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), episodes.target.flatten())
        # Each seed has the gradient of its own mean: the mean over all, times their number.
        optimizer.zero_grad()
        (loss * lessons.count).backward()
        optimizer.step()
    return {name: w.detach().double() for name, w in weights.items()}


def labelings_of(lessons: Lessons) -> Sequence[np.ndarray] | None:
    """The labelings (M, 6) of each seed, None where every episode has its own."""
    if lessons.labelings == 0:
        return None
    return [draw_labelings(lessons.labelings, seed=seed) for seed in lessons.seeds]


def accuracy(weights: Weights, episodes: Episodes, *, kind: str = "softmax") -> np.ndarray:
    """Share of the queries whose highest word is the right one, for each training (S,)."""
    images = digit_inputs()[episodes.rows]
    with torch.no_grad():
        found = read(weights, images=images, words=episodes.words, kind=kind)
    return (found.logits.argmax(-1) == episodes.target).double().mean(1).numpy()


def _sizes(goal: str, shared: np.random.Generator) -> tuple[tuple[int, int], float]:
    first, second = (int(k) for k in shared.integers(MOST + 1, size=2))
    if goal == "balanced":
        return (first, first), 0.5
    if goal == "neutral" or first + second == 0:
        return (first, second), 0.5
    return (first, second), first / (first + second)
