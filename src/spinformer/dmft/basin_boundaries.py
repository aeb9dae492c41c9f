"""Boundaries of basins of attraction: the uncertainty exponent, from pairs of starts or a picture.

A start is uncertain within a distance if another one that far away ends on another attractor. The
fraction of uncertain starts falls as the distance to the power α; the boundary has the dimension
D − α in D dimensions, so that α < 1 tells of a fractal [mcdonald1985fractal].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power_law
from spinformer.dmft.basins import basins_of_attraction, draw_starts
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork, Context

# Groups of points that are left out, one after another, for an error.
_GROUPS = 50


@record
class Uncertainty:
    """Uncertainty exponent of a basin boundary.

    Attributes
    ----------
    fractions : ndarray, shape (n,)
        Fraction of points with another label at each distance.
    errors : ndarray, shape (n,)
        Their errors.
    exponent : Estimate
        The exponent α of f ∝ distance^α; the boundary has the dimension D − α.
    """

    fractions: np.ndarray
    errors: np.ndarray
    exponent: Estimate


def ends_apart(
    system: AttentionNetwork | Map,
    starts: Any,
    *,
    sets: Sequence[np.ndarray],
    distances: ArrayLike,
    count: int,
    seed: Seed,
    horizon: int = 60_000,
    **parameters: float,
) -> np.ndarray:
    """Find whether starts end on another attractor than starts a distance away.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context, ndarray, str or callable
        The law of the starts, as in `find_coexisting_attractors`.
    sets : sequence of ndarray, shape (m, n)
        States of each attractor at position 0.
    distances : array_like, shape (D,)
        Euclidean distances of the second starts, each in its own random direction.
    count : int
        Number of pairs at each distance.
    seed : Seed
        Seed or random generator.
    horizon : int, default 60000
        Largest number of steps.
    **parameters : float
        Parameters of the system.

    Returns
    -------
    ndarray of bool, shape (D, at most count)
        Whether the two of a pair end apart. A start of which one partner has not settled in time is
        left out everywhere.

    Raises
    ------
    ValueError
        If the starts do not fit the system, or an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.basins import find_coexisting_attractors
    >>> from spinformer.dmft.network import Network
    >>> network = Network.poclopez2024()
    >>> found = find_coexisting_attractors(network, "uniform", count=8, transient=2000, beta=0.5)
    >>> ends_apart(
    ...     network, "uniform", sets=found.sets, distances=[0.1], count=3, seed=0, beta=0.5
    ... )
    array([[False, False, False]])
    """
    rng = numpy_generator(seed)
    sizes = check_array("distances", distances, shape=("D",), low=0.0)
    origin = draw_starts(system, starts, count=count, seed=rng)
    base = origin.attention if isinstance(origin, Context) else origin
    own = tuple(range(2, base.ndim + 1))
    direction = rng.standard_normal((len(sizes), *base.shape))
    direction /= np.sqrt((direction**2).sum(axis=own, keepdims=True))
    moved = base + sizes.reshape(-1, *(1,) * base.ndim) * direction
    both: Any = np.concatenate([base[None], moved])
    if isinstance(origin, Context):
        both = Context(both, origin.position)
    ends = basins_of_attraction(system, both, sets=sets, horizon=horizon, **parameters)
    return np.asarray(ends[1:] != ends[0])[:, (ends >= 0).all(axis=0)]


def uncertainty_exponent(
    differ: np.ndarray, *, distances: Sequence[float], groups: np.ndarray | None = None
) -> Uncertainty:
    r"""Estimate the uncertainty exponent of a basin boundary.

    Parameters
    ----------
    differ : ndarray of bool, shape (n, B)
        Whether point b has another label at distance n.
    distances : sequence of float, length n
        The distances.
    groups : ndarray, shape (B,), optional
        Groups of points that share neighbours, which are left out one at a time for the error; None
        makes fifty.

    Returns
    -------
    Uncertainty
        Fractions of uncertain points and the exponent.

    Raises
    ------
    ValueError
        If no point differs at some distance.

    Notes
    -----
    The fraction f of points whose label is uncertain within a distance ε falls as

    .. math::

        f(\epsilon) \propto \epsilon^{\alpha},

    with α = 1 for a smooth boundary and α < 1 for a fractal one of dimension D − α.

    References
    ----------
    [mcdonald1985fractal]

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> boundary = rng.random((1, 4000)) < np.array([[0.1], [0.05], [0.025]])
    >>> bool(abs(uncertainty_exponent(boundary, distances=[4, 2, 1]).exponent.value - 1) < 0.2)
    True
    """
    differ = check_array("differ", differ, shape=("n", "B"), values=(0, 1)) > 0
    check_array("distances", distances, shape=(len(differ),), low=0.0, open_low=True)
    points = differ.shape[1]
    if groups is None:
        groups = np.arange(points) % _GROUPS
    groups = check_array("groups", groups, shape=(points,))
    fractions = differ.mean(axis=1)
    if not (fractions > 0).all():
        raise ValueError(f"differ must hold a True at every distance, got fractions {fractions}")
    left_out = [differ[:, groups != name].mean(axis=1) for name in np.unique(groups)]
    count = len(left_out)
    errors = np.sqrt((count - 1) / count * ((left_out - fractions) ** 2).sum(axis=0))
    # A fraction whose groups all agree is still only counted.
    weights = np.maximum(errors, fractions / np.sqrt(points))
    laws = [
        fit_power_law(distances, values=np.maximum(one, 0.5 / points), errors=weights)
        for one in (fractions, *left_out)
    ]
    slopes = [float(law.slope.value) for law in laws]
    error = float(np.sqrt((count - 1) * np.var(slopes[1:])))
    exponent = Estimate(value=slopes[0], error=error, samples=count)
    return Uncertainty(fractions=fractions, errors=errors, exponent=exponent)


def neighbours_differ(
    labels: np.ndarray, *, distances: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Find which points of a picture of labels have neighbours with another label.

    The four neighbours so many cells away along the axes are asked; points that lack one at the
    largest distance are not used.

    Parameters
    ----------
    labels : ndarray, shape (rows, columns)
        The labels, of basins or regimes.
    distances : sequence of int
        Distances in cells.

    Returns
    -------
    differ : ndarray of bool, shape (n, B)
        For `uncertainty_exponent`: whether a point has another label at each distance.
    tiles : ndarray of int, shape (B,)
        Tile, of 4 × 4, of each point.

    Raises
    ------
    ValueError
        If `labels` does not have two axes.

    Examples
    --------
    >>> half = np.repeat([[0, 1]], 4, axis=1).repeat(8, axis=0)
    >>> differ, tiles = neighbours_differ(half, distances=(1, 2))
    >>> differ.shape
    (2, 16)
    """
    labels = check_array("labels", labels, shape=("rows", "columns"))
    try:
        steps = [check_integer("distances", n, low=1) for n in distances]
    except TypeError:
        raise TypeError("distances must be a sequence of integers") from None
    if not steps:
        raise ValueError("distances must hold a distance, got none")
    edge = max(steps)
    check_integer("twice the largest of distances", 2 * edge, high=min(labels.shape) - 1)
    differ = []
    for n in steps:
        around = [np.roll(labels, way, axis) != labels for way in (n, -n) for axis in (0, 1)]
        differ.append(np.any(around, axis=0)[edge:-edge, edge:-edge])
    rows, columns = np.indices(differ[0].shape)
    tiles = 4 * (4 * rows // len(rows)) + 4 * columns // columns.shape[1]
    return np.array(differ).reshape(len(steps), -1), tiles.ravel()
