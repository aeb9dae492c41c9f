"""Heat-bath Monte Carlo of vector spins, with error bars, and draws from their conditional law."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.spins.ising.monte_carlo import flip_reference
from spinformer.spins.monte_carlo import MonteCarloEstimate, run_chains


def sample_vector_spins(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
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

    return run_chains(
        start,
        block=block,
        unit=math.sqrt(dim),
        sweeps=sweeps,
        burn=burn,
        seed=seed,
        chains=chains,
        blocks=blocks,
        progress=progress,
        offset=offset,
    )


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
        return np.array([flip_reference(float(local[0]), rng)])
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
