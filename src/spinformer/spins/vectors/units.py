"""The scalings of vector spins, and the ways between them.

The model is one, [bal2021transformers, Eq. (vectorrandomising)]: N spins of D components with
couplings J, fields and the inverse temperature β. It is written in four ways.

1. *Sigma*: ‖σ_i‖² = D and E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over ordered pairs: a pair
   couples with J_ij + J_ji and a diagonal entry adds the constant −D J_ii. Used by `exact`,
   `saddle`, `large_d` and `monte_carlo`.
2. *Unit*: u = σ/√D of length one in the scaled fields h = H/√D, with the same J and β, so that
   E/D = −Σ_{i,j} J_ij u_i·u_j − Σ_i h_i·u_i. Used by `tap` and by `spins.modules`, because
   nothing in it grows with D.
3. *Pairs*: B = J + Jᵀ without diagonal (B = 2J for symmetric J), so that spin i feels h_i +
   Σ_j B_ij u_j and E/D = −½ Σ_{i,j} B_ij u_i·u_j − Σ_i h_i·u_i − Σ_i J_ii. Used inside of `tap`.
4. *Driven*: ‖s_i‖² = R² = D/2 − 1 and p(s_i) ∝ exp(β s_i·(x_i + Σ_j K_ij s_j)). With s = R u the
   same β and weights are those of K = D B/R² (about 2B) and x = √D H/R (about √2 H). Used by
   `driven`, whose K need not be symmetric.

Correlations are ⟨u_i·u_j⟩ everywhere, one for i = j. All functions take NumPy arrays and torch
tensors alike, keep the type, broadcast over leading axes and are differentiable.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch

from spinformer.core.checks import check_array, check_integer, check_tensor

A = TypeVar("A", np.ndarray, torch.Tensor)


def unit_from_sigma(vectors: A) -> A:
    """u = σ/√D of spins, or h = H/√D of fields, (..., D).

    >>> unit_from_sigma(np.array([2.0, 0.0, 0.0, 0.0]))
    array([1., 0., 0., 0.])
    """
    return vectors / math.sqrt(_components(vectors))


def sigma_from_unit(vectors: A) -> A:
    """σ = √D u of spins, or H = √D h of fields, (..., D).

    >>> sigma_from_unit(np.array([1.0, 0.0, 0.0, 0.0]))
    array([2., 0., 0., 0.])
    """
    return vectors * math.sqrt(_components(vectors))


def pair_couplings(couplings: A) -> A:
    """B = J + Jᵀ with zero diagonal, (..., N, N), of ordered couplings J.

    >>> pair_couplings(np.array([[5.0, 1.0], [2.0, 7.0]]))
    array([[0., 3.],
           [3., 0.]])
    """
    couplings = _checked("couplings", couplings, square=True)
    if isinstance(couplings, torch.Tensor):
        pair = couplings + couplings.mT
        return pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1))
    return (couplings + couplings.swapaxes(-1, -2)) * (1.0 - np.eye(couplings.shape[-1]))


def ordered_couplings(pair: A) -> A:
    """The symmetric J = B/2, (..., N, N), whose ordered pairs couple as B does.

    >>> ordered_couplings(np.array([[0.0, 3.0], [3.0, 0.0]]))
    array([[0. , 1.5],
           [1.5, 0. ]])
    """
    return _checked("pair", pair, square=True) / 2


def driven_radius(dim: int) -> float:
    """R = √(D/2 − 1), the length of a driven spin; D ≥ 3.

    >>> driven_radius(10)
    2.0
    """
    return math.sqrt(check_integer("dim", dim, low=3) / 2 - 1)


def driven_couplings(couplings: A, *, dim: int) -> A:
    """K = D B/R², (..., N, N): what a driven spin feels where J are the ordered couplings.

    >>> driven_couplings(np.array([[0.0, 1.0], [1.0, 0.0]]), dim=10)
    array([[0., 5.],
           [5., 0.]])
    """
    return pair_couplings(couplings) * (dim / driven_radius(dim) ** 2)


def driven_fields(fields: A) -> A:
    """x = √D H/R, (..., D): the drive that acts on s = R u as the field H acts on σ.

    >>> driven_fields(np.full(8, 3.0))[0].round(3)
    np.float64(4.899)
    """
    dim = _components(fields)
    return fields * (math.sqrt(dim) / driven_radius(dim))


def _components(vectors: A) -> int:
    vectors = _checked("vectors", vectors)
    if vectors.ndim == 0 or vectors.shape[-1] == 0:
        raise ValueError(f"vectors must have shape (..., D), D >= 1, got {tuple(vectors.shape)}")
    return int(vectors.shape[-1])


def _checked(name: str, value: Any, **rules: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return check_tensor(name, value, **rules)
    return check_array(name, value, **rules)
