"""Exact statistics of Ising systems of up to 20 spins, by summing over all 2^N states.

Convention of this module and of `mean_field`: E = -sum_{i<j} J_ij s_i s_j - sum_i h_i s_i
with J symmetric and zero on the diagonal, weights exp(-beta E), s_i = +1 or -1. Document 000,
Eq. (binaryrandomising), sums over ordered pairs: `pair_couplings` converts.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from spinformer.core.checks import check_array, check_integer, check_real, check_tensor

MAX_SPINS = 20

# Elements of the table of states held at once for a batch of small systems.
_CHUNK = 1 << 21


@dataclass(frozen=True)
class IsingStatistics:
    """Exact averages of one system or a batch (leading axes `...`).

    log_partition (...): ln Z. magnetization (..., N): <s_i>. correlations (..., N, N):
    <s_i s_j>. energy (...): <E>. entropy (...): -sum p ln p, in nats. states: 2^N.
    multiply_adds: the multiply-add operations of the matrix products that were carried out
    for one system.
    """

    beta: float
    log_partition: np.ndarray
    magnetization: np.ndarray
    correlations: np.ndarray
    energy: np.ndarray
    entropy: np.ndarray
    states: int
    multiply_adds: int

    @property
    def free_energy(self) -> np.ndarray:
        """F = -ln Z / beta (minus infinity at beta = 0)."""
        if self.beta == 0:
            return np.full_like(self.log_partition, -np.inf)
        return -self.log_partition / self.beta

    @property
    def susceptibility(self) -> np.ndarray:
        """d<s_i>/d(beta h_j) = <s_i s_j> - <s_i><s_j>, shape (..., N, N)."""
        m = self.magnetization
        return self.correlations - m[..., :, None] * m[..., None, :]


def pair_couplings(couplings: np.ndarray) -> np.ndarray:
    """Couplings of unordered pairs, J_ij + J_ji with zero diagonal, from ordered ones.

    In the document's sum over all i, j a pair enters twice; the diagonal adds the constant
    -sum_i J_ii to the energy (s_i^2 = 1), which is dropped here. Shape (..., N, N) kept.
    """
    matrix = _square("couplings", check_array("couplings", couplings))
    return (matrix + matrix.swapaxes(-1, -2)) * (1 - np.eye(matrix.shape[-1]))


def sherrington_kirkpatrick(
    size: int, *, seed: int, count: int | None = None, field_std: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Random couplings and fields of the Sherrington-Kirkpatrick model, Gaussian.

    J_ij = J_ji of mean 0 and variance 1/N for unordered pairs, zero diagonal, and fields of
    standard deviation `field_std`. Shapes (N, N) and (N,), or (count, N, N) and (count, N).
    In the document's ordered pairs the same system has half of these couplings.
    """
    check_integer("size", size, low=1)
    check_integer("seed", seed, low=0)
    check_real("field_std", field_std, low=0.0)
    batch = () if count is None else (check_integer("count", count, low=1),)
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.standard_normal((*batch, size, size)), 1) / math.sqrt(size)
    return upper + upper.swapaxes(-1, -2), field_std * rng.standard_normal((*batch, size))


def check_ising(couplings: np.ndarray, *, fields: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return J (..., N, N) and h (..., N), broadcast to one batch, or raise.

    ValueError if J is not square, symmetric and zero on the diagonal, or h does not fit.
    """
    matrix = _square("couplings", check_array("couplings", couplings))
    check_array("couplings", matrix, symmetric=True)
    if np.any(np.diagonal(matrix, axis1=-2, axis2=-1)):
        raise ValueError("couplings must have a zero diagonal, got non-zero entries on it")
    field = check_array("fields", fields)
    size = matrix.shape[-1]
    if field.ndim == 0 or field.shape[-1] != size:
        raise ValueError(f"fields must have shape (..., {size}), got {field.shape}")
    try:
        batch = np.broadcast_shapes(matrix.shape[:-2], field.shape[:-1])
    except ValueError:
        raise ValueError(
            f"couplings and fields must have batch axes that broadcast, "
            f"got {matrix.shape} and {field.shape}"
        ) from None
    return np.broadcast_to(matrix, (*batch, size, size)), np.broadcast_to(field, (*batch, size))


def solve_exact(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> IsingStatistics:
    """Sum over all states of E = -sum_{i<j} J_ij s_i s_j - sum_i h_i s_i, in log space.

    `couplings` (..., N, N) symmetric with zero diagonal, `fields` (..., N), 1 <= N <= 20,
    `beta` >= 0. The spins are split into two halves, so that all 2^N energies are one matrix
    product of the halves' state tables and every average is a product with the table of
    probabilities; no list of N-spin states is ever built.
    """
    matrix, field = check_ising(couplings, fields=fields)
    beta = check_real("beta", beta, low=0.0)
    size = matrix.shape[-1]
    if size > MAX_SPINS:
        raise ValueError(
            f"couplings must describe at most {MAX_SPINS} spins (2^N states are summed), got {size}"
        )
    batch = field.shape[:-1]
    flat_j, flat_h = matrix.reshape(-1, size, size), field.reshape(-1, size)
    count = len(flat_h)
    log_z, entropy = np.empty(count), np.empty(count)
    spins, pairs = np.empty((count, size)), np.empty((count, size, size))
    chunk = max(1, _CHUNK >> size)
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        log_z[part], spins[part], pairs[part] = _sum_states(
            beta * flat_j[part], beta * flat_h[part]
        )
    energy = -0.5 * np.einsum("bij,bij->b", flat_j, pairs) - np.einsum("bi,bi->b", flat_h, spins)
    entropy = log_z + beta * energy
    left = (size + 1) // 2
    return IsingStatistics(
        beta=beta,
        log_partition=log_z.reshape(batch),
        magnetization=spins.reshape(*batch, size),
        correlations=pairs.reshape(*batch, size, size),
        energy=energy.reshape(batch),
        entropy=entropy.reshape(batch),
        states=1 << size,
        multiply_adds=_multiply_adds(left, size - left),
    )


def log_partition(
    couplings: torch.Tensor, *, fields: torch.Tensor, beta: float | torch.Tensor
) -> torch.Tensor:
    """Differentiable exact ln Z, shape (...), of the same model in torch.

    Same shapes and convention as `solve_exact`; works in the dtype and on the device of its
    arguments, and may be differentiated any number of times with respect to couplings (each
    of the two triangles carries half of a pair), fields and beta.
    """
    matrix = _square("couplings", check_tensor("couplings", couplings, symmetric=True))
    field = check_tensor("fields", fields)
    size = matrix.shape[-1]
    if field.ndim == 0 or field.shape[-1] != size:
        raise ValueError(f"fields must have shape (..., {size}), got {tuple(field.shape)}")
    if size > MAX_SPINS:
        raise ValueError(f"couplings must describe at most {MAX_SPINS} spins, got {size}")
    left = (size + 1) // 2
    a = torch.tensor(_half_states(left), dtype=field.dtype, device=field.device)
    b = torch.tensor(_half_states(size - left), dtype=field.dtype, device=field.device)
    # The diagonal is constant on states and is left out, as in the energy.
    pair = matrix - torch.diag_embed(torch.diagonal(matrix, dim1=-2, dim2=-1))
    aa, ab, bb = pair[..., :left, :left], pair[..., :left, left:], pair[..., left:, left:]
    ba = pair[..., left:, :left]
    cross = 0.5 * (a @ ab @ b.mT + (b @ ba @ a.mT).mT)
    row = 0.5 * ((a @ aa) * a).sum(-1) + field[..., :left] @ a.mT
    column = 0.5 * ((b @ bb) * b).sum(-1) + field[..., left:] @ b.mT
    exponent = beta * (row[..., :, None] + cross + column[..., None, :])
    return torch.logsumexp(exponent.flatten(-2), -1)


def solve_exact_reference(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """ln Z, <s>, <s s^T> and the entropy of one system by a plain loop over its states.

    The slow version that `solve_exact` is held to; use it up to about 12 spins.
    """
    matrix, field = check_ising(couplings, fields=fields)
    beta = check_real("beta", beta, low=0.0)
    states = [np.array(s, float) for s in itertools.product((-1, 1), repeat=field.shape[-1])]
    weights = [beta * (0.5 * s @ matrix @ s + field @ s) for s in states]
    top = max(weights)
    total = math.fsum(math.exp(w - top) for w in weights)
    log_z = top + math.log(total)
    spins, pairs, entropy = np.zeros_like(field), np.zeros_like(matrix), 0.0
    for s, w in zip(states, weights, strict=True):
        p = math.exp(w - log_z)
        spins = spins + p * s
        pairs = pairs + p * np.outer(s, s)
        entropy -= p * (w - log_z)
    return log_z, spins, pairs, entropy


@lru_cache(maxsize=32)
def _half_states(size: int) -> np.ndarray:
    """All 2^size states of `size` spins, one a row."""
    bits = (np.arange(1 << size)[:, None] >> np.arange(size)) & 1
    table = 2.0 * bits - 1.0
    table.setflags(write=False)
    return table


def _sum_states(k: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ln Z (B,), <s> (B, N), <ss> (B, N, N) for K = beta J (B, N, N), theta = beta h (B, N)."""
    count, size = theta.shape
    left = (size + 1) // 2
    a, b = _half_states(left), _half_states(size - left)
    exponent = (a @ k[:, :left, left:]) @ b.T
    row = 0.5 * ((a @ k[:, :left, :left]) * a).sum(-1) + (a * theta[:, None, :left]).sum(-1)
    column = 0.5 * ((b @ k[:, left:, left:]) * b).sum(-1) + (b * theta[:, None, left:]).sum(-1)
    exponent += row[:, :, None] + column[:, None, :]
    top = exponent.max((1, 2))
    exponent -= top[:, None, None]
    weight = np.exp(exponent, out=exponent)
    row_weight, column_weight = weight.sum(2), weight.sum(1)
    total = row_weight.sum(1)
    row_p, column_p = row_weight / total[:, None], column_weight / total[:, None]
    spins = np.empty((count, size))
    spins[:, :left] = (row_p[:, :, None] * a).sum(1)
    spins[:, left:] = (column_p[:, :, None] * b).sum(1)
    pairs = np.empty((count, size, size))
    pairs[:, :left, :left] = a.T @ (row_p[:, :, None] * a)
    pairs[:, left:, left:] = b.T @ (column_p[:, :, None] * b)
    cross = a.T @ ((weight @ b) / total[:, None, None])
    pairs[:, :left, left:] = cross
    pairs[:, left:, :left] = cross.swapaxes(1, 2)
    return top + np.log(total), spins, pairs


def _multiply_adds(left: int, right: int) -> int:
    """Multiply-adds of the products in `_sum_states`, one system."""
    rows, columns = 1 << left, 1 << right
    energies = rows * left * right + rows * columns * right
    halves = rows * left * (left + 2) + columns * right * (right + 2)
    averages = rows * columns * right + rows * left * right
    moments = rows * left * (left + 1) + columns * right * (right + 1)
    return energies + halves + averages + moments


def _square(name: str, matrix):
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., N, N), got {tuple(matrix.shape)}")
    return matrix
