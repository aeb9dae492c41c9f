"""Attention by its formula [bal2020energy, Eq. (1)].

Shapes: queries (..., S, d), keys (..., N, d), values (..., N, d_v). β = 1/√d unless given. These
are the plain definitions that the layer and the framework's own kernel are held to; for speed use
`spinformer.hopfield.layer`. Bad input raises TypeError or ValueError that names the argument.
"""

from __future__ import annotations

import math

import torch

from spinformer.core.checks import check_integer, check_tensor
from spinformer.hopfield.inputs import (
    can_broadcast,
    check_beta,
    check_like,
    check_mask,
    check_result,
)


def attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(β Q Kᵀ) V, shape (..., S, d_v) [bal2020energy, Eq. (1)].

    `mask` is boolean, broadcastable to (..., S, N), True where a query may look; each query needs
    at least one True.

    >>> pair = torch.eye(2)
    >>> attention(torch.zeros(1, 2), keys=pair, values=pair)
    tensor([[0.5000, 0.5000]])
    """
    queries, keys, values, beta = check_attention(queries, keys=keys, values=values, beta=beta)
    scores = beta * queries @ keys.mT
    if mask is not None:
        check_mask("mask", mask, shape=tuple(scores.shape))
        if not bool(mask.any(-1).all()):
            raise ValueError("mask must leave at least one key to each query")
        scores = scores.masked_fill(~mask, -math.inf)
    return check_result("attention", torch.softmax(scores, dim=-1) @ values)


def multi_head_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    heads: int,
    beta: float | None = None,
) -> torch.Tensor:
    """Attention in each of `heads` equal chunks of the vector space, side by side, (..., S, d_v).

    Chunk h holds the h-th d/heads columns of Q and K and d_v/heads columns of V; β = 1/√(d/heads)
    unless given: "chunking up the dimension of the vector space" [bal2020energy, Sec. 2].

    >>> queries = torch.zeros(1, 4)
    >>> multi_head_attention(queries, keys=torch.eye(4), values=torch.eye(4), heads=2)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    heads = check_integer("heads", heads, low=1)
    check_attention(queries, keys=keys, values=values, beta=beta)
    for name, tensor in (("queries", queries), ("values", values)):
        if tensor.shape[-1] % heads:
            raise ValueError(
                f"heads must divide the width of {name}, {tensor.shape[-1]}, got {heads}"
            )
    chunks = (tensor.chunk(heads, dim=-1) for tensor in (queries, keys, values))
    return torch.cat(
        [attention(q, keys=k, values=v, beta=beta) for q, k, v in zip(*chunks, strict=True)], dim=-1
    )


def check_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float | None,
    same_length: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """The arguments of an attention, shapes that fit; β = 1/√d where it is None.

    >>> check_attention(
    ...     torch.ones(1, 4), keys=torch.ones(2, 4), values=torch.ones(2, 3), beta=None
    ... )[3]
    0.5
    """
    for name, tensor in (("keys", keys), ("queries", queries), ("values", values)):
        check_tensor(name, tensor)
        check_like(name, tensor, model=keys, role="keys")
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
    batches = [tensor.shape[:-2] for tensor in (queries, keys, values)]
    if not can_broadcast(*batches):
        raise ValueError(
            "queries, keys and values must have batch axes that broadcast, "
            f"got {[tuple(batch) for batch in batches]}"
        )
    if same_length and queries.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"queries must be as many as the keys, {keys.shape[-2]}, got {queries.shape[-2]}"
        )
    if beta is None:
        beta = 1.0 / math.sqrt(keys.shape[-1])
    return queries, keys, values, check_beta(beta)
