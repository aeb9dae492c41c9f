"""Coexisting attractors of a network or map, their basins of attraction, and basin fractions.

Attractors are told apart by the `fingerprints` of the orbits. A start has settled on an attractor
if at two checks in a row its state lies within a radius of the states that the attractor visits at
position 0.

Which attractors are found, and the fractions of their basins, depend on the law of the starts. It
is an argument everywhere: states, or a function of a random generator and a number of states.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from spinformer.core.checks import check_array, check_choice, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import Attractors
from spinformer.dmft.fingerprints import separation, settled_fingerprints
from spinformer.dmft.maps import LARGEST_STATE, Map, as_system
from spinformer.dmft.mean_field import START_LAWS, random_contexts
from spinformer.dmft.network import AttentionNetwork, Context
from spinformer.dmft.regimes import regime_label
from spinformer.dmft.states import (
    at_position_zero,
    components,
    drive_period,
    flat_batch,
    iterate,
    own_parameters,
    select_states,
)

# States by a law of one's own: a random generator and a number → that many states.
Law = Callable[[np.random.Generator, int], Any]
# Periods of the drive of which the sets of attractors are made; how near a start must come to one.
_TURNS = 512
_RADIUS = 1e-4
# A set whose states come back within this is a cycle.
_BACK = 1e-9
# Periods of the drive between two checks of a start.
_CHECK = 100


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
    ...     Network.poclopez2024(), "uniform", count=8, transient=2000, beta=0.5
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
    numbers = prints.identify()
    known, first = np.unique(numbers, return_index=True)
    heads = first[known >= 0]
    labels = [regime_label(int(orbits.regime[one]), int(orbits.period[one])) for one in heads]
    gaps = separation(prints.moments[finite, None], other=prints.moments[heads])
    own = numbers[finite, None] == np.arange(len(heads))
    between = gaps[~own & (numbers[finite] >= 0)[:, None]].min(initial=np.inf)
    return CoexistingAttractors(
        numbers=numbers,
        labels=labels,
        sets=_sets(system, select_states(state, heads), parameters),
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
    >>> draw_starts(Network.poclopez2024(), "normal", count=3).attention.shape
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
    return flat_batch(starts)


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
    >>> network = Network.poclopez2024()
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
    state = at_position_zero(system, flat_batch(starts), parameters)
    check = _CHECK * drive_period(system)
    count = len(components(state))
    number = np.full(count, -1)
    before = np.full(count, -1)
    going = np.arange(count)
    for _ in range(-(-horizon // check)):
        own = own_parameters(parameters, going, count=count)
        _, state = iterate(system, state, steps=0, transient=check, parameters=own)
        windows = components(state)
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
        state = select_states(state, np.flatnonzero(keep))
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
    >>> network = Network.poclopez2024()
    >>> found = find_coexisting_attractors(network, "uniform", count=8, transient=2000, beta=0.5)
    >>> basin_fractions(network, "normal", sets=found.sets, count=20, beta=0.5).value
    array([1.])
    """
    states = draw_starts(system, starts, count=count, seed=seed)
    numbers = basins_of_attraction(system, states, sets=sets, horizon=horizon, **parameters)
    return _fractions(numbers, len(sets))


def _checked_sets(system: AttentionNetwork | Map, sets: Any) -> list[np.ndarray]:
    """Sets of states (m, n) of each attractor, at least one."""
    size = system.dimension if isinstance(system, Map) else system.context * system.features
    try:
        clouds = list(sets)
    except TypeError:
        raise TypeError(f"sets must be a sequence of arrays, got {type(sets).__name__}") from None
    if not clouds:
        raise ValueError("sets must hold an attractor, got none")
    return [
        check_array("sets", one, shape=("m", size), low=-LARGEST_STATE, high=LARGEST_STATE)
        for one in clouds
    ]


def _sets(
    system: AttentionNetwork | Map, state: Any, parameters: Mapping[str, Any]
) -> list[np.ndarray]:
    """States (n, N) that each of a batch of orbits visits at position 0, those of a cycle once."""
    state = at_position_zero(system, state, parameters)
    windows = []
    for _ in range(_TURNS):
        windows.append(components(state))
        _, state = iterate(
            system, state, steps=0, transient=drive_period(system), parameters=parameters
        )
    sets = []
    for series in np.stack(windows, axis=1):
        back = np.abs(series[1:] - series[0]).max(axis=1) < _BACK
        sets.append(series[: back.argmax() + 1] if back.any() else series)
    return sets


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
    numbers = np.full(len(components(state)), -1)
    if any(np.ndim(value) for value in parameters.values()):
        return numbers
    phases = drive_period(system)
    common = as_system(system, state)
    open_sets = []
    for index, cloud in enumerate(clouds):
        if len(cloud) < _TURNS:
            continue
        _, image = iterate(
            system, common.state(cloud), steps=0, transient=phases, parameters=parameters
        )
        if cKDTree(cloud).query(components(image))[0].max() > _RADIUS:
            open_sets.append(index)
    if not open_sets:
        return numbers
    heads = np.array([clouds[index][0] for index in open_sets])
    both = common.state(np.concatenate([heads, components(state)]))
    prints = settled_fingerprints(system, both, transient=0, exponent_steps=4000, **parameters)[1]
    same = prints.identify()
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
