"""Kinetic Ising spins: all redrawn at once, with any couplings, simulated.

P(s_i(t+1) = ±1 | s(t)) ∝ exp(±β (x_i(t) + Σ_j J_ij s_j(t))); row i of J (N, N) holds the
couplings into spin i, the diagonal (a memory of itself) is allowed and β is written outside.
Drives have shape (T, N): x(t) acts on the step from t to t + 1, and results have T + 1 entries,
the first of which is the initial state.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.spins.ising.couplings import MAX_COUNT, check_strength


@record
class KineticEstimate:
    """Averages over replicas of a run of T steps, each an `Estimate`.

    magnetization (T+1, N) of s_i(t), correlations (T+1, N, N) of s_i(t) s_j(t) and delayed
    (T, N, N) of s_i(t+1) s_j(t), means not subtracted; errors over independent replicas.
    """

    magnetization: Estimate
    correlations: Estimate
    delayed: Estimate


def draw_spins(means: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Independent ±1 spins with the given means, one draw for each entry.

    Raises ValueError for a mean outside [−1, 1].

    >>> draw_spins(np.array([1.0, -1.0]), seed=0)
    array([ 1., -1.])
    """
    means = check_array("means", means, low=-1.0, high=1.0)
    return np.where(numpy_generator(seed).random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0)


def kinetic_path(
    couplings: np.ndarray,
    *,
    beta: float,
    states: np.ndarray,
    steps: int,
    seed: Seed,
    fields: np.ndarray | None = None,
) -> np.ndarray:
    """Orbits of R replicas in constant `fields` (N,), int8 array (steps + 1, R, N).

    From `states` (R, N), without fields unless they are given. Raises ValueError or TypeError for
    bad input.

    >>> ring = np.roll(np.eye(3), 1, axis=0)
    >>> kinetic_path(ring, beta=99.0, states=np.array([[1, -1, -1]]), steps=2, seed=0)[:, 0]
    array([[ 1, -1, -1],
           [-1,  1, -1],
           [-1, -1,  1]], dtype=int8)
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = np.zeros(len(j)) if fields is None else check_array("fields", fields, shape=(len(j),))
    beta = check_strength(beta, couplings=j, fields=x)
    current = check_array("states", states, shape=(None, len(j)), values=(-1, 1))
    steps = check_integer("steps", steps, low=0, high=MAX_COUNT)
    rng = numpy_generator(seed)
    path = np.empty((steps + 1, *current.shape), dtype=np.int8)
    path[0] = current
    for step in range(1, steps + 1):
        current = _step(current, j, x, beta, rng)
        path[step] = current
    return path


def kinetic_simulation(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    replicas: int = 4096,
    seed: Seed = 0,
) -> KineticEstimate:
    """Simulate `replicas` independent runs and average them.

    `drive` (T, N); `initial` (N,) holds the magnetizations of independent spins at time 0.
    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> m = kinetic_simulation(np.zeros((1, 1)), **free, replicas=1000).magnetization
    >>> bool(abs(m.value[1, 0] - np.tanh(0.5)) < 5 * m.error[1, 0])
    True
    """
    j, x, m0, beta = check_run(couplings, drive=drive, beta=beta, initial=initial)
    replicas = check_integer("replicas", replicas, low=2, high=MAX_COUNT)
    rng = numpy_generator(seed)
    s = draw_spins(np.broadcast_to(m0, (replicas, len(m0))), seed=rng)
    means, pairs, delayed = [s.mean(0)], [s.T @ s / replicas], []
    for field in x:
        new = _step(s, j, field, beta, rng)
        delayed.append(new.T @ s / replicas)
        means.append(new.mean(0))
        pairs.append(new.T @ new / replicas)
        s = new
    return KineticEstimate(
        magnetization=_sign_estimate(np.array(means), replicas),
        correlations=_sign_estimate(np.array(pairs), replicas),
        delayed=_sign_estimate(np.array(delayed).reshape(len(x), len(m0), len(m0)), replicas),
    )


def check_run(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return J (N, N), the drive (T, N), magnetizations (N,) in [−1, 1] and β ≥ 0, or raise.

    >>> check_run(np.eye(2), drive=np.zeros((1, 2)), beta=1.0, initial=np.array([0.0, 1.5]))
    Traceback (most recent call last):
    ValueError: initial must have entries in [-1.0, 1.0], got values from 0.0 to 1.5
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = check_array("drive", drive, shape=(None, len(j)))
    m0 = check_array("initial", initial, shape=(len(j),), low=-1.0, high=1.0)
    return j, x, m0, check_strength(beta, couplings=j, drive=x)


def _step(
    states: np.ndarray,
    couplings: np.ndarray,
    field: np.ndarray,
    beta: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """All spins of all replicas (R, N) drawn at once, given where they were."""
    return draw_spins(np.tanh(beta * (field + states @ couplings.T)), seed=rng)


def _sign_estimate(mean: np.ndarray, count: int) -> Estimate:
    """Mean of `count` independent signs; their squares are one, so the mean has the variance."""
    error = np.sqrt(np.maximum(1 - mean**2, 0) / (count - 1))
    return Estimate(value=mean, error=error, samples=count)
