"""A curve of solutions of F(u) = 0, n equations for n + 1 unknowns, followed along its arclength.

Pseudo-arclength continuation (Keller 1977): from a point u and a unit tangent t the predictor is
u + h t, and Newton's method corrects it within the plane t·(v − u) = h. Lengths are measured after
each unknown is divided by its entry of `scale`. A step is halved where Newton's method fails, where
it lands far off the prediction, or where the tangent turns by more than 30 degrees, and lengthened
where Newton's method was quick [allgower2003introduction].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spinformer.core.records import record
from spinformer.core.solve import Status

# (n + 1,) → residual (n,) and Jacobian (n, n + 1).
Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Cosine of the largest turn of the tangent in one step, and the largest distance between
# predictor and corrector in units of the step.
_STRAIGHT = np.cos(np.radians(30.0))
_ASTRAY = 0.5
_NEWTON_STEPS = 8
_QUICK = 3
_TOLERANCE = 1e-10  # on the largest entry of |F|


@record
class Curve:
    """Points (m, n + 1) of a curve of solutions, in their order; the first is the corrected start.

    status: CONVERGED where the curve was left at a bound of `within`, CYCLE where it closed upon
    its start, STEP_LIMIT after `max_steps` points, STALLED where even the smallest step failed,
    DIVERGED where the start is no solution (then there is no point).
    """

    points: np.ndarray
    status: Status


def follow(
    equations: Equations,
    start: np.ndarray,
    *,
    direction: np.ndarray,
    step: float,
    scale: np.ndarray,
    within: tuple[np.ndarray, np.ndarray],
    max_steps: int = 200,
    smallest: float = 1e-4,
    largest: float = 10.0,
) -> Curve:
    """Follow F(u) = 0 from near `start`, at first towards `direction`, for `max_steps` points.

    step: first steplength, in scaled unknowns; `smallest` and `largest` are its bounds in units of
    it. within: lower and upper bounds (n + 1,) of u; the first point beyond one is the last one.
    """
    smallest, largest = smallest * step, largest * step

    def scaled(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(v * scale)
        return value, jacobian * scale

    v, t = start / scale, direction / scale
    t = t / np.linalg.norm(t)
    first = _correct(scaled, v, t)
    if first is None:
        return Curve(points=np.empty((0, len(v))), status=Status.DIVERGED)
    v, jacobian, _ = first
    t = _tangent(jacobian, t)
    points, initial = [v], t
    status, left = Status.STEP_LIMIT, False
    while len(points) < max_steps:
        found = _correct(scaled, v + step * t, t)
        if found is not None:
            new, jacobian, effort = found
            turned = _tangent(jacobian, t)
            if np.linalg.norm(new - v - step * t) > _ASTRAY * step or turned @ t < _STRAIGHT:
                found = None
        if found is None:
            step *= 0.5
            if step < smallest:
                status = Status.STALLED
                break
            continue
        v, t = new, turned
        points.append(v)
        if ((v * scale < within[0]) | (v * scale > within[1])).any():
            status = Status.CONVERGED
            break
        away = float(np.linalg.norm(v - points[0]))
        left = left or away > 2.0 * step
        if left and away < step and t @ initial > _STRAIGHT:
            status = Status.CYCLE
            break
        if effort <= _QUICK:
            step = min(1.3 * step, largest)
    return Curve(points=np.array(points) * scale, status=status)


def _correct(
    scaled: Equations, guess: np.ndarray, t: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Newton's method in the plane through `guess` across t: point, Jacobian, effort."""
    v = guess
    for effort in range(_NEWTON_STEPS + 1):
        value, jacobian = scaled(v)
        residual = float(np.abs(value).max())
        if not np.isfinite(residual) or not np.isfinite(jacobian).all():
            return None
        if residual <= _TOLERANCE:
            return v, jacobian, effort
        try:
            change = np.linalg.solve(np.vstack([jacobian, t]), np.append(value, t @ (v - guess)))
        except np.linalg.LinAlgError:
            return None
        v = v - change
    return None


def _tangent(jacobian: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Unit null vector of the Jacobian, on the side of t."""
    null: np.ndarray = np.linalg.svd(jacobian)[2][-1]
    return null if null @ t >= 0.0 else -null
