"""The Sherrington-Kirkpatrick model of infinitely many spins: one order parameter and its limits.

Couplings of mean 0 and variance 1/N, every pair once, and fields of mean `field_mean` and standard
deviation `field_std`. The local field of a spin without its own reaction is Gaussian with the
variance q + `field_std`², so that with u = β(field_mean + √(q + field_std²) z), z a unit normal,

    q = E tanh² u,   ln Z/N = ¼ β² (1 − q)² + E ln 2 cosh u   [sherrington1975solvable].

Two copies of one system then always have the overlap q. That is right while the stability number
β² E sech⁴ u is below one; where it reaches one lies the line of de Almeida and Thouless, beyond
which copies fall apart into many states [dealmeida1978stability].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.core.special import normal_average

# Up to here β√(q + field_std²) stays below what averages over a normal have nodes for.
MAX_BETA = 20.0
MAX_FIELD = 1000.0
_TOLERANCE = 1e-10


@record
class GlassState(Solution[float]):
    """The replica-symmetric state. value: the overlap q of two copies; residual: of its equation.

    stability: β² E sech⁴ u, below one where the state is stable. log_partition: ln Z per spin.
    susceptibility: N⁻¹ Σ_ij (⟨s_i s_j⟩ − ⟨s_i⟩⟨s_j⟩)², which is E sech⁴ u/(1 − stability) and
    infinite where the state is unstable.
    """

    stability: float
    log_partition: float
    susceptibility: float


def glass_state(beta: float, *, field_mean: float = 0.0, field_std: float = 0.0) -> GlassState:
    """Solve q = E tanh² u for 0 ≤ β ≤ 20; without a field, q = 0 for β ≤ 1 and q > 0 beyond.

    `field_std` may be up to 1000. Raises ValueError for numbers out of range.

    >>> found = glass_state(1.0, field_std=0.5)
    >>> f"{found.value:.4f} {found.stability:.4f}"
    '0.2846 0.5799'
    """
    beta = check_real("beta", beta, low=0.0, high=MAX_BETA)
    mean = check_real("field_mean", field_mean)
    std = check_real("field_std", field_std, low=0.0, high=MAX_FIELD)

    def average(function: Callable[[np.ndarray], np.ndarray], q: float) -> float:
        """E function(u), u = β (mean + √(q + std²) z)."""
        width = math.hypot(math.sqrt(q), std)
        return normal_average(lambda z: function(beta * (mean + width * z)), steepness=beta * width)

    def square(q: float) -> float:
        return average(lambda u: np.tanh(u) ** 2, q)

    free = mean == 0.0 and std == 0.0
    # E tanh² is concave enough for one crossing; without a field q = 0 is another one.
    low = 1e-9 if free else 0.0
    if beta == 0.0 or (free and (beta <= 1.0 or square(low) <= low)):
        q = 0.0
    else:
        q = float(brentq(lambda q: square(q) - q, low, 1.0, xtol=1e-14))
    fourth = average(lambda u: (1.0 - np.tanh(u) ** 2) ** 2, q)
    log_cosh = average(lambda u: np.logaddexp(u, -u), q)
    stability = beta**2 * fourth
    residual = abs(square(q) - q)
    return GlassState(
        value=q,
        residual=residual,
        steps=0,
        status=Status.CONVERGED if residual < _TOLERANCE else Status.STALLED,
        stability=stability,
        log_partition=0.25 * (beta * (1.0 - q)) ** 2 + log_cosh,
        susceptibility=fourth / (1.0 - stability) if stability < 1.0 else math.inf,
    )


def instability_beta(*, field_mean: float = 0.0, field_std: float = 0.0) -> float:
    """β on the line of de Almeida and Thouless: 1 without a field, more with one.

    Infinite where it lies beyond β = 20. Raises ValueError for bad input.

    >>> f"{instability_beta():.3f} {instability_beta(field_std=0.5):.3f}"
    '1.000 1.800'
    """

    def excess(beta: float) -> float:
        return glass_state(beta, field_mean=field_mean, field_std=field_std).stability - 1.0

    field_mean = check_real("field_mean", field_mean)
    if field_mean == 0.0 and check_real("field_std", field_std, low=0.0) == 0.0:
        return 1.0
    return math.inf if excess(MAX_BETA) < 0.0 else float(brentq(excess, 0.5, MAX_BETA, xtol=1e-10))
