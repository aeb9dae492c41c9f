"""Orbit diagrams and phase diagrams of a network or map."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_choice, check_flag, check_integer
from spinformer.core.records import record
from spinformer.dmft.attractors import Regime
from spinformer.dmft.maps import Map, System, as_system
from spinformer.dmft.network import AttentionNetwork
from spinformer.dmft.regimes import classify_regimes
from spinformer.dmft.states import iterate


@record
class OrbitDiagram:
    """Orbit diagram: what an orbit visits after its transient, along a parameter.

    Attributes
    ----------
    parameter : str
        Name of the parameter.
    values : ndarray, shape (V,)
        Its values.
    points : ndarray, shape (V, n, d)
        Observables of the last n steps at each value: the overlaps m^o of a network, the components
        of a map.
    """

    parameter: str
    values: np.ndarray
    points: np.ndarray


@record
class PhaseDiagram:
    """Regimes and leading Lyapunov exponents in the plane of two parameters.

    Attributes
    ----------
    names : tuple of str
        Names of the parameters across and upwards.
    across : ndarray, shape (A,)
        Values of the first.
    upwards : ndarray, shape (U,)
        Values of the second.
    regime : ndarray of int, shape (U, A)
        Values of `Regime`.
    period : ndarray of int, shape (U, A)
        Periods in steps, 0 where none was found.
    exponent : ndarray, shape (U, A)
        Leading Lyapunov exponents in nats per step.
    reasons : ndarray of str, shape (U, A)
        What `advice` says of each cell.
    """

    names: tuple[str, str]
    across: np.ndarray
    upwards: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    reasons: np.ndarray

    def fractions(self) -> dict[str, float]:
        """Compute the fraction of the cells in each regime.

        Returns
        -------
        dict of str to float
            Fractions by the label of the regime.
        """
        return {one.label: float((self.regime == one).mean()) for one in Regime}

    def advice(self) -> dict[str, int]:
        """Say why cells are undecided and what to run longer.

        Returns
        -------
        dict of str to int
            Number of the cells by what is to be done with them, the most frequent first. The
            sentence of a single cell, with its numbers, is in `reasons`.
        """
        remedies = [text.rpartition(": ")[2] for text in self.reasons.ravel() if text]
        return dict(Counter(remedies).most_common())


def orbit_diagram(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    values: ArrayLike,
    parameter: str = "beta",
    transient: int = 1000,
    kept: int = 100,
    follow: bool = False,
    **parameters: float,
) -> OrbitDiagram:
    """Compute an orbit diagram: the last states of orbits along a parameter.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or array_like
        One initial state, attention of shape (T, P) or an array (n,).
    values : array_like, shape (V,)
        Values of the parameter.
    parameter : str, default "beta"
        The parameter that changes.
    transient : int, default 1000
        Number of steps that are dropped at each value.
    kept : int, default 100
        Number of steps that are kept.
    follow : bool, default False
        Whether each value begins with the last state of the value before, so that an attractor is
        followed and hysteresis is seen; otherwise all begin at `start`, which is faster.
    **parameters : float
        The other parameters of the system.

    Returns
    -------
    OrbitDiagram
        The points at each value.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the start does not fit the system, or an argument is out of its range.

    Examples
    --------
    >>> logistic = Map(step=lambda x, r: r * x * (1.0 - x), dimension=1, parameters={"r": 3.2})
    >>> found = orbit_diagram(logistic, [0.4], parameter="r", values=[2.8, 3.2], kept=4)
    >>> found.points[..., 0].round(4)
    array([[0.6429, 0.6429, 0.6429, 0.6429],
           [0.7995, 0.513 , 0.7995, 0.513 ]])
    """
    common = _one_state(system, start)
    parameter = check_choice("parameter", parameter, common.names)
    numbers = check_array("values", values, shape=("V",))
    transient = check_integer("transient", transient, low=0)
    kept = check_integer("kept", kept, low=1)
    check_flag("follow", follow)
    if not follow:
        own: dict[str, Any] = parameters | {parameter: numbers}
        points, _ = iterate(system, start, steps=kept, transient=transient, parameters=own)
        return OrbitDiagram(parameter=parameter, values=numbers, points=points)
    rows = []
    state = start
    for value in numbers:
        own = parameters | {parameter: float(value)}
        row, state = iterate(system, state, steps=kept, transient=transient, parameters=own)
        rows.append(row)
    return OrbitDiagram(parameter=parameter, values=numbers, points=np.array(rows))


def phase_diagram(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    across: tuple[str, ArrayLike],
    upwards: tuple[str, ArrayLike],
    transient: int = 20_000,
    kept: int = 4000,
    exponent_steps: int = 4000,
    **parameters: float,
) -> PhaseDiagram:
    """Compute a phase diagram: regimes and leading exponents in the plane of two parameters.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or array_like
        One initial state of every cell, attention of shape (T, P) or an array (n,).
    across : tuple of str and array_like
        Name and values of the parameter along a row.
    upwards : tuple of str and array_like
        Name and values of the parameter that is the same in a row.
    transient : int, default 20000
        Number of steps that are dropped.
    kept : int, default 4000
        Number of steps of the averages.
    exponent_steps : int, default 4000
        Number of steps of the exponents.
    **parameters : float
        The other parameters of the system.

    Returns
    -------
    PhaseDiagram
        Regimes, periods and exponents of all cells.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Context, Network
    >>> found = phase_diagram(
    ...     Network.poclopez2024(), Context(np.full((4, 3), 0.1), 0), across=("beta", [0.4, 0.5]),
    ...     upwards=("gamma", [100.0]), transient=2000, kept=1000, exponent_steps=500,
    ... )
    >>> found.fractions()["periodic"]
    1.0
    """
    common = _one_state(system, start)
    first, columns = _axis("across", across, common.names)
    second, rows = _axis("upwards", upwards, common.names)
    if first == second:
        raise ValueError(f"upwards must be another parameter than across, got {first} for both")
    found = []
    for value in rows:
        own: dict[str, Any] = parameters | {first: columns, second: float(value)}
        row = classify_regimes(
            system, start, transient=transient, kept=kept, exponent_steps=exponent_steps, **own
        )
        found.append(row)
    return PhaseDiagram(
        names=(first, second),
        across=columns,
        upwards=rows,
        regime=np.array([row.regime for row in found]),
        period=np.array([row.period for row in found]),
        exponent=np.array([row.exponents.value[:, 0] for row in found]),
        reasons=np.array([row.advice() for row in found]),
    )


def _one_state(system: AttentionNetwork | Map, start: Any) -> System:
    """The common form of a system, and a check that the start is one state, not a batch."""
    common = as_system(system, start)
    batch = common.flat(start).shape[:-1]
    if batch:
        raise ValueError(
            f"start must be one state, got a batch of shape {batch}: call once for each of them"
        )
    return common


def _axis(name: str, given: Any, allowed: Sequence[str]) -> tuple[str, np.ndarray]:
    try:
        parameter, values = given
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be the name of a parameter and its values") from None
    return check_choice(name, parameter, allowed), check_array(name, values, shape=("n",))
