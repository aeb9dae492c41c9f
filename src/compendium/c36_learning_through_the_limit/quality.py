"""How good the three gradients are, where the exact one is known: few bits, a window of two tokens.

Every update follows the eight starts of a cycle of the eight tokens of three signs, in eight
copies. The variance is that of an update, times its copies, over the squared norm of the
reference; the reference is the exact gradient up to 15 bits, the limit's for more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c36_learning_through_the_limit.learning import exact_costs, rollout, surrogate
from compendium.common.rows import grid
from spinformer.core.records import record

SEGMENTS, FEATURES, CONTEXT = 3, 3, 2
PUSH: dict[str, Any] = {"beta": 1.5, "gamma": 5.0}
EXACT_SIZES = (3, 6, 9, 15)
SIZES = (*EXACT_SIZES, 99, 990, 9900, 99_000)
ESTIMATORS = ("limit", "straight", "score", "score, no baseline")
COPIES = 8


@record
class Small:
    """A small network and its cycle: θ (4, P, L), window (8, T, L), targets (8, 8, L)."""

    theta: Tensor
    window: Tensor
    targets: Tensor


def draw_small(seed: int) -> Small:
    """The network and the cycle of a seed: normal θ, the eight tokens in random order."""
    generator = np.random.default_rng([seed, 30])
    theta = torch.as_tensor(generator.standard_normal((4, FEATURES, SEGMENTS)))
    numbers = generator.permutation(2**SEGMENTS)
    signs = 2.0 * ((numbers[:, None] >> np.arange(SEGMENTS)) & 1) - 1.0
    tokens = torch.as_tensor(signs[(np.arange(8)[:, None] + np.arange(CONTEXT + 8)) % 8])
    return Small(theta=theta, window=tokens[:, :CONTEXT], targets=tokens[:, CONTEXT:])


def exact_gradient(small: Small, *, size: int) -> Tensor:
    """Gradient of the mean cost in θ, (4, P, L), of N = `size` bits."""
    theta = small.theta.clone().requires_grad_()
    weights = torch.tanh(theta)
    costs = exact_costs(weights, window=small.window, targets=small.targets, size=size, **PUSH)
    return torch.autograd.grad(costs.mean(), theta)[0]


def estimates(
    small: Small, *, estimator: str, size: int, updates: int = 1, seed: int = 0
) -> Tensor:
    """Independent estimates of the gradient, (updates, 4, P, L), each from eight copies.

    estimator: one of ESTIMATORS; the limit has one estimate only.
    """
    limit, kind = estimator == "limit", estimator.split(",")[0]
    updates, copies = (1, 1) if limit else (updates, COPIES)
    theta = small.theta.expand(updates, -1, -1, -1).clone().requires_grad_()
    shape = (updates, copies, 1, 1)
    paths = rollout(
        torch.tanh(theta), window=small.window.repeat(shape), targets=small.targets.repeat(shape),
        size=None if limit else size, straight=kind != "score", seed=seed, **PUSH,
    )  # fmt: skip
    value = surrogate(paths, kind=kind, copies=copies if estimator == "score" else 1)
    return torch.autograd.grad(value.sum(), theta)[0]


def one_bit(strength: float) -> dict[str, tuple[float, float, float]]:
    """Slopes in a of the second cost of one bit, h₁ = a and h₂ = a x₁: after x₁ = 1, −1, and mean.

    Of the limit, straight-through and REINFORCE (without baseline); a = `strength`, the target
    is up. In the limit x₁ is its mean, whatever is drawn.
    """
    up = 1.0 / (1.0 + np.exp(-2.0 * strength))
    found = {}
    for kind in ("limit", "straight", "score"):
        a = torch.full((64, 1, 1, 1), strength, dtype=torch.float64, requires_grad=True)
        ones = torch.ones_like(a)
        paths = rollout(
            torch.cat([a, ones, ones, ones], 1), window=ones, targets=ones.expand(-1, -1, 2, -1),
            beta=1.0, gamma=0.0, size=None if kind == "limit" else 1, straight=kind != "score",
        )  # fmt: skip
        second, drawn = paths.costs[:, 0, 1], paths.tokens[:, 0, 1, 0].detach()
        value = second + second.detach() * paths.scores[:, 0, 0] * (kind == "score")
        slopes = torch.autograd.grad(value.sum(), a)[0].flatten()
        ends = [slopes[0]] * 2 if kind == "limit" else [slopes[drawn == x][0] for x in (1.0, -1.0)]
        first, other = float(ends[0]), float(ends[1])
        found[kind] = (first, other, float(up * first + (1.0 - up) * other))
    return found


@stored(
    Path(__file__).parent / "quality.csv",
    units=grid(seed=range(10), size=SIZES),
    seconds=2.0,
    rtol=1e-3,
)
def QUALITY(seed: int, *, size: int) -> Rows:
    """Bias over the norm of the reference, cosine of an update with it, variance of one path.

    The square of the bias is that of the mean of all updates less the variance of this mean, at
    least zero.
    """
    small = draw_small(seed)
    if size in EXACT_SIZES:
        reference = exact_gradient(small, size=size).flatten()
    else:
        reference = estimates(small, estimator="limit", size=size).flatten()
    norm = float(reference.norm())
    rows = []
    for estimator in ESTIMATORS:
        found = estimates(small, estimator=estimator, size=size, updates=128, seed=seed)
        found = found.flatten(1)
        count = len(found)
        spread = float(found.var(0).sum()) if count > 1 else 0.0
        off = float((found.mean(0) - reference).square().sum()) - spread / count
        cosine = torch.nn.functional.cosine_similarity(found, reference[None]).mean()
        rows.append(
            {
                "estimator": estimator,
                "bias": float(np.sqrt(max(off, 0.0))) / norm,
                "cosine": float(cosine),
                "variance": spread * (COPIES if count > 1 else 0) / norm**2,
            }
        )
    return rows
