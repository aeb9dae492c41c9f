"""Attention by its formula, and four cheaper relatives, each with what it gives up.

Shapes: queries (..., S, d), keys (..., N, d), values (..., N, d_v). β = 1/√d unless given
(document 001, Eq. (vanillaattention)). These are the plain definitions that the layer and the
framework's own kernel are held to; for speed use `spinformer.hopfield.layer`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

from spinformer.core.checks import check_integer, check_real, check_tensor


@dataclass(frozen=True)
class Cost:
    """Work of one call. flops: floating-point operations of its matrix products.
    largest: entries of the largest tensor it made."""

    flops: int
    largest: int


def attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(β Q Kᵀ) V, shape (..., S, d_v): document 001, Eq. (vanillaattention).

    `mask` is boolean, broadcastable to (..., S, N), True where a query may look; each query needs
    at least one True.
    """
    queries, keys, values, beta = _check(queries, keys, values, beta)
    scores = beta * queries @ keys.mT
    if mask is not None:
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
            raise TypeError("mask must be a boolean torch tensor")
        if not bool(mask.any(-1).all()):
            raise ValueError("mask must leave at least one key to each query")
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1) @ values


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
    unless given. Document 001, Section 2: "chunking up the dimension of the vector space".
    """
    heads = check_integer("heads", heads, low=1)
    _check(queries, keys, values, beta)
    for name, tensor in (("queries", queries), ("values", values)):
        if tensor.shape[-1] % heads:
            raise ValueError(f"heads must divide the width of {name}, {tensor.shape[-1]}")
    chunks = (tensor.chunk(heads, dim=-1) for tensor in (queries, keys, values))
    return torch.cat(
        [attention(q, keys=k, values=v, beta=beta) for q, k, v in zip(*chunks, strict=True)], dim=-1
    )


def low_rank_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    landmarks: int,
    beta: float | None = None,
) -> torch.Tensor:
    """Nyström form of attention from r = `landmarks` means of consecutive queries and keys.

    softmax(βQK̃ᵀ) pinv(softmax(βQ̃K̃ᵀ)) softmax(βQ̃Kᵀ) V: of rank r, cost r(S + N) instead of SN,
    exact for r = S = N if the attention matrix is regular. Self-attention shapes: S = N, a
    multiple of r. Xiong et al. 2021 (Nyströmformer), with the exact pseudo-inverse.
    """
    queries, keys, values, beta = _check(queries, keys, values, beta, same_length=True)
    landmarks = check_integer("landmarks", landmarks, low=1, high=keys.shape[-2])
    if keys.shape[-2] % landmarks:
        raise ValueError(f"landmarks must divide the length {keys.shape[-2]}, got {landmarks}")
    few_q, few_k = (tensor.unflatten(-2, (landmarks, -1)).mean(-2) for tensor in (queries, keys))
    left = torch.softmax(beta * queries @ few_k.mT, dim=-1)
    core = torch.softmax(beta * few_q @ few_k.mT, dim=-1)
    right = torch.softmax(beta * few_q @ keys.mT, dim=-1)
    return left @ (torch.linalg.pinv(core) @ (right @ values))


def sparse_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    window: int,
    beta: float | None = None,
) -> torch.Tensor:
    """Each query looks only at keys at most `window` positions away; cost N(2·window + 1).

    Equal to `attention` under a band mask, hence exact for window ≥ N − 1; S = N. The band is
    gathered, the full matrix never made. Beltagy et al. 2020 (Longformer), the local part.
    """
    queries, keys, values, beta = _check(queries, keys, values, beta, same_length=True)
    length = keys.shape[-2]
    window = check_integer("window", window, low=0)
    reach = min(window, length - 1)
    offsets = torch.arange(-reach, reach + 1, device=keys.device)
    near = torch.arange(length, device=keys.device).unsqueeze(-1) + offsets
    outside = (near < 0) | (near >= length)
    near = near.clamp(0, length - 1)
    scores = beta * torch.einsum("...sd,...swd->...sw", queries, keys[..., near, :])
    weights = torch.softmax(scores.masked_fill(outside, -math.inf), dim=-1)
    return torch.einsum("...sw,...swd->...sd", weights, values[..., near, :])


def recurrent_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    block: int,
    compression: int = 1,
    beta: float | None = None,
) -> torch.Tensor:
    """Causal attention one block at a time, with a compressed memory of the blocks before.

    Within its block of length `block` a query sees every key up to its own position; of the past it
    sees means of `compression` consecutive keys and values, each with the weight of as many keys.
    compression = 1 is exact causal attention; in general the past costs 1/compression. S = N, a
    multiple of `block`, which is a multiple of `compression`. Rae et al. 2020 (mean pooling).
    """
    queries, keys, values, beta = _check(queries, keys, values, beta, same_length=True)
    length = keys.shape[-2]
    block = check_integer("block", block, low=1, high=length)
    compression = check_integer("compression", compression, low=1, high=block)
    if length % block or block % compression:
        raise ValueError(
            f"block must divide the length {length} and be a multiple of compression, "
            f"got block {block} and compression {compression}"
        )
    allowed = torch.ones(block, block, dtype=torch.bool, device=keys.device).tril()
    past_keys, past_values = keys[..., :0, :], values[..., :0, :]
    outputs = []
    for start in range(0, length, block):
        q, k, v = (t[..., start : start + block, :] for t in (queries, keys, values))
        present = (beta * q @ k.mT).masked_fill(~allowed, -math.inf)
        past = beta * q @ past_keys.mT + math.log(compression)
        weights = torch.softmax(torch.cat([past, present], dim=-1), dim=-1)
        outputs.append(weights @ torch.cat([past_values, v], dim=-2))
        pooled = (t.unflatten(-2, (-1, compression)).mean(-2) for t in (k, v))
        past_keys, past_values = (
            torch.cat([old, new], dim=-2)
            for old, new in zip((past_keys, past_values), pooled, strict=True)
        )
    return torch.cat(outputs, dim=-2)


def kernel_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    features: int,
    beta: float | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Attention with exp(β qᵀk) replaced by a product of m = `features` positive random features.

    exp(β qᵀk) = E_w[φ_w(q) φ_w(k)], φ_w(x) = exp(√β wᵀx − β‖x‖²/2), w ~ N(0, 1): an unbiased
    estimate of numerator and denominator whose error falls as m^{-1/2} once m exceeds the variance
    of one feature, about exp(β‖q + k‖²). Sums over keys are done once, so the cost is m(S + N).
    Choromanski et al. 2021 (Performer), without orthogonalisation.
    """
    queries, keys, values, beta = _check(queries, keys, values, beta)
    features = check_integer("features", features, low=1)
    draws = torch.randn(
        features, keys.shape[-1], dtype=keys.dtype, device=keys.device, generator=generator
    )

    def log_feature(x: torch.Tensor) -> torch.Tensor:
        return math.sqrt(beta) * x @ draws.mT - 0.5 * beta * x.square().sum(-1, keepdim=True)

    log_q, log_k = log_feature(queries), log_feature(keys)
    # Constants per query and over all keys cancel in the ratio and keep exp in range.
    phi_q = torch.exp(log_q - log_q.amax(-1, keepdim=True))
    phi_k = torch.exp(log_k - log_k.amax((-2, -1), keepdim=True))
    numerator = phi_q @ (phi_k.mT @ values)
    return numerator / (phi_q @ phi_k.sum(-2).unsqueeze(-1))


def streaming_attention(
    queries: torch.Tensor,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    block: int,
    beta: float | None = None,
) -> torch.Tensor:
    """Exact attention with the keys read once, `block` at a time: memory S·block, not S·N.

    A running maximum, normaliser and weighted sum are rescaled whenever the maximum grows. Time
    stays N². Milakov and Gimelshein 2018; Rabe and Staats 2021.
    """
    queries, keys, values, beta = _check(queries, keys, values, beta)
    block = check_integer("block", block, low=1)
    top = queries.new_full((*queries.shape[:-1], 1), -math.inf)
    norm, total = torch.zeros_like(top), torch.zeros_like(top) * values[..., :1, :]
    for k, v in zip(keys.split(block, dim=-2), values.split(block, dim=-2), strict=True):
        scores = beta * queries @ k.mT
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, weights = torch.exp(top - higher), torch.exp(scores - higher)
        norm = norm * shrink + weights.sum(-1, keepdim=True)
        total = total * shrink + weights @ v
        top = higher
    return total / norm


def count_cost(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """Run `function(*args, **kwargs)` once and count its matrix-product flops and largest tensor.

    Counted where torch dispatches its operators, so the figures do not depend on the machine. A
    fused kernel counts as one operator: its workspace is not seen.
    """
    with FlopCounterMode(display=False) as flops, _LargestTensor() as memory:
        function(*args, **kwargs)
    return Cost(flops=int(flops.get_total_flops()), largest=memory.entries)


class _LargestTensor(TorchDispatchMode):
    entries = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(made)[0]:
            if isinstance(leaf, torch.Tensor):
                # Broadcast views hold no entries of their own.
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.entries = max(self.entries, min(leaf.numel(), stored))
        return made


def _check(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float | None,
    *,
    same_length: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        check_tensor(name, tensor)
        if tensor.ndim < 2 or tensor.shape[-2] == 0:
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
    if same_length and queries.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"queries must be as many as the keys, {keys.shape[-2]}, got {queries.shape[-2]}"
        )
    if beta is None:
        beta = 1.0 / math.sqrt(keys.shape[-1])
    return queries, keys, values, check_real("beta", beta, low=0.0, open_low=True)
