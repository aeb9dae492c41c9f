"""Couplings that depend on the field, and what they add to the magnetisation.

Document 000, Eqs. (softmaxcouplings) and (sigmaweird). Units: spins u_i on the unit sphere in
R^D, scaled fields h_i = H_i/√D, E/D = −Σ_{m,n} J_mn u_m·u_n − Σ h_i·u_i over ordered pairs. The
energy sees only the symmetric part of J, so spins are solved with `symmetrize(J)`, while the
response below takes J as it is: its weights C_mn = ⟨u_m·u_n⟩ are symmetric. With couplings J(h)

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,

which is the document's Eq. (sigmaweird) divided by √D. β is inside C only. All functions take
leading batch axes, keep dtype and device, and are differentiable.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from spinformer.core.checks import check_real, check_tensor


def softmax_couplings(
    fields: torch.Tensor,
    *,
    bilinear: torch.Tensor,
    gamma: float = 1.0,
    strength: float = 1.0,
    mask_diagonal: bool = True,
) -> torch.Tensor:
    """J = g softmax(γ h A hᵀ), rows summing to g; shape (..., N, N), in general not symmetric.

    `fields` h (..., N, D); `bilinear` A = W_Q W_Kᵀ, (D, D) or with batch axes; `gamma` ≥ 0 is the
    score strength (the document's scores H A Hᵀ/√D are γ = √D); `strength` g ≥ 0. With
    `mask_diagonal` a site has no score with itself, which needs N ≥ 2; without it J_ii u_i² is a
    constant of the spins, but one that still depends on the field.
    """
    _check(fields, bilinear, gamma, strength)
    if mask_diagonal and fields.shape[-2] < 2:
        raise ValueError("fields must have at least 2 sites if mask_diagonal, got 1")
    scores = gamma * (fields @ bilinear) @ fields.mT
    if mask_diagonal:
        scores = scores.masked_fill(_eye(scores), -torch.inf)
    return strength * scores.softmax(dim=-1)


def exponential_couplings(
    fields: torch.Tensor, *, bilinear: torch.Tensor, gamma: float = 1.0, strength: float = 1.0
) -> torch.Tensor:
    """J = g exp(γ h A hᵀ) off the diagonal, 0 on it: softmax couplings without their denominator.

    The control that shows what the denominator is for: rows sum to something of order g N.
    """
    _check(fields, bilinear, gamma, strength)
    scores = gamma * (fields @ bilinear) @ fields.mT
    return strength * scores.exp().masked_fill(_eye(scores), 0.0)


def symmetrize(couplings: torch.Tensor) -> torch.Tensor:
    """(J + Jᵀ)/2: the only part of J that the energy contains."""
    couplings = _check_square("couplings", couplings)
    return (couplings + couplings.mT) / 2


def response_attention(
    couplings: torch.Tensor, *, correlation: torch.Tensor, strength: float = 1.0
) -> torch.Tensor:
    """G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g): the derivative of Σ J_mn C_mn by the score (m, k).

    C_mk minus its mean under the attention of row m, times that attention: rows sum to zero.
    `couplings` J = g softmax and `correlation` C, both (..., N, N); `strength` g > 0.
    """
    couplings = _check_square("couplings", couplings)
    correlation = check_tensor("correlation", correlation)
    strength = check_real("strength", strength, low=0.0, open_low=True)
    weighted = couplings * correlation
    return weighted - couplings * (weighted.sum(dim=-1, keepdim=True) / strength)


def softmax_response(
    fields: torch.Tensor,
    *,
    bilinear: torch.Tensor,
    couplings: torch.Tensor,
    correlation: torch.Tensor,
    gamma: float = 1.0,
    strength: float = 1.0,
) -> torch.Tensor:
    """Closed form of Σ C_mn ∂J_mn/∂h for softmax couplings: γ (G h Aᵀ + Gᵀ h A), (..., N, D).

    Attention with weights G and Gᵀ and value maps Aᵀ and A: site i as a query, and site i as a
    key. Arguments as in `softmax_couplings` and `response_attention`; `couplings` are the
    unsymmetrised ones that these fields gave.
    """
    _check(fields, bilinear, gamma, strength)
    weights = response_attention(couplings, correlation=correlation, strength=strength)
    as_query = (weights @ fields) @ bilinear.mT
    as_key = (weights.mT @ fields) @ bilinear
    return gamma * (as_query + as_key)


def autograd_response(
    fields: torch.Tensor,
    couplings_of: Callable[[torch.Tensor], torch.Tensor],
    *,
    correlation: torch.Tensor,
    create_graph: bool = False,
) -> torch.Tensor:
    """Σ_{m,n} C_mn ∂J_mn/∂h_i for any couplings J = `couplings_of`(h), by reverse differentiation.

    `correlation` C (..., N, N) is held fixed, as Eq. (sigmaweird) asks. With `create_graph` the
    result can be differentiated again; else it carries no history.
    """
    check_tensor("fields", fields)
    check_tensor("correlation", correlation)
    if not create_graph:
        fields, correlation = fields.detach(), correlation.detach()
    with torch.enable_grad():
        probe = fields if fields.requires_grad else fields.clone().requires_grad_()
        couplings = couplings_of(probe)
        if not couplings.requires_grad:
            return torch.zeros_like(fields)
        (response,) = torch.autograd.grad(couplings, probe, correlation, create_graph=create_graph)
    return response


def two_term_magnetization(
    fields: torch.Tensor,
    couplings_of: Callable[[torch.Tensor], torch.Tensor],
    *,
    spins: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both terms of Eq. (sigmaweird), (⟨u⟩, response), each (..., N, D), without history.

    `spins(h, J)` solves the spins at fixed, symmetric J and returns ⟨u⟩ (..., N, D) and
    C (..., N, N); `couplings_of(h)` gives J. Their sum is −(1/D) dF/dh.
    """
    check_tensor("fields", fields)
    with torch.no_grad():
        mean, correlation = spins(fields, symmetrize(couplings_of(fields)))
    return mean, autograd_response(fields, couplings_of, correlation=correlation)


def _eye(matrix: torch.Tensor) -> torch.Tensor:
    return torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)


def _check(fields: torch.Tensor, bilinear: torch.Tensor, gamma: float, strength: float) -> None:
    check_tensor("fields", fields)
    if fields.ndim < 2:
        raise ValueError(f"fields must have at least 2 axes, got shape {tuple(fields.shape)}")
    dim = fields.shape[-1]
    check_tensor("bilinear", bilinear)
    if bilinear.shape[-2:] != (dim, dim):
        raise ValueError(
            f"bilinear must end with shape {(dim, dim)} like fields, got {tuple(bilinear.shape)}"
        )
    check_real("gamma", gamma, low=0.0)
    check_real("strength", strength, low=0.0)


def _check_square(name: str, matrix: torch.Tensor) -> torch.Tensor:
    check_tensor(name, matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name} must be square matrices, got shape {tuple(matrix.shape)}")
    return matrix
