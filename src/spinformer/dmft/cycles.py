"""Fixed points and cycles of a network or map, stable or unstable, and their continuation.

A cycle of q steps is a fixed point Φ_q(x) = x of q steps, whose derivative ∂Φ_q/∂x is the monodromy
matrix (`lyapunov.period_map`); its eigenvalues are the Floquet multipliers μ. Functions of the
multipliers vanish at bifurcations: Π_i (1 − μ_i) at a fold, Π_i (1 + μ_i) at a flip (period
doubling), and Π_{i<j} (1 − μ_i μ_j) at a Neimark–Sacker bifurcation, the birth of a closed curve.
The latter also vanishes at a *neutral saddle*, μ and 1/μ real, which is no bifurcation
[kuznetsov2004elements, Ch. 10]. Derivatives by parameters and of these conditions are central
differences.

Branches u = (x, λ) of cycles along a parameter λ are followed by pseudo-arclength continuation
(Keller 1977): from u and the unit tangent t the predictor is u + h t, corrected in the plane
t·(v − u) = h [allgower2003introduction]. `bifurcations` follows the bifurcations themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.optimize import brentq, root

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_flag,
    check_function,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.maps import Map, System, as_system
from spinformer.dmft.network import AttentionNetwork, Context

# (n + k,) → residual (m,) and Jacobian (m, n + k).
Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

_FOUND = 1e-10  # largest residual of what is called found
_SAME = 1e-7  # two states of an orbit closer than this are one: the cycle is shorter than asked
# How near the unit circle a multiplier is on it, and how far off the real axis it is complex.
_NEAR = 1e-5
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
# The first step of a branch, in units of the interval of its parameter.
_FIRST_STEP = 0.02
# An interval of a parameter that is wider is the unit in which the parameter is measured.
_WIDE = 1.0
# How exactly a special point is located between two points of a curve, in units of their distance.
_LOCATED = 1e-9
# How much finer a piece of a curve is traced on which a special point was lost.
_FINER = 0.05


class Bifurcation(IntEnum):
    """Bifurcation of a cycle: FOLD (saddle-node), NEIMARK_SACKER, FLIP, or BRANCH_POINT.

    A flip doubles the period. At a branch point, a pitchfork or transcritical bifurcation, two
    branches cross.
    """

    FOLD = 0
    NEIMARK_SACKER = 1
    FLIP = 2
    BRANCH_POINT = 3

    @property
    def label(self) -> str:
        """Name of the bifurcation in words.

        Examples
        --------
        >>> Bifurcation.NEIMARK_SACKER.label
        'Neimark–Sacker'
        """
        return ("fold", "Neimark–Sacker", "flip", "branch point")[self.value]


@record
class Cycle:
    """Cycle of a network or map, with its Floquet multipliers.

    Attributes
    ----------
    value : Context or ndarray
        A state on the cycle, a context with attention (T, P) or an array (n,).
    parameters : mapping of str to float
        Parameters of the system by name.
    period : int
        Number of steps until the state returns for the first time.
    multipliers : ndarray of complex, shape (n,)
        Floquet multipliers of one period, the largest modulus first.
    kind : Bifurcation, optional
        The bifurcation at which the cycle is, None for a cycle at given parameters.
    """

    value: Any
    parameters: Mapping[str, Any]
    period: int
    multipliers: np.ndarray
    kind: Bifurcation | None = None

    @property
    def beta(self) -> Any:
        """Inverse temperature β of the tokens of a network."""
        return self.parameters["beta"]

    @property
    def stable(self) -> bool:
        """Whether all multipliers are inside the unit circle."""
        return bool(np.abs(self.multipliers[..., 0]) < 1.0)

    @property
    def rotation(self) -> float:
        """Rotation number, in turns per period, of the multiplier nearest to the unit circle."""
        nearest = self.multipliers[np.abs(np.abs(self.multipliers) - 1.0).argmin()]
        return float(np.abs(np.angle(nearest)) / (2 * np.pi))


@record
class Branch:
    """Branch of cycles along a parameter, in order, with the bifurcations on it.

    Attributes
    ----------
    value : Context or ndarray
        States on the cycles, attention of shape (m, T, P) or an array (m, n).
    parameter : str
        Name of the parameter.
    values : ndarray, shape (m,)
        Values of the parameter.
    parameters : mapping of str to float
        The other parameters of the system.
    period : int
        Number of steps of the cycles.
    multipliers : ndarray of complex, shape (m, n)
        Floquet multipliers, the largest modulus first.
    bifurcations : tuple of Cycle
        The bifurcations between the points, in the order of the branch.
    complete : bool
        Whether the branch was followed to the ends of its interval or around to its start.
    """

    value: Any
    parameter: str
    values: np.ndarray
    parameters: Mapping[str, float]
    period: int
    multipliers: np.ndarray
    bifurcations: tuple[Cycle, ...]
    complete: bool

    @property
    def beta(self) -> np.ndarray:
        """Inverse temperatures β of the tokens, of a branch along β."""
        if self.parameter != "beta":
            raise AttributeError(f"the branch is one along {self.parameter}, not along beta")
        return self.values

    @property
    def stable(self) -> np.ndarray:
        """Whether each cycle is stable, booleans of shape (m,)."""
        return np.asarray(np.abs(self.multipliers[:, 0]) < 1.0)

    def select(self, index: int) -> Cycle:
        """Select one cycle of the branch.

        Parameters
        ----------
        index : int
            Number of the point.

        Returns
        -------
        Cycle
            The cycle with its parameters and multipliers.
        """
        value = self.value.select(index) if isinstance(self.value, Context) else self.value[index]
        own = {self.parameter: float(self.values[index])}
        return Cycle(
            value=value,
            parameters=dict(self.parameters) | own,
            period=self.period,
            multipliers=self.multipliers[index],
        )


def find_cycle(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    period: int,
    max_steps: int = 200,
    **parameters: float,
) -> Cycle:
    """Find a fixed point or cycle, stable or unstable, by Newton's method.

    The cycle found has the given period or a divisor of it.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or array_like
        One state near the cycle, attention of shape (T, P) or an array (n,).
    period : int
        Number of steps of the cycle, 1 for a fixed point.
    max_steps : int, default 200
        Largest number of evaluations of Φ.
    **parameters : float
        Parameters of the map, or `beta` (required), `gamma` and `epsilon` of a network. Those not
        given are those of the map or network.

    Returns
    -------
    Cycle
        The cycle and its Floquet multipliers.

    Raises
    ------
    NotConverged
        If an entry of Φ(x) − x stays above 1e-10 in absolute value.
    TypeError
        If an argument is of the wrong type, or a parameter is missing or unknown.
    ValueError
        If `period` is not a multiple of the period of the positional code while ε > 0, or an
        argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(Network.document(), start, period=4, beta=0.5)
    >>> driven.period, driven.stable
    (4, True)
    """
    common = as_system(system, start)
    guess = _single(common, start)
    period = check_integer("period", period, low=1)
    max_steps = check_integer("max_steps", max_steps, low=1)
    values = checked_parameters(common, parameters)
    unit = common.unit(values)
    if period % unit:
        raise ValueError(f"period must be a multiple of {unit} while epsilon > 0, got {period}")
    problem = CycleProblem(common, period=period, parameters=values)
    u = problem.solve(guess, max_steps=max_steps)
    for shorter in range(unit, period, unit):
        if period % shorter == 0:
            end = common.advance(u[None], steps=shorter, parameters=values)[0]
            if np.abs(end - u).max() < _SAME:
                return CycleProblem(common, period=shorter, parameters=values).cycle(u)
    return problem.cycle(u)


def find_bifurcation(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    kind: Bifurcation,
    parameter: str | None = None,
    max_steps: int = 200,
) -> Cycle:
    r"""Find a fold, flip or Neimark–Sacker bifurcation of a cycle, in one parameter.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        A cycle, or a guess of one, near the bifurcation.
    kind : Bifurcation
        The kind of bifurcation, any but BRANCH_POINT, where the equations are singular.
    parameter : str, optional
        The parameter that is solved for; None is `beta` of a network, or the only parameter of a
        map.
    max_steps : int, default 200
        Largest number of evaluations of the equations.

    Returns
    -------
    Cycle
        The cycle at the bifurcation, with its parameters.

    Raises
    ------
    NotConverged
        If an entry of Φ(x) − x, or the condition over its slope, stays above 1e-10, or if the
        solution is a neutral saddle.
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If `kind` is no `Bifurcation`, or an argument is out of its range.

    Notes
    -----
    With the Floquet multipliers μ, the conditions of a fold, of a flip and of a Neimark–Sacker
    bifurcation are

    .. math::

        \prod_i (1 - \mu_i) = 0, \qquad \prod_i (1 + \mu_i) = 0, \qquad
        \prod_{i<j} (1 - \mu_i \mu_j) = 0.

    References
    ----------
    [kuznetsov2004elements, Ch. 10]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.document(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.244)
    >>> born = find_bifurcation(network, driven, kind=Bifurcation.NEIMARK_SACKER)
    >>> bool(abs(np.abs(born.multipliers[0]) - 1.0) < 1e-6)
    True
    """
    common, values = checked_cycle(system, start)
    solvable = (Bifurcation.FOLD, Bifurcation.NEIMARK_SACKER, Bifurcation.FLIP)
    kind = Bifurcation(check_choice("kind", kind, solvable))
    name = checked_parameter(common, parameter)
    max_steps = check_integer("max_steps", max_steps, low=1)
    fixed = {other: value for other, value in values.items() if other != name}
    problem = CycleProblem(common, period=start.period, parameters=fixed, free=(name,), kind=kind)
    guess = np.append(common.flat(start.value), values[name])
    return real_bifurcation(problem.cycle(problem.solve(guess, max_steps=max_steps)))


def continue_cycle(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    within: tuple[float, float],
    parameter: str | None = None,
    step: float | None = None,
    direction: str = "both",
    max_steps: int = 1000,
    throw: bool = True,
) -> Branch:
    """Continue a branch of fixed points or cycles in a parameter, past its folds.

    The step length adapts to the curvature of the branch. Each end of the branch is a bound of the
    interval, where the last cycle is solved for at exactly this value, or the start, if the branch
    is closed. The bifurcations on the way are located.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        A cycle on the branch.
    within : tuple of float
        Bounds of the parameter, which hold that of `start`.
    parameter : str, optional
        The parameter; None is `beta` of a network, or the only parameter of a map.
    step : float, optional
        First step length in the space of the state and the parameter, which is measured in units of
        its interval if this is longer than one. None is a fiftieth of the interval, at most 0.02.
    direction : {"both", "up", "down"}, default "both"
        Whether the branch begins upwards or downwards in the parameter, or goes both ways.
    max_steps : int, default 1000
        Largest number of points in each direction.
    throw : bool, default True
        Whether to raise where a branch ends inside of the interval. With False the part that was
        found is returned, with `complete` False.

    Returns
    -------
    Branch
        The cycles in order, from below to above in the direction of `start`, and the bifurcations.

    Raises
    ------
    NotConverged
        If `start` is no cycle, or if the branch could not be followed to the ends of the interval;
        the message says how far it came and why.
    TypeError
        If `start` is not a `Cycle` or `within` is not two numbers.
    ValueError
        If the parameter of `start` is outside of `within`, or an argument is out of its range.

    References
    ----------
    [allgower2003introduction]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.document(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.2)
    >>> branch = continue_cycle(network, driven, within=(1.1, 1.3))
    >>> branch.values[[0, -1]], [point.kind.label for point in branch.bifurcations]
    (array([1.1, 1.3]), ['Neimark–Sacker'])
    """
    common, values = checked_cycle(system, start)
    name = checked_parameter(common, parameter)
    low, high = checked_bounds("within", within)
    origin = values[name]
    if not low <= origin <= high:
        raise ValueError(
            f"start must have {name} within ({low:g}, {high:g}), got {origin:g}: continue it there "
            f"first, within ({min(low, origin):g}, {max(high, origin):g})"
        )
    width = high - low
    scale = width if _WIDE < width < np.inf else 1.0
    step = min(1.0, width / scale) * _FIRST_STEP if step is None else step
    step = check_real("step", step, low=0.0, open_low=True)
    direction = check_choice("direction", direction, ("both", "up", "down"))
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    fixed = {other: value for other, value in values.items() if other != name}
    problem = CycleProblem(
        common, period=start.period, parameters=fixed, free=(name,), scale=np.array([scale])
    )
    u = np.append(common.flat(start.value), origin / scale)
    bounds = np.array([[low / scale, high / scale]])
    sides = {"up": [1.0], "down": [-1.0], "both": [-1.0, 1.0]}[direction]
    curves = []
    for sign in sides:
        along = np.append(np.zeros(common.size), sign)
        curve = trace_curve(problem, u, along=along, step=step, bounds=bounds, max_steps=max_steps)
        curves.append(ending_on_bounds(problem, curve, bounds=bounds))
    curve = curves[0] if len(curves) == 1 else joined(*curves)
    branch = _branch(problem, curve)
    if throw and not branch.complete:
        raise NotConverged(
            f"the branch was followed in {name} only within ({branch.values.min():.6g}, "
            f"{branch.values.max():.6g}): {curve.reason}. Raise max_steps or lower step, or read "
            "this part with throw=False."
        )
    return branch


def pseudo_arclength(
    equations: Equations,
    start: np.ndarray,
    *,
    step: float,
    within: tuple[float, float],
    max_steps: int,
) -> np.ndarray:
    r"""Compute a solution curve of n equations for n + 1 unknowns by pseudo-arclength continuation.

    The curve ends at the first point that has the last unknown outside of the bounds `within`,
    where even the smallest step fails, or after `max_steps` points.

    Parameters
    ----------
    equations : callable
        Function of u (n + 1,) that returns F (n,) and its Jacobian (n, n + 1).
    start : ndarray, shape (n + 1,)
        A point near the curve.
    step : float
        First step length; its sign gives the direction of the last unknown.
    within : tuple of float
        Bounds of the last unknown.
    max_steps : int
        Largest number of points.

    Returns
    -------
    ndarray, shape (m, n + 1)
        Points of the curve, in order from near `start`.

    Raises
    ------
    NotConverged
        If no solution is found near `start`.
    TypeError
        If `equations` is not a function or `within` is not two numbers.
    ValueError
        If `step` is zero, the bounds are not in order, or an argument is out of its range.

    Notes
    -----
    From a point u with the unit tangent t, a step of length h solves

    .. math::

        F(v) = 0, \qquad t \cdot (v - u) = h.

    References
    ----------
    [allgower2003introduction]

    Examples
    --------
    >>> def circle(u):
    ...     return np.array([u @ u - 1.0]), 2.0 * u[None]
    >>> points = pseudo_arclength(circle, [1.0, 0.0], step=0.1, within=(-2.0, 0.9), max_steps=50)
    >>> bool(np.allclose(np.linalg.norm(points, axis=1), 1.0))
    True
    """
    check_function("equations", equations)
    start = check_array("start", start, shape=("n",))
    step = check_real("step", step)
    if step == 0.0:
        raise ValueError("step must not be zero: its sign is a direction, got 0.0")
    bounds = np.array([checked_bounds("within", within)])
    max_steps = check_integer("max_steps", max_steps, low=1)
    along = np.append(np.zeros(len(start) - 1), np.sign(step))
    curve = trace_curve(
        equations, start, along=along, step=abs(step), bounds=bounds, max_steps=max_steps,
        closed=False,
    )  # fmt: skip
    return curve.points


# ---- curves


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


def _back(points: Sequence[np.ndarray], tangents: Sequence[np.ndarray]) -> bool:
    """Whether the last step of a curve passed its first point in the same direction."""
    step = points[-1] - points[-2]
    length = float(np.linalg.norm(step))
    ahead = points[0] - points[-2]
    share = float(ahead @ step) / length**2
    aside = float(np.linalg.norm(ahead - share * step))
    return 0.0 < share <= 1.0 and aside < 0.2 * length and float(tangents[0] @ tangents[-1]) > 0.5


def joined(one: Curve, other: Curve) -> Curve:
    """Join two curves that begin at one point in opposite directions.

    Parameters
    ----------
    one : Curve
        The curve that is passed backwards.
    other : Curve
        The curve that is passed forwards.

    Returns
    -------
    Curve
        All points in order.
    """
    if one.reason == "the curve is closed":
        return one
    failed = [part.reason for part in (one, other) if not part.complete]
    return Curve(
        points=np.concatenate([one.points[:0:-1], other.points]),
        tangents=np.concatenate([-one.tangents[:0:-1], other.tangents]),
        complete=not failed,
        reason=failed[0] if failed else other.reason,
    )


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
        if np.abs(value).max() <= _FOUND:
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


def ending_on_bounds(equations: Equations, curve: Curve, *, bounds: np.ndarray) -> Curve:
    """Move the last point of a curve, if it is outside of the bounds, back onto them.

    Parameters
    ----------
    equations : callable
        The equations of the curve.
    curve : Curve
        The curve.
    bounds : ndarray, shape (k, 2)
        Bounds of the last k unknowns.

    Returns
    -------
    Curve
        The curve, which ends exactly on a bound where it left them.
    """
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
    kept = len(points) - 1 if np.linalg.norm(u - points[-2]) < _SAME else len(points)
    ended = points.copy()
    ended[-1] = u
    return Curve(
        points=ended[:kept],
        tangents=curve.tangents[:kept],
        complete=curve.complete,
        reason=curve.reason,
    )


# ---- cycles as solutions of equations


class CycleProblem:
    """Equations Φ_q(x) = x of a cycle, with a condition if a bifurcation is looked for.

    The unknowns are u = (x, λ / scale) with the free parameters λ last.

    Parameters
    ----------
    system : System
        The system in its common form.
    period : int
        Number of steps q.
    parameters : mapping of str to float
        The parameters that are fixed.
    free : tuple of str, default ()
        Names of the free parameters.
    scale : ndarray, shape (k,), optional
        Units of the free parameters; None is one for each.
    kind : Bifurcation, optional
        The bifurcation whose condition is the last equation; None has no condition.
    """

    def __init__(
        self,
        system: System,
        *,
        period: int,
        parameters: Mapping[str, float],
        free: tuple[str, ...] = (),
        scale: np.ndarray | None = None,
        kind: Bifurcation | None = None,
    ) -> None:
        self.system = system
        self.period = period
        self.fixed = dict(parameters)
        self.free = free
        self.scale = np.ones(len(free)) if scale is None else scale
        self.kind = kind

    def parameters(self, u: np.ndarray) -> dict[str, Any]:
        """Return all parameters at points u.

        Parameters
        ----------
        u : ndarray, shape (..., n + k)
            The unknowns.

        Returns
        -------
        dict of str to float or ndarray
            Parameters by name.
        """
        values = u[..., self.system.size :] * self.scale
        return self.fixed | {name: values[..., i] for i, name in enumerate(self.free)}

    def mapped(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Φ_q and its derivative at points u.

        Parameters
        ----------
        u : ndarray, shape (m, n + k)
            The unknowns.

        Returns
        -------
        end : ndarray, shape (m, n)
            The states after q steps.
        matrices : ndarray, shape (m, n, n)
            The monodromy matrices.
        """
        states = u[:, : self.system.size]
        return self.system.derivative(states, steps=self.period, parameters=self.parameters(u))

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual (m,) and Jacobian (m, n + k) at u (n + k,)."""
        size = self.system.size
        # Without a condition the derivative by x is exact and needs no differences.
        moved = np.arange(0 if self.kind is not None else size, len(u))
        width = self.system.difference
        shift = width * np.eye(len(u))[moved]
        points = np.concatenate([u[None], u + shift, u - shift])
        end, matrices = self.mapped(points)
        value = end - points[:, :size]
        if self.kind is not None:
            condition = bifurcation_condition(eigenvalues(matrices), self.kind)
            value = np.column_stack([value, condition])
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((value.shape[1], len(u)))
        jacobian[:, moved] = (above - below).T / (2.0 * width)
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    def solve(self, guess: np.ndarray, *, max_steps: int) -> np.ndarray:
        """Solve as many equations as there are unknowns, from a guess.

        Parameters
        ----------
        guess : ndarray, shape (n + k,)
            The guess; k is 1 with a condition and 0 without.
        max_steps : int
            Largest number of evaluations.

        Returns
        -------
        ndarray, shape (n + k,)
            The solution.

        Raises
        ------
        NotConverged
            If the residual stays above 1e-10.
        """
        options = {"xtol": 1e-14, "maxfev": max_steps}
        with np.errstate(over="ignore", invalid="ignore"):
            u = root(self, guess, jac=True, options=options).x
            value, jacobian = self(u)
        if self.kind is not None:
            # As a distance in u: a steep condition is above any bound by rounding alone.
            value[-1] /= max(1.0, float(np.linalg.norm(jacobian[-1])))
        residual = float(np.abs(value).max())
        if not residual <= _FOUND:
            what = "cycle" if self.kind is None else f"{self.kind.label} bifurcation of the cycle"
            words = f"no {what} of {self.period} steps was found, the residual is {residual:.1g}"
            raise NotConverged(words)
        return u

    def multipliers(self, u: np.ndarray) -> np.ndarray:
        """Compute the Floquet multipliers at points u.

        Parameters
        ----------
        u : ndarray, shape (..., n + k)
            The unknowns.

        Returns
        -------
        ndarray of complex, shape (..., n)
            The multipliers, the largest modulus first.
        """
        points = u.reshape(-1, u.shape[-1])
        values = eigenvalues(self.mapped(points)[1]).astype(complex)
        order = np.argsort(-np.abs(values), axis=-1, kind="stable")
        return np.take_along_axis(values, order, axis=-1).reshape(*u.shape[:-1], -1)

    def cycle(self, u: np.ndarray, *, kind: Bifurcation | None = None) -> Cycle:
        """Return the cycle at one point u.

        Parameters
        ----------
        u : ndarray, shape (n + k,)
            The unknowns.
        kind : Bifurcation, optional
            Its kind; None takes that of the problem.

        Returns
        -------
        Cycle
            The cycle.
        """
        values = {name: float(value) for name, value in self.parameters(u).items()}
        return Cycle(
            value=self.system.state(u[: self.system.size]),
            parameters=values,
            period=self.period,
            multipliers=self.multipliers(u),
            kind=self.kind if kind is None else kind,
        )


def eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """Compute eigenvalues of matrices, NaN where an entry is not finite.

    Parameters
    ----------
    matrices : ndarray, shape (..., n, n)
        The matrices.

    Returns
    -------
    ndarray of complex, shape (..., n)
        The eigenvalues.
    """
    if np.isfinite(matrices).all():
        return np.linalg.eigvals(matrices)
    finite = np.isfinite(matrices).all(axis=(-2, -1))
    values = np.full(matrices.shape[:-1], np.nan, dtype=complex)
    values[finite] = np.linalg.eigvals(matrices[finite])
    return values


def bifurcation_condition(multipliers: np.ndarray, kind: Bifurcation) -> np.ndarray:
    """Compute the function of the multipliers that vanishes at a bifurcation.

    Parameters
    ----------
    multipliers : ndarray of complex, shape (..., n)
        Floquet multipliers.
    kind : Bifurcation
        The kind of bifurcation.

    Returns
    -------
    ndarray, shape (...)
        The condition.
    """
    if kind == Bifurcation.NEIMARK_SACKER:
        first, second = np.triu_indices(multipliers.shape[-1], 1)
        multipliers = multipliers[..., first] * multipliers[..., second]
    sign = 1.0 if kind == Bifurcation.FLIP else -1.0
    return np.real(np.prod(1.0 + sign * multipliers, axis=-1))


def real_bifurcation(found: Cycle) -> Cycle:
    """Return a bifurcation unless it is a neutral saddle.

    Parameters
    ----------
    found : Cycle
        A cycle at which the condition of its `kind` vanishes.

    Returns
    -------
    Cycle
        The same.

    Raises
    ------
    NotConverged
        If two real multipliers are inverse, where a complex pair must be on the unit circle.
    """
    mu = found.multipliers
    turning = (np.abs(np.abs(mu) - 1.0) < _NEAR) & (np.abs(mu.imag) > _NEAR)
    if found.kind == Bifurcation.NEIMARK_SACKER and not turning.any():
        raise NotConverged("no birth of a closed curve was found, but a neutral saddle")
    return found


def _branch(problem: CycleProblem, curve: Curve) -> Branch:
    """The branch of cycles of a curve, its ends at the bounds, with the bifurcations on it."""
    multipliers = problem.multipliers(curve.points)
    bifurcations: list[tuple[float, Cycle]] = []
    for kind in (Bifurcation.FOLD, Bifurcation.FLIP, Bifurcation.NEIMARK_SACKER):
        test = _test(problem, kind)
        signs = np.sign(bifurcation_condition(multipliers, kind))
        for index in np.flatnonzero(signs[1:] * signs[:-1] < 0):
            u = located(problem, curve, index=int(index), test=test)
            if u is None:
                continue
            own = kind
            ahead = curve.tangents[index : index + 2, -1]
            if kind == Bifurcation.FOLD and ahead[0] * ahead[1] > 0.0:
                # The branch does not turn back: another one crosses it.
                own = Bifurcation.BRANCH_POINT
            point = problem.cycle(u, kind=own)
            try:
                real_bifurcation(point)
            except NotConverged:
                continue
            passed = index + np.linalg.norm(u - curve.points[index])
            bifurcations.append((float(passed), point))
    ordered = sorted(bifurcations, key=lambda item: item[0])
    name = problem.free[0]
    return Branch(
        value=problem.system.state(curve.points[:, : problem.system.size]),
        parameter=name,
        values=problem.parameters(curve.points)[name],
        parameters=problem.fixed,
        period=problem.period,
        multipliers=multipliers,
        bifurcations=tuple(point for _, point in ordered),
        complete=curve.complete,
    )


def _test(problem: CycleProblem, kind: Bifurcation) -> Callable[[np.ndarray], float]:
    return lambda u: float(bifurcation_condition(problem.multipliers(u), kind))


# ---- checks


def checked_bounds(name: str, within: Any) -> tuple[float, float]:
    """Check two ordered numbers, infinities allowed.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    within : tuple of float
        The numbers.

    Returns
    -------
    tuple of float
        The numbers.

    Raises
    ------
    TypeError
        If they are not two numbers.
    ValueError
        If they are not in order.
    """
    try:
        low, high = within
        low = float(low)
        high = float(high)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(f"{name} must be two numbers, got {type(within).__name__}") from None
    if not low < high:
        raise ValueError(f"{name} must be two numbers in order, got {low} and {high}")
    return low, high


def checked_parameters(system: System, parameters: Mapping[str, Any]) -> dict[str, float]:
    """Check the parameters of a system, those of a network to be in their ranges.

    Parameters
    ----------
    system : System
        The system.
    parameters : mapping of str to float
        Parameters by name.

    Returns
    -------
    dict of str to float
        All parameters.

    Raises
    ------
    TypeError
        If a parameter is unknown, missing, or not a number.
    ValueError
        If a parameter is out of its range.
    """
    values = system.checked(parameters)
    if system.names == ("beta", "gamma", "epsilon"):
        check_real("beta", values["beta"], low=0.0)
        check_real("gamma", values["gamma"], low=0.0)
        check_real("epsilon", values["epsilon"], low=0.0, high=1.0)
    return values


def checked_parameter(system: System, name: str | None) -> str:
    """Check the name of a parameter; None is `beta` of a network or the only one of a map.

    Parameters
    ----------
    system : System
        The system.
    name : str or None
        The name.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ValueError
        If the name is unknown, or a map has several parameters and none is named.
    """
    if name is None and ("beta" in system.names or len(system.names) == 1):
        return "beta" if "beta" in system.names else system.names[0]
    return str(check_choice("parameter", name, system.names))


def checked_cycle(system: AttentionNetwork | Map, start: Cycle) -> tuple[System, dict[str, float]]:
    """Check that a cycle, or a guess of one, is that of a system.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        The cycle.

    Returns
    -------
    system : System
        The system in its common form.
    parameters : dict of str to float
        All parameters.

    Raises
    ------
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If it does not fit the system.
    """
    check_instance("start", start, Cycle)
    common = as_system(system, start.value, name="start.value")
    _single(common, start.value)
    return common, checked_parameters(common, start.parameters)


def _single(system: System, value: Any) -> np.ndarray:
    """The components of one state, no batch."""
    if isinstance(value, Context):
        check_array("start.attention", value.attention, shape=("T", "P"))
        return system.flat(value)
    return system.flat(check_array("start", value, shape=("n",)))
