"""A penalty on couplings beyond where the mean-field equations have one, physical solution."""

from __future__ import annotations

from torch import Tensor

from spinformer.spins.module import largest_row_sum


def coupling_excess(pair: Tensor, *, beta: Tensor, limit: float = 1.0) -> Tensor:
    """Penalty Σ over systems of max(0, β max_i Σ_j |B_ij| − `limit`)², a scalar.

    `pair` B (..., N, N) with β (..., 1, 1). Differentiable; zero where the bound holds.
    """
    return (beta * largest_row_sum(pair.abs()) - limit).clamp_min(0.0).square().sum()
