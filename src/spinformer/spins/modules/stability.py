"""Couplings that stay where the mean-field equations have one, physical solution.

If β Σ_j |B_ij| ≤ κ < 1 for all spins i, B = J + Jᵀ, then β‖B‖ ≤ κ, the largest slope of L is β, and

- the naive equations contract: one fixed point, found from anywhere;
- |C_ij| ≤ 1 to second order, since m_i·m_j + κ(1−m_i²)(1−m_j²) ≤ ab + κ(1−ab)² ≤ 1 with
  ab = |m_i||m_j|;
- the covariance W(W⁻¹ + βB)W, W = diag(1−m²), is positive definite, since W⁻¹ ≥ 1.

Rows of softmax couplings sum to g, but columns to anything up to g N: nothing bounds B by itself.
Two ways to keep to the bound are a parametrisation, g(H) = κ s/(β n(H)) with a learned s in
(0, 1) and n the largest row sum of A + Aᵀ, J = g A, whose own field dependence is part of the
response; and a penalty on what exceeds the bound. The saddle point needs neither.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spinformer.core.checks import check_real, check_tensor


def largest_row_sum(pair: Tensor) -> Tensor:
    """n = max_i Σ_j B_ij of non-negative B (..., N, N), shape (..., 1, 1); at least ‖B‖.

    >>> largest_row_sum(torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    tensor([[3.]])
    """
    return pair.sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True)


def coupling_excess(pair: Tensor, *, beta: Tensor, limit: float = 1.0) -> Tensor:
    """Penalty Σ over systems of max(0, β max_i Σ_j |B_ij| − `limit`)², a scalar.

    `pair` B (..., N, N) with β (..., 1, 1). Differentiable; zero where the bound holds.

    >>> pair = torch.tensor([[0.0, 3.0], [3.0, 0.0]])
    >>> coupling_excess(pair, beta=torch.full((1, 1), 0.5))
    tensor(0.2500)
    """
    pair = check_tensor("pair", pair, square=True)
    beta = check_tensor("beta", beta, low=0.0, like=("pair", pair))
    limit = check_real("limit", limit, low=0.0)
    return (beta * largest_row_sum(pair.abs()) - limit).clamp_min(0.0).square().sum()


def limited_correlation(correlation: Tensor, *, attention: Tensor, pair: Tensor) -> Tensor:
    """C less what a strength g = κ s/(β n) takes back, so that Σ C ∂J = g Σ C' ∂A.

    `attention` A (..., N, N), `pair` A + Aᵀ without diagonal. With n the largest row sum of that,
    C'_mn = C_mn − (e_m + e_n) Σ C A/n for m ≠ n, e the indicator of the row that n is the sum of.

    >>> flat = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> limited_correlation(flat, attention=flat, pair=2 * flat)
    tensor([[0., 0.],
            [0., 0.]])
    """
    rows = pair.sum(dim=-1, keepdim=True)
    largest = rows.amax(dim=-2, keepdim=True)
    # Rows that tie share the derivative, as torch's own does.
    which = (rows == largest).to(pair)
    which = which / which.sum(dim=-2, keepdim=True)
    share = (correlation * attention).sum(dim=(-2, -1), keepdim=True)
    share = share / torch.where(largest > 0, largest, 1.0)
    eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
    return correlation - (share * (which + which.mT)).masked_fill(eye, 0.0)
