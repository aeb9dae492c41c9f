"""Does chaos switch between structures? Almost-invariant parts of chaotic orbits.

The transfer operator of boxes [schutte2013metastability] has the eigenvalue 1, and one real
eigenvalue λ near 1 more for every further part that is left slowly, with the implied time
−lag / ln λ and a right eigenvector nearly constant on each part [froyland2005statistically].
Motion that turns has complex or negative eigenvalues of modulus near 1; these are no parts.

Times are in tokens (steps); a flash is a clock period of four of them.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.ndimage import binary_opening
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import eigs
from scipy.spatial import cKDTree

from bookmaker.tables import Rows, stored
from compendium.c33b_lifetimes.escapes import LONG
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.cycles import Bifurcation, Cycle, find_bifurcation, find_cycle
from spinformer.dmft.lyapunov import lyapunov_spectrum, period_map
from spinformer.dmft.mean_field import random_contexts, token_overlaps
from spinformer.dmft.network import OUTPUT, Context, Network
from spinformer.dmft.poclopez2024 import closed_curve
from spinformer.dmft.stroboscopic import stroboscopic_section

FLASH = 4  # steps between two flashes
LAG = 16  # of the transfer operator, in flashes, and the flashes of a block of the shuffled null
_SIDE = 0.05  # edge of a box of overlaps
# Of the orbits whose modes are looked for.
_FLASHES = 30_000
_SEEDS = (1, 2)
# Strobed m^o_1 of the closed curve extends over less than 0.24, that of chaos there over more.
_WIDE = 0.24
_NEAR = 0.02  # how near an orbit must be to a structure, in the largest overlap, to follow it
# Growth per token above which an orbit is chaotic; the calm part has three times as much.
LASTING = 0.01


def box_labels(points: np.ndarray) -> np.ndarray:
    """Which box each of the points (..., d) lies in: integers (...) from 0, of visited boxes."""
    boxes = np.floor(points / _SIDE).astype(np.int64).reshape(-1, points.shape[-1])
    _, labels = np.unique(boxes, axis=0, return_inverse=True)
    return np.asarray(labels.reshape(points.shape[:-1]))


def slow_modes(labels: np.ndarray, *, lag: int = LAG) -> tuple[np.ndarray, np.ndarray]:
    """The two longest implied times, in samples, and the right eigenvector (n,) of the slowest.

    labels: boxes (n,) or (orbits, n). Where the ten largest moduli hold no further real positive
    eigenvalue, its time is that of the smallest of them, an upper bound. The vector has mean 0 and
    mean square 1 over the visits.
    """
    values = np.atleast_2d(labels)
    size = int(values.max()) + 1
    before = values[:, :-lag].ravel()
    after = values[:, lag:].ravel()
    ones = np.ones(len(before))
    counts = coo_matrix((ones, (before, after)), shape=(size, size)).tocsr()
    total = np.bincount(before, minlength=size)
    visits = np.bincount(values.ravel(), minlength=size) / values.size
    # A box that is never seen left, at the end of a series, leads anywhere.
    lost = coo_matrix((total == 0).astype(float)[:, None])
    kernel = diags(1.0 / np.maximum(total, 1)) @ counts + lost @ coo_matrix(visits[None, :])
    result, vectors = eigs(kernel, k=10, v0=np.ones(size), tol=1e-6)
    real = (np.abs(result.imag) < 1e-9) & (result.real > 0.0) & (result.real < 1.0 - 1e-9)
    order = np.flatnonzero(real)[np.argsort(-result.real[real], kind="stable")][:2]
    times = np.full(2, -lag / np.log(np.abs(result).min()))
    times[: len(order)] = -lag / np.log(result.real[order])
    vector = vectors[:, order[0]].real if len(order) else np.zeros(size)
    vector -= visits @ vector
    return times, vector / max(float(np.sqrt(visits @ vector**2)), 1e-300)


def last_core(values: np.ndarray, *, low: float, high: float) -> np.ndarray:
    """Which of two cores a series (..., n) was in last: 0 below `low`, 1 above `high`, −1 none."""
    seen = np.where(values < low, 0, np.where(values > high, 1, -1))
    index = np.where(seen >= 0, np.arange(values.shape[-1]), 0)
    return np.take_along_axis(seen, np.maximum.accumulate(index, axis=-1), axis=-1)


def phase_surrogate(series: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Series (..., n, d) with the same spectra and cross spectra, all else random.

    The phases of every frequency turn by one angle for all components [prichard1994generating].
    """
    n = series.shape[-2]
    mean = series.mean(axis=-2, keepdims=True)
    waves = np.fft.rfft(series - mean, axis=-2)
    angle = 2.0 * np.pi * numpy_generator(seed).random(waves.shape[:-1])
    if n % 2 == 0:
        angle[..., -1] = 0.0  # frequency ½ has no phase
    return np.asarray(np.fft.irfft(waves * np.exp(1j * angle)[..., None], n=n, axis=-2) + mean)


def shuffled_blocks(points: np.ndarray, *, block: int = LAG, seed: Seed) -> np.ndarray:
    """Series (orbits, n, d) cut into blocks, the same for all d, in random order; n is cut too."""
    orbits = len(points)
    number = points.shape[1] // block
    cut = points[:, : number * block].reshape(orbits, number, block, -1)
    order = np.argsort(numpy_generator(seed).random((orbits, number)), axis=1)[..., None, None]
    return np.take_along_axis(cut, order, axis=1).reshape(orbits, number * block, -1)


def chaotic_orbits(
    beta: float, *, count: int, flashes: int, seed: Seed
) -> tuple[np.ndarray, Context]:
    """Strobed m^o (orbits, flashes, P) of at most `count` chaotic orbits, the contexts at the end.

    Random starts on the closed curve or on their way there are replaced by others, up to as many.
    """
    network = Network.poclopez2024()
    starts = random_contexts(network, seed, count=2 * count)
    points, end = stroboscopic_section(
        network, starts, beta=beta, count=flashes, transient=20_000, threads=1
    )
    wide = np.ptp(points[:, -flashes // 8 :, 0], axis=1) > _WIDE
    # Calm stretches of chaos can be long; they are narrow too, so the whole orbit speaks as well.
    wide |= np.ptp(points[:, flashes // 2 :, 0], axis=1) > 2.0 * _WIDE
    kept = np.flatnonzero(wide)[:count]
    return points[kept], end.select(kept)


def calm_parts(points: np.ndarray) -> np.ndarray:
    """The part of each flash of strobed orbits (orbits, n, P): 0 calm, 1 wild, −1 before the first.

    A part's core are the boxes in the outer quarter of the range of the slowest mode (5th to 95th
    percentile of the visits); an orbit is in the part whose core it visited last.
    """
    labels = box_labels(points)
    value = slow_modes(labels)[1][labels]
    if ((value - value.mean()) * np.abs(points).max(axis=-1)).mean() < 0.0:
        value = -value
    low, high = np.quantile(value, (0.05, 0.95))
    quarter = 0.25 * (high - low)
    return last_core(value, low=low + quarter, high=high - quarter)


def mode_times(points: np.ndarray, *, seed: int) -> dict[str, np.ndarray]:
    """Implied times (orbits,) in tokens: of the slowest mode, of the next, of the two nulls."""
    rng = np.random.default_rng((seed, 1))
    twins = {
        "own": points,
        "surrogate": phase_surrogate(points, seed=rng),
        "shuffled": shuffled_blocks(points, seed=rng),
    }
    times = {
        name: np.array([FLASH * slow_modes(box_labels(orbit))[0] for orbit in twin])
        for name, twin in twins.items()
    }
    return {
        "slow": times["own"][:, 0],
        "next": times["own"][:, 1],
        "surrogate": times["surrogate"][:, 0],
        "shuffled": times["shuffled"][:, 0],
    }


def growth_afterwards(context: Context, *, beta: float) -> np.ndarray:
    """Growth per token (orbits,) over the 8,000 tokens after contexts: still chaotic?"""
    spectrum = lyapunov_spectrum(
        Network.poclopez2024(), context, beta=beta, steps=8000, batches=1, count=1, threads=1
    )
    return spectrum.growth[:, 0, 0]


_SHORT = {"beta": 1.28, "seed": 1, "flashes": 4000}


@stored(
    "orbits",
    parameter_product(beta=(*LONG, 1.28, 1.3, 1.4), seed=_SEEDS),
    small=_SHORT,
    seconds=3.0,
    rtol=1e-3,
)
def orbits_table(beta: float, *, seed: int, flashes: int = _FLASHES) -> Rows:
    """One row an orbit: times of its modes (tokens), those of its two nulls, its calm share."""
    points, _ = chaotic_orbits(beta, count=12, flashes=flashes, seed=seed)
    times = mode_times(points, seed=seed)
    calm = (calm_parts(points) == 0).mean(axis=1)
    return rows_of({"orbit": np.arange(len(points))} | times, calm=calm)


@stored("ends", orbits_table.units, small=_SHORT, seconds=0.1, within={"growth": 0.02})
def ends_table(beta: float, *, seed: int, flashes: int = _FLASHES) -> Rows:
    """Growth over 8,000 tokens after the orbits of `orbits_table`: still chaotic?"""
    _, context = chaotic_orbits(beta, count=12, flashes=flashes, seed=seed)
    growth = growth_afterwards(context, beta=beta)
    return rows_of(orbit=np.arange(len(growth)), growth=growth)


def lasting_orbits() -> dict[str, np.ndarray]:
    """The rows of `orbits_table` that are chaotic to the end."""
    kept = ends_table.read()["growth"] > LASTING
    return {name: column[kept] for name, column in orbits_table.read().items()}


def settled_cycle(beta: float, *, period: int) -> Cycle:
    """The cycle of `period` steps on which the first of 96 random contexts ends."""
    network = Network.poclopez2024()
    starts = random_contexts(network, 3, count=96)
    count = 1 + period // FLASH
    points, ends = stroboscopic_section(network, starts, beta=beta, count=count, transient=400_000)
    back = np.flatnonzero(np.abs(points[:, -1] - points[:, 0]).max(axis=1) < 1e-7)
    result = (find_cycle(network, ends.select(at), beta=beta, period=period) for at in back)
    return next(one for one in result if one.period == period)


@cache
def structure_points(name: str) -> np.ndarray:
    """Strobed m^o (n, P) of "cycle 28" at the fold where it is born, or of the "closed curve"."""
    network = Network.poclopez2024()
    if name == "closed curve":
        return stroboscopic_section(network, closed_curve([1.266]), beta=1.266, count=4000)[0][0]
    born = find_bifurcation(network, settled_cycle(1.2672, period=28), kind=Bifurcation.FOLD)
    return stroboscopic_section(network, born.value, beta=born.beta, count=7)[0]


def followed(distance: np.ndarray, *, rounds: int) -> np.ndarray:
    """Which flashes lie in a run of `rounds` or more near a structure, by distance (orbits, n)."""
    return np.asarray(binary_opening(distance < _NEAR, np.ones((1, rounds), dtype=bool)))


@stored("growth", parameter_product(beta=(1.266,), seed=_SEEDS), seconds=5.0)
def growth_table(beta: float, *, seed: int) -> Rows:
    """One row an orbit: growth per token in the calm and the wild part; nearness to structures.

    `near …`: the smallest distance to a structure; `follows …`: share of flashes in whole rounds
    near it, and `mixed …` the same of the shuffled orbit.
    """
    network = Network.poclopez2024()
    flashes = 4000
    _, context = chaotic_orbits(beta, count=16, flashes=2000, seed=seed)
    vector = np.random.default_rng(seed).standard_normal((len(context.attention), 12, 1))
    seen = []
    rates = []
    for _ in range(50 + flashes):
        context, matrix = period_map(network, context, beta=beta, steps=FLASH, threads=1)
        vector = matrix @ vector
        length = np.linalg.norm(vector, axis=1, keepdims=True)
        vector = vector / length
        rates.append(np.log(length[:, 0, 0]) / FLASH)
        # The token at position 0 is the one before the newest, as `stroboscopic_section` leaves it.
        seen.append(token_overlaps(network, context, beta)[:, 1, OUTPUT])
    # The first fifty only turn the vector.
    points = np.stack(seen[50:], axis=1)
    growth = np.stack(rates[50:], axis=1)
    points -= network.epsilon * network.position_overlaps()[0, OUTPUT]
    state = calm_parts(points)
    mixed = shuffled_blocks(points, block=4, seed=np.random.default_rng((seed, 2)))
    columns: dict[str, Any] = {"orbit": np.arange(len(growth)), "flashes": flashes}
    for part, word in enumerate(("calm", "wild")):
        there = np.ma.masked_array(growth, state != part)
        columns[f"{word} growth"] = there.mean(axis=1).filled(0.0)
    for name, rounds in (("cycle 28", 7), ("closed curve", 4)):  # flashes of a whole round
        tree = cKDTree(structure_points(name))
        own = tree.query(points, p=np.inf)[0]
        other = tree.query(mixed, p=np.inf)[0]
        columns[f"near {name}"] = own.min(axis=1)
        columns[f"follows {name}"] = followed(own, rounds=rounds).mean(axis=1)
        columns[f"mixed {name}"] = followed(other, rounds=rounds).mean(axis=1)
    return rows_of(columns)
