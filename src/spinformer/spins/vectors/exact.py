"""Exact vector-spin systems of one, two and three sites: the ground truth for approximations.

Sigma convention of `units` [bal2021transformers, Eq. (vectorrandomising)]: ‖σ_i‖² = D,
E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over ordered pairs. Fields and magnetisations are the
unscaled H_i and ⟨σ_i⟩; correlations are C_ij = ⟨σ_i·σ_j⟩/D, so that C_ii = 1. The measure of
every spin is normalised: ln Z = 0 for J = 0 and H = 0.

Arguments are arrays: fields (N, D), any couplings (N, N), beta a number ≥ 0. Everything is done
with logarithms, so large β and large D neither overflow nor underflow; where the weight is too
sharp for a quadrature, ValueError says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.special import alignment_over_kappa, log_harmonic

# Nodes of a panel by the number of axes: 20 leave three spins wrong by 1e-11 where they are
# sharpest, 24 by rounding, at twice the work.
_RULE = {1: np.polynomial.legendre.leggauss(24), 3: np.polynomial.legendre.leggauss(20)}
# Largest number of quadrature panels per axis: beyond it the arrays of three spins no longer fit.
_MAX_PANELS = {1: 4000, 3: 6}
# Largest exponent βD times fields and couplings that the Bessel functions resolve.
_LARGEST = 1e9


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
    beta = check_real("beta", beta, low=0.0)
    dim = field.size
    check_integer("the dimension of field", dim, low=1)
    _check_exponent(beta * np.sqrt(dim) * np.abs(field).max(), dim)
    kappa = beta * np.sqrt(dim) * field
    size = np.linalg.norm(kappa)
    mean = np.sqrt(dim) * alignment_over_kappa(size, dim=dim) * kappa
    return ExactVectorSpins(
        log_partition=float(log_harmonic(size, dim=dim, degree=0)),
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
    couplings = check_array("couplings", couplings, shape=(2, 2))
    fields = check_array("fields", fields, shape=(2, None))
    beta = check_real("beta", beta, low=0.0)
    dim = check_integer("the dimension of fields", fields.shape[1], low=1)
    root = np.sqrt(dim)
    _check_exponent(beta * max(root * np.abs(fields).max(), 4 * dim * np.abs(couplings).max()), dim)
    kappa = beta * root * fields
    pair = beta * dim * (couplings[0, 1] + couplings[1, 0])
    k2 = float(np.linalg.norm(kappa[1]))
    axis = kappa[1] / k2 if k2 > 0 else np.eye(dim)[0]
    along = float(kappa[0] @ axis)
    across = kappa[0] - along * axis
    k_across = float(np.linalg.norm(across))
    normal = across / k_across if k_across > 0 else np.zeros(dim)

    x, sine, log_weight = _polar(dim, np.abs(kappa).sum() + abs(pair) + dim, axes=1)
    # y = κ₂ + K u₁ is the field that the second spin feels.
    size = np.sqrt(np.maximum(k2**2 + pair**2 + 2 * pair * k2 * x, 0.0))
    ratio = alignment_over_kappa(size, dim=dim)
    if dim > 1:
        around = alignment_over_kappa(k_across * sine, dim=dim - 1) * k_across * sine**2
        log_weight = log_weight + log_harmonic(k_across * sine, dim=dim - 1, degree=0)
    else:
        around = np.zeros_like(x)
    log_terms = log_weight + along * x + log_harmonic(size, dim=dim, degree=0)
    log_pair = float(logsumexp(log_terms))
    p = np.exp(log_terms - log_pair)

    first = (p @ x) * axis + (p @ around) * normal
    second = (p @ (ratio * (k2 + pair * x))) * axis + pair * (p @ (ratio * around)) * normal
    cosine = float(p @ (ratio * (k2 * x + pair)))
    correlation = np.array([[1.0, cosine], [cosine, 1.0]])
    constant = beta * dim * float(np.trace(couplings))
    return ExactVectorSpins(
        log_partition=log_pair + constant,
        magnetization=root * np.stack([first, second]),
        correlation=correlation,
    )


def triangle(couplings: Any, *, beta: float, dim: int) -> ExactVectorSpins:
    """Exact three spins without field, by the expansion in spherical harmonics (D ≥ 2).

    Z = Σ_l d_l Π_e λ_l(K_e) over the three edges, K_e = βD(J_ij + J_ji),
    λ_l(K) = Γ(ν+1)(2/K)^ν I_{ν+l}(K), d_l the dimension of the harmonics of degree l.
    Raises ValueError where frustration cancels the series beyond double precision.

    >>> triangle(np.zeros((3, 3)), beta=1.0, dim=4).log_partition
    0.0
    """
    couplings = check_array("couplings", couplings, shape=(3, 3))
    beta = check_real("beta", beta, low=0.0)
    dim = check_integer("dim", dim, low=2)
    _check_exponent(beta * 2 * dim * np.abs(couplings).max(), dim)
    edges = [(0, 1), (0, 2), (1, 2)]
    bonds = np.array([beta * dim * (couplings[i, j] + couplings[j, i]) for i, j in edges])
    # λ_l/λ_0 falls like exp(−l²/2K): this keeps everything above the rounding error.
    top = 24 + int(np.ceil(10 * np.sqrt(np.abs(bonds).max()) + 0.1 * dim))
    degree = np.arange(top + 2)
    log_size = np.stack([log_harmonic(abs(bond), dim=dim, degree=degree) for bond in bonds])
    sign = np.stack([np.sign(bond) ** degree if bond else (degree == 0) * 1.0 for bond in bonds])
    shift = log_size[:, :1]
    factor = sign * np.exp(log_size - shift)
    log_multiplicity = _log_multiplicity(dim, degree[:-1])
    if log_multiplicity.max() > np.log(np.finfo(float).max):
        raise ValueError(f"dim must leave the number of harmonics in range, {dim} does not")
    multiplicity = np.exp(log_multiplicity)
    terms = multiplicity * factor[:, :-1].prod(axis=0)
    total = float(terms.sum())
    # A frustrated triangle makes the series alternate; below this nothing would be left of it.
    if not total > 1e-8 * np.abs(terms).sum():
        raise ValueError(
            "beta times couplings must leave the alternating series at least 8 digits, "
            f"a frustrated triangle at beta = {beta} does not: use three_spins"
        )
    slope = _harmonic_slope(factor, dim)
    correlation = np.eye(3)
    for index, (i, j) in enumerate(edges):
        others = np.delete(factor[:, :-1], index, axis=0).prod(axis=0)
        correlation[i, j] = correlation[j, i] = multiplicity @ (others * slope[index]) / total
    log_partition = np.log(total) + float(shift.sum()) + beta * dim * float(np.trace(couplings))
    return ExactVectorSpins(
        log_partition=float(log_partition),
        magnetization=np.zeros((3, dim)),
        correlation=correlation,
    )


def three_spins(couplings: Any, *, fields: Any, beta: float) -> ExactVectorSpins:
    """Exact three spins whose fields lie on one line, by three-dimensional quadrature (D ≥ 2).

    `couplings` J (3, 3); `fields` H (3, D), all parallel or antiparallel. The third spin is
    integrated in closed form; what remains are the two polar angles of the others and the angle
    between their transverse parts. Raises ValueError for other fields and if the weight is too
    sharp for the grid (βD times fields and couplings above a few hundred).

    >>> free = three_spins(np.zeros((3, 3)), fields=np.zeros((3, 2)), beta=1.0)
    >>> f"{abs(free.log_partition):.9f}"
    '0.000000000'
    """
    couplings = check_array("couplings", couplings, shape=(3, 3))
    fields = check_array("fields", fields, shape=(3, None))
    beta = check_real("beta", beta, low=0.0)
    dim = check_integer("the dimension of fields", fields.shape[1], low=2)
    root = np.sqrt(dim)
    _check_exponent(beta * max(root * np.abs(fields).max(), 4 * dim * np.abs(couplings).max()), dim)
    largest = fields[np.argmax(np.linalg.norm(fields, axis=1))]
    norm = float(np.linalg.norm(largest))
    axis = largest / norm if norm > 0 else np.eye(dim)[0]
    if np.abs(fields - np.outer(fields @ axis, axis)).max() > 1e-12 * max(norm, 1e-300):
        raise ValueError("fields must be parallel or antiparallel to each other")
    k1, k2, k3 = beta * root * (fields @ axis)
    bonds = beta * dim * (couplings + couplings.T)
    b12, b13, b23 = bonds[0, 1], bonds[0, 2], bonds[1, 2]

    scale = np.abs([k1, k2, k3]).max() + np.abs([b12, b13, b23]).max() + dim
    x1, s1, log_w = _polar(dim, scale, axes=3)
    z, _, log_w_around = _polar(dim - 1, scale, axes=3)
    x2, s2 = x1[None, :, None], s1[None, :, None]
    log_terms = log_w[:, None, None] + log_w[None, :, None] + log_w_around
    x1, s1 = x1[:, None, None], s1[:, None, None]
    cosine = x1 * x2 + s1 * s2 * z
    square = k3**2 + b13**2 + b23**2 + 2 * k3 * (b13 * x1 + b23 * x2) + 2 * b13 * b23 * cosine
    size = np.sqrt(np.maximum(square, 0.0))
    log_terms = log_terms + k1 * x1 + k2 * x2 + b12 * cosine + log_harmonic(size, dim=dim, degree=0)
    log_triple = float(logsumexp(log_terms))
    p = np.exp(log_terms - log_triple)
    ratio = p * alignment_over_kappa(size, dim=dim)

    along = [(p * x1).sum(), (p * x2).sum(), (ratio * (k3 + b13 * x1 + b23 * x2)).sum()]
    correlation = np.eye(3)
    correlation[0, 1] = correlation[1, 0] = (p * cosine).sum()
    correlation[0, 2] = correlation[2, 0] = (ratio * (k3 * x1 + b13 + b23 * cosine)).sum()
    correlation[1, 2] = correlation[2, 1] = (ratio * (k3 * x2 + b23 + b13 * cosine)).sum()
    constant = beta * dim * float(np.trace(couplings))
    return ExactVectorSpins(
        log_partition=log_triple + constant,
        magnetization=root * np.outer(along, axis),
        correlation=correlation,
    )


def _check_exponent(exponent: float, dim: int) -> None:
    if not exponent * np.sqrt(dim) <= _LARGEST:
        raise ValueError(
            "beta times couplings and fields must give exponents that Bessel functions resolve, "
            f"up to {_LARGEST:.0e}, got {exponent * np.sqrt(dim):.3g}"
        )


def _log_multiplicity(dim: int, degree: np.ndarray) -> np.ndarray:
    """ln of the dimension of the harmonics of degree l on the unit sphere in R^D, D ≥ 2."""
    if dim == 2:
        return np.where(degree == 0, 0.0, np.log(2.0))
    rising = gammaln(degree + dim - 2) - gammaln(degree + 1) - gammaln(dim - 1)
    return np.log(2 * degree + dim - 2) + rising


def _harmonic_slope(factor: np.ndarray, dim: int) -> np.ndarray:
    """dλ_l/dK = [l λ_{l−1} + (l + 2ν) λ_{l+1}] / (2(ν + l)), λ_0' = λ_1."""
    nu = dim / 2 - 1
    degree = np.arange(1, factor.shape[1] - 1)
    inner = degree * factor[:, :-2] + (degree + 2 * nu) * factor[:, 2:]
    return np.concatenate([factor[:, 1:2], inner / (2 * (nu + degree))], axis=1)


def _polar(dim: int, scale: float, axes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
