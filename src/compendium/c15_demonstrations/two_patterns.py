"""A continuous memory of two patterns, A stored k_A times and B stored k_B times, exactly.

E(ξ) = ½ξ² − β⁻¹ log(k_A e^{β A·ξ} + k_B e^{β B·ξ}), patterns of equal norm. Write
ξ = (A + B)/2 + m (A − B)/2 + (anything at right angles to A − B). A step, the gradient of E with
step size 1, gives m ← tanh(κ m + h/2), with κ = β|A − B|²/4 and h = log(k_A/k_B): the mean field
of a magnet with coupling κ in the field h/2, m its magnetization, A all spins up, B all down.
m = 1 and −1 are the patterns; m falls short of them unless κ is large.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq


def boundary_position(log_ratio: float, *, strength: float, steps: int | None = 1) -> float:
    """Where on the line m the answer turns: A has the larger weight in the last of `steps`.

    One step: m = −h/(2κ), that is −h/(β|A − B|) from the middle. Each further step carries it on,
    m ← (artanh m − h/2)/κ; `steps=None`, the edge of the basin of attraction, is the unstable
    fixed point, −h/(2(κ − 1)) for small h. NaN where there is none: every query ends at one side.
    """
    field = 0.5 * log_ratio
    if steps is None:
        if abs(2 * field) >= spinodal(strength):
            return float("nan")
        edge = np.sqrt(1.0 - 1.0 / strength)
        return float(brentq(lambda m: np.arctanh(m) - strength * m - field, -edge, edge))
    found = -field / strength
    for _ in range(steps - 1):
        if abs(found) >= 1.0:
            return float("nan")
        found = (np.arctanh(found) - field) / strength
    return float(found)


def spinodal(strength: float) -> float:
    """The log-ratio at which the basin of the pattern with fewer copies vanishes; 0 for κ ≤ 1.

    Its minimum and the edge merge where κ(1 − m²) = 1: h = 2(κ m − artanh m), m = √(1 − 1/κ).
    """
    if strength <= 1.0:
        return 0.0
    edge = np.sqrt(1.0 - 1.0 / strength)
    return float(2.0 * (strength * edge - np.arctanh(edge)))
