"""Which start ends where: the attractors at one point of a plane, and pairs of near starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compendium.c33d_phase_diagrams.basins import attractor_set, basins_of_attraction
from compendium.c33d_phase_diagrams.identity import fingerprints, identify, separation
from compendium.common.phase_transitions import name
from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import SHORT_STRETCHES, find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context


@record
class Coexisting:
    """Attractors that random contexts (B,) of the document's network end on at one β.

    numbers: (B,) of attractors, the most frequent first, −1 unresolved. names: regime and period of
    each. sets: windows of each at position 0 (`basins.attractor_set`). within, between: largest
    distance of two fingerprints on one attractor, smallest of two on different ones.
    """

    numbers: np.ndarray
    names: list[str]
    sets: list[np.ndarray]
    within: float
    between: float


def coexisting(
    beta: float,
    *,
    count: int,
    seed: Seed = 0,
    gamma: float | None = None,
    epsilon: float | None = None,
    transient: int = 60_000,
    turns: int = 512,
) -> Coexisting:
    """Tell apart what `count` random contexts end on after `transient` steps.

    turns: of the clock, of which the sets of the attractors are made.

    >>> found = coexisting(0.5, count=3, transient=2000)
    >>> found.names, found.numbers
    (['periodic 4'], array([0, 0, 0]))
    """
    network = Network.document()
    parameters: dict[str, Any] = {
        "beta": check_real("beta", beta, low=0.0),
        "gamma": gamma,
        "epsilon": epsilon,
    }
    found = find_attractors(
        network,
        random_contexts(network, seed, count=count),
        transient=transient,
        kept=4000,
        exponents=1,
        exponent_steps=4000,
        bins=1,
        thresholds=SHORT_STRETCHES,
        **parameters,
    )
    prints = fingerprints(network, found.context, **parameters)
    rates = found.exponents
    numbers = identify(prints, exponent=Estimate(value=rates.value[:, 0], error=rates.error[:, 0]))
    heads = [int(np.flatnonzero(numbers == number)[0]) for number in range(numbers.max() + 1)]
    ensemble = Ensemble(network, prints.context.select(heads), **parameters)
    ensemble.advance(-prints.context.position % network.positions)
    ends = ensemble.state()
    within, between = 0.0, np.inf
    for number, head in enumerate(heads):
        far = separation(prints, other=prints.select(head))
        within = max(within, float(far[numbers == number].max()))
        others = far[(numbers >= 0) & (numbers != number)]
        between = min(between, float(others.min())) if len(others) else between
    return Coexisting(
        numbers=numbers,
        names=[name(found.regime[head], found.period[head]) for head in heads],
        sets=[
            attractor_set(network, ends.select(number), turns=turns, **parameters)
            for number in range(len(heads))
        ],
        within=within,
        between=between,
    )


def ends_apart(
    beta: float,
    *,
    sets: Sequence[np.ndarray],
    distances: Sequence[float],
    count: int,
    seed: Seed = 0,
    horizon: int = 60_000,
    gamma: float | None = None,
    epsilon: float | None = None,
) -> np.ndarray:
    """Whether a random context and a second one a distance away end on different `sets`.

    The second lies in a random direction of the window's T·P components; `count` pairs for each of
    the n distances, with the same first contexts. Pairs of which one has not settled within the
    horizon are left out everywhere. Returns booleans (n, at most count).

    >>> found = coexisting(0.5, count=1, transient=2000)
    >>> ends_apart(0.5, sets=found.sets, distances=[0.1], count=2, horizon=4000)
    array([[False, False]])
    """
    network = Network.document()
    count = check_integer("count", count, low=1)
    steps = check_array("distances", distances, ndim=1, low=0.0)
    rng = numpy_generator(seed)
    base = random_contexts(network, rng, count=count).attention
    direction = rng.standard_normal((len(steps), *base.shape))
    direction /= np.sqrt((direction**2).sum(axis=(-2, -1), keepdims=True))
    moved = base + steps[:, None, None, None] * direction
    found = basins_of_attraction(
        network,
        Context(np.concatenate([base[None], moved]), 0),
        beta=beta,
        gamma=gamma,
        epsilon=epsilon,
        sets=sets,
        horizon=horizon,
    )
    whole = (found.number >= 0).all(axis=0)
    return np.asarray(found.number[1:] != found.number[0])[:, whole]
