"""The diagonal shift that gives an inverse matrix ones on its diagonal, as adaptive TAP needs it.

For a symmetric K (N, N) with zero diagonal and positive v the condition [(Λ − K)⁻¹]_ii = v_i on
the diagonal matrix Λ becomes, scaled by √v on both sides, the one solved here.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from spinformer.core.checks import check_array, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.spins.ising.couplings import check_couplings

# Beyond, rounding leaves no digit of the inverse.
MAX_ENTRY = 1e12


@record
class UnitDiagonal(Solution[np.ndarray]):
    """A shift a (`value`, (N,)), A = [diag(1 + a) − matrix]⁻¹ and the ln det of what was inverted.

    residual: max_i |A_ii − 1|.
    """

    inverse: np.ndarray
    log_det: float

    @property
    def shift(self) -> np.ndarray:
        """The shift a, another name of `value`."""
        return self.value


def unit_diagonal(
    matrix: np.ndarray,
    *,
    start: np.ndarray | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 200,
    throw: bool = True,
) -> UnitDiagonal:
    """The shift a for which [diag(1 + a) − matrix]⁻¹ has ones on its diagonal.

    `matrix` (N, N) symmetric with zero diagonal. a minimises the convex Σ_i a_i − ln det over
    the positive definite shifts, so it exists and is unique; damped Newton steps of a
    self-concordant function stay inside that set and converge from any `start` (N,) in it (one
    outside is replaced). They go on until rounding stops them; `tolerance` is on the residual
    max_i |A_ii − 1|. Raises ValueError for other matrices
    and entries beyond 1e12, NotConverged unless `throw` is False.

    >>> found = unit_diagonal(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> f"{found.shift[0]:.6f} {(np.sqrt(17) - 1) / 2:.6f}"
    '1.561553 1.561553'
    """
    matrix = check_array("matrix", check_couplings(matrix, name="matrix"), ndim=2)
    check_array("matrix", matrix, low=-MAX_ENTRY, high=MAX_ENTRY)
    if start is not None:
        start = check_array("start", start, shape=(len(matrix),), low=-MAX_ENTRY, high=MAX_ENTRY)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    shift, inverse, log_det, steps, stuck = minimise(matrix, start=start, max_steps=max_steps)
    residual = float(np.abs(np.diagonal(inverse) - 1).max())
    found = UnitDiagonal(
        value=shift,
        residual=residual,
        steps=steps,
        status=status_of(residual <= tolerance, Status.STALLED if stuck else Status.STEP_LIMIT),
        inverse=inverse,
        log_det=log_det,
    )
    if throw:
        found.require("the shift of a unit diagonal")
    return found


def minimise(
    matrix: np.ndarray, *, start: np.ndarray | None, max_steps: int = 200
) -> tuple[np.ndarray, np.ndarray, float, int, bool]:
    """`unit_diagonal` without checks: (shift, inverse, ln det, steps, whether rounding stopped it).

    >>> minimise(np.zeros((1, 1)), start=None)[0]
    array([0.])
    """
    size = len(matrix)
    shift = (matrix**2).sum(1) if start is None else start
    factor = _factor(shift, matrix)
    if factor is None:
        shift = np.full(size, max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0) * (1 + 1e-8))
        factor = cholesky(np.diag(1 + shift) - matrix, lower=True, check_finite=False)
    identity = np.eye(size)
    stuck = False
    for step in range(max_steps + 1):
        inverse = cho_solve((factor, True), identity, check_finite=False)
        if step == max_steps:
            break
        gap = np.diagonal(inverse) - 1
        move = np.linalg.solve(inverse**2, gap)
        decrement = math.sqrt(max(float(gap @ move), 0.0))
        if decrement < 1e-13 * np.sqrt(size):
            break
        trial = shift + move / (1 + decrement if decrement > 0.25 else 1.0)
        trial_factor = _factor(trial, matrix)
        if trial_factor is None or np.array_equal(trial, shift):
            stuck = True
            break
        shift, factor = trial, trial_factor
    log_det = 2 * float(np.log(np.diagonal(factor)).sum())
    return shift, inverse, log_det, step, stuck


def _factor(shift: np.ndarray, matrix: np.ndarray) -> np.ndarray | None:
    try:
        return cholesky(np.diag(1 + shift) - matrix, lower=True, check_finite=False)
    except LinAlgError:
        return None
