"""Driven vector spins: parallel dynamics with any couplings, where no free energy exists.

Spins have D components and ‖s_i‖² = R² = D/2 − 1, and p(s_i(t+1) | s(t)) ∝
exp(β s_i·(x_i(t) + Σ_j J_ij s_j(t))); row i of J (N, N) holds the couplings into spin i. Drives
have shape (T, N, D): x(t) acts on the step from t to t + 1, and results have T + 1 entries, the
first of which is the initial state.
"""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.special import mean_alignment
from spinformer.core.statistics import Estimate
from spinformer.spins.vectors.monte_carlo import sample_von_mises_fisher

# Squares of fields, summed over a system, stay finite.
MAX_SIZE = 1e90


def vector_response(theta: np.ndarray, *, beta: float, kind: str = "exact") -> np.ndarray:
    """Mean of one spin s, ‖s‖² = R² = D/2 − 1, with weight exp(β s·θ); θ (..., D), D ≥ 3.

    "exact": R I_{D/2}(z)/I_{D/2−1}(z) along θ with z = βR‖θ‖; "large_d": βθ/(1 + γ),
    γ = √(1 + β²‖θ‖²/R²), its limit. Raises ValueError or TypeError for bad input.

    >>> theta = np.eye(64)[0]
    >>> exact, limit = (vector_response(theta, beta=1.0, kind=k)[0] for k in ("exact", "large_d"))
    >>> f"{exact:.2f} {limit:.2f}"
    '0.48 0.50'
    """
    theta = check_array("theta", theta, low=-(MAX_SIZE**1.5), high=MAX_SIZE**1.5)
    if theta.ndim == 0 or theta.shape[-1] < 3:
        raise ValueError(f"theta must have shape (..., D) with D >= 3, got {theta.shape}")
    beta = check_real("beta", beta, low=0.0, high=MAX_SIZE)
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
    beta: float,
    initial: np.ndarray,
    kind: str = "exact",
) -> np.ndarray:
    """First-order mean field m_i(t+1) = φ(x_i + Σ_j J_ij m_j(t)), shape (T+1, N, D).

    `couplings` (N, N), `drive` (T, N, D), `initial` (N, D); φ is `vector_response`. Raises
    ValueError or TypeError for bad input.

    >>> free = {"drive": np.ones((1, 1, 4)), "beta": 1.0, "initial": np.zeros((1, 4))}
    >>> m = vector_mean_field(np.zeros((1, 1)), **free)
    >>> bool(np.allclose(m[1, 0], vector_response(np.ones(4), beta=1.0)))
    True
    """
    j, x, m, beta = _vector_arguments(couplings, drive, beta, initial)
    result = [m]
    for field in x:
        result.append(vector_response(field + j @ result[-1], beta=beta, kind=kind))
    return np.array(result)


def vector_simulation(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    replicas: int = 1024,
    seed: Seed = 0,
) -> Estimate:
    """Mean spins (T+1, N, D) of the driven vector model over independent replicas.

    Every replica starts in the configuration `initial` (N, D), rows of norm R. Raises ValueError
    or TypeError for bad input.

    >>> cold = {"drive": np.full((1, 1, 4), 1e9), "beta": 1.0, "initial": np.eye(4)[:1]}
    >>> mean = vector_simulation(np.zeros((1, 1)), **cold, replicas=10).value
    >>> np.round(mean[1, 0], 4)
    array([0.5, 0.5, 0.5, 0.5])
    """
    j, x, first, beta = _vector_arguments(couplings, drive, beta, initial)
    replicas = check_integer("replicas", replicas, low=2, high=10**9)
    rng = numpy_generator(seed)
    radius = _radius(first.shape[-1])
    if not np.allclose(np.linalg.norm(first, axis=-1), radius):
        raise ValueError(f"initial must have rows of norm sqrt(D/2 - 1) = {radius:.6g}")
    s = np.broadcast_to(first, (replicas, *first.shape))
    means, errors = [first], [np.zeros_like(first)]
    for field in x:
        s = radius * sample_von_mises_fisher(beta * radius * (field + j @ s), seed=rng)
        means.append(s.mean(0))
        errors.append(s.std(0, ddof=1) / math.sqrt(replicas))
    return Estimate(value=np.array(means), error=np.array(errors), samples=replicas)


def _radius(dim: int) -> float:
    return math.sqrt(dim / 2 - 1)


def _vector_arguments(
    couplings: np.ndarray, drive: np.ndarray, beta: float, initial: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = check_array("drive", drive, shape=(None, len(j), None))
    m = check_array("initial", initial, shape=(len(j), x.shape[-1]))
    if x.shape[-1] < 3:
        raise ValueError(f"drive must have at least 3 components, got {x.shape[-1]}")
    beta = check_real("beta", beta, low=0.0)
    for name, array in (("couplings", j), ("drive", x)):
        largest = max(beta, 1.0) * float(np.abs(array).max(initial=0.0))
        if not largest <= MAX_SIZE:
            raise ValueError(
                f"{name} and beta * {name} must stay within {MAX_SIZE:g}, got {largest:.3g}"
            )
    return j, x, m, beta
