"""Chapter 21: derivatives of the exact free energy, and approximations held to exact sums.

Couplings (..., N, N) count every pair once, as in `spins.ising`.
"""

import math
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import grid, median_rows
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import IsingStatistics, sherrington_kirkpatrick, solve_exact
from spinformer.spins.mean_field import MeanFieldSolution, solve_mean_field


def multiply_adds(size: int) -> int:
    """Multiply-adds of the matrix products with which `solve_exact` sums over 2^N states."""
    left = (size + 1) // 2
    right = size // 2
    rows = 1 << left
    columns = 1 << right
    energies = rows * left * right + rows * columns * right
    halves = rows * left * (left + 2) + columns * right * (right + 2)
    averages = rows * columns * right + rows * left * right
    moments = rows * left * (left + 1) + columns * right * (right + 1)
    return energies + halves + averages + moments


def field_differences(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> np.ndarray:
    """−dF/dh_i (N,) of one system by central differences of the exact free energy."""
    step = 1e-4
    pushes = step * np.eye(len(fields))
    up = solve_exact(couplings, fields=fields + pushes, beta=beta)
    down = solve_exact(couplings, fields=fields - pushes, beta=beta)
    return -(up.free_energy - down.free_energy) / (2 * step)


def approximation_errors(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, method: str, truth: IsingStatistics
) -> tuple[np.ndarray, np.ndarray, MeanFieldSolution]:
    """Errors of one approximation on a batch of systems whose exact statistics are `truth`.

    Root mean square over the spins of m_i − m_i^exact, (...); error of ln Z per spin, (...); and
    the solution, where equations were not solved the last iterate.
    """
    found = solve_mean_field(couplings, fields=fields, beta=beta, method=method, throw=False)
    difference = found.magnetization - truth.magnetization
    moments = np.sqrt(np.mean(difference**2, axis=-1))
    return moments, (found.log_partition - truth.log_partition) / difference.shape[-1], found


def free_energy_rest(size: int, *, beta: float, systems: int, seed: int) -> Estimate:
    """Mean of ln Z over random systems without field, less N ln 2 + Nβ²/4, by exact sums.

    `systems` draws of the couplings of [sherrington1975solvable] with N = `size` spins.
    """
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, count=systems)
    log_z = solve_exact(couplings, fields=fields, beta=beta).log_partition
    return mean_estimate(log_z - size * (math.log(2.0) + beta**2 / 4.0))


# What an approximation may be off by, root mean square over the spins, and stand in for the sum.
OFF = 0.05
THEORIES = {"TAP": "tap", "third order": "plefka3", "adaptive TAP": "adaptive"}


def stand_in_rows(beta: float, size: int, field_std: float, *, seed: int) -> Rows:
    """How far each theory is below `OFF`, by the median of 24 systems with exact sums."""
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, count=24, field_std=field_std)
    truth = solve_exact(couplings, fields=fields, beta=beta)
    rows = []
    for theory, method in THEORIES.items():
        errors, _, _ = approximation_errors(
            couplings, fields=fields, beta=beta, method=method, truth=truth
        )
        (line,) = median_rows(OFF - errors)
        rows.append({"data": f"seed {seed}", "theory": theory, **line})
    return rows


ASKED = grid(beta=(0.25, 0.5, 0.75, 1.0), size=(8, 12, 16), field_std=(0.2, 0.5, 1.0))
# The region of B7, β up to 0.75, was written before these were drawn.
ASKED_AGAIN = grid(beta=(0.4, 0.6, 0.75), size=(10, 14), field_std=(0.3, 0.7))


@stored("settings_B7", ASKED, seconds=0.2, within={"value": 1e-3, "low": 1e-3, "high": 1e-3})
def settings_b7(**choices: Any) -> Rows:
    """How far theories are below what they may be off by; systems of their own for each unit."""
    return stand_in_rows(**choices, seed=100 + ASKED.index(choices))


@stored("confirm_B7", ASKED_AGAIN, seconds=0.2, within={"value": 1e-3, "low": 1e-3, "high": 1e-3})
def confirm_b7(**choices: Any) -> Rows:
    """As `settings_b7`, from other systems of other sizes, fields and temperatures."""
    return stand_in_rows(**choices, seed=500 + ASKED_AGAIN.index(choices))
