"""The continuous memory as a probability model: p(ξ) = e^{−βE(ξ)}/Z, normalized exactly.

E(ξ) = ½‖ξ‖² − β⁻¹ lse(β x_i·ξ) is `continuous.energy`. Because
e^{−βE} = Σ_i exp(β x_i·ξ − ½β‖ξ‖²) = Σ_i e^{β‖x_i‖²/2} exp(−½β‖ξ − x_i‖²),

    Z = (2π/β)^{d/2} Σ_i e^{β‖x_i‖²/2},     p(ξ) = Σ_i w_i N(ξ; x_i, 1/β),
    w = softmax(½β‖x_i‖²)        [bal2020energy, Eqs. (13), (16), (17), at β = 1]:

a mixture of N equal Gaussians whose weights are not free: they are tied to the norms of the means.
A hidden one-of-N unit z with p(ξ, z) ∝ exp(β x_z·ξ − ½β‖ξ‖²) makes it a restricted Boltzmann
machine, with p(z|ξ) = softmax(β x_z·ξ) and ξ|z ~ N(x_z, 1/β).

Conventions. Patterns are rows, (N, d), the document's X transposed; states are rows, (…, d). β > 0
multiplies the energy. Everything is a float torch tensor and differentiable unless said otherwise.
Bad input raises TypeError or ValueError that names the argument.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import expit, ndtr
from torch import Tensor

from spinformer.core.checks import check_integer
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.hopfield.continuous import energy
from spinformer.hopfield.inputs import (
    check_beta,
    check_patterns,
    check_result,
    check_sample,
    largest_norm,
)

# Distance of two patterns, in standard deviations, from which their quadrature costs too much.
_STEEP = 1e4


def log_weights(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """ln w_i = log softmax(½β‖x_i‖²), shape (N,).

    >>> log_weights(torch.eye(2)).exp()
    tensor([0.5000, 0.5000])
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    return check_result("log weights", torch.log_softmax(0.5 * beta * (patterns**2).sum(-1), -1))


def log_partition(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """log Z = (d/2) log(2π/β) + lse(½β‖x_i‖²), a scalar [bal2020energy, Eq. (17)].

    >>> log_partition(torch.zeros(1, 2), beta=2 * math.pi)
    tensor(0.)
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    constant = 0.5 * patterns.shape[1] * math.log(2 * math.pi / beta)
    return check_result(
        "log partition", constant + torch.logsumexp(0.5 * beta * (patterns**2).sum(-1), -1)
    )


def log_prob(patterns: Tensor, *, states: Tensor, beta: float = 1.0) -> Tensor:
    """log p(ξ) = −βE(ξ) − log Z, shape (…), in nats.

    >>> f"{log_prob(torch.zeros(1, 2), states=torch.tensor([1.0, 0.0]), beta=2 * math.pi):.4f}"
    '-3.1416'
    """
    beta = check_beta(beta)
    return -beta * energy(patterns, states=states, beta=beta) - log_partition(patterns, beta=beta)


def sample(patterns: Tensor, *, count: int, beta: float = 1.0, seed: TorchSeed = 0) -> Tensor:
    """`count` independent exact samples of p, shape (count, d): a pattern by its weight, then
    Gaussian noise of variance 1/β. No gradient.

    >>> sample(torch.zeros(1, 2), count=3).shape
    torch.Size([3, 2])
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    count = check_integer("count", count, low=1)
    generator = torch_generator(seed, device=patterns.device)
    with torch.no_grad():
        weights = log_weights(patterns, beta=beta).exp()
        chosen = torch.multinomial(weights, count, replacement=True, generator=generator)
        return _noisy(patterns[chosen], beta, generator)


def gibbs(
    patterns: Tensor,
    *,
    states: Tensor,
    steps: int,
    beta: float = 1.0,
    seed: TorchSeed = 0,
) -> Tensor:
    """Run block Gibbs sampling from `states`, (M, d), for `steps` ≥ 1: z | ξ, then ξ | z.

    Leaves p invariant, but hops between patterns of equal norm at a rate of order
    exp(−β‖x_i − x_j‖²/8) only: separated patterns do not mix in any affordable time. No gradient.

    >>> gibbs(torch.zeros(1, 2), states=torch.ones(5, 2), steps=1).shape
    torch.Size([5, 2])
    """
    patterns, states, beta = check_sample(patterns, data=states, beta=beta, name="states")
    steps = check_integer("steps", steps, low=1)
    generator = torch_generator(seed, device=patterns.device)
    with torch.no_grad():
        for _ in range(steps):
            hidden = check_result("scores", torch.softmax(beta * states @ patterns.T, -1))
            chosen = torch.multinomial(hidden, 1, generator=generator).squeeze(-1)
            states = _noisy(patterns[chosen], beta, generator)
    return states


def pair_mixing(patterns: Tensor, *, beta: float = 1.0) -> float:
    """Second eigenvalue λ in [0, 1] of the hidden unit's Gibbs chain for two patterns, (2, d).

    One sweep sends pattern i to j ≠ i with P_ij = E[softmax_j(βXξ)], ξ ~ N(x_i, 1/β): a Gaussian
    mean of a logistic function, by quadrature. The weight of a pattern forgets its start
    as λ^sweeps, λ = 1 − P_12 − P_21; λ → 1 for separated patterns. Raises ValueError if N ≠ 2.

    >>> f"{pair_mixing(torch.tensor([[1.0], [-1.0]])):.2f}"
    '0.55'
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    if patterns.shape[0] != 2:
        raise ValueError(f"patterns must hold exactly two patterns, got {patterns.shape[0]}")
    first, second = patterns.detach().double()
    largest_norm(patterns.detach().double())
    spread = math.sqrt(beta) * float((second - first).norm())
    shifts = [
        beta * float((there - here) @ here) for here, there in ((first, second), (second, first))
    ]
    if spread > _STEEP:  # the logistic function is a step, to 1/spread²
        return 1.0 - sum(float(ndtr(shift / spread)) for shift in shifts)
    # Trapezoids converge exponentially here while the step resolves the logistic's width.
    nodes = np.linspace(-12.0, 12.0, 200 * math.ceil(24 + spread) + 1)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    return 1.0 - sum(float(weights @ expit(shift + spread * nodes)) for shift in shifts)


def _noisy(means: Tensor, beta: float, generator: torch.Generator | None) -> Tensor:
    noise = torch.randn(means.shape, dtype=means.dtype, device=means.device, generator=generator)
    return means + noise / math.sqrt(beta)
