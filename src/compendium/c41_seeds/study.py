"""The measurements behind `compendium.c41_seeds`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from bookmaker.tables import read_columns
from spinformer.core.random import numpy_generator
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.monte_carlo import sample_ising

COMMANDS = {
    "exact.csv": "python -m bookmaker sweep 21_ising -p seed 0:230:24 -o exact",
    "cheap.csv": "python -m bookmaker sweep 21a_cheap_free_energies -p seed 0:230:24 -o cheap",
}


def read_seeds() -> dict[str, np.ndarray]:
    """Both stored tables by columns: the seed, the figures of B2 and B4, those of B7."""
    exact, cheap = (read_columns(Path(__file__).with_name(name)) for name in COMMANDS)
    if not np.array_equal(exact["seed"], cheap["seed"]):
        raise ValueError("exact.csv and cheap.csv hold different seeds")
    return exact | cheap


def monte_carlo_pulls(
    size: int, *, beta: float, runs: int, sweeps: int, field_std: float = 0.5, seed: int = 0
) -> np.ndarray:
    """Deviations (runs, N) of Monte Carlo means from the exact ones, in standard errors.

    One random system in Gaussian fields, that of chapter 21 at this seed; every run has chains of
    its own.
    """
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, field_std=field_std)
    exact = solve_exact(couplings, fields=fields, beta=beta).magnetization
    found = [
        sample_ising(couplings, fields=fields, beta=beta, sweeps=sweeps, seed=rng).magnetization
        for rng in numpy_generator(seed).spawn(runs)
    ]
    return np.array([(one.value - exact) / one.error for one in found])


def effective_number(correlations: np.ndarray) -> float:
    """N²/Σ_ij c_ij²: as many independent numbers have a mean square of the same variance.

    `correlations` (N, N) of normal numbers of variance one, whose squares have the covariance
    2c_ij².
    """
    return float(len(correlations) ** 2 / np.sum(correlations**2))


def free_energy_rest(size: int, *, beta: float, systems: int, seed: int) -> Estimate:
    """Mean of ln Z over random systems without field, less N ln 2 + Nβ²/4, by exact sums.

    `systems` draws of the couplings of [sherrington1975solvable] with N = `size` spins.
    """
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, count=systems)
    log_z = solve_exact(couplings, fields=fields, beta=beta).log_partition
    return mean_estimate(log_z - size * (math.log(2.0) + beta**2 / 4.0))


def rest_by_loops(size: int, *, beta: float) -> float:
    """The same mean by hand: every pair exactly, then every closed loop to lowest order.

    For N → ∞ it is ¼ ln(1 − β²), [aizenman1987some]; at finite N what is left out is of order
    β^10/N (two loops with a common edge).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    # ln cosh x without the loss of digits at small x: cosh x = 1 + 2 sinh²(x/2).
    angles = beta * nodes / math.sqrt(size)
    pair = float(weights @ np.log1p(2.0 * np.sinh(0.5 * angles) ** 2))
    squared = float(weights @ np.tanh(angles) ** 2)
    total = 0.5 * size * (size - 1) * pair - size * beta**2 / 4.0
    loops = size * (size - 1) * squared**2
    for length in range(3, min(size, 200) + 1):
        # Loops of so many spins: N!/(N - k)! orders, each loop in 2k of them.
        loops *= (size - length + 1) * squared
        total -= loops / (4.0 * length)
    return total


def mean_square_limits(count: int, *, level: float = 0.95) -> tuple[float, float]:
    """Between which values the mean square of `count` standard normal numbers lies."""
    low, high = np.asarray(chi2.interval(level, count)) / count
    return float(low), float(high)
