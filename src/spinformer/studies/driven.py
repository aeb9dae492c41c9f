"""Chapter 25: mean-field theories of kinetic Ising spins held to simulation and to exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.spins.ising.couplings import MAX_COUNT, MAX_SIZE, gaussian_couplings
from spinformer.spins.ising.kinetic import kinetic_simulation
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
) -> dict[str, float]:
    """Mean square error of every theory after `steps` steps under a constant random drive.

    Averaged over `systems` random systems of `size` spins, from a start without magnetization;
    the noise of the simulation that stands for the truth is subtracted, so that small errors may
    come out negative. Raises ValueError or TypeError for bad input.

    >>> few = {"symmetry": 0.0, "beta": 0.1, "steps": 2, "systems": 1, "replicas": 100}
    >>> sorted(squared_errors(16, **few)) == sorted(KINETIC_METHODS)
    True
    """
    size = check_integer("size", size, low=1, high=MAX_SIZE)
    steps = check_integer("steps", steps, low=1, high=MAX_COUNT)
    check_integer("seed", seed, low=0)
    check_real("field_std", field_std, low=0.0)
    systems = check_integer("systems", systems, low=1, high=10**6)
    squared = dict.fromkeys(KINETIC_METHODS, 0.0)
    for copy in range(systems):
        number = seed + 100 * copy + size
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=number)
        fields = field_std * np.random.default_rng(number).standard_normal(size)
        run: dict[str, Any] = {
            "drive": np.tile(fields, (steps, 1)),
            "beta": beta,
            "initial": np.zeros(size),
        }
        truth = kinetic_simulation(couplings, **run, replicas=replicas, seed=copy).magnetization
        noise = np.mean(truth.error[-1] ** 2)
        for method in KINETIC_METHODS:
            m = kinetic_mean_field(couplings, **run, method=method)
            squared[method] += (np.mean((m[-1] - truth.value[-1]) ** 2) - noise) / systems
    return squared
