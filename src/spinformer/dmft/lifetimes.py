"""Lifetimes of chaotic transients: escapes from chaos, and the lifetime that escape times give.

An orbit forgets its start, so that the times until it escapes are exponential,
P(t > s) = exp(−s/τ) (Tél and Lai 2008). Some are cut off (censored) by the end of the run.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from scipy.special import chdtri

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record

# A hole in the chaotic set lets many orbits pass near it: one quiet stretch is no escape.
_IN_A_ROW = 3
# Each tail of the 95 % interval.
_TAIL = 0.025
_LONGEST = 1e200


@record
class Lifetime:
    """Lifetime of a chaotic transient with its 95 % confidence interval.

    Attributes
    ----------
    value : float
        The lifetime τ, infinite where nothing ended.
    low : float
        Lower end of the interval.
    high : float
        Upper end of the interval, infinite where nothing ended.
    ended : int
        Number of times that ended.
    """

    value: float
    low: float
    high: float
    ended: int


def estimate_lifetime(times: ArrayLike, *, ended: ArrayLike) -> Lifetime:
    r"""Estimate the mean lifetime from escape times, some of them censored, by maximum likelihood.

    Parameters
    ----------
    times : array_like, shape (..., n)
        Time of each escape, or until the end of the run where there was none: of `detect_escapes`,
        `first` times the number of steps of a stretch.
    ended : array_like of bool, shape (..., n)
        Whether each time ended with an escape; the others are censored.

    Returns
    -------
    Lifetime
        The lifetime and its 95 % confidence interval.

    Raises
    ------
    ValueError
        If the two shapes differ, no time is given, or a time is negative.

    Notes
    -----
    The likelihood of k escapes in a total time T is largest at

    .. math::

        \hat\tau = T / k .

    2T/τ is χ² distributed with 2k degrees of freedom if the k-th escape ends the experiment, which
    gives the upper end. The lower end uses 2k + 2, which covers a fixed horizon, too.

    References
    ----------
    Epstein and Sobel (1953).

    Examples
    --------
    >>> found = estimate_lifetime([10.0, 30.0, 50.0], ended=[True, True, False])
    >>> found.value, found.ended
    (45.0, 2)
    """
    spans = check_array("times", times, shape=(..., "n"), low=0.0, high=_LONGEST)
    flags = check_array("ended", ended, values=(0, 1))
    if flags.shape != spans.shape:
        raise ValueError(f"ended must have shape {spans.shape} as times, got {flags.shape}")
    total = float(np.sum(spans))
    count = int(flags.sum())
    low = 2 * total / float(chdtri(2 * count + 2, _TAIL))
    if not count:
        return Lifetime(value=np.inf, low=low, high=np.inf, ended=0)
    high = 2 * total / float(chdtri(2 * count, 1.0 - _TAIL))
    return Lifetime(value=total / count, low=low, high=high, ended=count)


@record
class EscapeTimes:
    """First stretch after each of B orbits escaped from chaos.

    Attributes
    ----------
    first : ndarray of int, shape (B,)
        Index of the first quiet stretch, the number of stretches where there was no escape.
    escaped : ndarray of bool, shape (B,)
        Whether there was an escape.
    returned : ndarray of bool, shape (B,)
        Whether chaos came back after it.
    """

    first: np.ndarray
    escaped: np.ndarray
    returned: np.ndarray


def detect_escapes(growth: np.ndarray, *, threshold: float) -> EscapeTimes:
    """Detect escapes from chaos in growth rates of tangent vectors.

    An orbit escapes at the first of three stretches in a row that grow more slowly than a
    threshold. An orbit that is quiet from the beginning, `first` = 0, was never chaotic and belongs
    to no lifetime. Where chaos came back (`returned`), stretches are too short for the motion
    behind the chaos, or the threshold is too high.

    Parameters
    ----------
    growth : ndarray, shape (n, B)
        Growth rate of each of B orbits in n consecutive stretches, `growth[..., 0].T` of what
        `lyapunov_spectrum` gives for a batch (B,).
    threshold : float
        Growth rate that separates chaos from other motion.

    Returns
    -------
    EscapeTimes
        First quiet stretch of each orbit, whether it escaped, and whether chaos came back.

    Raises
    ------
    ValueError
        If `growth` does not have two axes and at least three stretches.

    Examples
    --------
    >>> found = detect_escapes(np.array([[0.1], [0.1], [0.0], [0.0], [0.0]]), threshold=0.05)
    >>> found.first, found.escaped, found.returned
    (array([2]), array([ True]), array([False]))
    """
    growth = check_array("growth", growth, shape=("n", "B"))
    check_integer("stretches of growth", len(growth), low=_IN_A_ROW)
    quiet = growth < check_real("threshold", threshold)
    runs = sliding_window_view(quiet, _IN_A_ROW, axis=0).all(axis=-1)
    escaped = runs.any(axis=0)
    first = np.where(escaped, runs.argmax(axis=0), len(quiet))
    later = np.arange(len(quiet))[:, None] >= first
    returned = (later & ~quiet).any(axis=0)
    return EscapeTimes(first=first, escaped=np.asarray(escaped), returned=np.asarray(returned))


@record
class EscapeLaw:
    """Law of escape times, the logarithm of the lifetime as a linear function of columns.

    Attributes
    ----------
    value : ndarray, shape (k + 1,)
        The constant and the slopes of ln τ, in the order of the columns.
    error : ndarray, shape (k + 1,)
        Their standard errors, those of the Fisher information.
    deviance : float
        Twice what free lifetimes gain in log likelihood.
    """

    value: np.ndarray
    error: np.ndarray
    deviance: float


def escape_law(columns: np.ndarray, *, total: np.ndarray, ended: np.ndarray) -> EscapeLaw:
    r"""Fit a law of escape times to exponential lifetimes by maximum likelihood.

    Parameters
    ----------
    columns : ndarray, shape (n,) or (n, k)
        What ln τ depends on linearly, the sizes N and their logarithms, say.
    total : ndarray, shape (n,)
        Total time S at risk of all runs together.
    ended : ndarray, shape (n,)
        Number k > 0 of escapes in it.

    Returns
    -------
    EscapeLaw
        Constant, slopes and deviance.

    Raises
    ------
    ValueError
        If shapes differ, or a time or number of escapes is not positive.

    Notes
    -----
    The likelihood of a point is

    .. math::

        \tau^{-k} e^{-S/\tau}, \qquad \ln \tau = a_0 + \sum_j a_j x_j .

    Examples
    --------
    >>> sizes = np.array([100.0, 200.0, 300.0])
    >>> law = escape_law(sizes, total=50.0 * np.exp(0.02 * sizes), ended=np.full(3, 50.0))
    >>> law.value.round(9)
    array([0.  , 0.02])
    """
    total = check_array("total", total, shape=("n",), low=0.0, high=_LONGEST, open_low=True)
    ended = check_array("ended", ended, shape=total.shape, low=0.0, high=_LONGEST, open_low=True)
    given = check_array("columns", columns, low=-_LONGEST, high=_LONGEST)
    if given.ndim not in (1, 2) or len(given) != len(total) or not given.size:
        raise ValueError(
            f"columns must have shape ({len(total)},) or ({len(total)}, k), got {given.shape}"
        )
    named = given.reshape(len(total), -1)

    design = np.column_stack([np.ones(len(total)), named])
    scale = design.mean(axis=0)
    design /= scale
    information = design.T @ (ended[:, None] * design)
    # Newton's step with the expected information; the problem is convex, so it arrives.
    guess = np.linalg.solve(information, design.T @ (ended * np.log(total / ended)))
    for _ in range(200):
        move = np.linalg.solve(information, design.T @ (total * np.exp(-design @ guess) - ended))
        guess = guess + move
        if np.abs(move).max() < 1e-13:
            break
    ratio = total * np.exp(-design @ guess) / ended
    error = np.sqrt(np.diag(np.linalg.inv(information)))
    deviance = float(2.0 * ended @ (ratio - 1.0 - np.log(ratio)))
    return EscapeLaw(value=guess / scale, error=error / scale, deviance=deviance)
