"""Exact thermodynamics of two and three vector spins, by quadrature.

The energy of N spins of D components with ‖σ_i‖² = D is E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,
summed over ordered pairs. The measure of a spin is normalized: ln Z = 0 for J = 0 and H = 0.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.special import alignment_over_kappa, log_sphere_integral

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

    Attributes
    ----------
    log_partition : float
        Logarithm of the partition function, ln Z, in nats.
    magnetization : ndarray, shape (N, D)
        Mean spins ⟨σ_i⟩.
    correlation : ndarray, shape (N, N)
        Correlations ⟨σ_i·σ_j⟩/D, with ones on the diagonal.
    """

    log_partition: float
    magnetization: np.ndarray
    correlation: np.ndarray


def two_spins(couplings: Any, *, fields: Any, beta: float) -> ExactVectorSpins:
    """Exact thermodynamics of a pair of vector spins in arbitrary fields.

    The second spin is integrated in closed form, and so is the direction of the first one around
    H_2. The angle between the two is integrated by one-dimensional quadrature.

    Parameters
    ----------
    couplings : ndarray, shape (2, 2)
        Couplings J of ordered pairs; the energy of the pair contains J_12 + J_21.
    fields : ndarray, shape (2, D)
        External fields H of spins of length √D, D ≥ 1.
    beta : float
        Inverse temperature β ≥ 0.

    Returns
    -------
    ExactVectorSpins
        The partition function, the magnetizations and the correlation.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a shape does not fit, or β times couplings and fields is too large for the quadrature.

    Examples
    --------
    >>> pair = two_spins([[0.0, 0.5], [0.5, 0.0]], fields=[[0.0], [0.0]], beta=1.0)
    >>> f"{pair.correlation[0, 1]:.6f} {np.tanh(1.0):.6f}"
    '0.761594 0.761594'
    """
    _, bonds, kappa, constant = _exact_system(couplings, fields, beta, sites=2)
    dim = kappa.shape[1]
    pair = bonds[0, 1]
    k2 = float(np.linalg.norm(kappa[1]))
    axis = kappa[1] / k2 if k2 > 0 else np.eye(dim)[0]
    along = float(kappa[0] @ axis)
    across = kappa[0] - along * axis
    k_across = float(np.linalg.norm(across))
    normal = across / k_across if k_across > 0 else np.zeros(dim)

    x, sine, log_weight = _polar_nodes(dim, np.abs(kappa).sum() + abs(pair) + dim, axes=1)
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


def three_spins(couplings: Any, *, fields: Any, beta: float) -> ExactVectorSpins:
    """Exact thermodynamics of three vector spins whose fields are parallel or antiparallel.

    The third spin is integrated in closed form. The two polar angles of the others and the angle
    between their transverse parts are integrated by three-dimensional quadrature.

    Parameters
    ----------
    couplings : ndarray, shape (3, 3)
        Couplings J of ordered pairs.
    fields : ndarray, shape (3, D)
        External fields H of spins of length √D on one line, D ≥ 2.
    beta : float
        Inverse temperature β ≥ 0.

    Returns
    -------
    ExactVectorSpins
        The partition function, the magnetizations and the correlations.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a shape does not fit, the fields are not on one line, or β times couplings and fields is
        too large for the quadrature.

    Examples
    --------
    >>> field = np.array([[0.5, 0.0], [0.2, 0.0], [0.0, 0.0]])
    >>> chain = np.array([[0.0, 0.4, 0.0], [0.4, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> three = three_spins(chain, fields=field, beta=1.0)
    >>> pair = two_spins(chain[:2, :2], fields=field[:2], beta=1.0)
    >>> bool(np.allclose(three.magnetization[:2], pair.magnetization))
    True
    """
    fields, bonds, _, constant = _exact_system(couplings, fields, beta, sites=3)
    dim = check_integer("the dimension of fields", fields.shape[1], low=2)
    largest = fields[np.argmax(np.linalg.norm(fields, axis=1))]
    norm = float(np.linalg.norm(largest))
    axis = largest / norm if norm > 0 else np.eye(dim)[0]
    if np.abs(fields - np.outer(fields @ axis, axis)).max() > 1e-12 * max(norm, 1e-300):
        raise ValueError("fields must be parallel or antiparallel to each other")
    k1, k2, k3 = beta * np.sqrt(dim) * (fields @ axis)
    b12 = bonds[0, 1]
    b13 = bonds[0, 2]
    b23 = bonds[1, 2]

    scale = np.abs([k1, k2, k3]).max() + np.abs([b12, b13, b23]).max() + dim
    x1, s1, log_w = _polar_nodes(dim, scale, axes=3)
    z, _, log_w_around = _polar_nodes(dim - 1, scale, axes=3)
    x2 = x1[None, :, None]
    s2 = s1[None, :, None]
    log_terms = log_w[:, None, None] + log_w[None, :, None] + log_w_around
    x1 = x1[:, None, None]
    s1 = s1[:, None, None]
    cosine = x1 * x2 + s1 * s2 * z
    square = k3**2 + b13**2 + b23**2 + 2 * k3 * (b13 * x1 + b23 * x2) + 2 * b13 * b23 * cosine
    log_terms = log_terms + k1 * x1 + k2 * x2 + b12 * cosine
    # The closed form lies between 1 and exp(square/2D): what cannot count is left out.
    keep = log_terms + square / (2 * dim) > log_terms.max() - 45.0
    x1 = np.broadcast_to(x1, keep.shape)[keep]
    x2 = np.broadcast_to(x2, keep.shape)[keep]
    cosine = cosine[keep]
    square = square[keep]
    log_terms = log_terms[keep]
    size = np.sqrt(np.maximum(square, 0.0))
    log_terms = log_terms + log_sphere_integral(size, dim=dim)
    log_triple = float(logsumexp(log_terms))
    p = np.exp(log_terms - log_triple)
    ratio = p * alignment_over_kappa(size, dim=dim)

    along = [(p * x1).sum(), (p * x2).sum(), (ratio * (k3 + b13 * x1 + b23 * x2)).sum()]
    correlation = np.eye(3)
    correlation[0, 1] = correlation[1, 0] = (p * cosine).sum()
    correlation[0, 2] = correlation[2, 0] = (ratio * (k3 * x1 + b13 + b23 * cosine)).sum()
    correlation[1, 2] = correlation[2, 1] = (ratio * (k3 * x2 + b23 + b13 * cosine)).sum()
    return ExactVectorSpins(
        log_partition=log_triple + constant,
        magnetization=np.sqrt(dim) * np.outer(along, axis),
        correlation=correlation,
    )


def _exact_system(
    couplings: Any, fields: Any, beta: float, *, sites: int
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


def _polar_nodes(dim: int, scale: float, axes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
