"""Batches of states of a network or of a map, in the form in which their owner has them.

States of a network are a `Context`, those of a map an array (..., n). What follows many orbits at
once uses these functions and does not ask which of the two it has.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spinformer.core.checks import check_array, check_broadcast
from spinformer.dmft.maps import LARGEST_STATE, Map, as_system
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import AttentionNetwork, Context


def iterate(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    steps: int,
    parameters: Mapping[str, Any],
    transient: int = 0,
) -> tuple[np.ndarray, Any]:
    """Iterate states, with parameters that broadcast against their batch.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or ndarray
        Initial states, of one system or of a batch.
    steps : int
        Number of steps that are recorded.
    parameters : mapping of str to float or ndarray
        Parameters of the system.
    transient : int, default 0
        Number of steps that are dropped first.

    Returns
    -------
    orbit : ndarray, shape (..., steps, d)
        Observables: the overlaps m^o of a network, the components of a map.
    states : Context or ndarray
        The states at the end.
    """
    if isinstance(system, AttentionNetwork):
        return trajectory(system, start, steps=steps, transient=transient, **parameters)
    common = as_system(system, start)
    states, lanes, batch = flat_lanes(system, start, parameters)
    if transient:
        states = common.advance(states, steps=transient, parameters=lanes)
    orbit, states = common.observe(states, steps=steps, parameters=lanes)
    return orbit.reshape(*batch, *orbit.shape[1:]), states.reshape(*batch, system.dimension)


def flat_lanes(
    system: Map, start: Any, parameters: Mapping[str, Any]
) -> tuple[np.ndarray, dict[str, Any], tuple[int, ...]]:
    """Broadcast states and parameters of a map against each other, and flatten their batch.

    Parameters
    ----------
    system : Map
        The map.
    start : array_like, shape (..., n)
        States.
    parameters : mapping of str to float or array_like
        Parameters other than those of the map.

    Returns
    -------
    states : ndarray, shape (B, n)
        The states.
    parameters : dict of str to float or ndarray of shape (B,)
        All parameters.
    batch : tuple of int
        Shape of the batch.

    Raises
    ------
    TypeError
        If a parameter is unknown.
    ValueError
        If shapes do not broadcast, or a parameter is not finite.
    """
    for name in parameters:
        if name not in system.parameters:
            raise TypeError(
                f"{name} is no parameter of the map, which has {tuple(system.parameters)}"
            )
    values = {
        name: check_array(name, value, low=-LARGEST_STATE, high=LARGEST_STATE)
        for name, value in (dict(system.parameters) | dict(parameters)).items()
    }
    origin = np.asarray(start, dtype=float)
    shapes = {name: value.shape for name, value in values.items()}
    batch = check_broadcast(start=origin.shape[:-1], **shapes)
    # A single number stays one: a step may do with it what no array allows.
    lanes: dict[str, Any] = {
        name: np.broadcast_to(value, batch).ravel() if value.ndim else float(value)
        for name, value in values.items()
    }
    states = np.broadcast_to(origin, (*batch, system.dimension)).reshape(-1, system.dimension)
    return states, lanes, batch


def drive_period(system: AttentionNetwork | Map) -> int:
    """Return the period 2^K of the positional code, 1 for a map.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.

    Returns
    -------
    int
        Number of steps.
    """
    return 1 if isinstance(system, Map) else system.positions


def flat_batch(states: Any) -> Any:
    """Flatten the axes of a batch.

    Parameters
    ----------
    states : Context or array_like
        States, attention of shape (..., T, P) or an array (..., n).

    Returns
    -------
    Context or ndarray
        States, attention of shape (B, T, P) or an array (B, n).
    """
    if isinstance(states, Context):
        shape = (-1, *states.attention.shape[-2:])
        return Context(states.attention.reshape(shape), states.position)
    flat = np.asarray(states, dtype=float)
    return flat.reshape(-1, flat.shape[-1])


def components(states: Any) -> np.ndarray:
    """Return the components of a flat batch of states.

    Parameters
    ----------
    states : Context or ndarray
        States of a batch (B,).

    Returns
    -------
    ndarray, shape (B, n)
        Their components.
    """
    if isinstance(states, Context):
        return states.attention.reshape(len(states.attention), -1)
    return np.asarray(states)


def select_states(states: Any, index: np.ndarray) -> Any:
    """Select states of a batch by an index into its first axis.

    Parameters
    ----------
    states : Context or ndarray
        States of a batch (B,).
    index : ndarray of int
        The index.

    Returns
    -------
    Context or ndarray
        The selected states.
    """
    return states.select(index) if isinstance(states, Context) else states[index]


def at_position_zero(
    system: AttentionNetwork | Map, states: Any, parameters: Mapping[str, Any]
) -> Any:
    """Iterate states to position 0 of the positional code, where they are not there.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    states : Context or ndarray
        States of a batch.
    parameters : mapping of str to float or ndarray
        Parameters of the system.

    Returns
    -------
    Context or ndarray
        The states at position 0.
    """
    if not isinstance(states, Context) or not states.position:
        return states
    ahead = drive_period(system) - states.position
    return iterate(system, states, steps=0, transient=ahead, parameters=parameters)[1]


def own_parameters(
    parameters: Mapping[str, Any], index: np.ndarray, *, count: int
) -> dict[str, Any]:
    """Select the parameters of some states of a batch of `count`.

    Parameters
    ----------
    parameters : mapping of str to float or ndarray of shape (count,)
        Parameters of all states.
    index : ndarray of int
        Numbers of the states.
    count : int
        Number of states in the batch.

    Returns
    -------
    dict of str to float or ndarray
        Parameters of the selected states.
    """
    return {
        name: value[index] if np.shape(value) == (count,) else value
        for name, value in parameters.items()
    }
