"""Spins ±1: the table of all their states, patterns stored in couplings, overlaps.

One convention for all rooms. Patterns are the rows of a (P, N) array: P patterns of N spins each.
The first spin is the most significant bit of a state's number and −1 is the bit 0, so that state
0 is all −1 and the last one all +1; read from left to right, a row is the number in binary.
"""

from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_flag, check_integer

MAX_LISTED_SPINS = 20
# Products of larger entries leave the range of numbers.
_LARGEST = 1e150


def spin_states(count: int) -> np.ndarray:
    """Every configuration of `count` spins, shape (2^count, count), entries −1.0 and 1.0.

    `count` from 0 to 20: the table of more would not fit a laptop.

    >>> spin_states(2)
    array([[-1., -1.],
           [-1.,  1.],
           [ 1., -1.],
           [ 1.,  1.]])
    """
    count = check_integer("count", count, low=0, high=MAX_LISTED_SPINS)
    codes = np.arange(2**count)[:, None] >> np.arange(count - 1, -1, -1)
    return 2.0 * (codes & 1) - 1.0


def hebbian_couplings(
    patterns: np.ndarray, *, other: np.ndarray | None = None, diagonal: bool = False
) -> np.ndarray:
    """Couplings J_ij = Σ_a x_ai y_aj of stored patterns, no factor 1/N in front.

    `patterns` x has shape (P, N). Without `other` y = x: Hopfield's symmetric (N, N) couplings,
    whose diagonal, P for ±1 patterns, is set to zero unless `diagonal` is true. With `other` y of
    shape (P, M): the (N, M) couplings of a bipartite network.

    >>> hebbian_couplings(np.array([[1, 1, -1]]))
    array([[ 0.,  1., -1.],
           [ 1.,  0., -1.],
           [-1., -1.,  0.]])
    """
    check_flag("diagonal", diagonal)
    within: Any = {"low": -_LARGEST, "high": _LARGEST}
    patterns = check_array("patterns", patterns, ndim=2, **within)
    if other is not None:
        return patterns.T @ check_array("other", other, shape=(patterns.shape[0], None), **within)
    couplings = patterns.T @ patterns
    if not diagonal:
        np.fill_diagonal(couplings, 0.0)
    return couplings


def overlaps(states: np.ndarray, *, patterns: np.ndarray) -> np.ndarray:
    """m_a = (1/N) Σ_i x_ai s_i, shape (..., P): 1 for a state equal to the pattern.

    `states` (..., N), `patterns` (P, N).

    >>> overlaps(np.array([1, 1, -1, 1]), patterns=np.array([[1, 1, 1, 1], [-1, -1, 1, -1]]))
    array([ 0.5, -1. ])
    """
    within: Any = {"low": -_LARGEST, "high": _LARGEST}
    patterns = check_array("patterns", patterns, shape=(None, "N"), **within)
    states = check_array("states", states, shape=(..., patterns.shape[1]), **within)
    return states @ patterns.T / patterns.shape[1]
