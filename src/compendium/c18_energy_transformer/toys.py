"""Energy transformers small enough to draw, and random ones whose uphill steps are counted.

A token of three components has a normalised token on a circle of radius √3 (γ = 1, δ = 0): one
angle. Two such tokens have an energy that is a map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from compendium.c18_energy_transformer.energy_transformer import EnergyTransformer
from spinformer.core.checks import check_array
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

KINDS = ("random keys", "opposed keys")


def tokens_at(angles: Tensor) -> Tensor:
    """Tokens (..., 3) of spread 1 at angles (...), radians, in the plane that is normal to 1."""
    return 3**0.5 * torch.stack([angles.cos(), angles.sin()], -1) @ _basis(angles.dtype)


def angles_of(tokens: Tensor) -> Tensor:
    """Angles (...), radians in (−π, π], of tokens (..., 3)."""
    first, second = (tokens @ _basis(tokens.dtype).mT).unbind(-1)
    return torch.atan2(second, first)


def two_token_model(*, key_side: bool, step_size: float, seed: int) -> EnergyTransformer:
    """An energy transformer for tokens of three components, one head of width two, β = 2."""
    model = EnergyTransformer(
        3,
        heads=1,
        head_width=2,
        patterns=2,
        step_size=step_size,
        beta=2.0,
        key_side=key_side,
        seed=seed,
        dtype=torch.float64,
    )
    with torch.no_grad():
        model.patterns.mul_(0.5)
    return model


@record
class UphillSteps:
    """Of steps at multiples of the safe step size: the share that raised the energy.

    factors, share: (n,). violations: how many of all steps changed the energy by more than the
    bound of the theorem. steps: how many there were at each factor.
    """

    factors: np.ndarray
    share: np.ndarray
    violations: int
    steps: int


def count_uphill(
    kind: str, *, factors: Sequence[float], trials: int = 10, batch: int = 20, seed: Seed = 0
) -> UphillSteps:
    """Three steps of `trials` random models on `batch` sets of eight tokens that share a direction.

    kind: "random keys" (Gaussian maps and memory), or "opposed keys" (keys are minus the queries,
    no memory), the case in which the energy curves upwards: tokens that repel each other. Both
    are warm, β = 0.1, so that every query looks at all keys.
    """
    multiples = check_array("factors", factors, ndim=1, low=0.0, open_low=True)
    generator = numpy_generator(seed)
    rising = np.zeros(len(multiples), dtype=int)
    violations = steps = 0
    for _ in range(trials):
        model = EnergyTransformer(
            6, patterns=12, beta=0.1, seed=int(generator.integers(2**31)), dtype=torch.float64
        )
        if kind == "opposed keys":
            with torch.no_grad():
                model.key_map.copy_(-model.query_map)
                model.patterns.zero_()
        own, common = (generator.standard_normal((batch, size, 6)) for size in (8, 1))
        tokens = torch.as_tensor(0.3 * own + common)
        safe = float(model.safe_step(tokens).min())
        for index, factor in enumerate(multiples):
            model.step_size = float(factor) * safe
            found = model.descend(tokens, steps=3)
            change = found.energies.diff(dim=0)
            slack = 1e-10 * (1 + found.energies[:-1].abs())
            rising[index] += int((change > slack).sum())
            violations += int((change > found.bounds + slack).sum())
        steps += change.numel()
    return UphillSteps(factors=multiples, share=rising / steps, violations=violations, steps=steps)


def _basis(dtype: torch.dtype) -> Tensor:
    rows = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]], dtype=dtype)
    return rows / rows.norm(dim=-1, keepdim=True)
