"""Mean-field theories of the kinetic Ising model: magnetizations along a run, entropy production.

Conventions of `kinetic`: P(s_i(t+1) = ±1 | s(t)) ∝ exp(±β (x_i(t) + Σ_j J_ij s_j(t))), J
(..., N, N) any matrix, drives (..., T, N).
"""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from spinformer.core.checks import check_array, check_broadcast, check_choice
from spinformer.core.solve import NotConverged
from spinformer.spins.ising.couplings import check_strength

KINETIC_METHODS = ("naive", "tap", "gaussian")


def kinetic_mean_field(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    method: str = "tap",
) -> np.ndarray:
    """Magnetizations (..., T+1, N) of the kinetic Ising model in a mean-field approximation.

    `couplings` (..., N, N), `drive` (..., T, N), `initial` (..., N) in [−1, 1]. With m at time
    t and m' at t + 1, a_i = x_i + Σ_j J_ij m_j, D_i = Σ_j J_ij² (1 − m_j²):

    - "naive": m' = tanh βa, right to first order in J;
    - "tap": m' = tanh(βa − β² m' D), the Onsager term at the new time, right to second order
      [roudi2011dynamical];
    - "gaussian": m' = E_z tanh(βa + β√D z), exact for asymmetric couplings of large systems
      [mezard2011exact], the average to 1e-8 at any spread.

    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> f"{kinetic_mean_field(np.zeros((1, 1)), **free)[1, 0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    j = check_array("couplings", couplings, square=True)
    x = check_array("drive", drive)
    size = j.shape[-1]
    if x.ndim < 2 or x.shape[-1] != size:
        raise ValueError(f"drive must have shape (..., T, {size}), got {x.shape}")
    m = check_array("initial", initial, low=-1.0, high=1.0)
    if m.ndim == 0 or m.shape[-1] != size:
        raise ValueError(f"initial must have shape (..., {size}), got {m.shape}")
    beta = check_strength(beta, couplings=j, drive=x)
    check_choice("method", method, KINETIC_METHODS)
    batch = check_broadcast(couplings=j.shape[:-2], drive=x.shape[:-2], initial=m.shape[:-1])
    steps = x.shape[-2]
    result = np.empty((*batch, steps + 1, size))
    result[..., 0, :] = m
    square = j**2
    for t in range(steps):
        m = result[..., t, :]
        mean = beta * (x[..., t, :] + (j @ m[..., None])[..., 0])
        if method == "naive":
            new = np.tanh(mean)
        else:
            spread = beta**2 * (square @ (1 - m**2)[..., None])[..., 0]
            if method == "tap":
                new = _solve_onsager(mean, spread)
            else:
                new = _smeared_tanh(mean, np.sqrt(spread))
        result[..., t + 1, :] = new
    return result


def mean_field_entropy_production(
    couplings: np.ndarray, *, beta: float, magnetization: np.ndarray
) -> float:
    """Leading order in J of the entropy production: β²/2 Σ (J_ij − J_ji)² v_i v_j, nats a step.

    v = 1 − m² at the stationary magnetization (N,); from `master_equation.entropy_production`
    with the connected delayed correlation β v_i J_ij v_j. Never negative, zero for symmetric
    couplings. Raises ValueError for bad input.

    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> mean_field_entropy_production(turn, beta=0.5, magnetization=np.zeros(2))
    1.0
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    m = check_array("magnetization", magnetization, shape=(len(j),), low=-1.0, high=1.0)
    beta = check_strength(beta, couplings=j)
    v = 1 - m**2
    return float(0.5 * v @ (beta * (j - j.T)) ** 2 @ v)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# The trapezoidal rule for integrals over sech², whose poles lie a distance π/2 off the axis.
_STEP = 0.25
_GRID = np.arange(-20.0, 20.0 + _STEP / 2, _STEP)
_SECH2 = 0.5 * _STEP / np.cosh(_GRID) ** 2


def _smeared_tanh(mean: np.ndarray, width: np.ndarray) -> np.ndarray:
    """E tanh(mean + width z) over a unit normal z.

    Gauss-Hermite quadrature while the tanh is smooth on the scale of the normal; beyond a width
    of one its steps fall between the nodes, and ∫ ½ sech²(u) erf((mean − u)/√2 width) du, the
    same by parts, is smooth instead.
    """
    narrow = np.minimum(width, 1.0)[..., None]
    result = (np.tanh(mean[..., None] + narrow * _NODES) * _WEIGHTS).sum(-1)
    wide = width > 1.0
    if wide.any():
        centre, scale = mean[wide][:, None], np.sqrt(2) * width[wide][:, None]
        result[wide] = (erf((centre - _GRID) / scale) * _SECH2).sum(-1)
    return result


def _solve_onsager(mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The root of m = tanh(mean − spread m), unique for spread >= 0.

    Newton on f(y) = y + spread tanh(y) − mean, kept inside a shrinking bracket.
    """
    low, high = mean - spread, mean + spread
    y = mean / (1 + spread)
    for _ in range(100):
        f = y + spread * np.tanh(y) - mean
        low, high = np.where(f < 0, y, low), np.where(f < 0, high, y)
        new = y - f / (1 + spread / np.cosh(np.clip(y, -300, 300)) ** 2)
        new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
        moved = np.abs(new - y) > 4e-16 * (1 + np.abs(y))
        # Settled entries stay as they are, so a batch does not depend on its neighbours.
        y = np.where(moved, new, y)
        if not moved.any():
            break
    residual = np.abs(y + spread * np.tanh(y) - mean)
    if not np.all(residual <= 1e-12 * (1 + spread + np.abs(mean))):
        raise NotConverged(f"the Onsager step was not solved, residual {residual.max():.3g}")
    return np.tanh(y)
