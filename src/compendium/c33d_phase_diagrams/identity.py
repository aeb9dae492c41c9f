"""Which orbits of a batch lie on the same attractor: fingerprints, and what counts as the same.

An attractor is a set in the space of windows *and* positions; where ε > 0 the clock of 2^K
positions belongs to the state. Regime and period do not tell two cycles of one period apart. What
does is the *fingerprint*: the averages of m^o_a and of m^o_a m^o_b along the orbit, one of each
for every position of the clock. Two orbits on one attractor have the same averages wherever on it
they started, because averages forget the phase along the orbit; taken position by position, they
keep what the clock knows. They are weighted with the bump function of `attractors`, so that they
converge on cycles and on quasi-periodic orbits far faster than counting errors do; on chaotic ones
the scatter over consecutive stretches is their error. Where both have one, leading exponents must
agree, too: a cycle inside of a chaotic set may share its averages, not its growth.

What counts as the same. A shift along the orbit: yes. A shift of the clock against the orbit: no,
where ε > 0; where ε = 0 the positions act on nothing and are averaged over. The mirror image
A → −A, an exact symmetry where ε = 0 and nowhere else (the drive does not change its sign with
the window): no, these are two attractors with a basin each. Gauge changes (signs of the bits of a
token, names of the features) change the weights, not the contexts, and do not occur within one
network.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, share_interval
from spinformer.dmft import kernels
from spinformer.dmft.attractors import bump_weights
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import Block, Clock
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context

# Fingerprints are averages over so many consecutive stretches, exponents agree within so much.
_STRETCHES = 4
_NEUTRAL = 8e-3


@record
class Fingerprints:
    """Averages along orbits of a batch (...), by which attractors are told apart.

    moments: (..., 2^K, P + P(P+1)/2) averages of m^o_a, then of m^o_a m^o_b with a ≤ b, for each
        position of the clock. error: (...) root mean square standard error of the moments.
    context: the states at the end.

    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> fingerprints(Network.document(), starts, beta=0.5, kept=400).select(0).moments.shape
    (4, 9)
    """

    moments: np.ndarray
    error: np.ndarray
    context: Context

    def select(self, index: int | list[int] | np.ndarray) -> Fingerprints:
        """Those at `index` of the batch."""
        return Fingerprints(
            moments=self.moments[index],
            error=self.error[index],
            context=self.context.select(index),
        )


def fingerprints(
    network: Network,
    context: Context,
    *,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    kept: int = 4000,
    transient: int = 0,
    threads: int | None = None,
) -> Fingerprints:
    """Fingerprints from `kept` steps of every orbit, after `transient` dropped ones.

    β, γ, ε and contexts broadcast as in `mean_field.trajectory`, to a batch (B,). `kept` is cut
    to four stretches of a prime number of turns of the clock. Raises ValueError where these hold
    fewer than two turns.

    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> found = fingerprints(Network.document(), starts, beta=0.5, transient=400, kept=400)
    >>> found.moments.shape, bool(found.error.max() < 1e-12)
    ((2, 4, 9), True)
    """
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads)
    transient = check_integer("transient", transient, low=0)
    turns = check_integer("kept", kept, low=1) // (_STRETCHES * network.positions)
    check_integer("turns of the clock in a stretch (kept / (4 · 2^K))", turns, low=2)
    # A stretch that holds whole periods of a long cycle would repeat its own error unseen.
    while any(turns % divisor == 0 for divisor in range(2, isqrt(turns) + 1)):
        turns -= 1
    features, phases = network.features, network.positions
    first, second = np.triu_indices(features)
    weights = bump_weights(turns)

    def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
        orbit = np.empty((turns * phases, features, LANES))
        moments = np.empty((_STRETCHES, phases, features + len(first), LANES))
        for stretch in range(_STRETCHES):
            begin = clock.position
            clock = kernels.record(orbit, 1, block, clock)
            seen = orbit.reshape(turns, phases, features, LANES)
            products = seen[:, :, first] * seen[:, :, second]
            both = np.concatenate(
                [np.tensordot(weights, part, axes=1) for part in (seen, products)], axis=1
            )
            moments[stretch] = np.roll(both, begin, axis=0)
        # Without a share the positions are names only.
        timeless = block.epsilon == 0.0
        moments[..., timeless] = moments[..., timeless].mean(axis=1, keepdims=True)
        return clock, (moments,)

    ensemble.advance(transient)
    moments = ensemble.run(task)[0]
    scatter = moments.var(axis=-3, ddof=1).mean(axis=(-2, -1))
    return Fingerprints(
        moments=moments.mean(axis=-3),
        error=np.sqrt(scatter / _STRETCHES),
        context=ensemble.state(),
    )


def separation(one: Fingerprints, *, other: Fingerprints) -> np.ndarray:
    """Root mean square difference of the moments; the batches broadcast.

    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> found = fingerprints(Network.document(), starts, beta=0.5, transient=400, kept=400)
    >>> separation(found, other=found)
    array([0., 0.])
    """
    check_instance("one", one, Fingerprints)
    check_instance("other", other, Fingerprints)
    return _distance(one.moments, other.moments)


def _distance(moments: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(((moments - others) ** 2).mean(axis=(-2, -1))))


def identify(
    prints: Fingerprints,
    *,
    exponent: Estimate | None = None,
    distance: float = 1e-4,
    sigmas: float = 4.0,
) -> np.ndarray:
    """Number the attractors of a batch (B,) of orbits: integers (B,), 0, 1, … by orbits on them.

    Two orbits are on the same attractor if their fingerprints differ by at most `distance` plus
    `sigmas` errors (root mean squares), and their leading `exponent`s by at most 0.008 plus as
    many errors. Each orbit is held against the best resolved orbit of every attractor found so
    far, the best resolved ones first. Number −1: the same as several, so its errors are too large
    to tell (an orbit that was still on its way, for example).

    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> found = fingerprints(Network.document(), starts, beta=0.5, transient=400, kept=400)
    >>> identify(found)
    array([0, 0])
    """
    check_instance("prints", prints, Fingerprints)
    size = len(check_array("prints.error", prints.error, ndim=1, low=0.0))
    distance = check_real("distance", distance, low=0.0)
    sigmas = check_real("sigmas", sigmas, low=0.0)
    rate, spread = np.zeros(size), np.zeros(size)
    if exponent is not None:
        check_instance("exponent", exponent, Estimate)
        rate = check_array("exponent.value", exponent.value, shape=(size,))
        spread = check_array("exponent.error", exponent.error, shape=(size,))
    order = np.argsort(prints.error, kind="stable")
    left, leaders, rows = np.ones(size, dtype=bool), [], []
    while left.any():
        leader = order[left[order]][0]
        gap = _distance(prints.moments, prints.moments[leader])
        same = gap <= distance + sigmas * np.hypot(prints.error, prints.error[leader])
        same &= np.abs(rate - rate[leader]) <= _NEUTRAL + sigmas * np.hypot(spread, spread[leader])
        same[leader] = True
        leaders.append(int(leader))
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
    numbers = np.full(size, -1)
    for number, row in enumerate(table.T):
        mine = np.unique(groups[row])
        if len(mine) == 1:
            numbers[number] = mine[0]
    return by_frequency(numbers)


def by_frequency(numbers: np.ndarray) -> np.ndarray:
    """The same division of orbits, the most frequent number first; −1 stays.

    >>> by_frequency(np.array([5, 2, 2, -1]))
    array([ 1,  0,  0, -1])
    """
    numbers = check_array("numbers", numbers).astype(int)
    found, counts = np.unique(numbers[numbers >= 0], return_counts=True)
    order = found[np.argsort(-counts, kind="stable")]
    renamed = np.full(numbers.shape, -1)
    for new, old in enumerate(order):
        renamed[numbers == old] = new
    return renamed


@record
class Fraction:
    """Share of starts that end on one attractor, with Wilson's interval; `orbits` of `trials`.

    >>> basins_fractions(np.array([0, 0, 1, 0]))[0].orbits
    3
    """

    orbits: int
    trials: int
    share: float
    low: float
    high: float


def basins_fractions(numbers: np.ndarray, *, level: float = 0.95) -> dict[int, Fraction]:
    """What share of a batch of starts (B,) ends on each attractor number, −1 (unresolved) too.

    >>> found = basins_fractions(np.array([0, 0, 0, 1]))
    >>> found[0].share, f"{found[1].low:.3f} to {found[1].high:.3f}"
    (0.75, '0.046 to 0.699')
    """
    numbers = check_array("numbers", numbers, ndim=1).astype(int)
    trials = check_integer("starts", len(numbers), low=1)
    fractions = {}
    for number in np.unique(numbers):
        orbits = int((numbers == number).sum())
        low, high = share_interval(orbits, trials=trials, level=level)
        fractions[int(number)] = Fraction(
            orbits=orbits, trials=trials, share=orbits / trials, low=low, high=high
        )
    return fractions
