"""Solution curves of n equations for n + k unknowns by pseudo-arclength continuation.

From a point u of the curve with the unit tangent t the predictor is u + h t, and Newton's method
corrects it in the plane t·(v − u) = h [allgower2003introduction], so that a curve is followed past
its folds. The step h adapts to the curvature. The sign of the determinant of the Jacobian with the
tangent below it tells where another branch is met. Arguments are not checked here: `branches` and
`bifurcation_curves` are the functions for users.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq

from spinformer.core.records import record
from spinformer.core.solve import NotConverged

# (n + k,) → residual (m,) and Jacobian (m, n + k).
Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

FOUND = 1e-10  # largest residual of what is called found
# Two points closer than this are one.
SAME = 1e-7
# Along a curve: cosine of the largest turn of the tangent in one step; largest distance between
# predictor and corrector in units of the step; bounds of the step in units of the first one.
_STRAIGHT = np.cos(np.radians(30.0))
_ASTRAY = 0.5
_SMALLEST = 1e-4
_LARGEST = 10.0
# A step, in units of the first one, that may cross a branch point.
_PASSING = 1e-2
# Newton steps of a corrector, and how many are few: then the step grows.
_NEWTON_STEPS = 8
_QUICK = 3
# How exactly a special point is located between two points of a curve, in units of their distance.
_LOCATED = 1e-9
# How much finer a piece of a curve is traced on which a special point was lost.
_FINER = 0.05
# Whether a curve begins upwards or downwards in its last unknown, in the order of joining.
_SIDES = {"up": (1.0,), "down": (-1.0,), "both": (-1.0, 1.0)}


@record
class Curve:
    """Points of a solution curve in order, and why it ends.

    Attributes
    ----------
    points : ndarray, shape (m, n + k)
        The points.
    tangents : ndarray, shape (m, n + k)
        Unit tangents in the direction of the order.
    complete : bool
        Whether the curve ends outside of its bounds or is closed.
    reason : str
        Why the curve ends, in words.
    """

    points: np.ndarray
    tangents: np.ndarray
    complete: bool
    reason: str

    def place(self, index: int, u: np.ndarray) -> float:
        """Compute where a point behind the one of number `index` is in the order of the curve.

        Parameters
        ----------
        index : int
            Number of the point before it.
        u : ndarray, shape (n + k,)
            The point.

        Returns
        -------
        float
            A number that grows along the curve.
        """
        return index + float(np.linalg.norm(u - self.points[index]))


@record
class Correction:
    """A point of a curve that Newton's method found from a guess.

    Attributes
    ----------
    point : ndarray, shape (n + 1,)
        The point, or the guess where none was found.
    tangent : ndarray, shape (n + 1,)
        Unit tangent of the curve on the side of the given direction, zero where none was found.
    effort : int
        Number of Newton steps.
    orientation : float
        Sign of the determinant of the Jacobian with the tangent below it. It stays the same along a
        curve, so that another sign tells of another curve or of a branch point between.
    found : bool
        Whether there is a point.
    """

    point: np.ndarray
    tangent: np.ndarray
    effort: int
    orientation: float
    found: bool


def trace_within(
    equations: Equations,
    start: np.ndarray,
    *,
    step: float,
    bounds: np.ndarray,
    direction: str,
    max_steps: int,
    cut: Callable[[Curve], Curve] | None = None,
) -> Curve:
    """Trace a curve up, down, or both ways in its last unknown, to the bounds of the last k.

    Parameters
    ----------
    equations : callable
        The equations of the curve.
    start : ndarray, shape (n + k,)
        A point near the curve.
    step : float
        First step length.
    bounds : ndarray, shape (k, 2)
        Bounds of the last k unknowns, on which the curve ends.
    direction : {"both", "up", "down"}
        Whether it begins upwards or downwards in the last unknown, or goes both ways.
    max_steps : int
        Largest number of points each way.
    cut : callable, optional
        Function that shortens the curve of one way.

    Returns
    -------
    Curve
        The points in order.

    Raises
    ------
    NotConverged
        If no solution is found near `start`.
    """
    ways = []
    for sign in _SIDES[direction]:
        along = np.append(np.zeros(len(start) - 1), sign)
        way = trace_curve(
            equations, start, along=along, step=step, bounds=bounds, max_steps=max_steps
        )
        way = _ending_on_bounds(equations, way, bounds=bounds)
        ways.append(way if cut is None else cut(way))
    return ways[0] if len(ways) == 1 else _joined(*ways)


def trace_curve(
    equations: Equations,
    start: np.ndarray,
    *,
    along: np.ndarray,
    step: float,
    bounds: np.ndarray,
    max_steps: int,
    closed: bool = True,
) -> Curve:
    """Trace a solution curve by pseudo-arclength continuation; arguments are not checked.

    Parameters
    ----------
    equations : callable
        Function of u (n + k,) that returns F (n + k − 1,) and its Jacobian.
    start : ndarray, shape (n + k,)
        A point near the curve.
    along : ndarray, shape (n + k,)
        Direction in which the curve begins, and across which the start is corrected.
    step : float
        First step length.
    bounds : ndarray, shape (k, 2)
        Bounds of the last k unknowns.
    max_steps : int
        Largest number of points.
    closed : bool, default True
        Whether a curve that comes back to its start ends there.

    Returns
    -------
    Curve
        The points, the last of them outside of the bounds where the curve leaves them.

    Raises
    ------
    NotConverged
        If no solution is found near `start`.
    """
    # Where the curve begins it is corrected across `along`, so that the start's parameter stays.
    begin = corrected(equations, start, along)
    if not begin.found:
        raise NotConverged("no solution was found near the start of the curve")
    v = begin.point
    t = begin.tangent
    points = [v]
    tangents = [t]
    orientation = begin.orientation
    h = step
    free = len(bounds)
    reason = f"max_steps = {max_steps} points were not enough"
    complete = False
    while len(points) < max_steps:
        if h < _SMALLEST * step:
            reason = f"steps of {h:.1g} failed"
            break
        new = corrected(equations, v + h * t, t)
        astray = not np.linalg.norm(new.point - v - h * t) <= _ASTRAY * h
        # Another orientation: another branch, unless even small steps pass a branch point.
        crossed = new.orientation != orientation and h > _PASSING * step
        if astray or crossed or new.tangent @ t < _STRAIGHT:
            # Beyond a bound the equations may not be smooth, as those of a network at ε < 0.
            last = _on_the_bound(equations, v, h * t, bounds=bounds)
            if last is not None and last.orientation == orientation:
                points.append(last.point)
                tangents.append(last.tangent)
                reason = "the curve leaves its bounds"
                complete = True
                break
            h *= 0.5
            continue
        v = new.point
        t = new.tangent
        orientation = new.orientation
        points.append(v)
        tangents.append(t)
        if not ((bounds[:, 0] <= v[-free:]) & (v[-free:] <= bounds[:, 1])).all():
            reason = "the curve leaves its bounds"
            complete = True
            break
        if closed and len(points) > 3 and _back(points, tangents):
            reason = "the curve is closed"
            complete = True
            break
        if new.effort <= _QUICK:
            h = min(1.3 * h, _LARGEST * step)
    return Curve(
        points=np.array(points), tangents=np.array(tangents), complete=complete, reason=reason
    )


def _on_the_bound(
    equations: Equations, v: np.ndarray, ahead: np.ndarray, *, bounds: np.ndarray
) -> Correction | None:
    """The point of a curve on the first bound that a step passes, None if there is none near."""
    free = len(bounds)
    passed = np.where(ahead[-free:] < 0.0, bounds[:, 0], bounds[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (passed - v[-free:]) / ahead[-free:]
    shares = np.where((shares > 0.0) & (shares < 1.0), shares, np.inf)
    which = int(shares.argmin())
    if not np.isfinite(shares[which]):
        return None
    guess = v + shares[which] * ahead
    guess[which - free] = passed[which]
    across = np.zeros(len(v))
    across[which - free] = np.sign(ahead[which - free])
    found = corrected(equations, guess, across)
    near = np.linalg.norm(found.point - guess) <= _ASTRAY * np.linalg.norm(ahead)
    return found if found.found and near else None


def _back(points: Sequence[np.ndarray], tangents: Sequence[np.ndarray]) -> bool:
    """Whether the last step of a curve passed its first point in the same direction."""
    step = points[-1] - points[-2]
    length = float(np.linalg.norm(step))
    ahead = points[0] - points[-2]
    share = float(ahead @ step) / length**2
    aside = float(np.linalg.norm(ahead - share * step))
    return 0.0 < share <= 1.0 and aside < 0.2 * length and float(tangents[0] @ tangents[-1]) > 0.5


def _joined(one: Curve, other: Curve) -> Curve:
    """Two curves that begin at one point in opposite directions, the first passed backwards."""
    if one.reason == "the curve is closed":
        return one
    failed = [part.reason for part in (one, other) if not part.complete]
    return Curve(
        points=np.concatenate([one.points[:0:-1], other.points]),
        tangents=np.concatenate([-one.tangents[:0:-1], other.tangents]),
        complete=not failed,
        reason=failed[0] if failed else other.reason,
    )


def corrected(equations: Equations, guess: np.ndarray, t: np.ndarray) -> Correction:
    """Correct a guess by Newton's method in the plane through it across a direction.

    Parameters
    ----------
    equations : callable
        Function of u (n + 1,) that returns F (n,) and its Jacobian.
    guess : ndarray, shape (n + 1,)
        The guess.
    t : ndarray, shape (n + 1,)
        The direction.

    Returns
    -------
    Correction
        The point of the curve, its tangent, and whether it was found.
    """
    v = guess
    for effort in range(_NEWTON_STEPS + 1):
        value, jacobian = equations(v)
        if not (np.isfinite(value).all() and np.isfinite(jacobian).all()):
            break
        if np.abs(value).max() <= FOUND:
            null = np.linalg.svd(jacobian)[2][-1]
            tangent = null * np.sign(null @ t)
            sign = float(np.linalg.slogdet(np.vstack([jacobian, tangent]))[0])
            return Correction(point=v, tangent=tangent, effort=effort, orientation=sign, found=True)
        off = np.append(value, t @ (v - guess))
        v = v - np.linalg.lstsq(np.vstack([jacobian, t]), off, rcond=None)[0]
    return Correction(
        point=guess, tangent=np.zeros_like(t), effort=_NEWTON_STEPS, orientation=0.0, found=False
    )


def located(
    equations: Equations, curve: Curve, *, index: int, test: Callable[[np.ndarray], float]
) -> np.ndarray | None:
    """Locate a zero of a test function between two neighbouring points of a curve.

    Parameters
    ----------
    equations : callable
        The equations of the curve.
    curve : Curve
        The curve.
    index : int
        Number of the point before the zero.
    test : callable
        The test function of a point, with opposite signs at the two points.

    Returns
    -------
    ndarray of shape (n + 1,), or None
        The point, None where it could not be found.
    """
    found = _between(equations, curve, index=index, test=test)
    if found is not None:
        return found
    # Where the curve bends too much between the two points it is traced again with finer steps.
    chord = curve.points[index + 1] - curve.points[index]
    length = float(np.linalg.norm(chord))
    finer = trace_curve(
        equations,
        curve.points[index],
        along=curve.tangents[index],
        step=length * _FINER,
        bounds=np.array([[-np.inf, np.inf]]),
        max_steps=round(4.0 / _FINER),
        closed=False,
    )
    passed = (finer.points - curve.points[index + 1]) @ curve.tangents[index + 1] > 0.0
    count = int(passed.argmax()) + 1 if passed.any() else len(finer.points)
    signs = np.sign([test(point) for point in finer.points[:count]])
    changes = np.flatnonzero(signs[1:] * signs[:-1] < 0)
    if not len(changes):
        return None
    return _between(equations, finer, index=int(changes[0]), test=test)


def _between(
    equations: Equations, curve: Curve, *, index: int, test: Callable[[np.ndarray], float]
) -> np.ndarray | None:
    """A zero of a test function on the segment of a curve behind a point, None if it is lost."""
    first, last = curve.points[index : index + 2]
    begin, end = curve.tangents[index : index + 2]
    chord = last - first
    length = float(np.linalg.norm(chord))
    if not length:
        return None

    def point(share: float) -> np.ndarray | None:
        # Hermite's cubic through both points along both tangents.
        s = share
        cubic = first + s**2 * (3.0 - 2.0 * s) * chord
        cubic = cubic + length * s * (1.0 - s) * ((1.0 - s) * begin - s * end)
        correction = corrected(equations, cubic, chord / length)
        return correction.point if correction.found else None

    def value(share: float) -> float:
        v = point(share)
        # NaN, where a point between the two is lost, ends the search.
        return np.nan if v is None else test(v)

    if not value(0.0) * value(1.0) <= 0.0:
        return None
    try:
        share = brentq(value, 0.0, 1.0, xtol=_LOCATED)
    except ValueError:
        return None
    return point(float(share))


def _ending_on_bounds(equations: Equations, curve: Curve, *, bounds: np.ndarray) -> Curve:
    """A curve whose last point, if it is outside of the bounds, is moved back onto them."""
    points = curve.points
    free = len(bounds)
    last = points[-1, -free:]
    outside = np.flatnonzero((last < bounds[:, 0]) | (last > bounds[:, 1]))
    if len(points) < 2 or not len(outside):
        return curve
    # Of several bounds that the last step passes, the one that it passes first.
    before = points[-2, -free:]
    passed = np.where(last < bounds[:, 0], bounds[:, 0], bounds[:, 1])
    share = (passed[outside] - before[outside]) / (last[outside] - before[outside])
    which = int(outside[share.argmin()])
    column = which - free
    bound = float(passed[which])
    u = located(equations, curve, index=len(points) - 2, test=lambda v: float(v[column] - bound))
    if u is None:
        return curve
    u[column] = bound
    # A curve that begins on the bound and leaves it is its start alone.
    kept = len(points) - 1 if np.linalg.norm(u - points[-2]) < SAME else len(points)
    ended = points.copy()
    ended[-1] = u
    return Curve(
        points=ended[:kept],
        tangents=curve.tangents[:kept],
        complete=curve.complete,
        reason=curve.reason,
    )
