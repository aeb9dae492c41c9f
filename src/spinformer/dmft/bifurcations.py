"""Folds, flips and Neimark-Sacker points of cycles, located and followed.

A cycle of q steps changes its stability where a Floquet multiplier μ crosses the unit circle: at
μ = 1 two cycles meet and vanish (fold), at μ = −1 one of twice the period is born (flip), at
μ = e^{±iα} a closed curve, on which the motion turns by α a period (Neimark-Sacker, here TORUS).
Three functions of the multipliers vanish there and are smooth in state and parameters,

    fold: Π_i (1 − μ_i),   flip: Π_i (1 + μ_i),   torus: Π_{i<j} (1 − μ_i μ_j);

the last one also at a *neutral saddle*, μ and 1/μ real, which is no bifurcation and is told apart
[kuznetsov2004elements, Ch. 10]. Cycle and condition together are one system of equations
(`dmft.conditions`), regular at such a point. Its Jacobian holds the exact monodromy matrix;
derivatives by parameters and of the conditions are central differences of the compiled return
map, all in the lanes of one block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import root

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.continuation import Curve, follow
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.conditions import (
    PARAMETERS,
    UNIT,
    Kind,
    conditions,
    critical_rotation,
    equations_of,
    parameters_of,
)
from spinformer.dmft.cycles import Cycle, sorted_multipliers
from spinformer.dmft.network import Network
from spinformer.dmft.return_map import returned
from spinformer.dmft.state import Context


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
    check_instance("network", network, Network)
    if not isinstance(start, Cycle | Bifurcation):
        raise TypeError(f"start must be a Cycle or a Bifurcation, got {start!r:.60}")
    kind = Kind(check_choice("kind", kind, list(Kind)))
    check_choice("parameter", parameter, PARAMETERS)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    fixed = parameters_of(start)
    equations = equations_of(network, start, free=(parameter,), kind=kind)

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
        rotation = float(critical_rotation(multipliers, kind=kind))
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
    given = (check_real("step", step),)
    interval = check_array("within", within, shape=(2,))
    curve = _follow(network, start, (parameter,), None, given, interval[None], max_steps)
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
    if not isinstance(parameters, tuple) or len(parameters) != 2:
        raise TypeError(f"parameters must be a pair of names, got {parameters!r:.60}")
    for name in parameters:
        check_choice("parameters", name, PARAMETERS)
    given = (0.0, check_real("step", step))
    curve = _follow(network, start, parameters, start.kind, given, within, max_steps)
    context, multipliers = _along(network, start, parameters, curve)
    return BifurcationCurve(
        kind=start.kind,
        parameters=parameters,
        period=start.period,
        values=curve.points[:, -2:],
        context=context,
        multipliers=multipliers,
        rotation=critical_rotation(multipliers, kind=start.kind),
        status=curve.status,
    )


# ---- along a curve


def _follow(
    network: Network,
    start: Cycle | Bifurcation,
    free: Sequence[str],
    kind: Kind | None,
    steps: Sequence[float],
    within: ArrayLike,
    max_steps: int,
) -> Curve:
    check_instance("network", network, Network)
    if not isinstance(start, Cycle | Bifurcation):
        raise TypeError(f"start must be a Cycle or a Bifurcation, got {start!r:.60}")
    size = start.value.attention.size
    fixed, units = parameters_of(start), np.array([UNIT[name] for name in free])
    direction = np.append(np.zeros(size), np.array(steps))
    equations = equations_of(network, start, free=free, kind=kind)
    u = np.append(start.value.attention.ravel(), [fixed[name] for name in free])
    infinite = np.full(size, np.inf)
    low, high = check_array("within", within, shape=(len(free), 2)).T
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
    given = {name: np.full(len(states), value) for name, value in parameters_of(start).items()}
    given |= {name: curve.points[:, i - len(free)] for i, name in enumerate(free)}
    _, matrices = returned(network, context, steps=start.period, threads=1, **given)
    return context, sorted_multipliers(matrices)


def _branch(network: Network, start: Cycle | Bifurcation, parameter: str, curve: Curve) -> Branch:
    context, multipliers = _along(network, start, (parameter,), curve)
    signs = np.sign(conditions(multipliers))
    values = curve.points[:, -1]
    found = []
    for number in range(len(values) - 1):
        for kind in Kind:
            if signs[number, kind] == signs[number + 1, kind]:
                continue
            ends = curve.points[number : number + 2]
            span = np.abs(ends[1] - ends[0]).max()
            for end in ends:
                point = _try(network, start, parameter, end, kind)
                place = np.append(point.value.attention.ravel(), getattr(point, parameter))
                # Newton's method may have gone to another one, which has its own sign change.
                if point.converged and np.abs(place - ends).max(axis=1).min() <= span:
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
    given = parameters_of(start) | {parameter: float(point[-1])}
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
