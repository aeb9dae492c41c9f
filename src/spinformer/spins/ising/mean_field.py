"""Approximate free energies of Ising systems: naive, TAP, third-order Plefka, adaptive TAP.

Convention: E = -sum_{i<j} J_ij s_i s_j - sum_i h_i s_i, J symmetric with zero diagonal,
K = beta J, theta = beta h (document 000's ordered pairs: `spins.exact.pair_couplings`).

Each approximation is a function psi(m) whose stationary value is ln Z and whose stationary
point is the magnetisation, so d ln Z / d theta_i = m_i holds exactly. With v_i = 1 - m_i^2,
S(m) the entropy of independent spins, and every sum over both indices:

- naive:    psi = S + theta.m + 1/2 m.K.m, a lower bound of ln Z at every m;
- tap:      adds 1/4 sum K_ij^2 v_i v_j (Thouless, Anderson and Palmer 1977; Plefka 1982);
- plefka3:  adds 1/3 sum K_ij^3 m_i v_i m_j v_j + 1/6 Tr (K diag v)^3
            (Georges and Yedidia 1991);
- adaptive: naive plus -1/2 ln det(Lambda - K) - 1/2 sum ln v_i + 1/2 sum V_i v_i with
            Lambda_i = V_i + 1/v_i and V from [(Lambda - K)^-1]_ii = v_i (Opper and
            Winther 2001): a resummation that knows the spectrum of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.spins.ising.exact import check_ising

METHODS = ("naive", "tap", "plefka3", "adaptive")


@dataclass(frozen=True)
class MeanFieldSolution:
    """A stationary point of one approximation, for one system or a batch (axes `...`).

    magnetization (..., N); log_partition (...): psi at the point, the approximate ln Z;
    susceptibility (..., N, N): dm_i/d(beta h_j), by linear response; converged (...): whether
    `residual`, the largest change max_i |tanh(atanh m_i + g_i) - m_i| that the equation of
    state still asks for, is below the tolerance; stable (...): whether the point is a maximum
    of psi (a positive definite susceptibility) and converged; iterations (...).

    Where `converged` is False the numbers are those of the last iterate: look at the flag.
    Where `stable` is False the susceptibility is that of a saddle (NaN if singular).
    """

    method: str
    beta: float
    magnetization: np.ndarray
    log_partition: np.ndarray
    susceptibility: np.ndarray
    converged: np.ndarray
    stable: np.ndarray
    residual: np.ndarray
    iterations: np.ndarray

    @property
    def free_energy(self) -> np.ndarray:
        """F = -ln Z / beta (minus infinity at beta = 0)."""
        if self.beta == 0:
            return np.full_like(self.log_partition, -np.inf)
        return -self.log_partition / self.beta


class _Point(NamedTuple):
    """psi, its gradient g, and R with -d^2 psi/dm^2 = diag(1/v) + R, at m = tanh(x)."""

    psi: float
    gradient: np.ndarray
    curvature: np.ndarray
    root: np.ndarray | None = None


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
    max_iterations: int = 500,
) -> MeanFieldSolution:
    """Stationary point of one of the approximations of this module.

    `couplings` (..., N, N) symmetric with zero diagonal, `fields` (..., N), `beta` >= 0.
    `method` is one of "naive", "tap", "plefka3", "adaptive". `start` (..., N) is the first
    magnetisation, in (-1, 1); the default is tanh(beta h).

    `solver` "newton" climbs psi: Newton steps where psi is concave, steps along the gradient
    in atanh m elsewhere, each kept only if psi grows. "iteration" applies the equation of
    state, m <- damping m + (1 - damping) tanh(beta h + ...), which need not converge. Systems
    of a batch are solved one after the other, so none depends on its neighbours.
    """
    matrix, field = check_ising(couplings, fields=fields)
    beta = check_real("beta", beta, low=0.0)
    check_choice("method", method, METHODS)
    check_choice("solver", solver, ("newton", "iteration"))
    damping = check_real("damping", damping, low=0.0, high=0.999)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_iterations = check_integer("max_iterations", max_iterations, low=1)
    batch, size = field.shape[:-1], field.shape[-1]
    k = beta * matrix.reshape(-1, size, size)
    theta = beta * field.reshape(-1, size)
    if start is None:
        first = theta
    else:
        given = check_array("start", start)
        if given.shape != field.shape or np.any(np.abs(given) >= 1):
            raise ValueError(
                f"start must have shape {field.shape} and entries inside (-1, 1), "
                f"got shape {given.shape}, largest magnitude {np.abs(given).max(initial=0.0)}"
            )
        first = np.arctanh(given).reshape(-1, size)
    count = len(theta)
    m, psi, chi = np.empty((count, size)), np.empty(count), np.empty((count, size, size))
    converged, stable = np.empty(count, bool), np.empty(count, bool)
    residual, iterations = np.empty(count), np.empty(count, int)
    for n in range(count):
        evaluate = _EVALUATE[method](k[n], theta[n])
        if solver == "newton":
            x, point, iterations[n] = _climb(evaluate, first[n], tolerance, max_iterations)
        else:
            x, point, iterations[n] = _iterate(
                evaluate, first[n], damping, tolerance, max_iterations
            )
        m[n], psi[n] = np.tanh(x), point.psi
        residual[n] = _residual(x, point)
        converged[n] = residual[n] < tolerance
        chi[n], stable[n] = _response(x, point)
        stable[n] &= converged[n]
    return MeanFieldSolution(
        method=method,
        beta=beta,
        magnetization=m.reshape(*batch, size),
        log_partition=psi.reshape(batch),
        susceptibility=chi.reshape(*batch, size, size),
        converged=converged.reshape(batch),
        stable=stable.reshape(batch),
        residual=residual.reshape(batch),
        iterations=iterations.reshape(batch),
    )


def gibbs_functional(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    magnetization: np.ndarray,
    method: str,
) -> float:
    """psi(m) of `method` for one system at any m in (-1, 1)^N, stationary or not.

    psi(m) - beta h.m approximates the Legendre transform min_theta [ln Z(theta) - theta.m].
    """
    matrix, field = check_ising(couplings, fields=fields)
    check_choice("method", method, METHODS)
    beta = check_real("beta", beta, low=0.0)
    m = check_array("magnetization", magnetization, shape=(matrix.shape[-1],))
    if field.ndim != 1 or np.any(np.abs(m) >= 1):
        raise ValueError("magnetization must have entries inside (-1, 1), for one system")
    return _EVALUATE[method](beta * matrix, beta * field)(np.arctanh(m), None).psi


_Evaluate = Callable[[np.ndarray, np.ndarray | None], _Point]


def _variance(x: np.ndarray) -> np.ndarray:
    """1 - tanh(x)^2 without cancellation, kept above zero."""
    decay = np.exp(-2 * np.abs(x))
    return np.maximum(4 * decay / (1 + decay) ** 2, 1e-280)


def _entropy(x: np.ndarray) -> float:
    """Entropy of independent spins with magnetisations tanh(x)."""
    return float(np.sum(np.logaddexp(x, -x) - x * np.tanh(x)))


def _naive(k: np.ndarray, theta: np.ndarray) -> _Evaluate:
    def evaluate(x: np.ndarray, _: np.ndarray | None) -> _Point:
        m = np.tanh(x)
        km = k @ m
        psi = _entropy(x) + m @ theta + 0.5 * m @ km
        return _Point(float(psi), theta + km - x, -k)

    return evaluate


def _tap(k: np.ndarray, theta: np.ndarray) -> _Evaluate:
    naive, square = _naive(k, theta), k**2

    def evaluate(x: np.ndarray, _: np.ndarray | None) -> _Point:
        base, m, v = naive(x, None), np.tanh(x), _variance(x)
        onsager = square @ v
        psi = base.psi + 0.25 * v @ onsager
        curvature = base.curvature + np.diag(onsager) - 2 * np.outer(m, m) * square
        return _Point(float(psi), base.gradient - m * onsager, curvature)

    return evaluate


def _plefka3(k: np.ndarray, theta: np.ndarray) -> _Evaluate:
    tap, cube = _tap(k, theta), k**3

    def evaluate(x: np.ndarray, _: np.ndarray | None) -> _Point:
        base, m, v = tap(x, None), np.tanh(x), _variance(x)
        two = (k * v) @ k
        three = ((two * v) * k).sum(1)
        f, slope = m * v, 1 - 3 * m**2
        pull = cube @ f
        psi = base.psi + f @ pull / 3 + v @ three / 6
        gradient = base.gradient + 2 / 3 * slope * pull - m * three
        curvature = base.curvature + np.diag(three + 4 * m * pull)
        curvature -= 4 * np.outer(m, m) * k * two + 2 / 3 * np.outer(slope, slope) * cube
        return _Point(float(psi), gradient, curvature)

    return evaluate


def _adaptive(k: np.ndarray, theta: np.ndarray) -> _Evaluate:
    naive = _naive(k, theta)

    def evaluate(x: np.ndarray, warm: np.ndarray | None) -> _Point:
        base, m = naive(x, None), np.tanh(x)
        spread = np.sqrt(_variance(x))
        scaled = spread[:, None] * k * spread
        shift, inverse, log_det = unit_diagonal(scaled, start=warm)
        # V = shift / v, written so that it keeps its digits where v is tiny.
        reaction = (k * inverse) @ spread / spread
        psi = base.psi - 0.5 * log_det + 0.5 * shift.sum()
        # dV/dm from the constraint: with A = inverse**2 elementwise, whose diagonal is one,
        # (Lambda - K)^-1 varies by (A^-1 - 1) = -A^-1 (A - 1).
        squared = inverse**2
        off = squared - np.eye(len(x))
        np.fill_diagonal(off, 0.0)
        bend = -np.linalg.solve(squared, off)
        weight = m / spread**2
        curvature = base.curvature + np.diag(reaction) + 2 * weight[:, None] * bend * weight
        return _Point(
            float(psi), base.gradient - reaction * m, 0.5 * (curvature + curvature.T), shift
        )

    return evaluate


_EVALUATE: dict[str, Callable[[np.ndarray, np.ndarray], _Evaluate]] = {
    "naive": _naive,
    "tap": _tap,
    "plefka3": _plefka3,
    "adaptive": _adaptive,
}


def unit_diagonal(
    matrix: np.ndarray, *, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """The shift a for which [diag(1 + a) - matrix]^-1 has ones on its diagonal.

    `matrix` (N, N) symmetric with zero diagonal. Returns a (N,), the inverse (N, N) and
    ln det(diag(1 + a) - matrix). a minimises the convex sum_i a_i - ln det over the positive
    definite shifts, so it exists and is unique; damped Newton steps of a self-concordant
    function stay inside that set and converge from any `start` in it.
    """
    size = len(matrix)
    shift = (matrix**2).sum(1) if start is None else start
    factor = _factor(shift, matrix)
    if factor is None:
        shift = np.full(size, max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0))
        factor = _factor(shift, matrix)
    identity = np.eye(size)
    for _ in range(200):
        inverse = cho_solve((factor, True), identity, check_finite=False)
        gap = np.diagonal(inverse) - 1
        step = np.linalg.solve(inverse**2, gap)
        decrement = float(np.sqrt(max(gap @ step, 0.0)))
        if decrement < 1e-13 * np.sqrt(size):
            break
        trial = shift + step / (1 + decrement if decrement > 0.25 else 1.0)
        trial_factor = _factor(trial, matrix)
        if trial_factor is None or np.array_equal(trial, shift):
            break
        shift, factor = trial, trial_factor
    log_det = 2 * float(np.log(np.diagonal(factor)).sum())
    return shift, inverse, log_det


def _factor(shift: np.ndarray, matrix: np.ndarray) -> np.ndarray | None:
    try:
        return cholesky(np.diag(1 + shift) - matrix, lower=True, check_finite=False)
    except LinAlgError:
        return None


def _residual(x: np.ndarray, point: _Point) -> float:
    return float(np.abs(np.tanh(x + point.gradient) - np.tanh(x)).max())


def _climb(
    evaluate: _Evaluate, x: np.ndarray, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, _Point, int]:
    """Climb psi from atanh m = x; each step is kept only if psi does not fall."""
    point = evaluate(x, None)
    for iteration in range(max_iterations):
        if _residual(x, point) < tolerance:
            return x, point, iteration
        spread = np.sqrt(_variance(x))
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
            return x, point, iteration
        x, point = x + length * step, trial
    return x, point, max_iterations


def _iterate(
    evaluate: _Evaluate, x: np.ndarray, damping: float, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, _Point, int]:
    """Apply the equation of state, with a fraction `damping` of the old m kept."""
    point = evaluate(x, None)
    for iteration in range(max_iterations):
        if _residual(x, point) < tolerance:
            return x, point, iteration
        target = x + point.gradient
        if damping > 0:
            target = np.arctanh(damping * np.tanh(x) + (1 - damping) * np.tanh(target))
        x = np.clip(target, -300.0, 300.0)
        point = evaluate(x, point.root)
    return x, point, max_iterations


def _response(x: np.ndarray, point: _Point) -> tuple[np.ndarray, bool]:
    """Susceptibility (-d^2 psi / dm^2)^-1 and whether it is positive definite."""
    spread = np.sqrt(_variance(x))
    scaled = np.eye(len(x)) + spread[:, None] * point.curvature * spread
    eigenvalues, vectors = np.linalg.eigh(scaled)
    if np.any(eigenvalues == 0):
        return np.full_like(scaled, np.nan), False
    inverse = (vectors / eigenvalues) @ vectors.T
    return spread[:, None] * inverse * spread, bool(eigenvalues[0] > 0)
