"""How slowly block Gibbs sampling hops between two patterns, exactly."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit
from torch import Tensor


def pair_mixing(patterns: Tensor, *, beta: float = 1.0) -> float:
    """Second eigenvalue λ in [0, 1] of the hidden unit's Gibbs chain for two patterns, (2, d).

    One sweep sends pattern i to j ≠ i with P_ij = E[softmax_j(βXξ)], ξ ~ N(x_i, 1/β): a Gaussian
    mean of a logistic function, by quadrature. The weight of a pattern forgets its start
    as λ^sweeps, λ = 1 − P_12 − P_21; λ → 1 for separated patterns.
    """
    first, second = patterns.detach().double()
    spread = math.sqrt(beta) * float((second - first).norm())
    shifts = [
        beta * float((there - here) @ here) for here, there in ((first, second), (second, first))
    ]
    # Trapezoids converge exponentially here while the step resolves the logistic's width.
    nodes = np.linspace(-12.0, 12.0, 200 * math.ceil(24 + spread) + 1)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    return 1.0 - sum(float(weights @ expit(shift + spread * nodes)) for shift in shifts)
