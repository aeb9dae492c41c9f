"""Order without an energy: large networks of independent couplings with a mean, and its onset.

Couplings J_ij are independent with mean J_0/N and variance J_s²/N, updated in parallel as in
`kinetic`, N → ∞: the mean magnetization obeys m = E tanh β(x + J_0 m + J_s z), z a unit normal
and x a random field. Cited for attention in [poclopez2024dynamical, after Eq. (3)].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from spinformer.core.checks import check_choice, check_real
from spinformer.core.special import normal_average
from spinformer.spins.ising.asymmetric import MAX_BETA


def asymmetric_magnetization(beta: float, *, mean: float) -> float:
    """Stationary m ≥ 0 without fields, J_0 = `mean` and J_s = 1; 0 ≤ β ≤ 100.

    Solves m = E tanh β(J_0 m + z): zero below the order-disorder transition
    J_0 β E sech² βz = 1 (see `asymmetric_gain`), positive above it. Raises ValueError for
    numbers out of range.

    >>> asymmetric_magnetization(2.0, mean=0.5), 0 < asymmetric_magnetization(2.0, mean=2.0) < 1
    (0.0, True)
    """
    beta = check_real("beta", beta, low=0.0, high=MAX_BETA)
    mean = check_real("mean", mean)

    def excess(m: float) -> float:
        return normal_average(lambda z: np.tanh(beta * (mean * m + z)), steepness=beta) - m

    low = 1e-9
    if mean * asymmetric_gain(beta) <= 1.0 or excess(low) <= 0:
        return 0.0
    return 1.0 if excess(1.0) >= 0 else float(brentq(excess, low, 1.0, xtol=1e-13))


def asymmetric_gain(beta: float) -> float:
    """β E sech² βz, 0 ≤ β ≤ 100: its inverse is the critical mean of `asymmetric_magnetization`.

    Raises ValueError for another β.

    >>> asymmetric_gain(0.0)
    0.0
    """
    beta = check_real("beta", beta, low=0.0, high=MAX_BETA)
    return beta * normal_average(lambda z: 1.0 - np.tanh(beta * z) ** 2, steepness=beta)


def critical_beta(
    coupling_std: float,
    *,
    coupling_mean: float = 1.0,
    field: str = "gaussian",
    field_scale: float = 0.5,
) -> float:
    """Where the model with random fields orders: 1 = β J_0 E[1 − tanh² β(x + J_s z)].

    J_s is `coupling_std`, J_0 `coupling_mean`, and the fields x are normal with standard
    deviation `field_scale` (`field` "gaussian") or uniform on [−field_scale, field_scale]
    ("uniform") [aguilera2021unifying]. Returns the smallest such β, or infinity if there is
    none: the right-hand side stays below 2 J_0 p(0), p the density of x + J_s z, so strong
    fields prevent order. Raises ValueError or TypeError for bad input.

    >>> critical_beta(0.0, field_scale=0.0), critical_beta(0.1, field_scale=1.0)
    (1.0, inf)
    """
    coupling_std = check_real("coupling_std", coupling_std, low=0.0)
    coupling_mean = check_real("coupling_mean", coupling_mean, low=0.0, open_low=True)
    check_choice("field", field, ("gaussian", "uniform"))
    field_scale = check_real("field_scale", field_scale, low=0.0)
    width = math.hypot(field_scale, coupling_std) if field == "gaussian" else coupling_std
    uniform = field == "uniform" and field_scale > 0
    if width == 0 and not uniform:
        return 1 / coupling_mean

    def density(y: np.ndarray | float) -> np.ndarray:
        if uniform and width == 0:
            return (np.abs(y) < field_scale) / (2 * field_scale)
        if uniform:
            inside = ndtr((y + field_scale) / width) - ndtr((y - field_scale) / width)
            return inside / (2 * field_scale)
        return np.exp(-0.5 * (y / width) ** 2) / (width * math.sqrt(2 * math.pi))

    # The density is even and falls with |y|, so the gain grows with beta towards 2 J_0 p(0).
    if 2 * coupling_mean * float(density(0.0)) <= 1 + 1e-9:
        return math.inf
    grid, weight = np.polynomial.legendre.leggauss(400)

    def gain(beta: float) -> float:
        if beta * width >= 1:
            # Over u = beta y: sech^2 has width one and the density is at least as wide.
            u = 30 * grid
            return coupling_mean * float(30 * weight @ (density(u / beta) / np.cosh(u) ** 2))
        z = 9 * grid
        normal = 9 * weight * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        if uniform:
            # The average of sech^2 over the fields is done in closed form.
            mean = normal @ np.tanh(beta * (field_scale + width * z)) / (beta * field_scale)
        else:
            mean = normal @ np.cosh(beta * width * z) ** -2.0
        return coupling_mean * beta * float(mean)

    high = 1 / coupling_mean
    while gain(high) < 1:
        high *= 2
        if high * coupling_mean > 1e12:
            return math.inf
    return float(brentq(lambda b: gain(b) - 1, 0.5 * high, high, xtol=1e-13, rtol=1e-13))
