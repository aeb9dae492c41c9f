"""Stationary points of the approximate free energies of `functionals`, with their responses.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once (`couplings.pair_couplings` converts),
J (..., N, N) symmetric with zero diagonal, h (..., N), K = βJ, θ = βh.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from spinformer.core.checks import check_array, check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.spins.ising.couplings import MAX_COUNT, check_ising
from spinformer.spins.ising.exact import free_energy
from spinformer.spins.ising.functionals import (
    MAX_EXPANDED,
    METHODS,
    Functional,
    Point,
    functional,
    variance,
)

# What the constraint inside the adaptive functional may miss at a solution.
_SLACK = 1e-9


@record
class MeanFieldSolution(Solution[np.ndarray]):
    """A stationary point of one approximation, for one system or a batch (axes `...`).

    value (..., N): the magnetizations. residual (...): the largest change
    max_i |tanh(atanh m_i + g_i) − m_i| that the equation of state still asks for. status (...):
    CONVERGED, STEP_LIMIT, or STALLED where no step along the way raises psi any further.
    log_partition (...): psi at the point, the approximate ln Z. susceptibility (..., N, N):
    dm_i/d(βh_j), by linear response. stable (...): whether the point is a maximum of psi (a
    positive definite susceptibility) and converged.

    Where `converged` is False the numbers are those of the last iterate: look at the flag.
    Where `stable` is False the susceptibility is that of a saddle (NaN if singular).
    """

    method: str
    beta: float
    log_partition: np.ndarray
    susceptibility: np.ndarray
    stable: np.ndarray

    @property
    def magnetization(self) -> np.ndarray:
        """The magnetizations m (..., N), another name of `value`."""
        return self.value

    @property
    def free_energy(self) -> np.ndarray:
        """F = −ln Z/β (minus infinity at β = 0)."""
        return free_energy(self.log_partition, beta=self.beta)


def solve_mean_field(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    method: str = "tap",
    solver: str = "newton",
    damping: float = 0.0,
    start: np.ndarray | None = None,
    tolerance: float = 1e-12,
    max_steps: int = 500,
    throw: bool = True,
) -> MeanFieldSolution:
    """Stationary point of "naive", "tap", "plefka3" or "adaptive", as `functionals` writes them.

    `couplings` (..., N, N), `fields` (..., N), β ≥ 0 times either at most 1e6. `start` (..., N)
    is the first magnetization, in (−1, 1); the default is tanh βh.

    `solver` "newton" climbs psi: Newton steps where psi is concave, steps along the gradient in
    atanh m elsewhere, each kept only if psi grows. "iteration" applies the equation of state,
    m ← damping m + (1 − damping) tanh(βh + …), which need not converge. Systems of a batch are
    solved one after the other, so none depends on its neighbours. Raises ValueError for bad
    input, NotConverged unless `throw` is False.

    >>> pair = np.array([[0.0, 0.5], [0.5, 0.0]])
    >>> found = solve_mean_field(pair, fields=np.array([0.2, 0.2]), beta=1.0, method="naive")
    >>> m = found.magnetization
    >>> bool(found.stable), bool(np.allclose(m, np.tanh(0.2 + 0.5 * m)))
    (True, True)
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta, limit=MAX_EXPANDED)
    check_choice("method", method, METHODS)
    check_choice("solver", solver, ("newton", "iteration"))
    damping = check_real("damping", damping, low=0.0, high=0.999)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1, high=MAX_COUNT)
    check_flag("throw", throw)
    batch, size = field.shape[:-1], field.shape[-1]
    k = beta * matrix.reshape(-1, size, size)
    theta = beta * field.reshape(-1, size)
    first = theta if start is None else _start(start, field.shape).reshape(-1, size)
    count = len(theta)
    m, psi, chi = np.empty((count, size)), np.empty(count), np.empty((count, size, size))
    stable, status = np.empty(count, bool), np.empty(count, int)
    residual, steps = np.empty(count), np.empty(count, int)
    for n in range(count):
        evaluate = functional(method, k=k[n], theta=theta[n])
        if solver == "newton":
            x, point, steps[n], stuck = _climb(evaluate, first[n], tolerance, max_steps)
        else:
            x, point, steps[n], stuck = _iterate(evaluate, first[n], damping, tolerance, max_steps)
        m[n], psi[n] = np.tanh(x), point.psi
        residual[n] = _residual(x, point)
        if residual[n] <= tolerance and point.slack <= _SLACK:
            status[n] = Status.CONVERGED
        else:
            status[n] = Status.STALLED if stuck else Status.STEP_LIMIT
        chi[n], stable[n] = _response(x, point)
        stable[n] &= status[n] == Status.CONVERGED
    found = MeanFieldSolution(
        value=m.reshape(*batch, size),
        residual=residual.reshape(batch),
        steps=steps.reshape(batch),
        status=status.reshape(batch),
        method=method,
        beta=beta,
        log_partition=psi.reshape(batch),
        susceptibility=chi.reshape(*batch, size, size),
        stable=stable.reshape(batch),
    )
    if throw:
        found.require(f"the magnetization of the {method} free energy")
    return found


def _start(start: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    given = check_array("start", start)
    if given.shape != shape or np.any(np.abs(given) >= 1):
        raise ValueError(
            f"start must have shape {shape} and entries inside (-1, 1), "
            f"got shape {given.shape}, largest magnitude {np.abs(given).max(initial=0.0)}"
        )
    return np.arctanh(given)


def _residual(x: np.ndarray, point: Point) -> float:
    return float(np.abs(np.tanh(x + point.gradient) - np.tanh(x)).max())


def _climb(
    evaluate: Functional, x: np.ndarray, tolerance: float, max_steps: int
) -> tuple[np.ndarray, Point, int, bool]:
    """Climb psi from atanh m = x; each step is kept only if psi does not fall.

    Returns x, the point there, the steps, and whether no step could be kept.
    """
    point = evaluate(x, None)
    for step_count in range(max_steps):
        if _residual(x, point) <= tolerance:
            return x, point, step_count, False
        spread = np.sqrt(variance(x))
        scaled = np.eye(len(x)) + spread[:, None] * point.curvature * spread
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
        length = 1.0
        for _ in range(40):
            trial = evaluate(x + length * step, point.root)
            if trial.psi >= point.psi + 1e-4 * length * slope - rounding:
                break
            length /= 2
        else:
            return x, point, step_count, True
        x, point = x + length * step, trial
    return x, point, max_steps, False


def _iterate(
    evaluate: Functional, x: np.ndarray, damping: float, tolerance: float, max_steps: int
) -> tuple[np.ndarray, Point, int, bool]:
    """Apply the equation of state, with a fraction `damping` of the old m kept."""
    point = evaluate(x, None)
    for step_count in range(max_steps):
        if _residual(x, point) <= tolerance:
            return x, point, step_count, False
        target = x + point.gradient
        if damping > 0:
            target = np.arctanh(damping * np.tanh(x) + (1 - damping) * np.tanh(target))
        x = np.clip(target, -300.0, 300.0)
        point = evaluate(x, point.root)
    return x, point, max_steps, False


def _response(x: np.ndarray, point: Point) -> tuple[np.ndarray, bool]:
    """Susceptibility (−d²psi/dm²)⁻¹ and whether it is positive definite."""
    spread = np.sqrt(variance(x))
    scaled = np.eye(len(x)) + spread[:, None] * point.curvature * spread
    eigenvalues, vectors = np.linalg.eigh(scaled)
    if np.any(eigenvalues == 0):
        return np.full_like(scaled, np.nan), False
    inverse = (vectors / eigenvalues) @ vectors.T
    return spread[:, None] * inverse * spread, bool(eigenvalues[0] > 0)
