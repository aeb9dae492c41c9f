"""Heat-bath Monte Carlo of Ising systems, with error bars.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once (`couplings.pair_couplings` converts), J
(N, N) symmetric with zero diagonal, h (N,), weights exp(−βE).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spinformer.core.checks import check_choice
from spinformer.core.random import Seed
from spinformer.spins.ising.couplings import check_ising
from spinformer.spins.monte_carlo import MonteCarloEstimate, flip, flip_reference, run_chains


def sample_ising(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int = 4096,
    burn: int = 512,
    seed: Seed = 0,
    chains: int = 4,
    blocks: int = 16,
    engine: str = "numba",
    progress: bool = False,
) -> MonteCarloEstimate:
    """Heat-bath averages of one Ising system: magnetization (N,), correlations, energy.

    `chains` independent chains start from random states, drop `burn` sweeps and keep `sweeps`
    each (rounded up to a multiple of `blocks`, the blocks per chain). `engine` is "numba" or
    "reference" (the same algorithm in plain Python). Raises ValueError or TypeError for input
    out of range.

    >>> run = sample_ising(np.zeros((1, 1)), fields=np.array([0.5]), beta=1.0, sweeps=4000)
    >>> bool(abs(run.magnetization.value[0] - np.tanh(0.5)) < 5 * run.magnetization.error[0])
    True
    """
    pair, field, beta = check_ising(couplings, fields=fields, beta=beta)
    if field.ndim != 1:
        raise ValueError(
            f"couplings and fields must be those of one system, got batch {field.shape[:-1]}"
        )
    # Broadcast views are read-only, and the kernel is compiled for arrays that are not.
    pair, field = pair.copy(), field.copy()
    check_choice("engine", engine, ("numba", "reference"))
    sweep = _ising_sweeps if engine == "numba" else _ising_sweeps_reference

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


def _ising_sweeps_reference(
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
            spins[i] = flip_reference(beta * local, seed=rng)
        energies[step] = -0.5 * spins @ pair @ spins - field @ spins
        sum_spins += spins
        sum_pairs += np.outer(spins, spins)


@njit(cache=True)
def _ising_sweeps(
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
    size = len(spins)
    for step in range(sweeps):
        for i in range(size):
            local = field[i]
            for j in range(size):
                local += pair[i, j] * spins[j]
            spins[i] = flip(beta * local, rng)
        energy = 0.0
        for i in range(size):
            local = field[i]
            for j in range(size):
                local += 0.5 * pair[i, j] * spins[j]
                sum_pairs[i, j] += spins[i] * spins[j]
            energy -= local * spins[i]
            sum_spins[i] += spins[i]
        energies[step] = energy
