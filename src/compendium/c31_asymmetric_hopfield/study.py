"""Dynamics of random networks between symmetric and asymmetric, and their limits for N → ∞.

Spins are updated in parallel, x ← sgn(J x), or for real-valued spins m ← tanh βJm; exponents are
in nats per step. The limits hold for independent couplings of mean J_0/N and variance 1/N
[poclopez2024dynamical, after Eq. (3)].
"""

from collections.abc import Callable

import numba
import numpy as np
from scipy.optimize import brentq

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.solve import NotConverged
from spinformer.core.special import gaussian_expectation
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import glauber_trajectory

LAGS = np.array([2, 4, 8, 16, 32, 64, 250])  # of the table of memory, in updates


def spin_memory(
    size: int,
    *,
    symmetry: float,
    beta: float,
    lags: np.ndarray,
    steps: int,
    replicas: int,
    seed: Seed,
) -> Estimate:
    """C(τ), the mean of x_i(t) x_i(t + τ), at lags τ (L,), its error the scatter over networks.

    Each runs `steps` parallel updates from a random state; the first half is dropped.
    """
    rng = numpy_generator(seed)
    measured = []
    for _ in range(replicas):
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=rng)
        first = rng.choice([-1.0, 1.0], (1, size))
        path = glauber_trajectory(couplings, beta=beta, states=first, steps=steps, seed=rng)
        kept = path[steps // 2 :, 0].astype(float)
        measured.append([(kept[:-lag] * kept[lag:]).mean() for lag in lags])
    return mean_estimate(measured)


def mean_order(size: int, *, mean: float, beta: float, replicas: int, seed: Seed) -> Estimate:
    """|m| over updates 100 to 200 from an ordered start, independent couplings of mean `mean`/N."""
    rng = numpy_generator(seed)
    start = np.ones((1, size))
    measured = []
    for _ in range(replicas):
        couplings = gaussian_couplings(size, mean=mean, seed=rng)
        path = glauber_trajectory(couplings, beta=beta, states=start, steps=200, seed=rng)
        measured.append(abs(path[100:].mean()))
    return mean_estimate(measured)


@numba.njit(cache=True)
def cycle_length(couplings: np.ndarray, start: np.ndarray, limit: int) -> int:
    """Steps in the cycle that x ← sgn(J x) from `start` (N,) of ±1 ends on, by Brent's finder.

    1 or 2 for symmetric J [goles1981comportement]. A field of exactly zero turns the spin down. No
    path is stored. 0 if none closed within `limit` steps, up to three times those to and around it.
    """
    power = 1
    length = 0
    slow = start.copy()
    fast = start.copy()
    for _ in range(limit):
        for i, field in enumerate(couplings @ fast):
            fast[i] = 1.0 if field > 0.0 else -1.0
        length += 1
        if np.array_equal(slow, fast):
            return length
        if power == length:
            slow = fast.copy()
            power = 2 * power
            length = 0
    return 0


def cycle_lengths(
    size: int, *, symmetry: float, count: int, seed: Seed, limit: int = 1_000_000
) -> np.ndarray:
    """`cycle_length` from a random start in each of so many networks; NotConverged past `limit`."""
    rng = numpy_generator(seed)
    measured = np.zeros(count, dtype=int)
    for number in range(count):
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=rng)
        measured[number] = cycle_length(couplings, rng.choice([-1.0, 1.0], size), limit)
    if not measured.all():
        raise NotConverged(f"no cycle closed within {limit} steps at size {size}")
    return measured


def analog_exponents(
    size: int, *, symmetry: float, beta: float, count: int, seed: Seed, steps: int = 300
) -> Estimate:
    """Leading exponent of m ← tanh(βJm) per step, its error the scatter over `count` networks."""
    rng = numpy_generator(seed)

    def exponent() -> float:
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=rng)
        state = rng.uniform(-1.0, 1.0, size)

        def push(frame: np.ndarray) -> np.ndarray:
            nonlocal state
            state = np.tanh(beta * (couplings @ state))
            return (beta * (1.0 - state**2))[:, None] * (couplings @ frame)

        measured = lyapunov_exponents(push, dimension=size, steps=steps, align=300, seed=rng)
        return float(measured.value[0])

    return mean_estimate([exponent() for _ in range(count)])


def _largest_root(excess: Callable[[float], float]) -> float:
    """Where a function that is positive above an unstable zero falls through 0 on (0, 1], or 0."""
    if excess(1e-7) <= 0:
        return 0.0
    return 1.0 if excess(1.0) >= 0 else float(brentq(excess, 1e-7, 1.0, xtol=1e-14))


def analog_exponent_theory(beta: float) -> float:
    """Leading exponent of m ← tanh(βJm) for N → ∞ and J_0 = 0: ½ ln(β² E sech⁴(β√Δ z)).

    Δ = E tanh²(β√Δ z), z a unit normal [molgedey1992suppressing], without external noise.
    """

    def square(width: float) -> float:
        slope = beta * width
        return gaussian_expectation(lambda z: np.tanh(slope * z) ** 2, steepness=slope)

    slope = beta * _largest_root(lambda width: np.sqrt(square(width)) - width) if beta > 1 else 0.0
    fourth = gaussian_expectation(lambda z: (1.0 - np.tanh(slope * z) ** 2) ** 2, steepness=slope)
    return float(np.log(beta) + 0.5 * np.log(fourth))


def asymmetric_magnetization(beta: float, *, mean: float) -> float:
    """Stationary m ≥ 0 without fields, J_0 = `mean`: m = E tanh β(J_0 m + z), z a unit normal."""
    return _largest_root(
        lambda m: gaussian_expectation(lambda z: np.tanh(beta * (mean * m + z)), steepness=beta) - m
    )


def asymmetric_gain(beta: float) -> float:
    """β E sech² βz: its inverse is the critical mean of `asymmetric_magnetization`."""
    return beta * gaussian_expectation(lambda z: 1.0 - np.tanh(beta * z) ** 2, steepness=beta)


@stored(
    "exponents",
    [
        unit | {"networks": 20}
        for unit in (
            *parameter_product(
                size=(500,), symmetry=(0.0,), beta=(0.6, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
            ),
            *parameter_product(size=(500,), symmetry=(1.0,), beta=(0.6, 1.0, 1.5, 2.0, 3.0, 4.0)),
            *parameter_product(size=(125, 250, 1000), symmetry=(0.0,), beta=(3.0,)),
        )
    ],
    checked=13,
    seconds=0.5,
    # Chaos amplifies rounding: another processor follows other orbits.
    within={"exponent": 0.01, "error": 0.003},
)
def exponents_table(size: int, *, symmetry: float, beta: float, networks: int) -> Rows:
    """Mean and standard error over networks, 600 steps each."""
    measured = analog_exponents(
        size, symmetry=symmetry, beta=beta, count=networks, seed=0, steps=600
    )
    return rows_of(exponent=measured.value, error=measured.error)


@stored(
    "memory",
    rows_of(symmetry=(1.0, 0.5, 0.0, 1.0), beta=(2.0, 2.0, 2.0, 0.5)),
    seconds=1.0,
    within={"kept": 0.1, "error": 0.05},
)
def memory_table(symmetry: float, *, beta: float) -> Rows:
    """C(τ) at `LAGS` of ten networks of 500 spins, a row for each lag, with errors."""
    size = 500
    memory = spin_memory(
        size, symmetry=symmetry, beta=beta, lags=LAGS, steps=1000, replicas=10, seed=0
    )
    return rows_of(lag=LAGS, kept=memory.value, error=memory.error)


@stored(
    "order",
    parameter_product(ratio=(0.5, 0.8, 1.0, 1.2, 1.5, 2.0), beta=(2.0,)),
    seconds=0.2,
    within={"order": 0.1, "error": 0.05},
)
def order_table(ratio: float, *, beta: float) -> Rows:
    """|m| of ten networks of 500 spins, independent couplings; their mean over the critical one."""
    mean = ratio / asymmetric_gain(beta)
    measured = mean_order(500, mean=mean, beta=beta, replicas=10, seed=0)
    return rows_of(order=measured.value, error=measured.error)
