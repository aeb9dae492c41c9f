"""Mean-field theories of driven Ising spins, in the conventions of `spins.kinetic`."""

import math

import numpy as np
from scipy.optimize import brentq

from spinformer.core.special import normal_average, normal_rule

KINETIC_METHODS = ("naive", "tap", "gaussian")


def kinetic_mean_field(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray, method: str
) -> np.ndarray:
    """Magnetizations (T+1, N) under the `drive` (T, N), from `initial` (N,).

    With m at time t and m' at t + 1, a_i = x_i + Σ_j J_ij m_j, D_i = Σ_j J_ij² (1 − m_j²):

    - "naive": m' = tanh βa, right to first order in J;
    - "tap": m' = tanh(βa − β² m' D), the Onsager term at the new time, right to second order
      [roudi2011dynamical];
    - "gaussian": m' = E_z tanh(βa + β√D z), exact for asymmetric couplings of large systems
      [mezard2011exact].
    """
    path = [np.asarray(initial, dtype=float)]
    for x in drive:
        m = path[-1]
        mean, spread = beta * (x + couplings @ m), beta**2 * (couplings**2 @ (1 - m**2))
        if method == "naive":
            path.append(np.tanh(mean))
        elif method == "tap":
            path.append(_solve_onsager(mean, spread))
        else:
            width = np.sqrt(spread)
            nodes, weights = normal_rule(width.max())
            path.append(np.tanh(mean[:, None] + width[:, None] * nodes) @ weights)
    return np.array(path)


def _solve_onsager(mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The root of m = tanh(mean − spread m), by halving: y + spread tanh(y) − mean rises in y."""
    low, high = mean - spread, mean + spread
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = middle + spread * np.tanh(middle) > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.tanh(low)


def critical_beta(
    coupling_std: float, *, field: str = "gaussian", field_scale: float = 0.5
) -> float:
    """Where the model with random fields orders: 1 = β E[1 − tanh² β(x + J_s z)].

    J_s is `coupling_std`, the mean coupling one, and the fields x are normal with standard
    deviation `field_scale` (`field` "gaussian") or uniform on [−field_scale, field_scale]
    ("uniform") [aguilera2021unifying]. Returns the smallest such β, or infinity if there is
    none: the right-hand side stays below 2 p(0), p the density of x + J_s z, so strong fields
    prevent order.
    """
    uniform = field == "uniform" and field_scale > 0.0
    width = coupling_std if uniform else math.hypot(field_scale, coupling_std)
    if width == 0.0 and not uniform:
        return 1.0

    def gain(beta: float) -> float:
        def turned(z: np.ndarray) -> np.ndarray:
            # The average of sech² over uniform fields in closed form, over normal ones by parts.
            if uniform:
                return np.asarray(np.tanh(beta * (field_scale + width * z)) / field_scale)
            return np.asarray(z * np.tanh(beta * width * z) / width)

        return normal_average(turned, steepness=beta * width)

    high = 1.0
    while gain(high) < 1.0:
        high *= 2.0
        # It grows with β, but steps so steep do not change any more.
        if high * width > 3e4 or high > 1e12:
            return math.inf
    return float(brentq(lambda b: gain(b) - 1, 0.5 * high, high, xtol=1e-13, rtol=1e-13))
