"""Curves of fold, flip and Neimark–Sacker bifurcations in two parameters, and what lies on them.

A curve is followed by pseudo-arclength continuation of the cycle and of the condition of its
bifurcation together (`cycles.CycleProblem`). Where one more condition holds on it, there is a
bifurcation of codimension two: another multiplier becomes critical, the critical pair reaches a
strong resonance, or the coefficient of the normal form vanishes [kuznetsov2004elements, Ch. 9].
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_flag,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.continuation import Curve, corrected, located, trace_within
from spinformer.dmft.cycles import (
    Bifurcation,
    Cycle,
    CycleProblem,
    bifurcation_condition,
    checked_bounds,
    checked_cycle,
    checked_parameter,
    find_bifurcation,
)
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork
from spinformer.dmft.normal_forms import checked_kind, normal_form_at

# A multiplier within this of its critical value is at the bifurcation.
_CRITICAL = 1e-4
# Coefficients of a normal form that are smaller are zero within their rounding.
_ZERO_EXACT = 1e-5
_ZERO_DIFFERENCES = 1e-3
_FIRST_STEP = 0.01
# Strong resonances of a Neimark–Sacker bifurcation: cosine of the angle of the pair.
_RESONANCES = {
    "1:1 resonance": 1.0,
    "1:2 resonance": -1.0,
    "1:3 resonance": -0.5,
    "1:4 resonance": 0.0,
}


@record
class CodimensionTwo:
    """Bifurcation of codimension two on a curve of bifurcations.

    Attributes
    ----------
    label : str
        Its name: "cusp", "generalized flip", "Chenciner", "fold–flip", "fold–Neimark–Sacker",
        "flip–Neimark–Sacker", "double Neimark–Sacker", or "1:1 resonance" to "1:4 resonance".
    cycle : Cycle
        The cycle, with its parameters and multipliers.
    """

    label: str
    cycle: Cycle


@record
class BifurcationCurve:
    """Curve of bifurcations in the plane of two parameters, in order.

    Attributes
    ----------
    kind : Bifurcation
        The kind of bifurcation.
    names : tuple of str
        Names of the two parameters.
    values : ndarray, shape (m, 2)
        Their values.
    rotation : ndarray, shape (m,)
        Rotation numbers of the critical multipliers, in turns per period: 0 at folds, ½ at flips.
    multipliers : ndarray of complex, shape (m, n)
        Floquet multipliers, the largest modulus first.
    codimension_two : tuple of CodimensionTwo
        The bifurcations of codimension two on the curve, in its order.
    complete : bool
        Whether the curve was followed to the bounds, to a resonance that ends it, or around.
    """

    kind: Bifurcation
    names: tuple[str, str]
    values: np.ndarray
    rotation: np.ndarray
    multipliers: np.ndarray
    codimension_two: tuple[CodimensionTwo, ...]
    complete: bool


def continue_bifurcation(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    parameters: tuple[str, str],
    within: tuple[tuple[float, float], tuple[float, float]],
    step: float = _FIRST_STEP,
    direction: str = "both",
    max_steps: int = 500,
    throw: bool = True,
) -> BifurcationCurve:
    """Continue a fold, flip or Neimark–Sacker bifurcation in two parameters.

    The curve ends on the bounds, or at a strong resonance 1:1 or 1:2, beyond which the equations
    continue along neutral saddles. Bifurcations of codimension two on the curve are located.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        A bifurcation, as `find_bifurcation` or `continue_cycle` gives it.
    parameters : tuple of str
        Names of the two parameters.
    within : tuple of two tuples of float
        Bounds of the first and of the second parameter, which hold those of `start`.
    step : float, default 0.01
        First step length, in the space of the state and of the parameters in units of their
        intervals.
    direction : {"both", "up", "down"}, default "both"
        Whether the curve begins upwards or downwards in the second parameter, or goes both ways.
    max_steps : int, default 500
        Largest number of points in each direction.
    throw : bool, default True
        Whether to raise where the curve ends inside of the bounds; with False the part that was
        found is returned, with `complete` False.

    Returns
    -------
    BifurcationCurve
        Parameters, rotation numbers and multipliers along the curve, and what lies on it.

    Raises
    ------
    NotConverged
        If no bifurcation is found near `start`, or if the curve could not be followed to its end.
    TypeError
        If `start` is not a `Cycle` or `within` is not two pairs of numbers.
    ValueError
        If `start` is not a bifurcation or outside of the bounds, or an argument is out of its
        range.

    References
    ----------
    [kuznetsov2004elements, Chs. 9 and 10]

    Examples
    --------
    >>> from spinformer.dmft.cycles import find_bifurcation, find_cycle
    >>> henon = Map(
    ...     step=lambda x, a, b: np.array([1.0 - a * x[0] ** 2 + x[1], b * x[0]]),
    ...     dimension=2,
    ...     parameters={"a": 0.3, "b": 0.3},
    ... )
    >>> point = find_cycle(henon, [0.9, 0.3], period=1)
    >>> flip = find_bifurcation(henon, point, kind=Bifurcation.FLIP, parameter="a")
    >>> curve = continue_bifurcation(
    ...     henon, flip, parameters=("a", "b"), within=((0.0, 1.0), (0.0, 0.5))
    ... )
    >>> a, b = curve.values.T
    >>> bool(np.abs(a - 0.75 * (1.0 - b) ** 2).max() < 1e-8)
    True
    """
    common, values = checked_cycle(system, start)
    kind = checked_kind("start", start)
    names = _two_names(parameters, common.names)
    bounds = _two_bounds(within, names=names, values=values)
    step = check_real("step", step, low=0.0, open_low=True)
    direction = check_choice("direction", direction, ("both", "up", "down"))
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    scale = bounds[:, 1] - bounds[:, 0]
    problem = CycleProblem(
        common,
        period=start.period,
        parameters={name: value for name, value in values.items() if name not in names},
        free=names,
        scale=scale,
        kind=kind,
    )
    curve = trace_within(
        problem,
        np.append(common.flat(start.value), [values[name] for name in names] / scale),
        step=step,
        bounds=bounds / scale[:, None],
        direction=direction,
        max_steps=max_steps,
        cut=lambda way: _ending_at_resonance(problem, way),
    )
    multipliers = problem.multipliers(curve.points)
    if throw and not curve.complete:
        raise NotConverged(
            f"the curve of {kind.label} bifurcations was followed for {len(curve.points)} points "
            f"only: {curve.reason}. Raise max_steps or lower step, or read this part with "
            "throw=False."
        )
    special = _codimension_two(problem, curve, multipliers)
    return BifurcationCurve(
        kind=kind,
        names=names,
        values=curve.points[:, -2:] * scale,
        rotation=np.array([_turn(row, kind) for row in multipliers]),
        multipliers=multipliers,
        codimension_two=tuple(special),
        complete=curve.complete,
    )


def bifurcation_values(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    name: str,
    values: ArrayLike,
    parameter: str | None = None,
) -> np.ndarray:
    """Find a bifurcation at given values of a second parameter, one after another.

    Each value begins at the bifurcation found for the one before. The rows end where none is found
    any more, as at a strong resonance 1:2, beyond which the equations continue along neutral
    saddles, or where the curve turns back.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        The bifurcation at parameters near the first of `values`.
    name : str
        The parameter that changes.
    values : array_like, shape (n,)
        Values of this parameter.
    parameter : str, optional
        The parameter that is solved for; None is `beta` of a network.

    Returns
    -------
    ndarray, shape (n, 3)
        Rows of the parameter that is solved for, the value of the other one, and the rotation
        number in turns per period.

    Raises
    ------
    TypeError
        If `start` is not a `Cycle`.
    ValueError
        If `start` is not a bifurcation, `name` is no other parameter, or a value is out of its
        range.

    Examples
    --------
    >>> from spinformer.dmft.cycles import find_bifurcation, find_cycle
    >>> from spinformer.dmft.network import Context, Network
    >>> network, origin = Network.poclopez2024(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.244)
    >>> born = find_bifurcation(network, driven, kind=Bifurcation.NEIMARK_SACKER)
    >>> line = bifurcation_values(network, born, name="gamma", values=[network.gamma])
    >>> bool(np.isclose(line[0, 0], born.beta))
    True
    """
    common, given = checked_cycle(system, start)
    kind = checked_kind("start", start)
    solved = checked_parameter(common, parameter)
    others = tuple(other for other in common.names if other != solved)
    name = check_choice("name", name, others)
    numbers = check_array("values", values, shape=("n",))
    point = start
    rows = []
    with suppress(NotConverged):
        for value in numbers:
            own = given | {solved: point.parameters[solved], name: float(value)}
            guess = Cycle(
                value=point.value,
                parameters=own,
                period=point.period,
                multipliers=point.multipliers,
            )
            point = find_bifurcation(system, guess, kind=kind, parameter=solved)
            rows.append((point.parameters[solved], float(value), point.rotation))
    return np.reshape(rows, (-1, 3))


# ---- arguments


def _two_names(parameters: Any, allowed: Sequence[str]) -> tuple[str, str]:
    try:
        one, other = parameters
    except (TypeError, ValueError):
        raise TypeError(f"parameters must be two names, got {parameters!r}") from None
    names = (
        str(check_choice("parameters", one, allowed)),
        str(check_choice("parameters", other, allowed)),
    )
    if one == other:
        raise ValueError(f"parameters must be two different names, got {one} twice")
    return names


def _two_bounds(within: Any, *, names: tuple[str, str], values: Mapping[str, float]) -> np.ndarray:
    try:
        pairs = list(within)
    except TypeError:
        raise TypeError(f"within must be two pairs of numbers, got {within!r}") from None
    if len(pairs) != 2:
        raise TypeError(f"within must be two pairs of numbers, got {len(pairs)}")
    bounds = np.array([checked_bounds("within", pair) for pair in pairs])
    if not np.isfinite(bounds).all():
        raise ValueError("within must be finite bounds: they are the units of the step")
    for name, (low, high) in zip(names, bounds, strict=True):
        if not low <= values[name] <= high:
            raise ValueError(
                f"start must have {name} within ({low:g}, {high:g}), got {values[name]:g}"
            )
    return bounds


# ---- critical multipliers


def _turn(multipliers: np.ndarray, kind: Bifurcation) -> float:
    """Rotation number of the critical multipliers in turns per period."""
    if kind != Bifurcation.NEIMARK_SACKER:
        return 0.5 if kind == Bifurcation.FLIP else 0.0
    pair = multipliers[_critical(multipliers, kind)]
    return float(np.abs(np.angle(pair[0])) / (2 * np.pi))


def _critical(multipliers: np.ndarray, kind: Bifurcation) -> np.ndarray:
    """Numbers of the critical multipliers: one at ±1, or a pair whose product is 1."""
    if kind != Bifurcation.NEIMARK_SACKER:
        target = -1.0 if kind == Bifurcation.FLIP else 1.0
        return np.array([np.abs(multipliers - target).argmin()])
    first, second = np.triu_indices(len(multipliers), 1)
    product = np.abs(multipliers[first] * multipliers[second] - 1.0)
    chosen = int(product.argmin())
    return np.array([first[chosen], second[chosen]])


def _cosine(multipliers: np.ndarray) -> float:
    """Half the sum of the critical pair: the cosine of its angle on the unit circle."""
    pair = multipliers[_critical(multipliers, Bifurcation.NEIMARK_SACKER)]
    return float(0.5 * np.real(pair.sum()))


def _ending_at_resonance(problem: CycleProblem, curve: Curve) -> Curve:
    """A curve of Neimark–Sacker bifurcations without what is behind a resonance 1:1 or 1:2."""
    if problem.kind != Bifurcation.NEIMARK_SACKER:
        return curve
    multipliers = problem.multipliers(curve.points)
    cosines = np.array([_cosine(row) for row in multipliers])
    behind = np.flatnonzero(np.abs(cosines) > 1.0)
    if not len(behind):
        return curve
    end = int(behind[0])
    if not end:
        raise NotConverged("no birth of a closed curve was found, but a neutral saddle")
    side = float(np.sign(cosines[end]))
    u = located(
        problem,
        curve,
        index=end - 1,
        test=lambda v: _cosine(problem.multipliers(v)) * side - 1.0,
    )
    points = curve.points[:end]
    tangents = curve.tangents[:end]
    if u is not None:
        points = np.concatenate([points, u[None]])
        tangents = np.concatenate([tangents, curve.tangents[end : end + 1]])
    reason = f"the curve ends at a resonance {'1:1' if side > 0.0 else '1:2'}"
    return Curve(points=points, tangents=tangents, complete=True, reason=reason)


# ---- points of codimension two


def _other_condition(kind: Bifurcation, other: Bifurcation) -> Callable[[np.ndarray], float]:
    """A second condition of the multipliers that are not critical already."""

    def test(multipliers: np.ndarray) -> float:
        others = np.delete(multipliers, _critical(multipliers, kind))
        if other == Bifurcation.NEIMARK_SACKER and len(others) < 2:
            return 1.0
        return float(bifurcation_condition(others, other)) if len(others) else 1.0

    return test


def _resonance(cosine: float) -> Callable[[np.ndarray], float]:
    return lambda multipliers: _cosine(multipliers) - cosine


def _tests(kind: Bifurcation) -> dict[str, Callable[[np.ndarray], float]]:
    """By name, functions of the multipliers that vanish at a bifurcation of codimension two."""
    fold = Bifurcation.FOLD
    flip = Bifurcation.FLIP
    torus = Bifurcation.NEIMARK_SACKER
    if kind == fold:
        return {
            "1:1 resonance": _other_condition(kind, fold),
            "fold–flip": _other_condition(kind, flip),
            "fold–Neimark–Sacker": _other_condition(kind, torus),
        }
    if kind == flip:
        return {
            "fold–flip": _other_condition(kind, fold),
            "1:2 resonance": _other_condition(kind, flip),
            "flip–Neimark–Sacker": _other_condition(kind, torus),
        }
    inner = {label: _resonance(cosine) for label, cosine in _RESONANCES.items() if abs(cosine) < 1}
    return inner | {
        "fold–Neimark–Sacker": _other_condition(kind, fold),
        "flip–Neimark–Sacker": _other_condition(kind, flip),
        "double Neimark–Sacker": _other_condition(kind, torus),
    }


def _codimension_two(
    problem: CycleProblem, curve: Curve, multipliers: np.ndarray
) -> list[CodimensionTwo]:
    """What lies on a curve, in its order."""
    kind = problem.kind
    assert kind is not None
    found: list[tuple[float, CodimensionTwo]] = []

    def add(label: str, index: int, u: np.ndarray) -> None:
        point = CodimensionTwo(label=label, cycle=problem.cycle(u))
        found.append((curve.place(index, u), point))

    for label, test in _tests(kind).items():
        signs = np.sign([test(row) for row in multipliers])
        for index in np.flatnonzero(signs[1:] * signs[:-1] < 0):
            u = located(
                problem,
                curve,
                index=int(index),
                test=lambda v, test=test: test(problem.multipliers(v)),  # type: ignore[misc]
            )
            # Two inverse real multipliers beside the critical ones are a neutral saddle.
            if u is not None and _is_real(label, problem.multipliers(u), kind):
                add(label, int(index), u)
    for end in (0, len(curve.points) - 1):
        if kind == Bifurcation.NEIMARK_SACKER:
            cosine = _cosine(multipliers[end])
            if 1.0 - abs(cosine) < _CRITICAL:
                label = "1:1 resonance" if cosine > 0.0 else "1:2 resonance"
                add(label, min(end, len(curve.points) - 2), curve.points[end])
    found += _degenerate(problem, curve)
    return [special for _, special in sorted(found, key=lambda item: item[0])]


def _is_real(label: str, multipliers: np.ndarray, kind: Bifurcation) -> bool:
    if "Neimark" not in label or kind == Bifurcation.NEIMARK_SACKER:
        return True
    others = np.delete(multipliers, _critical(multipliers, kind))
    on_circle = np.abs(np.abs(others) - 1.0) < _CRITICAL
    return bool((on_circle & (np.abs(others.imag) > _CRITICAL)).any())


def _degenerate(problem: CycleProblem, curve: Curve) -> list[tuple[float, CodimensionTwo]]:
    """Where the coefficient of the normal form changes its sign through zero."""
    kind = problem.kind
    assert kind is not None
    label = {
        Bifurcation.FOLD: "cusp",
        Bifurcation.FLIP: "generalized flip",
        Bifurcation.NEIMARK_SACKER: "Chenciner",
    }[kind]
    coefficients = []
    vectors: list[np.ndarray] = []
    for u in curve.points:
        reference = vectors[-1] if vectors else None
        form = normal_form_at(problem, u, kind, reference=reference)
        coefficients.append(form.coefficient)
        vectors.append(form.vector)
    values = np.array(coefficients)
    found = []
    zero = _ZERO_EXACT if problem.system.exact else _ZERO_DIFFERENCES
    sizes = np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    for index in np.flatnonzero((values[1:] * values[:-1] < 0.0) & (sizes > zero)):
        at = int(index)

        def coefficient(v: np.ndarray, reference: np.ndarray = vectors[at]) -> float:
            return normal_form_at(problem, v, kind, reference=reference).coefficient

        u = located(problem, curve, index=at, test=coefficient)
        if u is not None and _through_zero(problem, curve, at, u=u, test=coefficient):
            point = CodimensionTwo(label=label, cycle=problem.cycle(u))
            found.append((curve.place(at, u), point))
    return found


def _through_zero(
    problem: CycleProblem,
    curve: Curve,
    index: int,
    *,
    u: np.ndarray,
    test: Callable[[np.ndarray], float],
) -> bool:
    """Whether a function changes its sign at u through zero, not through a pole.

    Near a zero it falls towards it, near a pole, as at a resonance, it grows.
    """
    near = []
    for share in (0.2, 0.02):
        sizes = []
        for end in curve.points[index : index + 2]:
            chord = end - u
            length = float(np.linalg.norm(chord))
            if length > _CRITICAL * share:
                correction = corrected(problem, u + share * chord, chord / length)
                if correction.found:
                    sizes.append(abs(test(correction.point)))
        near.append(max(sizes, default=0.0))
    return near[1] < near[0]
