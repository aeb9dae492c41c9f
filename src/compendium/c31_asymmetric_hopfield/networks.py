"""Noiseless dynamics of networks between symmetric and asymmetric, and their limits for N → ∞.

Spins are updated in parallel by their fields h = J x, J (N, N) any matrix: x ← sgn h, the limit
β → ∞ of `spins.kinetic`, or for real-valued spins m ← tanh βh; exponents are in nats per step.
The limits hold for independent couplings of mean J_0/N and variance 1/N
[poclopez2024dynamical, after Eq. (3)].
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.optimize import brentq

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.core.special import normal_average
from spinformer.core.statistics import Estimate


@record
class Cycle(Solution[np.ndarray]):
    """Where a run of x ← sgn(J x) ends.

    value (N,): a state on the cycle, or the last one seen. residual: the share of its spins that
    the next step turns. length: steps in the cycle, 0 if none closed. transient: steps before it
    is entered. steps: transient + length, or the steps that were allowed. status: CONVERGED for
    a state that stays, CYCLE for a longer cycle, STEP_LIMIT if none closed.
    """

    length: int
    transient: int


@numba.njit(cache=True)
def _next_state(pair: np.ndarray, state: np.ndarray) -> np.ndarray:
    spins = state.size
    result = np.empty(spins)
    for i in range(spins):
        field = 0.0
        for j in range(spins):
            field += pair[i, j] * state[j]
        result[i] = 1.0 if field > 0.0 else -1.0
    return result


@numba.njit(cache=True)
def _brent(pair: np.ndarray, start: np.ndarray, limit: int) -> tuple[int, int, np.ndarray]:
    """Brent's cycle finder: no stored path, at most three passes."""
    power = 1
    length = 1
    slow = start.copy()
    fast = _next_state(pair, start)
    spent = 1
    while not np.array_equal(slow, fast):
        if spent >= limit:
            return 0, 0, fast
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
    return transient, length, slow


def zero_temperature_cycle(
    couplings: np.ndarray, *, state: np.ndarray, max_steps: int = 1_000_000
) -> Cycle:
    """The attractor of x ← sgn(J x) (parallel, β → ∞) from `state` (N,) of ±1.

    For symmetric J the length is 1 or 2 [goles1981comportement]; for asymmetric random J it
    grows exponentially with N. A field of exactly zero turns the spin down. The search (Brent's)
    gives up after `max_steps` steps; it may need three times transient + length.
    """
    pair, first = (np.ascontiguousarray(a, dtype=float) for a in (couplings, state))
    transient, length, last = _brent(pair, first, max_steps)
    closed = Status.CONVERGED if length == 1 else Status.CYCLE
    return Cycle(
        value=last,
        residual=float(np.mean(_next_state(pair, last) != last)),
        steps=transient + length if length else max_steps,
        status=closed if length else Status.STEP_LIMIT,
        length=length,
        transient=transient,
    )


def analog_exponent(
    couplings: np.ndarray, *, beta: float, transient: int, steps: int, seed: Seed
) -> Estimate:
    """Leading Lyapunov exponent of the deterministic map m ← tanh(βJm), with its error.

    From a random start; `transient` steps, in which the tangent vector aligns, are dropped and
    at least two `steps` averaged (`core.lyapunov`); −∞ where the tangent vanishes.
    """
    rng = numpy_generator(seed)
    state = rng.uniform(-1.0, 1.0, len(couplings))

    def push(frame: np.ndarray) -> np.ndarray:
        nonlocal state
        state = np.tanh(beta * (couplings @ state))
        return (beta * (1.0 - state**2))[:, None] * (couplings @ frame)

    size = len(couplings)
    found = lyapunov_exponents(push, dimension=size, steps=steps, align=transient, seed=rng)
    return Estimate(
        value=float(found.value[0]),
        # An exponent of minus infinity has no scatter.
        error=float(found.error[0]) if np.isfinite(found.value[0]) else np.nan,
        samples=found.samples,
    )


def analog_exponent_theory(beta: float) -> float:
    """Leading exponent of m ← tanh(βJm) for N → ∞ and J_0 = 0, β > 0.

    Δ = E tanh²(β√Δ z), λ = ½ ln(β² E sech⁴(β√Δ z)), z a unit normal [molgedey1992suppressing],
    without external noise. Chaos sets in at β = 1, where Δ leaves zero.
    """

    def excess(delta: float) -> float:
        slope = beta * np.sqrt(delta)
        return normal_average(lambda z: np.tanh(slope * z) ** 2, steepness=slope) - delta

    low = 1e-14
    # Just above the onset the root Δ ≈ (β² − 1)/2 is below the bracket.
    delta = 0.0 if beta <= 1.0 or excess(low) <= 0 else brentq(excess, low, 1.0, xtol=1e-14)
    steep = beta * np.sqrt(delta)
    fourth = normal_average(lambda z: (1.0 - np.tanh(steep * z) ** 2) ** 2, steepness=steep)
    return float(np.log(beta) + 0.5 * np.log(fourth))


def asymmetric_magnetization(beta: float, *, mean: float) -> float:
    """Stationary m ≥ 0 without fields, J_0 = `mean`: m = E tanh β(J_0 m + z), z a unit normal.

    Zero below the order-disorder transition J_0 β E sech² βz = 1 (see `asymmetric_gain`).
    """

    def excess(m: float) -> float:
        return normal_average(lambda z: np.tanh(beta * (mean * m + z)), steepness=beta) - m

    low = 1e-9
    if mean * asymmetric_gain(beta) <= 1.0 or excess(low) <= 0:
        return 0.0
    return 1.0 if excess(1.0) >= 0 else float(brentq(excess, low, 1.0, xtol=1e-13))


def asymmetric_gain(beta: float) -> float:
    """β E sech² βz: its inverse is the critical mean of `asymmetric_magnetization`."""
    return beta * normal_average(lambda z: 1.0 - np.tanh(beta * z) ** 2, steepness=beta)
