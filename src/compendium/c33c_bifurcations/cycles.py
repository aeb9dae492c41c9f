"""Cycles of a network and their bifurcations, stable or not.

A cycle of q steps is a context with Φ_q(x) = x, Φ_q being q compiled steps. Its position comes back
as well, so that q is a multiple of 2^K unless ε = 0. Newton's method has the exact derivative, the
monodromy matrix ∂Φ_q/∂x (`lyapunov.returned`), whose eigenvalues are the Floquet multipliers. Long
runs find stable cycles only, Newton's method finds saddles, too.

A cycle changes its stability where a multiplier μ crosses the unit circle: at μ = 1 two cycles
meet and vanish (fold), at μ = −1 one of twice the period is born (flip), at μ = e^{±iα} a closed
curve, on which the motion turns by α a period (Neimark-Sacker, here TORUS). Three functions of the
multipliers vanish there and are smooth in state and parameters,

    fold: Π_i (1 − μ_i),   flip: Π_i (1 + μ_i),   torus: Π_{i<j} (1 − μ_i μ_j);

the last one also at a *neutral saddle*, μ and 1/μ real, which is no bifurcation and is told apart
[kuznetsov2004elements, Ch. 10]. Cycle and condition together are one system of equations, regular
at such a point. Its Jacobian holds the exact monodromy matrix; derivatives by parameters and of
the conditions are central differences of the compiled return map, all in the lanes of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import root

from compendium.c33c_bifurcations.curves import Curve, Equations, follow
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.lyapunov import returned
from spinformer.dmft.network import Context, Network

# Shares of a Newton step that are tried side by side, in the lanes of one block; the best is taken.
_SHARES = np.array([1.0, 0.5, 0.25, 0.125, 1 / 32, 1 / 128])
# Two states of an orbit closer than this are one: the cycle is shorter than asked.
_SAME = 1e-7
# What a parameter is measured in along a curve, the step of differences in this unit, and how
# large it may be.
_UNIT = {"beta": 1.0, "gamma": 100.0, "epsilon": 0.1}
_HIGHEST = {"beta": np.inf, "gamma": np.inf, "epsilon": 1.0}
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5


@record
class _Point(Solution[Context]):
    """What cycles and bifurcations have: a context (T, P) on the cycle, and the parameters by name.

    multipliers: (n,) complex, n = T·P, the largest modulus first, of one period; NaN where not
    converged.
    """

    period: int
    parameters: dict[str, float]
    multipliers: np.ndarray

    @property
    def beta(self) -> float:
        return self.parameters["beta"]

    @property
    def gamma(self) -> float:
        return self.parameters["gamma"]

    @property
    def epsilon(self) -> float:
        return self.parameters["epsilon"]


@record
class Cycle(_Point):
    """A cycle, or what Newton's method ended with.

    residual: largest entry of |Φ(x) − x|. period: steps until the state comes back for the first
    time; it divides what was asked. moved: largest distance, entry by entry, from the start.
    status: STALLED where no share of a Newton step improves it.
    """

    moved: float

    @property
    def stable(self) -> bool:
        """Whether all multipliers lie inside the unit circle; False where not converged."""
        return bool(self.converged and np.abs(self.multipliers[0]) <= 1.0)


def cycle(
    network: Network,
    start: Context,
    *,
    period: int,
    beta: float,
    gamma: float | None = None,
    epsilon: float | None = None,
    tolerance: float = 1e-11,
    max_steps: int = 40,
    throw: bool = True,
) -> Cycle:
    """The cycle of `period` steps (or a divisor) that Newton's method reaches from `start`."""
    given = {
        "beta": beta,
        "gamma": network.gamma if gamma is None else gamma,
        "epsilon": network.epsilon if epsilon is None else epsilon,
    }
    if start.attention.ndim != 2:
        raise ValueError(f"start must be one context (T, P), got {start.attention.shape}")
    unit = network.positions if given["epsilon"] > 0.0 else 1
    if period % unit:
        raise ValueError(
            f"period must be a multiple of the {unit} positions while epsilon > 0, got {period}"
        )
    x, residual, matrix, steps, status = _newton(
        network, start, period, given, tolerance, max_steps
    )
    value = _like(start, x)
    multipliers = np.full(x.size, np.nan, dtype=complex)
    if status == Status.CONVERGED:
        least = _least_period(network, value, period, unit, given)
        if least < period:
            _, matrix = _returned(network, value, x, least, given)
            period = least
        multipliers = _sorted_multipliers(matrix)
    found = Cycle(
        value=value,
        residual=residual,
        steps=steps,
        status=status,
        period=period,
        parameters=given,
        multipliers=multipliers,
        moved=float(np.abs(x - start.attention.ravel()).max()),
    )
    if throw:
        found.require(f"a cycle of {period} steps")
    return found


def _like(value: Context, x: np.ndarray) -> Context:
    """States (..., n) as contexts like `value`."""
    return Context(x.reshape(*x.shape[:-1], *value.attention.shape[-2:]), value.position)


def _returned(
    network: Network,
    kind: Context,
    x: np.ndarray,
    steps: int,
    given: dict[str, float] | dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """States (..., n) after `steps` steps from `x` (..., n), and the derivatives (..., n, n)."""
    end, matrix = returned(network, _like(kind, x), steps=steps, threads=1, **given)
    return end.attention.reshape(x.shape), matrix


def _sorted_multipliers(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues (..., n) of monodromy matrices (..., n, n), the largest modulus first."""
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
    best = start.attention.ravel()
    eye = np.eye(best.size)
    end, matrix = _returned(network, start, best, period, parameters)
    gap = end - best
    residual = float(np.abs(gap).max())
    # At ε = 0 a period may not bring the position back; the position does not matter then.
    for steps in range(1, max_steps + 1):
        arrived = residual <= tolerance
        change = np.linalg.lstsq(matrix - eye, -gap, rcond=None)[0]
        tried = best + _SHARES[:, None] * change
        better = bool(np.isfinite(tried).all())
        if better:
            ends, matrices = _returned(network, start, tried, period, parameters)
            gaps = ends - tried
            sizes = np.nan_to_num(np.abs(gaps).max(axis=1), nan=np.inf)
            index = int(np.argmin(sizes))
            better = bool(sizes[index] < residual)
        if better:
            best, residual = tried[index], float(sizes[index])
            gap, matrix = gaps[index], matrices[index]
        if arrived or not better:
            status = Status.CONVERGED if arrived else Status.STALLED
            return best, residual, matrix, steps, status
    status = Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT
    return best, residual, matrix, max_steps, status


def _least_period(
    network: Network, value: Context, period: int, unit: int, parameters: dict[str, float]
) -> int:
    """Smallest divisor of the period, a multiple of `unit`, after which the state is back."""
    x = value.attention.ravel()
    for divisor in range(unit, period, unit):
        if period % divisor == 0:
            end, _ = _returned(network, value, x, divisor, parameters)
            if np.abs(end - x).max() < _SAME:
                return divisor
    return period


# ---- bifurcations


class Kind(IntEnum):
    """What happens to a cycle."""

    FOLD = 0
    FLIP = 1
    TORUS = 2


@record
class Bifurcation(_Point):
    """A point where a cycle of `period` steps bifurcates; `residual` and `steps` are the solver's.

    status: CONVERGED; STALLED where the equations were solved by something that is not of this
    kind (a neutral saddle); STEP_LIMIT where they were not.
    rotation: turns a period of the critical pair: 0 at a fold, ½ at a flip.
    """

    kind: Kind
    rotation: float


@record
class Branch:
    """Cycles (m of them) along one parameter, and the bifurcations met on the way.

    values: (m,) of the parameter. context: (m, T, P). multipliers: (m, n). status: of `Curve`.
    """

    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    bifurcations: tuple[Bifurcation, ...]
    status: Status

    @property
    def stable(self) -> np.ndarray:
        """(m,) booleans."""
        return np.asarray(np.abs(self.multipliers[:, 0]) < 1.0)


@record
class BifurcationCurve:
    """Bifurcations of one kind (m of them) in the plane of two parameters.

    values: (m, 2) of the parameters. context, multipliers, status: as of `Branch`.
    rotation: (m,) turns a period of the critical pair, NaN on neutral saddles.
    """

    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    rotation: np.ndarray
    status: Status


def bifurcation(
    network: Network,
    start: Cycle | Bifurcation,
    *,
    kind: Kind,
    parameter: str = "beta",
    tolerance: float = 1e-9,
    max_steps: int = 200,
    throw: bool = True,
) -> Bifurcation:
    """The bifurcation of this kind near the cycle `start`, in one parameter, the others fixed.

    tolerance: on the largest entry of Φ(x) − x and on the condition. `max_steps` limits the
    evaluations.
    """
    equations = _equations_of(network, start, free=(parameter,), kind=kind)

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(u)
        # Out of range: a wall that pushes the solver back.
        return np.nan_to_num(value, nan=1e3), np.nan_to_num(jacobian)

    u = np.append(start.value.attention.ravel(), start.parameters[parameter])
    solved = root(square, u, jac=True, options={"xtol": 1e-14, "maxfev": max_steps})
    residual = float(np.abs(square(solved.x)[0]).max())
    parameters = start.parameters | {parameter: float(solved.x[-1])}
    multipliers = np.full(len(u) - 1, np.nan, dtype=complex)
    status, rotation = Status.STEP_LIMIT, np.nan
    if residual <= tolerance:
        _, matrix = _returned(network, start.value, solved.x[:-1], start.period, parameters)
        multipliers = _sorted_multipliers(matrix)
        rotation = float(critical_rotation(multipliers, kind=kind))
        status = Status.CONVERGED if np.isfinite(rotation) else Status.STALLED
    found = Bifurcation(
        value=_like(start.value, solved.x[:-1]),
        residual=residual,
        steps=int(solved.nfev),
        status=status,
        kind=kind,
        period=start.period,
        parameters=parameters,
        multipliers=multipliers,
        rotation=rotation,
    )
    if throw:
        found.require(f"a {kind.name.lower()} of the cycle of {start.period} steps")
    return found


def follow_cycle(
    network: Network,
    start: Cycle | Bifurcation,
    *,
    parameter: str = "beta",
    step: float,
    within: tuple[float, float],
    max_steps: int = 200,
) -> Branch:
    """The branch of cycles through `start`, past its folds, in one parameter.

    step: first change of the parameter; its sign is the direction in which the branch starts.
    within: the branch ends where the parameter leaves this interval. Sign changes of the three
    conditions between neighboring points are located; two of a kind within one step cancel, so
    that a small step finds more.
    """
    curve = _follow(network, start, (parameter,), None, (step,), (within,), max_steps)
    context, multipliers = _along(network, start, (parameter,), curve)
    signs = np.sign(_conditions(multipliers))
    found = []
    for number in range(len(signs) - 1):
        for kind in Kind:
            if signs[number, kind] == signs[number + 1, kind]:
                continue
            ends = curve.points[number : number + 2]
            span = np.abs(ends[1] - ends[0]).max()
            for end in ends:
                point = _try(network, start, parameter, end, kind)
                place = np.append(point.value.attention, point.parameters[parameter])
                # Newton's method may have gone to another one, which has its own sign change.
                if point.converged and np.abs(place - ends).max(axis=1).min() <= span:
                    found.append(point)
                    break
    return Branch(
        values=curve.points[:, -1],
        context=context,
        multipliers=multipliers,
        bifurcations=tuple(found),
        status=curve.status,
    )


def follow_bifurcation(
    network: Network,
    start: Bifurcation,
    *,
    parameters: tuple[str, str],
    step: float,
    within: tuple[tuple[float, float], tuple[float, float]],
    max_steps: int = 200,
) -> BifurcationCurve:
    """The curve of bifurcations through `start` in the plane of two parameters.

    step: first change of the second parameter; its sign is the direction. within: the intervals
    of both. A curve of closed-curve births ends at a strong resonance 1:2, beyond which the
    equations go on along neutral saddles; these have rotation NaN.
    """
    curve = _follow(network, start, parameters, start.kind, (0.0, step), within, max_steps)
    context, multipliers = _along(network, start, parameters, curve)
    return BifurcationCurve(
        values=curve.points[:, -2:],
        context=context,
        multipliers=multipliers,
        rotation=critical_rotation(multipliers, kind=start.kind),
        status=curve.status,
    )


def _conditions(multipliers: np.ndarray) -> np.ndarray:
    """The three functions (..., 3), in the order of `Kind`, of multipliers (..., n)."""
    mu = np.asarray(multipliers)
    first, second = np.triu_indices(mu.shape[-1], 1)
    found = [
        np.prod(1.0 - mu, axis=-1),
        np.prod(1.0 + mu, axis=-1),
        np.prod(1.0 - mu[..., first] * mu[..., second], axis=-1),
    ]
    return np.real(np.stack(found, axis=-1))


def critical_rotation(multipliers: np.ndarray, *, kind: Kind) -> np.ndarray:
    """Turns a period (...) of the critical multiplier (..., n); NaN if none is of the kind."""
    if kind == Kind.TORUS:
        off = np.abs(np.abs(multipliers) - 1.0)
        off = np.where(np.abs(multipliers.imag) > _NEAR, off, np.inf)
    else:
        off = np.abs(multipliers - (1.0 if kind == Kind.FOLD else -1.0))
    index = np.argmin(off, axis=-1)[..., None]
    nearest = np.take_along_axis(off, index, axis=-1)[..., 0]
    turns = np.abs(np.angle(np.take_along_axis(multipliers, index, axis=-1)[..., 0])) / (2 * np.pi)
    if kind != Kind.TORUS:
        turns = np.full(turns.shape, 0.0 if kind == Kind.FOLD else 0.5)
    return np.where(nearest < _NEAR, turns, np.nan)


def _equations_of(
    network: Network, start: Cycle | Bifurcation, *, free: Sequence[str], kind: Kind | None
) -> Equations:
    """u = (x, free parameters) → Φ(x) − x and, if a kind is given, its condition; the Jacobian."""
    fixed, size = start.parameters, start.value.attention.size
    low = np.append(np.full(size, -np.inf), np.zeros(len(free)))
    high = np.append(np.full(size, np.inf), [_HIGHEST[name] for name in free])
    width = _DIFFERENCE * np.append(np.ones(size), [_UNIT[name] for name in free])

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = size + (kind is not None)
        if not np.isfinite(u).all() or (u < low).any() or (u > high).any():
            return np.full(count, np.nan), np.full((count, len(u)), np.nan)
        # Without a condition the derivative by x is exact and needs no differences.
        moved = np.arange(0 if kind is not None else size, len(u))
        shift = np.zeros((len(moved), len(u)))
        shift[np.arange(len(moved)), moved] = width[moved]
        points = np.clip(np.concatenate([u[None], u + shift, u - shift]), low, high)
        given = {name: np.full(len(points), value) for name, value in fixed.items()}
        given |= {name: points[:, size + i] for i, name in enumerate(free)}
        ends, matrices = _returned(network, start.value, points[:, :size], start.period, given)
        value = ends - points[:, :size]
        if kind is not None:
            extra = _conditions(np.linalg.eigvals(matrices))[:, kind]
            value = np.column_stack([value, extra])
        ahead, behind = np.split(points[1:], 2)
        distance = (ahead - behind)[np.arange(len(moved)), moved]
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((count, len(u)))
        jacobian[:, moved] = ((above - below) / distance[:, None]).T
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    return equations


def _follow(
    network: Network,
    start: Cycle | Bifurcation,
    free: Sequence[str],
    kind: Kind | None,
    steps: Sequence[float],
    within: ArrayLike,
    max_steps: int,
) -> Curve:
    x, units = start.value.attention.ravel(), np.array([_UNIT[name] for name in free])
    infinite = np.full(x.size, np.inf)
    low, high = np.array(within).T
    return follow(
        _equations_of(network, start, free=free, kind=kind),
        np.append(x, [start.parameters[name] for name in free]),
        direction=np.append(np.zeros(x.size), steps),
        step=float(np.abs(np.array(steps) / units).max()),
        scale=np.append(np.ones(x.size), units),
        within=(np.append(-infinite, low), np.append(infinite, high)),
        max_steps=max_steps,
    )


def _along(
    network: Network, start: Cycle | Bifurcation, free: Sequence[str], curve: Curve
) -> tuple[Context, np.ndarray]:
    """Contexts and multipliers of all points of a curve."""
    states = curve.points[:, : -len(free)]
    given = {name: np.full(len(states), value) for name, value in start.parameters.items()}
    given |= {name: curve.points[:, i - len(free)] for i, name in enumerate(free)}
    _, matrices = _returned(network, start.value, states, start.period, given)
    return _like(start.value, states), _sorted_multipliers(matrices)


def _try(
    network: Network, start: Cycle | Bifurcation, parameter: str, point: np.ndarray, kind: Kind
) -> Bifurcation:
    """The bifurcation from a point of a branch, converged or not."""
    near = replace(
        start,
        value=_like(start.value, point[:-1]),
        parameters=start.parameters | {parameter: float(point[-1])},
    )
    return bifurcation(network, near, kind=kind, parameter=parameter, throw=False)
