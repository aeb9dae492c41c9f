"""Where attractors come from and go: onset of oscillation, cycles, and their bifurcations.

*Onset.* At ε = 0 the window A = 0 is a fixed point for every β: all overlaps vanish, and so do
all scores, and the softmax is flat. To first order in A a token has m^v = β C A with
C = ⟨W^v W^{o⊤}⟩ (`Network.pair_correlations("v", "o")`); the first-order change of the softmax
multiplies values that are small themselves, so γ drops out, and a step is

    δA' = (β/T) C Σ_{s<T} δA_s .

Along an eigenvector of C with eigenvalue μ, δA ∝ z^t gives z^T = (βμ/T) Σ_{s<T} z^s. With
z = e^{iθ} the sum is e^{iθ(T−1)/2} sin(Tθ/2)/sin(θ/2), so that the phase of the equation gives
θ = 2φ/(T+1), φ = arg μ, and its modulus gives

    β = (T/|μ|) sin(φ/(T+1)) / sin(Tφ/(T+1)) ,

from 1/|μ| for μ > 0 (the state magnetizes) to T/|μ| for μ < 0 (one turn in T + 1 tokens). Other
roots of the phase, θ = 2(φ + kπ)/(T+1), reach |z| = 1 at larger β: there |μ|β/T is
1/(sin φ cot(θ/2) − cos φ), where it is positive at all, and cot falls with θ.

Linearization of [poclopez2024dynamical, Eqs. (13)-(16)]; the document gives no such formula.

*Cycles.* A cycle of q steps is a context with Φ_q(x) = x, Φ_q being q compiled steps. Its position
comes back as well, so that q is a multiple of 2^K unless ε = 0. Newton's method has the exact
derivative, the monodromy matrix ∂Φ_q/∂x (`lyapunov.returned`); the eigenvalues of this matrix are
the Floquet multipliers. All of them inside the unit circle: the cycle is stable. Long runs find
stable cycles only, Newton's method finds saddles, too.

*Bifurcations.* A cycle changes its stability where a multiplier μ crosses the unit circle: at
μ = 1 two cycles meet and vanish (fold), at μ = −1 one of twice the period is born (flip), at
μ = e^{±iα} a closed curve, on which the motion turns by α a period (Neimark-Sacker, here TORUS).
Three functions of the multipliers vanish there and are smooth in state and parameters,

    fold: Π_i (1 − μ_i),   flip: Π_i (1 + μ_i),   torus: Π_{i<j} (1 − μ_i μ_j);

the last one also at a *neutral saddle*, μ and 1/μ real, which is no bifurcation and is told apart
[kuznetsov2004elements, Ch. 10]. Cycle and condition together are one system of equations, regular
at such a point. Its Jacobian holds the exact monodromy matrix; derivatives by parameters and of
the conditions are central differences of the compiled return map, all in the lanes of one block.

Cycles and bifurcations of any other `Map` are found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

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
from spinformer.core.continuation import Curve, Equations, follow
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.lyapunov import returned
from spinformer.dmft.network import OUTPUT, VALUE, AttentionNetwork, Context, Network, fitting

# Singular values of ⟨W^v W^o⟩ below this share of what they could be are rounding.
_SINGULAR = 1e-12
# Shares of a Newton step that are tried side by side, in the lanes of one block; the best is taken.
_SHARES = np.array([1.0, 0.5, 0.25, 0.125, 1 / 32, 1 / 128])
# Two states of an orbit closer than this are one: the cycle is shorter than asked.
_SAME = 1e-7
# What a parameter of a network is measured in along a curve, the step of differences in this unit,
# and what it is allowed to be; those of a map are measured in 1 and may be anything.
_UNIT = {"beta": 1.0, "gamma": 100.0, "epsilon": 0.1}
_HIGHEST = {"beta": np.inf, "gamma": np.inf, "epsilon": 1.0}
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5

# ---- onset


@record
class Onset:
    """Instabilities of the disordered state, one for each eigenvalue of ⟨W^v W^o⟩, earliest first.

    mu: (P,) complex eigenvalues. beta: (P,) where each gets |z| = 1, infinite for μ = 0.
    rotation: (P,) turns per token there, in [0, 1/(T + 1)]; 0 where the state magnetizes.
    """

    mu: np.ndarray
    beta: np.ndarray
    rotation: np.ndarray

    @property
    def critical_beta(self) -> float:
        """Inverse temperature above which the disordered state is unstable."""
        return float(self.beta[0])

    @property
    def critical_rotation(self) -> float:
        """Turns per token of what takes over."""
        return float(self.rotation[0])


def onset(network: AttentionNetwork, *, epsilon: float = 0.0) -> Onset:
    """Instabilities of the disordered state A = 0, and the turns per token at each.

    epsilon: the gain of a token is (1 − ε)β, so β is divided by 1 − ε. With ε > 0 the state A = 0
    is a fixed point only if γ = 0 and T is a multiple of 2^K (the positions of a window average to
    zero); then the result is exact. Otherwise the positions drive the state, γ matters, and the
    true onset is that of a cycle of 2^K steps (`bifurcation`). ValueError unless 0 ≤ ε < 1.

    >>> found = onset(Network.document())
    >>> f"{found.critical_beta:.5f} {found.critical_rotation:.5f}"
    '1.22124 0.05888'
    """
    check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
    epsilon = check_real("epsilon", epsilon, low=0.0)
    if epsilon >= 1.0:
        raise ValueError(f"epsilon must be a number in [0, 1), got {epsilon}")
    least = _SINGULAR * network.reach[VALUE].max() * network.reach[OUTPUT].max()
    mu = _eigenvalues(network.pair_correlations("v", "o"), least=float(least))
    size = np.abs(mu)
    turn = np.abs(np.angle(mu)) / (network.context + 1)
    # sin x / sin Tx through sinc, which knows its limit 1/T at x = 0.
    ratio = np.sinc(turn / np.pi) / np.sinc(network.context * turn / np.pi)
    with np.errstate(divide="ignore"):
        beta = ratio / (size * (1.0 - epsilon))
    order = np.argsort(beta, kind="stable")
    rotation = np.where(size > 0.0, turn / np.pi, 0.0)
    return Onset(mu=mu[order], beta=beta[order], rotation=rotation[order])


def _eigenvalues(matrix: np.ndarray, *, least: float) -> np.ndarray:
    """Eigenvalues of a square matrix, those that vanish as exact zeros.

    Rounding moves a zero of multiplicity k by its k-th root. The range of a matrix is invariant
    and holds all other eigenvalues, so the matrix is restricted to its range until it is regular.
    """
    size = len(matrix)
    while len(matrix):
        basis, lengths, _ = np.linalg.svd(matrix)
        rank = int((lengths > least).sum())
        if rank == len(matrix):
            break
        matrix = basis[:, :rank].T @ matrix @ basis[:, :rank]
    mu = np.zeros(size, dtype=complex)
    mu[: len(matrix)] = np.linalg.eigvals(matrix)
    return mu


# ---- cycles


@record
class Map:
    """A map x' = f(x) of real vectors, whose parameters have names; a clock is a component of x.

    step: (states (B, n), each parameter by name (B,)) → states (B, n). tangent: of the same,
    ∂x'/∂x (B, n, n).

    >>> logistic = Map(
    ...     step=lambda x, r: r[:, None] * x * (1 - x),
    ...     tangent=lambda x, r: (r[:, None] * (1 - 2 * x))[..., None],
    ... )
    >>> found = cycle(logistic, [0.5], r=3.2, period=2)
    >>> found.value, found.multipliers  # r²(1 − 2x₁)(1 − 2x₂) = 4 + 2r − r²
    (array([0.51304451]), array([0.16+0.j]))
    """

    step: Callable[..., np.ndarray]
    tangent: Callable[..., np.ndarray]


@record
class _Point(Solution[Any]):
    """A cycle or a bifurcation: what both have.

    value: context (T, P) on the cycle, or state (n,) of a map. parameters: by name; those of a
    network are `beta`, `gamma` and `epsilon`. multipliers: (n,) complex, n = T·P, the largest
    modulus first, of one period; NaN where not converged.
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
    """A cycle, or what Newton's method ended with; `steps` are Newton's.

    value, parameters, multipliers: as of `Bifurcation`. residual: largest entry of |Φ(x) − x|.
    status: CONVERGED, STALLED (no share of a Newton step improves it) or STEP_LIMIT.
    period: steps until the state comes back for the first time; it divides what was asked.
    moved: largest distance, entry by entry, from the start: large where the cycle found is another.
    """

    moved: float

    @property
    def unstable(self) -> int:
        """How many directions grow; 0 for a stable cycle. ValueError where not converged."""
        if not self.converged:
            raise ValueError("the stability of a cycle that was not found is not known")
        return int((np.abs(self.multipliers) > 1.0).sum())

    @property
    def stable(self) -> bool:
        """Whether all multipliers lie inside the unit circle; False where not converged."""
        return bool(self.converged) and self.unstable == 0


def cycle(
    system: Network | Map,
    start: Context | np.ndarray,
    *,
    period: int,
    tolerance: float = 1e-11,
    max_steps: int = 40,
    throw: bool = True,
    **parameters: float,
) -> Cycle:
    """The cycle of `period` steps (or a divisor of it) that Newton's method reaches from `start`.

    start: one context, for instance where a long run ended, or one state (n,) of a map.
    parameters: by name, for a network `beta` and, if not its own, `gamma` and `epsilon`. Raises
    NotConverged unless `throw` is False, ValueError for a batch of starts, or for a period that
    is no multiple of 2^K with ε > 0.

    >>> network = Network.document()
    >>> found = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> found.period, found.stable, found.residual < 1e-11
    (4, True, True)
    """
    given = _given(system, parameters)
    period = check_integer("period", period, low=1)
    unit = 1
    if isinstance(system, Network):
        shape = fitting(system, check_instance("start", start, Context))[0].shape
        if len(shape) != 2:
            raise ValueError(f"start must be one context (T, P), got {shape}")
        unit = system.positions if given["epsilon"] > 0.0 else 1
        if period % unit:
            raise ValueError(
                f"period must be a multiple of the {unit} positions while epsilon > 0, got {period}"
            )
    else:
        start = check_array("start", start, ndim=1)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    x, residual, matrix, steps, status = _newton(system, start, period, given, tolerance, max_steps)
    value = _like(start, x)
    multipliers = np.full(x.size, np.nan, dtype=complex)
    if status == Status.CONVERGED:
        least = _least_period(system, value, period, unit, given)
        if least < period:
            _, matrix = _returned(system, value, x, least, given)
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
        moved=float(np.abs(x - _flat(start)).max()),
    )
    if check_flag("throw", throw):
        found.require(f"a cycle of {period} steps")
    return found


def _given(system: Network | Map, parameters: dict[str, Any]) -> dict[str, float]:
    """Every parameter of the system, checked."""
    if isinstance(system, Map):
        return {name: check_real(name, value) for name, value in parameters.items()}
    if not isinstance(system, Network):
        raise TypeError(f"system must be a Network or a Map, got {system!r:.60}")
    if not {"beta"} <= parameters.keys() <= _UNIT.keys():
        raise TypeError(
            "parameters of a network must be beta and, if not its own, gamma and epsilon, "
            f"got {list(parameters)}"
        )
    own = {"gamma": system.gamma, "epsilon": system.epsilon}
    given = own | {name: value for name, value in parameters.items() if value is not None}
    return {name: check_real(name, given[name], low=0.0, high=_HIGHEST[name]) for name in _UNIT}


def _flat(value: Context | np.ndarray) -> np.ndarray:
    """The state (n,) of a context or of a map."""
    return value.attention.ravel() if isinstance(value, Context) else value


def _like(value: Context | np.ndarray, x: np.ndarray) -> Any:
    """States (..., n) as what `value` is."""
    if not isinstance(value, Context):
        return x
    return Context(x.reshape(*x.shape[:-1], *value.attention.shape[-2:]), value.position)


def _returned(
    system: Network | Map,
    kind: Context | np.ndarray,
    x: np.ndarray,
    steps: int,
    given: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray]:
    """States (..., n) after `steps` steps from `x` (..., n), and the derivatives (..., n, n)."""
    if isinstance(system, Network):
        end, matrix = returned(system, _like(kind, x), steps=steps, threads=1, **given)
        return end.attention.reshape(x.shape), matrix
    states = np.atleast_2d(x)
    given = {name: np.broadcast_to(value, len(states)) for name, value in given.items()}
    product: np.ndarray = np.broadcast_to(np.eye(x.shape[-1]), (*states.shape, x.shape[-1]))
    # Newton's method may try a share of a step that leads out of the map's range; it is not taken.
    with np.errstate(all="ignore"):
        for _ in range(steps):
            product = np.asarray(system.tangent(states, **given)) @ product
            states = np.asarray(system.step(states, **given))
    return states.reshape(x.shape), product.reshape(*x.shape, x.shape[-1])


def _sorted_multipliers(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues (..., n) of monodromy matrices (..., n, n), the largest modulus first."""
    values = np.linalg.eigvals(matrix).astype(complex)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    return np.take_along_axis(values, order, axis=-1)


def _newton(
    system: Network | Map,
    start: Context | np.ndarray,
    period: int,
    parameters: dict[str, float],
    tolerance: float,
    max_steps: int,
) -> tuple[np.ndarray, float, np.ndarray, int, Status]:
    """Newton's method with the best of several shares of each step; polished by one step more."""
    best = _flat(start)
    eye = np.eye(best.size)
    end, matrix = _returned(system, start, best, period, parameters)
    gap = end - best
    if not np.isfinite(matrix).all() or not np.isfinite(gap).all():
        raise ValueError("start leads out of the range of the map")
    residual = float(np.abs(gap).max())
    # At ε = 0 a period may not bring the position back; the position does not matter then.
    for steps in range(1, max_steps + 1):
        arrived = residual <= tolerance
        change = np.linalg.lstsq(matrix - eye, -gap, rcond=None)[0]
        tried = best + _SHARES[:, None] * change
        better = bool(np.isfinite(tried).all())
        if better:
            ends, matrices = _returned(system, start, tried, period, parameters)
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
    system: Network | Map,
    value: Context | np.ndarray,
    period: int,
    unit: int,
    parameters: dict[str, float],
) -> int:
    """Smallest divisor of the period, a multiple of `unit`, after which the state is back."""
    x = _flat(value)
    for divisor in range(unit, period, unit):
        if period % divisor == 0:
            end, _ = _returned(system, value, x, divisor, parameters)
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

    value: context (T, P) on the cycle, or state (n,) of a map. parameters: by name; those of a
    network are `beta`, `gamma` and `epsilon`, attributes too. multipliers: (n,) complex, n = T·P,
    the largest modulus first, of one period; NaN where not converged.
    status: CONVERGED; STALLED where the equations were solved by something that is not of this
    kind (a neutral saddle); STEP_LIMIT where they were not.
    rotation: turns a period of the critical pair: 0 at a fold, ½ at a flip.
    """

    kind: Kind
    rotation: float


@record
class Branch:
    """Cycles (m of them) along one parameter, and the bifurcations met on the way.

    values: (m,) of the `parameter`. context: (m, T, P), or states (m, n) of a map. multipliers:
    (m, n). status: of `core.continuation.Curve`.
    """

    parameter: str
    period: int
    values: np.ndarray
    context: Any
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
    context: Any
    multipliers: np.ndarray
    rotation: np.ndarray
    status: Status


def bifurcation(
    system: Network | Map,
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

    >>> network = Network.document()
    >>> near = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.25, period=4)
    >>> found = bifurcation(network, near, kind=Kind.TORUS)
    >>> f"{found.beta:.5f} {found.rotation:.5f}"
    '1.24344 0.24194'
    """
    _check_start(system, start, (parameter,))
    kind = Kind(check_choice("kind", kind, list(Kind)))
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    fixed = dict(start.parameters)
    equations = _equations_of(system, start, free=(parameter,), kind=kind)

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(u)
        # Out of range: a wall that pushes the solver back.
        return np.nan_to_num(value, nan=1e3), np.nan_to_num(jacobian)

    u = np.append(_flat(start.value), fixed[parameter])
    solved = root(square, u, jac=True, options={"xtol": 1e-14, "maxfev": max_steps})
    residual = float(np.abs(square(solved.x)[0]).max())
    fixed[parameter] = float(solved.x[-1])
    multipliers = np.full(len(u) - 1, np.nan, dtype=complex)
    status, rotation = Status.STEP_LIMIT, np.nan
    if residual <= tolerance:
        _, matrix = _returned(system, start.value, solved.x[:-1], start.period, fixed)
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
        parameters=fixed,
        multipliers=multipliers,
        rotation=rotation,
    )
    if check_flag("throw", throw):
        found.require(f"a {kind.name.lower()} of the cycle of {start.period} steps")
    return found


def follow_cycle(
    system: Network | Map,
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

    >>> network = Network.document()
    >>> first = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> branch = follow_cycle(network, first, step=0.01, within=(1.1, 1.3))
    >>> [(point.kind.name, f"{point.beta:.4f}") for point in branch.bifurcations]
    [('TORUS', '1.2434')]
    """
    given = (check_real("step", step),)
    interval = check_array("within", within, shape=(2,))
    curve = _follow(system, start, (parameter,), None, given, interval[None], max_steps)
    return _branch(system, start, parameter, curve)


def follow_bifurcation(
    system: Network | Map,
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
    given = (0.0, check_real("step", step))
    curve = _follow(system, start, parameters, start.kind, given, within, max_steps)
    context, multipliers = _along(system, start, parameters, curve)
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


def _conditions(multipliers: np.ndarray) -> np.ndarray:
    """The three functions (..., 3), in the order of `Kind`, of multipliers (..., n).

    >>> _conditions(np.array([0.5, -1.0]))
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


def critical_rotation(multipliers: np.ndarray, *, kind: Kind) -> np.ndarray:
    """Turns a period (...) of the critical one of multipliers (..., n); NaN if none is of the kind.

    >>> critical_rotation(np.array([1j, -1j, 0.3]), kind=Kind.TORUS)
    array(0.25)
    """
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
    system: Network | Map, start: Cycle | Bifurcation, *, free: Sequence[str], kind: Kind | None
) -> Equations:
    """u = (x, free parameters) → Φ(x) − x and, if a kind is given, its condition; the Jacobian.

    The period and the fixed parameters are those of `start`.

    >>> network = Network.document()
    >>> found = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> equations = _equations_of(network, found, free=("beta",), kind=Kind.TORUS)
    >>> value, jacobian = equations(np.append(found.value.attention.ravel(), 1.2))
    >>> value.shape, jacobian.shape
    ((13,), (13, 13))
    """
    fixed, size = start.parameters, _flat(start.value).size
    lowest, highest = (
        (np.zeros(len(free)), [_HIGHEST[name] for name in free])
        if isinstance(system, Network)
        else (np.full(len(free), -np.inf), np.full(len(free), np.inf))
    )
    low = np.append(np.full(size, -np.inf), lowest)
    high = np.append(np.full(size, np.inf), highest)
    width = _DIFFERENCE * np.append(np.ones(size), _units(system, free))

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
        ends, matrices = _returned(system, start.value, points[:, :size], start.period, given)
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


def _units(system: Network | Map, free: Sequence[str]) -> np.ndarray:
    return np.array([_UNIT[name] if isinstance(system, Network) else 1.0 for name in free])


def _check_start(system: Network | Map, start: Cycle | Bifurcation, free: Sequence[str]) -> None:
    if not isinstance(system, Network | Map):
        raise TypeError(f"system must be a Network or a Map, got {system!r:.60}")
    if not isinstance(start, Cycle | Bifurcation):
        raise TypeError(f"start must be a Cycle or a Bifurcation, got {start!r:.60}")
    if isinstance(system, Network) != isinstance(start.value, Context):
        raise ValueError(f"start must be a cycle of the system, got one of {type(start.value)}")
    for name in free:
        check_choice("parameter", name, tuple(start.parameters))


# ---- along a curve


def _follow(
    system: Network | Map,
    start: Cycle | Bifurcation,
    free: Sequence[str],
    kind: Kind | None,
    steps: Sequence[float],
    within: ArrayLike,
    max_steps: int,
) -> Curve:
    _check_start(system, start, free)
    x, units = _flat(start.value), _units(system, free)
    size = x.size
    direction = np.append(np.zeros(size), np.array(steps))
    equations = _equations_of(system, start, free=free, kind=kind)
    u = np.append(x, [start.parameters[name] for name in free])
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
    system: Network | Map, start: Cycle | Bifurcation, free: Sequence[str], curve: Curve
) -> tuple[Any, np.ndarray]:
    """Contexts or states, and multipliers, of all points of a curve."""
    states = curve.points[:, : -len(free)]
    given = {name: np.full(len(states), value) for name, value in start.parameters.items()}
    given |= {name: curve.points[:, i - len(free)] for i, name in enumerate(free)}
    _, matrices = _returned(system, start.value, states, start.period, given)
    return _like(start.value, states), _sorted_multipliers(matrices)


def _branch(
    system: Network | Map, start: Cycle | Bifurcation, parameter: str, curve: Curve
) -> Branch:
    context, multipliers = _along(system, start, (parameter,), curve)
    signs = np.sign(_conditions(multipliers))
    values = curve.points[:, -1]
    found = []
    for number in range(len(values) - 1):
        for kind in Kind:
            if signs[number, kind] == signs[number + 1, kind]:
                continue
            ends = curve.points[number : number + 2]
            span = np.abs(ends[1] - ends[0]).max()
            for end in ends:
                point = _try(system, start, parameter, end, kind)
                place = np.append(_flat(point.value), point.parameters[parameter])
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
    system: Network | Map, start: Cycle | Bifurcation, parameter: str, point: np.ndarray, kind: Kind
) -> Bifurcation:
    """The bifurcation from a point of a branch, converged or not."""
    cycle = Cycle(
        value=_like(start.value, point[:-1]),
        residual=0.0,
        steps=0,
        status=Status.CONVERGED,
        period=start.period,
        parameters=start.parameters | {parameter: float(point[-1])},
        multipliers=np.full(len(point) - 1, np.nan, dtype=complex),
        moved=0.0,
    )
    return bifurcation(system, cycle, kind=kind, parameter=parameter, throw=False)
