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
from spinformer.core.solve import NotConverged
from spinformer.core.special import normal_average


@numba.njit(cache=True)
def _cycle(pair: np.ndarray, start: np.ndarray, limit: int) -> int:
    """Length of the cycle by Brent's finder, without a stored path; 0 if none closed."""
    power, length, slow, fast = 1, 0, start.copy(), start.copy()
    for _ in range(limit):
        for i, field in enumerate(pair @ fast):
            fast[i] = 1.0 if field > 0.0 else -1.0
        length += 1
        if np.array_equal(slow, fast):
            return length
        if power == length:
            slow, power, length = fast.copy(), 2 * power, 0
    return 0


def zero_temperature_cycle(
    couplings: np.ndarray, *, state: np.ndarray, max_steps: int = 1_000_000
) -> int:
    """Steps in the cycle that x ← sgn(J x) (parallel, β → ∞) from `state` (N,) of ±1 ends on.

    For symmetric J it is 1 or 2 [goles1981comportement]; for asymmetric random J it grows
    exponentially with N. A field of exactly zero turns the spin down. The search may need three
    times the steps to the cycle and around it; NotConverged after `max_steps`.
    """
    pair, first = (np.ascontiguousarray(a, dtype=float) for a in (couplings, state))
    length = _cycle(pair, first, max_steps)
    if not length:
        raise NotConverged(f"no cycle closed within {max_steps} steps at size {len(first)}")
    return length


def analog_exponent(
    couplings: np.ndarray, *, beta: float, transient: int, steps: int, seed: Seed
) -> float:
    """Leading Lyapunov exponent of the deterministic map m ← tanh(βJm).

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
    return float(found.value[0])


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
