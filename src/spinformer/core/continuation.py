"""A curve of solutions of F(u) = 0, n equations for n + 1 unknowns, followed along its arclength.

Pseudo-arclength continuation (Keller 1977): from a point u and a unit tangent t the predictor is
u + h t, and Newton's method corrects it within the plane t·(v − u) = h. A turning point in a
parameter is no obstacle, since no parameter is singled out. Lengths are measured after each
unknown is divided by its entry of `scale`. A step is halved where Newton's method fails, where it
lands far off the prediction, or where the tangent turns by more than 30 degrees, and lengthened
where Newton's method was quick [allgower2003introduction].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_function, check_integer, check_real
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


@record
class Curve:
    """Points of a curve of solutions, in their order.

    points: (m, n + 1), the first is the corrected start. tangents: (m, n + 1), in scaled
    unknowns, of unit length.
    status: CONVERGED where the curve was left at a bound of `within`, CYCLE where it closed upon
    its start, STEP_LIMIT after `max_steps` points, STALLED where even the smallest step failed,
    DIVERGED where the start is no solution (then there is no point).
    """

    points: np.ndarray
    tangents: np.ndarray
    status: Status


def follow(
    equations: Equations,
    start: ArrayLike,
    *,
    direction: ArrayLike,
    step: float,
    scale: ArrayLike | None = None,
    within: tuple[ArrayLike, ArrayLike] | None = None,
    smallest: float = 1e-4,
    largest: float = 10.0,
    tolerance: float = 1e-10,
    max_steps: int = 200,
) -> Curve:
    """Follow F(u) = 0 from near `start`, at first towards `direction`, for `max_steps` points.

    equations: u → F(u) (n,), DF(u) (n, n + 1). start, direction, scale: (n + 1,); scale None: ones.
    step: first steplength, in scaled unknowns; `smallest` and `largest` are its bounds in units of
    it. within: lower and upper bounds (n + 1,) of u; the first point beyond one is the last one.
    tolerance: on the largest entry of |F|.

    >>> def circle(u):
    ...     return np.array([u @ u - 1.0]), 2.0 * u[None]
    >>> found = follow(circle, [1.0, 0.1], direction=[0.0, 1.0], step=0.2)
    >>> found.status.name, bool(np.abs(np.linalg.norm(found.points, axis=1) - 1).max() < 1e-10)
    ('CYCLE', True)
    """
    check_function("equations", equations)
    u = check_array("start", start, ndim=1)
    ahead = check_array("direction", direction, shape=u.shape)
    size = np.ones(len(u)) if scale is None else check_array("scale", scale, shape=u.shape)
    if not (size > 0.0).all():
        raise ValueError(f"scale must be positive, got {size}")
    low, high = (
        (np.full(len(u), -np.inf), np.full(len(u), np.inf))
        if within is None
        else _limits(within, u.shape)
    )
    step = check_real("step", step, low=0.0, open_low=True)
    smallest = check_real("smallest", smallest, low=0.0, high=1.0, open_low=True) * step
    largest = check_real("largest", largest, low=1.0) * step
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)

    def scaled(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(v * size)
        return value, jacobian * size

    v, t = u / size, ahead / size
    if not np.linalg.norm(t) > 0.0:
        raise ValueError("direction must not vanish")
    t = t / np.linalg.norm(t)
    first = _correct(scaled, v, t, tolerance)
    if first is None:
        empty = np.empty((0, len(u)))
        return Curve(points=empty, tangents=empty, status=Status.DIVERGED)
    v, jacobian, _ = first
    t = _tangent(jacobian, t)
    points, tangents = [v], [t]
    status, left = Status.STEP_LIMIT, False
    while len(points) < max_steps:
        found = _correct(scaled, v + step * t, t, tolerance)
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
        tangents.append(t)
        if ((v * size < low) | (v * size > high)).any():
            status = Status.CONVERGED
            break
        away = float(np.linalg.norm(v - points[0]))
        left = left or away > 2.0 * step
        if left and away < step and t @ tangents[0] > _STRAIGHT:
            status = Status.CYCLE
            break
        if effort <= _QUICK:
            step = min(1.3 * step, largest)
    return Curve(points=np.array(points) * size, tangents=np.array(tangents), status=status)


def _limits(within: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends, infinite ones allowed."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=float), shape) for end in within)
    except (TypeError, ValueError):
        raise ValueError(f"within must be two ends of shape {shape}, got {within!r:.60}") from None
    if not (low <= high).all():
        raise ValueError(f"within must be a lower end below an upper one, got {within!r:.60}")
    return low, high


def _correct(
    scaled: Equations, guess: np.ndarray, t: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Newton's method in the plane through `guess` across t: point, Jacobian, effort."""
    v = guess
    for effort in range(_NEWTON_STEPS + 1):
        value, jacobian = scaled(v)
        residual = float(np.abs(value).max())
        if not np.isfinite(residual) or not np.isfinite(jacobian).all():
            return None
        if residual <= tolerance:
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
