"""Cycles of a network, stable or unstable: Newton's method, bifurcations, numerical continuation in
β.

A cycle of q steps is a fixed point Φ_q(x) = x of q compiled steps, whose derivative ∂Φ_q/∂x, the
monodromy matrix, is exact (`lyapunov.period_map`). Functions of its eigenvalues, the Floquet
multipliers μ, vanish at bifurcations: Π_i (1 − μ_i) at a fold, and Π_{i<j} (1 − μ_i μ_j) at a
Neimark–Sacker bifurcation, the birth of a closed curve. The latter also vanishes at a
*neutral saddle*, μ and 1/μ real, which is no bifurcation [kuznetsov2004elements, Ch. 10].
Derivatives by β and of these conditions are central differences.

Branches u = (x, β) are followed by pseudo-arclength continuation (Keller 1977): from u and the unit
tangent t the predictor is u + h t, corrected in the plane t·(v − u) = h [allgower2003introduction].
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import root

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_function,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.lyapunov import period_map
from spinformer.dmft.network import AttentionNetwork, Context, check_context

# (n + 1,) → residual (m,) and Jacobian (m, n + 1).
Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

_FOUND = 1e-10  # largest residual of what is called found
_SAME = 1e-7  # two states of an orbit closer than this are one: the cycle is shorter than asked
_DIFFERENCE = 1e-7
# How near the unit circle a multiplier is on it, and how far off the real axis it is complex.
_NEAR = 1e-5
# Along a branch: cosine of the largest turn of the tangent in one step; largest distance between
# predictor and corrector in units of the step; bounds of the step in units of the first one.
_STRAIGHT = np.cos(np.radians(30.0))
_ASTRAY = 0.5
_SMALLEST = 1e-4
_LARGEST = 10.0
# Newton steps of a corrector, and how many are few: then the step grows.
_NEWTON_STEPS = 8
_QUICK = 3


class Bifurcation(IntEnum):
    """Bifurcation of a cycle: FOLD (saddle-node) or NEIMARK_SACKER."""

    FOLD = 0
    NEIMARK_SACKER = 1


@record
class Cycle:
    """A cycle, its Floquet multipliers, or a branch of cycles with an axis in front of every array.

    Attributes
    ----------
    value : Context
        A context on the cycle, attention of shape (T, P).
    beta : float or ndarray
        Inverse temperature β of the tokens.
    period : int
        Number of steps until the state returns for the first time.
    multipliers : ndarray of complex, shape (T·P,)
        Floquet multipliers of one period, the largest modulus first.
    """

    value: Context
    beta: Any
    period: int
    multipliers: np.ndarray

    @property
    def rotation(self) -> float:
        """Rotation number, in turns per period, of the multiplier nearest to the unit circle."""
        nearest = self.multipliers[np.abs(np.abs(self.multipliers) - 1.0).argmin()]
        return float(np.abs(np.angle(nearest)) / (2 * np.pi))


def find_cycle(
    network: AttentionNetwork, start: Context, *, period: int, beta: float, max_steps: int = 200
) -> Cycle:
    """Find a cycle, stable or unstable, by Newton's method.

    The cycle found has the given period or a divisor of it.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    start : Context
        One context, attention of shape (T, P), near the cycle.
    period : int
        Number of steps of the cycle.
    beta : float
        Inverse temperature β of the tokens.
    max_steps : int, default 200
        Largest number of evaluations of Φ.

    Returns
    -------
    Cycle
        The cycle and its Floquet multipliers.

    Raises
    ------
    NotConverged
        If an entry of Φ(x) − x stays above 1e-10 in absolute value.
    TypeError
        If `start` is not a `Context`.
    ValueError
        If `period` is not a multiple of the period of the positional code while ε > 0, or an
        argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> driven = find_cycle(Network.document(), Context(np.zeros((4, 3)), 0), period=4, beta=0.5)
    >>> driven.period, bool(np.abs(driven.multipliers).max() < 1.0)
    (4, True)
    """
    _check_single(network, start)
    period = check_integer("period", period, low=1)
    beta = check_real("beta", beta, low=0.0)
    max_steps = check_integer("max_steps", max_steps, low=1)
    # At ε = 0 a period need not bring the position back; it does not matter then.
    unit = network.positions if network.epsilon > 0.0 else 1
    if period % unit:
        raise ValueError(f"period must be a multiple of {unit} while epsilon > 0, got {period}")
    guess = Cycle(value=start, beta=beta, period=period, multipliers=np.empty(0))
    found = _solved(network, guess, kind=None, max_steps=max_steps)
    for shorter in range(unit, period, unit):
        end, _ = period_map(network, found.value, beta=beta, steps=shorter, threads=1)
        gap = np.abs(end.attention - found.value.attention).max()
        if period % shorter == 0 and gap < _SAME:
            return _at(network, replace(found, period=shorter), _place(found))
    return found


def find_bifurcation(
    network: AttentionNetwork, start: Cycle, *, kind: Bifurcation, max_steps: int = 200
) -> Cycle:
    r"""Find a fold or Neimark–Sacker bifurcation of a cycle, in β.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    start : Cycle
        A cycle, or a guess of one, near the bifurcation.
    kind : Bifurcation
        The kind of bifurcation.
    max_steps : int, default 200
        Largest number of evaluations of the equations.

    Returns
    -------
    Cycle
        The cycle at the bifurcation, with its β.

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
    With the Floquet multipliers μ, the conditions of a fold and of a Neimark–Sacker bifurcation are

    .. math::

        \prod_i (1 - \mu_i) = 0, \qquad \prod_{i<j} (1 - \mu_i \mu_j) = 0.

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
    _check_cycle(network, start)
    kind = Bifurcation(check_choice("kind", kind, Bifurcation))
    max_steps = check_integer("max_steps", max_steps, low=1)
    found = _solved(network, start, kind=kind, max_steps=max_steps)
    mu = found.multipliers
    turning = (np.abs(np.abs(mu) - 1.0) < _NEAR) & (np.abs(mu.imag) > _NEAR)
    if kind == Bifurcation.NEIMARK_SACKER and not turning.any():
        raise NotConverged("no birth of a closed curve was found, but a neutral saddle")
    return found


def continue_bifurcation(
    network: AttentionNetwork, start: Cycle, *, name: str, values: ArrayLike
) -> np.ndarray:
    """Follow a Neimark–Sacker bifurcation, the birth of a closed curve, along γ or ε.

    Each value begins at the bifurcation found for the one before. The rows end where none is found
    any more, as at a strong resonance 1:2, beyond which the equations continue along neutral
    saddles.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    start : Cycle
        The bifurcation at parameters near the first of `values`.
    name : {"gamma", "epsilon"}
        The parameter that changes.
    values : array-like, shape (n,)
        Values of this parameter.

    Returns
    -------
    ndarray, shape (n, 3)
        Rows of β, the value of the parameter, and the rotation number in turns per period.

    Raises
    ------
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If `name` is not one of the two, or a value is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.document(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.244)
    >>> born = find_bifurcation(network, driven, kind=Bifurcation.NEIMARK_SACKER)
    >>> line = continue_bifurcation(network, born, name="gamma", values=[network.gamma])
    >>> bool(np.isclose(line[0, 0], born.beta))
    True
    """
    _check_cycle(network, start)
    name = check_choice("name", name, ("gamma", "epsilon"))
    numbers = check_array("values", values, shape=("n",))
    rows = []
    with suppress(NotConverged):
        for value in numbers:
            given: dict[str, Any] = {name: float(value)}
            start = find_bifurcation(
                network.with_parameters(**given), start, kind=Bifurcation.NEIMARK_SACKER
            )
            rows.append((start.beta, float(value), start.rotation))
    return np.reshape(rows, (-1, 3))


def continue_cycle(
    network: AttentionNetwork,
    start: Cycle,
    *,
    step: float,
    within: tuple[float, float],
    max_steps: int = 200,
) -> Cycle:
    """Follow a branch of cycles in β, past its folds, by pseudo-arclength continuation.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    start : Cycle
        A cycle on the branch.
    step : float
        First step length in the space of the state and β; its sign gives the direction of β.
    within : tuple of float
        Bounds of β between which the branch is followed.
    max_steps : int, default 200
        Largest number of points.

    Returns
    -------
    Cycle
        The points of the branch, arrays with an axis in front.

    Raises
    ------
    NotConverged
        If `start` is no cycle.
    TypeError
        If `start` is not a `Cycle` or `within` is not two numbers.
    ValueError
        If `step` is zero, or an argument is out of its range.

    References
    ----------
    [allgower2003introduction]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.document(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=0.5)
    >>> branch = continue_cycle(network, driven, step=0.05, within=(0.4, 0.6))
    >>> branch.multipliers.shape[1], bool(branch.beta[-1] > 0.6)
    (12, True)
    """
    _check_cycle(network, start)
    equations, origin = _equations(network, start, kind=None), _place(start)
    points = pseudo_arclength(equations, origin, step=step, within=within, max_steps=max_steps)
    return _at(network, start, points)


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
    low, high = _bounds(within)
    max_steps = check_integer("max_steps", max_steps, low=1)
    along = np.append(np.zeros(len(start) - 1), np.sign(step))
    v, t, _ = _corrected(equations, start, along)
    if not t.any():
        raise NotConverged("no solution was found near the start of the curve")
    points, h = [v], abs(step)
    while len(points) < max_steps and h >= _SMALLEST * abs(step):
        new, turned, effort = _corrected(equations, v + h * t, t)
        if np.linalg.norm(new - v - h * t) > _ASTRAY * h or turned @ t < _STRAIGHT:
            h *= 0.5
            continue
        v, t = new, turned
        points.append(v)
        if not low <= v[-1] <= high:
            break
        if effort <= _QUICK:
            h = min(1.3 * h, _LARGEST * abs(step))
    return np.array(points)


def _check_single(network: AttentionNetwork, start: Context) -> None:
    """Whether `start` is one context, no batch, that fits the network."""
    check_instance("start", start, Context)
    check_context(network, start)
    check_array("start.attention", start.attention, shape=("T", "P"))


def _check_cycle(network: AttentionNetwork, start: Cycle) -> None:
    """Whether `start` is one cycle, or a guess of one, of the network."""
    check_instance("start", start, Cycle)
    _check_single(network, start.value)
    check_real("start.beta", start.beta, low=0.0)


def _bounds(within: tuple[float, float]) -> tuple[float, float]:
    """Two ordered numbers, infinities allowed."""
    try:
        low, high = map(float, within)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(f"within must be two numbers, got {type(within).__name__}") from None
    if not low < high:
        raise ValueError(f"within must be two numbers in order, got {low} and {high}")
    return low, high


def _corrected(
    equations: Equations, guess: np.ndarray, t: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Newton's method in the plane through `guess` across t: point, tangent there, effort.

    The tangent is the null vector of the Jacobian on the side of t, zero where none was found.
    """
    v = guess
    for effort in range(_NEWTON_STEPS + 1):
        value, jacobian = equations(v)
        if np.abs(value).max() <= _FOUND:
            null = np.linalg.svd(jacobian)[2][-1]
            return v, null * np.sign(null @ t), effort
        off = np.append(value, t @ (v - guess))
        v = v - np.linalg.lstsq(np.vstack([jacobian, t]), off, rcond=None)[0]
    return guess, np.zeros_like(t), _NEWTON_STEPS


def _place(start: Cycle) -> np.ndarray:
    return np.append(start.value.attention, start.beta)


def _at(network: AttentionNetwork, start: Cycle, u: np.ndarray) -> Cycle:
    """The cycle like `start` at u = (x, β), (..., n + 1)."""
    x = u[..., :-1].reshape(*u.shape[:-1], *start.value.attention.shape[-2:])
    value, beta = Context(x, start.value.position), u[..., -1][()]
    _, matrix = period_map(network, value, beta=beta, steps=start.period, threads=1)
    values = np.linalg.eigvals(matrix).astype(complex)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    multipliers = np.take_along_axis(values, order, axis=-1)
    return replace(start, value=value, beta=beta, multipliers=multipliers)


def _solved(
    network: AttentionNetwork, start: Cycle, *, kind: Bifurcation | None, max_steps: int
) -> Cycle:
    """The cycle at the β of `start`, or with a kind its bifurcation at some β, from there."""
    equations, origin = _equations(network, start, kind=kind), _place(start)
    free, known = np.split(origin, [origin.size - (kind is None)])

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(np.append(u, known))
        return value, jacobian[:, : u.size]

    u = root(square, free, jac=True, options={"xtol": 1e-14, "maxfev": max_steps}).x
    value, jacobian = square(u)
    if kind is not None:
        # As a distance in u: a steep condition is above any bound by rounding alone.
        value[-1] /= max(1.0, float(np.linalg.norm(jacobian[-1])))
    residual = float(np.abs(value).max())
    if not residual <= _FOUND:
        what = "cycle" if kind is None else f"{kind.name.lower()} of the cycle"
        words = f"no {what} of {start.period} steps was found, the residual is {residual:.1g}"
        raise NotConverged(words)
    return _at(network, start, np.append(u, known))


def _condition(multipliers: np.ndarray, kind: Bifurcation) -> np.ndarray:
    """The function (...) of multipliers (..., n) that vanishes at a bifurcation of the kind."""
    if kind == Bifurcation.NEIMARK_SACKER:
        first, second = np.triu_indices(multipliers.shape[-1], 1)
        multipliers = multipliers[..., first] * multipliers[..., second]
    return np.real(np.prod(1.0 - multipliers, axis=-1))


def _equations(network: AttentionNetwork, start: Cycle, *, kind: Bifurcation | None) -> Equations:
    """u = (x, β) → Φ(x) − x and, if a kind is given, its condition; the Jacobian."""
    size = start.value.attention.size
    # Without a condition the derivative by x is exact and needs no differences.
    moved = np.arange(0 if kind is not None else size, size + 1)
    shift = _DIFFERENCE * np.eye(size + 1)[moved]

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = np.concatenate([u[None], u + shift, u - shift])
        # A wall at β = 0.
        states, betas = points[:, :-1], np.maximum(points[:, -1], 0.0)
        begin = Context(states.reshape(-1, *start.value.attention.shape), start.value.position)
        end, matrices = period_map(network, begin, beta=betas, steps=start.period, threads=1)
        value = end.attention.reshape(states.shape) - states
        if kind is not None:
            value = np.column_stack([value, _condition(np.linalg.eigvals(matrices), kind)])
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((value.shape[1], size + 1))
        jacobian[:, moved] = (above - below).T / (2.0 * _DIFFERENCE)
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    return equations
