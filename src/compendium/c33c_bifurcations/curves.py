"""A curve of solutions of F(u) = 0, n equations for n + 1 unknowns, followed along its arclength.

Pseudo-arclength continuation (Keller 1977): from a point u and a unit tangent t the predictor is
u + h t, and Newton's method corrects it within the plane t·(v − u) = h. A step is halved where
Newton's method fails, where it lands far off the prediction, or where the tangent turns by more
than 30 degrees, and lengthened where Newton's method was quick [allgower2003introduction].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spinformer.core.solve import NotConverged

# (n + 1,) → residual (n,) and Jacobian (n, n + 1).
Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Cosine of the largest turn of the tangent in one step, and the largest distance between
# predictor and corrector in units of the step.
_STRAIGHT = np.cos(np.radians(30.0))
_ASTRAY = 0.5
# Bounds of the steplength in units of the first one.
_SMALLEST, _LARGEST = 1e-4, 10.0
_NEWTON_STEPS = 8
_QUICK = 3
_TOLERANCE = 1e-10  # on the largest entry of |F|


def follow(
    equations: Equations,
    start: np.ndarray,
    *,
    step: float,
    within: tuple[float, float],
    max_steps: int,
) -> np.ndarray:
    """Points (m, n + 1) of F(u) = 0, in their order, from near `start`.

    step: first steplength; its sign says in which direction of the last unknown. within: bounds of
    that unknown; the first point beyond them is the last one. So is the last before the curve
    closes upon its start, the one after which even the smallest step fails, and number
    `max_steps`. Raises NotConverged where the start is no solution.
    """
    t = np.append(np.zeros(len(start) - 1), np.sign(step))
    h, (smallest, largest) = abs(step), np.abs(step) * np.array([_SMALLEST, _LARGEST])
    first = _correct(equations, start, t)
    if first is None:
        raise NotConverged("no solution was found near the start of the curve")
    v, t, _ = first
    points, initial, left = [v], t, False
    while len(points) < max_steps and h >= smallest:
        found = _correct(equations, v + h * t, t)
        new, turned, effort = found or (v, t, _NEWTON_STEPS)
        if np.linalg.norm(new - v - h * t) > _ASTRAY * h or turned @ t < _STRAIGHT:
            h *= 0.5
            continue
        v, t = new, turned
        points.append(v)
        away = float(np.linalg.norm(v - points[0]))
        left = left or away > 2.0 * h
        closed = left and away < h and t @ initial > _STRAIGHT
        if closed or not within[0] <= v[-1] <= within[1]:
            break
        if effort <= _QUICK:
            h = min(1.3 * h, largest)
    return np.array(points)


def _correct(
    equations: Equations, guess: np.ndarray, t: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Newton's method in the plane through `guess` across t: point, tangent there, effort.

    The tangent is the null vector of the Jacobian on the side of t.
    """
    v = guess
    for effort in range(_NEWTON_STEPS + 1):
        value, jacobian = equations(v)
        residual = float(np.abs(value).max())
        if not np.isfinite(residual) or not np.isfinite(jacobian).all():
            return None
        if residual <= _TOLERANCE:
            null: np.ndarray = np.linalg.svd(jacobian)[2][-1]
            return v, null if null @ t >= 0.0 else -null, effort
        try:
            change = np.linalg.solve(np.vstack([jacobian, t]), np.append(value, t @ (v - guess)))
        except np.linalg.LinAlgError:
            return None
        v = v - change
    return None
