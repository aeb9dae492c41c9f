"""Heat-bath Monte Carlo for Ising and vector spins, with error bars.

One sweep visits every spin in order and redraws it from its exact conditional distribution:
a Bernoulli variable for Ising spins, a von Mises-Fisher variable for vector spins. The
compiled sweeps and the plain reference sweeps consume the same random stream, so they give
the same trajectory up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit
from tqdm import tqdm

from spinformer.checks import check_array, check_choice, check_integer, check_real


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


def integrated_autocorrelation_time(series: np.ndarray, *, window: float = 6.0) -> float:
    """Integrated autocorrelation time 1 + 2 sum_t rho(t) of a series, in its own steps.

    In this convention the variance of the mean of n samples is var * time / n and
    independent samples have time 1. The sum stops at the first lag W >= `window` * time(W)/2
    (Sokal's automatic window; Madras and Sokal 1988). `series` has shape (n,) or (chains, n);
    chains share one mean. A constant series has time 1. Raises ValueError for n < 4.
    """
    values = check_array("series", series)
    if values.ndim not in (1, 2) or values.shape[-1] < 4:
        raise ValueError(f"series must have shape (n,) or (chains, n), n >= 4, got {values.shape}")
    window = check_real("window", window, low=1.0)
    centred = np.atleast_2d(values) - values.mean()
    length = centred.shape[1]
    padded = 1 << (2 * length - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, padded)) ** 2
    covariance = np.fft.irfft(spectrum, padded)[:, :length].mean(0) / np.arange(length, 0, -1)
    if covariance[0] <= 1e-28 * max(1.0, float(np.abs(values).max()) ** 2):
        return 1.0
    times = 2 * np.cumsum(covariance / covariance[0]) - 1
    enough = np.arange(length) >= window * np.maximum(times, 1.0) / 2
    stop = int(np.argmax(enough)) if enough.any() else length - 1
    return float(max(times[stop], 1.0))


def sample_von_mises_fisher(concentration: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw unit vectors u with density proportional to exp(k . u), one for each vector k.

    `concentration` has shape (..., D), D >= 1; the result has the same shape. Rejection from
    a beta envelope (Ulrich 1984; Wood 1994), vectorised over the leading axes; for D = 1 the
    two signs are drawn from their exact probabilities.
    """
    vectors = check_array("concentration", concentration)
    if vectors.ndim == 0 or vectors.shape[-1] == 0:
        raise ValueError(f"concentration must have shape (..., D), got {vectors.shape}")
    dim = vectors.shape[-1]
    flat = vectors.reshape(-1, dim)
    if dim == 1:
        up = rng.random(flat.shape) < 0.5 * (1 + np.tanh(flat))
        return np.where(up, 1.0, -1.0).reshape(vectors.shape)
    kappa = np.linalg.norm(flat, axis=1)
    slope = (dim - 1) / (2 * kappa + np.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = (1 - slope) / (1 + slope)
    top = kappa * centre + (dim - 1) * np.log(4 * slope / (1 + slope) ** 2)
    cosine = np.empty(len(flat))
    waiting = np.arange(len(flat))
    while len(waiting):
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2, len(waiting))
        s = slope[waiting]
        trial = (1 - (1 + s) * z) / (1 - (1 - s) * z)
        height = kappa[waiting] * trial + (dim - 1) * np.log(1 - centre[waiting] * trial)
        accepted = height - top[waiting] >= np.log(1 - rng.random(len(waiting)))
        cosine[waiting[accepted]] = trial[accepted]
        waiting = waiting[~accepted]
    safe = np.where(kappa > 0, kappa, 1.0)[:, None]
    axis = np.where(kappa[:, None] > 0, flat / safe, np.eye(dim)[0])
    tangent = rng.standard_normal(flat.shape)
    tangent -= (tangent * axis).sum(1, keepdims=True) * axis
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    unit = cosine[:, None] * axis + np.sqrt(np.maximum(1 - cosine**2, 0))[:, None] * tangent
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit.reshape(vectors.shape)


def sample_ising(
    couplings: np.ndarray,
    fields: np.ndarray,
    beta: float,
    *,
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
    ordered pairs pass `spins.exact.pair_couplings(J)`), `fields` (N,), weights exp(-beta E).
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

    return _run(start, block, 1.0, sweeps, burn, seed, chains, blocks, progress)


def sample_vector_spins(
    couplings: np.ndarray,
    fields: np.ndarray,
    beta: float,
    *,
    sweeps: int = 2048,
    burn: int = 256,
    seed: int = 0,
    chains: int = 4,
    blocks: int = 16,
    engine: str = "numba",
    progress: bool = False,
) -> MonteCarloEstimate:
    """Heat-bath averages of D-component spins, document 000, Eq. (vectorrandomising).

    E = -sum_{i,j} J_ij sigma_i . sigma_j - sum_i h_i . sigma_i over ordered pairs, so a pair
    couples with J_ij + J_ji and the diagonal adds a constant; ||sigma_i||^2 = D; weights
    exp(-beta E). `couplings` (N, N) is any real matrix, `fields` (N, D) holds the document's
    field h_i on each spin sigma_i (in the scaled form of the large-D theory this is
    H = sqrt(D) h). D = 1 is the Ising model with ordered pairs. Returns <sigma_i> (divide by
    sqrt(D) for <u_i>) and <u_i . u_j>.

    The remaining arguments are those of `sample_ising`. Spins are drawn from their
    conditional von Mises-Fisher law with concentration beta sqrt(D) |local field|.
    """
    matrix = check_array("couplings", couplings, ndim=2)
    size = matrix.shape[0]
    if matrix.shape != (size, size) or size == 0:
        raise ValueError(f"couplings must be a square matrix, got shape {matrix.shape}")
    field = check_array("fields", fields, shape=(size, None))
    dim = field.shape[1]
    check_integer("the dimension of fields", dim, low=1)
    beta = check_real("beta", beta, low=0.0)
    check_choice("engine", engine, ("numba", "reference"))
    sweep = _vector_sweeps if engine == "numba" else vector_sweeps_reference
    pair = matrix + matrix.T
    np.fill_diagonal(pair, 0.0)
    # In units of u the energy is D times [pairs] plus sqrt(D) times [fields].
    scaled_pair, scaled_field = dim * pair, math.sqrt(dim) * field
    offset = -dim * float(np.trace(matrix))

    def start(rng: np.random.Generator) -> np.ndarray:
        spins = rng.standard_normal((size, dim))
        return spins / np.linalg.norm(spins, axis=1, keepdims=True)

    def block(spins: np.ndarray, count: int, rng: np.random.Generator, *sums: np.ndarray) -> None:
        sweep(spins, scaled_pair, scaled_field, beta, count, rng, *sums)

    return _run(start, block, math.sqrt(dim), sweeps, burn, seed, chains, blocks, progress, offset)


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
            spins[i] = _flip_reference(beta * local, rng)
        energies[step] = -0.5 * spins @ pair @ spins - field @ spins
        sum_spins += spins
        sum_pairs += np.outer(spins, spins)


def vector_sweeps_reference(
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
    """Plain version of the compiled vector-spin sweeps: `spins` (N, D) holds unit vectors."""
    dim = spins.shape[1]
    for step in range(sweeps):
        for i in range(len(spins)):
            local = beta * (field[i] + pair[i] @ spins)
            spins[i] = _von_mises_fisher_reference(local, dim, rng)
        energies[step] = -0.5 * np.sum(pair * (spins @ spins.T)) - np.sum(field * spins)
        sum_spins += spins
        sum_pairs += spins @ spins.T


def _von_mises_fisher_reference(
    local: np.ndarray, dim: int, rng: np.random.Generator
) -> np.ndarray:
    if dim == 1:
        return np.array([_flip_reference(float(local[0]), rng)])
    kappa = float(np.linalg.norm(local))
    if kappa == 0:
        normal = np.array([rng.standard_normal() for _ in range(dim)])
        return normal / np.linalg.norm(normal)
    slope = (dim - 1) / (2 * kappa + math.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = (1 - slope) / (1 + slope)
    top = kappa * centre + (dim - 1) * math.log(4 * slope / (1 + slope) ** 2)
    while True:
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2)
        cosine = (1 - (1 + slope) * z) / (1 - (1 - slope) * z)
        height = kappa * cosine + (dim - 1) * math.log(1 - centre * cosine) - top
        if height >= math.log(1 - rng.random()):
            break
    axis = local / kappa
    tangent = np.array([rng.standard_normal() for _ in range(dim)])
    tangent -= (tangent @ axis) * axis
    tangent /= np.linalg.norm(tangent)
    unit = cosine * axis + math.sqrt(max(1 - cosine**2, 0.0)) * tangent
    return unit / np.linalg.norm(unit)


def _flip_reference(local: float, rng: np.random.Generator) -> float:
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


@njit(cache=True)
def _vector_sweeps(spins, pair, field, beta, sweeps, rng, sum_spins, sum_pairs, energies):
    size, dim = spins.shape
    local = np.empty(dim)
    tangent = np.empty(dim)
    for step in range(sweeps):
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
                up = rng.random() * (1 + math.exp(-2 * local[0])) < 1
                spins[i, 0] = 1.0 if up else -1.0
                continue
            cosine = 0.0
            if kappa > 0:
                slope = (dim - 1) / (2 * kappa + math.sqrt(4 * kappa**2 + (dim - 1) ** 2))
                centre = (1 - slope) / (1 + slope)
                top = kappa * centre + (dim - 1) * math.log(4 * slope / (1 + slope) ** 2)
                while True:
                    z = rng.beta((dim - 1) / 2, (dim - 1) / 2)
                    cosine = (1 - (1 + slope) * z) / (1 - (1 - slope) * z)
                    height = kappa * cosine + (dim - 1) * math.log(1 - centre * cosine) - top
                    if height >= math.log(1 - rng.random()):
                        break
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
            scale = math.sqrt(max(1 - cosine**2, 0.0) / norm)
            norm = 0.0
            for d in range(dim):
                spins[i, d] = cosine * local[d] + scale * tangent[d]
                norm += spins[i, d] * spins[i, d]
            norm = math.sqrt(norm)
            for d in range(dim):
                spins[i, d] /= norm
        energy = 0.0
        for i in range(size):
            for d in range(dim):
                sum_spins[i, d] += spins[i, d]
                energy -= field[i, d] * spins[i, d]
            sum_pairs[i, i] += 1.0
            for j in range(i):
                product = 0.0
                for d in range(dim):
                    product += spins[i, d] * spins[j, d]
                sum_pairs[i, j] += product
                sum_pairs[j, i] += product
                energy -= pair[i, j] * product
        energies[step] = energy


def _run(
    start: Callable[[np.random.Generator], np.ndarray],
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


def _pairs(name: str, couplings: np.ndarray) -> np.ndarray:
    """Check a symmetric (N, N) matrix with zero diagonal."""
    matrix = check_array(name, couplings, ndim=2)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    check_array(name, matrix, symmetric=True)
    if np.any(np.diagonal(matrix)):
        raise ValueError(f"{name} must have a zero diagonal, got {np.diagonal(matrix)}")
    return matrix
