"""Fixed points and cycles of a network or map, stable or unstable, and their bifurcations.

A cycle of q steps is a fixed point Φ_q(x) = x of q steps, whose derivative ∂Φ_q/∂x is the monodromy
matrix (`lyapunov.period_map`); its eigenvalues are the Floquet multipliers μ. Functions of the
multipliers vanish at bifurcations: Π_i (1 − μ_i) at a fold, Π_i (1 + μ_i) at a flip (period
doubling), and Π_{i<j} (1 − μ_i μ_j) at a Neimark–Sacker bifurcation, the birth of a closed curve.
The latter also vanishes at a *neutral saddle*, μ and 1/μ real, which is no bifurcation
[kuznetsov2004elements, Ch. 10]. Derivatives by parameters and of these conditions are central
differences.

Here one cycle or bifurcation is found from a guess. `branches` follows cycles along a parameter,
`bifurcation_curves` the bifurcations in two.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.optimize import root

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.continuation import FOUND, SAME
from spinformer.dmft.maps import Map, System, as_system
from spinformer.dmft.network import AttentionNetwork, Context

# How near the unit circle a multiplier is on it, and how far off the real axis it is complex.
_NEAR = 1e-5


class Bifurcation(IntEnum):
    """Bifurcation of a cycle: FOLD (saddle-node), NEIMARK_SACKER, FLIP, or BRANCH_POINT.

    A flip doubles the period. At a branch point, a pitchfork or transcritical bifurcation, two
    branches cross.
    """

    FOLD = 0
    NEIMARK_SACKER = 1
    FLIP = 2
    BRANCH_POINT = 3

    @property
    def label(self) -> str:
        """Name of the bifurcation in words.

        Examples
        --------
        >>> Bifurcation.NEIMARK_SACKER.label
        'Neimark–Sacker'
        """
        return ("fold", "Neimark–Sacker", "flip", "branch point")[self.value]


@record
class Cycle:
    """Cycle of a network or map, with its Floquet multipliers.

    Attributes
    ----------
    value : Context or ndarray
        A state on the cycle, a context with attention (T, P) or an array (n,).
    parameters : mapping of str to float
        Parameters of the system by name.
    period : int
        Number of steps until the state returns for the first time.
    multipliers : ndarray of complex, shape (n,)
        Floquet multipliers of one period, the largest modulus first.
    kind : Bifurcation, optional
        The bifurcation at which the cycle is, None for a cycle at given parameters.
    tangent : ndarray, shape (n + 1,), optional
        At a branch point the unit tangent of the branch on which it was found, the state before the
        parameter.
    along : str, optional
        The parameter of this branch.
    """

    value: Any
    parameters: Mapping[str, Any]
    period: int
    multipliers: np.ndarray
    kind: Bifurcation | None = None
    tangent: np.ndarray | None = None
    along: str | None = None

    @property
    def beta(self) -> Any:
        """Inverse temperature β of the tokens of a network."""
        return self.parameters["beta"]

    @property
    def stable(self) -> bool:
        """Whether all multipliers are inside the unit circle."""
        return bool(np.abs(self.multipliers[..., 0]) < 1.0)

    @property
    def rotation(self) -> float:
        """Rotation number, in turns per period, of the multiplier nearest to the unit circle."""
        nearest = self.multipliers[np.abs(np.abs(self.multipliers) - 1.0).argmin()]
        return float(np.abs(np.angle(nearest)) / (2 * np.pi))


def find_cycle(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    period: int,
    max_steps: int = 200,
    **parameters: float,
) -> Cycle:
    """Find a fixed point or cycle, stable or unstable, by Newton's method.

    The cycle found has the given period or a divisor of it.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or array_like
        One state near the cycle, attention of shape (T, P) or an array (n,).
    period : int
        Number of steps of the cycle, 1 for a fixed point.
    max_steps : int, default 200
        Largest number of evaluations of Φ.
    **parameters : float
        Parameters of the map, or `beta` (required), `gamma` and `epsilon` of a network. Those not
        given are those of the map or network.

    Returns
    -------
    Cycle
        The cycle and its Floquet multipliers.

    Raises
    ------
    NotConverged
        If an entry of Φ(x) − x stays above 1e-10 in absolute value.
    TypeError
        If an argument is of the wrong type, or a parameter is missing or unknown.
    ValueError
        If `period` is not a multiple of the period of the positional code while ε > 0, or an
        argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(Network.poclopez2024(), start, period=4, beta=0.5)
    >>> driven.period, driven.stable
    (4, True)
    """
    common = as_system(system, start)
    guess = _single(common, start)
    period = check_integer("period", period, low=1)
    max_steps = check_integer("max_steps", max_steps, low=1)
    values = checked_parameters(common, parameters)
    unit = common.unit(values)
    if period % unit:
        raise ValueError(f"period must be a multiple of {unit} while epsilon > 0, got {period}")
    problem = CycleProblem(common, period=period, parameters=values)
    u = problem.solve(guess, max_steps=max_steps)
    for shorter in range(unit, period, unit):
        if period % shorter == 0:
            end = common.advance(u[None], steps=shorter, parameters=values)[0]
            if np.abs(end - u).max() < SAME:
                return CycleProblem(common, period=shorter, parameters=values).cycle(u)
    return problem.cycle(u)


def find_bifurcation(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    kind: Bifurcation,
    parameter: str | None = None,
    max_steps: int = 200,
) -> Cycle:
    r"""Find a fold, flip or Neimark–Sacker bifurcation of a cycle, in one parameter.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        A cycle, or a guess of one, near the bifurcation.
    kind : Bifurcation
        The kind of bifurcation, any but BRANCH_POINT, where the equations are singular.
    parameter : str, optional
        The parameter that is solved for; None is `beta` of a network, or the only parameter of a
        map.
    max_steps : int, default 200
        Largest number of evaluations of the equations.

    Returns
    -------
    Cycle
        The cycle at the bifurcation, with its parameters.

    Raises
    ------
    NotConverged
        If an entry of Φ(x) − x, or the condition over its slope, stays above 1e-10, or if the
        solution is a neutral saddle.
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If `kind` is no `Bifurcation`, or an argument is out of its range.

    Notes
    -----
    With the Floquet multipliers μ, the conditions of a fold, of a flip and of a Neimark–Sacker
    bifurcation are

    .. math::

        \prod_i (1 - \mu_i) = 0, \qquad \prod_i (1 + \mu_i) = 0, \qquad
        \prod_{i<j} (1 - \mu_i \mu_j) = 0.

    References
    ----------
    [kuznetsov2004elements, Ch. 10]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.poclopez2024(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.244)
    >>> born = find_bifurcation(network, driven, kind=Bifurcation.NEIMARK_SACKER)
    >>> bool(abs(np.abs(born.multipliers[0]) - 1.0) < 1e-6)
    True
    """
    common, values = checked_cycle(system, start)
    solvable = (Bifurcation.FOLD, Bifurcation.NEIMARK_SACKER, Bifurcation.FLIP)
    kind = Bifurcation(check_choice("kind", kind, solvable))
    name = checked_parameter(common, parameter)
    max_steps = check_integer("max_steps", max_steps, low=1)
    fixed = {other: value for other, value in values.items() if other != name}
    problem = CycleProblem(common, period=start.period, parameters=fixed, free=(name,), kind=kind)
    guess = np.append(common.flat(start.value), values[name])
    found = problem.cycle(problem.solve(guess, max_steps=max_steps))
    if is_neutral_saddle(found):
        raise NotConverged("no birth of a closed curve was found, but a neutral saddle")
    return found


# ---- cycles as solutions of equations


class CycleProblem:
    """Equations Φ_q(x) = x of a cycle, with a condition if a bifurcation is looked for.

    The unknowns are u = (x, λ / scale) with the free parameters λ last.

    Parameters
    ----------
    system : System
        The system in its common form.
    period : int
        Number of steps q.
    parameters : mapping of str to float
        The parameters that are fixed.
    free : tuple of str, default ()
        Names of the free parameters.
    scale : ndarray, shape (k,), optional
        Units of the free parameters; None is one for each.
    kind : Bifurcation, optional
        The bifurcation whose condition is the last equation; None has no condition.
    """

    def __init__(
        self,
        system: System,
        *,
        period: int,
        parameters: Mapping[str, float],
        free: tuple[str, ...] = (),
        scale: np.ndarray | None = None,
        kind: Bifurcation | None = None,
    ) -> None:
        self.system = system
        self.period = period
        self.fixed = dict(parameters)
        self.free = free
        self.scale = np.ones(len(free)) if scale is None else scale
        self.kind = kind

    def parameters(self, u: np.ndarray) -> dict[str, Any]:
        """Return all parameters at points u.

        Parameters
        ----------
        u : ndarray, shape (..., n + k)
            The unknowns.

        Returns
        -------
        dict of str to float or ndarray
            Parameters by name.
        """
        values = u[..., self.system.size :] * self.scale
        return self.fixed | {name: values[..., i] for i, name in enumerate(self.free)}

    def mapped(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Φ_q and its derivative at points u.

        Parameters
        ----------
        u : ndarray, shape (m, n + k)
            The unknowns.

        Returns
        -------
        end : ndarray, shape (m, n)
            The states after q steps.
        matrices : ndarray, shape (m, n, n)
            The monodromy matrices.
        """
        states = u[:, : self.system.size]
        return self.system.derivative(states, steps=self.period, parameters=self.parameters(u))

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual (m,) and Jacobian (m, n + k) at u (n + k,)."""
        size = self.system.size
        # Without a condition the derivative by x is exact and needs no differences.
        moved = np.arange(0 if self.kind is not None else size, len(u))
        width = self.system.difference
        shift = width * np.eye(len(u))[moved]
        points = np.concatenate([u[None], u + shift, u - shift])
        end, matrices = self.mapped(points)
        value = end - points[:, :size]
        if self.kind is not None:
            condition = bifurcation_condition(eigenvalues(matrices), self.kind)
            value = np.column_stack([value, condition])
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((value.shape[1], len(u)))
        jacobian[:, moved] = (above - below).T / (2.0 * width)
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    def solve(self, guess: np.ndarray, *, max_steps: int) -> np.ndarray:
        """Solve as many equations as there are unknowns, from a guess.

        Parameters
        ----------
        guess : ndarray, shape (n + k,)
            The guess; k is 1 with a condition and 0 without.
        max_steps : int
            Largest number of evaluations.

        Returns
        -------
        ndarray, shape (n + k,)
            The solution.

        Raises
        ------
        NotConverged
            If the residual stays above 1e-10.
        """
        options = {"xtol": 1e-14, "maxfev": max_steps}
        with np.errstate(over="ignore", invalid="ignore"):
            u = root(self, guess, jac=True, options=options).x
            value, jacobian = self(u)
        if self.kind is not None:
            # As a distance in u: a steep condition is above any bound by rounding alone.
            value[-1] /= max(1.0, float(np.linalg.norm(jacobian[-1])))
        residual = float(np.abs(value).max())
        if not residual <= FOUND:
            what = "cycle" if self.kind is None else f"{self.kind.label} bifurcation of the cycle"
            raise NotConverged(
                f"no {what} of {self.period} steps was found, the residual is {residual:.1g}: "
                "begin nearer to it, at a state that an orbit ends on or on a continued branch"
            )
        return u

    def multipliers(self, u: np.ndarray) -> np.ndarray:
        """Compute the Floquet multipliers at points u.

        Parameters
        ----------
        u : ndarray, shape (..., n + k)
            The unknowns.

        Returns
        -------
        ndarray of complex, shape (..., n)
            The multipliers, the largest modulus first.
        """
        points = u.reshape(-1, u.shape[-1])
        values = eigenvalues(self.mapped(points)[1]).astype(complex)
        order = np.argsort(-np.abs(values), axis=-1, kind="stable")
        return np.take_along_axis(values, order, axis=-1).reshape(*u.shape[:-1], -1)

    def cycle(self, u: np.ndarray, *, kind: Bifurcation | None = None) -> Cycle:
        """Return the cycle at one point u.

        Parameters
        ----------
        u : ndarray, shape (n + k,)
            The unknowns.
        kind : Bifurcation, optional
            Its kind; None takes that of the problem.

        Returns
        -------
        Cycle
            The cycle.
        """
        values = {name: float(value) for name, value in self.parameters(u).items()}
        return Cycle(
            value=self.system.state(u[: self.system.size]),
            parameters=values,
            period=self.period,
            multipliers=self.multipliers(u),
            kind=self.kind if kind is None else kind,
        )


def eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """Compute eigenvalues of matrices, NaN where an entry is not finite.

    Parameters
    ----------
    matrices : ndarray, shape (..., n, n)
        The matrices.

    Returns
    -------
    ndarray of complex, shape (..., n)
        The eigenvalues.
    """
    if np.isfinite(matrices).all():
        return np.linalg.eigvals(matrices)
    finite = np.isfinite(matrices).all(axis=(-2, -1))
    values = np.full(matrices.shape[:-1], np.nan, dtype=complex)
    values[finite] = np.linalg.eigvals(matrices[finite])
    return values


def bifurcation_factors(multipliers: np.ndarray, kind: Bifurcation) -> np.ndarray:
    """Compute factors of which one vanishes at a bifurcation.

    Parameters
    ----------
    multipliers : ndarray of complex, shape (..., n)
        Floquet multipliers.
    kind : Bifurcation
        The kind of bifurcation.

    Returns
    -------
    ndarray of complex, shape (..., k)
        1 − μ_i, 1 + μ_i, or 1 − μ_i μ_j for all pairs.
    """
    if kind == Bifurcation.NEIMARK_SACKER:
        first, second = np.triu_indices(multipliers.shape[-1], 1)
        multipliers = multipliers[..., first] * multipliers[..., second]
    sign = 1.0 if kind == Bifurcation.FLIP else -1.0
    return 1.0 + sign * multipliers


def bifurcation_condition(multipliers: np.ndarray, kind: Bifurcation) -> np.ndarray:
    """Compute the function of the multipliers that changes its sign at a bifurcation.

    Parameters
    ----------
    multipliers : ndarray of complex, shape (..., n)
        Floquet multipliers.
    kind : Bifurcation
        The kind of bifurcation.

    Returns
    -------
    ndarray, shape (...)
        The product of the factors.
    """
    return np.real(np.prod(bifurcation_factors(multipliers, kind), axis=-1))


def is_neutral_saddle(point: Cycle) -> bool:
    """Find whether a Neimark–Sacker condition holds by two inverse real multipliers.

    Parameters
    ----------
    point : Cycle
        A cycle at which the condition of its `kind` vanishes.

    Returns
    -------
    bool
        True where no complex pair is on the unit circle, although the kind needs one.
    """
    if point.kind != Bifurcation.NEIMARK_SACKER:
        return False
    mu = point.multipliers
    turning = (np.abs(np.abs(mu) - 1.0) < _NEAR) & (np.abs(mu.imag) > _NEAR)
    return not bool(turning.any())


# ---- checks


def checked_bounds(name: str, within: Any) -> tuple[float, float]:
    """Check two ordered numbers, infinities allowed.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    within : tuple of float
        The numbers.

    Returns
    -------
    tuple of float
        The numbers.

    Raises
    ------
    TypeError
        If they are not two numbers.
    ValueError
        If they are not in order.
    """
    try:
        low, high = within
        low = float(low)
        high = float(high)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(f"{name} must be two numbers, got {type(within).__name__}") from None
    if not low < high:
        raise ValueError(f"{name} must be two numbers in order, got {low} and {high}")
    return low, high


def checked_parameters(system: System, parameters: Mapping[str, Any]) -> dict[str, float]:
    """Check the parameters of a system, those of a network to be in their ranges.

    Parameters
    ----------
    system : System
        The system.
    parameters : mapping of str to float
        Parameters by name.

    Returns
    -------
    dict of str to float
        All parameters.

    Raises
    ------
    TypeError
        If a parameter is unknown, missing, or not a number.
    ValueError
        If a parameter is out of its range.
    """
    values = system.checked(parameters)
    if system.names == ("beta", "gamma", "epsilon"):
        check_real("beta", values["beta"], low=0.0)
        check_real("gamma", values["gamma"], low=0.0)
        check_real("epsilon", values["epsilon"], low=0.0, high=1.0)
    return values


def checked_parameter(system: System, name: str | None) -> str:
    """Check the name of a parameter; None is `beta` of a network or the only one of a map.

    Parameters
    ----------
    system : System
        The system.
    name : str or None
        The name.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ValueError
        If the name is unknown, or a map has several parameters and none is named.
    """
    if name is None and ("beta" in system.names or len(system.names) == 1):
        return "beta" if "beta" in system.names else system.names[0]
    return str(check_choice("parameter", name, system.names))


def checked_cycle(
    system: AttentionNetwork | Map, start: Cycle, *, name: str = "start"
) -> tuple[System, dict[str, float]]:
    """Check that a cycle, or a guess of one, is that of a system.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        The cycle.
    name : str, default "start"
        Name of the argument, for an error.

    Returns
    -------
    system : System
        The system in its common form.
    parameters : dict of str to float
        All parameters.

    Raises
    ------
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If it does not fit the system.
    """
    check_instance(name, start, Cycle)
    common = as_system(system, start.value, name=f"{name}.value")
    _single(common, start.value, name=f"{name}.value")
    return common, checked_parameters(common, start.parameters)


def _single(system: System, value: Any, *, name: str = "start") -> np.ndarray:
    """The components of one state, no batch."""
    if isinstance(value, Context):
        check_array(f"{name}.attention", value.attention, shape=("T", "P"))
        return system.flat(value)
    return system.flat(check_array(name, value, shape=("n",)))
