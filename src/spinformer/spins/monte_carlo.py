"""Heat-bath (Gibbs sampling) Monte Carlo of Ising and vector spins, and parallel tempering.

Ising spins have the energy E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i with every pair counted once
(`ising.pair_couplings` converts), J (N, N) symmetric with zero diagonal, h (N,). Vector spins have
‖σ_i‖² = D and E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over ordered pairs
[bal2021transformers, Eq. (vectorrandomising)] with any real matrix J: a pair couples with
J_ij + J_ji, and a diagonal entry adds the constant −D J_ii; D = 1 is the Ising model with ordered
pairs. Boltzmann weights are exp(−βE).
"""

import dataclasses
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numba import njit

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, integrated_autocorrelation_time, mean_estimate
from spinformer.spins.ising import check_ising

# More is a slip: a run of years, or arrays that fit no memory.
_MAX_SWEEPS = 10**9
_MAX_BLOCKS = 10**6
# Sweeps whose spins are held at once.
_CHUNK = 1024
# Squares of concentrations must stay finite.
_MAX_CONCENTRATION = 1e150
# Pairs (N, N), fields (N,) or (N, D), and β.
_System = tuple[np.ndarray, np.ndarray, float]
# Bits of a significand in single and double precision, with one to spare for the difference 2 J s.
_BITS = {np.float32: 23, np.float64: 52}
# What rounding may change of a coupling or field, of itself or of its exponent.
_LOST = 1e-4


@record
class MonteCarloEstimate:
    """Averages of a Monte Carlo run with standard errors from blocking.

    Errors are standard deviations of block means over the square root of the number of blocks. They
    can be trusted when blocks are much longer than the autocorrelation time of the chains, which
    `reliable` states. Two measures are needed: the autocorrelation time of the energy, and the
    correlation of the mean spins of consecutive blocks, because the energy does not detect a
    reversal of the whole system.

    Attributes
    ----------
    magnetization : Estimate
        Mean spins ⟨s_i⟩, shape (N,), of Ising spins, or ⟨σ_i⟩, shape (N, D) with ‖σ_i‖² = D, of
        vector spins. A spin that never flipped has the error that a single flip would have caused.
        If in addition it does not return when a chain starts with all spins reversed, its error is
        its length.
    correlations : Estimate
        Second moments ⟨s_i s_j⟩, or ⟨u_i·u_j⟩ with u = σ/√D, shape (N, N): ones on the diagonal,
        means not subtracted.
    energy : Estimate
        Mean energy ⟨E⟩ of the system.
    autocorrelation_time : float
        Integrated autocorrelation time of the energy, in sweeps.
    block_memory : float
        Correlation of the mean spins of consecutive blocks; one if a spin never flipped and does
        not return from the reversed start.
    block_length : int
        Sweeps in a block.
    blocks : int
        Number of blocks of all chains together.
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
        """Whether blocks are long enough for the errors to be trusted.

        They must be ten autocorrelation times of the energy long, and the mean spins of consecutive
        blocks must be uncorrelated within the noise.
        """
        noise = 3 / math.sqrt(self.blocks)
        long_enough = self.block_length >= 10 * self.autocorrelation_time
        return long_enough and self.block_memory < 0.05 + noise


def sample_ising(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int = 4096,
    burn_in: int = 512,
    seed: Seed = 0,
    chains: int = 4,
    blocks: int = 16,
) -> MonteCarloEstimate:
    r"""Estimate averages of one Ising system by heat-bath (Gibbs sampling) Monte Carlo.

    Independent chains start from random states. In a sweep every spin is redrawn once from its
    conditional distribution, given all others.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of one system, symmetric with zero diagonal.
    fields : ndarray, shape (N,)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0.
    sweeps : int, default 4096
        Sweeps kept of each chain, rounded up to a multiple of `blocks`.
    burn_in : int, default 512
        Burn-in: sweeps dropped at the beginning of each chain.
    seed : Seed, default 0
        Seed or random generator.
    chains : int, default 4
        Number of independent chains.
    blocks : int, default 16
        Number of blocks per chain, from which errors are taken; `chains` times `blocks` is at least
        2.

    Returns
    -------
    MonteCarloEstimate
        Magnetization (N,), correlations (N, N) and energy with standard errors.

    Raises
    ------
    ValueError
        If the system is no Ising model (see `ising.check_ising`), or a count is out of its range.

    Notes
    -----
    The conditional distribution of a spin is

    .. math::

        P(s_i = 1 \mid s_{\setminus i})
            = \Big[1 + \exp\big(-2\beta \big(h_i + \sum_j J_{ij} s_j\big)\big)\Big]^{-1}.

    Examples
    --------
    >>> run = sample_ising(np.zeros((1, 1)), fields=np.array([0.5]), beta=1.0, sweeps=4000)
    >>> bool(abs(run.magnetization.value[0] - np.tanh(0.5)) < 5 * run.magnetization.error[0])
    True
    """
    pair, field, beta = check_ising(couplings, fields=fields, beta=beta, single=True)
    # Broadcast views are read-only, and the kernel is compiled for arrays that are not.
    pair = pair.copy()
    field = field.copy()

    def start(rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(len(field)) < 0.5, 1.0, -1.0)

    run = _Run(sweeps, burn_in, seed, chains, blocks)
    return _run_chains(start, _ising_sweeps, (pair, field, beta), run)


def sample_vector_spins(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int = 2048,
    burn_in: int = 256,
    seed: Seed = 0,
    chains: int = 4,
    blocks: int = 16,
) -> MonteCarloEstimate:
    r"""Estimate averages of one system of D-component spins by heat-bath Monte Carlo.

    Spins are redrawn one after the other from their conditional distribution, which is a von
    Mises–Fisher distribution. The chains are run and analysed as those of `sample_ising`.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of ordered pairs, any real matrix.
    fields : ndarray, shape (N, D)
        External fields H, D ≥ 1.
    beta : float
        Inverse temperature β ≥ 0.
    sweeps : int, default 2048
        Sweeps kept of each chain, rounded up to a multiple of `blocks`.
    burn_in : int, default 256
        Burn-in: sweeps dropped at the beginning of each chain.
    seed : Seed, default 0
        Seed or random generator.
    chains : int, default 4
        Number of independent chains.
    blocks : int, default 16
        Number of blocks per chain, from which errors are taken; `chains` times `blocks` is at least
        2.

    Returns
    -------
    MonteCarloEstimate
        Magnetization ⟨σ_i⟩ (N, D), correlations ⟨u_i·u_j⟩ (N, N) with u = σ/√D, and energy.

    Raises
    ------
    ValueError
        If shapes do not fit, a count is out of its range, or a concentration may exceed 1e150.

    Notes
    -----
    Given the others, the direction of a spin has the density

    .. math::

        p(u_i) \propto \exp(\kappa_i \cdot u_i), \qquad
        \kappa_i = \beta \sqrt{D} \Big(H_i + \sum_{j \ne i} (J_{ij} + J_{ji}) \sigma_j\Big),

    whose concentration is the length of κ_i. It is drawn by rejection from the envelope of Wood
    (1994).

    Examples
    --------
    >>> fields = np.array([[0.5, 0.0, 0.0]])
    >>> m = sample_vector_spins(np.zeros((1, 1)), fields=fields, beta=1.0).magnetization
    >>> kappa = np.sqrt(3) * 0.5
    >>> exact = np.sqrt(3) * (1 / np.tanh(kappa) - 1 / kappa)
    >>> bool(abs(m.value[0, 0] - exact) < 5 * m.error[0, 0])
    True
    """
    matrix = check_array("couplings", couplings, ndim=2, square=True)
    size = matrix.shape[0]
    field = check_array("fields", fields, shape=(size, None))
    dim = field.shape[1]
    check_integer("the number of components of fields", dim, low=1)
    beta = check_real("beta", beta, low=0.0)
    with np.errstate(over="ignore"):
        pair = matrix + matrix.T
        np.fill_diagonal(pair, 0.0)
        # In units of u the energy is D times [pairs] plus sqrt(D) times [fields].
        scaled_pair = dim * pair
        scaled_field = math.sqrt(dim) * field
        strength = np.abs(scaled_pair).sum(1) + np.abs(scaled_field).sum(1)
    largest = beta * float(strength.max())
    if not largest <= _MAX_CONCENTRATION:
        raise ValueError(
            f"beta must keep beta * D * couplings and beta * sqrt(D) * fields within "
            f"{_MAX_CONCENTRATION:g}, got {largest:.3g}"
        )

    def start(rng: np.random.Generator) -> np.ndarray:
        spins = rng.standard_normal((size, dim))
        return spins / np.linalg.norm(spins, axis=1, keepdims=True)

    run = _Run(sweeps, burn_in, seed, chains, blocks)
    system = (scaled_pair, scaled_field, beta)
    constant = -dim * float(np.trace(matrix))
    return _run_chains(start, _vector_sweeps, system, run, unit=math.sqrt(dim), offset=constant)


class _BlockSums(NamedTuple):
    """Sums of spins and of pairs over the sweeps of a block, and the energy after each of them."""

    spins: np.ndarray
    pairs: np.ndarray
    energies: np.ndarray


class _Run(NamedTuple):
    """Arguments of a run, as `sample_ising` has them."""

    sweeps: int
    burn_in: int
    seed: Seed
    chains: int
    blocks: int


def _run_chains(
    start: Callable[[np.random.Generator], np.ndarray],
    kernel: Callable[..., None],
    system: _System,
    run: _Run,
    *,
    unit: float = 1.0,
    offset: float = 0.0,
) -> MonteCarloEstimate:
    """The averages of `sample_ising`.

    start: draws the first spins, (N,) or (N, D). kernel: sweeps spins in place and writes each
    state to samples (N, sweeps, ...). unit: the length of a spin. offset: a constant of the energy.
    """
    sweeps, burn_in, seed, chains, blocks = run
    check_integer("sweeps", sweeps, low=1, high=_MAX_SWEEPS)
    check_integer("burn_in", burn_in, low=0, high=_MAX_SWEEPS)
    check_integer("chains", chains, low=1, high=_MAX_BLOCKS)
    check_integer("blocks", blocks, low=1, high=_MAX_BLOCKS)
    if chains * blocks < 2:
        raise ValueError("chains * blocks must be at least 2 for an error bar, got 1")
    length = max(4, -(-sweeps // blocks))
    half = 0.5 * system[0]
    field = system[1].reshape(len(system[1]), -1)

    def swept(spins: np.ndarray, count: int, rng: np.random.Generator) -> _BlockSums:
        """Sums of spins and of pairs over `count` sweeps, and the energy of each."""
        spin_sum = np.zeros_like(field)
        pair_sum = np.zeros_like(half)
        energies = [np.zeros(0)]
        for first in range(0, count, _CHUNK):
            samples = np.empty((len(spins), min(_CHUNK, count - first), *spins.shape[1:]))
            kernel(spins, system, rng, samples)
            flat = samples.reshape(len(spins), -1)
            each = samples.reshape(*samples.shape[:2], -1)
            spin_sum += each.sum(1)
            pair_sum += flat @ flat.T
            felt = field[:, None] + (half @ flat).reshape(each.shape)
            energies.append(offset - np.einsum("itd,itd->t", felt, each))
        np.fill_diagonal(pair_sum, count)
        return _BlockSums(spin_sum.reshape(spins.shape), pair_sum, np.concatenate(energies))

    kept = []
    for rng in numpy_generator(seed).spawn(chains):
        spins = start(rng)
        swept(spins, burn_in, rng)
        kept += [swept(spins, length, rng) for _ in range(blocks)]
    spin_sums = np.array([block.spins for block in kept])
    pair_sums = np.array([block.pairs for block in kept])
    energy = np.array([block.energies for block in kept])
    means = unit * spin_sums / length
    magnetization = mean_estimate(means)
    # Spins that all blocks saw in the same state have no scatter, and yet a run of n sweeps knows
    # their mean to one turn in n only.
    error = magnetization.error
    still = error == 0.0
    error = np.where(still, 2.0 * unit / (length * chains * blocks), error)
    memory = _memory(means.reshape(chains, blocks, -1))
    if still.any():
        # Did all chains find that state, or were they born in it? One that starts at the opposite
        # of the last tells, drawn apart from the run.
        turned = -spins
        opposite = swept(turned, length * blocks, np.random.default_rng(0)).spins
        trapped = still & (unit * opposite * magnetization.value < 0.0)
        error = np.where(trapped, unit, error)
        memory = 1.0 if trapped.any() else memory
    return MonteCarloEstimate(
        magnetization=dataclasses.replace(magnetization, error=error),
        correlations=mean_estimate(pair_sums / length),
        energy=mean_estimate(energy.mean(1)),
        autocorrelation_time=integrated_autocorrelation_time(energy.reshape(chains, -1)),
        block_memory=memory,
        block_length=length,
        blocks=chains * blocks,
    )


def _memory(means: np.ndarray) -> float:
    """Correlation of consecutive blocks of (chains, blocks, components), pooled."""
    deviation = means - means.mean((0, 1))
    variance = np.mean(deviation**2)
    if means.shape[1] < 2 or variance == 0:
        return 0.0
    return float(np.mean(deviation[:, 1:] * deviation[:, :-1]) / variance)


@njit(cache=True)
def _flip(local: float, rng: np.random.Generator) -> float:
    """One heat-bath draw: +1 with probability 1/(1 + exp(−2 local)), else −1."""
    return 1.0 if rng.random() * (1 + math.exp(-2 * local)) < 1 else -1.0


@njit(cache=True)
def _ising_sweeps(
    spins: np.ndarray, system: _System, rng: np.random.Generator, samples: np.ndarray
) -> None:
    pair, field, beta = system
    size = len(spins)
    for step in range(samples.shape[1]):
        for i in range(size):
            local = field[i]
            for j in range(size):
                local += pair[i, j] * spins[j]
            spins[i] = _flip(beta * local, rng)
        samples[:, step] = spins


@njit(cache=True)
def _draw_gap(kappa: float, dim: int, rng: np.random.Generator) -> float:
    """1 − cos of the angle to the field, from Wood's envelope; no cancellation at large kappa."""
    slope = (dim - 1) / (2 * kappa + math.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = 2 * slope / (1 + slope)
    top = (dim - 1) * math.log(4 * slope / (1 + slope) ** 2)
    while True:
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2)
        gap = 2 * slope * z / ((1 - z) + slope * z)
        height = kappa * (centre - gap) + (dim - 1) * math.log(centre + gap - centre * gap) - top
        if height >= math.log(1 - rng.random()):
            return gap


@njit(cache=True)
def _vector_sweeps(
    spins: np.ndarray, system: _System, rng: np.random.Generator, samples: np.ndarray
) -> None:
    pair, field, beta = system
    size, dim = spins.shape
    local = np.empty(dim)
    tangent = np.empty(dim)
    for step in range(samples.shape[1]):
        for i in range(size):
            for d in range(dim):
                local[d] = field[i, d]
            for j in range(size):
                weight = pair[i, j]
                if weight != 0.0:
                    for d in range(dim):
                        local[d] += weight * spins[j, d]
            norm = 0.0
            for d in range(dim):
                local[d] *= beta
                norm += local[d] * local[d]
            kappa = math.sqrt(norm)
            if dim == 1:
                spins[i, 0] = _flip(local[0], rng)
                continue
            # Without a field the direction alone is drawn: the tangent becomes the spin.
            gap = 1.0
            if kappa > 0:
                gap = _draw_gap(kappa, dim, rng)
                for d in range(dim):
                    local[d] /= kappa
            along = 0.0
            for d in range(dim):
                tangent[d] = rng.standard_normal()
                along += tangent[d] * local[d]
            norm = 0.0
            for d in range(dim):
                tangent[d] -= along * local[d]
                norm += tangent[d] * tangent[d]
            scale = math.sqrt(gap * (2 - gap) / norm)
            norm = 0.0
            for d in range(dim):
                spins[i, d] = (1 - gap) * local[d] + scale * tangent[d]
                norm += spins[i, d] * spins[i, d]
            norm = math.sqrt(norm)
            for d in range(dim):
                spins[i, d] /= norm
        samples[:, step] = spins


@record
class TemperedRun:
    """Result of parallel tempering: C replicas of one system at K inverse temperatures.

    Attributes
    ----------
    betas : ndarray, shape (K,)
        Inverse temperatures of the ladder, increasing.
    magnetization : ndarray, shape (C, K, N)
        Mean spins of each replica over the kept sweeps.
    energy : ndarray, shape (C, K)
        Mean energy per spin.
    overlaps : ndarray, shape (samples, K, P)
        Replica overlaps s^a·s^b/N of the P = C(C − 1)/2 pairs of replicas, in the order of
        `itertools.combinations`.
    swap_acceptance : ndarray, shape (K − 1,)
        Swap acceptance rate between neighbouring temperatures, NaN where no swap was tried.
    """

    betas: np.ndarray
    magnetization: np.ndarray
    energy: np.ndarray
    overlaps: np.ndarray
    swap_acceptance: np.ndarray


def parallel_tempering(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    betas: np.ndarray,
    sweeps: int,
    burn_in: int,
    replicas: int = 2,
    every: int = 1,
    seed: Seed = 0,
    threads: int = 1,
) -> TemperedRun:
    r"""Sample one Ising system by parallel tempering (replica exchange Monte Carlo).

    Each of `replicas` independent replicas is a ladder of chains, one at every inverse temperature,
    which start from random states. After every heat-bath sweep neighbouring temperatures try to
    swap their states. One or two threads give the same result.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of one system, symmetric with zero diagonal.
    fields : ndarray, shape (N,)
        External fields h.
    betas : ndarray, shape (K,)
        Inverse temperatures β ≥ 0, strictly increasing.
    sweeps : int
        Number of sweeps that are kept.
    burn_in : int
        Burn-in: number of sweeps that are dropped first.
    replicas : int, default 2
        Number C of independent replicas of the ladder.
    every : int, default 1
        Interval, in sweeps, at which the overlaps of the replicas are recorded.
    seed : Seed, default 0
        Seed or random generator.
    threads : int, default 1
        Number of threads; more than two make no difference.

    Returns
    -------
    TemperedRun
        Averages of each replica at each temperature, replica overlaps, and swap acceptance rates.

    Raises
    ------
    ValueError
        If the system is no Ising model (see `ising.check_ising`), `betas` does not increase, a
        count is out of its range, or couplings and fields differ too much in size to be rounded to
        one unit.

    Notes
    -----
    Two neighbours with energies E and E′ at β < β′ swap with the probability

    .. math::

        \min\{1, \exp[(\beta' - \beta)(E' - E)]\}.

    Couplings and fields are rounded to multiples of one unit, so that sums of them are exact and a
    seed gives the same run on every processor. This changes them by less than 1e-4 of themselves,
    or of 1/β.

    References
    ----------
    [hukushima1996exchange]

    Examples
    --------
    >>> free = {"fields": np.array([0.5]), "betas": np.array([1.0])}
    >>> run = parallel_tempering(np.zeros((1, 1)), **free, sweeps=4000, burn_in=10)
    >>> bool(abs(run.magnetization.mean() - np.tanh(0.5)) < 0.05)
    True
    """
    betas = check_array("betas", betas, ndim=1, low=0.0)
    if len(betas) < 1 or np.any(np.diff(betas) <= 0):
        raise ValueError(f"betas must increase, got {betas}")
    matrix, field, _ = check_ising(couplings, fields=fields, beta=float(betas[-1]), single=True)
    matrix, field = _exact_sums(matrix, fields=field, beta=float(betas[-1]))
    sweeps = check_integer("sweeps", sweeps, low=1, high=_MAX_SWEEPS)
    burn_in = check_integer("burn_in", burn_in, low=0, high=_MAX_SWEEPS)
    replicas = check_integer("replicas", replicas, low=1, high=10_000)
    every = check_integer("every", every, low=1, high=sweeps)
    threads = check_integer("threads", threads, low=1, high=1024)
    size = len(field)
    rungs = len(betas)
    kept = sweeps // every
    states = np.empty((replicas, kept, rungs, size), np.int8)
    sums = np.zeros((replicas, rungs, size))
    energies = np.zeros((replicas, rungs))
    swaps = np.zeros((replicas, 2, rungs))

    def work(own: slice, rng: np.random.Generator) -> None:
        up = rng.random((own.stop - own.start, rungs, size)) < 0.5
        spins = np.where(up, 1.0, -1.0).astype(matrix.dtype).reshape(-1, size)
        _run_ladders(
            matrix,
            field,
            betas,
            spins,
            spins @ matrix + field,
            burn_in,
            sweeps,
            every,
            rng,
            states[own],
            sums[own],
            energies[own],
            swaps[own],
        )

    # Each half of the replicas has a generator of its own, whether one thread runs both or two.
    half = -(-replicas // 2)
    with ThreadPoolExecutor(min(threads, 2)) as pool:
        halves = (slice(0, half), slice(half, replicas))
        list(pool.map(work, halves, numpy_generator(seed).spawn(2)))
    overlaps = np.empty((kept, rungs, replicas * (replicas - 1) // 2))
    for column, (a, b) in enumerate(combinations(range(replicas), 2)):
        overlaps[..., column] = (states[a] == states[b]).mean(-1) * 2.0 - 1.0
    tried, accepted = swaps[..., : rungs - 1].sum(0)
    return TemperedRun(
        betas=betas,
        magnetization=sums / sweeps,
        energy=energies / sweeps,
        overlaps=overlaps,
        swap_acceptance=np.divide(accepted, tried, out=np.full(rungs - 1, np.nan), where=tried > 0),
    )


def _exact_sums(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """J (N, N) and h (N,) rounded so that no sum of them is rounded, in single precision if it may.

    To multiples of a power of two (below 1e-5 for couplings of the size of Sherrington and
    Kirkpatrick's), so that no local field drifts and a seed gives the same run on every processor.
    Where single precision would change an entry x by more than 1e-4 |x|, and βx by more than 1e-4,
    as of a small field beside a hard coupling, double precision is taken; ValueError if that would.
    """
    largest = float((np.abs(couplings).sum(1) + np.abs(fields)).max())
    for dtype, bits in _BITS.items():
        # In double precision energies, of all spins, are no longer than the fields of each.
        spare = 1 if dtype is np.float32 else 1 + math.ceil(math.log2(len(fields)))
        unit = 1.0
        if largest > 0:
            # The smallest number of all where that is still larger.
            unit = 2.0 ** max(math.ceil(math.log2(largest)) + spare - bits, -1074)
        lost = 0.0
        rounded = []
        for array in (couplings, fields):
            with np.errstate(over="ignore"):
                rounded.append((np.round(array / unit) * unit).astype(dtype))
            change = np.abs(rounded[-1] - array)
            matters = (change > _LOST * np.abs(array)) & (change > _LOST / max(beta, 1e-300))
            lost = max(lost, float(np.abs(array[matters | ~np.isfinite(change)]).max(initial=0.0)))
        if not lost:
            return rounded[0], rounded[1]
    raise ValueError(
        f"couplings and fields must not differ in size so much that the smaller are lost: "
        f"{lost:.3g} cannot be held beside {largest:.3g}"
    )


@njit(nogil=True, cache=True)
def _run_ladders(
    matrix: np.ndarray,
    field: np.ndarray,
    betas: np.ndarray,
    spins: np.ndarray,
    local: np.ndarray,
    burn_in: int,
    sweeps: int,
    every: int,
    rng: np.random.Generator,
    states: np.ndarray,
    sums: np.ndarray,
    energies: np.ndarray,
    swaps: np.ndarray,
) -> None:
    """Ladders from spins and their local fields (C·K, N), replica c at rung k in row c K + k.

    Fills states (C, kept, K, N), sums (C, K, N), energies (C, K) and swaps, tried and accepted
    (C, 2, K).
    """
    rows, size = spins.shape
    rungs = len(betas)
    replicas = rows // rungs
    energy = np.zeros(rows)
    for row in range(rows):
        for i in range(size):
            energy[row] -= 0.5 * spins[row, i] * (np.float64(local[row, i]) + field[i])
    # place[c, k]: the row at the k-th temperature, so that an exchange moves no spins.
    place = np.arange(rows).reshape(replicas, rungs)
    for step in range(burn_in + sweeps):
        for i in range(size):
            pull = matrix[i]
            for c in range(replicas):
                for k in range(rungs):
                    row = place[c, k]
                    own = spins[row]
                    felt = local[row]
                    turn = np.float32(_flip(betas[k] * felt[i], rng)) - own[i]
                    if turn != 0.0:
                        own[i] += turn
                        energy[row] -= np.float64(turn) * felt[i]
                        for j in range(size):
                            felt[j] += turn * pull[j]
        for c in range(replicas):
            for k in range(step % 2, rungs - 1, 2):
                warm = place[c, k]
                cold = place[c, k + 1]
                gain = (betas[k + 1] - betas[k]) * (energy[cold] - energy[warm])
                swaps[c, 0, k] += 1
                if gain >= 0.0 or rng.standard_exponential() > -gain:
                    place[c, k] = cold
                    place[c, k + 1] = warm
                    swaps[c, 1, k] += 1
            if step >= burn_in:
                for k in range(rungs):
                    row = place[c, k]
                    energies[c, k] += energy[row] / size
                    for i in range(size):
                        sums[c, k, i] += spins[row, i]
                    if (step - burn_in + 1) % every == 0:
                        states[c, (step - burn_in) // every, k] = spins[row]
