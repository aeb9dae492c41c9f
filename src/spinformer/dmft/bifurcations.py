"""Folds, flips and Neimark-Sacker points of cycles, located and followed.

A cycle of q steps changes its stability where a Floquet multiplier μ crosses the unit circle: at
μ = 1 two cycles meet and vanish (fold), at μ = −1 one of twice the period is born (flip), at
μ = e^{±iα} a closed curve, on which the motion turns by α a period (Neimark-Sacker, here TORUS).
Three functions of the multipliers vanish there and are smooth in state and parameters,

    fold: Π_i (1 − μ_i),   flip: Π_i (1 + μ_i),   torus: Π_{i<j} (1 − μ_i μ_j);

the last one also at a *neutral saddle*, μ and 1/μ real, which is no bifurcation and is told apart
[kuznetsov2004elements, Ch. 10]. Cycle and condition together are one system of equations, regular
at such a point. Its Jacobian holds the exact monodromy matrix; derivatives by parameters and of
the conditions are central differences of the compiled return map, all in the lanes of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from scipy.optimize import root

from spinformer.core.checks import check_choice, check_instance, check_real
from spinformer.core.continuation import Curve, Equations, follow
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.cycles import Cycle, sorted_multipliers
from spinformer.dmft.network import Network
from spinformer.dmft.return_map import returned
from spinformer.dmft.state import Context

PARAMETERS = ("beta", "gamma", "epsilon")
# What a parameter is measured in along a curve, the step of its differences in this unit, and
# what it is allowed to be.
_UNIT = {"beta": 1.0, "gamma": 100.0, "epsilon": 0.1}
_HIGHEST = {"beta": np.inf, "gamma": np.inf, "epsilon": 1.0}
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5


class Kind(IntEnum):
    """What happens to a cycle."""

    FOLD = 0
    FLIP = 1
    TORUS = 2


@record
class Bifurcation(Solution[Context]):
    """A point where a cycle of `period` steps bifurcates; `residual` and `steps` are the solver's.

    value: context (T, P) on the cycle. status: CONVERGED; STALLED where the equations were solved
    by something that is not of this kind (a neutral saddle); STEP_LIMIT where they were not.
    multipliers: (T·P,) complex, the largest modulus first.
    rotation: turns a period of the critical pair: 0 at a fold, ½ at a flip.
    """

    kind: Kind
    period: int
    beta: float
    gamma: float
    epsilon: float
    multipliers: np.ndarray
    rotation: float


@record
class Branch:
    """Cycles (m of them) along one parameter, and the bifurcations met on the way.

    values: (m,) of the `parameter`. context: (m, T, P). multipliers: (m, T·P). status: of
    `core.continuation.Curve`.
    """

    parameter: str
    period: int
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

    values: (m, 2) of the `parameters`. context, multipliers, status: as of `Branch`.
    rotation: (m,) turns a period of the critical pair, NaN on neutral saddles.
    """

    kind: Kind
    parameters: tuple[str, str]
    period: int
    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    rotation: np.ndarray
    status: Status


def conditions(multipliers: np.ndarray) -> np.ndarray:
    """The three functions (..., 3), in the order of `Kind`, of multipliers (..., n).

    >>> conditions(np.array([0.5, -1.0]))
    array([1. , 0. , 1.5])
    """
    mu = np.asarray(multipliers)
    first, second = np.triu_indices(mu.shape[-1], 1)
    found = [
        np.prod(1.0 - mu, axis=-1),
        np.prod(1.0 + mu, axis=-1),
        np.prod(1.0 - mu[..., first] * mu[..., second], axis=-1),
    ]
    return np.real(np.stack(found, axis=-1))


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
    evaluations. Raises NotConverged unless `throw` is False.

    >>> from spinformer.dmft.cycles import cycle
    >>> network = Network.document()
    >>> near = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.25, period=4)
    >>> found = bifurcation(network, near, kind=Kind.TORUS)
    >>> f"{found.beta:.5f} {found.rotation:.5f}"
    '1.24344 0.24194'
    """
    kind = Kind(check_choice("kind", kind, list(Kind)))
    check_choice("parameter", parameter, PARAMETERS)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    fixed = _parameters(start)
    equations = _equations(network, start, (parameter,), kind)

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(u)
        # Out of range: a wall that pushes the solver back.
        return np.nan_to_num(value, nan=1e3), np.nan_to_num(jacobian)

    u = np.append(start.value.attention.ravel(), fixed[parameter])
    solved = root(square, u, jac=True, options={"xtol": 1e-14, "maxfev": max_steps})
    residual = float(np.abs(square(solved.x)[0]).max())
    fixed[parameter] = float(solved.x[-1])
    shape = start.value.attention.shape
    context = Context(solved.x[:-1].reshape(shape), start.value.position)
    multipliers = np.full(len(u) - 1, np.nan, dtype=complex)
    status, rotation = Status.STEP_LIMIT, np.nan
    if residual <= tolerance:
        _, matrix = returned(network, context, steps=start.period, threads=1, **fixed)
        multipliers = sorted_multipliers(matrix)
        rotation = float(_rotation(multipliers, kind))
        status = Status.CONVERGED if np.isfinite(rotation) else Status.STALLED
    found = Bifurcation(
        value=context,
        residual=residual,
        steps=int(solved.nfev),
        status=status,
        kind=kind,
        period=start.period,
        **fixed,
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

    >>> from spinformer.dmft.cycles import cycle
    >>> network = Network.document()
    >>> first = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> branch = follow_cycle(network, first, step=0.01, within=(1.1, 1.3))
    >>> [(point.kind.name, f"{point.beta:.4f}") for point in branch.bifurcations]
    [('TORUS', '1.2434')]
    """
    check_choice("parameter", parameter, PARAMETERS)
    curve = _follow(network, start, (parameter,), None, (step,), (within,), max_steps)
    return _branch(network, start, parameter, curve)


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

    >>> from spinformer.dmft.cycles import cycle
    >>> network = Network.document()
    >>> near = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.25, period=4)
    >>> point = bifurcation(network, near, kind=Kind.TORUS)
    >>> intervals = (1.0, 1.5), (0.015, 0.025)
    >>> curve = follow_bifurcation(network, point, parameters=("beta", "epsilon"), step=0.002,
    ...     within=intervals)
    >>> bool((np.diff(curve.rotation) > 0).all())
    True
    """
    check_instance("start", start, Bifurcation)
    for name in parameters:
        check_choice("parameters", name, PARAMETERS)
    curve = _follow(
        network, start, parameters, start.kind, (0.0, step), within, max_steps
    )
    context, multipliers = _along(network, start, parameters, curve)
    return BifurcationCurve(
        kind=start.kind,
        parameters=parameters,
        period=start.period,
        values=curve.points[:, -2:],
        context=context,
        multipliers=multipliers,
        rotation=_rotation(multipliers, start.kind),
        status=curve.status,
    )


# ---- equations


def _parameters(start: Cycle | Bifurcation) -> dict[str, float]:
    return {name: float(getattr(start, name)) for name in PARAMETERS}


def _equations(
    network: Network, start: Cycle | Bifurcation, free: Sequence[str], kind: Kind | None
) -> Equations:
    """u = (x, free parameters) → Φ(x) − x and, if a kind is given, its condition; the Jacobian."""
    fixed, shape = _parameters(start), start.value.attention.shape
    size = int(np.prod(shape))

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = size + (kind is not None)
        low = np.append(np.full(size, -np.inf), np.zeros(len(free)))
        high = np.append(np.full(size, np.inf), [_HIGHEST[name] for name in free])
        if not np.isfinite(u).all() or (u < low).any() or (u > high).any():
            return np.full(count, np.nan), np.full((count, len(u)), np.nan)
        # Without a condition the derivative by x is exact and needs no differences.
        moved = np.arange(0 if kind is not None else size, len(u))
        width = _DIFFERENCE * np.append(np.ones(size), [_UNIT[name] for name in free])
        shift = np.zeros((len(moved), len(u)))
        shift[np.arange(len(moved)), moved] = width[moved]
        points = np.clip(np.concatenate([u[None], u + shift, u - shift]), low, high)
        given = {name: np.full(len(points), value) for name, value in fixed.items()}
        given |= {name: points[:, size + i] for i, name in enumerate(free)}
        states = Context(points[:, :size].reshape(-1, *shape), start.value.position)
        ends, matrices = returned(network, states, steps=start.period, threads=1, **given)
        value = ends.attention.reshape(-1, size) - points[:, :size]
        if kind is not None:
            extra = conditions(np.linalg.eigvals(matrices))[:, kind]
            value = np.column_stack([value, extra])
        ahead, behind = np.split(points[1:], 2)
        distance = (ahead - behind)[np.arange(len(moved)), moved]
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((count, len(u)))
        jacobian[:, moved] = ((above - below) / distance[:, None]).T
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    return equations


def _rotation(multipliers: np.ndarray, kind: Kind) -> np.ndarray:
    """Turns a period (...) of the critical multiplier; NaN where none is of this kind."""
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


# ---- along a curve


def _follow(
    network: Network,
    start: Cycle | Bifurcation,
    free: Sequence[str],
    kind: Kind | None,
    steps: Sequence[float],
    within: Sequence[tuple[float, float]],
    max_steps: int,
) -> Curve:
    size = start.value.attention.size
    fixed, units = _parameters(start), np.array([_UNIT[name] for name in free])
    direction = np.append(np.zeros(size), np.array(steps))
    equations = _equations(network, start, free, kind)
    u = np.append(start.value.attention.ravel(), [fixed[name] for name in free])
    infinite = np.full(size, np.inf)
    low, high = np.array(within, dtype=float).T
    return follow(
        equations,
        u,
        direction=direction,
        step=float(np.abs(np.array(steps) / units).max()),
        scale=np.append(np.ones(size), units),
        within=(np.append(-infinite, low), np.append(infinite, high)),
        max_steps=max_steps,
    )


def _along(
    network: Network, start: Cycle | Bifurcation, free: Sequence[str], curve: Curve
) -> tuple[Context, np.ndarray]:
    """Contexts and multipliers of all points of a curve."""
    shape = start.value.attention.shape
    states = curve.points[:, : -len(free)].reshape(-1, *shape)
    context = Context(states, start.value.position)
    given = {name: np.full(len(states), value) for name, value in _parameters(start).items()}
    given |= {name: curve.points[:, i - len(free)] for i, name in enumerate(free)}
    _, matrices = returned(network, context, steps=start.period, threads=1, **given)
    return context, sorted_multipliers(matrices)


def _branch(
    network: Network, start: Cycle | Bifurcation, parameter: str, curve: Curve
) -> Branch:
    context, multipliers = _along(network, start, (parameter,), curve)
    signs = np.sign(conditions(multipliers))
    values = curve.points[:, -1]
    found = []
    for number in range(len(values) - 1):
        for kind in Kind:
            if signs[number, kind] == signs[number + 1, kind]:
                continue
            for end in (number, number + 1):
                point = _try(network, start, parameter, curve.points[end], kind)
                near = np.abs(curve.points[number + 1] - curve.points[number]).max()
                if (
                    point.converged
                    and np.abs(point.value.attention - context.attention[end]).max() <= 2 * near
                ):
                    found.append(point)
                    break
    return Branch(
        parameter=parameter,
        period=start.period,
        values=values,
        context=context,
        multipliers=multipliers,
        bifurcations=tuple(found),
        status=curve.status,
    )


def _try(
    network: Network, start: Cycle | Bifurcation, parameter: str, point: np.ndarray, kind: Kind
) -> Bifurcation:
    """The bifurcation from a point of a branch, converged or not."""
    state = Context(point[:-1].reshape(start.value.attention.shape), start.value.position)
    given = _parameters(start) | {parameter: float(point[-1])}
    cycle = Cycle(
        value=state,
        residual=0.0,
        steps=0,
        status=Status.CONVERGED,
        period=start.period,
        **given,
        multipliers=np.full(state.attention.size, np.nan, dtype=complex),
        moved=0.0,
    )
    return bifurcation(network, cycle, kind=kind, parameter=parameter, throw=False)
