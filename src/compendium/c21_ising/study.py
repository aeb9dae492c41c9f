"""Chapter 21: derivatives of the exact free energy, and approximations held to exact sums.

Couplings (..., N, N) count every pair once, as in `spins.ising`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.spins.ising.exact import IsingStatistics, solve_exact
from spinformer.spins.ising.mean_field import MeanFieldSolution, solve_mean_field


@record
class ApproximationErrors:
    """A mean-field solution of a batch beside the exact sums.

    moments (...): root mean square over the spins of m_i − m_i^exact. log_partition (...): error
    of ln Z per spin. solution: what was found, its flags included.
    """

    moments: np.ndarray
    log_partition: np.ndarray
    solution: MeanFieldSolution


def field_differences(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, step: float = 1e-4
) -> np.ndarray:
    """−dF/dh_i (N,) of one system by central differences of the exact free energy.

    Raises ValueError or TypeError for bad input.

    >>> slope = field_differences(np.zeros((1, 1)), fields=np.array([0.5]), beta=1.0)
    >>> f"{slope[0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    fields = check_array("fields", fields, ndim=1)
    beta = check_real("beta", beta, low=0.0, open_low=True)
    step = check_real("step", step, low=0.0, high=1.0, open_low=True)
    up, down = (
        solve_exact(couplings, fields=fields + sign * step * np.eye(len(fields)), beta=beta)
        for sign in (1.0, -1.0)
    )
    return -(up.free_energy - down.free_energy) / (2 * step)


def approximation_errors(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    method: str,
    truth: IsingStatistics,
) -> ApproximationErrors:
    """Errors of one approximation on a batch of systems whose exact statistics are `truth`.

    A system whose equations were not solved counts with its last iterate, flagged in
    `solution`. Raises ValueError or TypeError for bad input.

    >>> free = {"fields": np.ones((1, 1)), "beta": 1.0}
    >>> truth = solve_exact(np.zeros((1, 1)), **free)
    >>> found = approximation_errors(np.zeros((1, 1)), **free, method="tap", truth=truth)
    >>> bool(found.moments[0] < 1e-12)
    True
    """
    found = solve_mean_field(couplings, fields=fields, beta=beta, method=method, throw=False)
    difference = found.magnetization - truth.magnetization
    return ApproximationErrors(
        moments=np.sqrt(np.mean(difference**2, axis=-1)),
        log_partition=(found.log_partition - truth.log_partition) / difference.shape[-1],
        solution=found,
    )


def several_solutions(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    method: str,
    starts: np.ndarray,
    apart: float = 1e-3,
) -> np.ndarray:
    """Whether the climbing solver ends in more than one place, (batch,) booleans.

    `couplings` (batch, N, N), `fields` (batch, N); `starts` (S, batch, N), first magnetizations.
    Ends count as different beyond `apart` in some spin; a start from which the equations were
    not solved does not count. Raises ValueError or TypeError for bad input.

    >>> pair = 3.0 * (1.0 - np.eye(2))[None]
    >>> starts = np.array([[[0.5, 0.5]], [[-0.5, -0.5]]])
    >>> several_solutions(pair, fields=np.zeros((1, 2)), beta=1.0, method="naive", starts=starts)
    array([ True])
    """
    starts = check_array("starts", starts, ndim=3)
    fields = check_array("fields", fields, shape=starts.shape[1:])
    check_integer("number of starts", len(starts), low=2)
    system: dict[str, Any] = {"fields": fields, "beta": beta, "method": method}
    found = [solve_mean_field(couplings, **system, start=start, throw=False) for start in starts]
    ends = np.array([solution.magnetization for solution in found])
    arrived = np.array([solution.converged for solution in found])[..., None]
    high = ends.max(axis=0, where=arrived, initial=-1.0)
    low = ends.min(axis=0, where=arrived, initial=1.0)
    return (high - low).max(axis=-1) > check_real("apart", apart, low=0.0)
