"""Chapter 21: derivatives of the exact free energy, and what the sum over all states costs.

Couplings (..., N, N) count every pair once, as in `spins.ising`.
"""

import math

import numpy as np

from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact


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


def free_energy_rest(size: int, *, beta: float, systems: int, seed: int) -> Estimate:
    """Mean of ln Z over random systems without field, less N ln 2 + Nβ²/4, by exact sums.

    `systems` draws of the couplings of [sherrington1975solvable] with N = `size` spins.
    """
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, count=systems)
    log_z = solve_exact(couplings, fields=fields, beta=beta).log_partition
    return mean_estimate(log_z - size * (math.log(2.0) + beta**2 / 4.0))
