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
    direction: np.ndarray,
    step: float,
    scale: np.ndarray,
    within: tuple[np.ndarray, np.ndarray],
    max_steps: int = 200,
) -> np.ndarray:
    """Points (m, n + 1) of F(u) = 0, in their order, from near `start` towards `direction`.

    step: first steplength, in scaled unknowns. within: lower and upper bounds (n + 1,) of u; the
    first point beyond one is the last one. So is the last before the curve closes upon its start,
    the one after which even the smallest step fails, and number `max_steps`. Raises NotConverged
    where the start is no solution.
    """
    smallest, largest = _SMALLEST * step, _LARGEST * step

    def scaled(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(v * scale)
        return value, jacobian * scale

    v, t = start / scale, direction / scale
    t = t / np.linalg.norm(t)
    first = _correct(scaled, v, t)
    if first is None:
        raise NotConverged("no solution was found near the start of the curve")
    v, jacobian, _ = first
    t = _tangent(jacobian, t)
    points, initial, left = [v], t, False
    while len(points) < max_steps and step >= smallest:
        found = _correct(scaled, v + step * t, t)
        if found is not None:
            new, jacobian, effort = found
            turned = _tangent(jacobian, t)
            if np.linalg.norm(new - v - step * t) > _ASTRAY * step or turned @ t < _STRAIGHT:
                found = None
        if found is None:
            step *= 0.5
            continue
        v, t = new, turned
        points.append(v)
        away = float(np.linalg.norm(v - points[0]))
        left = left or away > 2.0 * step
        closed = left and away < step and t @ initial > _STRAIGHT
        if closed or ((v * scale < within[0]) | (v * scale > within[1])).any():
            break
        if effort <= _QUICK:
            step = min(1.3 * step, largest)
    return np.array(points) * scale


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
