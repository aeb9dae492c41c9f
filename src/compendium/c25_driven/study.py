"""Chapter 25: mean-field theories of kinetic Ising spins held to simulation and to exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising.couplings import MAX_COUNT, MAX_SIZE, gaussian_couplings
from spinformer.spins.ising.kinetic import kinetic_path, kinetic_simulation
from spinformer.spins.ising.kinetic_theories import (
    KINETIC_METHODS,
    kinetic_mean_field,
    mean_field_entropy_production,
)
from spinformer.spins.ising.master_equation import (
    entropy_production,
    kinetic_exact,
    kinetic_stationary,
)


@record
class EntropyProduction:
    """Entropy production per spin, in nats a step, by four routes.

    definition: summed over all pairs of states. delayed: from the exact delayed correlations.
    simulated: from simulated ones. leading: the leading order in the couplings.
    """

    definition: float
    delayed: float
    simulated: float
    leading: float


def entropy_by_four_routes(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, replicas: int, seed: int
) -> EntropyProduction:
    """Entropy production of one system of up to 12 spins under constant `fields` (N,).

    The simulation starts from the exact magnetizations, runs 20 steps and averages the last 10.
    Raises ValueError or TypeError for bad input.

    >>> turn = 0.1 * np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> found = entropy_by_four_routes(turn, fields=np.zeros(2), beta=1.0, replicas=10, seed=0)
    >>> f"{found.definition:.4f} {found.delayed:.4f} {found.leading:.4f}"
    '0.0199 0.0199 0.0200'
    """
    fields = check_array("fields", fields, ndim=1)
    state = kinetic_stationary(couplings, drive=fields, beta=beta)
    size = len(state.magnetization)
    run = kinetic_simulation(
        couplings,
        drive=np.tile(fields, (20, 1)),
        beta=beta,
        initial=state.magnetization,
        replicas=replicas,
        seed=seed,
    )
    late = run.delayed.value[-10:].mean(0)
    return EntropyProduction(
        definition=state.entropy_production / size,
        delayed=entropy_production(couplings, beta=beta, delayed=state.delayed) / size,
        simulated=entropy_production(couplings, beta=beta, delayed=late) / size,
        leading=mean_field_entropy_production(
            couplings, beta=beta, magnetization=state.magnetization
        )
        / size,
    )


def largest_errors(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray
) -> dict[str, float]:
    """Largest error of the magnetizations over all steps, for every theory; exact is the truth.

    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.ones((2, 1)), "beta": 1.0, "initial": np.zeros(1)}
    >>> max(largest_errors(np.zeros((1, 1)), **free).values()) < 1e-12
    True
    """
    run: dict[str, Any] = {"drive": drive, "beta": beta, "initial": initial}
    truth = kinetic_exact(couplings, **run).magnetization
    return {
        method: float(np.abs(kinetic_mean_field(couplings, **run, method=method) - truth).max())
        for method in KINETIC_METHODS
    }


def squared_errors(
    size: int,
    *,
    symmetry: float,
    beta: float,
    steps: int,
    systems: int,
    replicas: int,
    field_std: float = 0.5,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Mean square error of every theory after `steps` steps under a constant random drive.

    Over `systems` ≥ 2 random systems of `size` spins, from a start without magnetization, with the
    standard error over systems. The simulation that stands for the truth runs in two halves of
    `replicas`/2, and the square is the product of the two differences from them: their noise is
    independent and averages out, so that small errors may come out negative. Raises ValueError or
    TypeError for bad input.

    >>> few = {"symmetry": 0.0, "beta": 0.1, "steps": 2, "systems": 2, "replicas": 100}
    >>> sorted(squared_errors(16, **few)) == sorted(KINETIC_METHODS)
    True
    """
    size = check_integer("size", size, low=1, high=MAX_SIZE)
    steps = check_integer("steps", steps, low=1, high=MAX_COUNT)
    check_integer("seed", seed, low=0)
    check_real("field_std", field_std, low=0.0)
    systems = check_integer("systems", systems, low=2, high=10**6)
    squared: dict[str, list[float]] = {method: [] for method in KINETIC_METHODS}
    for copy in range(systems):
        number = seed + 100 * copy + size
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=number)
        fields = field_std * np.random.default_rng(number).standard_normal(size)
        run: dict[str, Any] = {
            "drive": np.tile(fields, (steps, 1)),
            "beta": beta,
            "initial": np.zeros(size),
        }
        first, second = (
            kinetic_path(
                couplings,
                beta=beta,
                states=rng.choice([-1.0, 1.0], (replicas // 2, size)),
                steps=steps,
                fields=fields,
                seed=rng,
            )[-1].mean(0)
            for rng in np.random.default_rng(copy).spawn(2)
        )
        for method in KINETIC_METHODS:
            m = kinetic_mean_field(couplings, **run, method=method)[-1]
            squared[method].append(float(np.mean((m - first) * (m - second))))
    return {method: mean_estimate(values) for method, values in squared.items()}


@record
class OrderMoments:
    """Moments of the mean spin M of one replica, an entry a system and an inverse temperature.

    absolute, second, fourth (systems, betas): averages of |M|, M² and M⁴ over replicas and steps.

    >>> ones = np.ones((3, 1))
    >>> ordered = OrderMoments(betas=np.ones(1), absolute=ones, second=ones, fourth=ones)
    >>> f"{ordered.binder()[0]:.3f}"
    '0.667'
    """

    betas: np.ndarray
    absolute: np.ndarray
    second: np.ndarray
    fourth: np.ndarray

    def binder(self) -> np.ndarray:
        """1 − [M⁴]/(3 [M²]²) (betas,): 0 for a normal M, 2/3 for an ordered one."""
        return 1.0 - self.fourth.mean(0) / (3.0 * self.second.mean(0) ** 2)


def order_moments(
    size: int,
    *,
    betas: np.ndarray,
    systems: int,
    replicas: int = 32,
    steps: int = 300,
    coupling_std: float = 0.1,
    field_scale: float = 0.5,
    seed: int = 0,
) -> OrderMoments:
    """Order of driven networks with couplings of mean 1/N, taken replica by replica.

    Couplings of standard deviation `coupling_std`/√N in both directions, constant fields on an
    even grid over [−`field_scale`, `field_scale`]; random starts, the first third of the `steps`
    is dropped. Averages of M itself vanish once replicas have ordered up and down; those of |M|
    and of its powers do not. Raises ValueError or TypeError for bad input.

    >>> found = order_moments(20, betas=np.array([0.2, 3.0]), systems=2, steps=30)
    >>> bool(found.absolute[:, 0].max() < 0.5 < found.absolute[:, 1].min())
    True
    """
    size = check_integer("size", size, low=2, high=MAX_SIZE)
    systems = check_integer("systems", systems, low=1, high=10**6)
    replicas = check_integer("replicas", replicas, low=1, high=10**6)
    steps = check_integer("steps", steps, low=3, high=MAX_COUNT)
    betas = check_array("betas", betas, ndim=1, low=0.0)
    fields = check_real("field_scale", field_scale, low=0.0) * np.linspace(-1, 1, size)
    moments = np.empty((3, systems, len(betas)))
    for copy, rng in enumerate(np.random.default_rng(seed).spawn(systems)):
        couplings = gaussian_couplings(size, mean=1.0, std=coupling_std, seed=rng)
        for column, beta in enumerate(betas):
            start = rng.choice([-1.0, 1.0], (replicas, size))
            path = kinetic_path(
                couplings, beta=float(beta), states=start, steps=steps, fields=fields, seed=rng
            )
            mean = path[steps // 3 :].mean(-1)
            moments[:, copy, column] = np.abs(mean).mean(), (mean**2).mean(), (mean**4).mean()
    return OrderMoments(betas=betas, absolute=moments[0], second=moments[1], fourth=moments[2])


def binder_crossing(
    small: OrderMoments, *, large: OrderMoments, draws: int = 200, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """β and Binder's ratio where those of two sizes cross, with bootstrap errors over systems.

    Their difference is fitted by a straight line in β, the ratio of the larger size by another,
    so give inverse temperatures near the crossing. Raises ValueError for unlike betas.

    >>> betas = np.linspace(0.9, 1.3, 5)
    >>> runs = [order_moments(n, betas=betas, systems=4, steps=60) for n in (10, 40)]
    >>> bool(0.5 < binder_crossing(runs[0], large=runs[1])[0].value < 2.0)
    True
    """
    if not np.array_equal(small.betas, large.betas):
        raise ValueError("small and large must have the same betas")
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    draws = check_integer("draws", draws, low=2)

    def crossing(runs: list[OrderMoments]) -> tuple[float, float]:
        low, high = (run.binder() for run in runs)
        slope, offset = np.polyfit(small.betas, high - low, 1)
        at = -offset / slope
        return at, float(np.polyval(np.polyfit(large.betas, high, 1), at))

    def drawn(run: OrderMoments) -> OrderMoments:
        pick = rng.integers(0, len(run.second), len(run.second))
        return OrderMoments(
            betas=run.betas,
            absolute=run.absolute[pick],
            second=run.second[pick],
            fourth=run.fourth[pick],
        )

    values = crossing([small, large])
    spread = np.std([crossing([drawn(small), drawn(large)]) for _ in range(draws)], axis=0)
    at, ratio = (
        Estimate(value=value, error=float(error), samples=len(large.second))
        for value, error in zip(values, spread, strict=True)
    )
    return at, ratio
