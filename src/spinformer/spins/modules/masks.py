"""What PyTorch's masks mean for a spin system in equilibrium.

A padded token is no spin: it is in no field and couples to nobody. An attention mask forbids
J_ij, or adds to its score; the pair is coupled by B_ij = J_ij + J_ji, so that it is free only
where both are forbidden. Nothing causal can come of that, whatever the mask.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spinformer.core.checks import check_flag
from spinformer.core.records import record


@record
class Masks:
    """`padded` (batch, N) and `forbidden` (batch or 1, heads or 1, N, N) booleans; `bias` of the
    scores, shaped like `forbidden`; None where there is nothing to mask."""

    padded: Tensor | None
    forbidden: Tensor | None
    bias: Tensor | None


def read_masks(
    tokens: Tensor,
    *,
    heads: int,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
) -> Masks:
    """Masks in PyTorch's form for `tokens` (batch, N, dim), checked.

    `key_padding_mask` (batch, N), True at padded tokens; `attn_mask` (N, N) or (batch·heads, N, N),
    True where token i may not attend to token j, or added to the scores, where minus infinity
    forbids. Raises ValueError for another shape and for `is_causal`, TypeError for another dtype.

    >>> masks = {"heads": 1, "attn_mask": None, "is_causal": False}
    >>> padded = torch.tensor([[False, True]])
    >>> read_masks(torch.zeros(1, 2, 3), key_padding_mask=padded, **masks).forbidden[0, 0]
    tensor([[False,  True],
            [ True,  True]])
    """
    if check_flag("is_causal", is_causal):
        raise ValueError(
            "is_causal must be False: in equilibrium the pair of tokens i and j is coupled by "
            "B = J + J^T, so that every token feels the future; a driven module can be causal"
        )
    batch, sites = tokens.shape[:2]
    forbidden, bias = None, None
    if attn_mask is not None:
        if not isinstance(attn_mask, Tensor) or not (
            attn_mask.dtype == torch.bool or attn_mask.is_floating_point()
        ):
            raise TypeError("attn_mask must be a tensor of booleans or of floating-point numbers")
        if tuple(attn_mask.shape) not in ((sites, sites), (batch * heads, sites, sites)):
            raise ValueError(
                f"attn_mask must have shape {(sites, sites)} or {(batch * heads, sites, sites)}, "
                f"got {tuple(attn_mask.shape)}"
            )
        whole = attn_mask.ndim == 3
        shaped = attn_mask.reshape(*((batch, heads) if whole else (1, 1)), sites, sites)
        if shaped.dtype == torch.bool:
            forbidden = shaped
        else:
            forbidden = shaped == -torch.inf
            bias = shaped.masked_fill(forbidden, 0.0)
    if key_padding_mask is not None:
        if not isinstance(key_padding_mask, Tensor) or key_padding_mask.dtype != torch.bool:
            raise TypeError("key_padding_mask must be a tensor of booleans")
        if tuple(key_padding_mask.shape) != (batch, sites):
            raise ValueError(
                f"key_padding_mask must have shape {(batch, sites)}, "
                f"got {tuple(key_padding_mask.shape)}"
            )
        either = (key_padding_mask[:, None, :] | key_padding_mask[:, :, None])[:, None]
        forbidden = either if forbidden is None else forbidden | either
    return Masks(padded=key_padding_mask, forbidden=forbidden, bias=bias)
