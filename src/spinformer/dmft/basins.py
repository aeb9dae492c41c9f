"""Coexisting attractors of a network or map, their basins of attraction, and basin fractions.

Orbits lie on one attractor if their fingerprints and their leading exponents agree. A fingerprint
consists of averages along the orbit at each position of the drive, weighted with the bump function
of `attractors`; a cycle inside of a chaotic set may share its averages, not its growth. A start has
settled on an attractor if at two checks in a row its state lies within a radius of the states that
the attractor visits at position 0.

Which attractors are found, and the fractions of their basins, depend on the law of the starts. It
is an argument everywhere: states, or a function of a random generator and a number of states.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_choice,
    check_instance,
    check_integer,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power_law
from spinformer.dmft.attractors import Attractors, Thresholds, bump_weights, find_attractors
from spinformer.dmft.maps import Map, as_system
from spinformer.dmft.mean_field import START_LAWS, random_contexts, trajectory
from spinformer.dmft.network import AttentionNetwork, Context
from spinformer.dmft.regimes import SHORT_STRETCHES, regime_label

# States by a law of one's own: a random generator and a number → that many states.
Law = Callable[[np.random.Generator, int], Any]

# Fingerprints are averages over so many consecutive stretches. They and exponents agree within so
# much each, and so many errors.
_STRETCHES = 4
_SAME = 1e-4
_NEUTRAL = 8e-3
_SIGMAS = 4.0
# Periods of the drive of which the sets of attractors are made; how near a start must come to one.
_TURNS = 512
_RADIUS = 1e-4
# A set whose states come back within this is a cycle.
_BACK = 1e-9
# Periods of the drive between two checks of a start.
_CHECK = 100
# Averages beyond this would overflow in squares.
_FAR = 1e100
# Groups of points that are left out, one after another, for an error.
_GROUPS = 50


@record
class Fingerprints:
    """Averages along orbits of a batch (B,), by which attractors are told apart.

    Attributes
    ----------
    moments : ndarray, shape (B, 2^K, d + d(d + 1)/2)
        Averages of the observables m_a, then of m_a m_b with a ≤ b, at each position.
    error : ndarray, shape (B,)
        Their root mean square standard error.
    rate : ndarray, shape (B,)
        Leading Lyapunov exponents in nats per step.
    rate_error : ndarray, shape (B,)
        Errors of the exponents.
    """

    moments: np.ndarray
    error: np.ndarray
    rate: np.ndarray
    rate_error: np.ndarray


@record
class CoexistingAttractors:
    """Attractors on which a batch of B starts ended.

    Attributes
    ----------
    numbers : ndarray of int, shape (B,)
        Number of the attractor of each start, the most frequent 0; −1 where an orbit could not be
        assigned to one, or left for infinity.
    labels : list of str
        Regime and period of each attractor.
    sets : list of ndarray
        States (n, N) of each attractor at position 0, those of a cycle once.
    fractions : Estimate
        Fraction (K,) of the starts on each attractor, with its binomial standard error.
    within : float
        Largest distance of two fingerprints on one attractor.
    between : float
        Smallest distance of two fingerprints on different attractors.
    orbits : Attractors
        Regimes, periods and exponents of the orbits.
    moments : ndarray, shape (K, 2^K, m)
        Fingerprint of each attractor.
    """

    numbers: np.ndarray
    labels: list[str]
    sets: list[np.ndarray]
    fractions: Estimate
    within: float
    between: float
    orbits: Attractors
    moments: np.ndarray


@record
class AttractorContinuation:
    """Attractors and their basin fractions along a parameter.

    Attributes
    ----------
    parameter : str
        Name of the parameter.
    values : ndarray, shape (V,)
        Its values.
    fractions : ndarray, shape (V, A)
        Fraction of the starts on each of A attractors, 0 where it was not found.
    errors : ndarray, shape (V, A)
        Binomial standard errors.
    labels : list of list of str
        For each value the label of each attractor, "" where it was not found.
    unresolved : ndarray, shape (V,)
        Fraction of the starts that could not be assigned.
    """

    parameter: str
    values: np.ndarray
    fractions: np.ndarray
    errors: np.ndarray
    labels: list[list[str]]
    unresolved: np.ndarray


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


# ---- identity


def fingerprint_moments(
    system: AttentionNetwork | Map, start: Any, *, kept: int = 4000, **parameters: Any
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Compute the averages of an orbit by which attractors are told apart.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or ndarray
        States of a batch, attention of shape (B, T, P) or an array (B, n).
    kept : int, default 4000
        Number of steps, about.
    **parameters : float or ndarray
        Parameters of the system.

    Returns
    -------
    moments : ndarray, shape (B, 2^K, m)
        The averages of `Fingerprints`.
    error : ndarray, shape (B,)
        Their root mean square standard error.
    state : Context or ndarray
        The states at the end.

    Raises
    ------
    ValueError
        If `kept` is too small for two periods of the drive in each stretch.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.full((2, 4, 3), 0.1), 0)
    >>> moments, error, end = fingerprint_moments(Network.document(), start, kept=400, beta=0.5)
    >>> moments.shape
    (2, 4, 9)
    """
    phases = 1 if isinstance(system, Map) else system.positions
    kept = check_integer("kept", kept, low=2 * _STRETCHES * phases)
    turns = kept // (_STRETCHES * phases)
    # A stretch that holds whole periods of a long cycle would repeat its own error unseen.
    while any(turns % divisor == 0 for divisor in range(2, turns)):
        turns -= 1
    weights = bump_weights(turns)
    stretches = []
    state = start
    for _ in range(_STRETCHES):
        begin = state.position if isinstance(state, Context) else 0
        orbit, state = _run(system, state, steps=turns * phases, parameters=parameters)
        seen = orbit.reshape(len(orbit), turns, phases, orbit.shape[-1])
        first, second = np.triu_indices(orbit.shape[-1])
        products = seen[..., first] * seen[..., second]
        both = [np.einsum("t,btpm->bpm", weights, part) for part in (seen, products)]
        stretches.append(np.roll(np.concatenate(both, axis=-1), begin, axis=1))
    moments = np.array(stretches)
    if isinstance(system, AttentionNetwork):
        # Without a weight the positions are names only.
        epsilon = parameters.get("epsilon")
        epsilon = np.asarray(system.epsilon if epsilon is None else epsilon)
        timeless = np.broadcast_to(epsilon == 0.0, (moments.shape[1],))
        moments[:, timeless] = moments[:, timeless].mean(axis=2, keepdims=True)
    scatter = moments.var(axis=0, ddof=1).mean(axis=(-2, -1))
    return moments.mean(axis=0), np.sqrt(scatter / _STRETCHES), state


def separation(moments: np.ndarray, *, other: np.ndarray) -> np.ndarray:
    """Compute the distance of two fingerprints.

    Parameters
    ----------
    moments : ndarray, shape (..., n, m)
        Averages of `Fingerprints`.
    other : ndarray, shape (..., n, m)
        Those of others; the batches broadcast.

    Returns
    -------
    ndarray, shape (...)
        Root mean square differences.

    Raises
    ------
    ValueError
        If an array has fewer than two axes.

    Examples
    --------
    >>> separation(np.zeros((2, 4, 9)), other=np.ones((4, 9)))
    array([1., 1.])
    """
    moments = check_array("moments", moments, shape=(..., "n", "m"), low=-_FAR, high=_FAR)
    own = moments.shape[-2:]
    other = check_array("other", other, shape=(..., *own), low=-_FAR, high=_FAR)
    check_broadcast(moments=moments.shape[:-2], other=other.shape[:-2])
    return np.asarray(np.sqrt(((moments - other) ** 2).mean(axis=(-2, -1))))


def identify_attractors(prints: Fingerprints) -> np.ndarray:
    """Number attractors by the fingerprints of orbits.

    The best resolved orbit of each attractor stands for it; others are the same if fingerprints and
    leading exponents agree within four errors.

    Parameters
    ----------
    prints : Fingerprints
        Fingerprints of a batch (B,) of orbits.

    Returns
    -------
    ndarray of int, shape (B,)
        Numbers, the most frequent 0; −1 for an orbit that agrees with several, so that it is too
        coarse to tell.

    Raises
    ------
    TypeError
        If `prints` is of another class.

    Examples
    --------
    >>> same = Fingerprints(
    ...     moments=np.zeros((3, 1, 2)), error=np.zeros(3), rate=np.zeros(3), rate_error=np.zeros(3)
    ... )
    >>> identify_attractors(same)
    array([0, 0, 0])
    """
    check_instance("prints", prints, Fingerprints)
    moments = prints.moments
    error = prints.error
    rate = prints.rate
    spread = prints.rate_error
    order = np.argsort(error, kind="stable")
    left = np.full(len(rate), True)
    leaders: list[int] = []
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
        merged = np.unique(groups[table[:, orbit]])
        heads = np.isin(groups, merged)
        if chaotic[np.array(leaders)[heads]].all():
            groups[heads] = merged[0]
    mine = [set(groups[row].tolist()) for row in table.T]
    numbers = np.array([one.pop() if len(one) == 1 else -1 for one in mine])
    known = numbers >= 0
    _, place, counts = np.unique(numbers[known], return_inverse=True, return_counts=True)
    numbers[known] = np.argsort(-counts, kind="stable").argsort()[place]
    return numbers


def settled_fingerprints(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    transient: int,
    exponent_steps: int,
    kept: int = 4000,
    thresholds: Thresholds = SHORT_STRETCHES,
    **parameters: Any,
) -> tuple[Attractors, Fingerprints, Any]:
    """Iterate starts to their attractors, and compute regimes and fingerprints.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or ndarray
        Initial states of a batch, attention of shape (B, T, P) or an array (B, n).
    transient : int
        Number of steps that are dropped.
    exponent_steps : int
        Number of steps of the leading exponent.
    kept : int, default 4000
        Number of steps of the averages.
    thresholds : Thresholds, default SHORT_STRETCHES
        Thresholds of the classification.
    **parameters : float or ndarray
        Parameters of the system.

    Returns
    -------
    orbits : Attractors
        Regimes, periods and exponents.
    prints : Fingerprints
        What tells attractors apart, NaN of an orbit that left for infinity.
    state : Context or ndarray
        The states at the end.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    orbits = find_attractors(
        system,
        start,
        transient=transient,
        kept=kept,
        exponent_steps=exponent_steps,
        exponents=1,
        bins=1,
        thresholds=thresholds,
        **parameters,
    )
    moments, error, state = _finite_moments(system, orbits.context, parameters)
    prints = Fingerprints(
        moments=moments,
        error=error,
        rate=orbits.exponents.value[:, 0],
        rate_error=orbits.exponents.error[:, 0],
    )
    return orbits, prints, state


def find_coexisting_attractors(
    system: AttentionNetwork | Map,
    starts: Any,
    *,
    count: int = 256,
    seed: Seed = 0,
    transient: int = 60_000,
    exponent_steps: int = 4000,
    **parameters: float,
) -> CoexistingAttractors:
    """Find the attractors that coexist at given parameters, from many starts.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context, ndarray, str or callable
        The law of the starts: the states themselves, a batch (B, T, P) or (B, n); for a network the
        name of a law of `random_contexts`, as "uniform"; or a function of a random generator and a
        number that draws as many states.
    count : int, default 256
        Number of starts that are drawn.
    seed : Seed, default 0
        Seed or random generator of the draws.
    transient : int, default 60000
        Number of steps that are dropped. Chaotic transients that outlive them count as attractors.
    exponent_steps : int, default 4000
        Number of steps of the leading exponent.
    **parameters : float
        Parameters of the system.

    Returns
    -------
    CoexistingAttractors
        The attractors, which start ended on which, and the fractions. The numbers are by frequency,
        so that those of two laws of starts differ; for the fractions by a second law give the
        `sets` to `basin_fractions`.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the starts do not fit the system, all of their orbits leave for infinity, or an argument
        is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> found = find_coexisting_attractors(
    ...     Network.document(), "uniform", count=8, transient=2000, beta=0.5
    ... )
    >>> found.labels, found.fractions.value
    (['periodic 4'], array([1.]))
    """
    states = draw_starts(system, starts, count=count, seed=seed)
    given: dict[str, Any] = dict(parameters)
    orbits, prints, state = settled_fingerprints(
        system, states, transient=transient, exponent_steps=exponent_steps, **given
    )
    finite = np.flatnonzero(np.isfinite(prints.error) & np.isfinite(prints.rate))
    if not len(finite):
        raise ValueError("starts must hold one whose orbit stays finite, got none")
    numbers = np.full(len(prints.error), -1)
    numbers[finite] = identify_attractors(_selected_prints(prints, finite))
    known, first = np.unique(numbers, return_index=True)
    heads = first[known >= 0]
    labels = [regime_label(int(orbits.regime[one]), int(orbits.period[one])) for one in heads]
    gaps = separation(prints.moments[finite, None], other=prints.moments[heads])
    own = numbers[finite, None] == np.arange(len(heads))
    between = gaps[~own & (numbers[finite] >= 0)[:, None]].min(initial=np.inf)
    return CoexistingAttractors(
        numbers=numbers,
        labels=labels,
        sets=_sets(system, _selected(state, heads), parameters),
        fractions=_fractions(numbers, len(heads)),
        within=float(gaps[own].max()),
        between=float(between),
        orbits=orbits,
        moments=prints.moments[heads],
    )


def draw_starts(system: AttentionNetwork | Map, starts: Any, *, count: int, seed: Seed = 0) -> Any:
    """Draw starts by a law, or take them as they are.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context, ndarray, str or callable
        The law, as in `find_coexisting_attractors`.
    count : int
        Number of starts that are drawn.
    seed : Seed, default 0
        Seed or random generator.

    Returns
    -------
    Context or ndarray
        A batch of states, attention of shape (B, T, P) or an array (B, n).

    Raises
    ------
    TypeError
        If a law is named for a map, or the states are of another class.
    ValueError
        If the states do not fit the system.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> draw_starts(Network.document(), "normal", count=3).attention.shape
    (3, 4, 3)
    """
    if not isinstance(system, AttentionNetwork | Map):
        raise TypeError(f"system must be an AttentionNetwork or a Map, got {type(system).__name__}")
    if isinstance(starts, str):
        check_choice("starts", starts, START_LAWS)
        if not isinstance(system, AttentionNetwork):
            raise TypeError("starts must be states or a function for a map, got a name")
        return random_contexts(system, seed, count=count, law=starts)
    if callable(starts):
        count = check_integer("count", count, low=1)
        starts = starts(numpy_generator(seed), count)
    as_system(system, starts, name="starts")
    if isinstance(starts, Context):
        shape = (-1, *starts.attention.shape[-2:])
        return Context(starts.attention.reshape(shape), starts.position)
    states = np.asarray(starts, dtype=float)
    return states.reshape(-1, states.shape[-1])


# ---- basins


def basins_of_attraction(
    system: AttentionNetwork | Map,
    starts: Any,
    *,
    sets: Sequence[np.ndarray],
    horizon: int = 60_000,
    **parameters: Any,
) -> np.ndarray:
    """Find on which of given attractors starts end.

    A start has ended on a set when it is found within 1e-4 of it twice in a row. On a chaotic or
    quasi-periodic attractor that happens too rarely, so that what is on no set after the horizon is
    compared with these by its averages, if the parameters are single numbers.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context or ndarray
        Initial states, attention of shape (..., T, P) or an array (..., n), a grid of them say.
    sets : sequence of ndarray, shape (m, n)
        States of each attractor at position 0, those of `CoexistingAttractors`.
    horizon : int, default 60000
        Largest number of steps.
    **parameters : float
        Parameters of the system.

    Returns
    -------
    ndarray of int, shape (...)
        Number of the attractor of each start, −1 where none was reached in time.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If two of the sets nearly touch, the starts do not fit the system, or an argument is out of
        its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network = Network.document()
    >>> found = find_coexisting_attractors(network, "uniform", count=8, transient=2000, beta=0.5)
    >>> grid = Context(np.zeros((2, 3, 4, 3)), 0)
    >>> basins_of_attraction(network, grid, sets=found.sets, beta=0.5)
    array([[0, 0, 0],
           [0, 0, 0]])
    """
    as_system(system, starts, name="starts")
    horizon = check_integer("horizon", horizon, low=1)
    clouds = _checked_sets(system, sets)
    for one, other in combinations(range(len(clouds)), 2):
        gap = float(cKDTree(clouds[one]).query(clouds[other])[0].min())
        if gap <= 2 * _RADIUS:
            raise ValueError(f"sets {one} and {other} come within {gap:.1e}")
    tree = cKDTree(np.concatenate(clouds))
    owner = np.append(np.repeat(np.arange(len(clouds)), [len(one) for one in clouds]), -1)
    # Attractors are known at position 0.
    state = _flat_batch(starts)
    phases = 1 if isinstance(system, Map) else system.positions
    if isinstance(state, Context) and state.position:
        state = _run(
            system, state, steps=0, transient=phases - state.position, parameters=parameters
        )[1]
    check = _CHECK * phases
    count = _length(state)
    number = np.full(count, -1)
    before = np.full(count, -1)
    going = np.arange(count)
    for _ in range(-(-horizon // check)):
        _, state = _run(
            system, state, steps=0, transient=check, parameters=_own(parameters, going, count)
        )
        windows = _components(state)
        finite = np.isfinite(windows).all(axis=1)
        near = tree.query(np.where(finite[:, None], windows, 0.0), distance_upper_bound=_RADIUS)[1]
        here = np.where(finite, owner[near], -1)
        done = (here >= 0) & (here == before[going])
        number[going[done]] = here[done]
        before[going] = here
        # What has left for infinity never comes back.
        keep = ~done & finite
        going = going[keep]
        if not len(going):
            break
        state = _selected(state, np.flatnonzero(keep))
    if len(going):
        number[going] = _by_averages(system, state, clouds=clouds, parameters=parameters)
    shape = starts.attention.shape[:-2] if isinstance(starts, Context) else np.shape(starts)[:-1]
    return number.reshape(shape)


def basin_fractions(
    system: AttentionNetwork | Map,
    starts: Any,
    *,
    sets: Sequence[np.ndarray],
    count: int = 1000,
    seed: Seed = 0,
    horizon: int = 60_000,
    **parameters: float,
) -> Estimate:
    """Estimate the fractions of starts that end on each of given attractors.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context, ndarray, str or callable
        The law of the starts, as in `find_coexisting_attractors`.
    sets : sequence of ndarray, shape (m, n)
        States of each attractor at position 0, those of `CoexistingAttractors`.
    count : int, default 1000
        Number of starts that are drawn.
    seed : Seed, default 0
        Seed or random generator.
    horizon : int, default 60000
        Largest number of steps.
    **parameters : float
        Parameters of the system.

    Returns
    -------
    Estimate
        Fraction (K,) of each attractor, with its binomial standard error. What is missing to one
        ended on none of them in time.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the starts do not fit the system, or an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network = Network.document()
    >>> found = find_coexisting_attractors(network, "uniform", count=8, transient=2000, beta=0.5)
    >>> basin_fractions(network, "normal", sets=found.sets, count=20, beta=0.5).value
    array([1.])
    """
    states = draw_starts(system, starts, count=count, seed=seed)
    numbers = basins_of_attraction(system, states, sets=sets, horizon=horizon, **parameters)
    return _fractions(numbers, len(sets))


def continue_attractors(
    system: AttentionNetwork | Map,
    starts: Any,
    *,
    parameter: str,
    values: ArrayLike,
    count: int = 100,
    seed: Seed = 0,
    threshold: float = 0.2,
    transient: int = 20_000,
    exponent_steps: int = 4000,
    **parameters: float,
) -> AttractorContinuation:
    """Follow attractors and their basin fractions along a parameter (global continuation).

    At each value new starts are drawn by the same law. The attractors found are matched with those
    of the value before by the distance of their fingerprints, the nearest first.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    starts : Context, ndarray, str or callable
        The law of the starts, as in `find_coexisting_attractors`.
    parameter : str
        The parameter.
    values : array_like, shape (V,)
        Its values, in order.
    count : int, default 100
        Number of starts at each value.
    seed : Seed, default 0
        Seed or random generator.
    threshold : float, default 0.2
        Largest distance of the fingerprints of one attractor at neighbouring values.
    transient : int, default 20000
        Number of steps that are dropped.
    exponent_steps : int, default 4000
        Number of steps of the leading exponent.
    **parameters : float
        The other parameters of the system.

    Returns
    -------
    AttractorContinuation
        Attractors and fractions at every value.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> found = continue_attractors(
    ...     Network.document(), "uniform", parameter="beta", values=[0.4, 0.5], count=4,
    ...     transient=2000,
    ... )
    >>> found.fractions
    array([[1.],
           [1.]])
    """
    numbers = check_array("values", values, shape=("V",))
    rng = numpy_generator(seed)
    states: list[np.ndarray] = []
    rows: list[dict[int, tuple[float, float, str]]] = []
    unresolved = []
    for value in numbers:
        own = parameters | {parameter: float(value)}
        found = find_coexisting_attractors(
            system, starts, count=count, seed=rng, transient=transient,
            exponent_steps=exponent_steps, **own,
        )  # fmt: skip
        chosen = _matched(found.moments, states, threshold=threshold)
        row = {}
        for at, number in enumerate(chosen):
            if number == len(states):
                states.append(found.moments[at])
            else:
                states[number] = found.moments[at]
            share = float(found.fractions.value[at])
            row[number] = (share, float(found.fractions.error[at]), found.labels[at])
        rows.append(row)
        unresolved.append(float((found.numbers < 0).mean()))
    fractions = np.zeros((len(numbers), len(states)))
    errors = np.zeros_like(fractions)
    labels = [[""] * len(states) for _ in rows]
    for line, row in enumerate(rows):
        for number, (share, error, label) in row.items():
            fractions[line, number] = share
            errors[line, number] = error
            labels[line][number] = label
    return AttractorContinuation(
        parameter=parameter,
        values=numbers,
        fractions=fractions,
        errors=errors,
        labels=labels,
        unresolved=np.array(unresolved),
    )


def _matched(moments: np.ndarray, states: list[np.ndarray], *, threshold: float) -> list[int]:
    """Numbers of the attractors with these moments, those of `states` or new ones."""
    numbers = [-1] * len(moments)
    if states and len(moments):
        gaps = separation(moments[:, None], other=np.array(states)[None])
        for one, other in zip(*linear_sum_assignment(gaps), strict=True):
            if gaps[one, other] <= threshold:
                numbers[one] = int(other)
    following = len(states)
    for at, number in enumerate(numbers):
        if number < 0:
            numbers[at] = following
            following += 1
    return numbers


# ---- boundaries of basins


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
    >>> from spinformer.dmft.network import Network
    >>> network = Network.document()
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


# ---- states of either kind of system


def _run(
    system: AttentionNetwork | Map,
    state: Any,
    *,
    steps: int,
    parameters: Mapping[str, Any],
    transient: int = 0,
) -> tuple[np.ndarray, Any]:
    """Observables (B, steps, d) and the states (B, …) at the end."""
    if isinstance(system, AttentionNetwork):
        return trajectory(system, state, steps=steps, transient=transient, **parameters)
    common = as_system(system, state)
    values: dict[str, Any] = dict(system.parameters) | dict(parameters)
    if transient:
        state = common.advance(state, steps=transient, parameters=values)
    return common.observe(state, steps=steps, parameters=values)


def _own(parameters: Mapping[str, Any], going: np.ndarray, count: int) -> dict[str, Any]:
    """Of parameters that are arrays (B,) those of the starts that still go on."""
    return {
        name: value[going] if np.shape(value) == (count,) else value
        for name, value in parameters.items()
    }


def _checked_sets(system: AttentionNetwork | Map, sets: Any) -> list[np.ndarray]:
    """Sets of states (m, n) of each attractor, at least one."""
    size = system.dimension if isinstance(system, Map) else system.context * system.features
    try:
        clouds = list(sets)
    except TypeError:
        raise TypeError(f"sets must be a sequence of arrays, got {type(sets).__name__}") from None
    if not clouds:
        raise ValueError("sets must hold an attractor, got none")
    return [check_array("sets", one, shape=("m", size), low=-_FAR, high=_FAR) for one in clouds]


def _flat_batch(starts: Any) -> Any:
    if isinstance(starts, Context):
        shape = (-1, *starts.attention.shape[-2:])
        return Context(starts.attention.reshape(shape), starts.position)
    states = np.asarray(starts, dtype=float)
    return states.reshape(-1, states.shape[-1])


def _length(state: Any) -> int:
    return len(state.attention) if isinstance(state, Context) else len(state)


def _components(state: Any) -> np.ndarray:
    if isinstance(state, Context):
        return state.attention.reshape(len(state.attention), -1)
    return np.asarray(state)


def _selected(state: Any, index: np.ndarray) -> Any:
    return state.select(index) if isinstance(state, Context) else state[index]


def _sets(
    system: AttentionNetwork | Map, state: Any, parameters: Mapping[str, Any]
) -> list[np.ndarray]:
    """States (n, N) that each of a batch of orbits visits at position 0, those of a cycle once."""
    phases = 1 if isinstance(system, Map) else system.positions
    if isinstance(state, Context) and state.position:
        state = _run(
            system, state, steps=0, transient=phases - state.position, parameters=parameters
        )[1]
    windows = []
    for _ in range(_TURNS):
        windows.append(_components(state))
        _, state = _run(system, state, steps=0, transient=phases, parameters=parameters)
    sets = []
    for series in np.stack(windows, axis=1):
        back = np.abs(series[1:] - series[0]).max(axis=1) < _BACK
        sets.append(series[: back.argmax() + 1] if back.any() else series)
    return sets


def _selected_prints(prints: Fingerprints, index: np.ndarray) -> Fingerprints:
    return Fingerprints(
        moments=prints.moments[index],
        error=prints.error[index],
        rate=prints.rate[index],
        rate_error=prints.rate_error[index],
    )


def _finite_moments(
    system: AttentionNetwork | Map, state: Any, parameters: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, Any]:
    """`fingerprint_moments` with NaN for orbits that left for infinity, as those of a map may."""
    count = _length(state)
    finite = np.flatnonzero(np.isfinite(_components(state)).all(axis=1))
    if len(finite) == count:
        return fingerprint_moments(system, state, **parameters)
    end = np.array(_components(state))
    error = np.full(count, np.nan)
    if not len(finite):
        return np.full((count, 1, 1), np.nan), error, end
    some, error[finite], end[finite] = fingerprint_moments(
        system, _selected(state, finite), **_own(parameters, finite, count)
    )
    moments = np.full((count, *some.shape[1:]), np.nan)
    moments[finite] = some
    return moments, error, end


def _by_averages(
    system: AttentionNetwork | Map,
    state: Any,
    *,
    clouds: Sequence[np.ndarray],
    parameters: Mapping[str, Any],
) -> np.ndarray:
    """Numbers (B,) of the sets with the averages of states at position 0, −1 where there is none.

    Only long series that do not come back are compared: about cycles proximity decides.
    """
    numbers = np.full(_length(state), -1)
    if any(np.ndim(value) for value in parameters.values()):
        return numbers
    phases = 1 if isinstance(system, Map) else system.positions
    common = as_system(system, state)
    open_sets = []
    for index, cloud in enumerate(clouds):
        if len(cloud) < _TURNS:
            continue
        image = _run(system, common.state(cloud), steps=0, transient=phases, parameters=parameters)[
            1
        ]
        if cKDTree(cloud).query(_components(image))[0].max() > _RADIUS:
            open_sets.append(index)
    if not open_sets:
        return numbers
    heads = np.array([clouds[index][0] for index in open_sets])
    both = common.state(np.concatenate([heads, _components(state)]))
    prints = settled_fingerprints(system, both, transient=0, exponent_steps=4000, **parameters)[1]
    finite = np.flatnonzero(np.isfinite(prints.error) & np.isfinite(prints.rate))
    same = np.full(len(prints.error), -1)
    same[finite] = identify_attractors(_selected_prints(prints, finite))
    for head, index in enumerate(open_sets):
        if same[head] >= 0:
            numbers[same[len(heads) :] == same[head]] = index
    return numbers


def _fractions(numbers: np.ndarray, count: int) -> Estimate:
    """Fraction (count,) of each number with its binomial standard error."""
    total = numbers.size
    fraction = np.array([(numbers == number).mean() for number in range(count)])
    error = np.sqrt(fraction * (1.0 - fraction) / total)
    return Estimate(value=fraction, error=error, samples=total)
