"""Branches of fixed points and cycles along a parameter, with the bifurcations on them.

A branch u = (x, λ) of solutions of Φ_q(x) = x is followed by pseudo-arclength continuation
(`continuation`), past its folds. A bifurcation lies where a function of the Floquet multipliers
changes its sign (`cycles.bifurcation_condition`); where Π_i (1 − μ_i) does so and the branch does
not turn back, another branch crosses it.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.continuation import Curve, located, trace_within
from spinformer.dmft.cycles import (
    Bifurcation,
    Cycle,
    CycleProblem,
    bifurcation_condition,
    bifurcation_factors,
    checked_bounds,
    checked_cycle,
    checked_parameter,
    is_neutral_saddle,
)
from spinformer.dmft.maps import Map
from spinformer.dmft.network import AttentionNetwork, Context

# The first step of a branch, in units of the interval of its parameter.
_FIRST_STEP = 0.02
# An interval of a parameter that is wider is the unit in which the parameter is measured.
_WIDE = 1.0
# A factor of a condition below this is zero within its rounding.
_TOUCHING = 3e-5


@record
class Branch:
    """Branch of cycles along a parameter, in order, with the bifurcations on it.

    Attributes
    ----------
    value : Context or ndarray
        States on the cycles, attention of shape (m, T, P) or an array (m, n).
    parameter : str
        Name of the parameter.
    values : ndarray, shape (m,)
        Values of the parameter.
    parameters : mapping of str to float
        The other parameters of the system.
    period : int
        Number of steps of the cycles.
    multipliers : ndarray of complex, shape (m, n)
        Floquet multipliers, the largest modulus first.
    bifurcations : tuple of Cycle
        The bifurcations between the points, in the order of the branch.
    complete : bool
        Whether the branch was followed to the ends of its interval or around to its start.
    """

    value: Any
    parameter: str
    values: np.ndarray
    parameters: Mapping[str, float]
    period: int
    multipliers: np.ndarray
    bifurcations: tuple[Cycle, ...]
    complete: bool

    @property
    def beta(self) -> np.ndarray:
        """Inverse temperatures β of the tokens, of a branch along β."""
        if self.parameter != "beta":
            raise AttributeError(f"the branch is one along {self.parameter}, not along beta")
        return self.values

    @property
    def stable(self) -> np.ndarray:
        """Whether each cycle is stable, booleans of shape (m,)."""
        return np.asarray(np.abs(self.multipliers[:, 0]) < 1.0)

    def select(self, index: int) -> Cycle:
        """Select one cycle of the branch.

        Parameters
        ----------
        index : int
            Number of the point.

        Returns
        -------
        Cycle
            The cycle with its parameters and multipliers.
        """
        value = self.value.select(index) if isinstance(self.value, Context) else self.value[index]
        own = {self.parameter: float(self.values[index])}
        return Cycle(
            value=value,
            parameters=dict(self.parameters) | own,
            period=self.period,
            multipliers=self.multipliers[index],
        )


def continue_cycle(
    system: AttentionNetwork | Map,
    start: Cycle,
    *,
    within: tuple[float, float],
    parameter: str | None = None,
    step: float | None = None,
    direction: str = "both",
    max_steps: int = 1000,
    throw: bool = True,
) -> Branch:
    """Continue a branch of fixed points or cycles in a parameter, past its folds.

    The step length adapts to the curvature of the branch. Each end of the branch is a bound of the
    interval, where the last cycle is solved for at exactly this value, or the start, if the branch
    is closed. The bifurcations on the way are located.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Cycle
        A cycle on the branch.
    within : tuple of float
        Bounds of the parameter, which hold that of `start`.
    parameter : str, optional
        The parameter; None is `beta` of a network, or the only parameter of a map.
    step : float, optional
        First step length in the space of the state and the parameter, which is measured in units of
        its interval if this is longer than one. None is a fiftieth of the interval, at most 0.02.
    direction : {"both", "up", "down"}, default "both"
        Whether the branch begins upwards or downwards in the parameter, or goes both ways.
    max_steps : int, default 1000
        Largest number of points in each direction.
    throw : bool, default True
        Whether to raise where a branch ends inside of the interval. With False the part that was
        found is returned, with `complete` False.

    Returns
    -------
    Branch
        The cycles in order, from below to above in the direction of `start`, and the bifurcations.

    Raises
    ------
    NotConverged
        If `start` is no cycle, or if the branch could not be followed to the ends of the interval;
        the message says how far it came and why.
    TypeError
        If `start` is not a `Cycle` or `within` is not two numbers.
    ValueError
        If the parameter of `start` is outside of `within`, or an argument is out of its range.

    References
    ----------
    [allgower2003introduction]

    Examples
    --------
    >>> from spinformer.dmft.cycles import find_cycle
    >>> from spinformer.dmft.network import Network
    >>> network, origin = Network.poclopez2024(), Context(np.zeros((4, 3)), 0)
    >>> driven = find_cycle(network, origin, period=4, beta=1.2)
    >>> branch = continue_cycle(network, driven, within=(1.1, 1.3))
    >>> branch.values[[0, -1]], [point.kind.label for point in branch.bifurcations]
    (array([1.1, 1.3]), ['Neimark–Sacker'])
    """
    common, values = checked_cycle(system, start)
    name = checked_parameter(common, parameter)
    low, high = checked_bounds("within", within)
    origin = values[name]
    if not low <= origin <= high:
        raise ValueError(
            f"start must have {name} within ({low:g}, {high:g}), got {origin:g}: continue it there "
            f"first, within ({min(low, origin):g}, {max(high, origin):g})"
        )
    width = high - low
    scale = width if _WIDE < width < np.inf else 1.0
    step = min(1.0, width / scale) * _FIRST_STEP if step is None else step
    step = check_real("step", step, low=0.0, open_low=True)
    direction = check_choice("direction", direction, ("both", "up", "down"))
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    fixed = {other: value for other, value in values.items() if other != name}
    problem = CycleProblem(
        common, period=start.period, parameters=fixed, free=(name,), scale=np.array([scale])
    )
    curve = trace_within(
        problem,
        np.append(common.flat(start.value), origin / scale),
        step=step,
        bounds=np.array([[low / scale, high / scale]]),
        direction=direction,
        max_steps=max_steps,
    )
    branch = _branch(problem, curve)
    if throw and not branch.complete:
        raise NotConverged(
            f"the branch was followed in {name} only within ({branch.values.min():.6g}, "
            f"{branch.values.max():.6g}): {curve.reason}. Raise max_steps or lower step, or read "
            "this part with throw=False."
        )
    return branch


def _branch(problem: CycleProblem, curve: Curve) -> Branch:
    """The branch of cycles of a curve, its ends at the bounds, with the bifurcations on it."""
    multipliers = problem.multipliers(curve.points)
    bifurcations: list[tuple[float, Cycle]] = []
    for kind in (Bifurcation.FOLD, Bifurcation.FLIP, Bifurcation.NEIMARK_SACKER):

        def test(u: np.ndarray, kind: Bifurcation = kind) -> float:
            return float(bifurcation_condition(problem.multipliers(u), kind))

        for index in _sign_changes(multipliers, kind):
            u = located(problem, curve, index=index, test=test)
            if u is None:
                continue
            point = problem.cycle(u, kind=kind)
            before, after = curve.tangents[index : index + 2]
            if kind == Bifurcation.FOLD and before[-1] * after[-1] > 0.0:
                # The branch does not turn back: another one crosses it.
                point = _branch_point(problem, point, tangent=before + after)
            if not is_neutral_saddle(point):
                bifurcations.append((curve.place(index, u), point))
    ordered = sorted(bifurcations, key=lambda item: item[0])
    name = problem.free[0]
    return Branch(
        value=problem.system.state(curve.points[:, : problem.system.size]),
        parameter=name,
        values=problem.parameters(curve.points)[name],
        parameters=problem.fixed,
        period=problem.period,
        multipliers=multipliers,
        bifurcations=tuple(point for _, point in ordered),
        complete=curve.complete,
    )


def _sign_changes(multipliers: np.ndarray, kind: Bifurcation) -> list[int]:
    """Numbers of the points of a branch behind which the condition of a bifurcation changes sign.

    Where the branch passes a branch point along the other branch, the condition touches zero, and
    its sign there is one of rounding.
    """
    signs = np.sign(bifurcation_condition(multipliers, kind))
    sizes = np.abs(bifurcation_factors(multipliers, kind)).min(axis=-1, initial=np.inf)
    clear = np.flatnonzero(sizes > _TOUCHING)
    changes = []
    for before, after in pairwise(clear.tolist()):
        if signs[before] * signs[after] < 0.0:
            changes.append(before + int(np.argmax(signs[before + 1 : after + 1] != signs[before])))
    return changes


def _branch_point(problem: CycleProblem, point: Cycle, *, tangent: np.ndarray) -> Cycle:
    """A cycle at which another branch crosses the one with this tangent."""
    along = tangent * np.append(np.ones(problem.system.size), problem.scale)
    return replace(
        point,
        kind=Bifurcation.BRANCH_POINT,
        tangent=along / np.linalg.norm(along),
        along=problem.free[0],
    )
