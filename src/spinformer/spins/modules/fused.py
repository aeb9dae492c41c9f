"""The pieces of the spin module whose cost grows as N², with gradients derived by hand.

Same numbers as the plain formulas of `couplings` and `vectors.tap` (the tests hold them to those),
but a backward pass that reads each N × N matrix as few times as possible. Where a
graph of the gradient is asked for, the plain formulas take over, so that it can be differentiated
again; so they do from the start where masks are given or a compiler or transform looks on. All
arguments are batched, (..., N, N) or (..., N, D); g and β broadcast as (..., 1, 1).
Nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spinformer.core.operators import is_traced


def scaled_attention(
    queries: Tensor,
    *,
    keys: Tensor,
    strength: Tensor,
    mask_diagonal: bool,
    forbidden: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """J = g softmax(q kᵀ), (..., N, N), without the diagonal if masked, and B = J + Jᵀ, always
    without: the couplings of the pairs.

    `forbidden` entries (booleans) are zero, `bias` is added to the scores. A row without any
    allowed entry is zero.

    >>> tokens, strength = torch.zeros(2, 1), torch.full((1, 1), 3.0)
    >>> scaled_attention(tokens, keys=tokens, strength=strength, mask_diagonal=True)[1]
    tensor([[0., 6.],
            [6., 0.]])
    """
    if forbidden is None and bias is None and queries.shape[-2] > 1 and not is_traced():
        return _ScaledAttention.apply(queries, keys, strength, mask_diagonal)
    return scaled_attention_reference(
        queries,
        keys=keys,
        strength=strength,
        mask_diagonal=mask_diagonal,
        forbidden=forbidden,
        bias=bias,
    )


def covariance_attention(
    couplings: Tensor,
    *,
    strength: Tensor,
    mean: Tensor,
    queries: Tensor,
    keys: Tensor,
    pair: Tensor | None,
    width: Tensor | None,
    beta: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """(G k, Gᵀ q), G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g).

    C = m mᵀ off the diagonal, with symmetric `pair` B, `width` w (..., N, 1) and `beta` also
    + β B∘(w wᵀ); 1 on the diagonal.

    >>> half, one = torch.full((2, 2), 0.5), torch.ones(1, 1)
    >>> tokens, zero = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 1)
    >>> naive = {"pair": None, "width": None, "beta": None}
    >>> covariance_attention(
    ...     half, strength=one, mean=zero, queries=tokens, keys=tokens, **naive
    ... )[0]
    tensor([[ 0.5000],
            [-0.5000]])
    """
    if is_traced():
        return covariance_attention_reference(
            couplings,
            strength=strength,
            mean=mean,
            queries=queries,
            keys=keys,
            pair=pair,
            width=width,
            beta=beta,
        )
    return _CovarianceAttention.apply(couplings, strength, mean, queries, keys, pair, width, beta)


def scaled_attention_reference(
    queries: Tensor,
    *,
    keys: Tensor,
    strength: Tensor,
    mask_diagonal: bool,
    forbidden: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`scaled_attention` in plain operations.

    >>> tokens, strength = torch.zeros(2, 1), torch.full((1, 1), 3.0)
    >>> scaled_attention_reference(tokens, keys=tokens, strength=strength, mask_diagonal=True)[1]
    tensor([[0., 6.],
            [6., 0.]])
    """
    scores = queries @ keys.mT
    eye = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    if bias is not None:
        scores = scores + bias
    if mask_diagonal:
        forbidden = eye if forbidden is None else forbidden | eye
    if forbidden is None:
        couplings = strength * scores.softmax(dim=-1)
    else:
        # Not minus infinity: a row without any allowed entry would be 0/0.
        scores = scores.masked_fill(forbidden, torch.finfo(scores.dtype).min)
        couplings = strength * scores.softmax(dim=-1).masked_fill(forbidden, 0.0)
    return couplings, (couplings + couplings.mT).masked_fill(eye, 0.0)


def pair_correlation(
    mean: Tensor, *, pair: Tensor | None, width: Tensor | None, beta: Tensor | None
) -> Tensor:
    """C = m mᵀ, with `pair` B, `width` w and `beta` also + β B∘(w wᵀ); 1 on the diagonal.

    >>> zero = torch.zeros(2, 1)
    >>> pair_correlation(zero, pair=None, width=None, beta=None)
    tensor([[1., 0.],
            [0., 1.]])
    """
    correlation = mean @ mean.mT
    if pair is not None and width is not None and beta is not None:
        correlation = correlation + pair * ((beta * width) @ width.mT)
    eye = torch.eye(correlation.shape[-1], dtype=torch.bool, device=correlation.device)
    return correlation.masked_fill(eye, 1.0)


def response_weights(couplings: Tensor, *, correlation: Tensor, strength: Any) -> Tensor:
    """G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g), what `couplings.response_attention` checks first.

    >>> half = torch.full((2, 2), 0.5)
    >>> response_weights(half, correlation=torch.eye(2), strength=1.0)
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    weighted = couplings * correlation
    return weighted - couplings * (weighted.sum(dim=-1, keepdim=True) / strength)


def covariance_attention_reference(
    couplings: Tensor,
    *,
    strength: Tensor,
    mean: Tensor,
    queries: Tensor,
    keys: Tensor,
    pair: Tensor | None,
    width: Tensor | None,
    beta: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`covariance_attention` in plain operations.

    >>> half, one = torch.full((2, 2), 0.5), torch.ones(1, 1)
    >>> tokens, zero = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 1)
    >>> naive = {"pair": None, "width": None, "beta": None}
    >>> covariance_attention_reference(
    ...     half, strength=one, mean=zero, queries=tokens, keys=tokens, **naive
    ... )[0]
    tensor([[ 0.5000],
            [-0.5000]])
    """
    correlation = pair_correlation(mean, pair=pair, width=width, beta=beta)
    weights = response_weights(couplings, correlation=correlation, strength=strength)
    return weights @ keys, weights.mT @ queries


def _gradients_with_graph(
    plain: Callable[..., tuple[Tensor, ...]],
    arguments: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of `plain` by `arguments` that can be differentiated again."""
    with torch.enable_grad():
        # Views keep these partial derivatives apart from what the arguments owe each other.
        views = [argument.view_as(argument) for argument in arguments]
        used = [
            (output, cotangent)
            for output, cotangent in zip(plain(*views), cotangents, strict=True)
            if cotangent is not None and output.requires_grad
        ]
        wanted = [view for view in views if view.requires_grad]
        if not used or not wanted:
            return [None] * len(views)
        outputs, given = zip(*used, strict=True)
        found = iter(
            torch.autograd.grad(outputs, wanted, given, create_graph=True, allow_unused=True)
        )
    return [next(found) if view.requires_grad else None for view in views]


class _ScaledAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, strength: Tensor, mask_diagonal: bool
    ) -> tuple[Tensor, Tensor]:
        scores = queries @ keys.mT
        if mask_diagonal:
            scores.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
        couplings = torch.softmax(scores, dim=-1).mul_(strength)
        pair = couplings + couplings.mT
        if not mask_diagonal:
            pair.diagonal(dim1=-2, dim2=-1).zero_()
        ctx.save_for_backward(queries, keys, couplings, strength)
        ctx.mask_diagonal = mask_diagonal
        ctx.set_materialize_grads(False)
        return couplings, pair

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_pair: Tensor | None) -> tuple[Any, ...]:
        queries, keys, couplings, strength = ctx.saved_tensors
        if torch.is_grad_enabled():

            def plain(queries: Tensor, keys: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
                return scaled_attention_reference(
                    queries, keys=keys, strength=strength, mask_diagonal=ctx.mask_diagonal
                )

            arguments = (queries, keys, strength)
            return (*_gradients_with_graph(plain, arguments, (grad, grad_pair)), None)
        if grad_pair is not None:
            both = grad_pair + grad_pair.mT
            if not ctx.mask_diagonal:
                both.diagonal(dim1=-2, dim2=-1).zero_()
            grad = both if grad is None else both.add_(grad)
        if grad is None:
            return None, None, None, None
        product = grad * couplings
        rows = product.sum(dim=-1, keepdim=True) / strength
        grad_scores = product.addcmul_(couplings, rows, value=-1)
        grad_strength = rows.sum(dim=-2, keepdim=True).sum_to_size(strength.shape)
        return grad_scores @ keys, grad_scores.mT @ queries, grad_strength, None


class _CovarianceAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        couplings: Tensor,
        strength: Tensor,
        mean: Tensor,
        queries: Tensor,
        keys: Tensor,
        pair: Tensor | None,
        width: Tensor | None,
        beta: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        correlation = mean @ mean.mT
        if pair is not None and width is not None and beta is not None:
            correlation.addcmul_(pair, (beta * width) @ width.mT)
        correlation.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        weights = couplings * correlation
        rows = weights.sum(dim=-1, keepdim=True) / strength
        weights.addcmul_(couplings, rows, value=-1)
        ctx.second_order = pair is not None
        extra = (pair, width, beta) if ctx.second_order else ()
        ctx.save_for_backward(
            couplings, strength, mean, queries, keys, correlation, weights, rows, *extra
        )
        return weights @ keys, weights.mT @ queries

    @staticmethod
    def backward(ctx: Any, grad_query: Tensor, grad_key: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        couplings, strength, mean, queries, keys, correlation, weights, rows = saved[:8]
        if torch.is_grad_enabled():
            names = ("strength", "mean", "queries", "keys", "pair", "width", "beta")

            def plain(couplings: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
                named: dict[str, Any] = dict.fromkeys(names)
                named.update(zip(names, others, strict=False))
                return covariance_attention_reference(couplings, **named)

            arguments = (*saved[:5], *saved[8:])
            grads = _gradients_with_graph(plain, arguments, (grad_query, grad_key))
            return (*grads, *(None,) * (8 - len(grads)))
        grad_keys = weights.mT @ grad_query
        grad_queries = weights @ grad_key
        # dL/dG, both outer products in one multiplication.
        outer = torch.cat([grad_query, queries], -1) @ torch.cat([keys, grad_key], -1).mT
        mixed = outer * couplings
        sums = mixed.sum(dim=-1, keepdim=True)
        # dL/dC = J (X − Σ X J / g), dL/dJ = X (C − Σ J C / g) − C Σ X J / g.
        grad_correlation = mixed.addcmul_(couplings, sums / strength, value=-1)
        grad_correlation.diagonal(dim1=-2, dim2=-1).zero_()
        grad_couplings = outer.mul_(correlation - rows)
        grad_couplings.addcmul_(correlation, sums / strength, value=-1)
        both = grad_correlation + grad_correlation.mT
        grad_mean = both @ mean
        grad_strength = (sums * rows / strength).sum(dim=-2, keepdim=True)
        grad_strength = grad_strength.sum_to_size(strength.shape)
        grad_pair = grad_width = grad_beta = None
        if ctx.second_order:
            pair, width, beta = saved[8:]
            # B is symmetric, so half of (dC + dCᵀ)∘B gives both ends of the product w wᵀ.
            pulled = (both * pair) @ width
            grad_width = beta * pulled
            grad_beta = (width * pulled).sum(dim=-2, keepdim=True).sum_to_size(beta.shape) / 2
            grad_pair = grad_correlation.mul_(beta * width).mul_(width.mT)
        return (
            grad_couplings,
            grad_strength,
            grad_mean,
            grad_queries,
            grad_keys,
            grad_pair,
            grad_width,
            grad_beta,
        )
