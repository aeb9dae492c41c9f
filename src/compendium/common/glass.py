"""Sherrington and Kirkpatrick's model of infinitely many spins, replica-symmetric.

Couplings of mean 0 and variance 1/N, every pair once, fields of standard deviation s. With
u = β√(q + s²) z, z a unit normal, two copies of one system have the overlap q = E tanh² u
[sherrington1975solvable], while β² E sech⁴ u is below one [dealmeida1978stability].
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_real
from spinformer.core.special import normal_average

# Up to here averages over a normal have nodes for β√(q + s²).
_MAX_BETA, _MAX_FIELD = 20.0, 1000.0


class GlassState(NamedTuple):
    """The overlap q, β² E sech⁴ u, and N⁻¹ Σ_ij (⟨s_i s_j⟩ − ⟨s_i⟩⟨s_j⟩)², infinite where the state
    is not stable."""

    overlap: float
    stability: float
    susceptibility: float


def glass_state(beta: float, *, field_std: float = 0.0) -> GlassState:
    """The state at β in [0, 20] and s in [0, 1000]; ValueError beyond."""
    check_real("beta", beta, low=0.0, high=_MAX_BETA)
    check_real("field_std", field_std, low=0.0, high=_MAX_FIELD)

    def average(function: Callable[[np.ndarray], np.ndarray], q: float) -> float:
        width = beta * math.hypot(math.sqrt(q), field_std)
        return normal_average(lambda z: function(np.tanh(width * z) ** 2), steepness=width)

    def lack(q: float) -> float:
        return average(lambda square: square, q) - q

    # E tanh² is concave enough for one crossing; without a field q = 0 is another one.
    low = 0.0 if field_std else 1e-9
    q = float(brentq(lack, low, 1.0, xtol=1e-14)) if beta > 0.0 and lack(low) > 0.0 else 0.0
    fourth = average(lambda square: (1.0 - square) ** 2, q)
    stability = beta**2 * fourth
    return GlassState(q, stability, fourth / (1.0 - stability) if stability < 1.0 else math.inf)


def instability_beta(*, field_std: float = 0.0) -> float:
    """β on the line of de Almeida and Thouless: 1 without a field, more with one.

    Infinite where it lies beyond β = 20.
    """

    def excess(beta: float) -> float:
        return glass_state(beta, field_std=field_std).stability - 1.0

    if not field_std:
        return 1.0
    if excess(_MAX_BETA) < 0.0:
        return math.inf
    return float(brentq(excess, 0.5, _MAX_BETA, xtol=1e-10))
