"""Scaled dot-product attention, and the retrieval step of a continuous memory.

Shapes: queries (..., S, d), keys (..., N, d), values (..., N, d_v). β is 1/√d unless given.
`attention` is the plain definition [bal2020energy, Eq. (1)]. `retrieval_step` runs in the
framework's fused kernel, as the layer does. Masks are True where a query may attend to a key.
Only `hopfield.layer` takes them in the convention of `torch.nn.MultiheadAttention`, which is the
opposite one.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.attention import nan_factor
from spinformer.core.checks import check_broadcast, check_real, check_tensor
from spinformer.hopfield.inputs import check_alpha, check_beta, check_result
from spinformer.hopfield.separation import unchecked_entmax


def attention(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    beta: float | None = None,
    mask: Tensor | None = None,
    alpha: float = 1.0,
) -> Tensor:
    r"""Scaled dot-product attention, by its definition.

    Parameters
    ----------
    queries : Tensor, shape (..., S, d)
        Queries, one a row.
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    values : Tensor, shape (..., N, d_v)
        Values, one for each key.
    beta : float or None, default None
        Inverse temperature, the reciprocal of the softmax temperature, positive. None is 1/√d.
    mask : Tensor of bool, broadcastable to (..., S, N), or None, default None
        True where a query may attend to a key. Each query needs at least one True.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S, d_v)
        Values averaged with the attention weights of each query.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor, the dtypes differ, or the mask is not
        boolean.
    ValueError
        If a shape does not fit, a number is out of range, the mask leaves no key to a query, or
        the result overflows its dtype.

    Notes
    -----

    .. math::

        \operatorname{softmax}(\beta\, Q K^\top)\, V.

    With another index α-entmax takes the place of softmax.

    References
    ----------
    [bal2020energy, Eq. (1)]

    [vaswani2017attention, Eq. (1)]

    Examples
    --------
    >>> pair = torch.eye(2)
    >>> attention(torch.zeros(1, 2), keys=pair, values=pair)
    tensor([[0.5000, 0.5000]])
    """
    beta = _check_attention(queries, keys=keys, values=values, beta=beta)
    alpha = check_alpha(alpha)
    scores = beta * queries @ keys.mT
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise TypeError(f"mask must be a boolean torch tensor, got {mask!r:.60}")
        if check_broadcast(mask=mask.shape, scores=scores.shape) != scores.shape:
            raise ValueError(f"mask must fit the shape {tuple(scores.shape)}, got {mask.shape}")
        if not bool(mask.any(-1).all()):
            raise ValueError("mask must leave at least one key to each query")
        scores = scores.masked_fill(~mask, -math.inf)
    return check_result("attention", unchecked_entmax(scores, alpha) @ values)


def _check_attention(queries: Tensor, *, keys: Tensor, values: Tensor, beta: float | None) -> float:
    """β, 1/√d where it is None; TypeError or ValueError where the arguments do not fit."""
    count, width = check_tensor("keys", keys, shape=(..., "N", "d")).shape[-2:]
    check_tensor("queries", queries, like=("keys", keys), shape=(..., "S", width))
    check_tensor("values", values, like=("keys", keys), shape=(..., count, "d_v"))
    check_broadcast(queries=queries.shape[:-2], keys=keys.shape[:-2], values=values.shape[:-2])
    return check_beta(1.0 / math.sqrt(width) if beta is None else beta)


# -- a retrieval step --------------------------------------------------------------------------


def retrieval_step(
    states: Tensor,
    *,
    scaled: Tensor,
    content: Tensor,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    alpha: float = 1.0,
) -> Tensor:
    r"""Retrieval step of a continuous memory, in the framework's fused attention kernel.

    A step with content equal to the keys is one iteration of the Hopfield update. With other
    content it reads values, as attention does. A state that may attend to no pattern retrieves 0.
    The result is NaN where an input is not finite or a score may overflow.

    Parameters
    ----------
    states : Tensor, shape (..., S, d)
        States, one a row.
    scaled : Tensor, shape (..., N, d)
        Keys multiplied by the inverse temperature β.
    content : Tensor, shape (..., N, d')
        Vectors to be averaged, one for each key.
    bias : Tensor, broadcastable to (..., S, N), or None, default None
        Numbers added to the scores, or booleans that are True where a state may attend to a
        pattern.
    dropout : float, default 0.0
        Probability with which each attention weight is dropped, in [0, 1].
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S, d')
        Content averaged with the attention weights of each state.

    Raises
    ------
    TypeError
        If an argument is not a tensor of matrices, or the dtypes differ.
    ValueError
        If the shapes do not fit, or `dropout` or `alpha` is out of range.

    Notes
    -----
    With c_i the content and b the bias, a step computes

    .. math::

        \sum_i p_i\, c_i, \qquad p = \operatorname{softmax}(\beta\, k \cdot \xi + b).

    Examples
    --------
    >>> retrieval_step(torch.zeros(1, 2), scaled=torch.eye(2), content=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    for name, x in (("states", states), ("scaled", scaled), ("content", content)):
        if not isinstance(x, Tensor) or x.ndim < 2 or x.dtype != states.dtype:
            raise TypeError(f"{name} must be a tensor of matrices, of one dtype with states")
    if scaled.shape[-1] != states.shape[-1] or scaled.shape[-2] != content.shape[-2]:
        shapes = f"{tuple(states.shape)}, {tuple(scaled.shape)} and {tuple(content.shape)}"
        raise ValueError(f"scaled must be as wide as states and as many as content, got {shapes}")
    if bias is not None and bias.dtype not in (torch.bool, states.dtype):
        raise TypeError(f"bias must be boolean or {states.dtype}, got {bias.dtype}")
    dropout = check_real("dropout", dropout, low=0.0, high=1.0)
    retrieved = unchecked_retrieval_step(
        states,
        scaled=scaled,
        content=content,
        bias=bias,
        dropout=dropout,
        alpha=check_alpha(alpha),
    )
    factor = nan_factor(states, keys=scaled, contents=(content,), mask=bias)
    return retrieved if factor is None else retrieved * factor


def unchecked_retrieval_step(
    states: Tensor,
    *,
    scaled: Tensor,
    content: Tensor,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    alpha: float = 1.0,
) -> Tensor:
    """Retrieval step that checks nothing and does not mark what is not finite.

    One call of `core.attention.nan_factor` on the first state is enough for all steps that follow.

    Parameters
    ----------
    states : Tensor, shape (..., S, d)
        States, one a row.
    scaled : Tensor, shape (..., N, d)
        Keys multiplied by the inverse temperature β.
    content : Tensor, shape (..., N, d')
        Vectors to be averaged, one for each key.
    bias : Tensor, broadcastable to (..., S, N), or None, default None
        Numbers added to the scores, or booleans as in `retrieval_step`.
    dropout : float, default 0.0
        Probability with which each attention weight is dropped.
    alpha : float, default 1.0
        Index of the separation by α-entmax. Only softmax has a fused kernel.

    Returns
    -------
    Tensor, shape (..., S, d')
        Content averaged with the attention weights of each state.

    Examples
    --------
    >>> unchecked_retrieval_step(torch.zeros(1, 2), scaled=torch.eye(2), content=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    if alpha != 1.0:
        weights = masked_attention_weights(states, scaled=scaled, bias=bias, alpha=alpha)
        return functional.dropout(weights, dropout) @ content
    if bias is not None:
        # The kernel does not widen the states to the batch of a bias.
        batch = torch.broadcast_shapes(states.shape[:-2], bias.shape[:-2])
        states = states.expand(*batch, -1, -1)
    return functional.scaled_dot_product_attention(
        states, scaled, content, attn_mask=bias, dropout_p=dropout, scale=1.0
    )


def masked_attention_weights(
    states: Tensor, *, scaled: Tensor, bias: Tensor | None, alpha: float = 1.0
) -> Tensor:
    """Attention weights of a retrieval step, computed explicitly.

    Parameters
    ----------
    states : Tensor, shape (..., S, d)
        States, one a row.
    scaled : Tensor, shape (..., N, d)
        Keys multiplied by the inverse temperature β.
    bias : Tensor, broadcastable to (..., S, N), or None
        Numbers added to the scores, or booleans as in `retrieval_step`.
    alpha : float, default 1.0
        Index of the separation by α-entmax.

    Returns
    -------
    Tensor, shape (..., S, N)
        Attention weights. All are 0 for a state that may attend to no pattern.
    """
    scores = states @ scaled.mT
    if bias is None:
        return unchecked_entmax(scores, alpha)
    bias = additive_mask(bias, scores.dtype)
    blind = (bias == -math.inf).all(-1, keepdim=True)
    scores = scores + bias.masked_fill(blind, 0.0)
    return unchecked_entmax(scores, alpha).masked_fill(blind, 0.0)


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive form of an attention mask.

    Parameters
    ----------
    mask : Tensor of bool or of numbers, any shape
        Mask that is True where a query may attend, or numbers to be added to the scores.
    dtype : torch.dtype
        Floating-point type of the result.

    Returns
    -------
    Tensor, shape of the mask
        0 where a boolean mask is True and −inf where it is False. Numbers stay as they are.
    """
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, -math.inf)
