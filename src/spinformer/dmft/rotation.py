"""Strobed orbits, and how far they turn from one flash to the next.

The position of a token is a clock of 2^K steps that drives the network. Seen once a period of the
clock, always at the same phase, a cycle of 2^K steps is a point, a quasi-periodic motion a closed
curve, and the mean angle by which it moves along this curve is the *rotation number*, in turns a
period. A rational one, p/q, is a motion locked to the clock.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context, fitting

# Smallest empty arc, in turns, that the angles of one flash must leave: there the lift is cut.
_GAP = 0.05
_FEWEST = 16


def strobed(
    network: Network,
    context: Context,
    *,
    beta: float | np.ndarray,
    count: int,
    phase: int = 0,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    transient: int = 0,
    threads: int | None = None,
) -> tuple[np.ndarray, Context]:
    """Semantic m^o, factor 1 − ε included, of every token at position `phase`: (..., count, P).

    The first of them at least `transient` steps after the start; with them the context at the
    end. beta, gamma, epsilon and the context broadcast as in `mean_field.trajectory`.

    >>> points, end = strobed(Network.document(), Context(np.zeros((4, 3)), 0), beta=1.2, count=5)
    >>> points.shape
    (5, 3)
    """
    _, position = fitting(network, context)
    phase = check_integer("phase", phase, low=0, high=network.positions - 1)
    transient = check_integer("transient", transient, low=0)
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads)
    ensemble.advance(transient + (phase - position - transient) % network.positions)
    # `record` keeps the last of every 2^K tokens.
    ensemble.advance(1)
    points = ensemble.record(check_integer("count", count, low=0), every=network.positions)
    return points, ensemble.state()


@record
class Rotation:
    """turns: turns a flash (...), from 0 to ½, with errors. clear: (...) booleans: True where the
    angle of a flash leaves an arc empty, so that its lift, and with it the number, has a meaning.
    """

    turns: Estimate
    clear: np.ndarray


def rotation_number(points: np.ndarray, *, center: np.ndarray | None = None) -> Rotation:
    """Mean turn a flash of strobed points (..., n, d) about a center (..., d), None: their mean.

    Angles are taken in the plane of the two leading principal axes, and averaged with the weight
    e^{−1/(t(1−t))}, 0 < t < 1 the share of the series that has passed: for a quasi-periodic motion
    this converges faster than any power of n [das2017quantitative]. The error is the largest
    difference to the same average over either half; it does not shrink for a chaotic series.
    Clockwise and counter-clockwise are not told apart. The curve must wind once about the center.
    ValueError for fewer than 16 points or for one dimension.

    >>> angle = 2 * np.pi * 0.2419 * np.arange(500)
    >>> found = rotation_number(np.stack([2 * np.cos(angle), np.sin(angle)], axis=-1))
    >>> f"{found.turns.value:.6f}", bool(found.clear)
    ('0.241900', True)
    """
    points = check_array("points", points)
    if points.ndim < 2 or points.shape[-2] < _FEWEST or points.shape[-1] < 2:
        raise ValueError(
            f"points must have shape (..., n, d), n at least {_FEWEST}, d at least 2, "
            f"got {points.shape}"
        )
    mean = points.mean(axis=-2)
    if center is not None:
        given = check_array("center", center)
        if given.shape[-1:] != mean.shape[-1:] or given.ndim > mean.ndim:
            raise ValueError(f"center must have shape (..., {mean.shape[-1]}), got {given.shape}")
        mean = given
    away = points - mean[..., None, :]
    spread = np.einsum("...ni,...nj->...ij", away, away)
    axes = np.linalg.eigh(spread)[1][..., -2:]
    flat = np.einsum("...ni,...ij->...nj", away, axes)
    angle = np.arctan2(flat[..., 1], flat[..., 0]) / (2 * np.pi)
    turn = np.diff(angle, axis=-1) % 1.0
    ordered = np.sort(turn, axis=-1)
    gaps = np.diff(np.concatenate([ordered, ordered[..., :1] + 1.0], axis=-1), axis=-1)
    index = np.argmax(gaps, axis=-1)[..., None]
    cut = np.take_along_axis(ordered, index, axis=-1)
    gap = np.take_along_axis(gaps, index, axis=-1)
    # Every turn between the end of the empty arc and one turn later.
    lift = (turn - cut - 0.5 * gap) % 1.0 + cut + 0.5 * gap
    half = lift.shape[-1] // 2
    whole = _weighted(lift)
    error = np.maximum(
        np.abs(_weighted(lift[..., :half]) - whole), np.abs(_weighted(lift[..., half:]) - whole)
    )
    turns = np.abs((whole + 0.5) % 1.0 - 0.5)
    estimate = Estimate(value=turns[()], error=error[()], samples=lift.shape[-1])
    return Rotation(turns=estimate, clear=np.asarray(gap[..., 0] > _GAP))


def _weighted(values: np.ndarray) -> np.ndarray:
    """Average (...) of (..., n) with a weight that is flat to all orders at both ends."""
    n = values.shape[-1]
    share = (np.arange(n) + 0.5) / n
    weight = np.exp(-1.0 / (share * (1.0 - share)))
    return np.asarray(values @ (weight / weight.sum()))
