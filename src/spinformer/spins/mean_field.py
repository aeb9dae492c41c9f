"""Mean-field theories of Ising spins: naive mean field, TAP, adaptive TAP, belief propagation.

The energy is E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i with every pair counted once
(`ising.pair_couplings` converts), J is symmetric with zero diagonal, K = βJ and θ = βh. Each theory
is a variational function psi(m) of the magnetizations m. Its stationary value approximates ln Z and
its stationary point the magnetizations, so that d ln Z/dθ_i = m_i holds exactly. With v_i = 1 −
m_i², S(m) the entropy of independent spins, and every sum over both indices:

- naive:    psi = S + θ·m + ½ m·K·m, a lower bound of ln Z at every m, stationary where
            m_i = tanh(θ_i + Σ_j K_ij m_j);
- tap:      adds ¼ Σ K_ij² v_i v_j, and the Onsager reaction term −m_i Σ_j K_ij² v_j to that field
            [thouless1977solution; plefka1982convergence];
- plefka3:  adds ⅓ Σ K_ij³ m_i v_i m_j v_j + ⅙ Tr (K diag v)³, the third order of the Plefka
            expansion [georges1991expand];
- adaptive: naive plus −½ ln det(Λ − K) − ½ Σ ln v_i + ½ Σ V_i v_i with Λ_i = V_i + 1/v_i and V
            from [(Λ − K)⁻¹]_ii = v_i [opper2001adaptive]: a resummation that depends on the
            spectrum of K.

Two bounds of ln Z cost little. The naive psi(m) is a lower bound at every m. Since no state has
less energy than the ground state, an upper bound is N ln 2 + Σ|θ_i| + min(½ Σ|K_ij|, N λ_max(K)/2),
and `log_partition_bound` has a tighter one. If the psi of a solution lies outside of these bounds,
the solution does not describe the system, and its status is DIVERGED.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from spinformer.core.checks import check_array, check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.spins.ising import check_ising

METHODS = ("naive", "tap", "plefka3", "adaptive")

# Largest β times a coupling or field: beyond, the systems of equations lose all their digits.
_MAX_EXPANDED = 1e6
# What the constraint inside the adaptive functional may miss at a solution.
_SLACK = 1e-9
# How far beyond a bound, relative to its size, rounding may carry a value.
_ROUNDING = 1e-9
# How much steeper than the barrier the sum is that a bound minimises.
_BARRIER = 25.0
# Perturbation of the ordered starts, so that no symmetry holds a climb at a saddle.
_NUDGE = 1e-3
# Steps of the linearised messages without damping, at most how many with it, and the factor beyond
# which they clearly grow or fall.
_TANGENT_STEPS = 300
_MOST_TANGENT_STEPS = 30_000
_CLEAR = 1e12


@record
class _Point:
    """psi, its gradient g, and R with −d²psi/dm² = diag(1/v) + R, at m = tanh(x).

    root: where the inner problem of the adaptive functional ended, a start for the next one.
    slack: the residual of that inner problem, zero for the others.
    """

    psi: float
    gradient: np.ndarray
    curvature: np.ndarray
    root: np.ndarray | None = None
    slack: float = 0.0


# A functional of one system: takes x = atanh m and a start for its inner problem.
_Functional = Callable[[np.ndarray, np.ndarray | None], _Point]


def _expanded(k: np.ndarray, theta: np.ndarray, order: int) -> _Functional:
    square = k**2
    cube = k**3

    def evaluate(x: np.ndarray, _: np.ndarray | None) -> _Point:
        m = np.tanh(x)
        v = _variance(x)
        km = k @ m
        psi = float(np.sum(np.logaddexp(x, -x) - x * m)) + m @ theta + 0.5 * m @ km
        # Zero where m = tanh(θ + K m).
        gradient = theta + km - x
        curvature = -k
        if order > 1:
            onsager = square @ v
            psi = psi + 0.25 * v @ onsager
            gradient = gradient - m * onsager
            curvature = curvature + np.diag(onsager) - 2 * np.outer(m, m) * square
        if order > 2:
            two = (k * v) @ k
            three = ((two * v) * k).sum(1)
            f = m * v
            slope = 1 - 3 * m**2
            pull = cube @ f
            psi = psi + f @ pull / 3 + v @ three / 6
            gradient = gradient + 2 / 3 * slope * pull - m * three
            curvature = curvature + np.diag(three + 4 * m * pull)
            curvature -= 4 * np.outer(m, m) * k * two + 2 / 3 * np.outer(slope, slope) * cube
        return _Point(psi=float(psi), gradient=gradient, curvature=curvature)

    return evaluate


def _functional(method: str, k: np.ndarray, theta: np.ndarray) -> _Functional:
    if method != "adaptive":
        return _expanded(k, theta, order=1 + METHODS.index(method))
    naive = _expanded(k, theta, order=1)

    def evaluate(x: np.ndarray, warm: np.ndarray | None) -> _Point:
        base = naive(x, None)
        m = np.tanh(x)
        spread = np.sqrt(_variance(x))
        shift, inverse, log_det = _unit_diagonal(spread[:, None] * k * spread, start=warm)
        # V = shift / v, written so that it keeps its digits where v is tiny.
        reaction = (k * inverse) @ spread / spread
        psi = base.psi - 0.5 * log_det + 0.5 * shift.sum()
        # dV/dm from the constraint: with A = inverse**2 elementwise, whose diagonal is one,
        # (Lambda - K)^-1 varies by (A^-1 - 1) = -A^-1 (A - 1).
        squared = inverse**2
        off = squared.copy()
        np.fill_diagonal(off, 0.0)
        bend = -np.linalg.solve(squared, off)
        weight = m / spread**2
        curvature = base.curvature + np.diag(reaction) + 2 * weight[:, None] * bend * weight
        return _Point(
            psi=float(psi),
            gradient=base.gradient - reaction * m,
            curvature=0.5 * (curvature + curvature.T),
            root=shift,
            slack=float(np.abs(np.diagonal(inverse) - 1).max()),
        )

    return evaluate


def _variance(x: np.ndarray) -> np.ndarray:
    """1 − tanh(x)² without cancellation, kept above zero."""
    decay = np.exp(-2 * np.abs(x))
    return np.maximum(4 * decay / (1 + decay) ** 2, 1e-280)


def _unit_diagonal(
    matrix: np.ndarray, *, start: np.ndarray | None = None, max_steps: int = 200
) -> tuple[np.ndarray, np.ndarray, float]:
    """The shift a for which A = [diag(1 + a) − matrix]⁻¹ has ones on its diagonal.

    `matrix` (N, N) symmetric with zero diagonal. Returns a (N,), A, and the ln det of what was
    inverted. a minimises the convex Σ_i a_i − ln det over the positive definite shifts, so it is
    unique; damped Newton steps of a self-concordant function converge from any `start` (N,) in that
    set (one outside is replaced). This is [(Λ − K)⁻¹]_ii = v_i of adaptive TAP, scaled by √v.
    """

    def factorise(shift: np.ndarray) -> np.ndarray | None:
        try:
            return cholesky(np.diag(1 + shift) - matrix, lower=True, check_finite=False)
        except LinAlgError:
            return None

    identity = np.eye(len(matrix))
    shift = (matrix**2).sum(1) if start is None else start
    factor = factorise(shift)
    if factor is None:
        shift = np.full(len(matrix), max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0) * (1 + 1e-8))
        factor = cholesky(np.diag(1 + shift) - matrix, lower=True, check_finite=False)
    for step in range(max_steps + 1):
        inverse = cho_solve((factor, True), identity, check_finite=False)
        gap = np.diagonal(inverse) - 1
        move = np.linalg.solve(inverse**2, gap)
        decrement = math.sqrt(max(float(gap @ move), 0.0))
        if step == max_steps or decrement < 1e-13 * np.sqrt(len(matrix)):
            break
        trial = shift + move / (1 + decrement if decrement > 0.25 else 1.0)
        trial_factor = factorise(trial)
        if trial_factor is None or np.array_equal(trial, shift):
            break
        shift = trial
        factor = trial_factor
    return shift, inverse, 2 * float(np.log(np.diagonal(factor)).sum())


@record
class MeanFieldSolution(Solution[np.ndarray]):
    """A stationary point of a mean-field free energy, for one system or a batch of them.

    Leading axes `...` are those of the batch. Where `converged` is False the numbers are those of
    the last iterate. Where `stable` is False the susceptibility is that of a saddle point, and NaN
    if it is singular.

    Attributes
    ----------
    value : ndarray, shape (..., N)
        The magnetizations m.
    residual : ndarray, shape (...)
        The largest change max_i abs(tanh(atanh m_i + g_i) − m_i) that the equation of state still
        asks for, g being the gradient of psi.
    steps : ndarray of int, shape (...)
        Number of steps taken.
    status : ndarray of int, shape (...)
        A value of `core.solve.Status`: CONVERGED; STEP_LIMIT; STALLED where no step increases psi
        any further; DIVERGED where psi is outside of the bounds of ln Z.
    log_partition : ndarray, shape (...)
        The stationary value psi(m), the approximation of ln Z in nats.
    susceptibility : ndarray, shape (..., N, N)
        Linear response dm_i/d(βh_j), the inverse of the negative Hessian of psi.
    stable : ndarray of bool, shape (...)
        Whether the point is a maximum of psi (a positive definite susceptibility) and converged.
    """

    log_partition: np.ndarray
    susceptibility: np.ndarray
    stable: np.ndarray

    @property
    def magnetization(self) -> np.ndarray:
        """Magnetizations m, shape (..., N), another name of `value`."""
        return self.value


def log_partition_bound(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> np.ndarray:
    r"""Compute an upper bound of ln Z from a semidefinite relaxation of the ground-state energy.

    The bound is N ln 2 plus β times an upper bound of the largest −E of any state, for which the
    smallest of three is taken.

    Parameters
    ----------
    couplings : ndarray, shape (..., N, N)
        Couplings J, symmetric with zero diagonal.
    fields : ndarray, shape (..., N)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0.

    Returns
    -------
    ndarray, shape (...)
        The upper bound of ln Z, in nats.

    Raises
    ------
    ValueError
        If couplings, fields or β are not those of an Ising model (see `ising.check_ising`).

    Notes
    -----
    The first two bounds are `Σ_i |h_i|` plus the smaller of `Σ_{i<j} |J_ij|` and `N λ_max(J)/2`.
    The third is a semidefinite relaxation,

    .. math::

        \max_s (-E) \le \min_{\Lambda}
            \Big\{ \tfrac12 \sum_i \Lambda_i : \operatorname{diag} \Lambda - J \succ 0 \Big\},

    in which J contains the fields as couplings to one more spin. An interior-point method finds it
    to 0.02 nats per spin, and it is close to the largest −E.

    Examples
    --------
    >>> ring = np.roll(np.eye(10), 1, axis=0) + np.roll(np.eye(10), -1, axis=0)
    >>> bound = log_partition_bound(ring, fields=np.zeros(10), beta=50.0)
    >>> f"{bound:.3f} {10 * np.log(2) + 500:.3f}"
    '506.931 506.931'
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta)
    batch = field.shape[:-1]
    size = field.shape[-1]
    systems = zip(matrix.reshape(-1, size, size), field.reshape(-1, size), strict=True)
    bounds = [_tight_bound(beta * j, beta * h) for j, h in systems]
    return np.array(bounds, dtype=float).reshape(batch)[()]


def _upper_bound(k: np.ndarray, theta: np.ndarray) -> float:
    size = len(theta)
    if not size:
        return 0.0
    rows = 0.5 * float(np.abs(k).sum())
    spectral = 0.5 * size * float(np.linalg.eigvalsh(k)[-1])
    return size * math.log(2.0) + float(np.abs(theta).sum()) + min(rows, spectral)


def _tight_bound(k: np.ndarray, theta: np.ndarray) -> float:
    bordered = np.block([[k, theta[:, None]], [theta, np.zeros(1)]])
    # ½ Σ_i (1 + a_i)/t is within (N + 1)/2t of the least: the barrier of an interior point method.
    shift, _, _ = _unit_diagonal(_BARRIER * bordered)
    relaxed = len(theta) * math.log(2.0) + 0.5 * float((1.0 + shift).sum()) / _BARRIER
    return min(relaxed, _upper_bound(k, theta))


def _ordered_fields(k: np.ndarray, theta: np.ndarray) -> list[np.ndarray]:
    """θ + K m (N,) for m along plus and minus the leading eigenvector of K, slightly perturbed.

    Without fields the independent spins tanh θ are a stationary point at every temperature, in the
    cold a saddle. The leading eigenvector is the direction in which it is left first; of several
    with one eigenvalue a fixed vector is projected, so that the choice is not left to the library.
    """
    rng = np.random.default_rng(0)
    any_vector = rng.standard_normal(len(theta))
    nudge = _NUDGE * rng.standard_normal(len(theta))
    eigenvalues, vectors = np.linalg.eigh(k)
    spread = float(eigenvalues[-1] - eigenvalues[0])
    leading = vectors[:, eigenvalues >= eigenvalues[-1] - 1e-8 * spread]
    order = leading @ (leading.T @ any_vector)
    # Plus is the sign of the majority, so that of two mirror images the same is met first.
    order /= math.copysign(float(np.abs(order).max()), float(order.sum()))
    return [theta + sign * (k @ order) + nudge for sign in (1.0, -1.0)]


def _is_better(other: Any, best: Any, *, psi: tuple[float, float]) -> bool:
    """Stable solutions before others, solutions before none, and then the larger psi.

    By more than rounding, so that of two mirror images the first one stays on every processor.
    """
    solved = [int(x.status == Status.CONVERGED) + int(x.stable) for x in (other, best)]
    if solved[0] != solved[1]:
        return solved[0] > solved[1]
    return solved[0] > 0 and psi[0] > psi[1] + _ROUNDING * (1 + abs(psi[1]))


@record
class _Climb:
    """Where the climb of one system ended: x = atanh m, the point there, how, and its response."""

    x: np.ndarray
    point: _Point
    residual: float
    steps: int
    status: Status
    susceptibility: np.ndarray
    stable: bool


def _climb(
    evaluate: _Functional,
    first: np.ndarray,
    *,
    naive: _Functional,
    bound: float,
    tolerance: float,
    max_steps: int,
) -> _Climb:
    """The climb of one system from atanh m = `first`, (N,)."""
    x = first
    point = evaluate(first, None)
    status = Status.STEP_LIMIT
    for steps in range(max_steps + 1):
        residual = float(np.abs(np.tanh(x + point.gradient) - np.tanh(x)).max(initial=0.0))
        if residual <= tolerance or steps == max_steps:
            break
        moved = _climbed(evaluate, x, point)
        if moved is None:
            status = Status.STALLED
            break
        x, point = moved
    if residual <= tolerance and point.slack <= _SLACK:
        lowest = naive(x, None).psi
        allowed = _ROUNDING * (1 + abs(bound) + abs(lowest))
        possible = lowest - allowed <= point.psi <= bound + allowed
        status = Status.CONVERGED if possible else Status.DIVERGED
    chi, maximum = _response(x, point)
    stable = maximum and status == Status.CONVERGED
    return _Climb(
        x=x,
        point=point,
        residual=residual,
        steps=steps,
        status=status,
        susceptibility=chi,
        stable=stable,
    )


def solve_mean_field(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    method: str = "tap",
    start: np.ndarray | None = None,
    all_starts: bool = False,
    tolerance: float = 1e-12,
    max_steps: int = 500,
    throw: bool = True,
) -> MeanFieldSolution:
    r"""Solve the naive mean-field, TAP, third-order Plefka or adaptive TAP equations.

    The solver looks for a maximum of the mean-field free energy psi(m) of the head of this module.
    It takes Newton steps where psi is concave and steps along the gradient in atanh m elsewhere,
    and it keeps a step only if psi grows.

    Parameters
    ----------
    couplings : ndarray, shape (..., N, N)
        Couplings J, symmetric with zero diagonal.
    fields : ndarray, shape (..., N)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0; β times a coupling or field is at most 1e6.
    method : {"naive", "tap", "plefka3", "adaptive"}, default "tap"
        The approximation.
    start : ndarray, shape (..., N), optional
        Initial magnetizations, inside (−1, 1). Without them the ascent begins at tanh βh. Where
        that leads to no stable point, as below a critical temperature without fields, it begins
        again along plus and minus the leading eigenvector of the couplings.
    all_starts : bool, default False
        Whether all three starts are tried in any case, and psi is compared with the tightest bound
        (`log_partition_bound`).
    tolerance : float, default 1e-12
        Largest residual of the equation of state, positive.
    max_steps : int, default 500
        Largest number of steps from one start.
    throw : bool, default True
        Whether a system that did not converge raises an error.

    Returns
    -------
    MeanFieldSolution
        The best point of all starts: stable ones before others, then the largest psi.

    Raises
    ------
    NotConverged
        If a system did not converge and `throw` is True.
    ValueError
        If the system is no Ising model (see `ising.check_ising`), or another argument is out of its
        range.

    Notes
    -----
    The TAP equations, which are the default, are

    .. math::

        m_i = \tanh\Big[\beta h_i + \beta \sum_j J_{ij} m_j
            - \beta^2 m_i \sum_j J_{ij}^2 (1 - m_j^2)\Big];

    the naive mean-field equations lack the last term, the Onsager reaction term.

    References
    ----------
    TAP: [thouless1977solution].

    The expansion: [plefka1982convergence].

    Its third order: [georges1991expand].

    Adaptive TAP: [opper2001adaptive].

    Examples
    --------
    >>> pair = np.array([[0.0, 0.5], [0.5, 0.0]])
    >>> found = solve_mean_field(pair, fields=np.array([0.2, 0.2]), beta=1.0, method="naive")
    >>> m = found.magnetization
    >>> bool(found.stable), bool(np.allclose(m, np.tanh(0.2 + 0.5 * m)))
    (True, True)
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta, limit=_MAX_EXPANDED)
    check_choice("method", method, METHODS)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    check_flag("all_starts", all_starts)
    batch = field.shape[:-1]
    size = field.shape[-1]
    k = beta * matrix.reshape(-1, size, size)
    theta = beta * field.reshape(-1, size)
    first = theta
    if start is not None:
        m = check_array("start", start, shape=field.shape)
        if np.any(np.abs(m) >= 1):
            raise ValueError(f"start must have entries inside (-1, 1), got {np.abs(m).max()}")
        first = np.arctanh(m).reshape(-1, size)
    # The tight bound costs as much as a climb: for those who ask for all that can be known.
    bound_of = _tight_bound if all_starts else _upper_bound
    found = []
    for system in range(len(theta)):
        climb_from = functools.partial(
            _climb,
            _functional(method, k[system], theta[system]),
            naive=_functional("naive", k[system], theta[system]),
            bound=bound_of(k[system], theta[system]),
            tolerance=tolerance,
            max_steps=max_steps,
        )
        best = climb_from(first[system])
        if all_starts or (start is None and not best.stable):
            for ordered in _ordered_fields(k[system], theta[system]):
                other = climb_from(ordered)
                if _is_better(other, best, psi=(other.point.psi, best.point.psi)):
                    best = other
        found.append(best)

    def gathered(parts: list[Any], *axes: int, dtype: Any = float) -> np.ndarray:
        return np.array(parts, dtype=dtype).reshape((*batch, *axes))

    solution = MeanFieldSolution(
        value=gathered([np.tanh(climb.x) for climb in found], size),
        residual=gathered([climb.residual for climb in found]),
        steps=gathered([climb.steps for climb in found], dtype=int),
        status=gathered([int(climb.status) for climb in found], dtype=int),
        log_partition=gathered([climb.point.psi for climb in found]),
        susceptibility=gathered([climb.susceptibility for climb in found], size, size),
        stable=gathered([climb.stable for climb in found], dtype=bool),
    )
    if throw:
        solution.require(f"the magnetization of the {method} free energy")
    return solution


def _climbed(
    evaluate: _Functional, x: np.ndarray, point: _Point
) -> tuple[np.ndarray, _Point] | None:
    """One step up psi from atanh m = x and the point there; None if all steps make psi fall."""
    spread, scaled = _scaled_hessian(x, point)
    try:
        factor = cholesky(scaled, lower=True, check_finite=False)
    except LinAlgError:
        step = point.gradient
    else:
        inner = cho_solve((factor, True), spread * point.gradient, check_finite=False)
        step = point.gradient - point.curvature @ (spread * inner)
    step = step * min(1.0, 3.0 / float(np.abs(step).max()))
    slope = float(step @ (spread**2 * point.gradient))
    rounding = 4e-15 * (1 + abs(point.psi))
    for length in 0.5 ** np.arange(40):
        trial = evaluate(x + length * step, point.root)
        if trial.psi >= point.psi + 1e-4 * length * slope - rounding:
            return x + length * step, trial
    return None


def _scaled_hessian(x: np.ndarray, point: _Point) -> tuple[np.ndarray, np.ndarray]:
    spread = np.sqrt(_variance(x))
    return spread, np.eye(len(x)) + spread[:, None] * point.curvature * spread


def _response(x: np.ndarray, point: _Point) -> tuple[np.ndarray, bool]:
    """Susceptibility (−d²psi/dm²)⁻¹ and whether it is positive definite."""
    spread, scaled = _scaled_hessian(x, point)
    eigenvalues, vectors = np.linalg.eigh(scaled)
    if np.any(eigenvalues == 0):
        return np.full_like(scaled, np.nan), False
    inverse = (vectors / eigenvalues) @ vectors.T
    return spread[:, None] * inverse * spread, bool(eigenvalues[0] > 0)


@record
class Beliefs(Solution[np.ndarray]):
    """Result of belief propagation: magnetizations and the Bethe approximation of ln Z.

    Attributes
    ----------
    value : ndarray, shape (N,)
        The magnetizations, means of the beliefs.
    residual : float
        The largest change of a message in the last step.
    steps : int
        Number of rounds of messages.
    status : Status
        How the iteration ended; DIVERGED where the Bethe ln Z is above an upper bound of ln Z.
    log_partition : float
        Bethe approximation of ln Z in nats, exact where the couplings form a tree.
    stable : bool
        Whether the messages converged and a small change of them decays. Their fixed point is then
        a maximum of the Bethe ln Z (Heskes 2003).
    """

    log_partition: float
    stable: bool


def belief_propagation(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    damping: float = 0.0,
    all_starts: bool = False,
    tolerance: float = 1e-10,
    max_steps: int = 1000,
    throw: bool = True,
) -> Beliefs:
    r"""Run belief propagation (the cavity method, Bethe approximation) on one Ising system.

    The result is exact on a tree of couplings. The first messages are zero. Where they lead to no
    stable fixed point, or with `all_starts`, further runs begin from the fields of the states along
    plus and minus the leading eigenvector of the couplings, and the best result is kept as in
    `solve_mean_field`.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of one system, symmetric with zero diagonal.
    fields : ndarray, shape (N,)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0.
    damping : float, default 0
        Fraction of the old messages that is kept in each round, from 0 to 0.999.
    all_starts : bool, default False
        Whether all three starts are tried in any case, and ln Z is compared with the tightest
        bound.
    tolerance : float, default 1e-10
        Largest change of a message at a fixed point, positive.
    max_steps : int, default 1000
        Largest number of rounds from one start.
    throw : bool, default True
        Whether an error is raised if the messages did not converge.

    Returns
    -------
    Beliefs
        Magnetizations, the Bethe ln Z, and how the iteration ended.

    Raises
    ------
    NotConverged
        If the messages did not converge and `throw` is True.
    ValueError
        If the system is no Ising model (see `ising.check_ising`), or another argument is out of its
        range.

    Notes
    -----
    The message from spin j to spin i is a field, and the cavity field of j is its own field without
    the message from i,

    .. math::

        u_{j \to i} = \operatorname{artanh}\big(\tanh \beta J_{ij} \, \tanh \theta_{j \to i}\big),
        \qquad \theta_{j \to i} = \beta h_j + \sum_{k \ne i} u_{k \to j}.

    Fixed points of the messages are stationary points of the Bethe ln Z.

    References
    ----------
    [mezard2009information]

    Examples
    --------
    >>> chain = np.array([[0.0, 0.7, 0.0], [0.7, 0.0, 0.4], [0.0, 0.4, 0.0]])
    >>> m = belief_propagation(chain, fields=np.array([0.3, 0.0, 0.0]), beta=1.0).value
    >>> f"{m[2] / np.tanh(0.3):.6f} {np.tanh(0.7) * np.tanh(0.4):.6f}"
    '0.229629 0.229629'
    """
    j, h, beta = check_ising(couplings, fields=fields, beta=beta, single=True)
    damping = check_real("damping", damping, low=0.0, high=0.999)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    check_flag("all_starts", all_starts)
    messages = _Messages(beta * j, beta * h)
    bound = (_tight_bound if all_starts else _upper_bound)(beta * j, beta * h)

    def settled(start: np.ndarray) -> Beliefs:
        return messages.settled(
            start, damping=damping, tolerance=tolerance, max_steps=max_steps, bound=bound
        )

    best = settled(np.zeros(len(messages.strength)))
    if len(messages.strength) and (all_starts or not best.stable):
        for ordered in _ordered_fields(beta * j, beta * h):
            other = settled(messages.next_from(ordered[messages.out]))
            if _is_better(other, best, psi=(other.log_partition, best.log_partition)):
                best = other
    if throw:
        best.require("the messages of belief propagation")
    return best


def _log_cosh(x: np.ndarray) -> np.ndarray:
    """ln 2 cosh x."""
    return np.abs(x) + np.log1p(np.exp(-2.0 * np.abs(x)))


class _Messages:
    """The messages of one system, one for each ordered pair of coupled spins, from `out` `into`.

    A cavity field is that of the spin that tells, without what it is told by the one it tells.
    """

    def __init__(self, k: np.ndarray, theta: np.ndarray) -> None:
        self.theta = theta
        self.into, self.out = np.nonzero(k)
        # back[e]: the edge that runs the other way.
        self.back = np.argsort(self.out * len(theta) + self.into, kind="stable")
        self.strength = k[self.into, self.out]

    def totals(self, told: np.ndarray) -> np.ndarray:
        """θ and all that is told, (N,)."""
        return self.theta + np.bincount(self.into, told, minlength=len(self.theta))

    def cavities(self, told: np.ndarray) -> np.ndarray:
        return self.totals(told)[self.out] - told[self.back]

    def next_from(self, cavity: np.ndarray) -> np.ndarray:
        # artanh(tanh a tanh b) = ½ ln [cosh(a + b) / cosh(a − b)], in which nothing saturates.
        return 0.5 * (_log_cosh(cavity + self.strength) - _log_cosh(cavity - self.strength))

    def settled(
        self, told: np.ndarray, *, damping: float, tolerance: float, max_steps: int, bound: float
    ) -> Beliefs:
        residual = math.inf
        steps = 0
        while residual > tolerance and steps < max_steps:
            new = self.next_from(self.cavities(told))
            residual = float(np.abs(new - told).max(initial=0.0))
            told = damping * told + (1.0 - damping) * new
            steps += 1
        total = self.totals(told)
        log_z = self.log_partition(told)
        status = Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT
        if status == Status.CONVERGED and log_z > bound + _ROUNDING * (1 + abs(bound)):
            status = Status.DIVERGED
        return Beliefs(
            value=np.tanh(total),
            residual=residual,
            steps=steps,
            status=status,
            log_partition=log_z,
            stable=status == Status.CONVERGED and self.returns(told, damping=damping),
        )

    def log_partition(self, told: np.ndarray) -> float:
        total = self.totals(told)
        cavity = self.cavities(told)
        # Of every pair of spins, twice, and of every message what normalizes it.
        pairs = np.logaddexp(
            _log_cosh(cavity + cavity[self.back]) + self.strength,
            _log_cosh(cavity - cavity[self.back]) - self.strength,
        )
        each = _log_cosh(cavity + self.strength) + _log_cosh(cavity - self.strength)
        return float(_log_cosh(total).sum() + 0.5 * (each - pairs).sum())

    def returns(self, told: np.ndarray, *, damping: float) -> bool:
        """Whether a small change of stationary messages dies out, by steps linearised there."""
        if not len(told):
            return True
        cavity = self.cavities(told)
        gain = 0.5 * (np.tanh(cavity + self.strength) - np.tanh(cavity - self.strength))
        change = np.random.default_rng(0).standard_normal(len(told))
        sizes = [float(np.linalg.norm(change))]
        for _ in range(min(math.ceil(_TANGENT_STEPS / (1.0 - damping)), _MOST_TANGENT_STEPS)):
            felt = np.bincount(self.into, change, minlength=len(self.theta))
            moved = gain * (felt[self.out] - change[self.back])
            change = damping * change + (1.0 - damping) * moved
            sizes.append(float(np.linalg.norm(change)))
            if not sizes[0] / _CLEAR < sizes[-1] < sizes[0] * _CLEAR:
                break
        # By then the fastest direction rules; up to rounding one that neither grows nor falls, as
        # around a ring in the cold, does not leave.
        return sizes[-1] <= sizes[len(sizes) // 2] * (1.0 + 1e-9)
