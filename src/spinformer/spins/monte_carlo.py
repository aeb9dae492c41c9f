"""Chains of a heat bath, cut into blocks, and what they estimate: the loop that both models run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from spinformer.core.checks import check_integer
from spinformer.core.statistics import integrated_autocorrelation_time


@dataclass(frozen=True)
class MonteCarloEstimate:
    """Averages of a Monte Carlo run and their standard errors.

    `mean_spins` is <s_i>, shape (N,), for Ising spins and <sigma_i>, shape (N, D) with
    ||sigma_i||^2 = D, for vector spins. `correlations` is <s_i s_j>, or <u_i . u_j> with
    u = sigma/sqrt(D): ones on the diagonal, means not subtracted. `energy` is <E>.

    Errors are standard deviations of block means over the square root of their number;
    they can be trusted when a block is much longer than the integrated autocorrelation
    time of the energy, which `reliable` states (ten times longer).
    """

    mean_spins: np.ndarray
    mean_spins_error: np.ndarray
    correlations: np.ndarray
    correlations_error: np.ndarray
    energy: float
    energy_error: float
    autocorrelation_time: float
    block_length: int
    blocks: int

    @property
    def reliable(self) -> bool:
        """Whether a block is at least ten autocorrelation times of the energy long."""
        return self.block_length >= 10 * self.autocorrelation_time


def run_chains(
    start: Callable[[np.random.Generator], np.ndarray],
    *,
    block: Callable[..., None],
    unit: float,
    sweeps: int,
    burn: int,
    seed: int,
    chains: int,
    blocks: int,
    progress: bool,
    offset: float = 0.0,
) -> MonteCarloEstimate:
    """Run `chains` chains of `blocks` blocks; `unit` is the length of a spin."""
    check_integer("sweeps", sweeps, low=1)
    check_integer("burn", burn, low=0)
    check_integer("seed", seed, low=0)
    check_integer("chains", chains, low=1)
    check_integer("blocks", blocks, low=1)
    if chains * blocks < 2:
        raise ValueError("chains * blocks must be at least 2 for an error bar, got 1")
    length = max(4, -(-sweeps // blocks))
    spin_sums, pair_sums, energies = [], [], []
    bar = tqdm(total=chains * blocks, desc="heat bath", unit="block", disable=not progress)
    with bar:
        for child in np.random.SeedSequence(seed).spawn(chains):
            rng = np.random.default_rng(child)
            spins = start(rng)
            size = len(spins)
            waste = np.zeros_like(spins), np.zeros((size, size)), np.zeros(burn)
            block(spins, burn, rng, *waste)
            for _ in range(blocks):
                sums = np.zeros_like(spins), np.zeros((size, size)), np.zeros(length)
                block(spins, length, rng, *sums)
                spin_sums.append(sums[0])
                pair_sums.append(sums[1])
                energies.append(sums[2])
                bar.update()
    means = unit * np.array(spin_sums) / length
    pairs = np.array(pair_sums) / length
    energy = np.array(energies) + offset
    return MonteCarloEstimate(
        mean_spins=means.mean(0),
        mean_spins_error=_standard_error(means),
        correlations=pairs.mean(0),
        correlations_error=_standard_error(pairs),
        energy=float(energy.mean()),
        energy_error=float(_standard_error(energy.mean(1))),
        autocorrelation_time=integrated_autocorrelation_time(energy.reshape(chains, -1)),
        block_length=length,
        blocks=chains * blocks,
    )


def _standard_error(blocks: np.ndarray) -> np.ndarray:
    return blocks.std(0, ddof=1) / math.sqrt(len(blocks))
