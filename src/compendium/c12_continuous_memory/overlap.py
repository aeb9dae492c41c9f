"""A theory of retrieval among random patterns."""

from __future__ import annotations

import numpy as np


def random_pattern_overlap(count: int, *, dim: int, beta: float) -> float:
    """Overlap m = x_iᵀξ*/d of the fixed point reached from one of N random patterns, theory.

    For N = `count` independent patterns of d = `dim` components of unit variance and norm √d.
    At ξ = m x_i + (rest) the pattern itself scores βdm, the others are Gaussian of variance β²dm²,
    and weighted by e^{score} their mean is βξ (annealed: right while β√d stays below √(2 log N)).
    So p = 1/(1 + (N − 1) exp(β²dm²/2 − βdm)) and m = p/(1 − (1 − p)β), iterated from m = 1; our
    own estimate, for β < 1. The pattern is lost where the iteration falls to m ≈ 0.
    """
    overlap = 1.0
    for _ in range(2_000):
        exponent = 0.5 * beta**2 * dim * overlap**2 - beta * dim * overlap
        weight = 1.0 / (1.0 + (count - 1) * float(np.exp(exponent)))
        before, overlap = overlap, weight / (1.0 - (1.0 - weight) * beta)
        if overlap == before:
            break
    return overlap
