"""Heat-bath Monte Carlo of Ising systems, with error bars."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from spinformer.core.checks import check_array, check_choice, check_real
from spinformer.spins.monte_carlo import MonteCarloEstimate, run_chains


def sample_ising(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int = 4096,
    burn: int = 512,
    seed: int = 0,
    chains: int = 4,
    blocks: int = 16,
    engine: str = "numba",
    progress: bool = False,
) -> MonteCarloEstimate:
    """Heat-bath averages of the Ising model E = -sum_{i<j} J_ij s_i s_j - sum_i h_i s_i.

    `couplings` (N, N) is symmetric with zero diagonal (unordered pairs; for document 000's
    ordered pairs pass `spins.ising.exact.pair_couplings(J)`), `fields` (N,), weights exp(-beta E).
    `chains` independent chains start from random states, drop `burn` sweeps and keep
    `sweeps` each (rounded up to a multiple of `blocks`, the blocks per chain).
    `engine` is "numba" or "reference" (the same algorithm in plain Python).
    """
    pair = _pairs("couplings", couplings)
    field = check_array("fields", fields, shape=(pair.shape[0],))
    beta = check_real("beta", beta, low=0.0)
    check_choice("engine", engine, ("numba", "reference"))
    sweep = _ising_sweeps if engine == "numba" else ising_sweeps_reference

    def start(rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(len(field)) < 0.5, 1.0, -1.0)

    def block(spins: np.ndarray, count: int, rng: np.random.Generator, *sums: np.ndarray) -> None:
        sweep(spins, pair, field, beta, count, rng, *sums)

    return run_chains(
        start,
        block=block,
        unit=1.0,
        sweeps=sweeps,
        burn=burn,
        seed=seed,
        chains=chains,
        blocks=blocks,
        progress=progress,
    )


def ising_sweeps_reference(
    spins: np.ndarray,
    pair: np.ndarray,
    field: np.ndarray,
    beta: float,
    sweeps: int,
    rng: np.random.Generator,
    sum_spins: np.ndarray,
    sum_pairs: np.ndarray,
    energies: np.ndarray,
) -> None:
    """Plain version of the compiled Ising sweeps: updates `spins` and adds to the sums."""
    for step in range(sweeps):
        for i in range(len(spins)):
            local = field[i] + pair[i] @ spins
            spins[i] = flip_reference(beta * local, rng)
        energies[step] = -0.5 * spins @ pair @ spins - field @ spins
        sum_spins += spins
        sum_pairs += np.outer(spins, spins)


def flip_reference(local: float, rng: np.random.Generator) -> float:
    """One heat-bath draw: +1 with probability 1/(1 + exp(-2 local)), else -1."""
    # math.exp raises beyond 709, where the compiled version gives infinity.
    return 1.0 if rng.random() * (1 + math.exp(min(-2 * local, 700.0))) < 1 else -1.0


@njit(cache=True)
def _ising_sweeps(spins, pair, field, beta, sweeps, rng, sum_spins, sum_pairs, energies):
    size = len(spins)
    for step in range(sweeps):
        for i in range(size):
            local = field[i]
            for j in range(size):
                local += pair[i, j] * spins[j]
            if rng.random() * (1 + math.exp(-2 * beta * local)) < 1:
                spins[i] = 1.0
            else:
                spins[i] = -1.0
        energy = 0.0
        for i in range(size):
            local = field[i]
            for j in range(size):
                local += 0.5 * pair[i, j] * spins[j]
                sum_pairs[i, j] += spins[i] * spins[j]
            energy -= local * spins[i]
            sum_spins[i] += spins[i]
        energies[step] = energy


def _pairs(name: str, couplings: np.ndarray) -> np.ndarray:
    """Check a symmetric (N, N) matrix with zero diagonal."""
    matrix = check_array(name, couplings, ndim=2)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    check_array(name, matrix, symmetric=True)
    if np.any(np.diagonal(matrix)):
        raise ValueError(f"{name} must have a zero diagonal, got {np.diagonal(matrix)}")
    return matrix
