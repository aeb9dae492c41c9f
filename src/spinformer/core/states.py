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
    """Enumeration of all configurations of Ising spins.

    Parameters
    ----------
    count : int
        Number of spins, from 0 to 20. The table of more would not fit a laptop.

    Returns
    -------
    ndarray, shape (2^count, count)
        All configurations with entries −1.0 and 1.0. The first spin is the most significant bit.

    Raises
    ------
    TypeError
        If the number is not an integer.
    ValueError
        If the number is not in [0, 20].

    Examples
    --------
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
    r"""Hebbian couplings of stored patterns, with no factor 1/N in front.

    Parameters
    ----------
    patterns : ndarray, shape (P, N)
        Stored patterns x, one a row.
    other : ndarray, shape (P, M), or None, default None
        Second patterns y of a bipartite network. None takes y = x, which gives Hopfield's
        symmetric couplings.
    diagonal : bool, default False
        Whether the diagonal, which is P for ±1 patterns, is kept. It is set to zero otherwise.

    Returns
    -------
    ndarray, shape (N, N) or (N, M)
        The couplings.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape does not fit or an entry is not finite or above 1e150.

    Notes
    -----

    .. math::

        J_{ij} = \sum_a x_{ai}\, y_{aj}.

    References
    ----------
    [hopfield1982neural]

    Examples
    --------
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
    r"""Overlaps of spin states with stored patterns.

    Parameters
    ----------
    states : ndarray, shape (..., N)
        Spin states.
    patterns : ndarray, shape (P, N)
        Stored patterns, one a row.

    Returns
    -------
    ndarray, shape (..., P)
        The overlaps, 1 for a state equal to the pattern.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a shape does not fit or an entry is not finite or above 1e150.

    Notes
    -----

    .. math::

        m_a = \frac1N \sum_i x_{ai}\, s_i.

    Examples
    --------
    >>> overlaps(np.array([1, 1, -1, 1]), patterns=np.array([[1, 1, 1, 1], [-1, -1, 1, -1]]))
    array([ 0.5, -1. ])
    """
    within: Any = {"low": -_LARGEST, "high": _LARGEST}
    patterns = check_array("patterns", patterns, shape=(None, "N"), **within)
    states = check_array("states", states, shape=(..., patterns.shape[1]), **within)
    return states @ patterns.T / patterns.shape[1]
