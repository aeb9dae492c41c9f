"""Couplings of Ising systems: random ensembles, the two ways to count a pair, and checks.

The rooms of binary spins count every pair once: E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i with J
(..., N, N) symmetric and zero on the diagonal. [bal2021transformers, Eq. (binaryrandomising)]
sums over ordered pairs, so that a pair couples with J_ij + J_ji: `pair_couplings` and
`ordered_couplings` convert. Dynamics without an energy take any J; row i couples into spin i.
"""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.checks import check_array, check_broadcast, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator

# Largest β times a coupling or a field: third powers, summed over a system, stay finite.
MAX_STRENGTH = 1e90

# Beyond, a machine has no memory or a user no time: a slip, refused by name.
MAX_SIZE = 100_000
MAX_COUNT = 10**9


def pair_couplings(ordered: np.ndarray) -> np.ndarray:
    """Couplings of unordered pairs, J_ij + J_ji with zero diagonal, from ordered ones (..., N, N).

    In a sum over all i, j a pair enters twice; the diagonal adds the constant −Σ_i J_ii to the
    energy (s_i² = 1), which is dropped here. Raises ValueError if `ordered` is not square.

    >>> pair_couplings(np.array([[5.0, 1.0], [2.0, 5.0]]))
    array([[0., 3.],
           [3., 0.]])
    """
    matrix = check_array("ordered", ordered, square=True)
    return (matrix + matrix.swapaxes(-1, -2)) * (1 - np.eye(matrix.shape[-1]))


def ordered_couplings(couplings: np.ndarray) -> np.ndarray:
    """The symmetric couplings of ordered pairs that describe the same system: half of J.

    Inverse of `pair_couplings` for symmetric couplings (..., N, N) with zero diagonal; raises
    ValueError for others.

    >>> ordered_couplings(np.array([[0.0, 3.0], [3.0, 0.0]]))
    array([[0. , 1.5],
           [1.5, 0. ]])
    """
    return 0.5 * check_couplings(couplings)


def sherrington_kirkpatrick(
    size: int, *, seed: Seed, count: int | None = None, field_std: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Random couplings and fields of the model of [sherrington1975solvable], Gaussian.

    J_ij = J_ji of mean 0 and variance 1/N for unordered pairs, zero diagonal, and fields of
    standard deviation `field_std`. Shapes (N, N) and (N,), or (count, N, N) and (count, N).
    Raises ValueError or TypeError for numbers out of range.

    >>> couplings, fields = sherrington_kirkpatrick(3, seed=0, count=2, field_std=0.5)
    >>> couplings.shape, fields.shape, bool((couplings == couplings.swapaxes(1, 2)).all())
    ((2, 3, 3), (2, 3), True)
    """
    size = check_integer("size", size, low=1, high=MAX_SIZE)
    check_real("field_std", field_std, low=0.0)
    batch = () if count is None else (check_integer("count", count, low=1, high=MAX_COUNT),)
    rng = numpy_generator(seed)
    upper = np.triu(rng.standard_normal((*batch, size, size)), 1) / math.sqrt(size)
    return upper + upper.swapaxes(-1, -2), field_std * rng.standard_normal((*batch, size))


def gaussian_couplings(
    size: int, *, seed: Seed, symmetry: float = 0.0, mean: float = 0.0, std: float = 1.0
) -> np.ndarray:
    """Gaussian couplings (N, N) of mean `mean`/N and variance `std`²/N, zero diagonal.

    `symmetry` is η = E[J_ij J_ji]/E[J_ij²] of the centred couplings, in [−1, 1]: 1 gives a spin
    glass, 0 independent J_ij and J_ji, −1 antisymmetric ones. J = mean/N + std (√((1+η)/2) S +
    √((1−η)/2) A) with S symmetric and A antisymmetric of unit variance [crisanti1988dynamics].
    Raises ValueError or TypeError for numbers out of range.

    >>> couplings = gaussian_couplings(4, symmetry=1.0, seed=0)
    >>> bool((couplings == couplings.T).all()), float(np.trace(couplings))
    (True, 0.0)
    """
    size = check_integer("size", size, low=1, high=MAX_SIZE)
    symmetry = check_real("symmetry", symmetry, low=-1.0, high=1.0)
    mean, std = check_real("mean", mean), check_real("std", std, low=0.0)
    draws = numpy_generator(seed).standard_normal((2, size, size)) / np.sqrt(size)
    even, odd = np.triu(draws, 1)
    result = np.sqrt(0.5 * (1.0 + symmetry)) * (even + even.T)
    result += np.sqrt(0.5 * (1.0 - symmetry)) * (odd - odd.T)
    result *= std
    result += mean / size
    np.fill_diagonal(result, 0.0)
    return result


def symmetry_of_asymmetry(asymmetry: float) -> float:
    """η = (1 − k²)/(1 + k²) of couplings S + kA, k the `asymmetry` in [0, 1].

    Half of the literature tunes k, from 0 (symmetric) to 1 (independent), instead of η.

    >>> [symmetry_of_asymmetry(k) for k in (0.0, 0.5, 1.0)]
    [1.0, 0.6, 0.0]
    """
    k = check_real("asymmetry", asymmetry, low=0.0, high=1.0)
    return (1.0 - k**2) / (1.0 + k**2)


def check_couplings(couplings: np.ndarray, *, name: str = "couplings") -> np.ndarray:
    """Return J (..., N, N) if it is symmetric and zero on the diagonal, else ValueError.

    >>> check_couplings(np.eye(2))
    Traceback (most recent call last):
    ValueError: couplings must have a zero diagonal, got entries up to 1 on it
    """
    matrix = check_array(name, couplings, symmetric=True)
    diagonal = np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)).max(initial=0.0)
    if diagonal:
        raise ValueError(
            f"{name} must have a zero diagonal, got entries up to {diagonal:.6g} on it"
        )
    return matrix


def check_ising(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, limit: float = MAX_STRENGTH
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return J (..., N, N) and h (..., N), broadcast to one batch, and β; or raise.

    ValueError if J is not square, symmetric and zero on the diagonal, if h does not fit, or if
    β is negative or β times the largest coupling or field exceeds `limit`.

    >>> j, h, beta = check_ising(np.zeros((2, 2)), fields=np.ones((5, 2)), beta=1)
    >>> j.shape, h.shape
    ((5, 2, 2), (5, 2))
    """
    matrix = check_couplings(couplings)
    field = check_array("fields", fields)
    size = matrix.shape[-1]
    if field.ndim == 0 or field.shape[-1] != size:
        raise ValueError(f"fields must have shape (..., {size}), got {field.shape}")
    batch = check_broadcast(couplings=matrix.shape[:-2], fields=field.shape[:-1])
    beta = check_strength(beta, limit=limit, couplings=matrix, fields=field)
    return (
        np.broadcast_to(matrix, (*batch, size, size)),
        np.broadcast_to(field, (*batch, size)),
        beta,
    )


def check_strength(beta: float, *, limit: float = MAX_STRENGTH, **arrays: np.ndarray) -> float:
    """Return β if it is not negative and keeps β times every entry of `arrays` within `limit`.

    >>> check_strength(1e50, fields=np.array([1e50]))
    Traceback (most recent call last):
    ValueError: beta must keep beta * fields within 1e+90, got 1e+100
    """
    beta = check_real("beta", beta, low=0.0)
    for name, array in arrays.items():
        strength = beta * float(np.abs(array).max(initial=0.0))
        if not strength <= limit:
            raise ValueError(f"beta must keep beta * {name} within {limit:g}, got {strength:.6g}")
    return beta
