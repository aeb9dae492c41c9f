"""Networks with random couplings between symmetric and asymmetric (document 002, after Eq. 3).

Spins are updated in parallel, `P(x_i' = ±1) ∝ exp(±beta h_i)`, `h = J x`: the output of a
bipartite network fed back as its input. `symmetry` is `eta = E[J_ij J_ji] / E[J_ij²]`:
1 for symmetric couplings (a spin glass), 0 for independent J_ij and J_ji.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_array, check_integer, check_real

# Averages over a unit normal by the trapezoidal rule, which converges exponentially for
# analytic integrands: a spacing of 0.006 resolves tanh(beta z) far beyond beta = 100.
_NODES = np.linspace(-12.0, 12.0, 4001)
_WEIGHTS = np.exp(-0.5 * _NODES**2)
_WEIGHTS /= _WEIGHTS.sum()


def gaussian_couplings(
    spins: int, *, symmetry: float, rng: np.random.Generator, mean: float = 0.0
) -> np.ndarray:
    """Couplings (N, N): normal entries of variance 1/N and mean `mean`/N, zero diagonal.

    `J = sqrt((1+eta)/2) S + sqrt((1-eta)/2) A` with S symmetric and A antisymmetric
    (Crisanti and Sompolinsky 1988), so that `E[J_ij J_ji] = eta / N`.
    """
    spins = check_integer("spins", spins, low=2)
    symmetry = check_real("symmetry", symmetry, low=-1.0, high=1.0)
    mean = check_real("mean", mean)
    draws = rng.standard_normal((2, spins, spins)) / np.sqrt(spins)
    upper = np.triu(draws, 1)
    symmetric = upper[0] + upper[0].T
    antisymmetric = upper[1] - upper[1].T
    pair = np.sqrt(0.5 * (1.0 + symmetry)) * symmetric
    pair += np.sqrt(0.5 * (1.0 - symmetry)) * antisymmetric
    pair += mean / spins
    np.fill_diagonal(pair, 0.0)
    return pair


def parallel_glauber(
    pair: np.ndarray, *, states: np.ndarray, beta: float, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Parallel stochastic dynamics of R replicas, int8 array (steps + 1, R, N).

    `x_i(t+1) = +1` with probability `(1 + tanh(beta h_i(t))) / 2`, `h = J x`, all i at once.
    """
    pair = check_array("pair", pair, ndim=2)
    states = check_array("states", states, shape=(None, pair.shape[0]), values=(-1, 1))
    beta = check_real("beta", beta, low=0.0)
    steps = check_integer("steps", steps, low=0)
    path = np.empty((steps + 1, *states.shape), dtype=np.int8)
    path[0] = states
    current = states
    for step in range(1, steps + 1):
        field = current @ pair.T
        rises = rng.random(states.shape) < 0.5 * (1.0 + np.tanh(beta * field))
        current = np.where(rises, 1.0, -1.0)
        path[step] = current
    return path


@dataclass(frozen=True)
class Cycle:
    """Where a deterministic run ends: steps before it enters its cycle, and the cycle's length.

    `length` is 0 when no cycle closed within the allowed steps.
    """

    transient: int
    length: int


@numba.njit
def _next_state(pair, state):
    spins = state.size
    result = np.empty(spins)
    for i in range(spins):
        field = 0.0
        for j in range(spins):
            field += pair[i, j] * state[j]
        result[i] = 1.0 if field > 0.0 else -1.0
    return result


@numba.njit
def _brent(pair, start, limit):
    """Brent's cycle finder: no stored path, at most three passes."""
    power = 1
    length = 1
    slow = start.copy()
    fast = _next_state(pair, start)
    spent = 1
    while not np.array_equal(slow, fast):
        if spent >= limit:
            return 0, 0
        if power == length:
            slow = fast.copy()
            power *= 2
            length = 0
        fast = _next_state(pair, fast)
        length += 1
        spent += 1
    slow = start.copy()
    fast = start.copy()
    for _ in range(length):
        fast = _next_state(pair, fast)
    transient = 0
    while not np.array_equal(slow, fast):
        slow = _next_state(pair, slow)
        fast = _next_state(pair, fast)
        transient += 1
    return transient, length


def zero_temperature_cycle(pair: np.ndarray, *, state: np.ndarray, limit: int = 1_000_000) -> Cycle:
    """The attractor of `x ← sgn(J x)` (parallel, beta → ∞) from `state`, at most `limit` steps.

    For symmetric J the length is 1 or 2 (Goles and Olivos 1981); for asymmetric random J it
    grows exponentially with N. A field of exactly zero turns the spin down.
    """
    pair = check_array("pair", pair, ndim=2)
    state = check_array("state", state, shape=(pair.shape[0],), values=(-1, 1))
    limit = check_integer("limit", limit, low=1)
    transient, length = _brent(pair, state, limit)
    return Cycle(int(transient), int(length))


def analog_exponent(
    pair: np.ndarray, *, beta: float, transient: int, steps: int, rng: np.random.Generator
) -> float:
    """Leading Lyapunov exponent per step of the deterministic map `m ← tanh(beta J m)`.

    One tangent vector, renormalised every step; `transient` steps are dropped first.
    """
    pair = check_array("pair", pair, ndim=2)
    beta = check_real("beta", beta, low=0.0)
    transient = check_integer("transient", transient, low=0)
    steps = check_integer("steps", steps, low=1)
    state = rng.uniform(-1.0, 1.0, pair.shape[0])
    tangent = rng.standard_normal(pair.shape[0])
    total = 0.0
    for step in range(transient + steps):
        state = np.tanh(beta * (pair @ state))
        tangent = beta * (1.0 - state**2) * (pair @ tangent)
        size = float(np.linalg.norm(tangent))
        if size == 0.0:
            return -np.inf
        tangent /= size
        if step >= transient:
            total += np.log(size)
    return total / steps


def analog_exponent_theory(beta: float) -> float:
    """Leading exponent of `m ← tanh(beta J m)` for independent J_ij and N → ∞.

    `Delta = E tanh²(beta sqrt(Delta) z)`, `lambda = ½ ln(beta² E sech⁴(beta sqrt(Delta) z))`,
    z a unit normal (Molgedey, Schuchhardt and Schuster 1992, without external noise). Chaos
    sets in at beta = 1, where Delta leaves zero.
    """
    beta = check_real("beta", beta, low=0.0, open_low=True)

    def excess(delta: float) -> float:
        return float(_WEIGHTS @ np.tanh(beta * np.sqrt(delta) * _NODES) ** 2) - delta

    delta = 0.0 if beta <= 1.0 else brentq(excess, 1e-14, 1.0, xtol=1e-14)
    slope = 1.0 - np.tanh(beta * np.sqrt(delta) * _NODES) ** 2
    return float(np.log(beta) + 0.5 * np.log(_WEIGHTS @ slope**2))


def asymmetric_magnetization(beta: float, *, mean: float) -> float:
    """Stationary magnetisation m ≥ 0 of independent J_ij of mean `mean`/N and variance 1/N.

    Solves `m = E tanh(beta (mean m + z))` (N → ∞, parallel dynamics): zero below the
    order-disorder transition `mean beta E sech²(beta z) = 1`, positive above it.
    """
    beta = check_real("beta", beta, low=0.0)
    mean = check_real("mean", mean)

    def excess(m: float) -> float:
        return float(_WEIGHTS @ np.tanh(beta * (mean * m + _NODES))) - m

    if mean * asymmetric_gain(beta) <= 1.0:
        return 0.0
    return float(brentq(excess, 1e-9, 1.0, xtol=1e-13))


def asymmetric_gain(beta: float) -> float:
    """`beta E sech²(beta z)`: its inverse is the critical mean of `asymmetric_magnetization`."""
    beta = check_real("beta", beta, low=0.0)
    return float(beta * (_WEIGHTS @ (1.0 - np.tanh(beta * _NODES) ** 2)))
