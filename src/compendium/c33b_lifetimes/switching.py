"""Does chaos switch between structures? Almost-invariant parts of chaotic orbits.

Poc-López and Aguilera read the chaotic trajectory at β = 1.266 as switching "between different
structures", which they take to be coexisting attractors [poclopez2024dynamical, Section 4.2].
`ORBITS` looks for almost-invariant parts of chaotic orbits of their network along β with the slow
modes of the strobed motion (`slow_modes`), with two nulls for each orbit: a surrogate with the
same spectra and cross spectra, and the orbit cut into blocks of 16 flashes that are shuffled.
`GROWTH` holds the growth of a small deviation in either part, and how near the orbit comes to a
cycle and to the closed curve.

`ENDS` was made afterwards: an orbit at 1.3 turned out to end its chaos on a cycle of 32 steps
within the run. Such a change for good is slow as well; rows of orbits that end are left out.

Times are in tokens (steps); a flash is a clock period of four of them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import binary_opening
from scipy.spatial import cKDTree

from bookmaker.tables import Rows, stored
from compendium.c33b_lifetimes.slow_modes import (
    box_labels,
    last_core,
    phase_surrogate,
    slow_modes,
)
from compendium.c33c_bifurcations.cycles import Cycle, Kind, bifurcation, cycle
from compendium.c33c_bifurcations.study import closed_curve
from compendium.common.rows import grid, median_rows, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.attractors import strobed
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum, returned
from spinformer.dmft.mean_field import random_contexts, tokens
from spinformer.dmft.network import OUTPUT, Context, Network

_FOLDER = Path(__file__).parent
# Steps between two flashes; edge of a box of overlaps; lag of the transfer operator in flashes.
FLASH = 4
SIDE = 0.05
LAG = 16
# Flashes of a block of the shuffled null.
BLOCK = 16
# Strobed m^o_1 of the closed curve extends over less than 0.24, that of chaos there over more.
_WIDE = 0.24
# How near an orbit must be to a cycle, in the largest overlap, to follow it, and how far Newton's
# method may move the end of a run that has settled on one.
_NEAR, _SETTLED = 0.02, 1e-6
_TRANSIENT = 20_000
# Flashes of the orbits whose modes are looked for.
_FLASHES = 30_000
# What an orbit may be near to, and the flashes of a whole round of it.
STRUCTURES = (("cycle 28", 7), ("closed curve", 4))
# Growth per token above which an orbit is chaotic; the calm part has three times as much.
_ALIVE = 0.01
BETAS = (1.2654, 1.2655, 1.26575, 1.266, 1.26625, 1.2665, 1.26675, 1.2669)
OTHER_BETAS = (1.28, 1.3, 1.4)
_SEEDS = (1, 2)


def chaotic_orbits(
    beta: float, *, count: int, flashes: int, seed: Seed, transient: int = _TRANSIENT
) -> tuple[np.ndarray, Context]:
    """Strobed m^o (orbits, flashes, P) of chaotic orbits from random contexts; their ends.

    At most `count`: starts whose last eighth is not wide, on the closed curve or on its way there,
    are replaced by others, as long as those drawn, twice `count`, last.
    """
    network = Network.document()
    starts = random_contexts(network, seed, count=2 * count)
    points, end = strobed(network, starts, beta=beta, count=flashes, transient=transient, threads=1)
    wide = np.ptp(points[:, -flashes // 8 :, 0], axis=1) > _WIDE
    # Calm stretches of chaos can be long; they are narrow too, so the whole orbit speaks as well.
    wide |= np.ptp(points[:, flashes // 2 :, 0], axis=1) > 2.0 * _WIDE
    kept = np.flatnonzero(wide)[:count]
    return points[kept], end.select(kept)


def shuffled_blocks(points: np.ndarray, *, block: int = BLOCK, seed: Seed) -> np.ndarray:
    """Series (orbits, n, d) cut into blocks, the same for all d, in random order; n is cut too."""
    rng, number = numpy_generator(seed), points.shape[1] // block
    cut = points[:, : number * block].reshape(len(points), number, block, -1)
    order = np.argsort(rng.random((len(points), number)), axis=1)[..., None, None]
    mixed = np.take_along_axis(cut, order, axis=1)
    return np.asarray(mixed.reshape(len(points), number * block, -1))


@record
class Parts:
    """Two parts of chaotic orbits. state: (orbits, n), 0 the calm part (the smaller overlaps), 1
    the wild one, −1 before the first core. value: (orbits, n), the slow mode, wild upwards.
    """

    state: np.ndarray
    value: np.ndarray


def calm_parts(points: np.ndarray) -> Parts:
    """The parts between which strobed orbits (orbits, n, P) switch, by their slowest mode.

    A part's core are the boxes in the outer quarter of the range of the mode (5th to 95th
    percentile of the visits); an orbit is in the part whose core it visited last.
    """
    labels = box_labels(points, side=SIDE)
    value = slow_modes(labels, lag=LAG).vector[labels]
    size = np.abs(points).max(axis=-1)
    if ((value - value.mean()) * size).mean() < 0.0:
        value = -value
    low, high = np.quantile(value, (0.05, 0.95))
    quarter = 0.25 * (high - low)
    state = last_core(value, low=float(low + quarter), high=float(high - quarter))
    return Parts(state=state, value=value)


@stored(_FOLDER / "orbits.csv", units=grid(beta=(*BETAS, *OTHER_BETAS), seed=_SEEDS))
def ORBITS(beta: float, *, seed: int, count: int = 12) -> Rows:
    """One row an orbit: times of its modes (tokens), those of its two nulls, its calm share."""
    points, _ = chaotic_orbits(beta, count=count, flashes=_FLASHES, seed=seed)
    state = calm_parts(points).state
    rng = np.random.default_rng((seed, 1))
    twins = (points, phase_surrogate(points, seed=rng), shuffled_blocks(points, seed=rng))
    own, surrogate, shuffled = (
        np.array([FLASH * slow_modes(box_labels(one, side=SIDE), lag=LAG).times for one in twin])
        for twin in twins
    )
    return rows_of(
        orbit=np.arange(len(points)),
        slow=own[:, 0],
        next=own[:, 1],
        surrogate=surrogate[:, 0],
        shuffled=shuffled[:, 0],
        calm=(state == 0).mean(axis=1),
    )


@stored(_FOLDER / "ends.csv", units=ORBITS.units)
def ENDS(beta: float, *, seed: int) -> Rows:
    """Growth over 8,000 tokens after the orbits of `ORBITS`: are they still chaotic?"""
    _, context = chaotic_orbits(beta, count=12, flashes=_FLASHES, seed=seed)
    once: dict[str, Any] = {"steps": 8000, "batches": 1, "count": 1, "threads": 1}
    found = lyapunov_spectrum(Network.document(), context, beta=beta, **once)
    return rows_of(orbit=np.arange(len(found.growth)), growth=found.growth[:, 0, 0])


def stationary(table: dict[str, np.ndarray], *, ends: dict[str, np.ndarray]) -> np.ndarray:
    """Which rows of `ORBITS` are chaotic to the end, by the growth in `ENDS`: booleans.

    An orbit whose chaos ends changes once and for good, which is slow, too, but is no switching.
    """
    if any((table[name] != ends[name]).any() for name in ("beta", "seed", "orbit")):
        raise ValueError("ends must have the orbits of table")
    return np.asarray(ends["growth"] > _ALIVE)


def settled_cycle(beta: float, *, period: int) -> Cycle:
    """The cycle of `period` steps on which the first of 96 random contexts ends."""
    network = Network.document()
    ensemble = Ensemble(network, random_contexts(network, 3, count=96), beta=beta)
    ensemble.advance(400_000)
    for attention in ensemble.state().attention:
        end = Context(attention, ensemble.state().position)
        with suppress(NotConverged):
            found = cycle(network, end, beta=beta, period=period)
            moved = np.abs(found.value.attention - attention).max()
            if found.period == period and moved < _SETTLED:
                return found
    raise RuntimeError(f"none of 96 runs ended on a cycle of {period} steps")


@cache
def structure_points(name: str) -> np.ndarray:
    """Strobed m^o (n, P) of a structure.

    "cycle 28": at the fold where it is born, at 1.26696; "closed curve": the attractor beside the
    chaos at 1.266.
    """
    network = Network.document()
    if name == "closed curve":
        points, _ = strobed(network, closed_curve([1.266]), beta=np.array([1.266]), count=4000)
        return points[0]
    born = bifurcation(network, settled_cycle(1.2672, period=28), kind=Kind.FOLD)
    return strobed(network, born.value, beta=born.beta, count=7)[0]


def followed(points: np.ndarray, *, structure: np.ndarray, rounds: int) -> np.ndarray:
    """Which flashes of orbits (orbits, n, P) lie in a run of `rounds` or more near a structure.

    Near: within 0.02, in the largest overlap, of some point of the structure.
    """
    near = cKDTree(structure).query(points, p=np.inf)[0] < _NEAR
    # Opening by a row of so many takes away what is shorter.
    return np.asarray(binary_opening(near, np.ones((1, rounds), dtype=bool)))


@stored(_FOLDER / "growth.csv", units=grid(beta=(1.266,), seed=_SEEDS))
def GROWTH(beta: float, *, seed: int) -> Rows:
    """One row an orbit: growth per token in the calm and the wild part; nearness to structures.

    Growth is that of one deviation, pushed by the exact tangent map of each flash. `near …`: the
    smallest distance to a structure; `follows …`: share of flashes in whole rounds near it, and
    `mixed …` the same of the shuffled orbit.
    """
    network, flashes = Network.document(), 4000
    _, context = chaotic_orbits(beta, count=16, flashes=2000, seed=seed)
    vector = np.random.default_rng(seed).standard_normal((len(context.attention), 12, 1))
    points, growth = np.empty((len(vector), flashes, 3)), np.empty((len(vector), flashes))
    shift = network.epsilon * network.position_overlaps()[0, OUTPUT]
    for n in range(-50, flashes):
        context, matrix = returned(network, context, beta=beta, steps=FLASH, threads=1)
        vector = matrix @ vector
        length = np.linalg.norm(vector, axis=1, keepdims=True)
        vector = vector / length
        if n >= 0:
            growth[:, n] = np.log(length[:, 0, 0]) / FLASH
            # The token at position 0 is the one before the newest, as `strobed` leaves it.
            points[:, n] = tokens(network, context, beta)[:, 1, OUTPUT] - shift
    state = calm_parts(points).state
    mixed = shuffled_blocks(points, block=4, seed=np.random.default_rng((seed, 2)))
    columns: dict[str, Any] = {"orbit": np.arange(len(growth)), "flashes": flashes}
    for part, word in enumerate(("calm", "wild")):
        there = [rates[mine == part] for rates, mine in zip(growth, state, strict=True)]
        columns[f"{word} growth"] = [some.mean() if len(some) else 0.0 for some in there]
    for name, rounds in STRUCTURES:
        structure = structure_points(name)
        columns[f"near {name}"] = cKDTree(structure).query(points, p=np.inf)[0].min(axis=1)
        for word, orbits in (("follows", points), ("mixed", mixed)):
            runs = followed(orbits, structure=structure, rounds=rounds)
            columns[f"{word} {name}"] = runs.mean(axis=1)
    return rows_of(**columns)


NULLS = {"next mode": "next", "same spectrum": "surrogate", "shuffled blocks": "shuffled"}


@stored(
    _FOLDER / "settings_C21.csv",
    units=[unit | {"null": null} for unit in ORBITS.units for null in NULLS],
    seconds=0.5,
)
def SLOWER(beta: float, *, seed: int, null: str) -> Rows:
    """ln of the time of the slowest mode over three times that of a null, orbit by orbit."""
    table = ORBITS.read()
    here = (table["beta"] == beta) & (table["seed"] == seed) & stationary(table, ends=ENDS.read())
    return median_rows(np.log(table["slow"] / (3.0 * table[NULLS[null]]))[here])
