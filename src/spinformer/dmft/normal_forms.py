"""Normal forms of bifurcations of cycles: whether they are supercritical or subcritical.

On the centre manifold of a bifurcation the map has a normal form whose coefficient tells whether
what is born there is stable (supercritical) or not (subcritical). With A the monodromy matrix, q
its eigenvector at the critical multiplier, p that of its transpose with p̄·q = 1, and B and C the
second and third derivatives of Φ_q, the coefficients are those of [kuznetsov2004elements, Ch. 5]:

    fold             a = ½ p·B(q, q)
    flip             c = ⅙ p·C(q, q, q) + ½ p·B(q, (1 − A)⁻¹ B(q, q))
    Neimark–Sacker   d = ½ Re e^{−iθ} p̄·[C(q, q, q̄) + 2 B(q, (1 − A)⁻¹ B(q, q̄))
                                          + B(q̄, (e^{2iθ} − A)⁻¹ B(q, q))]

B and C are differences of monodromy matrices.
"""

import numpy as np

from spinformer.core.records import record
from spinformer.dmft.cycles import Bifurcation, Cycle, CycleProblem, checked_cycle
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork

# Steps of the differences of monodromy matrices that give second and third derivatives: of systems
# with an exact derivative, and of a map without one.
_STEP_EXACT = 3e-5
_STEP_DIFFERENCES = 3e-3


@record
class NormalForm:
    """Normal form of a bifurcation of a cycle.

    Attributes
    ----------
    kind : Bifurcation
        The kind of bifurcation.
    coefficient : float
        The coefficient a, c or d of the normal form, for a critical eigenvector of length one.
    label : str
        "supercritical" or "subcritical"; of a fold "nondegenerate".
    vector : ndarray of complex, shape (n,)
        The critical eigenvector q.
    """

    kind: Bifurcation
    coefficient: float
    label: str
    vector: np.ndarray


def normal_form(system: AttentionNetwork | Map, point: Cycle) -> NormalForm:
    r"""Compute the normal-form coefficient of a bifurcation, and whether it is supercritical.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    point : Cycle
        A bifurcation, as `find_bifurcation` gives it.

    Returns
    -------
    NormalForm
        The coefficient and what it says: behind a supercritical flip the doubled cycle is stable,
        behind a supercritical Neimark–Sacker bifurcation the closed curve is.

    Raises
    ------
    TypeError
        If `point` is not a `Cycle`.
    ValueError
        If `point` is not at a bifurcation.

    Notes
    -----
    A flip is supercritical if c > 0, a Neimark–Sacker bifurcation if d < 0,

    .. math::

        c = \tfrac16 \langle p, C(q,q,q) \rangle
            + \tfrac12 \langle p, B(q, (1-A)^{-1} B(q,q)) \rangle .

    References
    ----------
    [kuznetsov2004elements, Ch. 5]

    Examples
    --------
    >>> from spinformer.dmft.cycles import find_bifurcation, find_cycle
    >>> logistic = Map(step=lambda x, r: r * x * (1.0 - x), dimension=1, parameters={"r": 2.9})
    >>> point = find_cycle(logistic, [0.65], period=1)
    >>> flip = find_bifurcation(logistic, point, kind=Bifurcation.FLIP)
    >>> f"{flip.parameters['r']:.6f}", normal_form(logistic, flip).label
    ('3.000000', 'supercritical')
    """
    common, values = checked_cycle(system, point, name="point")
    kind = checked_kind("point", point)
    problem = CycleProblem(common, period=point.period, parameters=values)
    return normal_form_at(problem, common.flat(point.value), kind)


def checked_kind(name: str, point: Cycle) -> Bifurcation:
    """Check that a cycle is at a fold, flip or Neimark–Sacker bifurcation.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    point : Cycle
        The cycle.

    Returns
    -------
    Bifurcation
        Its kind.

    Raises
    ------
    ValueError
        If it has no kind, or is a branch point.
    """
    if point.kind is None or point.kind == Bifurcation.BRANCH_POINT:
        got = "a cycle without a kind" if point.kind is None else "a branch point"
        raise ValueError(f"{name} must be a bifurcation: fold, flip or Neimark–Sacker, got {got}")
    return point.kind


def normal_form_at(
    problem: CycleProblem,
    u: np.ndarray,
    kind: Bifurcation,
    *,
    reference: np.ndarray | None = None,
) -> NormalForm:
    """Compute the normal form at a point of a curve of bifurcations; nothing is checked.

    Parameters
    ----------
    problem : CycleProblem
        The equations of the cycle.
    u : ndarray, shape (n + k,)
        The unknowns.
    kind : Bifurcation
        Fold, flip or Neimark–Sacker.
    reference : ndarray, shape (n,), optional
        A vector that fixes the sign of a real critical eigenvector.

    Returns
    -------
    NormalForm
        The coefficient and what it says.
    """
    identity = np.eye(problem.system.size)
    base = problem.mapped(u[None])[1][0]
    values, right = np.linalg.eig(base)
    if kind == Bifurcation.NEIMARK_SACKER:
        off = np.abs(np.abs(values) - 1.0) + 10.0 * (values.imag <= 0.0)
        critical = int(off.argmin())
        q = right[:, critical]
    else:
        target = -1.0 if kind == Bifurcation.FLIP else 1.0
        critical = int(np.abs(values - target).argmin())
        q = np.real(right[:, critical]).astype(complex)
        if reference is not None and np.real(np.vdot(reference, q)) < 0.0:
            q = -q
    q = q / np.linalg.norm(q)
    mu = values[critical]
    # The left eigenvector spans the null space of the adjoint.
    p = np.conj(np.linalg.svd((base - mu * identity).conj().T)[2][-1]).astype(complex)
    p = p / np.conj(np.vdot(p, q))
    derivative = _Derivatives(problem, u, base=base)
    square = derivative.second(q, q)
    if kind == Bifurcation.FOLD:
        coefficient = 0.5 * np.real(np.vdot(p, square))
        label = "nondegenerate"
    elif kind == Bifurcation.FLIP:
        inner = np.linalg.solve(identity - base, square)
        c = np.vdot(p, derivative.third(q)) / 6.0 + 0.5 * np.vdot(p, derivative.second(q, inner))
        coefficient = np.real(c)
        label = "supercritical" if coefficient > 0.0 else "subcritical"
    else:
        conjugate = np.conj(q)
        resting = np.linalg.solve(identity - base, derivative.second(q, conjugate))
        turning = np.linalg.solve(mu**2 * identity - base, square)
        total = (
            derivative.third(q)
            + 2.0 * derivative.second(q, resting)
            + derivative.second(conjugate, turning)
        )
        coefficient = 0.5 * np.real(np.conj(mu) / abs(mu) * np.vdot(p, total))
        label = "supercritical" if coefficient < 0.0 else "subcritical"
    return NormalForm(kind=kind, coefficient=float(coefficient), label=label, vector=q)


class _Derivatives:
    """Second and third derivatives of Φ_q at a point, from differences of monodromy matrices."""

    def __init__(self, problem: CycleProblem, u: np.ndarray, *, base: np.ndarray) -> None:
        self.problem = problem
        self.u = u
        self.base = base
        self.step = _STEP_EXACT if problem.system.exact else _STEP_DIFFERENCES

    def _moved(self, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second difference of the matrix along a real direction."""
        shift = np.zeros_like(self.u)
        shift[: len(direction)] = self.step * direction
        above, below = self.problem.mapped(np.array([self.u + shift, self.u - shift]))[1]
        first = (above - below) / (2.0 * self.step)
        return first, (above - 2.0 * self.base + below) / self.step**2

    def second(self, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """B(v, w) of complex vectors."""
        along = self._moved(v.real)[0].astype(complex)
        if v.imag.any():
            along = along + 1j * self._moved(v.imag)[0]
        return along @ w

    def third(self, q: np.ndarray) -> np.ndarray:
        """C(q, q, q̄)."""
        a = q.real
        b = q.imag
        if not b.any():
            return self._moved(a)[1] @ q
        mixed = 0.25 * (self._moved(a + b)[1] - self._moved(a - b)[1])
        matrix = self._moved(a)[1] - self._moved(b)[1] + 2j * mixed
        return matrix @ np.conj(q)
