"""Noiseless dynamics of networks between symmetric and asymmetric: cycles of signs, and chaos.

Spins are updated in parallel by their fields h = J x, J (N, N) any matrix: x ← sgn h, the limit
β → ∞ of `kinetic`, or for real-valued spins m ← tanh βh. Exponents are in nats per step. Cited
for random couplings: [poclopez2024dynamical, after Eq. (3)]; `couplings.gaussian_couplings`
draws them.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_array, check_flag, check_integer, check_real
from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.core.special import normal_average
from spinformer.core.statistics import Estimate
from spinformer.spins.ising.couplings import MAX_COUNT, check_strength

# Where bits are steps for every purpose: averages over steeper functions only cost more.
MAX_BETA = 100.0


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
    couplings: np.ndarray, *, state: np.ndarray, max_steps: int = 1_000_000, throw: bool = False
) -> Cycle:
    """The attractor of x ← sgn(J x) (parallel, β → ∞) from `state` (N,) of ±1.

    For symmetric J the length is 1 or 2 [goles1981comportement]; for asymmetric random J it
    grows exponentially with N. A field of exactly zero turns the spin down. The search (Brent's)
    gives up after `max_steps` steps; it may need three times transient + length. Raises
    ValueError or TypeError for bad input and, with `throw`, NotConverged unless a state stays.

    >>> ring = zero_temperature_cycle(np.roll(np.eye(3), 1, axis=0), state=np.array([1, -1, -1]))
    >>> ring.length, ring.transient, ring.status.name
    (3, 0, 'CYCLE')
    """
    pair = check_array("couplings", couplings, ndim=2, square=True)
    check_strength(1.0, couplings=pair)
    first = check_array("state", state, shape=(len(pair),), values=(-1, 1))
    max_steps = check_integer("max_steps", max_steps, low=1, high=2**62)
    transient, length, last = _brent(
        np.ascontiguousarray(pair), np.ascontiguousarray(first), max_steps
    )
    turned = float(np.mean(_next_state(np.ascontiguousarray(pair), last) != last))
    closed = Status.CONVERGED if length == 1 else Status.CYCLE
    found = Cycle(
        value=last,
        residual=turned,
        steps=transient + length if length else max_steps,
        status=closed if length else Status.STEP_LIMIT,
        length=length,
        transient=transient,
    )
    if check_flag("throw", throw):
        found.require("a state that stays")
    return found


def analog_exponent(
    couplings: np.ndarray, *, beta: float, transient: int, steps: int, seed: Seed
) -> Estimate:
    """Leading Lyapunov exponent of the deterministic map m ← tanh(βJm), with its error.

    From a random start; `transient` steps, in which the tangent vector aligns, are dropped and
    at least two `steps` averaged (`core.lyapunov`); −∞ where the
    tangent vanishes. Raises ValueError or TypeError for bad input.

    >>> decay = analog_exponent(np.eye(2), beta=0.5, transient=100, steps=10, seed=0)
    >>> f"{decay.value:.4f} {np.log(0.5):.4f}"
    '-0.6931 -0.6931'
    """
    pair = check_array("couplings", couplings, ndim=2, square=True)
    beta = check_strength(beta, couplings=pair)
    transient = check_integer("transient", transient, low=0, high=MAX_COUNT)
    steps = check_integer("steps", steps, low=2, high=MAX_COUNT)
    rng = numpy_generator(seed)
    state = rng.uniform(-1.0, 1.0, len(pair))

    def push(frame: np.ndarray) -> np.ndarray:
        nonlocal state
        state = np.tanh(beta * (pair @ state))
        return (beta * (1.0 - state**2))[:, None] * (pair @ frame)

    found = lyapunov_exponents(push, dimension=len(pair), steps=steps, align=transient, seed=rng)
    return Estimate(
        value=float(found.value[0]),
        # An exponent of minus infinity has no scatter.
        error=float(found.error[0]) if np.isfinite(found.value[0]) else np.nan,
        samples=found.samples,
    )


def analog_exponent_theory(beta: float) -> float:
    """Leading exponent of m ← tanh(βJm) for independent J_ij and N → ∞, 0 < β ≤ 100.

    Δ = E tanh²(β√Δ z), λ = ½ ln(β² E sech⁴(β√Δ z)), z a unit normal [molgedey1992suppressing],
    without external noise. Chaos sets in at β = 1, where Δ leaves zero. Raises ValueError for
    another β.

    >>> f"{analog_exponent_theory(0.5):.4f} {np.log(0.5):.4f}", analog_exponent_theory(2.0) > 0
    ('-0.6931 -0.6931', True)
    """
    beta = check_real("beta", beta, low=0.0, high=MAX_BETA, open_low=True)

    def excess(delta: float) -> float:
        slope = beta * np.sqrt(delta)
        return normal_average(lambda z: np.tanh(slope * z) ** 2, steepness=slope) - delta

    low = 1e-14
    # Just above the onset the root Δ ≈ (β² − 1)/2 is below the bracket.
    delta = 0.0 if beta <= 1.0 or excess(low) <= 0 else brentq(excess, low, 1.0, xtol=1e-14)
    steep = beta * np.sqrt(delta)
    fourth = normal_average(lambda z: (1.0 - np.tanh(steep * z) ** 2) ** 2, steepness=steep)
    return float(np.log(beta) + 0.5 * np.log(fourth))
