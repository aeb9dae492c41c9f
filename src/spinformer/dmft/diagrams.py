"""Orbit diagrams and phase diagrams of a network or map, and statistics of attention.

A phase diagram can be kept in a folder while it is computed. The same call with the same folder
then goes on where it was interrupted, and computes nothing twice.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_choice, check_flag, check_integer
from spinformer.core.records import record
from spinformer.dmft.attractors import Regime
from spinformer.dmft.ensemble import Parameters
from spinformer.dmft.maps import Map, System, as_system
from spinformer.dmft.mean_field import softmax_weights, token_overlaps, trajectory
from spinformer.dmft.network import AttentionNetwork, Context
from spinformer.dmft.regimes import classify_regimes


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
    """

    names: tuple[str, str]
    across: np.ndarray
    upwards: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray

    def fractions(self) -> dict[str, float]:
        """Compute the fraction of the cells in each regime.

        Returns
        -------
        dict of str to float
            Fractions by the label of the regime.
        """
        return {one.label: float((self.regime == one).mean()) for one in Regime}


@record
class AttentionStatistics:
    """Statistics of the attention weights along orbits, after their transient.

    Attributes
    ----------
    mean : ndarray, shape (..., T)
        Mean weight of a token by its age, the newest (the query) first.
    deviation : ndarray, shape (..., T)
        Standard deviation of the weights over the steps.
    entropy : ndarray, shape (...)
        Mean entropy of the weights in nats, at most ln T.
    effective : ndarray, shape (...)
        Mean effective number of tokens, the exponential of the entropy of each step.
    largest : ndarray, shape (...)
        Mean largest weight.
    """

    mean: np.ndarray
    deviation: np.ndarray
    entropy: np.ndarray
    effective: np.ndarray
    largest: np.ndarray


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
        points, _ = _orbit(system, start, steps=kept, transient=transient, parameters=own)
        return OrbitDiagram(parameter=parameter, values=numbers, points=points)
    rows = []
    state = start
    for value in numbers:
        own = parameters | {parameter: float(value)}
        row, state = _orbit(system, state, steps=kept, transient=transient, parameters=own)
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
    folder: str | os.PathLike[str] | None = None,
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
    folder : path, optional
        Folder in which finished rows are kept. The same call goes on with those that are missing;
        a folder of another call is refused.
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
        If an argument is out of its range, or `folder` holds another diagram.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> found = phase_diagram(
    ...     Network.document(), Context(np.full((4, 3), 0.1), 0), across=("beta", [0.4, 0.5]),
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
    lengths = {
        "transient": check_integer("transient", transient, low=0),
        "kept": check_integer("kept", kept, low=2),
        "exponent_steps": check_integer("exponent_steps", exponent_steps, low=1),
    }
    where = None
    if folder is not None:
        settings = {"across": [first, columns.tolist()], "upwards": [second, rows.tolist()]}
        others = {name: float(value) for name, value in parameters.items()}
        digest = _digest(system, common.flat(start), settings | lengths | others)
        where = _opened(Path(folder), digest)
    cells = []
    for number, value in enumerate(rows):
        path = None if where is None else where / f"row_{number:05d}.npz"
        if path is not None and path.exists():
            with np.load(path) as stored:
                cells.append((stored["regime"], stored["period"], stored["exponent"]))
            continue
        own: dict[str, Any] = parameters | {first: columns, second: float(value)}
        found = classify_regimes(
            system,
            start,
            transient=lengths["transient"],
            kept=lengths["kept"],
            exponent_steps=lengths["exponent_steps"],
            **own,
        )
        row = (found.regime, found.period, found.exponents.value[:, 0])
        cells.append(row)
        if path is not None:
            part = path.with_name(f"{path.stem}.part.npz")
            np.savez(part, regime=row[0], period=row[1], exponent=row[2])
            # A row is in its place whole or not at all.
            os.replace(part, path)
    return PhaseDiagram(
        names=(first, second),
        across=columns,
        upwards=rows,
        regime=np.array([row[0] for row in cells]),
        period=np.array([row[1] for row in cells]),
        exponent=np.array([row[2] for row in cells]),
    )


def attention_statistics(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int = 1000,
    transient: int = 1000,
    **parameters: Unpack[Parameters],
) -> AttentionStatistics:
    r"""Compute statistics of the attention weights along orbits of the mean field.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states, of one system or of a batch.
    steps : int, default 1000
        Number of steps that are averaged.
    transient : int, default 1000
        Number of steps that are dropped first.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    AttentionStatistics
        Mean weights by age, their deviation, entropy and effective number of tokens.

    Raises
    ------
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    Notes
    -----
    With the weights π_τ of the tokens in the window, the entropy and the effective number are

    .. math::

        S = -\sum_\tau \pi_\tau \ln \pi_\tau, \qquad n = e^{S} .

    References
    ----------
    [poclopez2024dynamical, Eqs. (14) and (16)]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> found = attention_statistics(
    ...     Network.document().with_parameters(gamma=0.0), Context(np.zeros((4, 3)), 0), beta=1.0,
    ...     steps=8,
    ... )
    >>> found.mean, f"{found.effective:.3f}"
    (array([0.25, 0.25, 0.25, 0.25]), '4.000')
    """
    steps = check_integer("steps", steps, low=1)
    transient = check_integer("transient", transient, low=0)
    _, state = trajectory(network, context, steps=0, transient=transient, **parameters)
    beta = parameters["beta"]
    gamma = parameters.get("gamma")
    gamma = network.gamma if gamma is None else gamma
    total = np.zeros((*state.attention.shape[:-2], network.context))
    squares = np.zeros_like(total)
    entropy = np.zeros(total.shape[:-1])
    effective = np.zeros_like(entropy)
    largest = np.zeros_like(entropy)
    for _ in range(steps):
        window = token_overlaps(network, state, beta, epsilon=parameters.get("epsilon"))
        weights = softmax_weights(window, gamma=gamma)
        total += weights
        squares += weights**2
        # The weights of the softmax are positive; those that underflow add nothing.
        own = -(weights * np.log(np.maximum(weights, np.finfo(float).tiny))).sum(axis=-1)
        entropy += own
        effective += np.exp(own)
        largest += weights.max(axis=-1)
        _, state = trajectory(network, state, steps=0, transient=1, **parameters)
    mean = total / steps
    deviation = np.sqrt(np.maximum(squares / steps - mean**2, 0.0))
    return AttentionStatistics(
        mean=mean,
        deviation=deviation,
        entropy=entropy / steps,
        effective=effective / steps,
        largest=largest / steps,
    )


# ---- parts


def _one_state(system: AttentionNetwork | Map, start: Any) -> System:
    """The common form of a system, and a check that the start is one state, not a batch."""
    common = as_system(system, start)
    batch = common.flat(start).shape[:-1]
    if batch:
        raise ValueError(
            f"start must be one state, got a batch of shape {batch}: call once for each of them"
        )
    return common


def _orbit(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    steps: int,
    transient: int,
    parameters: dict[str, Any],
) -> tuple[np.ndarray, Any]:
    """Observables (..., steps, d) and the states at the end, parameters as numbers or (V,)."""
    if isinstance(system, AttentionNetwork):
        return trajectory(system, start, steps=steps, transient=transient, **parameters)
    common = as_system(system, start)
    values = {
        name: check_array(name, value)
        for name, value in (dict(system.parameters) | parameters).items()
    }
    shape = np.broadcast_shapes(*(value.shape for value in values.values()))
    origin = np.asarray(start, dtype=float)
    lanes = {name: np.broadcast_to(value, shape).ravel() for name, value in values.items()}
    states = np.tile(origin, (int(np.prod(shape)), 1))
    states = common.advance(states, steps=transient, parameters=lanes)
    orbit, states = common.observe(states, steps=steps, parameters=lanes)
    return orbit.reshape(*shape, steps, -1), states.reshape(*shape, -1)


def _axis(name: str, given: Any, allowed: Sequence[str]) -> tuple[str, np.ndarray]:
    try:
        parameter, values = given
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be the name of a parameter and its values") from None
    return check_choice(name, parameter, allowed), check_array(name, values, shape=("n",))


def _digest(system: AttentionNetwork | Map, start: np.ndarray, settings: Any) -> str:
    """What a diagram is computed from, in a short text."""
    text = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    text.update(np.ascontiguousarray(start).tobytes())
    if isinstance(system, Map):
        # Of a function the name and the compiled code are known, not what it refers to.
        code = getattr(system.step, "__code__", None)
        text.update(b"" if code is None else code.co_code)
        text.update(json.dumps(dict(system.parameters), sort_keys=True).encode())
    else:
        for part in (system.semantic, system.position, system.fractions):
            text.update(np.ascontiguousarray(part).tobytes())
        text.update(json.dumps([system.context, system.gamma, system.epsilon]).encode())
    return text.hexdigest()


def _opened(folder: Path, digest: str) -> Path:
    """The folder, if it is new or holds rows of the same diagram."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "diagram.txt"
    if note.exists() and note.read_text(encoding="utf-8") != digest:
        raise ValueError(f"folder must be new or hold the same diagram, {folder} holds another")
    if not note.exists():
        if any(folder.iterdir()):
            raise ValueError(f"folder must be new or hold the same diagram, got {folder}")
        note.write_text(digest, encoding="utf-8")
    return folder
