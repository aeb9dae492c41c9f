"""Attention masks of the spin modules, read as torch's layers mean them."""

import torch
from torch import Tensor

from spinformer.core.checks import check_mask
from spinformer.core.operators import is_traced
from spinformer.core.records import record


@record
class PairMasks:
    """Which pairs may not be coupled, and what is added to the scores.

    Attributes
    ----------
    forbidden : Tensor of bool, broadcastable to (batch, heads, N, N), or None
        True at (i, j) where J_ij is zero; None forbids nothing.
    bias : Tensor, broadcastable to (batch, heads, N, N), or None
        Finite numbers that are added to the scores.
    """

    forbidden: Tensor | None = None
    bias: Tensor | None = None


def read_attention_mask(mask: Tensor, *, batch: int, heads: int, dtype: torch.dtype) -> PairMasks:
    """Read an attention mask in the convention of `torch.nn.TransformerEncoderLayer`.

    Parameters
    ----------
    mask : Tensor, shape (N, N) or (batch·heads, N, N)
        Booleans that are True where a pair is forbidden, or numbers that are added to the scores,
        where minus infinity forbids.
    batch : int
        Number of samples.
    heads : int
        Number of heads.
    dtype : dtype
        Precision of the scores, in which −1e300 may be minus infinity.

    Returns
    -------
    PairMasks
        The forbidden pairs and the finite part of the numbers.

    Raises
    ------
    ValueError
        If a number is NaN or plus infinity.
    """
    if mask.ndim == 3:
        mask = mask.unflatten(0, (batch, heads))
    if not mask.is_floating_point():
        return PairMasks(forbidden=mask)
    mask = mask.to(dtype)
    forbidden = mask == -torch.inf
    bias = mask.masked_fill(forbidden, 0.0)
    if not is_traced() and not bool(bias.isfinite().all()):
        raise ValueError("src_mask must be boolean, or finite and minus infinity, got NaN or inf")
    return PairMasks(forbidden=forbidden, bias=bias)


def read_padding_mask(padded: Tensor, *, batched: bool, batch: int, sites: int) -> Tensor:
    """Read a padding mask: which tokens are no spins.

    Parameters
    ----------
    padded : Tensor, shape (batch, N), or (N,) and (1, N) for a single sequence
        Booleans that are True at padding, or numbers: 0 at tokens and minus infinity at padding.
    batched : bool
        Whether the tokens have a batch axis.
    batch : int
        Number of samples.
    sites : int
        Number of tokens.

    Returns
    -------
    Tensor of bool, shape (batch, N)
        True at padding.

    Raises
    ------
    ValueError
        If the shape does not fit, or a number is neither 0 nor minus infinity.
    """
    allowed = [(batch, sites)] if batched else [(sites,), (1, sites)]
    padded = check_mask("src_key_padding_mask", padded, allowed).reshape(batch, sites)
    if not padded.is_floating_point():
        return padded
    known = (padded == 0) | (padded == -torch.inf)
    if not is_traced() and not bool(known.all()):
        raise ValueError(
            "src_key_padding_mask must be boolean, or 0 and minus infinity: "
            "a token is a spin or it is none"
        )
    return padded == -torch.inf


def is_causal_mask(forbidden: Tensor) -> bool:
    """Whether a mask lets some token attend to earlier tokens and no token to later ones.

    Parameters
    ----------
    forbidden : Tensor of bool, shape (..., N, N)
        True at (i, j) where token i may not attend to token j.

    Returns
    -------
    bool
        True if this holds for one of the matrices at least.

    Examples
    --------
    >>> later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    >>> is_causal_mask(later), is_causal_mask(later.mT), is_causal_mask(later | later.mT)
    (True, False, False)
    """
    allowed = ~forbidden
    forward = allowed.triu(1).flatten(-2).any(-1)
    backward = allowed.tril(-1).flatten(-2).any(-1)
    return bool((backward & ~forward).any())
