"""Branch switching: the first cycle on the branch that a bifurcation or branch point gives rise to.

At a flip the branch of the doubled cycle leaves along the eigenvector of the multiplier −1. At a
branch point, a pitchfork or transcritical bifurcation, the Jacobian J of F(x, λ) = Φ_q(x) − x loses
rank: its null space is spanned by two vectors, the tangent k₁ of the known branch and another one,
k₂. Tangents α k₁ + β k₂ solve ψ·F''(α k₁ + β k₂)² = 0 with ψ the left null vector
[allgower2003introduction, Ch. 8]. The known branch is α = 1, β = 0, so that the other one is
α : β = −ψ·F''(k₂, k₂) : 2 ψ·F''(k₁, k₂).
"""

import numpy as np

from spinformer.core.checks import check_integer, check_real
from spinformer.core.solve import NotConverged
from spinformer.dmft.continuation import corrected
from spinformer.dmft.cycles import (
    Bifurcation,
    Cycle,
    CycleProblem,
    checked_cycle,
    checked_parameter,
)
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork

# How far behind a bifurcation the new branch is looked for, in the space of state and parameter.
_BEHIND = 1e-2
# A point of the new branch is within this of its predictor, in units of the distance.
_ASTRAY = 0.5
# Steps of the differences of Jacobians, of systems with an exact derivative and of others.
_STEP_EXACT = 1e-4
_STEP_DIFFERENCES = 3e-3
# A singular value below this is zero: one at a branch point, more where several branches cross.
_SINGULAR = 1e-4


def switch_branch(
    system: AttentionNetwork | Map,
    point: Cycle,
    *,
    parameter: str | None = None,
    distance: float = _BEHIND,
    max_steps: int = 12,
) -> Cycle:
    """Find the first cycle on the other branch at a flip or at a branch point.

    Behind a flip the cycle has twice the period. At a branch point (pitchfork, transcritical) it
    has the same one, and is one of the two sides of the new branch: `continue_cycle` from it passes
    the branch point to the other side. It is looked for at a distance along the tangent of the new
    branch, which is halved until it is found.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    point : Cycle
        The flip, as `find_bifurcation` or `continue_cycle` gives it, or the branch point, as
        `continue_cycle` gives it.
    parameter : str, optional
        The parameter in which the branch is followed; None is `beta` of a network, or the only
        parameter of a map.
    distance : float, default 0.01
        Distance in the space of state and parameter.
    max_steps : int, default 12
        How often the distance is halved at most.

    Returns
    -------
    Cycle
        The cycle, from which `continue_cycle` goes on.

    Raises
    ------
    NotConverged
        If no cycle on another branch is found.
    TypeError
        If `point` is not a `Cycle`.
    ValueError
        If `point` is neither a flip nor a branch point, if several branches cross there or touch,
        or if an argument is out of its range.

    References
    ----------
    [allgower2003introduction, Ch. 8]

    Examples
    --------
    >>> from spinformer.dmft.branches import continue_cycle
    >>> from spinformer.dmft.cycles import find_bifurcation, find_cycle
    >>> logistic = Map(step=lambda x, r: r * x * (1.0 - x), dimension=1, parameters={"r": 2.9})
    >>> point = find_cycle(logistic, [0.65], period=1)
    >>> flip = find_bifurcation(logistic, point, kind=Bifurcation.FLIP)
    >>> doubled = switch_branch(logistic, flip)
    >>> doubled.period, doubled.stable, bool(doubled.parameters["r"] > 3.0)
    (2, True, True)

    A pitchfork:

    >>> unit = Map(step=lambda x, g: np.tanh(g * x), dimension=1, parameters={"g": 0.8})
    >>> origin = continue_cycle(unit, find_cycle(unit, [0.0], period=1), within=(0.8, 1.2))
    >>> magnetized = switch_branch(unit, origin.bifurcations[0])
    >>> magnetized.period, magnetized.stable, bool(abs(magnetized.value[0]) > 0.005)
    (1, True, True)
    """
    common, values = checked_cycle(system, point, name="point")
    name = checked_parameter(common, parameter)
    distance = check_real("distance", distance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    doubled = point.kind == Bifurcation.FLIP
    problem = CycleProblem(
        common,
        period=2 * point.period if doubled else point.period,
        parameters={other: value for other, value in values.items() if other != name},
        free=(name,),
    )
    origin = np.append(common.flat(point.value), values[name])
    if doubled:
        along = _doubling_direction(problem, origin, period=point.period)
    elif point.kind == Bifurcation.BRANCH_POINT:
        along = _other_tangent(problem, origin, tangent=_known_tangent(point, name))
    else:
        got = "a cycle without a kind" if point.kind is None else f"a {point.kind.label}"
        raise ValueError(
            f"point must be a flip or a branch point, where another branch of cycles begins, got "
            f"{got}"
        )
    for _ in range(max_steps):
        guess = origin + distance * along
        correction = corrected(problem, guess, along)
        if correction.found and np.linalg.norm(correction.point - guess) < _ASTRAY * distance:
            found = correction.point
            if not doubled or _is_doubled(problem, found, period=point.period, distance=distance):
                return problem.cycle(found)
        distance *= 0.5
    beside = f"beside the {'flip' if doubled else 'branch point'} at {name} = {values[name]:.6g}"
    raise NotConverged(f"no cycle on another branch was found {beside}")


def _doubling_direction(problem: CycleProblem, u: np.ndarray, *, period: int) -> np.ndarray:
    """The unit eigenvector of the multiplier −1 of one period, with the parameter at rest."""
    states = u[None, : problem.system.size]
    matrix = problem.system.derivative(states, steps=period, parameters=problem.parameters(u))[1][0]
    values, vectors = np.linalg.eig(matrix)
    critical = int(np.abs(values + 1.0).argmin())
    along = np.append(np.real(vectors[:, critical]), 0.0)
    return along / np.linalg.norm(along)


def _is_doubled(problem: CycleProblem, u: np.ndarray, *, period: int, distance: float) -> bool:
    """Whether half of the period leads elsewhere: the old cycle solves the equations, too."""
    states = u[None, : problem.system.size]
    half = problem.system.advance(states, steps=period, parameters=problem.parameters(u))
    return bool(np.linalg.norm(half - states) > _ASTRAY * distance)


def _known_tangent(point: Cycle, name: str) -> np.ndarray:
    """The tangent (n + 1,) of the branch on which a branch point was found."""
    if point.tangent is None or point.along != name:
        raise ValueError(
            f"point must be a branch point that continue_cycle found along {name}, got one "
            f"{'without a tangent' if point.tangent is None else f'along {point.along}'}"
        )
    return point.tangent


def _other_tangent(problem: CycleProblem, u: np.ndarray, *, tangent: np.ndarray) -> np.ndarray:
    """The unit tangent of the other branch at a branch point."""
    left, sizes, right = np.linalg.svd(problem(u)[1])
    if len(sizes) > 1 and sizes[-2] < _SINGULAR:
        raise ValueError(
            "point must have one multiplier at 1, got several: more than two branches cross there. "
            "Run orbits from states beside it, and continue what they end on."
        )
    first = right[-2:].T @ (right[-2:] @ tangent)
    first /= np.linalg.norm(first)
    # The direction in the null space across the known one.
    second = right[-2:].T @ (np.array([[0.0, 1.0], [-1.0, 0.0]]) @ (right[-2:] @ first))
    h = _STEP_EXACT if problem.system.exact else _STEP_DIFFERENCES
    change = (problem(u + h * second)[1] - problem(u - h * second)[1]) / (2.0 * h)
    mixed = float(left[:, -1] @ change @ first)
    curved = float(left[:, -1] @ change @ second)
    if abs(mixed) < _SINGULAR:
        raise ValueError(
            "point must be one where branches cross at an angle, got one where they touch. Run "
            "orbits from states beside it, and continue what they end on."
        )
    along = -curved * first + 2.0 * mixed * second
    return np.asarray(along / np.linalg.norm(along))
