"""Attention by its formula [bal2020energy, Eq. (1)], and the convex functions that give weights.

Shapes: queries (..., S, d), keys (..., N, d), values (..., N, d_v). β = 1/√d unless given.
`attention` is the plain definition that the layer and the framework's own kernel are held to; for
speed use `spinformer.hopfield.layer`. Bad input raises TypeError or ValueError that names the
argument.

A memory with stored patterns k_i scores a state by z_i = k_i·ξ. Choose a convex Λ(z); then

    E(ξ) = ½ ξ·ξ − β⁻¹ Λ(βz),   p = ∇Λ(βz),   ∇E = ξ − Σ_i p_i k_i,   ξ ← Σ_i p_i k_i.

Λ = log Σ exp is attention: p is the softmax [ramsauer2020hopfield]. In the words of
[krotov2020large] Λ is the Lagrangian of the hidden neurons and p their activity; in those of
[santos2024sparse] it is the conjugate of an entropy, p the transform that belongs to it.

Whatever convex Λ is chosen, a step lowers the energy by at least half the square of its length,

    E(ξ′) − E(ξ) ≤ −½ ‖ξ′ − ξ‖²,

because Λ lies above its tangent at ξ, and the step minimises ½ξ·ξ minus that tangent exactly.
Convexity is the only condition, and it is needed. Masked patterns have the score −inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.checks import check_broadcast, check_function, check_tensor
from spinformer.hopfield.inputs import check_beta, check_result


def attention(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    beta: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """softmax(β Q Kᵀ) V, shape (..., S, d_v) [bal2020energy, Eq. (1)].

    `mask` is boolean, broadcastable to (..., S, N), True where a query may look; each query needs
    at least one True.

    >>> pair = torch.eye(2)
    >>> attention(torch.zeros(1, 2), keys=pair, values=pair)
    tensor([[0.5000, 0.5000]])
    """
    beta = _check_attention(queries, keys=keys, values=values, beta=beta)
    scores = beta * queries @ keys.mT
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise TypeError(f"mask must be a boolean torch tensor, got {mask!r:.60}")
        if check_broadcast(mask=mask.shape, scores=scores.shape) != scores.shape:
            raise ValueError(f"mask must fit the shape {tuple(scores.shape)}, got {mask.shape}")
        if not bool(mask.any(-1).all()):
            raise ValueError("mask must leave at least one key to each query")
        scores = scores.masked_fill(~mask, -math.inf)
    return check_result("attention", torch.softmax(scores, dim=-1) @ values)


def _check_attention(queries: Tensor, *, keys: Tensor, values: Tensor, beta: float | None) -> float:
    """β, 1/√d where it is None; TypeError or ValueError where the arguments do not fit."""
    for name, tensor in (("keys", keys), ("queries", queries), ("values", values)):
        check_tensor(name, tensor, like=("keys", keys))
        if tensor.ndim < 2 or 0 in tensor.shape[-2:]:
            raise ValueError(
                f"{name} must have shape (..., length, width), got {tuple(tensor.shape)}"
            )
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"queries must have the width of the keys, {keys.shape[-1]}, got {queries.shape[-1]}"
        )
    if values.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"values must be as many as the keys, {keys.shape[-2]}, got {values.shape[-2]}"
        )
    check_broadcast(queries=queries.shape[:-2], keys=keys.shape[:-2], values=values.shape[:-2])
    return check_beta(1.0 / math.sqrt(keys.shape[-1]) if beta is None else beta)


# -- convex functions of the scores ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Lagrangian:
    """Λ, a convex function of the scores (..., N), and its gradient, the weights.

    value: Λ, (..., N) → (...). weights: ∇Λ, (..., N) → (..., N); None: automatic differentiation
    of `value`. Both are made of torch operations, treat leading axes separately, are the same
    under a permutation of patterns, and treat a score of −inf as a pattern that is not there. That
    Λ is convex is the user's promise. Raises TypeError for what is not a function.

    >>> hinge = Lagrangian(name="hinge", value=lambda z: z.clamp_min(0).square().sum(-1) / 2)
    >>> hinge.gradient(torch.tensor([-1.0, 2.0])).detach()
    tensor([0., 2.])
    """

    name: str
    value: Callable[[Tensor], Tensor]
    weights: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for what is not a function."""
        check_function("value", self.value)
        if self.weights is not None:
            check_function("weights", self.weights)

    def gradient(self, scores: Tensor) -> Tensor:
        """∇Λ at the scores (..., N), differentiable as often as `value` or `weights` is."""
        if self.weights is not None:
            return self.weights(scores)
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            point = scores if scores.requires_grad else scores.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.value(point).sum(), point, create_graph=recorded)
        return found

    def __str__(self) -> str:
        """The name."""
        return self.name


def _log_sum_exp(scores: Tensor) -> Tensor:
    return torch.logsumexp(scores, dim=-1)


def _softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, dim=-1)


LOG_SUM_EXP = Lagrangian(name="log-sum-exp", value=_log_sum_exp, weights=_softmax)


def hop(
    states: Tensor,
    *,
    scaled: Tensor,
    content: Tensor,
    bias: Tensor | None = None,
    lagrangian: Lagrangian = LOG_SUM_EXP,
    dropout: float = 0.0,
) -> Tensor:
    """Σ_i p_i c_i with p = ∇Λ(scaled·ξ + bias), (..., S, d'), content (..., N, d').

    `scaled` are the keys times β; `dropout` is the probability that a weight is dropped. The
    default Lagrangian runs in the framework's fused kernel. `bias` may be boolean, True where a
    state may look.

    >>> hop(torch.zeros(1, 2), scaled=torch.eye(2), content=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    if lagrangian.weights is _softmax:
        if bias is not None:
            # The kernel does not widen the states to the batch of a bias.
            batch = torch.broadcast_shapes(states.shape[:-2], bias.shape[:-2])
            states = states.expand(*batch, -1, -1)
        return functional.scaled_dot_product_attention(
            states, scaled, content, attn_mask=bias, dropout_p=dropout, scale=1.0
        )
    weights = read_weights(states, scaled=scaled, bias=bias, lagrangian=lagrangian)
    return functional.dropout(weights, dropout) @ content


def read_weights(
    states: Tensor, *, scaled: Tensor, bias: Tensor | None, lagrangian: Lagrangian
) -> Tensor:
    """p of a `hop`, (..., S, N), made explicitly.

    >>> read_weights(torch.zeros(1, 2), scaled=torch.eye(2), bias=None, lagrangian=LOG_SUM_EXP)
    tensor([[0.5000, 0.5000]])
    """
    scores = states @ scaled.mT
    if bias is not None:
        scores = scores + as_bias(bias, scores.dtype)
    return lagrangian.gradient(scores)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to be added to the scores: 0 where True, −inf where False.

    >>> as_bias(torch.tensor([True, False]), torch.float32)
    tensor([0., -inf])
    """
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)
