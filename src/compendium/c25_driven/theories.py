"""Mean-field theories of driven Ising spins, in the conventions of `spins.kinetic`."""

from __future__ import annotations

import numpy as np

from spinformer.core.special import normal_rule

KINETIC_METHODS = ("naive", "tap", "gaussian")


def kinetic_mean_field(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    method: str = "tap",
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
