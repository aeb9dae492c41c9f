"""Driven vector spins: parallel dynamics with any couplings, where no free energy exists.

Spins have D components and ||s_i||^2 = R^2 = D/2 - 1, and
p(s_i(t+1) | s(t)) is proportional to exp(beta s_i . (x_i(t) + sum_j J_ij s_j(t))); row i of J
holds the couplings into spin i. Drives have shape (T, N, D): x(t) acts on the step from t to
t + 1, and results have T + 1 entries, the first of which is the initial state.
"""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.core.special import mean_alignment
from spinformer.spins.vectors.monte_carlo import sample_von_mises_fisher


def vector_response(theta: np.ndarray, *, beta: float, kind: str = "exact") -> np.ndarray:
    """Mean of one spin s, ||s||^2 = R^2 = D/2 - 1, with weight exp(beta s . theta).

    "exact": R I_{D/2}(z)/I_{D/2-1}(z) along theta with z = beta R |theta|; "large_d":
    beta theta / (1 + gamma), gamma = sqrt(1 + beta^2 |theta|^2 / R^2), its limit. `theta`
    has shape (..., D) with D >= 3.
    """
    theta = check_array("theta", theta)
    if theta.ndim == 0 or theta.shape[-1] < 3:
        raise ValueError(f"theta must have shape (..., D) with D >= 3, got {theta.shape}")
    beta = check_real("beta", beta, low=0.0)
    check_choice("kind", kind, ("exact", "large_d"))
    radius = _radius(theta.shape[-1])
    norm = np.linalg.norm(theta, axis=-1, keepdims=True)
    if kind == "large_d":
        return beta * theta / (1 + np.sqrt(1 + (beta * norm / radius) ** 2))
    ratio = mean_alignment(beta * radius * norm, dim=theta.shape[-1])
    return radius * ratio * theta / np.where(norm > 0, norm, 1.0)


def vector_mean_field(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    initial: np.ndarray,
    beta: float,
    kind: str = "exact",
) -> np.ndarray:
    """First-order mean field m_i(t+1) = phi(x_i + sum_j J_ij m_j(t)), shape (T+1, N, D).

    `couplings` (N, N), `drive` (T, N, D), `initial` (N, D); phi is `vector_response`.
    """
    j, x, m = _vector_arguments(couplings, drive, initial)
    result = [m]
    for field in x:
        result.append(vector_response(field + j @ result[-1], beta=beta, kind=kind))
    return np.array(result)


def vector_simulation(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    initial: np.ndarray,
    beta: float,
    replicas: int = 1024,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean spins (T+1, N, D) of the driven vector model and their standard errors.

    Every replica starts in the configuration `initial` (N, D), rows of norm R.
    """
    j, x, first = _vector_arguments(couplings, drive, initial)
    beta = check_real("beta", beta, low=0.0)
    check_integer("replicas", replicas, low=2)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    radius = _radius(first.shape[-1])
    if not np.allclose(np.linalg.norm(first, axis=-1), radius):
        raise ValueError(f"initial must have rows of norm sqrt(D/2 - 1) = {radius:.6g}")
    s = np.broadcast_to(first, (replicas, *first.shape))
    means, errors = [first], [np.zeros_like(first)]
    for field in x:
        s = radius * sample_von_mises_fisher(beta * radius * (field + j @ s), rng)
        means.append(s.mean(0))
        errors.append(s.std(0, ddof=1) / math.sqrt(replicas))
    return np.array(means), np.array(errors)


def _radius(dim: int) -> float:
    return math.sqrt(dim / 2 - 1)


def _couplings(couplings: np.ndarray) -> np.ndarray:
    j = check_array("couplings", couplings)
    if j.ndim < 2 or j.shape[-1] != j.shape[-2] or j.shape[-1] == 0:
        raise ValueError(f"couplings must have shape (..., N, N), got {j.shape}")
    return j


def _vector_arguments(
    couplings: np.ndarray, drive: np.ndarray, initial: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    j = check_array("couplings", _couplings(couplings), ndim=2)
    x = check_array("drive", drive, shape=(None, len(j), None))
    m = check_array("initial", initial, shape=(len(j), x.shape[-1]))
    if x.shape[-1] < 3:
        raise ValueError(f"drive must have at least 3 components, got {x.shape[-1]}")
    return j, x, m
