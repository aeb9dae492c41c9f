"""Weighted Birkhoff averages: averages along an orbit that converge fast where it is regular.

The average over a stretch, weighted with the bump function exp(−1/(t(1−t))), converges faster than
any power of the length on a quasi-periodic orbit, and as slowly as an average of random numbers on
a chaotic one [das2017quantitative].
"""

import numpy as np

from spinformer.core.checks import check_integer


def bump_weights(length: int) -> np.ndarray:
    r"""Compute the bump weights of a weighted Birkhoff average.

    Parameters
    ----------
    length : int
        Number n of steps in the average.

    Returns
    -------
    ndarray, shape (length,)
        Weights with the sum 1.

    Raises
    ------
    ValueError
        If `length` is below 1.

    Notes
    -----
    Before normalization the weights are

    .. math::

        w_n = \exp\Big(-\frac{1}{t(1-t)}\Big), \qquad t = \frac{n + \frac12}{\mathrm{length}}.

    References
    ----------
    [das2017quantitative]

    Examples
    --------
    >>> bump_weights(3).round(3)
    array([0.038, 0.925, 0.038])
    """
    length = check_integer("length", length, low=1)
    t = (np.arange(length) + 0.5) / length
    weight = np.exp(-1.0 / (t * (1.0 - t)))
    return weight / weight.sum()
