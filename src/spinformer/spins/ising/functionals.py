"""Approximate free energies of Ising systems as functions psi(m) of the magnetizations.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once (`couplings.pair_couplings` converts), J
symmetric with zero diagonal; K = βJ, θ = βh. The stationary value of psi stands for ln Z and the
stationary point for the magnetizations, so d ln Z/dθ_i = m_i holds exactly. With v_i = 1 − m_i²,
S(m) the entropy of independent spins, and every sum over both indices:

- naive:    psi = S + θ·m + ½ m·K·m, a lower bound of ln Z at every m;
- tap:      adds ¼ Σ K_ij² v_i v_j [thouless1977solution; plefka1982convergence];
- plefka3:  adds ⅓ Σ K_ij³ m_i v_i m_j v_j + ⅙ Tr (K diag v)³ [georges1991expand];
- adaptive: naive plus −½ ln det(Λ − K) − ½ Σ ln v_i + ½ Σ V_i v_i with Λ_i = V_i + 1/v_i and V
            from [(Λ − K)⁻¹]_ii = v_i [opper2001adaptive]: a resummation that knows the
            spectrum of K.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spinformer.core.checks import check_array, check_choice
from spinformer.core.records import record
from spinformer.spins.ising.couplings import check_ising
from spinformer.spins.ising.unit_diagonal import minimise

# Largest β times a coupling or field: beyond, the systems of equations lose all their digits.
MAX_EXPANDED = 1e6

METHODS = ("naive", "tap", "plefka3", "adaptive")


@record
class Point:
    """psi, its gradient g, and R with −d²psi/dm² = diag(1/v) + R, at m = tanh(x).

    root: where the inner problem of the adaptive functional ended, a start for the next one.
    slack: the residual of that inner problem, zero for the others.
    """

    psi: float
    gradient: np.ndarray
    curvature: np.ndarray
    root: np.ndarray | None = None
    slack: float = 0.0


# A functional of one system: takes x and a start for its inner problem.
Functional = Callable[[np.ndarray, np.ndarray | None], Point]


def gibbs_functional(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    magnetization: np.ndarray,
    method: str,
) -> float:
    """psi(m) of `method` for one system at any m (N,) in (−1, 1)^N, stationary or not.

    psi(m) − βh·m approximates the Legendre transform min_θ [ln Z(θ) − θ·m]. Raises ValueError
    for another method, a batch, or magnetizations outside.

    >>> zero = np.zeros(2)
    >>> free = {"couplings": np.zeros((2, 2)), "fields": zero, "beta": 1.0, "magnetization": zero}
    >>> f"{gibbs_functional(**free, method='tap'):.6f} {2 * np.log(2):.6f}"
    '1.386294 1.386294'
    """
    matrix, field, beta = check_ising(couplings, fields=fields, beta=beta, limit=MAX_EXPANDED)
    check_choice("method", method, METHODS)
    if field.ndim != 1:
        raise ValueError(f"fields must have shape (N,) for one system, got {field.shape}")
    m = check_array("magnetization", magnetization, shape=field.shape)
    if np.any(np.abs(m) >= 1):
        raise ValueError(
            f"magnetization must have entries inside (-1, 1), got one of size {np.abs(m).max()}"
        )
    return functional(method, k=beta * matrix, theta=beta * field)(np.arctanh(m), None).psi


def functional(method: str, *, k: np.ndarray, theta: np.ndarray) -> Functional:
    """The functional `method` of one system with K = βJ (N, N) and θ = βh (N,), unchecked.

    >>> functional("naive", k=np.zeros((1, 1)), theta=np.zeros(1))(np.zeros(1), None).gradient
    array([0.])
    """
    return {"naive": _naive, "tap": _tap, "plefka3": _plefka3, "adaptive": _adaptive}[method](
        k, theta
    )


def variance(x: np.ndarray) -> np.ndarray:
    """1 − tanh(x)² without cancellation, kept above zero.

    >>> variance(np.zeros(1))
    array([1.])
    """
    decay = np.exp(-2 * np.abs(x))
    return np.maximum(4 * decay / (1 + decay) ** 2, 1e-280)


def _entropy(x: np.ndarray) -> float:
    """Entropy of independent spins with magnetizations tanh(x)."""
    return float(np.sum(np.logaddexp(x, -x) - x * np.tanh(x)))


def _naive(k: np.ndarray, theta: np.ndarray) -> Functional:
    def evaluate(x: np.ndarray, _: np.ndarray | None) -> Point:
        m = np.tanh(x)
        km = k @ m
        psi = _entropy(x) + m @ theta + 0.5 * m @ km
        return Point(psi=float(psi), gradient=theta + km - x, curvature=-k)

    return evaluate


def _tap(k: np.ndarray, theta: np.ndarray) -> Functional:
    naive, square = _naive(k, theta), k**2

    def evaluate(x: np.ndarray, _: np.ndarray | None) -> Point:
        base, m, v = naive(x, None), np.tanh(x), variance(x)
        onsager = square @ v
        psi = base.psi + 0.25 * v @ onsager
        curvature = base.curvature + np.diag(onsager) - 2 * np.outer(m, m) * square
        return Point(psi=float(psi), gradient=base.gradient - m * onsager, curvature=curvature)

    return evaluate


def _plefka3(k: np.ndarray, theta: np.ndarray) -> Functional:
    tap, cube = _tap(k, theta), k**3

    def evaluate(x: np.ndarray, _: np.ndarray | None) -> Point:
        base, m, v = tap(x, None), np.tanh(x), variance(x)
        two = (k * v) @ k
        three = ((two * v) * k).sum(1)
        f, slope = m * v, 1 - 3 * m**2
        pull = cube @ f
        psi = base.psi + f @ pull / 3 + v @ three / 6
        gradient = base.gradient + 2 / 3 * slope * pull - m * three
        curvature = base.curvature + np.diag(three + 4 * m * pull)
        curvature -= 4 * np.outer(m, m) * k * two + 2 / 3 * np.outer(slope, slope) * cube
        return Point(psi=float(psi), gradient=gradient, curvature=curvature)

    return evaluate


def _adaptive(k: np.ndarray, theta: np.ndarray) -> Functional:
    naive = _naive(k, theta)

    def evaluate(x: np.ndarray, warm: np.ndarray | None) -> Point:
        base, m = naive(x, None), np.tanh(x)
        spread = np.sqrt(variance(x))
        scaled = spread[:, None] * k * spread
        shift, inverse, log_det, _, _ = minimise(scaled, start=warm)
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
        return Point(
            psi=float(psi),
            gradient=base.gradient - reaction * m,
            curvature=0.5 * (curvature + curvature.T),
            root=shift,
            slack=float(np.abs(np.diagonal(inverse) - 1).max()),
        )

    return evaluate
