"""The continuous memory as a probability model: p(ξ) = e^{−βE(ξ)}/Z, normalised exactly.

E(ξ) = ½‖ξ‖² − β⁻¹ lse(β x_i·ξ) (document 001; Ramsauer et al. 2020 without their constants).
Because e^{−βE} = Σ_i exp(β x_i·ξ − ½β‖ξ‖²) = Σ_i e^{β‖x_i‖²/2} exp(−½β‖ξ − x_i‖²),

    Z = (2π/β)^{d/2} Σ_i e^{β‖x_i‖²/2},     p(ξ) = Σ_i w_i N(ξ; x_i, 1/β),
    w = softmax(½β‖x_i‖²):

a mixture of N equal Gaussians whose weights are not free: they are tied to the norms of the means.
A hidden one-of-N unit z with p(ξ, z) ∝ exp(β x_z·ξ − ½β‖ξ‖²) makes it a restricted Boltzmann
machine, with p(z|ξ) = softmax(β x_z·ξ) and ξ|z ~ N(x_z, 1/β).

Conventions. Patterns are rows, (N, d), the document's X transposed; states and data are rows,
(…, d) and (M, d). β > 0 multiplies the energy; the document has β = 1. Everything is a float
torch tensor and differentiable unless said otherwise; only `fit` and `sample` draw or iterate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit, wrightomega
from torch import Tensor
from tqdm import tqdm

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor

METHODS = ("gradient", "em", "cd")


def energy(patterns: Tensor, *, states: Tensor, beta: float = 1.0) -> Tensor:
    """E(ξ) = ½‖ξ‖² − β⁻¹ lse(β x_i·ξ), shape (…)."""
    patterns, states, beta = _check(patterns, states, beta)
    scores = beta * states @ patterns.T
    return 0.5 * (states**2).sum(-1) - torch.logsumexp(scores, -1) / beta


def log_weights(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """ln w_i = log softmax(½β‖x_i‖²), shape (N,)."""
    patterns, beta = _check_patterns(patterns, beta)
    return torch.log_softmax(0.5 * beta * (patterns**2).sum(-1), -1)


def log_partition(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """log Z = (d/2) log(2π/β) + lse(½β‖x_i‖²), a scalar."""
    patterns, beta = _check_patterns(patterns, beta)
    constant = 0.5 * patterns.shape[1] * math.log(2 * math.pi / beta)
    return constant + torch.logsumexp(0.5 * beta * (patterns**2).sum(-1), -1)


def log_prob(patterns: Tensor, *, states: Tensor, beta: float = 1.0) -> Tensor:
    """log p(ξ) = −βE(ξ) − log Z, shape (…), in nats."""
    return -beta * energy(patterns, states=states, beta=beta) - log_partition(patterns, beta=beta)


def sample(
    patterns: Tensor, *, count: int, beta: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """`count` independent exact samples of p, shape (count, d): a pattern by its weight, then
    Gaussian noise of variance 1/β. No gradient."""
    patterns, beta = _check_patterns(patterns, beta)
    count = check_integer("count", count, low=1)
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
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run block Gibbs sampling from `states`, (M, d), for `steps` ≥ 1: z | ξ, then ξ | z.

    Leaves p invariant, but hops between patterns of equal norm at a rate of order
    exp(−β‖x_i − x_j‖²/8) only: separated patterns do not mix in any affordable time. No gradient.
    """
    patterns, states, beta = _check(patterns, states, beta)
    steps = check_integer("steps", steps, low=1)
    with torch.no_grad():
        for _ in range(steps):
            hidden = torch.softmax(beta * states @ patterns.T, -1)
            chosen = torch.multinomial(hidden, 1, generator=generator).squeeze(-1)
            states = _noisy(patterns[chosen], beta, generator)
    return states


def pair_mixing(patterns: Tensor, *, beta: float = 1.0) -> float:
    """Second eigenvalue λ in [0, 1] of the hidden unit's Gibbs chain for two patterns, (2, d).

    One sweep sends pattern i to j ≠ i with P_ij = E[softmax_j(βXξ)], ξ ~ N(x_i, 1/β): a Gaussian
    mean of a logistic function, by quadrature. The weight of a pattern forgets its start
    as λ^sweeps, λ = 1 − P_12 − P_21; λ → 1 for separated patterns. Raises if N ≠ 2.
    """
    patterns, beta = _check_patterns(patterns, beta)
    if patterns.shape[0] != 2:
        raise ValueError(f"patterns must hold exactly two patterns, got {patterns.shape[0]}")
    first, second = patterns.detach().double()
    spread = math.sqrt(beta) * float((second - first).norm())
    # Trapezoids converge exponentially here while the step resolves the logistic's width.
    nodes = np.linspace(-12.0, 12.0, 200 * math.ceil(24 + spread) + 1)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    hops = 0.0
    for here, there in ((first, second), (second, first)):
        shift = beta * float((there - here) @ here)
        hops += float(weights @ expit(shift + spread * nodes))
    return 1.0 - hops


def loss(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """The exact negative log-likelihood per datum, −mean log p(ξ), in nats (document 001: L_ML)."""
    patterns, data, beta = _check_data(patterns, data, beta)
    return -log_prob(patterns, states=data, beta=beta).mean()


def loss_gradient(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """Gradient of `loss` by hand, shape (N, d).

    Row i is β(w_i x_i − s_i), s_i = mean over data of softmax_i(β X ξ) ξ. In the document's
    layout: −β E[ξ ⊗ softmax(βXᵀξ)] + β X diag(softmax(½β diag XᵀX)); it prints the second term
    without the diag, which would be one d-vector in place of a d × N matrix.
    """
    patterns, data, beta = _check_data(patterns, data, beta)
    weights = log_weights(patterns, beta=beta).exp()
    return beta * (weights[:, None] * patterns - _pull(patterns, data, beta))


def contrastive_gradient(
    patterns: Tensor,
    *,
    data: Tensor,
    beta: float = 1.0,
    steps: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """CD-k: the gradient with the model average replaced by k Gibbs steps from the data, (N, d).

    β(mean over negatives − mean over data of ξ ⊗ softmax(βXξ)) (Hinton 2002).
    """
    patterns, data, beta = _check_data(patterns, data, beta)
    negatives = gibbs(patterns, states=data, steps=steps, beta=beta, generator=generator)
    return beta * (_pull(patterns, negatives, beta) - _pull(patterns, data, beta))


def em_update(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """One expectation–maximisation step under the tied weights, (N, d); never raises `loss`.

    With s_i = mean of softmax_i(βXξ) ξ held, the expected complete log-likelihood
    β Σ_i x_i·s_i − lse(½β‖x_i‖²) is concave in X. At its maximum w_i x_i = s_i, so x_i points
    along s_i and its length t_i solves t_i e^{βt_i²/2} = ‖s_i‖ S, S = Σ_j e^{βt_j²/2}. Given S
    that is Lambert's function, βt_i² = W₀(β‖s_i‖²S²); what is left is one monotone equation for
    S. A pattern with s_i = 0 goes to 0. No gradient.
    """
    patterns, data, beta = _check_data(patterns, data, beta)
    with torch.no_grad():
        pull = _pull(patterns, data, beta)
        lengths = pull.norm(dim=-1)
        target = _lengths(lengths.double().cpu().numpy(), beta)
        scale = torch.as_tensor(target, dtype=pull.dtype, device=pull.device) / lengths.clamp_min(
            torch.finfo(pull.dtype).tiny
        )
        return pull * scale[:, None]


@dataclass(frozen=True)
class Fit:
    """patterns: (N, d), the last iterate. losses: (steps + 1,), exact `loss` on the training data
    before the first and after every step. converged: the last step lowered the loss by less
    than the tolerance (always False for "cd", whose steps are noisy)."""

    patterns: Tensor
    losses: np.ndarray
    converged: bool


def fit(
    patterns: Tensor,
    *,
    data: Tensor,
    beta: float = 1.0,
    method: str = "em",
    steps: int = 500,
    rate: float = 0.1,
    tolerance: float = 1e-10,
    cd_steps: int = 1,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Fit:
    """Learn the stored patterns from `data`, (M, d), starting from `patterns`.

    method: "em" (exact maximum likelihood, no step size), "gradient" (exact gradient, steps
    X ← X − rate·∇L: the document's update) or "cd" (the same with CD-`cd_steps` gradients).
    "em" and "gradient" stop when a step lowers the loss by less than `tolerance` nats.
    """
    patterns, data, beta = _check_data(patterns, data, beta)
    check_choice("method", method, METHODS)
    steps = check_integer("steps", steps, low=1)
    rate = check_real("rate", rate, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    cd_steps = check_integer("cd_steps", cd_steps, low=1)
    patterns = patterns.detach().clone()
    data = data.detach()
    losses = [float(loss(patterns, data=data, beta=beta))]
    converged = False
    for _ in tqdm(range(steps), disable=not progress, desc=method):
        if method == "em":
            patterns = em_update(patterns, data=data, beta=beta)
        elif method == "gradient":
            patterns = patterns - rate * loss_gradient(patterns, data=data, beta=beta)
        else:
            patterns = patterns - rate * contrastive_gradient(
                patterns, data=data, beta=beta, steps=cd_steps, generator=generator
            )
        losses.append(float(loss(patterns, data=data, beta=beta)))
        converged = method != "cd" and abs(losses[-2] - losses[-1]) < tolerance
        if converged:
            break
    return Fit(patterns, np.array(losses), converged)


def _pull(patterns: Tensor, data: Tensor, beta: float) -> Tensor:
    """s_i = mean over the data of softmax_i(β X ξ) ξ, shape (N, d)."""
    return torch.softmax(beta * data @ patterns.T, -1).T @ data / data.shape[0]


def _noisy(means: Tensor, beta: float, generator: torch.Generator | None) -> Tensor:
    noise = torch.randn(means.shape, dtype=means.dtype, device=means.device, generator=generator)
    return means + noise / math.sqrt(beta)


def _lengths(pull: np.ndarray, beta: float) -> np.ndarray:
    """t_i ≥ 0 with t_i softmax_i(½βt²) = `pull`_i; β is scaled away by t → √β t."""
    active = pull > 0
    result = np.zeros_like(pull)
    if not active.any():
        return result
    log_pull = np.log(math.sqrt(beta) * pull[active])

    def squares(log_z: float) -> np.ndarray:
        # t e^{t²/2} = sZ  ⇔  t² e^{t²} = (sZ)²  ⇔  t² = W₀((sZ)²) = ω(2 ln s + 2 ln Z).
        return wrightomega(2.0 * (log_pull + log_z))

    # Inactive patterns sit at t = 0 and contribute e⁰ each to Z.
    idle = np.count_nonzero(~active)

    def excess(log_z: float) -> float:
        # Σ e^{t²/2} + idle = Z, divided by Z; falls with Z, since e^{t²/2}/Z = s/t.
        return float(np.exp(0.5 * squares(log_z) - log_z).sum() + idle * math.exp(-log_z) - 1.0)

    low, high = math.log(pull.size), math.log(pull.size) + 1.0
    while excess(high) > 0:
        high += high - low
    # Σ e^{t²/2} ≥ N: with Z = N, the smallest value there is, all lengths vanish.
    root = low if excess(low) <= 0 else brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16)
    result[active] = np.sqrt(squares(root) / beta)
    return result


def _check_patterns(patterns: Any, beta: Any) -> tuple[Tensor, float]:
    patterns = check_tensor("patterns", patterns, ndim=2)
    if 0 in patterns.shape:
        raise ValueError(
            f"patterns must hold at least one pattern, got shape {tuple(patterns.shape)}"
        )
    return patterns, check_real("beta", beta, low=0.0, open_low=True)


def _check(patterns: Any, states: Any, beta: Any) -> tuple[Tensor, Tensor, float]:
    patterns, beta = _check_patterns(patterns, beta)
    states = check_tensor("states", states)
    if states.ndim == 0 or states.shape[-1] != patterns.shape[1]:
        raise ValueError(
            f"states must have {patterns.shape[1]} entries along the last axis, like the "
            f"patterns, got shape {tuple(states.shape)}"
        )
    if states.dtype != patterns.dtype:
        raise TypeError(f"states must be {patterns.dtype} like the patterns, got {states.dtype}")
    return patterns, states, beta


def _check_data(patterns: Any, data: Any, beta: Any) -> tuple[Tensor, Tensor, float]:
    patterns, beta = _check_patterns(patterns, beta)
    data = check_tensor("data", data, shape=(None, patterns.shape[1]))
    if data.shape[0] == 0:
        raise ValueError(f"data must hold at least one row, got shape {tuple(data.shape)}")
    if data.dtype != patterns.dtype:
        raise TypeError(f"data must be {patterns.dtype} like the patterns, got {data.dtype}")
    return patterns, data, beta
