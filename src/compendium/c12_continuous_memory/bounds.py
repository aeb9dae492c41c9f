"""Guarantees for continuous retrieval: separation, one-step error, contraction.

Patterns are rows, shape (N, d); M is the largest pattern norm; energy and update are those of
`continuous`. Everything is evaluated in logarithms first, so a bound far below 1e-308 becomes 0
and never NaN. Source: [ramsauer2020hopfield, Theorems 3 to 5]; the sharper forms are derived in
their docstrings.
"""

from __future__ import annotations

import math

import torch


def pattern_separation(patterns: torch.Tensor) -> torch.Tensor:
    """Δ_i = x_iᵀx_i − max_{j≠i} x_iᵀx_j, shape (N,). Needs N ≥ 2; Δ_i may be negative."""
    overlaps = patterns @ patterns.mT
    own = overlaps.diagonal().clone()
    return own - overlaps.fill_diagonal_(-math.inf).amax(-1)


def _largest_norm(patterns: torch.Tensor) -> float:
    """M, the largest norm of a pattern."""
    return float(torch.linalg.vector_norm(patterns, dim=-1).max())


def separation_threshold(patterns: torch.Tensor, *, beta: float) -> float:
    """Δ above which x_i is stored: 2/(βN) + β⁻¹ log(2(N − 1)NβM²).

    A pattern with at least this separation has a fixed point within 1/(βNM) of it, and the update
    maps that ball into itself [ramsauer2020hopfield, Theorem 3 and assumption (A) of its proof].
    """
    size, norm = patterns.shape[0], _largest_norm(patterns)
    return (2.0 / size + math.log(2.0 * (size - 1) * size * beta * norm**2)) / beta


def storage_radius(patterns: torch.Tensor, *, beta: float) -> float:
    """1/(βNM), the radius of the ball around a stored pattern that the update maps into itself."""
    return 1.0 / (beta * patterns.shape[0] * _largest_norm(patterns))


def one_step_bound(
    patterns: torch.Tensor, *, beta: float, radius: float | torch.Tensor
) -> torch.Tensor:
    """Bound on ‖f(ξ) − x_i‖ for ‖ξ − x_i‖ ≤ `radius`, shape (N,), one for each pattern i.

    2M(N − 1) exp(−β(Δ_i − 2M·radius)) [ramsauer2020hopfield, Theorem 5]. Proof: within the ball
    x_iᵀξ − x_jᵀξ ≥ Δ_i − 2M·radius, hence p_j ≤ exp(−β(…)) for every j ≠ i, and
    f(ξ) − x_i = Σ_j p_j (x_j − x_i) with ‖x_j − x_i‖ ≤ 2M. `radius` is a number ≥ 0 or a tensor
    (N,).
    """
    log_leak, norm = _log_leak(patterns, beta, radius)
    return 2.0 * norm * log_leak.exp()


def jacobian_bound(
    patterns: torch.Tensor, *, beta: float, radius: float | torch.Tensor, sharp: bool = False
) -> torch.Tensor:
    """Bound on ‖∂f/∂ξ‖₂ within `radius` of pattern i, shape (N,); below 1 it is a contraction.

    Default: 2βNM²(N − 1) exp(−β(Δ_i − 2M·radius)) [ramsauer2020hopfield, Theorem 4]. With `sharp`
    the factor N is gone: ∂f/∂ξ = β Cov_p(x), and a covariance is at most the second moment about
    x_i, Σ_j p_j ‖x_j − x_i‖² ≤ 4M²(N − 1) exp(−β(…)). It is the smaller one for N > 2.
    """
    log_leak, norm = _log_leak(patterns, beta, radius)
    factor = 4.0 if sharp else 2.0 * patterns.shape[0]
    return beta * factor * norm**2 * log_leak.exp()


def _log_leak(
    patterns: torch.Tensor, beta: float, radius: float | torch.Tensor
) -> tuple[torch.Tensor, float]:
    """log (N − 1) exp(−β(Δ_i − 2M·radius)), the most that p_i can miss to 1, and M."""
    norm = _largest_norm(patterns)
    gap = pattern_separation(patterns) - 2.0 * norm * radius
    return math.log(patterns.shape[0] - 1) - beta * gap, norm
