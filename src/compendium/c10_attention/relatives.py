"""Cheaper relatives of attention, each with what it gives up.

Shapes, β and errors as in `attention`. Four avoid the square of the length, the recurrent one only
if its memory has a fixed number of slots; `streaming_attention` is exact and avoids only the
square of memory.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spinformer.core.random import TorchSeed, torch_generator


def low_rank_attention(
    queries: Tensor, *, keys: Tensor, values: Tensor, landmarks: int, beta: float | None = None
) -> Tensor:
    """Nyström form of attention from r = `landmarks` means of consecutive queries and keys.

    softmax(βQK̃ᵀ) pinv(softmax(βQ̃K̃ᵀ)) softmax(βQ̃Kᵀ) V: of rank r, cost r(S + N) instead of SN,
    exact for r = S = N if the attention matrix is regular. Self-attention shapes: S = N, a
    multiple of r [xiong2021nystromformer, with the exact pseudo-inverse].
    """
    beta = _inverse_temperature(queries, beta)
    few_q, few_k = (tensor.unflatten(-2, (landmarks, -1)).mean(-2) for tensor in (queries, keys))
    left = torch.softmax(beta * queries @ few_k.mT, dim=-1)
    core = torch.softmax(beta * few_q @ few_k.mT, dim=-1)
    right = torch.softmax(beta * few_q @ keys.mT, dim=-1)
    return left @ (torch.linalg.pinv(core) @ (right @ values))


def sparse_attention(
    queries: Tensor, *, keys: Tensor, values: Tensor, window: int, beta: float | None = None
) -> Tensor:
    """Each query looks only at keys at most `window` positions away; cost N(2·window + 1).

    Equal to `attention` under a band mask, hence exact for window ≥ N − 1; S = N. The band is
    gathered, the full matrix never made [beltagy2020longformer, the local part].
    """
    beta = _inverse_temperature(queries, beta)
    length = keys.shape[-2]
    reach = min(window, length - 1)
    offsets = torch.arange(-reach, reach + 1, device=keys.device)
    near = torch.arange(length, device=keys.device).unsqueeze(-1) + offsets
    outside = (near < 0) | (near >= length)
    near = near.clamp(0, length - 1)
    scores = beta * torch.einsum("...sd,...swd->...sw", queries, keys[..., near, :])
    weights = torch.softmax(scores.masked_fill(outside, -math.inf), dim=-1)
    result = torch.einsum("...sw,...swd->...sd", weights, values[..., near, :])
    return result


def recurrent_attention(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    block: int,
    compression: int = 1,
    slots: int | None = None,
    beta: float | None = None,
) -> Tensor:
    """Causal attention one block at a time, with a compressed memory of the blocks before.

    Within its block of length `block` a query sees every key up to its own position; of the past it
    sees means of `compression` consecutive keys and values, each with the weight of as many keys.
    compression = 1 is exact causal attention; in general the past costs 1/compression, still N².
    If `slots` is given, only so many of the latest means are kept: the cost is linear, and what is
    older is forgotten. S = N, a multiple of `block`, which is a multiple of `compression`
    [rae2020compressive, mean pooling].
    """
    beta = _inverse_temperature(queries, beta)
    length = keys.shape[-2]
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
        oldest = 0 if slots is None else -slots
        past_keys, past_values = (
            torch.cat([old, new], dim=-2)[..., oldest:, :]
            for old, new in zip((past_keys, past_values), pooled, strict=True)
        )
    return torch.cat(outputs, dim=-2)


def kernel_attention(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    features: int,
    beta: float | None = None,
    seed: TorchSeed = 0,
) -> Tensor:
    """Attention with exp(β qᵀk) replaced by a product of m = `features` positive random features.

    exp(β qᵀk) = E_w[φ_w(q) φ_w(k)], φ_w(x) = exp(√β wᵀx − β‖x‖²/2), w ~ N(0, 1): an unbiased
    estimate of numerator and denominator whose error falls as m^{-1/2} once m exceeds the variance
    of one feature, about exp(β‖q + k‖²). Sums over keys are done once, so the cost is m(S + N).
    [choromanski2021rethinking, without orthogonalization].
    """
    beta = _inverse_temperature(queries, beta)
    generator, shape = torch_generator(seed), (features, keys.shape[-1])
    draws = torch.randn(shape, dtype=keys.dtype, generator=generator).to(keys.device)

    def log_feature(x: Tensor) -> Tensor:
        return math.sqrt(beta) * x @ draws.mT - 0.5 * beta * x.square().sum(-1, keepdim=True)

    log_q, log_k = log_feature(queries), log_feature(keys)
    # Constants per query and over all keys cancel in the ratio and keep exp in range.
    phi_q = torch.exp(log_q - log_q.amax(-1, keepdim=True))
    phi_k = torch.exp(log_k - log_k.amax((-2, -1), keepdim=True))
    numerator = phi_q @ (phi_k.mT @ values)
    return numerator / (phi_q @ phi_k.sum(-2).unsqueeze(-1))


def streaming_attention(
    queries: Tensor, *, keys: Tensor, values: Tensor, block: int, beta: float | None = None
) -> Tensor:
    """Exact attention with the keys read once, `block` at a time: memory S·block, not S·N.

    A running maximum, normalizer and weighted sum are rescaled whenever the maximum grows. Time
    stays N² [rabe2021selfattention].
    """
    beta = _inverse_temperature(queries, beta)
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


def _inverse_temperature(queries: Tensor, beta: float | None) -> float:
    return queries.shape[-1] ** -0.5 if beta is None else beta
