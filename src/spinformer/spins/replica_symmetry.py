"""Replica-symmetric theory of the Sherrington–Kirkpatrick model with infinitely many spins.

Couplings have mean 0 and variance 1/N, every pair counted once, and fields are normal with standard
deviation s. `replica_symmetric_state` has the overlap of two replicas and the stability of the
solution, `almeida_thouless_beta` the inverse temperature at which it becomes unstable.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_real
from spinformer.core.records import record
from spinformer.core.special import gaussian_expectation

# Up to here averages over a normal have nodes for β√(q + s²).
_MAX_BETA = 20.0
_MAX_FIELD = 1000.0
_MAX_FIELD_ON_THE_LINE = 100.0


@record
class ReplicaSymmetricState:
    """Replica-symmetric solution of the Sherrington–Kirkpatrick model.

    Attributes
    ----------
    overlap : float
        Overlap q of two replicas.
    stability : float
        The stability parameter β² E sech⁴ u, below 1 where the solution is stable.
    susceptibility : float
        Spin-glass susceptibility N⁻¹ Σ_ij (⟨s_i s_j⟩ − ⟨s_i⟩⟨s_j⟩)², infinite where the solution
        is not stable.
    """

    overlap: float
    stability: float
    susceptibility: float


def replica_symmetric_state(beta: float, *, field_std: float = 0.0) -> ReplicaSymmetricState:
    r"""Solve the Sherrington–Kirkpatrick model in the replica-symmetric approximation.

    Parameters
    ----------
    beta : float
        Inverse temperature β, from 0 to 20.
    field_std : float, default 0
        Standard deviation s of the Gaussian fields, from 0 to 1000.

    Returns
    -------
    ReplicaSymmetricState
        Overlap, stability parameter and spin-glass susceptibility.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    With z a standard normal variable,

    .. math::

        q = \mathbb{E} \tanh^2 u, \qquad u = \beta \sqrt{q + s^2}\, z,

    and the solution is stable where β² E sech⁴ u is below one.

    References
    ----------
    The solution: [sherrington1975solvable].

    Its stability: [dealmeida1978stability].

    Examples
    --------
    >>> state = replica_symmetric_state(0.5)
    >>> state.overlap, round(state.stability, 6)
    (0.0, 0.25)
    """
    beta = check_real("beta", beta, low=0.0, high=_MAX_BETA)
    field_std = check_real("field_std", field_std, low=0.0, high=_MAX_FIELD)
    return _state(beta, field_std)


def _state(beta: float, field_std: float) -> ReplicaSymmetricState:
    """The replica-symmetric solution, of arguments that are known to be right."""

    def average(function: Callable[[np.ndarray], np.ndarray], q: float) -> float:
        width = beta * math.hypot(math.sqrt(q), field_std)
        return gaussian_expectation(lambda z: function(np.tanh(width * z) ** 2), steepness=width)

    def residual(q: float) -> float:
        return average(lambda square: square, q) - q

    # E tanh² is concave enough for one crossing; without a field q = 0 is another one.
    low = 0.0 if field_std else 1e-9
    q = 0.0
    if beta > 0.0 and residual(low) > 0.0:
        q = float(brentq(residual, low, 1.0, xtol=1e-14))
    fourth = average(lambda square: (1.0 - square) ** 2, q)
    stability = beta**2 * fourth
    return ReplicaSymmetricState(
        overlap=q,
        stability=stability,
        susceptibility=fourth / (1.0 - stability) if stability < 1.0 else math.inf,
    )


def almeida_thouless_beta(*, field_std: float = 0.0) -> float:
    """Inverse temperature of the Almeida–Thouless line, where replica symmetry becomes unstable.

    Parameters
    ----------
    field_std : float, default 0
        Standard deviation s of the Gaussian fields, from 0 to 100.

    Returns
    -------
    float
        The critical β, to 1e-7: 1 without a field, near 1.88 √(1 + s²) in a strong one.

    Raises
    ------
    ValueError
        If the argument is out of its range.

    References
    ----------
    [dealmeida1978stability]

    Examples
    --------
    >>> almeida_thouless_beta(field_std=0.0)
    1.0
    >>> f"{almeida_thouless_beta(field_std=0.2):.4f}"
    '1.3737'
    """
    field_std = check_real("field_std", field_std, low=0.0, high=_MAX_FIELD_ON_THE_LINE)
    if not field_std:
        return 1.0

    def excess(beta: float) -> float:
        return _state(beta, field_std).stability - 1.0

    # In a strong field u is broad, and E sech⁴ u → (4/3) / (√(2π) β √(1 + s²)), hence
    # β → (3/4) √(2π) √(1 + s²), from below.
    above = 2.0 * math.hypot(1.0, field_std)
    return float(brentq(excess, 0.5, above, xtol=1e-10))
