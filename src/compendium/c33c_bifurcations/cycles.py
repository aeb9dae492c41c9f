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

from compendium.c33c_bifurcations.curves import Equations, follow
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.lyapunov import returned
from spinformer.dmft.network import Context, Network

# Shares of a Newton step that are tried side by side, in the lanes of one block; the best is taken.
_SHARES = np.array([1.0, 0.5, 0.25, 0.125, 1 / 32, 1 / 128])
# Two states of an orbit closer than this are one: the cycle is shorter than asked.
_SAME = 1e-7
# Largest residual of a bifurcation.
_FOUND = 1e-9
# What a parameter is measured in along a curve, the step of differences in this unit, and how
# large it may be.
_UNIT = {"beta": 1.0, "gamma": 100.0, "epsilon": 0.1}
_HIGHEST = {"beta": np.inf, "gamma": np.inf, "epsilon": 1.0}
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5


@record
class Cycle(Solution[Context]):
    """A cycle, or what Newton's method ended with: a context (T, P) on it, and its parameters.

    residual: largest entry of |Φ(x) − x|. period: steps until the state comes back for the first
    time; it divides what was asked. multipliers: (n,) complex, n = T·P, the largest modulus first,
    of one period; NaN where not converged. status: STALLED where no share of a Newton step
    improves it.
    """

    period: int
    parameters: dict[str, float]
    multipliers: np.ndarray

    @property
    def beta(self) -> float:
        return self.parameters["beta"]

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
    tolerance: float = 1e-11,
    max_steps: int = 40,
    throw: bool = True,
) -> Cycle:
    """The cycle of `period` steps (or a divisor) that Newton's method reaches from `start`.

    Of several shares of each Newton step the best is taken; what is found is polished by one more.
    """
    given = {"beta": beta, "gamma": network.gamma, "epsilon": network.epsilon}
    if start.attention.ndim != 2:
        raise ValueError(f"start must be one context (T, P), got {start.attention.shape}")
    # At ε = 0 a period need not bring the position back; it does not matter then.
    unit = network.positions if network.epsilon > 0.0 else 1
    if period % unit:
        raise ValueError(
            f"period must be a multiple of the {unit} positions while epsilon > 0, got {period}"
        )
    x = start.attention.ravel()
    tried, eye, residual, status = x[None], np.eye(x.size), np.inf, Status.STEP_LIMIT
    for steps in range(max_steps + 1):  # noqa: B007
        ends, matrices = _returned(network, start, tried, period, given)
        gaps = ends - tried
        sizes = np.nan_to_num(np.abs(gaps).max(axis=1), nan=np.inf)
        index = int(np.argmin(sizes))
        polished, better = residual <= tolerance, bool(sizes[index] < residual)
        if better:
            x, residual = tried[index], float(sizes[index])
            change = np.linalg.lstsq(matrices[index] - eye, -gaps[index], rcond=None)[0]
            matrix, tried = matrices[index], x + _SHARES[:, None] * change
        if polished or not better:
            status = Status.STALLED
            break
    value = _like(start, x)
    multipliers = np.full(x.size, np.nan, dtype=complex)
    if residual <= tolerance:
        status = Status.CONVERGED
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
class Bifurcation(Cycle):
    """A point where a cycle of `period` steps bifurcates; `residual` and `steps` are the solver's.

    status: CONVERGED; STALLED where the equations were solved by something that is not of this
    kind (a neutral saddle); STEP_LIMIT where they were not.
    rotation: turns a period of the critical pair: 0 at a fold, ½ at a flip.
    """

    kind: Kind
    rotation: float


@record
class Branch:
    """Cycles (m of them) along β, and the bifurcations met on the way.

    values: (m,) of β. context: (m, T, P). multipliers: (m, n).
    """

    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    bifurcations: tuple[Bifurcation, ...]

    @property
    def stable(self) -> np.ndarray:
        """(m,) booleans."""
        return np.asarray(np.abs(self.multipliers[:, 0]) < 1.0)


@record
class BifurcationCurve:
    """Bifurcations of one kind (m of them) in the plane of two parameters.

    values: (m, 2) of the parameters. context, multipliers: as of `Branch`.
    rotation: (m,) turns a period of the critical pair, NaN on neutral saddles.
    """

    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    rotation: np.ndarray


def bifurcation(
    network: Network, start: Cycle, *, kind: Kind, max_steps: int = 200, throw: bool = True
) -> Bifurcation:
    """The bifurcation of this kind near the cycle `start`, in β, γ and ε fixed.

    Found where neither an entry of Φ(x) − x nor the condition is above 1e-9. `max_steps` limits
    the evaluations.
    """
    equations = _equations_of(network, start, free=("beta",), kind=kind)

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(u)
        # Out of range: a wall that pushes the solver back.
        return np.nan_to_num(value, nan=1e3), np.nan_to_num(jacobian)

    u = np.append(start.value.attention.ravel(), start.beta)
    solved = root(square, u, jac=True, options={"xtol": 1e-14, "maxfev": max_steps})
    residual = float(np.abs(square(solved.x)[0]).max())
    parameters = start.parameters | {"beta": float(solved.x[-1])}
    multipliers = np.full(len(u) - 1, np.nan, dtype=complex)
    status, rotation = Status.STEP_LIMIT, np.nan
    if residual <= _FOUND:
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
    start: Cycle,
    *,
    step: float,
    within: tuple[float, float],
    max_steps: int = 200,
) -> Branch:
    """The branch of cycles through `start`, past its folds, in β.

    step: first change of β; its sign is the direction in which the branch starts. within: the
    branch ends where β leaves this interval. Sign changes of the three conditions between
    neighboring points are located; two of a kind within one step cancel, so that a small step
    finds more.
    """
    points, context, multipliers = _follow(
        network, start, {"beta": step}, within=(within,), max_steps=max_steps
    )
    signs = np.sign(_conditions(multipliers))
    found = []
    for number, kind in np.argwhere(signs[1:] != signs[:-1]).tolist():
        ends = points[number : number + 2]
        span = np.abs(ends[1] - ends[0]).max()
        for end in ends:
            point = _try(network, start, end, Kind(kind))
            place = np.append(point.value.attention, point.beta)
            # Newton's method may have gone to another one, which has its own sign change.
            if point.converged and np.abs(place - ends).max(axis=1).min() <= span:
                found.append(point)
                break
    return Branch(
        values=points[:, -1], context=context, multipliers=multipliers, bifurcations=tuple(found)
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
    first = dict(zip(parameters, (0.0, step), strict=True))
    points, context, multipliers = _follow(
        network, start, first, kind=start.kind, within=within, max_steps=max_steps
    )
    return BifurcationCurve(
        values=points[:, -2:],
        context=context,
        multipliers=multipliers,
        rotation=critical_rotation(multipliers, kind=start.kind),
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
    network: Network, start: Cycle, *, free: Sequence[str], kind: Kind | None
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
    start: Cycle,
    steps: dict[str, float],
    *,
    kind: Kind | None = None,
    within: ArrayLike,
    max_steps: int,
) -> tuple[np.ndarray, Context, np.ndarray]:
    """Points of a curve of cycles, or of bifurcations of a kind; their contexts and multipliers.

    steps: the parameters that change, each with its first step.
    """
    x, free, changes = start.value.attention.ravel(), list(steps), np.array(list(steps.values()))
    units, infinite = np.array([_UNIT[name] for name in free]), np.full(x.size, np.inf)
    low, high = np.array(within).T
    points = follow(
        _equations_of(network, start, free=free, kind=kind),
        np.append(x, [start.parameters[name] for name in free]),
        direction=np.append(np.zeros(x.size), changes),
        step=float(np.abs(changes / units).max()),
        scale=np.append(np.ones(x.size), units),
        within=(np.append(-infinite, low), np.append(infinite, high)),
        max_steps=max_steps,
    )
    states, columns = np.split(points, [x.size], axis=1)
    given = {name: np.full(len(points), value) for name, value in start.parameters.items()}
    given |= dict(zip(free, columns.T, strict=True))
    _, matrices = _returned(network, start.value, states, start.period, given)
    return points, _like(start.value, states), _sorted_multipliers(matrices)


def _try(network: Network, start: Cycle, point: np.ndarray, kind: Kind) -> Bifurcation:
    """The bifurcation from a point of a branch, converged or not."""
    parameters = start.parameters | {"beta": float(point[-1])}
    near = replace(start, value=_like(start.value, point[:-1]), parameters=parameters)
    return bifurcation(network, near, kind=kind, throw=False)
