"""A layer whose step is the gradient of one energy of all tokens [hoover2023energy].

Tokens x_A ∈ R^D, A = 1 … N, are seen normalised, g_A = (x_A − x̄_A)/σ_A with the spread
σ_A² = mean_i (x_Ai − x̄_A)² + ε. The energy

    E(g) = −β⁻¹ Σ_h Σ_C lse_B(β k_hB · q_hC) − ½ Σ_A Σ_μ max(0, ξ_μ · g_A)²

has queries q_hC = Q_h g_C and keys k_hB = K_h g_B, so that every token stands in it in both roles,
and a memory of patterns ξ_μ. A step is x ← x − α ∂E/∂g. Shapes: tokens (..., N, D).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

EPSILON = 1e-5
KINDS = ("random keys", "opposed keys")
TRIALS, BATCH = 10, 20


@record
class EnergyLayer:
    """query_map, key_map: (H, Y, D). patterns: (M, D). beta: inverse temperature of the heads."""

    query_map: Tensor
    key_map: Tensor
    patterns: Tensor
    beta: float


def spread(tokens: Tensor) -> Tensor:
    """σ, shape (..., N), of tokens (..., N, D)."""
    return (tokens.var(-1, correction=0) + EPSILON).sqrt()


def normalize(tokens: Tensor) -> Tensor:
    """g: the gradient of the convex function D Σ_A σ_A."""
    return functional.layer_norm(tokens, tokens.shape[-1:], eps=EPSILON)


def energy(layer: EnergyLayer, seen: Tensor) -> Tensor:
    """E, shape (...), of normalised tokens g (..., N, D)."""
    queries, keys = _heads(seen, layer.query_map), _heads(seen, layer.key_map)
    free = torch.logsumexp(layer.beta * queries @ keys.mT, dim=-1).sum((-1, -2)) / layer.beta
    return -free - 0.5 * (seen @ layer.patterns.mT).relu().square().sum((-1, -2))


def gradient(layer: EnergyLayer, seen: Tensor) -> Tensor:
    """∂E/∂g (..., N, D): what a token feels as a query, as a key, and from the memory."""
    queries, keys = _heads(seen, layer.query_map), _heads(seen, layer.key_map)
    weights = torch.softmax(layer.beta * queries @ keys.mT, dim=-1)
    as_query = (weights @ keys).transpose(-2, -3).flatten(-2) @ layer.query_map.flatten(0, 1)
    as_key = (weights.mT @ queries).transpose(-2, -3).flatten(-2) @ layer.key_map.flatten(0, 1)
    return -as_query - as_key - (seen @ layer.patterns.mT).relu() @ layer.patterns


def safe_step(layer: EnergyLayer, tokens: Tensor) -> Tensor:
    """A step size, shape (...), below which one step cannot raise the energy.

    min_A σ_A / (ℓ/2 + max_A ‖∂E/∂g_A‖/√D), ℓ = 2 √N Σ_h ‖Q_hᵀ K_h‖₂: no direction of g in which
    the energy curves upwards by more, and a step of α lowers a spread by at most α‖∂E/∂g_A‖/√D.
    """
    size, width = tokens.shape[-2:]
    couplings = torch.linalg.matrix_norm(layer.query_map.mT @ layer.key_map, ord=2).sum()
    force = gradient(layer, normalize(tokens)).norm(dim=-1).amax(-1) / width**0.5
    return spread(tokens).amin(-1) / (size**0.5 * couplings + force)


def uphill_shares(kind: str, *, factors: Sequence[float], seed: Seed = 0) -> np.ndarray:
    """Share of steps that raise the energy, at each of `factors` times the safe step size.

    Three steps of TRIALS random layers, one head of width six on six components, warm (β = 0.1), on
    BATCH sets of eight tokens that share a direction. kind: "random keys" (Gaussian maps and
    memory), or "opposed keys" (keys are minus the queries, no memory): tokens that repel each
    other, the case in which the energy curves upwards.
    """
    generator = numpy_generator(seed)
    rising = np.zeros(len(factors))
    for _ in range(TRIALS):
        drawn = torch.as_tensor(generator.standard_normal((24, 6)))
        queries, keys, patterns = drawn[:6] / 6**0.5, drawn[6:12] / 6**0.5, drawn[12:] / 12**0.5
        if kind == "opposed keys":
            keys, patterns = -queries, 0.0 * patterns
        layer = EnergyLayer(
            query_map=queries[None], key_map=keys[None], patterns=patterns, beta=0.1
        )
        own, common = (generator.standard_normal((BATCH, size, 6)) for size in (8, 1))
        tokens = torch.as_tensor(0.3 * own + common)
        safe = float(safe_step(layer, tokens).min())
        for index, factor in enumerate(factors):
            moved, before = tokens, energy(layer, normalize(tokens))
            for _ in range(3):
                moved = moved - factor * safe * gradient(layer, normalize(moved))
                after = energy(layer, normalize(moved))
                rising[index] += float((after > before + 1e-10 * (1 + before.abs())).double().sum())
                before = after
    return rising / (3 * TRIALS * BATCH)


def _heads(seen: Tensor, maps: Tensor) -> Tensor:
    """(..., N, D) through maps (H, Y, D): (..., H, N, Y)."""
    return (seen @ maps.flatten(0, 1).mT).unflatten(-1, maps.shape[:2]).transpose(-2, -3)
