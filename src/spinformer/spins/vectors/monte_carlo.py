"""Heat-bath Monte Carlo of vector spins, with error bars, and draws from their conditional law.

E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i h_i·σ_i over ordered pairs [bal2021transformers, Eq.
(vectorrandomising)], so a pair couples with J_ij + J_ji and the diagonal adds a constant;
‖σ_i‖² = D, σ = √D u with unit vectors u; weights exp(−βE). J (N, N) is any real matrix, h (N, D)
the field on σ (in the scaled form of the large-D theory this is H = √D h). D = 1 is the Ising
model with ordered pairs.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.spins.monte_carlo import MonteCarloEstimate, flip, flip_reference, run_chains

# Squares of concentrations must stay finite.
MAX_CONCENTRATION = 1e150


def sample_vector_spins(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int = 2048,
    burn: int = 256,
    seed: Seed = 0,
    chains: int = 4,
    blocks: int = 16,
    engine: str = "numba",
    progress: bool = False,
) -> MonteCarloEstimate:
    """Heat-bath averages of one system of D-component spins: ⟨σ_i⟩, ⟨u_i·u_j⟩, ⟨E⟩.

    `chains` independent chains start from random states, drop `burn` sweeps and keep `sweeps`
    each (rounded up to a multiple of `blocks`, the blocks per chain). Spins are drawn from their
    conditional von Mises-Fisher law with concentration β√D |local field|. `engine` is "numba"
    or "reference" (the same algorithm in plain Python). Raises ValueError or TypeError for bad
    input, concentrations that may exceed 1e150 among it.

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
    check_choice("engine", engine, ("numba", "reference"))
    sweep = _vector_sweeps if engine == "numba" else _vector_sweeps_reference
    with np.errstate(over="ignore"):
        pair = matrix + matrix.T
        np.fill_diagonal(pair, 0.0)
        # In units of u the energy is D times [pairs] plus sqrt(D) times [fields].
        scaled_pair, scaled_field = dim * pair, math.sqrt(dim) * field
        strength = np.abs(scaled_pair).sum(1) + np.abs(scaled_field).sum(1)
    largest = beta * float(strength.max())
    if not largest <= MAX_CONCENTRATION:
        raise ValueError(
            f"beta must keep beta * D * couplings and beta * sqrt(D) * fields within "
            f"{MAX_CONCENTRATION:g}, got {largest:.3g}"
        )
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


def sample_von_mises_fisher(concentration: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Draw unit vectors u with density proportional to exp(k·u), one for each vector k.

    `concentration` has shape (..., D), D ≥ 1; the result has the same shape. Rejection from a
    beta envelope (Ulrich 1984; Wood 1994), vectorised over leading axes; for D = 1 the two signs
    are drawn from their exact probabilities. Right at any concentration up to 1e150 because
    1 − cos is drawn, not the cosine; beyond, ValueError.

    >>> sample_von_mises_fisher(np.array([[0.0, 1e100], [1e100, 0.0]]), seed=0).round(6) + 0.0
    array([[0., 1.],
           [1., 0.]])
    """
    bound = MAX_CONCENTRATION
    vectors = check_array("concentration", concentration, low=-bound, high=bound)
    if vectors.ndim == 0 or vectors.shape[-1] == 0:
        raise ValueError(f"concentration must have shape (..., D), got {vectors.shape}")
    rng = numpy_generator(seed)
    dim = vectors.shape[-1]
    flat = vectors.reshape(-1, dim)
    if dim == 1:
        up = rng.random(flat.shape) < 0.5 * (1 + np.tanh(flat))
        return np.where(up, 1.0, -1.0).reshape(vectors.shape)
    kappa = np.linalg.norm(flat, axis=1)
    slope = (dim - 1) / (2 * kappa + np.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = 2 * slope / (1 + slope)
    top = (dim - 1) * np.log(4 * slope / (1 + slope) ** 2)
    gap = np.empty(len(flat))
    waiting = np.arange(len(flat))
    while len(waiting):
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2, len(waiting))
        s, c = slope[waiting], centre[waiting]
        trial = 2 * s * z / ((1 - z) + s * z)
        height = kappa[waiting] * (c - trial) + (dim - 1) * np.log(c + trial - c * trial)
        accepted = height - top[waiting] >= np.log(1 - rng.random(len(waiting)))
        gap[waiting[accepted]] = trial[accepted]
        waiting = waiting[~accepted]
    safe = np.where(kappa > 0, kappa, 1.0)[:, None]
    axis = np.where(kappa[:, None] > 0, flat / safe, np.eye(dim)[0])
    tangent = rng.standard_normal(flat.shape)
    tangent -= (tangent * axis).sum(1, keepdims=True) * axis
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    unit = (1 - gap)[:, None] * axis + np.sqrt(gap * (2 - gap))[:, None] * tangent
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit.reshape(vectors.shape)


def _vector_sweeps_reference(
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
        return np.array([flip_reference(float(local[0]), seed=rng)])
    kappa = float(np.linalg.norm(local))
    if kappa == 0:
        normal = np.array([rng.standard_normal() for _ in range(dim)])
        return normal / np.linalg.norm(normal)
    slope = (dim - 1) / (2 * kappa + math.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = 2 * slope / (1 + slope)
    top = (dim - 1) * math.log(4 * slope / (1 + slope) ** 2)
    while True:
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2)
        gap = 2 * slope * z / ((1 - z) + slope * z)
        height = kappa * (centre - gap) + (dim - 1) * math.log(centre + gap - centre * gap) - top
        if height >= math.log(1 - rng.random()):
            break
    axis = local / kappa
    tangent = np.array([rng.standard_normal() for _ in range(dim)])
    tangent -= (tangent @ axis) * axis
    tangent /= np.linalg.norm(tangent)
    unit = (1 - gap) * axis + math.sqrt(gap * (2 - gap)) * tangent
    return unit / np.linalg.norm(unit)


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
                spins[i, 0] = flip(local[0], rng)
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
