"""Exact statistics of Ising systems of up to 20 spins, by summing over all 2^N states.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once (`couplings.pair_couplings` converts),
J (..., N, N) symmetric with zero diagonal, h (..., N), weights exp(−βE), s_i = ±1; entropies and
ln Z in nats.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from spinformer.core.checks import check_broadcast, check_real, check_tensor
from spinformer.core.records import record
from spinformer.core.states import MAX_LISTED_SPINS, spin_states
from spinformer.spins.ising.couplings import check_ising

# Elements of the table of states held at once for a batch of small systems.
_CHUNK = 1 << 21


@record
class IsingStatistics:
    """Exact averages of one system or a batch (leading axes `...`).

    log_partition (...): ln Z. magnetization (..., N): ⟨s_i⟩. correlations (..., N, N):
    ⟨s_i s_j⟩. energy (...): ⟨E⟩. entropy (...): −Σ p ln p. states: 2^N. multiply_adds: the
    multiply-add operations of the matrix products that were carried out for one system.
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
        """F = −ln Z/β (minus infinity at β = 0)."""
        return free_energy(self.log_partition, beta=self.beta)

    @property
    def susceptibility(self) -> np.ndarray:
        """d⟨s_i⟩/d(βh_j) = ⟨s_i s_j⟩ − ⟨s_i⟩⟨s_j⟩, shape (..., N, N)."""
        m = self.magnetization
        return self.correlations - m[..., :, None] * m[..., None, :]


def free_energy(log_partition: np.ndarray, *, beta: float) -> np.ndarray:
    """F = −ln Z/β, minus infinity at β = 0 where the entropy rules.

    >>> float(free_energy(np.array(3.0), beta=2.0)), float(free_energy(np.array(3.0), beta=0.0))
    (-1.5, -inf)
    """
    return -log_partition / beta if beta else np.full_like(log_partition, -np.inf)


def solve_exact(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> IsingStatistics:
    """Sum over all states, in log space, of one system or a batch; 1 ≤ N ≤ 20, β ≥ 0.

    The spins are split into two halves, so that all 2^N energies are one matrix product of the
    halves' state tables and every average is a product with the table of probabilities; no list
    of N-spin states is ever built. Raises ValueError for other couplings, fields or β.

    >>> pair = solve_exact(np.array([[0.0, 1.0], [1.0, 0.0]]), fields=np.zeros(2), beta=0.5)
    >>> f"{pair.correlations[0, 1]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta)
    size = _at_most("couplings", matrix.shape[-1])
    batch = field.shape[:-1]
    flat_j, flat_h = matrix.reshape(-1, size, size), field.reshape(-1, size)
    count = len(flat_h)
    log_z = np.empty(count)
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


def ising_log_partition(
    couplings: torch.Tensor, *, fields: torch.Tensor, beta: float | torch.Tensor
) -> torch.Tensor:
    """Differentiable exact ln Z, shape (...), of the same model in torch.

    Same shapes and convention as `solve_exact`, except that a diagonal is allowed and left out;
    works in the dtype and on the device of its arguments, and may be differentiated any number
    of times with respect to couplings (each of the two triangles carries half of a pair), fields
    and beta (a tensor without axes). Raises TypeError for anything but floating-point tensors of
    one kind, ValueError for other shapes, NaN, a negative β and more than 20 spins.

    >>> field = torch.tensor([0.3], requires_grad=True)
    >>> ising_log_partition(torch.zeros(1, 1), fields=field, beta=1.0).backward()
    >>> f"{float(field.grad):.4f} {np.tanh(0.3):.4f}"
    '0.2913 0.2913'
    """
    matrix = check_tensor("couplings", couplings, symmetric=True)
    field = check_tensor("fields", fields, like=("couplings", matrix))
    size = _at_most("couplings", matrix.shape[-1])
    if field.ndim == 0 or field.shape[-1] != size:
        raise ValueError(f"fields must have shape (..., {size}), got {tuple(field.shape)}")
    check_broadcast(couplings=matrix.shape[:-2], fields=field.shape[:-1])
    if isinstance(beta, torch.Tensor):
        beta = check_tensor("beta", beta, shape=(), low=0.0)
    else:
        beta = check_real("beta", beta, low=0.0)
    left = (size + 1) // 2
    a, b = (torch.tensor(spin_states(half)).to(field) for half in (left, size - left))
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
) -> IsingStatistics:
    """The averages of one system by a plain loop over its states; `multiply_adds` is zero.

    The slow version that `solve_exact` is held to; use it up to about 12 spins. Raises
    ValueError as `solve_exact`, and for a batch.

    >>> plain = solve_exact_reference(np.zeros((1, 1)), fields=np.array([0.5]), beta=1.0)
    >>> f"{plain.magnetization[0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta)
    if field.ndim != 1:
        raise ValueError(f"fields must have shape (N,) for one system, got {field.shape}")
    size = _at_most("couplings", len(field))
    states = [np.array(s, float) for s in itertools.product((-1, 1), repeat=size)]
    energies = [-(0.5 * s @ matrix @ s + field @ s) for s in states]
    top = max(-beta * e for e in energies)
    log_z = top + math.log(math.fsum(math.exp(-beta * e - top) for e in energies))
    spins, pairs, energy, entropy = np.zeros_like(field), np.zeros_like(matrix), 0.0, 0.0
    for s, e in zip(states, energies, strict=True):
        p = math.exp(-beta * e - log_z)
        spins = spins + p * s
        pairs = pairs + p * np.outer(s, s)
        energy += p * e
        entropy += p * (beta * e + log_z)
    return IsingStatistics(
        beta=beta,
        log_partition=np.array(log_z),
        magnetization=spins,
        correlations=pairs,
        energy=np.array(energy),
        entropy=np.array(entropy),
        states=len(states),
        multiply_adds=0,
    )


def _sum_states(k: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ln Z (B,), <s> (B, N), <ss> (B, N, N) for K = beta J (B, N, N), theta = beta h (B, N)."""
    count, size = theta.shape
    left = (size + 1) // 2
    a, b = spin_states(left), spin_states(size - left)
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


def _at_most(name: str, size: int) -> int:
    if size > MAX_LISTED_SPINS:
        raise ValueError(
            f"{name} must describe at most {MAX_LISTED_SPINS} spins (2^N states are summed), "
            f"got {size}"
        )
    return size
