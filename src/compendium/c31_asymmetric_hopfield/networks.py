"""Dynamics of random networks between symmetric and asymmetric, and their limits for N → ∞.

Spins are updated in parallel by their fields h = J x, J (N, N) any matrix: x ← sgn h, the limit
β → ∞ of `spins.kinetic`, or for real-valued spins m ← tanh βh; exponents are in nats per step.
The limits hold for independent couplings of mean J_0/N and variance 1/N
[poclopez2024dynamical, after Eq. (3)].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.optimize import brentq

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.solve import NotConverged
from spinformer.core.special import normal_average
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import kinetic_path


def _over_networks(
    measure: Callable[[np.ndarray, np.random.Generator], Any],
    size: int, *, count: int, seed: Seed, **couplings: float,
) -> list[Any]:  # fmt: skip
    """What is measured in so many networks of `gaussian_couplings`, with the generator of all."""
    rng = numpy_generator(seed)
    return [measure(gaussian_couplings(size, seed=rng, **couplings), rng) for _ in range(count)]


def spin_memory(
    size: int, *, symmetry: float, beta: float, lags: np.ndarray, steps: int, replicas: int,
    seed: Seed,
) -> Estimate:  # fmt: skip
    """C(τ), the mean of x_i(t) x_i(t + τ), at lags τ (L,), with the scatter over networks as its error.

    Each runs `steps` parallel updates from a random state; the first half is dropped.
    """

    def memory(couplings: np.ndarray, rng: np.random.Generator) -> list[float]:
        first = rng.choice([-1.0, 1.0], (1, size))
        path = kinetic_path(couplings, beta=beta, states=first, steps=steps, seed=rng)
        kept = path[steps // 2 :, 0].astype(float)
        return [(kept[:-lag] * kept[lag:]).mean() for lag in lags]

    return mean_estimate(_over_networks(memory, size, count=replicas, seed=seed, symmetry=symmetry))


def mean_order(size: int, *, mean: float, beta: float, replicas: int, seed: Seed) -> Estimate:
    """|m| over updates 100 to 200 from an ordered start, independent couplings of mean `mean`/N."""

    def order(couplings: np.ndarray, rng: np.random.Generator) -> float:
        start = np.ones((1, size))
        path = kinetic_path(couplings, beta=beta, states=start, steps=200, seed=rng)
        return float(abs(path[100:].mean()))

    return mean_estimate(_over_networks(order, size, count=replicas, seed=seed, mean=mean))


@numba.njit(cache=True)
def cycle_length(couplings: np.ndarray, start: np.ndarray, limit: int) -> int:
    """Steps in the cycle that x ← sgn(J x) from `start` (N,) of ±1 ends on, by Brent's finder.

    1 or 2 for symmetric J [goles1981comportement]. A field of exactly zero turns the spin down. No
    path is stored. 0 if none closed within `limit` steps, up to three times those to and around it.
    """
    power, length, slow, fast = 1, 0, start.copy(), start.copy()
    for _ in range(limit):
        for i, field in enumerate(couplings @ fast):
            fast[i] = 1.0 if field > 0.0 else -1.0
        length += 1
        if np.array_equal(slow, fast):
            return length
        if power == length:
            slow, power, length = fast.copy(), 2 * power, 0
    return 0


def cycle_lengths(
    size: int, *, symmetry: float, count: int, seed: Seed, limit: int = 1_000_000
) -> np.ndarray:
    """`cycle_length` from a random start in each of `count` networks; NotConverged beyond `limit`."""

    def length(couplings: np.ndarray, rng: np.random.Generator) -> int:
        return int(cycle_length(couplings, rng.choice([-1.0, 1.0], size), limit))

    found = np.array(_over_networks(length, size, count=count, seed=seed, symmetry=symmetry))
    if not found.all():
        raise NotConverged(f"no cycle closed within {limit} steps at size {size}")
    return found


def analog_exponent(
    couplings: np.ndarray, *, beta: float, transient: int, steps: int, seed: Seed
) -> float:
    """Leading Lyapunov exponent of the deterministic map m ← tanh(βJm) from a random start."""
    rng = numpy_generator(seed)
    state = rng.uniform(-1.0, 1.0, len(couplings))

    def push(frame: np.ndarray) -> np.ndarray:
        nonlocal state
        state = np.tanh(beta * (couplings @ state))
        return (beta * (1.0 - state**2))[:, None] * (couplings @ frame)

    size = len(couplings)
    found = lyapunov_exponents(push, dimension=size, steps=steps, align=transient, seed=rng)
    return float(found.value[0])


def analog_exponents(
    size: int, *, symmetry: float, beta: float, count: int, seed: Seed, steps: int = 300
) -> Estimate:
    """Leading exponent of m ← tanh(βJm) per step, its error the scatter over `count` networks."""

    def exponent(couplings: np.ndarray, rng: np.random.Generator) -> float:
        return analog_exponent(couplings, beta=beta, transient=300, steps=steps, seed=rng)

    return mean_estimate(_over_networks(exponent, size, count=count, seed=seed, symmetry=symmetry))


def _largest_root(excess: Callable[[float], float]) -> float:
    """Where a function that is positive above an unstable zero falls through 0 on (0, 1], or 0."""
    low = 1e-7
    if excess(low) <= 0:
        return 0.0
    return 1.0 if excess(1.0) >= 0 else float(brentq(excess, low, 1.0, xtol=1e-14))


def analog_exponent_theory(beta: float) -> float:
    """Leading exponent of m ← tanh(βJm) for N → ∞ and J_0 = 0: ½ ln(β² E sech⁴(β√Δ z)).

    Δ = E tanh²(β√Δ z), z a unit normal [molgedey1992suppressing], without external noise.
    """

    def square(width: float) -> float:
        slope = beta * width
        return normal_average(lambda z: np.tanh(slope * z) ** 2, steepness=slope)

    width = _largest_root(lambda width: np.sqrt(square(width)) - width) if beta > 1.0 else 0.0
    slope = beta * width
    fourth = normal_average(lambda z: (1.0 - np.tanh(slope * z) ** 2) ** 2, steepness=slope)
    return float(np.log(beta) + 0.5 * np.log(fourth))


def asymmetric_magnetization(beta: float, *, mean: float) -> float:
    """Stationary m ≥ 0 without fields, J_0 = `mean`: m = E tanh β(J_0 m + z), z a unit normal."""
    return _largest_root(
        lambda m: normal_average(lambda z: np.tanh(beta * (mean * m + z)), steepness=beta) - m
    )


def asymmetric_gain(beta: float) -> float:
    """β E sech² βz: its inverse is the critical mean of `asymmetric_magnetization`."""
    return beta * normal_average(lambda z: 1.0 - np.tanh(beta * z) ** 2, steepness=beta)
