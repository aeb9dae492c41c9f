"""Table of settings of A12: where contrastive divergence finds what exact learning finds.

The digits are learned exactly and by CD-1, each from the same images. CD may choose its rate on
images of its own, and either keeps it or lets it fall to zero and averages the second half of its
steps. value: one nat less the nats by which its held-out loss is above that of exact learning, so
that above zero the two agree within a nat.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c13_memory_density.study import PICTURES, digit_pictures
from compendium.common.rows import grid, mean_rows
from spinformer.core.random import torch_generator
from spinformer.hopfield.density import contrastive_gradient, fit, loss

SPLITS = 5
STEPS = 60
PATTERNS = 20
# Rates of CD over 1/β; each split takes the one that is best on images it does not learn from.
RATES = (0.3, 1.0, 3.0)


def contrastive_fit(
    start: Tensor, *, data: Tensor, beta: float, rate: float, schedule: str, seed: int
) -> Tensor:
    """Patterns after STEPS steps of CD-1 at a "constant" rate, or with an "annealed" one.

    Annealed: the rate falls linearly to zero and the patterns of the second half are averaged.
    """
    generator = torch_generator(seed)
    patterns, mean = start.clone(), torch.zeros_like(start)
    for step in range(STEPS):
        gradient = contrastive_gradient(patterns, data=data, beta=beta, seed=generator)
        falling = 1.0 - step / STEPS if schedule == "annealed" else 1.0
        patterns = patterns - rate * falling / beta * gradient
        mean += patterns * (2 * step >= STEPS) / (STEPS - STEPS // 2)
    return mean if schedule == "annealed" else patterns


def lost_by_cd(pictures: str, *, beta: float, schedule: str, split: int) -> float:
    """Nats of held-out loss of CD-1, at its best rate, above that of exact learning."""
    everything = digit_pictures(pictures)
    order = torch.randperm(len(everything), generator=torch_generator(900 + split))
    train, tune, test = everything[order].split([1000, 300, len(everything) - 1300])
    start = train[:PATTERNS]
    exact = fit(start, data=train, beta=beta, max_steps=STEPS, tolerance=1e-6).patterns
    tried = [
        contrastive_fit(start, data=train, beta=beta, rate=rate, schedule=schedule, seed=split)
        for rate in RATES
    ]
    losses = [float(loss(patterns, data=tune, beta=beta)) for patterns in tried]
    best = tried[int(np.nanargmin(losses))]
    held = (float(loss(patterns, data=test, beta=beta)) for patterns in (best, exact))
    return next(held) - next(held)


@stored(
    Path(__file__).with_name("settings_A12.csv"),
    units=grid(pictures=PICTURES, beta=(1.0, 2.0, 5.0), schedule=("constant", "annealed")),
    seconds=20.0,
    within={"value": 1.0, "low": 2.0, "high": 2.0},
)
def SETTINGS(pictures: str, beta: float, schedule: str) -> Rows:
    """One kind of pictures, temperature and schedule, all splits."""
    lost = [lost_by_cd(pictures, beta=beta, schedule=schedule, split=s) for s in range(SPLITS)]
    return mean_rows(1.0 - np.array(lost))
