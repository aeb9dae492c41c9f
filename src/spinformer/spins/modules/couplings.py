"""Couplings that depend on the field, and what they add to the magnetisation.

[bal2021transformers, Eqs. (softmaxcouplings) and (sigmaweird)] in the unit convention of
`vectors.units`: u = σ/√D, h = H/√D, E/D = −Σ_{m,n} J_mn u_m·u_n − Σ h_i·u_i over ordered pairs.
The energy sees only the symmetric part of J, so spins are solved with `symmetrize(J)`, while the
response below takes J as it is: its weights C_mn = ⟨u_m·u_n⟩ are symmetric. With couplings J(h)

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,

which is Eq. (sigmaweird) divided by √D. β is inside C only. `scale` multiplies the scores h A hᵀ;
the paper's γ H A Hᵀ/√D has the scale γ√D, and `gamma` is that γ in all other files.

Shapes: fields h (..., N, D), bilinear A = W_Q W_Kᵀ (..., D, D), couplings J and correlation C
(..., N, N). All functions keep dtype and device and are differentiable; what does not fit raises
TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spinformer.core.checks import check_flag, check_function, check_real, check_tensor
from spinformer.spins.modules.fused import response_weights, scaled_attention_reference


def softmax_couplings(
    fields: Tensor,
    *,
    bilinear: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
    mask_diagonal: bool = True,
) -> Tensor:
    """J = g softmax(a h A hᵀ), rows summing to g; shape (..., N, N), in general not symmetric.

    The `scale` a ≥ 0 and the `strength` g ≥ 0 are numbers. With `mask_diagonal` a site has no score
    with itself, which needs N ≥ 2; without it J_ii u_i² is a constant of the spins, but one that
    still depends on the field.

    >>> softmax_couplings(torch.ones(3, 2), bilinear=torch.eye(2))
    tensor([[0.0000, 0.5000, 0.5000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    _check(fields, bilinear, scale, strength)
    if check_flag("mask_diagonal", mask_diagonal) and fields.shape[-2] < 2:
        raise ValueError("fields must have at least 2 sites if mask_diagonal, got 1")
    queries = scale * (fields @ bilinear)
    _finite_scores(queries.detach() @ fields.detach().mT)
    return scaled_attention_reference(
        queries, keys=fields, strength=fields.new_tensor(strength), mask_diagonal=mask_diagonal
    )[0]


def exponential_couplings(
    fields: Tensor, *, bilinear: Tensor, scale: float = 1.0, strength: float = 1.0
) -> Tensor:
    """J = g exp(a h A hᵀ) off the diagonal, 0 on it: softmax couplings without their denominator.

    The control that shows what the denominator is for: rows sum to something of order g N.

    >>> exponential_couplings(torch.zeros(2, 1), bilinear=torch.eye(1))
    tensor([[0., 1.],
            [1., 0.]])
    """
    _check(fields, bilinear, scale, strength)
    scores = scale * (fields @ bilinear) @ fields.mT
    return strength * _finite_scores(scores.exp()).masked_fill(_eye(scores), 0.0)


def symmetrize(couplings: Tensor) -> Tensor:
    """(J + Jᵀ)/2: the only part of J that the energy contains.

    >>> symmetrize(torch.tensor([[1.0, 4.0], [0.0, 1.0]]))
    tensor([[1., 2.],
            [2., 1.]])
    """
    couplings = check_tensor("couplings", couplings, square=True)
    return (couplings + couplings.mT) / 2


def response_attention(couplings: Tensor, *, correlation: Tensor, strength: float = 1.0) -> Tensor:
    """G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g): the derivative of Σ J_mn C_mn by the score (m, k).

    C_mk minus its mean under the attention of row m, times that attention: rows sum to zero.
    `couplings` are J = g softmax with the `strength` g > 0.

    >>> half = torch.full((2, 2), 0.5)
    >>> response_attention(half, correlation=torch.eye(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    couplings = check_tensor("couplings", couplings, square=True)
    correlation = _check_correlation(correlation, "couplings", couplings)
    strength = check_real("strength", strength, low=0.0, open_low=True)
    return response_weights(couplings, correlation=correlation, strength=strength)


def softmax_response(
    fields: Tensor,
    *,
    bilinear: Tensor,
    couplings: Tensor,
    correlation: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
) -> Tensor:
    """Closed form of Σ C_mn ∂J_mn/∂h for softmax couplings: a (G h Aᵀ + Gᵀ h A), (..., N, D).

    Attention with weights G and Gᵀ and value maps Aᵀ and A: site i as a query, and site i as a
    key. Arguments as in `softmax_couplings` and `response_attention`; `couplings` are the
    unsymmetrised ones that these fields gave.

    >>> fields, one = torch.tensor([[1.0], [-1.0]]), torch.eye(1)
    >>> couplings = torch.full((2, 2), 0.5)
    >>> softmax_response(fields, bilinear=one, couplings=couplings, correlation=torch.eye(2))
    tensor([[ 1.],
            [-1.]])
    """
    _check(fields, bilinear, scale, strength)
    check_tensor("couplings", couplings, square=True)
    if couplings.shape[-1] != fields.shape[-2]:
        raise ValueError(
            f"couplings must have shape (..., N, N) with N = {fields.shape[-2]} of fields, "
            f"got {tuple(couplings.shape)}"
        )
    weights = response_attention(couplings, correlation=correlation, strength=strength)
    as_query = (weights @ fields) @ bilinear.mT
    as_key = (weights.mT @ fields) @ bilinear
    return scale * (as_query + as_key)


def autograd_response(
    fields: Tensor,
    couplings_of: Callable[[Tensor], Tensor],
    *,
    correlation: Tensor,
    create_graph: bool = False,
) -> Tensor:
    """Σ_{m,n} C_mn ∂J_mn/∂h_i for any couplings J = `couplings_of`(h), by reverse differentiation.

    C is held fixed, as Eq. (sigmaweird) asks. With `create_graph` the result can be
    differentiated again; else it carries no history. Raises ValueError if J has not the shape
    of C.

    >>> field = torch.tensor([[3.0]])
    >>> autograd_response(field, lambda h: h**2, correlation=torch.ones(1, 1))
    tensor([[6.]])
    """
    check_tensor("fields", fields)
    correlation = check_tensor("correlation", correlation, square=True, like=("fields", fields))
    if not check_flag("create_graph", create_graph):
        fields, correlation = fields.detach(), correlation.detach()
    with torch.enable_grad():
        probe = fields if fields.requires_grad else fields.clone().requires_grad_()
        couplings = check_function("couplings_of", couplings_of)(probe)
        if couplings.shape != correlation.shape:
            raise ValueError(
                f"couplings_of must return the shape of correlation, {tuple(correlation.shape)}, "
                f"got {tuple(couplings.shape)}"
            )
        if not couplings.requires_grad:
            return torch.zeros_like(fields)
        (response,) = torch.autograd.grad(couplings, probe, correlation, create_graph=create_graph)
    return response


def two_term_magnetization(
    fields: Tensor,
    couplings_of: Callable[[Tensor], Tensor],
    *,
    spins: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Both terms of Eq. (sigmaweird), (⟨u⟩, response), each (..., N, D), without history.

    `spins(h, J)` solves the spins at fixed, symmetric J and returns ⟨u⟩ (..., N, D) and
    C (..., N, N); `couplings_of(h)` gives J. Their sum is −(1/D) dF/dh.

    >>> free = lambda h, couplings: (torch.tanh(h), torch.ones(1, 1))
    >>> two_term_magnetization(torch.zeros(1, 1), lambda h: h + 1, spins=free)
    (tensor([[0.]]), tensor([[1.]]))
    """
    check_tensor("fields", fields)
    with torch.no_grad():
        couplings = check_function("couplings_of", couplings_of)(fields)
        mean, correlation = check_function("spins", spins)(fields, symmetrize(couplings))
    return mean, autograd_response(fields, couplings_of, correlation=correlation)


def _eye(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)


def _finite_scores(scores: Tensor) -> Tensor:
    if not bool(torch.isfinite(scores.detach()).all()):
        raise ValueError("fields, bilinear and scale must give finite scores, these overflow")
    return scores


def _check(fields: Tensor, bilinear: Tensor, scale: float, strength: float) -> None:
    check_tensor("fields", fields)
    if fields.ndim < 2:
        raise ValueError(f"fields must have at least 2 axes, got shape {tuple(fields.shape)}")
    dim = fields.shape[-1]
    check_tensor("bilinear", bilinear, like=("fields", fields))
    if bilinear.shape[-2:] != (dim, dim):
        raise ValueError(
            f"bilinear must end with shape {(dim, dim)} like fields, got {tuple(bilinear.shape)}"
        )
    check_real("scale", scale, low=0.0)
    check_real("strength", strength, low=0.0)


def _check_correlation(correlation: Tensor, name: str, like: Tensor) -> Tensor:
    correlation = check_tensor("correlation", correlation, like=(name, like))
    if correlation.shape[-2:] != like.shape[-2:]:
        raise ValueError(
            f"correlation must end with the shape {tuple(like.shape[-2:])} of {name}, "
            f"got {tuple(correlation.shape)}"
        )
    return correlation
