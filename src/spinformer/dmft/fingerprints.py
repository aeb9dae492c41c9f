"""Fingerprints of orbits, by which attractors are told apart.

Orbits lie on one attractor if their fingerprints and their leading exponents agree. A fingerprint
consists of averages along the orbit at each position of the drive, weighted with the bump function
of `birkhoff`; a cycle inside of a chaotic set may share its averages, not its growth.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from spinformer.core.checks import check_array, check_broadcast, check_instance, check_integer
from spinformer.core.records import record
from spinformer.dmft.attractors import Attractors, Thresholds, find_attractors
from spinformer.dmft.birkhoff import bump_weights
from spinformer.dmft.maps import Map, as_system
from spinformer.dmft.network import AttentionNetwork, Context
from spinformer.dmft.regimes import SHORT_STRETCHES
from spinformer.dmft.states import components, drive_period, iterate, own_parameters, select_states

# Fingerprints are averages over so many consecutive stretches. They and exponents agree within so
# much each, and so many errors.
_STRETCHES = 4
_SAME = 1e-4
_NEUTRAL = 8e-3
_SIGMAS = 4.0
# Averages beyond this would overflow in squares.
_FAR = 1e100


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

    def select(self, index: np.ndarray) -> Self:
        """Select orbits by an index into the batch.

        Parameters
        ----------
        index : ndarray of int
            Numbers of the orbits.

        Returns
        -------
        Fingerprints
            Those of the selected orbits.
        """
        return type(self)(
            moments=self.moments[index],
            error=self.error[index],
            rate=self.rate[index],
            rate_error=self.rate_error[index],
        )

    def identify(self) -> np.ndarray:
        """Number attractors as `identify_attractors` does, those of finite orbits only.

        Returns
        -------
        ndarray of int, shape (B,)
            Numbers, −1 also where an orbit left for infinity.
        """
        finite = np.flatnonzero(np.isfinite(self.error) & np.isfinite(self.rate))
        numbers = np.full(len(self.error), -1)
        if len(finite):
            numbers[finite] = identify_attractors(self.select(finite))
        return numbers


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
    >>> moments, error, end = fingerprint_moments(Network.poclopez2024(), start, kept=400, beta=0.5)
    >>> moments.shape
    (2, 4, 9)
    """
    as_system(system, start)
    phases = drive_period(system)
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
        orbit, state = iterate(system, state, steps=turns * phases, parameters=parameters)
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


def _finite_moments(
    system: AttentionNetwork | Map, state: Any, parameters: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, Any]:
    """`fingerprint_moments` with NaN for orbits that left for infinity, as those of a map may."""
    count = len(components(state))
    finite = np.flatnonzero(np.isfinite(components(state)).all(axis=1))
    if len(finite) == count:
        return fingerprint_moments(system, state, **parameters)
    end = np.array(components(state))
    error = np.full(count, np.nan)
    if not len(finite):
        return np.full((count, 1, 1), np.nan), error, end
    some, error[finite], end[finite] = fingerprint_moments(
        system, select_states(state, finite), **own_parameters(parameters, finite, count=count)
    )
    moments = np.full((count, *some.shape[1:]), np.nan)
    moments[finite] = some
    return moments, error, end
