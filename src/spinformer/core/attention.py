"""The framework's fused attention kernel, with NaN wherever it would hide that something is not.

On a CPU `scaled_dot_product_attention` returns 0 for a query whose scores are all NaN or −inf, so
that a weight that has become NaN, or a score that overflows, gives a plausible result. Here it
gives NaN. Only a mask can leave a query without keys, and such a query reads 0, as in the kernel.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.operators import is_traced


def fused_attention(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    r"""Scaled dot-product attention in the framework's fused kernel, with NaN kept visible.

    A query that may attend to no key gives 0. A query whose scores may overflow, or that meets a
    key, value or mask that is not finite, gives NaN, with or without a compiler. Shapes and types
    are not checked.

    Parameters
    ----------
    queries : Tensor, shape (..., S, d)
        Queries, one a row.
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    values : Tensor, shape (..., N, d_v)
        Values, one for each key.
    mask : Tensor, broadcastable to (..., S, N), or None, default None
        Booleans that are True where a query may attend, or numbers added to the scores.
    scale : float, default 1.0
        Factor of the scores, the inverse temperature.

    Returns
    -------
    Tensor, shape (..., S, d_v)
        Values averaged with the attention weights of each query.

    Notes
    -----

    .. math::

        \sum_i p_i\, v_i, \qquad p = \operatorname{softmax}(\text{scale} \cdot k \cdot q +
        \text{mask}).

    Examples
    --------
    >>> fused_attention(torch.zeros(1, 2), keys=torch.eye(2), values=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    read = functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=scale
    )
    factor = nan_factor(queries, keys=keys, contents=(values,), mask=mask, scale=scale)
    return read if factor is None else read * factor


@torch.no_grad()
def nan_factor(
    queries: Tensor,
    *,
    keys: Tensor,
    contents: tuple[Tensor, ...],
    mask: Tensor | None = None,
    scale: float = 1.0,
    again: bool = False,
) -> Tensor | None:
    """Factor that marks attention outputs as NaN where an input or a score is not finite.

    The factor is NaN where a key, an entry of `contents` or the mask is not finite (the value −inf
    is how a mask forbids), and where a score may exceed the largest number. Multiplying by it
    makes the gradient NaN, too. Shapes and types are not checked.

    Parameters
    ----------
    queries : Tensor, shape (..., S, d)
        Queries, one a row.
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    contents : tuple of Tensor, each of shape (..., N, d')
        Vectors that are averaged with the attention weights.
    mask : Tensor, broadcastable to (..., S, N), or None, default None
        Booleans, or numbers added to the scores.
    scale : float, default 1.0
        Factor of the scores.
    again : bool, default False
        Whether the average of the first content meets the keys again, any number of times.

    Returns
    -------
    Tensor, shape (..., S, 1), or None
        1 or NaN for each query. None if all are 1.

    Notes
    -----
    A score |k·q| is at most the sum of |q| times the largest entry of |k|.

    Examples
    --------
    >>> keys = torch.eye(2)
    >>> nan_factor(keys, keys=keys, contents=(keys,)) is None
    True
    >>> nan_factor(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]), keys=keys, contents=(keys,))
    tensor([[1.],
            [nan]])
    """
    # The kernel sums in single precision where its input has half.
    wide = torch.promote_types(queries.dtype, torch.float32)
    if not is_traced():
        # Norms of everything at once are ten times faster than a look at each query, and enough
        # unless something is wrong.
        norms = [float(torch.linalg.vector_norm(x, dtype=wide)) for x in (queries, keys, *contents)]
        reach = max(norms[0], norms[2]) if again else norms[0]
        sound = math.isfinite(sum(norms)) and scale * reach * norms[1] < torch.finfo(wide).max
        if sound and (mask is None or _is_mask(mask.detach())):
            return None
    size = queries.abs().sum(-1, keepdim=True, dtype=wide)
    if again:
        size = torch.maximum(size, queries.shape[-1] * _largest(contents[0]))
    each = torch.isfinite(scale * size * _largest(keys))
    for content in contents:
        each = each & torch.isfinite(_largest(content))
    if mask is not None and mask.is_floating_point():
        each = each & (mask.amax(-1, keepdim=True) < math.inf)
    return torch.where(each, 1.0, math.nan).to(queries.dtype)


def _is_mask(mask: Tensor) -> bool:
    """Whether a mask is boolean, or has no NaN and nothing at +inf."""
    return mask.dtype == torch.bool or not mask.numel() or float(mask.amax()) < math.inf


def _largest(values: Tensor) -> Tensor:
    """The largest magnitude in each matrix (..., N, d), in single precision at least."""
    found = values.abs().amax((-2, -1), keepdim=True)
    return found.to(torch.promote_types(values.dtype, torch.float32))
