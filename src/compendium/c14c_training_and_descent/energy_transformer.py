"""A layer whose step is the gradient of one energy of all tokens [hoover2023energy].

Tokens x_A ∈ R^D, A = 1 … N, are seen normalised, g_A = (x_A − x̄_A)/σ_A with the spread
σ_A² = mean_i (x_Ai − x̄_A)² + ε. The energy, here of one head,

    E(g) = −β⁻¹ Σ_C lse_B(β k_B · q_C) − ½ Σ_A Σ_μ max(0, ξ_μ · g_A)²

has queries q_C = Q g_C, keys k_B = K g_B and a memory of patterns ξ_μ. A step is x ← x − α ∂E/∂g.
Shapes: tokens (..., N, D).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.random import Seed, numpy_generator

EPSILON = 1e-5
KINDS = ("random keys", "opposed keys")
TRIALS = 10
BATCH = 20


class EnergyLayer(NamedTuple):
    """Q and K (Y, D), patterns (M, D), inverse temperature."""

    query_map: Tensor
    key_map: Tensor
    patterns: Tensor
    beta: float


def normalize(tokens: Tensor) -> Tensor:
    """g: the gradient of the convex function D Σ_A σ_A."""
    return functional.layer_norm(tokens, tokens.shape[-1:], eps=EPSILON)


def energy(layer: EnergyLayer, seen: Tensor) -> Tensor:
    """E, shape (...), of normalised tokens g (..., N, D)."""
    scores = layer.beta * (seen @ layer.query_map.mT) @ (seen @ layer.key_map.mT).mT
    free = torch.logsumexp(scores, dim=-1).sum(-1) / layer.beta
    return -free - 0.5 * (seen @ layer.patterns.mT).relu().square().sum((-1, -2))


def gradient(layer: EnergyLayer, seen: Tensor) -> Tensor:
    """∂E/∂g (..., N, D)."""
    slope: Tensor = torch.func.grad(lambda g: energy(layer, g).sum())(seen)
    return slope


def safe_step(layer: EnergyLayer, tokens: Tensor) -> Tensor:
    """A step size, shape (...), below which one step cannot raise the energy.

    min_A σ_A / (ℓ/2 + max_A ‖∂E/∂g_A‖/√D), ℓ = 2 √N ‖Qᵀ K‖₂ (proof: chapter 14c).
    """
    size, width = tokens.shape[-2:]
    coupling = torch.linalg.matrix_norm(layer.query_map.mT @ layer.key_map, ord=2)
    force = gradient(layer, normalize(tokens)).norm(dim=-1).amax(-1) / width**0.5
    spread = (tokens.var(-1, correction=0) + EPSILON).sqrt()
    return spread.amin(-1) / (size**0.5 * coupling + force)


def uphill_shares(kind: str, *, factors: Sequence[float], seed: Seed = 0) -> np.ndarray:
    """Share of steps that raise the energy, at each of `factors` times the safe step size.

    Three steps of TRIALS random layers of width six on six components, warm (β = 0.1), on BATCH
    sets of eight tokens that share a direction. "opposed keys" are minus the queries, without a
    memory.
    """
    generator = numpy_generator(seed)
    rising = np.zeros(len(factors))
    for _ in range(TRIALS):
        drawn = torch.as_tensor(generator.standard_normal((24, 6)))
        queries = drawn[:6] / 6**0.5
        keys = drawn[6:12] / 6**0.5
        patterns = drawn[12:] / 12**0.5
        if kind == "opposed keys":
            keys = -queries
            patterns = 0.0 * patterns
        layer = EnergyLayer(queries, keys, patterns, beta=0.1)
        own = generator.standard_normal((BATCH, 8, 6))
        common = generator.standard_normal((BATCH, 1, 6))
        tokens = torch.as_tensor(0.3 * own + common)
        safe = float(safe_step(layer, tokens).min())
        for index, factor in enumerate(factors):
            moved = tokens
            before = energy(layer, normalize(tokens))
            for _ in range(3):
                moved = moved - factor * safe * gradient(layer, normalize(moved))
                after = energy(layer, normalize(moved))
                rising[index] += float((after > before + 1e-10 * (1 + before.abs())).double().sum())
                before = after
    return rising / (3 * TRIALS * BATCH)
