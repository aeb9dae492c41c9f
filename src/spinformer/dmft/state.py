"""The state of the mean field: the last T attention vectors and a position."""

from __future__ import annotations

from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.dmft.weights import AttentionNetwork


@record
class Context:
    """State of the mean field, of one system or of a batch (axes `...`).

    attention: (..., T, P), the newest vector first.
    position: position in 0 … 2^K − 1 of the token that attention[..., 0, :] makes.

    The two may be given in this order. Raises ValueError for an attention that is not finite or
    has fewer than two axes, or for a negative position.

    >>> Context(np.zeros((4, 3)), 2)
    Context(attention=float64[4, 3] in [0, 0], position=2)
    """

    attention: np.ndarray
    position: int

    def __init__(self, attention: np.ndarray, position: int) -> None:
        vectors = check_array("attention", attention)
        if vectors.ndim < 2 or not vectors.size:
            raise ValueError(f"attention must have shape (..., T, P), got {vectors.shape}")
        object.__setattr__(self, "attention", vectors)
        object.__setattr__(self, "position", check_integer("position", position, low=0))

    def select(self, index: Any) -> Context:
        """The contexts at `index` of the batch's axes, for example one of them or a list of them.

        >>> Context(np.zeros((5, 4, 3)), 2).select(0).attention.shape
        (4, 3)
        """
        return Context(self.attention[index], self.position)


def fitting(network: AttentionNetwork, context: Context) -> tuple[np.ndarray, int]:
    """Attention and position of a context, once it is sure that they fit the network.

    Raises TypeError if either is something else, ValueError for another window, another number
    of features or a position that the network does not have.

    >>> from spinformer.dmft.network import Network
    >>> attention, position = fitting(Network.document(), Context(np.zeros((4, 3)), 2))
    >>> position
    2
    """
    if not isinstance(network, AttentionNetwork):
        raise TypeError(f"network must be a Network, got {network!r:.60}")
    if not isinstance(context, Context):
        raise TypeError(f"context must be a Context, got {context!r:.60}")
    if context.attention.shape[-2:] != (network.context, network.features):
        raise ValueError(
            "context.attention must end in (T, P) = "
            f"{(network.context, network.features)}, got shape {context.attention.shape}"
        )
    check_integer("context.position", context.position, low=0, high=network.positions - 1)
    return context.attention, context.position
