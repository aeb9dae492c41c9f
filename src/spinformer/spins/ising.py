"""Exact statistics of Ising spins by enumeration, and random couplings.

The model is the Ising model with pairwise couplings, E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i with
s_i = ±1. Every pair is counted once, J (..., N, N) is symmetric and zero on the diagonal, h has the
shape (..., N), and states have the Boltzmann weights exp(−βE). Entropies and ln Z are in nats.
[bal2021transformers, Eq. (binaryrandomising)] sums over ordered pairs instead, so that a pair
couples with J_ij + J_ji: `pair_couplings` converts from that convention.

`solve_exact` and `ising_log_partition` sum over all states; `sherrington_kirkpatrick` and
`gaussian_couplings` draw spin-glass couplings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.states import MAX_LISTED_SPINS, spin_states

if TYPE_CHECKING:
    import torch

# What rounding may change of an exponent βE, a sum over the whole system: beyond, a field of one
# beside couplings of 1e16 would be lost without a word.
_LOST = 1e-4
_MAX_STRENGTH = _LOST / float(np.finfo(np.float64).eps)
# Largest coupling or field: their squares, summed over a system, stay finite at β = 0, too.
_MAX_ENTRY = 1e150

# Elements of the table of states held at once for a batch of small systems.
_CHUNK = 1 << 21


@record
class IsingStatistics:
    """Exact equilibrium averages of one Ising system or of a batch of them.

    Leading axes `...` are those of the batch.

    Attributes
    ----------
    beta : float
        Inverse temperature, outside of the energy.
    log_partition : ndarray, shape (...)
        Logarithm of the partition function, ln Z, in nats.
    magnetization : ndarray, shape (..., N)
        Mean spins ⟨s_i⟩.
    correlations : ndarray, shape (..., N, N)
        Second moments ⟨s_i s_j⟩; the means are not subtracted.
    energy : ndarray, shape (...)
        Mean energy ⟨E⟩.
    entropy : ndarray, shape (...)
        Gibbs entropy −Σ p ln p, in nats.
    """

    beta: float
    log_partition: np.ndarray
    magnetization: np.ndarray
    correlations: np.ndarray
    energy: np.ndarray
    entropy: np.ndarray

    @property
    def free_energy(self) -> np.ndarray:
        """Helmholtz free energy F = −ln Z/β, shape (...).

        At β = 0, where the entropy dominates, it is minus infinity.
        """
        with np.errstate(divide="ignore", over="ignore"):
            return -self.log_partition / np.float64(self.beta)

    @property
    def susceptibility(self) -> np.ndarray:
        """Susceptibility d⟨s_i⟩/d(βh_j), the connected correlations, shape (..., N, N).

        By the fluctuation–dissipation theorem it equals ⟨s_i s_j⟩ − ⟨s_i⟩⟨s_j⟩.
        """
        m = self.magnetization
        return self.correlations - m[..., :, None] * m[..., None, :]


def solve_exact(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> IsingStatistics:
    r"""Compute ln Z and all first and second moments by exact enumeration of the states.

    The sum runs over all 2^N states, in log space, so that it does not overflow at large β. All
    energies come from one matrix product of the tables of states of two halves of the spins.

    Parameters
    ----------
    couplings : ndarray, shape (..., N, N)
        Couplings J, symmetric with zero diagonal, for 1 ≤ N ≤ 20 spins.
    fields : ndarray, shape (..., N)
        External fields h; they broadcast against the batch of the couplings.
    beta : float
        Inverse temperature β ≥ 0, in units of one over energy.

    Returns
    -------
    IsingStatistics
        The averages of every system of the batch.

    Raises
    ------
    ValueError
        If the couplings are not symmetric with zero diagonal, if there are more than 20 spins, if
        shapes do not fit, or if β times the summed absolute couplings and fields of a system
        exceeds 4.5e11. Beyond that an exponent would lose more than 1e-4 to rounding.

    Notes
    -----
    With the convention of one term for each pair,

    .. math::

        Z = \sum_{s \in \{-1, 1\}^N}
            \exp\Big[\beta \sum_{i<j} J_{ij} s_i s_j + \beta \sum_i h_i s_i\Big].

    Examples
    --------
    >>> pair = solve_exact(np.array([[0.0, 1.0], [1.0, 0.0]]), fields=np.zeros(2), beta=0.5)
    >>> f"{pair.correlations[0, 1]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta)
    size = _few_enough(matrix.shape[-1])
    batch = field.shape[:-1]
    flat_j = matrix.reshape(-1, size, size)
    flat_h = field.reshape(-1, size)
    chunk = max(1, _CHUNK >> size)
    parts = [slice(first, first + chunk) for first in range(0, max(len(flat_h), 1), chunk)]
    sums = [_sum_states(beta * flat_j[part], beta * flat_h[part]) for part in parts]
    log_z = np.concatenate([part.log_partition for part in sums])
    spins = np.concatenate([part.spins for part in sums])
    pairs = np.concatenate([part.pairs for part in sums])
    energy = -0.5 * np.einsum("bij,bij->b", flat_j, pairs) - np.einsum("bi,bi->b", flat_h, spins)
    return IsingStatistics(
        beta=beta,
        log_partition=log_z.reshape(batch),
        magnetization=spins.reshape(*batch, size),
        correlations=pairs.reshape(*batch, size, size),
        energy=energy.reshape(batch),
        entropy=(log_z + beta * energy).reshape(batch),
    )


def ising_log_partition(
    couplings: torch.Tensor, *, fields: torch.Tensor, beta: float | torch.Tensor
) -> torch.Tensor:
    """Compute the exact ln Z of the Ising model in torch, differentiable to any order.

    Convention and shapes are those of `solve_exact`, except that a diagonal of the couplings is
    allowed and left out. The first derivatives by the fields are β times the magnetizations.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Symmetric couplings J in single or double precision, N ≤ 20. In the derivative each of the
        two triangles carries half of a pair.
    fields : Tensor, shape (..., N)
        External fields h, of the same dtype and device.
    beta : float or Tensor
        Inverse temperature β ≥ 0; a tensor has no axes, and the result is differentiable by it.

    Returns
    -------
    Tensor, shape (...)
        Logarithm of the partition function, in nats.

    Raises
    ------
    TypeError
        If a tensor is neither in single nor in double precision, or dtypes differ.
    ValueError
        If shapes do not fit, there are more than 20 spins, or β times the summed absolute couplings
        and fields exceeds 838 in single or 4.5e11 in double precision, where rounding would take
        more than 1e-4 of an exponent.

    Examples
    --------
    >>> import torch
    >>> field = torch.tensor([0.3], requires_grad=True)
    >>> ising_log_partition(torch.zeros(1, 1), fields=field, beta=1.0).backward()
    >>> f"{float(field.grad):.4f} {np.tanh(0.3):.4f}"
    '0.2913 0.2913'
    """
    import torch  # sums in NumPy need not wait for it

    from spinformer.spins import large_d

    matrix = check_tensor("couplings", couplings, symmetric=True)
    if matrix.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"couplings must be torch.float32 or torch.float64, got {matrix.dtype}")
    size = _few_enough(matrix.shape[-1])
    field = check_tensor("fields", fields, like=("couplings", matrix), shape=(..., size))
    check_broadcast(couplings=matrix.shape[:-2], fields=field.shape[:-1])
    if isinstance(beta, torch.Tensor):
        beta = check_tensor("beta", beta, shape=(), low=0.0)
    else:
        beta = check_real("beta", beta, low=0.0)
    pair = 0.5 * large_d.pair_couplings(matrix)
    _check_precision(pair.detach(), field.detach(), beta)
    left, right = _halves(size)
    a = torch.tensor(left).to(field)
    b = torch.tensor(right).to(field)
    return torch.logsumexp(_exponents(beta * pair, beta * field, a, b).flatten(-2), -1)


def _check_precision(pair: torch.Tensor, field: torch.Tensor, beta: float | torch.Tensor) -> None:
    """ValueError where rounding would take more than `_LOST` of an exponent."""
    import torch

    from spinformer.core.operators import is_traced

    if is_traced() or pair.is_meta:
        return
    limit = _LOST / torch.finfo(pair.dtype).eps
    pulls = pair.abs().sum((-2, -1)) + field.abs().sum(-1)
    inverse_temperature = beta.detach().item() if isinstance(beta, torch.Tensor) else beta
    strength = inverse_temperature * float(pulls.max()) if pulls.numel() else 0.0
    if not strength <= limit:
        raise ValueError(_too_strong(("couplings", "fields"), limit, strength))


def _too_strong(names: tuple[str, ...], limit: float, strength: float) -> str:
    terms = " and ".join(f"beta * {name}" for name in names)
    return (
        f"beta must keep {terms}, in absolute value summed over a system, within {limit:.3g}, "
        f"beyond which small terms are lost in rounding, got {strength:.6g}"
    )


def _halves(size: int) -> tuple[np.ndarray, np.ndarray]:
    left = (size + 1) // 2
    return spin_states(left), spin_states(size - left)


def _exponents(k: Any, theta: Any, a: Any, b: Any) -> Any:
    """−βE of all pairs of states of the two halves, for K = βJ and θ = βh, NumPy's or torch's."""
    left = a.shape[-1]
    cross = (a @ k[..., :left, left:]) @ b.T
    row = 0.5 * ((a @ k[..., :left, :left]) * a).sum(-1) + (a * theta[..., None, :left]).sum(-1)
    column = 0.5 * ((b @ k[..., left:, left:]) * b).sum(-1) + (b * theta[..., None, left:]).sum(-1)
    return cross + (row[..., :, None] + column[..., None, :])


class _StateSums(NamedTuple):
    """ln Z (B,), ⟨s⟩ (B, N) and ⟨s s⟩ (B, N, N) of B systems."""

    log_partition: np.ndarray
    spins: np.ndarray
    pairs: np.ndarray


def _sum_states(k: np.ndarray, theta: np.ndarray) -> _StateSums:
    """Averages over all states, for K = βJ (B, N, N) and θ = βh (B, N)."""
    a, b = _halves(theta.shape[1])
    left = a.shape[1]
    exponent = _exponents(k, theta, a, b)
    top = exponent.max((1, 2))
    exponent -= top[:, None, None]
    weight = np.exp(exponent, out=exponent)
    row_weight = weight.sum(2)
    column_weight = weight.sum(1)
    total = row_weight.sum(1)
    rows = (row_weight / total[:, None])[:, :, None] * a
    columns = (column_weight / total[:, None])[:, :, None] * b
    spins = np.concatenate([rows.sum(1), columns.sum(1)], axis=1)
    pairs = np.empty_like(k)
    pairs[:, :left, :left] = a.T @ rows
    pairs[:, left:, left:] = b.T @ columns
    cross = a.T @ ((weight @ b) / total[:, None, None])
    pairs[:, :left, left:] = cross
    pairs[:, left:, :left] = cross.swapaxes(1, 2)
    return _StateSums(top + np.log(total), spins, pairs)


def _few_enough(size: int) -> int:
    if size > MAX_LISTED_SPINS:
        raise ValueError(
            f"couplings must describe at most {MAX_LISTED_SPINS} spins (2^N states are summed), "
            f"got {size}"
        )
    return size


def sherrington_kirkpatrick(
    size: int, *, seed: Seed, count: int | None = None, field_std: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the couplings and fields of the Sherrington–Kirkpatrick spin glass.

    Parameters
    ----------
    size : int
        Number N of spins, at least 1.
    seed : Seed
        Seed or random generator; the same seed gives the same couplings.
    count : int, optional
        Number of independent samples (disorder realizations); None draws one without a batch axis.
    field_std : float, default 0
        Standard deviation of the Gaussian fields, in units of energy.

    Returns
    -------
    couplings : ndarray, shape (N, N) or (count, N, N)
        Symmetric couplings J_ij = J_ji of mean 0 and variance 1/N, with zero diagonal.
    fields : ndarray, shape (N,) or (count, N)
        Gaussian fields of mean 0.

    Raises
    ------
    ValueError
        If `size` or `count` is below 1, or `field_std` is negative.

    References
    ----------
    [sherrington1975solvable]

    Examples
    --------
    >>> couplings, fields = sherrington_kirkpatrick(3, seed=0, count=2, field_std=0.5)
    >>> couplings.shape, fields.shape, bool((couplings == couplings.swapaxes(1, 2)).all())
    ((2, 3, 3), (2, 3), True)
    """
    size = check_integer("size", size, low=1)
    check_real("field_std", field_std, low=0.0, high=_MAX_ENTRY)
    batch = () if count is None else (check_integer("count", count, low=1),)
    rng = numpy_generator(seed)
    upper = np.triu(rng.standard_normal((*batch, size, size)), 1) / math.sqrt(size)
    return upper + upper.swapaxes(-1, -2), field_std * rng.standard_normal((*batch, size))


def gaussian_couplings(
    size: int, *, seed: Seed, symmetry: float = 0.0, mean: float = 0.0, std: float = 1.0
) -> np.ndarray:
    r"""Draw Gaussian couplings between a spin glass and an asymmetric network.

    The degree of symmetry η interpolates between symmetric couplings (a spin glass, which has an
    energy), independent J_ij and J_ji (fully asymmetric), and antisymmetric couplings.

    Parameters
    ----------
    size : int
        Number N of spins, at least 1.
    seed : Seed
        Seed or random generator.
    symmetry : float, default 0
        Degree of symmetry η = E[J_ij J_ji]/E[J_ij²] of the centred couplings, between −1 and 1: 1
        gives a spin glass, 0 independent J_ij and J_ji, −1 antisymmetric couplings.
    mean : float, default 0
        Coupling strength of the mean; every J_ij has the mean `mean`/N.
    std : float, default 1
        Coupling strength of the disorder; every J_ij has the variance (`std`)²/N.

    Returns
    -------
    ndarray, shape (N, N)
        Couplings with zero diagonal; row i holds the couplings into spin i.

    Raises
    ------
    ValueError
        If `symmetry` is outside of [−1, 1], `size` is below 1, or `std` is negative.

    Notes
    -----
    With S symmetric and A antisymmetric, both with Gaussian entries of unit variance over N,

    .. math::

        J = \frac{\mathrm{mean}}{N}
            + \mathrm{std} \left(\sqrt{\frac{1+\eta}{2}}\, S + \sqrt{\frac{1-\eta}{2}}\, A\right).

    References
    ----------
    [crisanti1988dynamics]

    Examples
    --------
    >>> couplings = gaussian_couplings(4, symmetry=1.0, seed=0)
    >>> bool((couplings == couplings.T).all()), float(np.trace(couplings))
    (True, 0.0)
    """
    size = check_integer("size", size, low=1)
    symmetry = check_real("symmetry", symmetry, low=-1.0, high=1.0)
    mean = check_real("mean", mean, low=-_MAX_ENTRY, high=_MAX_ENTRY)
    std = check_real("std", std, low=0.0, high=_MAX_ENTRY)
    even, odd = np.triu(numpy_generator(seed).standard_normal((2, size, size)) / np.sqrt(size), 1)
    result = np.sqrt(0.5 * (1.0 + symmetry)) * (even + even.T)
    result += np.sqrt(0.5 * (1.0 - symmetry)) * (odd - odd.T)
    result = std * result + mean / size
    np.fill_diagonal(result, 0.0)
    return result


def pair_couplings(ordered: np.ndarray) -> np.ndarray:
    """Convert couplings of ordered pairs to couplings of unordered pairs.

    In a sum over all i and j a pair enters twice, so that it couples with J_ij + J_ji. The diagonal
    only adds the constant −Σ_i J_ii to the energy, since s_i² = 1, and it is dropped here.

    Parameters
    ----------
    ordered : ndarray, shape (..., N, N)
        Couplings J of the energy −Σ_{i,j} J_ij s_i s_j, any real matrix.

    Returns
    -------
    ndarray, shape (..., N, N)
        The symmetric matrix J + Jᵀ with zero diagonal, for the energy −Σ_{i<j}.

    Raises
    ------
    ValueError
        If the last two axes are not square, or entries are not finite.

    Examples
    --------
    >>> pair_couplings(np.array([[5.0, 1.0], [2.0, 5.0]]))
    array([[0., 3.],
           [3., 0.]])
    """
    matrix = check_array("ordered", ordered, square=True, low=-_MAX_ENTRY, high=_MAX_ENTRY)
    return (matrix + matrix.swapaxes(-1, -2)) * (1 - np.eye(matrix.shape[-1]))


def check_ising(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    limit: float = math.inf,
    single: bool = False,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Check couplings, fields and temperature of the Ising model and broadcast them to one batch.

    Parameters
    ----------
    couplings : ndarray, shape (..., N, N)
        Couplings J, to be symmetric with zero diagonal.
    fields : ndarray, shape (..., N)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0.
    limit : float, default inf
        Largest allowed absolute entry of βJ and βh.
    single : bool, default False
        Whether only one system is allowed, without batch axes.

    Returns
    -------
    couplings : ndarray, shape (..., N, N)
        The couplings, broadcast to the batch (a read-only view).
    fields : ndarray, shape (..., N)
        The fields, broadcast to the batch (a read-only view).
    beta : float
        The inverse temperature.

    Raises
    ------
    ValueError
        If J is not square, symmetric and zero on the diagonal, if h does not fit, if β is negative,
        if an entry of βJ or βh exceeds `limit`, if the energy of a system has more digits than
        double precision (see `check_strength`), or, with `single`, for a batch of systems.
    """
    matrix = check_array("couplings", couplings, symmetric=True)
    field = check_array("fields", fields, shape=(..., matrix.shape[-1]))
    diagonal = np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)).max(initial=0.0)
    if diagonal:
        raise ValueError(
            f"couplings must have a zero diagonal, got entries up to {diagonal:.6g} on it"
        )
    batch = check_broadcast(couplings=matrix.shape[:-2], fields=field.shape[:-1])
    if single and batch:
        raise ValueError(f"couplings and fields must be those of one system, got batch {batch}")
    beta = check_strength(beta, limit=limit, couplings=matrix, fields=field)
    shape = (*batch, *matrix.shape[-2:])
    return np.broadcast_to(matrix, shape), np.broadcast_to(field, shape[:-1]), beta


def check_strength(
    beta: float, *, couplings: np.ndarray, fields: np.ndarray, limit: float = math.inf
) -> float:
    """Check that double precision resolves the energies of a system in units of the temperature.

    Parameters
    ----------
    beta : float
        Inverse temperature β ≥ 0.
    couplings : ndarray, shape (..., N, N)
        Couplings J.
    fields : ndarray, shape (..., N)
        External fields h.
    limit : float, default inf
        Largest allowed absolute entry of βJ and βh.

    Returns
    -------
    float
        The inverse temperature.

    Raises
    ------
    ValueError
        If an entry times β exceeds `limit`, or if the absolute sum over a system exceeds 4.5e11,
        where an exponent would lose more than 1e-4 to rounding.
    """
    beta = check_real("beta", beta, low=0.0)
    largest = {}
    for name, array in (("couplings", couplings), ("fields", fields)):
        highest = float(np.abs(array).max(initial=0.0))
        if highest > _MAX_ENTRY:
            raise ValueError(f"{name} must have entries within {_MAX_ENTRY:g}, got {highest:.6g}")
        if beta * highest > limit:
            raise ValueError(
                f"beta must keep beta * {name} within {limit:g}, got {beta * highest:.6g}"
            )
        axes = (-2, -1) if name == "couplings" else -1
        largest[name] = float(np.abs(array).sum(axis=axes).max(initial=0.0))
    strength = beta * sum(largest.values())
    if not strength <= _MAX_STRENGTH:
        raise ValueError(_too_strong(tuple(largest), _MAX_STRENGTH, strength))
    return beta
