"""How a change of one module's parameters cascades through a stack of four, before and after
training.

All parameters of the first module move by a thousandth of their root mean square in a random
direction. Γ is the relative change of the last module's output over that of the first module's
[bal2021transformers, Sec. 10].

Criterion of B11b, written before any training of this table: the change cascades if it grows from
the first module to the last, ln Γ > 0, before training and after it, in stacks of spins that start
from g = 0.2 to 0.6. Expected: it grows little before training, where layers make tokens alike.
"""

from copy import deepcopy

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, parameter_product
from compendium.common.token_classifiers import TokenClassifier, build_classifier
from compendium.common.token_tasks import digit_task
from compendium.common.token_training import train_arm
from compendium.common.training_grids import QUARTERS
from spinformer.core.random import torch_generator

DEPTH = 4
SIZE = 1e-3  # of the change, relative


@torch.no_grad()
def log_growth(network: TokenClassifier, tokens: torch.Tensor, *, seed: int) -> float:
    """ln Γ of one stack for these tokens."""
    plain = deepcopy(network).double()
    moved = deepcopy(plain)
    generator = torch_generator(seed)
    for parameter in moved.layers[0].parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.add_(SIZE * parameter.square().mean().sqrt() * noise)
    here = plain.embed(tokens.double())
    there = here
    changes = []
    for layer, other in zip(plain.layers, moved.layers, strict=True):
        here = layer(here)
        there = other(there)
        changes.append(float((there - here).norm() / here.norm()))
    return float(torch.tensor(changes[-1] / changes[0]).log())


@stored(
    "settings_B11b",
    parameter_product(strength=(0.1, 0.2, 0.3, 0.45, 0.6, 1.0), rate=QUARTERS[1:4:2]),
    small={"strength": 0.2, "rate": 0.0018, "count": 2, "updates": 8},
    seconds=6.0,
    within={"value": 0.1, "low": 0.3, "high": 0.3},
)
def settings_b11b(strength: float, rate: float, *, count: int = 5, updates: int = 120) -> Rows:
    """Mean ln Γ of five stacks of spins on splits of their own, before and after training."""
    first = 3000 + round(1000 * strength) + (500 if rate > 0.003 else 0)
    splits = range(first, first + count)
    cells = parameter_product(rate=[rate], split=splits, strength=[strength])
    trained = train_arm("saddle", digit_task, cells, depth=DEPTH, steps=updates)
    lines = []
    for look in ("before", "after"):
        found = []
        for (_, network, task, _), split in zip(trained, splits, strict=True):
            if look == "before":
                start = {"depth": DEPTH, "strength": strength, **task.shape}
                network = build_classifier("saddle", seed=1000 * split, **start)
            found.append(log_growth(network, task.test[0][:40], seed=split))
        line = {"data": f"g{strength} rate {rate}", "look": look}
        lines.append(line | mean_rows(np.array(found))[0])
    return lines
