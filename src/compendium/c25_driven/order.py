"""Where driven networks order."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from spinformer.core.special import normal_average


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
