"""The stroboscopic section of a driven network, and the rotation number of the motion in it.

The positional code drives the network with a period of 2^K steps. In the stroboscopic map, which
samples the orbit once per period, a cycle of 2^K steps is a point and a quasi-periodic motion is a
closed curve.
"""

from typing import Unpack

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.statistics import Estimate
from spinformer.dmft.birkhoff import bump_weights
from spinformer.dmft.ensemble import Ensemble, Parameters
from spinformer.dmft.network import AttentionNetwork, Context

# Points that move by less than this, in units of their largest component, do not turn.
_STILL = 1e-9


def stroboscopic_section(
    network: AttentionNetwork,
    context: Context,
    *,
    count: int,
    transient: int = 0,
    **parameters: Unpack[Parameters],
) -> tuple[np.ndarray, Context]:
    """Sample the stroboscopic section: the tokens at position 0, once per period of the drive.

    The first of them is at least `transient` steps after the start.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states, of one system or of a batch.
    count : int
        Number of points of the section.
    transient : int, default 0
        Number of steps that are dropped first.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    points : ndarray, shape (..., count, P)
        Semantic overlaps m^o of the tokens at position 0, with their factor 1 − ε.
    context : Context
        The states at the end.

    Raises
    ------
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((4, 3)), 0)
    >>> points, end = stroboscopic_section(Network.poclopez2024(), start, beta=1.2, count=5)
    >>> points.shape
    (5, 3)
    """
    transient = check_integer("transient", transient, low=0)
    ensemble = Ensemble(network, context, **parameters)
    # `record` keeps the last of every 2^K tokens, here the one at position 0.
    ensemble.advance(transient + (-context.position - transient) % network.positions + 1)
    points = ensemble.record(check_integer("count", count, low=0), every=network.positions)
    return points, ensemble.state()


def rotation_number(points: np.ndarray) -> Estimate:
    r"""Estimate the rotation number of quasi-periodic motion from its stroboscopic section.

    It is the mean angle by which a point turns about the mean of all points, in the plane of the
    two leading principal axes. The closed curve must wind once about its mean.

    Parameters
    ----------
    points : ndarray, shape (..., n, d)
        Points of the section in order, at least four, of at least two components.

    Returns
    -------
    Estimate
        Rotation numbers (...), in turns per sample, from 0 to ½, and NaN of points that do not
        move, as those of a cycle of the period of the drive. The error is the largest difference to
        the same average over either half of the series.

    Raises
    ------
    ValueError
        If `points` has fewer than two axes, or too few points or components.

    Notes
    -----
    With the angles θ_n and the bump weights w of a weighted Birkhoff average,

    .. math::

        \rho = \frac{1}{2\pi} \sum_n w_n\, (\theta_{n+1} - \theta_n) .

    References
    ----------
    [das2017quantitative]

    Examples
    --------
    >>> angle = 2 * np.pi * 0.3 * np.arange(100)
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    >>> f"{rotation_number(circle).value:.6f}"
    '0.300000'
    """
    points = check_array("points", points, shape=(..., "n", "d"))
    check_integer("number of points", points.shape[-2], low=4)
    check_integer("components of points", points.shape[-1], low=2)
    away = points - points.mean(axis=-2, keepdims=True)
    axes = np.linalg.eigh(np.einsum("...ni,...nj->...ij", away, away))[1][..., -2:]
    flat = away @ axes
    turn = np.diff(np.arctan2(flat[..., 1], flat[..., 0])) / (2 * np.pi)
    # Every turn within half a turn of their mean direction.
    middle = np.angle(np.exp(2j * np.pi * turn).mean(axis=-1, keepdims=True)) / (2 * np.pi)
    lift = (turn - middle + 0.5) % 1.0 + middle - 0.5
    half = lift.shape[-1] // 2
    whole = lift @ bump_weights(lift.shape[-1])
    early = lift[..., :half] @ bump_weights(half)
    late = lift[..., half:] @ bump_weights(lift.shape[-1] - half)
    error = np.maximum(np.abs(early - whole), np.abs(late - whole))
    turns = np.abs((whole + 0.5) % 1.0 - 0.5)
    still = np.abs(away).max(axis=(-2, -1)) <= _STILL * np.abs(points).max(axis=(-2, -1))
    return Estimate(
        value=np.where(still, np.nan, turns)[()],
        error=np.where(still, np.nan, error)[()],
        samples=lift.shape[-1],
    )
