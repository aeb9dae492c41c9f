"""Continuation of attractors and of their basin fractions along a parameter.

At each value the attractors are found anew, from starts of the same law, and matched with those of
the value before by the distance of their `fingerprints` (global continuation).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from spinformer.core.checks import check_array, check_choice, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.basins import find_coexisting_attractors
from spinformer.dmft.fingerprints import separation
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork


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
    ...     Network.poclopez2024(), "uniform", parameter="beta", values=[0.4, 0.5], count=4,
    ...     transient=2000,
    ... )
    >>> found.fractions
    array([[1.],
           [1.]])
    """
    numbers = check_array("values", values, shape=("V",))
    known = system.parameters if isinstance(system, Map) else ("beta", "gamma", "epsilon")
    parameter = check_choice("parameter", parameter, known)
    threshold = check_real("threshold", threshold, low=0.0)
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
