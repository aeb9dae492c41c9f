"""Chapter 21: derivatives of the exact free energy, and approximations held to exact sums.

Couplings (..., N, N) count every pair once, as in `spins.ising`.
"""

import math
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, read_columns, stored
from compendium.common.rows import grid, median_rows
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import IsingStatistics, sherrington_kirkpatrick, solve_exact
from spinformer.spins.mean_field import MeanFieldSolution, solve_mean_field


def multiply_adds(size: int) -> int:
    """Multiply-adds of the matrix products with which `solve_exact` sums over 2^N states."""
    left, right = (size + 1) // 2, size // 2
    rows, columns = 1 << left, 1 << right
    energies = rows * left * right + rows * columns * right
    halves = rows * left * (left + 2) + columns * right * (right + 2)
    averages = rows * columns * right + rows * left * right
    moments = rows * left * (left + 1) + columns * right * (right + 1)
    return energies + halves + averages + moments


def field_differences(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> np.ndarray:
    """−dF/dh_i (N,) of one system by central differences of the exact free energy."""
    step = 1e-4
    up, down = (
        solve_exact(couplings, fields=fields + sign * step * np.eye(len(fields)), beta=beta)
        for sign in (1.0, -1.0)
    )
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


BOUNDS = {"tap": 0.015, "third": 0.015, "adaptive": 0.05}


@stored(
    "settings_B7",
    grid(clause=("naive", *BOUNDS, "edge"), first_seed=(0, 8, 16)),
    seconds=0.1,
)
def SETTINGS(clause: str, first_seed: int) -> Rows:
    """What is left to each bound of B7, over the bound: the median of eight runs of the chapter.

    The naive error over five times that of TAP, other errors and the edge under their bounds.
    """
    table = read_columns(Path(__file__).with_name("cheap.csv"))
    if clause == "naive":
        left = table["B7.naive"] / (5.0 * table["B7.tap"]) - 1.0
    elif clause == "edge":
        left = 1.0 - abs(table["B7.edge"] - 0.5) / 0.05
    else:
        left = 1.0 - table[f"B7.{clause}"] / BOUNDS[clause]
    return median_rows(left[first_seed : first_seed + 8])
