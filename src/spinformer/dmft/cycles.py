"""Periodic orbits of the mean field by Newton's method, with their Floquet multipliers.

A cycle of q steps is a context with Φ_q(x) = x, Φ_q being q compiled steps. Its position comes
back as well, so that q is a multiple of 2^K unless ε = 0. Newton's method has the exact
derivative, the monodromy matrix ∂Φ_q/∂x (`return_map.returned`); the eigenvalues of this matrix are
the multipliers. All of them inside the unit circle: the cycle is stable. Long runs find stable
cycles only, Newton's method finds saddles, too.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Network
from spinformer.dmft.return_map import returned
from spinformer.dmft.state import Context, fitting

# Shares of a Newton step that are tried side by side, in the lanes of one block; the best is taken.
_SHARES = np.array([1.0, 0.5, 0.25, 0.125, 1 / 32, 1 / 128])
# Two states of an orbit closer than this are one: the cycle is shorter than asked.
_SAME = 1e-7


@record
class Cycle(Solution[Context]):
    """A cycle, or what Newton's method ended with; `steps` are Newton's.

    value: context (T, P) on the cycle. residual: largest entry of |Φ(x) − x|. status: CONVERGED,
    STALLED (no share of a Newton step improves it) or STEP_LIMIT.
    period: steps until the state comes back for the first time; it divides what was asked.
    multipliers: (T·P,) complex, the largest modulus first, of that period; NaN where not converged.
    moved: largest distance, entry by entry, from the start: large where the cycle found is another.
    """

    period: int
    beta: float
    gamma: float
    epsilon: float
    multipliers: np.ndarray
    moved: float

    @property
    def unstable(self) -> int:
        """How many directions grow; 0 for a stable cycle. ValueError where not converged."""
        if not self.converged:
            raise ValueError("the stability of a cycle that was not found is not known")
        return int((np.abs(self.multipliers) > 1.0).sum())

    @property
    def stable(self) -> bool:
        """Whether all multipliers lie inside the unit circle; False where not converged."""
        return bool(self.converged) and self.unstable == 0


def cycle(
    network: Network,
    start: Context,
    *,
    beta: float,
    period: int,
    gamma: float | None = None,
    epsilon: float | None = None,
    tolerance: float = 1e-11,
    max_steps: int = 40,
    throw: bool = True,
) -> Cycle:
    """The cycle of `period` steps (or a divisor of it) that Newton's method reaches from `start`.

    start: one context, for instance where a long run ended. gamma, epsilon: None takes the
    network's own. Raises NotConverged unless `throw` is False, ValueError for a batch of contexts,
    or for a period that is no multiple of 2^K with ε > 0.

    >>> network = Network.document()
    >>> found = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> found.period, found.stable, found.residual < 1e-11
    (4, True, True)
    """
    check_instance("start", start, Context)
    if fitting(network, start)[0].ndim != 2:
        raise ValueError(f"start must be one context (T, P), got {start.attention.shape}")
    beta = check_real("beta", beta, low=0.0)
    gamma = check_real("gamma", network.gamma if gamma is None else gamma, low=0.0)
    epsilon = check_real(
        "epsilon", network.epsilon if epsilon is None else epsilon, low=0.0, high=1.0
    )
    period = check_integer("period", period, low=1)
    unit = shortest_period(network, epsilon=epsilon)
    if period % unit:
        raise ValueError(
            f"period must be a multiple of the {unit} positions while epsilon > 0, got {period}"
        )
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    parameters = {"beta": beta, "gamma": gamma, "epsilon": epsilon}
    x, residual, matrix, steps, status = _newton(
        network, start, period, parameters, tolerance, max_steps
    )
    context = Context(x, start.position)
    multipliers = np.full(x.size, np.nan, dtype=complex)
    if status == Status.CONVERGED:
        least = _least_period(network, context, period, unit, parameters)
        if least < period:
            _, matrix = returned(network, context, steps=least, threads=1, **parameters)
            period = least
        multipliers = sorted_multipliers(matrix)
    found = Cycle(
        value=context,
        residual=residual,
        steps=steps,
        status=status,
        period=period,
        **parameters,
        multipliers=multipliers,
        moved=float(np.abs(x - start.attention).max()),
    )
    if throw:
        found.require(f"a cycle of {period} steps")
    return found


def shortest_period(network: Network, *, epsilon: float) -> int:
    """2^K, the steps after which a position comes back; 1 where ε = 0 and no position counts.

    >>> shortest_period(Network.document(), epsilon=0.02)
    4
    """
    check_instance("network", network, Network)
    return network.positions if check_real("epsilon", epsilon, low=0.0) > 0.0 else 1


def sorted_multipliers(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues (..., n) of monodromy matrices (..., n, n), the largest modulus first.

    >>> sorted_multipliers(np.diag([0.5, -2.0]))
    array([-2. +0.j,  0.5+0.j])
    """
    matrix = check_array("matrix", matrix, square=True)
    values = np.linalg.eigvals(matrix).astype(complex)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    return np.take_along_axis(values, order, axis=-1)


def _newton(
    network: Network,
    start: Context,
    period: int,
    parameters: dict[str, float],
    tolerance: float,
    max_steps: int,
) -> tuple[np.ndarray, float, np.ndarray, int, Status]:
    """Newton's method with the best of several shares of each step; polished by one step more."""
    best = start.attention
    eye = np.eye(best.size)
    end, matrix = returned(network, start, steps=period, threads=1, **parameters)
    gap = end.attention - best
    residual = float(np.abs(gap).max())
    # At ε = 0 a period may not bring the position back; the position does not matter then.
    for steps in range(1, max_steps + 1):
        arrived = residual <= tolerance
        change = np.linalg.lstsq(matrix - eye, -gap.ravel(), rcond=None)[0].reshape(best.shape)
        tried = best + _SHARES[:, None, None] * change
        if not np.isfinite(tried).all():
            return best, residual, matrix, steps, _ended(arrived)
        ends, matrices = returned(
            network, Context(tried, start.position), steps=period, threads=1, **parameters
        )
        gaps = ends.attention - tried
        sizes = np.abs(gaps).max(axis=(1, 2))
        index = int(np.argmin(sizes))
        if sizes[index] < residual:
            best, residual = tried[index], float(sizes[index])
            gap, matrix = gaps[index], matrices[index]
        elif not arrived:
            return best, residual, matrix, steps, Status.STALLED
        if arrived:
            return best, residual, matrix, steps, Status.CONVERGED
    last = Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT
    return best, residual, matrix, max_steps, last


def _ended(arrived: bool) -> Status:
    return Status.CONVERGED if arrived else Status.STALLED


def _least_period(
    network: Network, context: Context, period: int, unit: int, parameters: dict[str, float]
) -> int:
    """Smallest divisor of the period, a multiple of `unit`, after which the state is back."""
    ensemble = Ensemble(network, context, threads=1, **parameters)
    done = 0
    for divisor in range(unit, period, unit):
        if period % divisor == 0:
            ensemble.advance(divisor - done)
            done = divisor
            if np.abs(ensemble.state().attention - context.attention).max() < _SAME:
                return divisor
    return period
