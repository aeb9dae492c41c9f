"""Chains of a heat bath, cut into blocks, and what they estimate: the loop that both models run.

β multiplies the energy, weights are exp(−βE). Energies and pairs are counted as the model says
whose sweeps are run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit
from tqdm import tqdm

from spinformer.core.checks import check_flag, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, integrated_autocorrelation_time, mean_estimate

# More is a slip: a run of years, or arrays that fit no memory.
MAX_SWEEPS = 10**9
MAX_BLOCKS = 10**6


@record
class MonteCarloEstimate:
    """Averages of a Monte Carlo run with their standard errors, each an `Estimate`.

    `magnetization` is ⟨s_i⟩, shape (N,), for Ising spins and ⟨σ_i⟩, shape (N, D) with
    ‖σ_i‖² = D, for vector spins. `correlations` is ⟨s_i s_j⟩, or ⟨u_i·u_j⟩ with u = σ/√D: ones
    on the diagonal, means not subtracted. `energy` is ⟨E⟩.

    Errors are standard deviations of block means over the root of the number of blocks, and for
    a spin that never turned what a single turn would have made them; they can be trusted when
    blocks are much longer than the memory of the chains, which `reliable` states. It looks at
    the integrated autocorrelation time of the energy (`autocorrelation_time`, in sweeps) and,
    because an energy does not see a whole system turn over, at `block_memory`: the correlation
    of the mean spins of consecutive blocks, zero up to noise if they forget.
    """

    magnetization: Estimate
    correlations: Estimate
    energy: Estimate
    autocorrelation_time: float
    block_memory: float
    block_length: int
    blocks: int

    @property
    def reliable(self) -> bool:
        """Whether blocks are ten autocorrelation times of the energy long, and forget."""
        noise = 3 / math.sqrt(self.blocks)
        long_enough = self.block_length >= 10 * self.autocorrelation_time
        return long_enough and self.block_memory < 0.05 + noise


def run_chains(
    start: Callable[[np.random.Generator], np.ndarray],
    *,
    block: Callable[..., None],
    unit: float,
    sweeps: int,
    burn: int,
    seed: Seed,
    chains: int,
    blocks: int,
    progress: bool,
    offset: float = 0.0,
) -> MonteCarloEstimate:
    """Run `chains` independent chains of `blocks` blocks after `burn` sweeps that are dropped.

    start: draws the first spins, (N,) or (N, D), from a generator. block: (spins, count,
    generator, sum of spins, sum of pairs, energies) runs `count` sweeps on spins in place and
    adds to the sums. unit: the length of a spin. offset: a constant of the energy. Every chain
    draws from a child of `seed`'s stream. Raises ValueError or TypeError for numbers out of
    range, and for a single block, which has no scatter.

    >>> def coins(spins, count, rng, sum_spins, sum_pairs, energies):
    ...     for step in range(count):
    ...         spins[:] = np.where(rng.random(len(spins)) < 0.5, 1.0, -1.0)
    ...         sum_spins += spins
    ...         sum_pairs += np.outer(spins, spins)
    >>> size = {"sweeps": 400, "burn": 1, "chains": 2, "blocks": 20}
    >>> run = run_chains(
    ...     lambda rng: np.ones(1), block=coins, unit=1.0, seed=0, progress=False, **size
    ... )
    >>> bool(0.02 < run.magnetization.error[0] < 0.06), run.block_length
    (True, 20)
    """
    check_integer("sweeps", sweeps, low=1, high=MAX_SWEEPS)
    check_integer("burn", burn, low=0, high=MAX_SWEEPS)
    check_integer("chains", chains, low=1, high=MAX_BLOCKS)
    check_integer("blocks", blocks, low=1, high=MAX_BLOCKS)
    check_flag("progress", progress)
    if chains * blocks < 2:
        raise ValueError("chains * blocks must be at least 2 for an error bar, got 1")
    length = max(4, -(-sweeps // blocks))
    spin_sums, pair_sums, energies = [], [], []
    bar = tqdm(total=chains * blocks, desc="heat bath", unit="block", disable=not progress)
    with bar:
        for rng in numpy_generator(seed).spawn(chains):
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
    energy = np.array(energies) + offset
    means = unit * np.array(spin_sums) / length
    return MonteCarloEstimate(
        magnetization=_unless_it_never_turned(
            mean_estimate(means), turn=2.0 * unit / (length * chains * blocks)
        ),
        correlations=mean_estimate(np.array(pair_sums) / length),
        energy=mean_estimate(energy.mean(1)),
        autocorrelation_time=integrated_autocorrelation_time(energy.reshape(chains, -1)),
        block_memory=_memory(means.reshape(chains, blocks, -1)),
        block_length=length,
        blocks=chains * blocks,
    )


def _unless_it_never_turned(found: Estimate, *, turn: float) -> Estimate:
    """`found` with the error `turn` for spins that all blocks saw in the same state.

    They have no scatter, and yet a run of n sweeps knows their mean to one turn in n only.
    """
    error = np.where(found.error > 0.0, found.error, turn)
    return Estimate(value=found.value, error=error, samples=found.samples)


def _memory(means: np.ndarray) -> float:
    """Correlation of consecutive blocks of (chains, blocks, components), all components pooled."""
    deviation = means - means.mean((0, 1))
    variance = np.mean(deviation**2)
    if means.shape[1] < 2 or variance == 0:
        return 0.0
    return float(np.mean(deviation[:, 1:] * deviation[:, :-1]) / variance)


def flip_reference(local: float, *, seed: np.random.Generator) -> float:
    """One heat-bath draw: +1 with probability 1/(1 + exp(−2 local)), else −1.

    >>> flip_reference(400.0, seed=np.random.default_rng(0))
    1.0
    """
    # math.exp raises beyond 709, where the compiled version gives infinity.
    return 1.0 if seed.random() * (1 + math.exp(min(-2 * local, 700.0))) < 1 else -1.0


@njit(cache=True)
def flip(local: float, rng: np.random.Generator) -> float:
    """`flip_reference` for the compiled sweeps of both models."""
    return 1.0 if rng.random() * (1 + math.exp(-2 * local)) < 1 else -1.0
