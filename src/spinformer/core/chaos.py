"""What a spectrum of exponents alone says about chaos."""

import numpy as np

from spinformer.core.checks import check_array


def kaplan_yorke_dimension(exponents: np.ndarray) -> np.ndarray:
    r"""Kaplan–Yorke (Lyapunov) dimension of an attractor.

    Parameters
    ----------
    exponents : ndarray, shape (..., k)
        Lyapunov exponents, the largest first.

    Returns
    -------
    ndarray, shape (...)
        The dimension. It is 0 where the largest exponent is negative. Where no sum is negative it
        is k, and the dimension is at least k.

    Raises
    ------
    TypeError
        If the exponents are not a real numeric array.
    ValueError
        If the exponents are not sorted or not finite.

    Notes
    -----
    With j the last index at which the sum of the exponents is not negative,

    .. math::

        D = j + \frac{\lambda_1 + \dots + \lambda_j}{\lvert \lambda_{j+1} \rvert}.

    References
    ----------
    [kaplan1979chaotic]

    Examples
    --------
    >>> kaplan_yorke_dimension(np.array([[0.1, 0.0, -0.4], [-0.1, -0.2, -0.3]])).tolist()
    [2.25, 0.0]
    """
    values = check_array("exponents", exponents, shape=(..., "k"))
    if (np.diff(values, axis=-1) > 0.0).any():
        raise ValueError("exponents must be sorted, the largest first")
    edge = [(0, 0)] * (values.ndim - 1)
    sums = np.pad(np.cumsum(values, axis=-1), [*edge, (1, 0)])
    following = np.pad(values, [*edge, (0, 1)], constant_values=-np.inf)
    # Sums of a falling sequence rise, then fall: those that are not negative come first.
    j = (sums >= 0.0).sum(axis=-1, keepdims=True) - 1
    part = np.take_along_axis(sums, j, axis=-1) / -np.take_along_axis(following, j, axis=-1)
    return np.asarray((j + part)[..., 0])
