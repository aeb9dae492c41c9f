"""Which orbits lie on one attractor, and which starts end on it.

Fingerprints are averages along the orbit, weighted with the bump function of `dmft.attractors`.
Leading exponents must agree, too: a cycle inside of a chaotic set may share its averages, not its
growth. A start has settled on an attractor if at two checks in a row its window lies within a
radius of the windows that the attractor visits at one position of the time.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate, fit_power_law
from spinformer.dmft.attractors import Attractors, bump_weights
from spinformer.dmft.ensemble import Ensemble, kernels_of
from spinformer.dmft.kernel_inputs import SystemBatch, TimeIndex
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.regimes import classify_regimes, regime_label

# Fingerprints are averages over so many consecutive stretches. They and exponents agree within so
# much each, and so many errors.
_STRETCHES = 4
_SAME = 1e-4
_NEUTRAL = 8e-3
_SIGMAS = 4.0
# Turns of the clock of which the sets of attractors are made; how near a start must come to one.
_TURNS = 512
_RADIUS = 1e-4


# ---- identity


class Fingerprints(NamedTuple):
    """Averages along orbits of a batch (B,), by which attractors are told apart.

    moments: (B, 2^K, P + P(P+1)/2) averages of m^o_a, then of m^o_a m^o_b with a ≤ b, for each
    position. error: their root mean square standard error. rate, spread: leading exponents and
    their errors.
    """

    moments: np.ndarray
    error: np.ndarray
    rate: np.ndarray
    spread: np.ndarray


def moments_of(
    network: Network, context: Context, *, kept: int = 4000, **parameters: Any
) -> tuple[np.ndarray, np.ndarray, Context]:
    """Moments and errors of `Fingerprints` from about `kept` steps, and the contexts at the end."""
    ensemble = Ensemble(network, context, **parameters)
    phases = network.positions
    turns = kept // (_STRETCHES * phases)
    # A stretch that holds whole periods of a long cycle would repeat its own error unseen.
    while any(turns % divisor == 0 for divisor in range(2, turns)):
        turns -= 1
    first, second = np.triu_indices(network.features)
    weights = bump_weights(turns)

    def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
        orbit = np.empty((turns * phases, network.features, ensemble.lanes))
        stretches = []
        for _ in range(_STRETCHES):
            begin = time.position
            time = kernels_of(batch).record(orbit, 1, batch, time)
            seen = orbit.reshape(turns, phases, -1, ensemble.lanes)
            products = seen[:, :, first] * seen[:, :, second]
            both = [np.tensordot(weights, part, axes=1) for part in (seen, products)]
            stretches.append(np.roll(np.concatenate(both, axis=1), begin, axis=0))
        moments = np.array(stretches)
        # Without a share the positions are names only.
        timeless = batch.epsilon == 0.0
        moments[..., timeless] = moments[..., timeless].mean(axis=1, keepdims=True)
        return time, (moments,)

    moments = ensemble.run(task)[0]
    scatter = moments.var(axis=-3, ddof=1).mean(axis=(-2, -1))
    return moments.mean(axis=-3), np.sqrt(scatter / _STRETCHES), ensemble.state()


def separation(moments: np.ndarray, *, other: np.ndarray) -> np.ndarray:
    """Root mean square difference (...) of moments (..., n, m); the batches broadcast."""
    return np.asarray(np.sqrt(((moments - other) ** 2).mean(axis=(-2, -1))))


def identify(prints: Iterable[np.ndarray]) -> np.ndarray:
    """Number attractors by the `Fingerprints` of orbits (B,): integers (B,), the most frequent 0.

    The best resolved orbit of each attractor stands for it; others are the same if fingerprints and
    leading exponents agree within four errors. −1: the same as several, so too coarse to tell.
    """
    moments, error, rate, spread = prints
    order = np.argsort(error, kind="stable")
    left = np.full(len(rate), True)
    leaders = []
    rows = []
    while left.any():
        leader = order[left[order]][0]
        gap = separation(moments, other=moments[leader])
        same = gap <= _SAME + _SIGMAS * np.hypot(error, error[leader])
        same &= np.abs(rate - rate[leader]) <= _NEUTRAL + _SIGMAS * np.hypot(spread, spread[leader])
        same[leader] = True
        leaders.append(leader)
        rows.append(same)
        left &= ~same
    table = np.array(rows)
    # Chaos that dwells in its parts looks like several sets until an orbit joins them.
    chaotic = rate - spread > _NEUTRAL
    groups = np.arange(len(table))
    for orbit in np.flatnonzero(chaotic & (table.sum(axis=0) > 1)):
        joined = np.unique(groups[table[:, orbit]])
        heads = np.isin(groups, joined)
        if chaotic[np.array(leaders)[heads]].all():
            groups[heads] = joined[0]
    mine = [set(groups[row].tolist()) for row in table.T]
    numbers = np.array([one.pop() if len(one) == 1 else -1 for one in mine])
    known = numbers >= 0
    _, place, counts = np.unique(numbers[known], return_inverse=True, return_counts=True)
    numbers[known] = np.argsort(-counts, kind="stable").argsort()[place]
    return numbers


def settle(
    network: Network, starts: Context, *, transient: int, exponent_steps: int, **parameters: Any
) -> tuple[Attractors, Fingerprints, Context]:
    """Regimes and fingerprints of what starts (B, T, P) end on, and the contexts at the end."""
    how: dict[str, Any] = {"kept": 4000, "exponent_steps": exponent_steps} | parameters
    found = classify_regimes(network, starts, transient=transient, **how)
    moments, error, ends = moments_of(network, found.context, **parameters)
    rate = found.exponents.value[:, 0]
    spread = found.exponents.error[:, 0]
    return found, Fingerprints(moments, error, rate, spread), ends


class Coexisting(NamedTuple):
    """Attractors that random contexts (B,) of the document's network end on.

    numbers: (B,) as of `identify`. names: regime and period of each. sets: windows of each at
    position 0, (n, T·P), those of a cycle once. within, between: largest distance of two
    fingerprints on one attractor, smallest of two on different ones.
    """

    numbers: np.ndarray
    names: list[str]
    sets: list[np.ndarray]
    within: float
    between: float


def coexisting(
    *, count: int, seed: Seed = 0, transient: int = 60_000, **parameters: Any
) -> Coexisting:
    """Tell apart what `count` random contexts end on after `transient` steps."""
    network = Network.document()
    starts = random_contexts(network, seed, count=count)
    how: dict[str, Any] = {"transient": transient, "exponent_steps": 4000}
    found, prints, context = settle(network, starts, **how, **parameters)
    numbers = identify(prints)
    known, first = np.unique(numbers, return_index=True)
    heads = first[known >= 0]
    names = [regime_label(found.regime[head], found.period[head]) for head in heads]
    ensemble = Ensemble(network, context.select(heads), **parameters)
    ensemble.advance(-context.position % network.positions)
    windows = []
    for _ in range(_TURNS):
        windows.append(ensemble.state().attention.reshape(len(heads), -1))
        ensemble.advance(network.positions)
    sets = []
    for series in np.stack(windows, axis=1):
        back = np.abs(series[1:] - series[0]).max(axis=1) < 1e-9
        sets.append(series[: back.argmax() + 1] if back.any() else series)
    gaps = separation(prints.moments[:, None], other=prints.moments[heads])
    own = numbers[:, None] == np.arange(len(heads))
    between = gaps[~own & (numbers >= 0)[:, None]].min(initial=np.inf)
    return Coexisting(numbers, names, sets, float(gaps[own].max()), float(between))


# ---- basins


def basins_of_attraction(
    context: Context, *, sets: Sequence[np.ndarray], horizon: int = 60_000, **parameters: Any
) -> np.ndarray:
    """On which of `sets`, those of `Coexisting`, starts (..., T, P) end; −1: on none in time."""
    network = Network.document()
    check = 100 * network.positions
    for one, other in combinations(range(len(sets)), 2):
        gap = float(cKDTree(sets[one]).query(sets[other])[0].min())
        if gap <= 2 * _RADIUS:
            raise ValueError(f"sets {one} and {other} come within {gap:.1e}")
    tree = cKDTree(np.concatenate(sets))
    owner = np.append(np.repeat(np.arange(len(sets)), [len(one) for one in sets]), -1)
    starts = context.attention.reshape(-1, network.context, network.features)
    state = Context(starts, context.position)
    number, before = np.full((2, len(starts)), -1)
    going = np.arange(len(number))
    for _ in range(horizon // check):
        ensemble = Ensemble(network, state, **parameters)
        ensemble.advance(check)
        state = ensemble.state()
        windows = state.attention.reshape(len(going), -1)
        here = owner[tree.query(windows, distance_upper_bound=_RADIUS)[1]]
        done = (here >= 0) & (here == before[going])
        number[going[done]] = here[done]
        before[going] = here
        going = going[~done]
        if not len(going):
            break
        state = state.select(~done)
    return number.reshape(context.attention.shape[:-2])


def ends_apart(
    sets: Sequence[np.ndarray], *, distances: ArrayLike, count: int, seed: Seed, **parameters: Any
) -> np.ndarray:
    """Whether a random context and a second one a distance away end on different `sets`.

    Booleans (n, at most `count`); a pair that has not settled in time is left out everywhere.
    """
    rng = numpy_generator(seed)
    base = random_contexts(Network.document(), rng, count=count).attention
    sizes = np.reshape(distances, (-1, 1, 1, 1))
    direction = rng.standard_normal((len(sizes), *base.shape))
    direction /= np.sqrt((direction**2).sum(axis=(-2, -1), keepdims=True))
    moved = base + sizes * direction
    starts = Context(np.concatenate([base[None], moved]), 0)
    ends = basins_of_attraction(starts, sets=sets, **parameters)
    return np.asarray(ends[1:] != ends[0])[:, (ends >= 0).all(axis=0)]


class Uncertainty(NamedTuple):
    """Shares (n,) of points with another label at each distance, errors, the exponent α."""

    shares: np.ndarray
    errors: np.ndarray
    exponent: Estimate


def uncertainty_exponent(
    differ: np.ndarray, *, distances: Sequence[float], groups: np.ndarray | None = None
) -> Uncertainty:
    """Uncertainty exponent from booleans (n, B): does point b have another label at distance n?

    Errors by leaving out one of the `groups` (B,), points that share neighbors, at a time.
    """
    points = differ.shape[1]
    if groups is None:
        groups = np.arange(points) % 50
    shares = differ.mean(axis=1)
    if not (shares > 0).all():
        raise ValueError(f"differ must hold a True at every distance, got shares {shares}")
    left_out = [differ[:, groups != name].mean(axis=1) for name in np.unique(groups)]
    count = len(left_out)
    errors = np.sqrt((count - 1) / count * ((left_out - shares) ** 2).sum(axis=0))
    # A share whose groups all agree is still only counted.
    weights = np.maximum(errors, shares / np.sqrt(points))
    laws = [
        fit_power_law(distances, values=np.maximum(one, 0.5 / points), errors=weights)
        for one in (shares, *left_out)
    ]
    value, *slopes = (float(law.slope.value) for law in laws)
    error = float(np.sqrt((count - 1) * np.var(slopes)))
    return Uncertainty(shares, errors, Estimate(value=value, error=error, samples=count))


def grid_neighbors(
    labels: np.ndarray, *, distances: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """For `uncertainty_exponent`: which points of a picture have neighbors that differ.

    The four so many cells away along the axes; points that lack one at the largest distance are not
    used. Returns booleans (n, B) and the tile, of 4 × 4, of each point.
    """
    edge = max(distances)
    differ = []
    for n in distances:
        around = [np.roll(labels, way, axis) != labels for way in (n, -n) for axis in (0, 1)]
        differ.append(np.any(around, axis=0)[edge:-edge, edge:-edge])
    rows, columns = np.indices(differ[0].shape)
    tiles = 4 * (4 * rows // len(rows)) + 4 * columns // columns.shape[1]
    return np.array(differ).reshape(len(distances), -1), tiles.ravel()
