"""Vector spins: a few of them exactly, any number by Monte Carlo.

N spins of D components, ‖σ_i‖² = D, with couplings J (any real matrix), fields H and the inverse
temperature β [bal2021transformers, Eq. (vectorrandomising)]:

    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i

over ordered pairs: a pair couples with J_ij + J_ji and a diagonal entry adds the constant −D J_ii.
The measure of every spin is normalised: ln Z = 0 for J = 0 and H = 0. D = 1 is the Ising model with
ordered pairs. `large_d` has the same in units without D: u = σ/√D, h = H/√D, E/D, and the same J
and β.

Correlations are ⟨u_i·u_j⟩ everywhere, one for i = j. Functions work in logarithms, so that large β
and large D neither overflow nor underflow; ValueError or TypeError for bad input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from scipy.special import gammaln, logsumexp

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.core.special import alignment_over_kappa, log_sphere_integral
from spinformer.spins.monte_carlo import MonteCarloEstimate, flip, run_chains

# Nodes of a panel by the number of axes: 20 leave three spins wrong by 1e-11 where they are
# sharpest, 24 by rounding, at twice the work.
_RULE = {1: np.polynomial.legendre.leggauss(24), 3: np.polynomial.legendre.leggauss(20)}
# Largest number of quadrature panels per axis: beyond it the arrays of three spins no longer fit.
_MAX_PANELS = {1: 4000, 3: 6}
# Largest exponent βD times fields and couplings that the Bessel functions resolve.
_LARGEST = 1e9
# Squares of concentrations must stay finite.
_MAX_CONCENTRATION = 1e150


@record
class ExactVectorSpins:
    """Exact thermodynamics of a few vector spins.

    `log_partition` is ln Z; `magnetization` (N, D) holds ⟨σ_i⟩; `correlation` (N, N) holds
    ⟨σ_i·σ_j⟩/D with ones on the diagonal.
    """

    log_partition: float
    magnetization: np.ndarray
    correlation: np.ndarray


def one_spin(field: Any, *, beta: float) -> ExactVectorSpins:
    """Exact free spin in a field H of shape (D,): ln Z = ln G_D(β√D ‖H‖), ⟨σ⟩ along H.

    >>> spin = one_spin([2.0], beta=0.25)
    >>> f"{spin.magnetization[0, 0]:.6f}", f"{np.tanh(0.5):.6f}"
    ('0.462117', '0.462117')
    """
    field = check_array("field", field, ndim=1)
    _, _, kappa, _ = exact_system(np.zeros((1, 1)), field[None], beta)
    dim, kappa = field.size, kappa[0]
    size = np.linalg.norm(kappa)
    mean = np.sqrt(dim) * alignment_over_kappa(size, dim=dim) * kappa
    return ExactVectorSpins(
        log_partition=float(log_sphere_integral(size, dim=dim)),
        magnetization=mean[None, :],
        correlation=np.ones((1, 1)),
    )


def two_spins(couplings: Any, *, fields: Any, beta: float) -> ExactVectorSpins:
    """Exact pair of spins in arbitrary fields, by one-dimensional quadrature.

    `couplings` J (2, 2), of which the pair feels J_12 + J_21; `fields` H (2, D), D ≥ 1. The
    second spin is integrated in closed form, G_D(‖κ₂ + K u₁‖), and so is the direction of the
    first one around H_2; what remains is the angle between them.

    >>> bond = [[0.0, 0.25], [0.25, 0.0]]
    >>> pair = two_spins(bond, fields=np.zeros((2, 1)), beta=1.0)
    >>> f"{pair.correlation[0, 1]:.6f}", f"{np.tanh(0.5):.6f}"
    ('0.462117', '0.462117')
    """
    _, bonds, kappa, constant = exact_system(couplings, fields, beta, sites=2)
    dim, pair = kappa.shape[1], bonds[0, 1]
    k2 = float(np.linalg.norm(kappa[1]))
    axis = kappa[1] / k2 if k2 > 0 else np.eye(dim)[0]
    along = float(kappa[0] @ axis)
    across = kappa[0] - along * axis
    k_across = float(np.linalg.norm(across))
    normal = across / k_across if k_across > 0 else np.zeros(dim)

    x, sine, log_weight = polar_nodes(dim, np.abs(kappa).sum() + abs(pair) + dim, axes=1)
    # y = κ₂ + K u₁ is the field that the second spin feels.
    size = np.sqrt(np.maximum(k2**2 + pair**2 + 2 * pair * k2 * x, 0.0))
    ratio = alignment_over_kappa(size, dim=dim)
    if dim > 1:
        around = alignment_over_kappa(k_across * sine, dim=dim - 1) * k_across * sine**2
        log_weight = log_weight + log_sphere_integral(k_across * sine, dim=dim - 1)
    else:
        around = np.zeros_like(x)
    log_terms = log_weight + along * x + log_sphere_integral(size, dim=dim)
    log_pair = float(logsumexp(log_terms))
    p = np.exp(log_terms - log_pair)

    first = (p @ x) * axis + (p @ around) * normal
    second = (p @ (ratio * (k2 + pair * x))) * axis + pair * (p @ (ratio * around)) * normal
    cosine = float(p @ (ratio * (k2 * x + pair)))
    return ExactVectorSpins(
        log_partition=log_pair + constant,
        magnetization=np.sqrt(dim) * np.stack([first, second]),
        correlation=np.array([[1.0, cosine], [cosine, 1.0]]),
    )


def exact_system(
    couplings: Any, fields: Any, beta: float, *, sites: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """H, what is exponentiated, βD(J + Jᵀ) of the pairs and β√D H, and the constant βD tr J."""
    couplings = check_array("couplings", couplings, shape=(sites, sites))
    fields = check_array("fields", fields, shape=(sites, None))
    beta = check_real("beta", beta, low=0.0)
    dim = check_integer("the dimension of fields", fields.shape[1], low=1)
    root = np.sqrt(dim)
    exponent = beta * root * max(root * np.abs(fields).max(), 4 * dim * np.abs(couplings).max())
    if not exponent <= _LARGEST:
        raise ValueError(
            "beta times couplings and fields must give exponents that Bessel functions resolve, "
            f"up to {_LARGEST:.0e}, got {exponent:.3g}"
        )
    bonds = beta * dim * (couplings + couplings.T)
    return fields, bonds, beta * root * fields, beta * dim * float(np.trace(couplings))


def polar_nodes(dim: int, scale: float, axes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes cos θ, sin θ and log-weights of the polar angle on the unit sphere in R^D.

    Composite Gauss–Legendre in θ, the weight sin^{D−2} θ being analytic there; panels shrink with
    the width 1/√scale of the sharpest peak. D = 1 is the two-point sphere.
    """
    if dim == 1:
        return np.array([1.0, -1.0]), np.zeros(2), np.full(2, -np.log(2.0))
    panels = 2 + int(np.sqrt(scale) / 5)
    if panels > _MAX_PANELS[axes]:
        raise ValueError(
            f"beta times couplings and fields must give a weight that {_MAX_PANELS[axes]} "
            f"quadrature panels resolve, this one needs {panels}"
        )
    edges = np.linspace(0.0, np.pi, panels + 1)
    half = np.diff(edges)[:, None] / 2
    nodes, weights = _RULE[axes]
    theta = (edges[:-1, None] + half * (1 + nodes)).ravel()
    log_measure = gammaln(dim / 2) - gammaln((dim - 1) / 2) - 0.5 * np.log(np.pi)
    weight = np.log((half * weights).ravel()) + (dim - 2) * np.log(np.sin(theta))
    return np.cos(theta), np.sin(theta), weight + log_measure


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
) -> MonteCarloEstimate:
    """Heat-bath averages of one system of D-component spins: ⟨σ_i⟩, ⟨u_i·u_j⟩, ⟨E⟩.

    `chains` independent chains start from random states, drop `burn` sweeps and keep `sweeps`
    each (rounded up to a multiple of `blocks`, the blocks per chain). Spins are drawn from their
    conditional von Mises-Fisher law with concentration β√D |local field|. Raises ValueError or
    TypeError for bad input, concentrations that may exceed 1e150 among it.

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
        scaled_pair, scaled_field = dim * pair, math.sqrt(dim) * field
        strength = np.abs(scaled_pair).sum(1) + np.abs(scaled_field).sum(1)
    largest = beta * float(strength.max())
    if not largest <= _MAX_CONCENTRATION:
        raise ValueError(
            f"beta must keep beta * D * couplings and beta * sqrt(D) * fields within "
            f"{_MAX_CONCENTRATION:g}, got {largest:.3g}"
        )
    offset = -dim * float(np.trace(matrix))

    def start(rng: np.random.Generator) -> np.ndarray:
        spins = rng.standard_normal((size, dim))
        return spins / np.linalg.norm(spins, axis=1, keepdims=True)

    def block(spins: np.ndarray, count: int, rng: np.random.Generator, *sums: np.ndarray) -> None:
        _vector_sweeps(spins, scaled_pair, scaled_field, beta, count, rng, *sums)

    run: Any = {"sweeps": sweeps, "burn": burn, "seed": seed, "chains": chains, "blocks": blocks}
    unit = math.sqrt(dim)
    return run_chains(start, block=block, unit=unit, offset=offset, **run)


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
