"""Basins: which start ends on which attractor, how soon, and how finely the answers are mixed.

A start counts as settled on an attractor from the first check at which its window lies within a
radius of the attractor's set, and does so at the next check, too (attractors by proximity). The
set is what windows the attractor visits at one position of the clock, so that the clock's phase is
a part of the answer. Checks are whole turns of the clock apart; orbits that have settled are
followed no further.

Two numbers describe how basins are mixed. The *uncertainty exponent* α (Grebogi et al. 1983,
McDonald et al. 1985): of the points of a d-dimensional slice the share that has a point of
another basin at a distance ε goes as ε^α, where the basins' border has dimension d − α; α = 1 is a
smooth border, small α means that better knowledge of the start helps little. The *basin entropy*
(Daza et al. 2016): −Σ p ln p of the basins' shares p in a small box, averaged over boxes. Where
its average over the boxes that hold a border exceeds ln 2 the border is fractal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power, mean_estimate
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context, fitting


@record
class Basins:
    """Where starts (...) end: `number` of the attractor, −1 for none, and `time` in steps.

    time: at the first check on the attractor; the horizon where there is none.
    """

    number: np.ndarray
    time: np.ndarray


def attractor_set(
    network: Network,
    context: Context,
    *,
    beta: float,
    turns: int,
    gamma: float | None = None,
    epsilon: float | None = None,
) -> np.ndarray:
    """Windows that one orbit visits at its present position in `turns` turns of the clock.

    context: one context (T, P) on the attractor. Returns (n, T·P), n ≤ turns: windows that come
    back to 1e-9 end the list, so a cycle is stored once.

    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> attractor_set(Network.document(), start, beta=0.5, turns=3).shape
    (3, 12)
    """
    turns = check_integer("turns", turns, low=1)
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=1)
    windows = [ensemble.state().attention.ravel()]
    for _ in range(turns - 1):
        ensemble.advance(network.positions)
        window = ensemble.state().attention.ravel()
        if np.abs(window - windows[0]).max() < 1e-9:
            break
        windows.append(window)
    return np.array(windows)


def basins_of_attraction(
    network: Network,
    context: Context,
    *,
    beta: float,
    sets: Sequence[np.ndarray],
    horizon: int,
    radius: float = 1e-4,
    turns: int = 100,
    gamma: float | None = None,
    epsilon: float | None = None,
    threads: int | None = None,
) -> Basins:
    """On which of `sets`, each (n, T·P) of `attractor_set`, the starts (..., T, P) end.

    `turns` turns of the clock lie between checks, `horizon` steps are the most that are run.
    Raises ValueError where two sets come closer than twice the radius.

    >>> network, start = Network.document(), Context(np.full((4, 3), 0.1), 0)
    >>> ensemble = Ensemble(network, start, beta=0.5)
    >>> ensemble.advance(400)
    >>> cycle = attractor_set(network, ensemble.state(), beta=0.5, turns=3)
    >>> starts = Context(np.zeros((2, 4, 3)), 0)
    >>> found = basins_of_attraction(network, starts, beta=0.5, sets=[cycle], horizon=2000)
    >>> found.number
    array([0, 0])
    """
    fitting(network, context)
    if not isinstance(sets, Sequence):
        raise TypeError(f"sets must be a sequence of arrays, got {sets!r:.60}")
    check_integer("number of sets", len(sets), low=1)
    width = network.context * network.features
    points = [check_array("sets", one, shape=(None, width)) for one in sets]
    radius = check_real("radius", radius, low=0.0)
    turns = check_integer("turns", turns, low=1)
    check = turns * network.positions
    horizon = check_integer("horizon", horizon, low=2 * check)
    trees = [cKDTree(one) for one in points]
    for one, tree in enumerate(trees):
        for other in range(one):
            gap = float(tree.query(points[other])[0].min())
            if gap <= 2 * radius:
                raise ValueError(
                    f"sets {other} and {one} come within {gap:.1e}, "
                    f"which needs a radius below half of it, got {radius}"
                )
    tree = cKDTree(np.concatenate(points))
    owner = np.repeat(np.arange(len(points)), [len(one) for one in points])
    starts = context.attention.reshape(-1, network.context, network.features)
    number = np.full(len(starts), -1)
    time = np.full(len(starts), horizon)
    before = np.full(len(starts), -1)
    going = np.arange(len(starts))
    state = Context(starts, context.position)
    for now in range(check, horizon + 1, check):
        ensemble = Ensemble(
            network, state, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads
        )
        ensemble.advance(check)
        state = ensemble.state()
        near, index = tree.query(
            state.attention.reshape(len(going), -1), distance_upper_bound=radius
        )
        here = np.where(np.isfinite(near), owner[np.minimum(index, len(owner) - 1)], -1)
        done = (here >= 0) & (here == before[going])
        number[going[done]] = here[done]
        time[going[done]] = now - check
        before[going] = here
        going = going[~done]
        if not len(going):
            break
        state = state.select(~done)
    shape = context.attention.shape[:-2]
    return Basins(number=number.reshape(shape), time=time.reshape(shape))


def slice_of_contexts(
    context: Context,
    *,
    first: tuple[int, int],
    second: tuple[int, int],
    extent: tuple[float, float],
    count: int,
) -> tuple[np.ndarray, Context]:
    """Contexts (count, count, T, P) on a plane: two components of one window take all values.

    first, second: (age, feature) of the components along the rows and the columns; they take the
    `count` middles of equal intervals of `extent`, which are returned, too.

    >>> values, plane = slice_of_contexts(
    ...     Context(np.zeros((4, 3)), 0), first=(0, 0), second=(0, 1), extent=(-1.0, 1.0), count=4
    ... )
    >>> values, plane.attention[1, 3, 0]
    (array([-0.75, -0.25,  0.25,  0.75]), array([-0.25,  0.75,  0.  ]))
    """
    count = check_integer("count", count, low=1)
    check_instance("context", context, Context)
    low, high = check_array("extent", extent, shape=(2,)).tolist()
    if context.attention.ndim != 2:
        raise ValueError(f"context must be one context (T, P), got {context.attention.shape}")
    for name, place in (("first", first), ("second", second)):
        if not isinstance(place, tuple) or len(place) != 2:
            raise TypeError(f"{name} must be a pair (age, feature), got {place!r:.60}")
        for index, size in zip(place, context.attention.shape, strict=True):
            check_integer(name, index, low=0, high=size - 1)
    if first == second:
        raise ValueError(f"second must differ from first, got {second} twice")
    values = low + (high - low) * (np.arange(count) + 0.5) / count
    plane = np.broadcast_to(context.attention, (count, count, *context.attention.shape)).copy()
    plane[:, :, first[0], first[1]] = values[:, None]
    plane[:, :, second[0], second[1]] = values[None, :]
    return values, Context(plane, context.position)


@record
class Uncertainty:
    """How the share of uncertain points grows with the distance: exponent α and its points.

    distances, shares: (n,) distances, and the share of points with another label there. errors:
    (n,) standard errors of the shares. exponent: slope of log share against log distance. All
    errors come from leaving out one group of points at a time.
    """

    distances: np.ndarray
    shares: np.ndarray
    errors: np.ndarray
    exponent: Estimate


def uncertainty_exponent(
    differ: np.ndarray, *, distances: Sequence[float], groups: np.ndarray | None = None
) -> Uncertainty:
    """Uncertainty exponent from booleans (n, B): does point b have another label at distance n?

    distances: (n,), at least three. groups: (B,) integers; points that share neighbors belong to
    one group. None: every point is its own, as for neighbors drawn anew for each point. Raises
    ValueError where no point is uncertain at some distance.

    >>> halves = np.arange(64)[:, None] + np.zeros(64) < 32
    >>> differ, groups = grid_neighbors(halves, distances=(1, 2, 4, 8))
    >>> found = uncertainty_exponent(differ, distances=(1, 2, 4, 8), groups=groups)
    >>> print(f"{found.exponent.value:.2f}")
    1.00
    """
    sizes = check_array("distances", distances, ndim=1, low=0.0)
    check_integer("number of distances", len(sizes), low=3)
    flags = check_array("differ", differ, shape=(len(sizes), None), low=0.0, high=1.0)
    points = flags.shape[1]
    if groups is None:
        groups = np.arange(points) % max(2, min(points, 50))
    members = check_array("groups", groups, shape=(points,)).astype(int)
    shares = flags.mean(axis=1)
    if not (shares > 0).all():
        raise ValueError(f"differ must hold a True at every distance, got shares {shares}")
    names = np.unique(members)
    count = check_integer("number of groups", len(names), low=2)
    left_out = np.array([flags[:, members != name].mean(axis=1) for name in names])
    errors = np.sqrt((count - 1) / count * ((left_out - shares) ** 2).sum(axis=0))
    # A share whose groups all agree is still only counted.
    weights = np.maximum(errors, shares / np.sqrt(points))

    def slope(values: np.ndarray) -> float:
        values = np.maximum(values, 0.5 / points)
        return float(fit_power(sizes, values=values, errors=weights).slope.value)

    slopes = np.array([slope(one) for one in left_out])
    error = float(np.sqrt((count - 1) / count * ((slopes - slopes.mean()) ** 2).sum()))
    return Uncertainty(
        distances=sizes,
        shares=shares,
        errors=errors,
        exponent=Estimate(value=slope(shares), error=error, samples=count),
    )


def grid_neighbors(
    labels: np.ndarray, *, distances: Sequence[int], tiles: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """For `uncertainty_exponent`: which points of a picture (n, m) have neighbors that differ.

    Distances are in cells; a point's neighbors are the four that far along the axes. Only points
    that have all of them at the largest distance are used. Returns booleans (len(distances), B)
    and the number (B,) of the tile, of `tiles` × `tiles`, that each point lies in.

    >>> differ, groups = grid_neighbors(np.eye(8), distances=(1, 2))
    >>> differ.shape, len(set(groups))
    ((2, 16), 16)
    """
    labels = check_array("labels", labels, ndim=2)
    if not isinstance(distances, Sequence) or not distances:
        raise TypeError(f"distances must be a non-empty sequence, got {distances!r:.60}")
    steps = [check_integer("distances", step, low=1) for step in distances]
    tiles = check_integer("tiles", tiles, low=1)
    edge = max(steps)
    high, wide = (size - 2 * edge for size in labels.shape)
    check_integer("cells of labels beyond the largest distance", min(high, wide), low=tiles)
    middle = labels[edge:-edge, edge:-edge]
    differ = np.zeros((len(steps), high, wide), dtype=bool)
    for n, step in enumerate(steps):
        for down, right in ((step, 0), (-step, 0), (0, step), (0, -step)):
            moved = labels[edge + down : edge + down + high, edge + right : edge + right + wide]
            differ[n] |= moved != middle
    rows, columns = np.arange(high) * tiles // high, np.arange(wide) * tiles // wide
    return differ.reshape(len(steps), -1), (tiles * rows[:, None] + columns).ravel()


@record
class BasinEntropy:
    """Basin entropy in nats: `mean` over all boxes, `border` over those with several labels.

    boxes: how many boxes; border_boxes: how many of them hold more than one label (of a single one
    the entropy has no error, NaN).
    """

    mean: Estimate
    border: Estimate
    boxes: int
    border_boxes: int


def basin_entropy(labels: np.ndarray, *, box: int = 5) -> BasinEntropy:
    """Basin entropy of a picture of labels (n, m), cut into boxes of `box` × `box` points.

    What does not fill a box at the edges is left out. Errors are those of the mean over boxes.

    >>> found = basin_entropy(np.arange(20)[:, None] + np.zeros(20) < 12, box=5)
    >>> found.boxes, found.border_boxes, f"{found.border.value:.3f}"
    (16, 4, '0.673')
    """
    labels = check_array("labels", labels, ndim=2)
    box = check_integer("box", box, low=2, high=min(labels.shape) // 2)
    high, wide = (size // box for size in labels.shape)
    _, codes = np.unique(labels, return_inverse=True)
    codes = codes.reshape(labels.shape)[: high * box, : wide * box]
    boxes = codes.reshape(high, box, wide, box).swapaxes(1, 2).reshape(high * wide, -1)
    counts = np.stack([(boxes == code).sum(axis=1) for code in range(codes.max() + 1)], axis=1)
    share = counts / box**2
    entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1)
    mixed = entropy[(counts > 0).sum(axis=1) > 1]
    border = Estimate(value=0.0, error=0.0, samples=0)
    if len(mixed):
        one = Estimate(value=mixed[0], error=np.nan, samples=1)
        border = mean_estimate(mixed) if len(mixed) > 1 else one
    return BasinEntropy(
        mean=mean_estimate(entropy),
        border=border,
        boxes=high * wide,
        border_boxes=len(mixed),
    )
