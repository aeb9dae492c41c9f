"""Maps x' = f(x) of one's own, and the common form in which cycles and basins see any system.

A `Map` is a function of a state and of named parameters. What finds cycles, bifurcations,
attractors and basins takes a `Map` or an `AttentionNetwork`; `as_system` gives both the same form:
flat states (B, n), a number of steps, and the derivative of these steps by the state.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_function,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import period_map
from spinformer.dmft.network import AttentionNetwork, Context, check_context

# States and parameters of a map beyond this would overflow in products.
LARGEST_STATE = 1e100
# Step of a fourth-order difference, in units of a component or of one, whichever is larger: it
# balances the truncation, h⁴, and the rounding, ε/h.
_DIFFERENCE = 1e-3
# A step that also follows functions as steep as tanh(1e4 x), for two digits.
_SHORT_DIFFERENCE = 1e-6
# Weights of f(x + kh), k = −2, −1, 1, 2, in the derivative of fourth order.
_NODES = np.array([-2.0, -1.0, 1.0, 2.0])
_WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / 12.0


@record
class Map:
    r"""Discrete-time dynamical system, a map x' = f(x) with named parameters.

    Parameters
    ----------
    step : callable
        Called as `step(x, **parameters)`, it returns the next state. The components of x are on its
        first axis, shape (n,) or (n, B) for B states at once, with parameters that are numbers or
        have the shape (B,). NumPy code that is written for one state does for many, if a sum over
        components is one over the first axis, `x.sum(axis=0)`, and a constant vector c is added as
        `(x.T + c).T`. A step in which one state changes another is refused when it is used.
    dimension : int
        Number n of components.
    parameters : mapping of str to float
        Values of the parameters.
    jacobian : callable or {"torch"}, optional
        The derivative of a step by one state (n,), called as `jacobian(x, **parameters)`, of shape
        (n, n), with component i by component j at [i, j]. When it is used it is compared with
        differences of the step. With "torch", `step` is written with torch's functions and its
        automatic derivative is taken. None takes central differences of fourth order, exact to
        about 1e-12.

    Raises
    ------
    TypeError
        If `step` or `jacobian` is not a function, or a parameter is not a number.
    ValueError
        If `dimension` is below 1 or a parameter is not finite.

    Examples
    --------
    >>> henon = Map(
    ...     step=lambda x, a, b: np.array([1.0 - a * x[0] ** 2 + x[1], b * x[0]]),
    ...     dimension=2,
    ...     parameters={"a": 1.4, "b": 0.3},
    ... )
    >>> henon.step(np.zeros(2), **henon.parameters)
    array([1., 0.])
    """

    step: Callable[..., Any]
    dimension: int
    parameters: Mapping[str, float]
    jacobian: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no map."""
        check_function("step", self.step)
        check_integer("dimension", self.dimension, low=1)
        check_instance("parameters", self.parameters, Mapping)  # type: ignore[type-abstract]
        for name, value in self.parameters.items():
            check_real(name, value, low=-LARGEST_STATE, high=LARGEST_STATE)
        if isinstance(self.jacobian, str):
            check_choice("jacobian", self.jacobian, ("torch",))
        elif self.jacobian is not None:
            check_function("jacobian", self.jacobian)


class System(ABC):
    """Common form of a map and of a network: flat states (B, n) and parameters by name."""

    # Number n of components of a state.
    size: int
    names: tuple[str, ...]
    # Values of the parameters that need not be given.
    defaults: dict[str, float]
    # Whether the derivative is exact, not from differences.
    exact: bool
    # Step of a central difference of what depends on the derivative.
    difference: float

    @abstractmethod
    def advance(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> np.ndarray:
        """Iterate the map.

        Parameters
        ----------
        states : ndarray, shape (B, n)
            Initial states.
        steps : int
            Number of steps.
        parameters : mapping of str to float or ndarray of shape (B,)
            Parameters.

        Returns
        -------
        ndarray, shape (B, n)
            Final states.
        """

    @abstractmethod
    def derivative(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Iterate the map and its tangent map.

        Parameters
        ----------
        states : ndarray, shape (B, n)
            Initial states.
        steps : int
            Number of steps.
        parameters : mapping of str to float or ndarray of shape (B,)
            Parameters.

        Returns
        -------
        states : ndarray, shape (B, n)
            Final states.
        matrices : ndarray, shape (B, n, n)
            Derivatives of the final states by the initial ones.
        """

    @abstractmethod
    def observe(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Iterate the map and record what is looked at: of a network the overlaps m^o.

        Parameters
        ----------
        states : ndarray, shape (B, n)
            Initial states.
        steps : int
            Number of steps.
        parameters : mapping of str to float or ndarray of shape (B,)
            Parameters.

        Returns
        -------
        orbit : ndarray, shape (B, steps, d)
            Observables of every step.
        states : ndarray, shape (B, n)
            Final states.
        """

    @abstractmethod
    def unit(self, parameters: Mapping[str, Any]) -> int:
        """Return the period of the drive, of which the period of every cycle is a multiple.

        Parameters
        ----------
        parameters : mapping of str to float or ndarray
            Parameters.

        Returns
        -------
        int
            Number of steps, 1 without a drive.
        """

    @abstractmethod
    def flat(self, value: Any) -> np.ndarray:
        """Return the components of states.

        Parameters
        ----------
        value : Context or ndarray
            States in the form of the system.

        Returns
        -------
        ndarray, shape (..., n)
            Their components.
        """

    @abstractmethod
    def state(self, flat: np.ndarray) -> Any:
        """Return states in the form of the system.

        Parameters
        ----------
        flat : ndarray, shape (..., n)
            Components.

        Returns
        -------
        Context or ndarray
            The states.
        """

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        """Check parameters, and complete them with those that need not be given.

        Parameters
        ----------
        parameters : mapping of str to float
            Parameters by name, each a single number.

        Returns
        -------
        dict of str to float
            All parameters.

        Raises
        ------
        TypeError
            If a parameter is unknown, missing, or not a number.
        """
        for name in parameters:
            if name not in self.names:
                raise TypeError(f"{name} is no parameter of the system, which has {self.names}")
        values = self.defaults | {
            name: check_real(name, value, low=-LARGEST_STATE, high=LARGEST_STATE)
            for name, value in parameters.items()
            if value is not None
        }
        for name in self.names:
            if name not in values:
                raise TypeError(f"{name} must be given")
        return values


class _NetworkSystem(System):
    """Mean field of a network from a position of the positional code on.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    position : int
        Position of the token that the newest attention vector of a state produces.
    """

    names = ("beta", "gamma", "epsilon")
    exact = True
    difference = 1e-7

    def __init__(self, network: AttentionNetwork, position: int) -> None:
        self.network = network
        self.position = position
        self.size = network.context * network.features
        self.defaults = {"gamma": network.gamma, "epsilon": network.epsilon}

    def _ensemble(self, states: np.ndarray, parameters: Mapping[str, Any]) -> Ensemble:
        return Ensemble(self.network, self.state(states), threads=1, **_allowed(parameters))

    def advance(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> np.ndarray:
        """Iterate the mean field; see `System.advance`."""
        ensemble = self._ensemble(states, parameters)
        ensemble.advance(steps)
        return self.flat(ensemble.state())

    def derivative(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Iterate the mean field and its tangent map; see `System.derivative`."""
        start = self.state(states)
        inside = _allowed(parameters)
        end, matrices = period_map(self.network, start, steps=steps, threads=1, **inside)
        return self.flat(end), matrices

    def observe(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Record the semantic overlaps m^o; see `System.observe`."""
        ensemble = self._ensemble(states, parameters)
        orbit = ensemble.record(steps)
        return orbit, self.flat(ensemble.state())

    def unit(self, parameters: Mapping[str, Any]) -> int:
        """Return the period 2^K of the positional code, 1 while ε = 0."""
        # Without a weight the positions are names only.
        driven = np.any(np.asarray(parameters.get("epsilon", self.network.epsilon)) > 0.0)
        return self.network.positions if driven else 1

    def flat(self, value: Any) -> np.ndarray:
        """Return the components of contexts, by age (newest first), then by feature."""
        attention = value.attention
        return np.asarray(attention.reshape(*attention.shape[:-2], self.size))

    def state(self, flat: np.ndarray) -> Context:
        """Return contexts at the position of the system."""
        shape = (self.network.context, self.network.features)
        return Context(flat.reshape(*flat.shape[:-1], *shape), self.position)


def _allowed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The nearest parameters that a network can have: Newton's method tries others, too."""
    inside = {name: np.maximum(value, 0.0) for name, value in parameters.items()}
    if "epsilon" in inside:
        inside["epsilon"] = np.minimum(inside["epsilon"], 1.0)
    return inside


class _MapSystem(System):
    """Map of one's own.

    Parameters
    ----------
    given : Map
        The map.
    """

    def __init__(self, given: Map) -> None:
        self.map = given
        self.size = given.dimension
        self.names = tuple(given.parameters)
        self.defaults = dict(given.parameters)
        self.exact = given.jacobian is not None
        self.difference = 1e-5 if self.exact else 1e-4

    def check_columns(self, states: np.ndarray) -> None:
        """Check that a step moves each of several states as if it were alone.

        Parameters
        ----------
        states : ndarray, shape (B, n)
            States, of which the first is tried.

        Raises
        ------
        ValueError
            If the first state moves elsewhere in company.
        """
        if not len(states):
            return
        one = states[:1].T
        away = 1e-3 * (1.0 + np.abs(one))
        company = np.concatenate([one, one + away, one - 3.0 * away], axis=1)
        alone = self._step(one, self.defaults)
        together = self._step(company, self.defaults)[:, :1]
        # Products of matrices round differently for one column and for two.
        room = 1e-9 * max(1.0, float(np.abs(alone).max()))
        if not np.allclose(together, alone, rtol=0.0, atol=room, equal_nan=True):
            raise ValueError(
                "step must move each column of x (n, B) as if it were alone: sums over components "
                "need axis=0, and a constant vector c is added as (x.T + c).T"
            )

    def check_jacobian(self, states: np.ndarray) -> None:
        """Check a derivative that was given against short differences of the step.

        Parameters
        ----------
        states : ndarray, shape (B, n)
            States, of which the first is tried, and two beside it: a step may have a kink at one.

        Raises
        ------
        ValueError
            If the derivative is another one at each of the three.
        """
        if not callable(self.map.jacobian) or not len(states):
            return
        one = states[:1].T
        away = 1e-3 * (1.0 + np.abs(one))
        points = np.concatenate([one, one + away, one - 3.0 * away], axis=1)
        # Beside a state the map need not be defined. What is not a number is not refused here.
        with np.errstate(all="ignore"):
            given = self._jacobian(points, self.defaults)
            expected = self._differences(points, self.defaults, step=_SHORT_DIFFERENCE)
            # Also where an entry is small beside the others its difference is known this well.
            room = 0.01 * np.abs(expected).max(axis=(1, 2)) + 1e-6
            apart = np.abs(given - expected).max(axis=(1, 2))
        if np.all(apart > room):
            raise ValueError(
                "jacobian must be the derivative of step, [i, j] that of component i by component "
                f"j, got {given[0].tolist()} at {one[:, 0].tolist()}, where differences of step "
                f"give {expected[0].round(6).tolist()}"
            )

    def _step(self, columns: np.ndarray, parameters: Mapping[str, Any]) -> np.ndarray:
        """One step of states (n, B)."""
        if self.map.jacobian == "torch":
            import torch

            given = {
                name: torch.as_tensor(value, dtype=torch.float64)
                for name, value in parameters.items()
            }
            result = self._called(torch.from_numpy(columns), given)
            following = np.asarray(result.detach().numpy(), dtype=float)
        else:
            # A map that escapes to infinity is told by what it returns.
            with np.errstate(over="ignore", invalid="ignore"):
                following = np.asarray(self._called(columns, parameters), dtype=float)
        if following.shape != columns.shape:
            raise ValueError(
                f"step must return the shape {columns.shape} of its states, one a column, got "
                f"{following.shape}"
            )
        return following

    def _called(self, columns: Any, parameters: Mapping[str, Any]) -> Any:
        """What the step of the user returns, its error with the shapes that it was given."""
        try:
            return self.map.step(columns, **parameters)
        except (ValueError, RuntimeError) as error:
            shapes = {name: tuple(np.shape(value)) for name, value in parameters.items()}
            raise ValueError(
                f"step must take states of shape (n, B) and parameters of shape () or (B,), got an "
                f"error from x of shape {tuple(columns.shape)} and {shapes}: {error}"
            ) from error

    def _jacobian(self, columns: np.ndarray, parameters: Mapping[str, Any]) -> np.ndarray:
        """Derivatives (B, n, n) of a step at states (n, B)."""
        size, many = columns.shape
        if self.map.jacobian is None:
            return self._differences(columns, parameters)
        spread = {name: np.broadcast_to(value, many) for name, value in parameters.items()}
        if self.map.jacobian == "torch":
            import torch

            given = {
                name: torch.tensor(value, dtype=torch.float64) for name, value in spread.items()
            }
            one = torch.func.jacrev(lambda x, p: self.map.step(x, **p))
            tangent = torch.func.vmap(one, in_dims=(1, 0))(torch.from_numpy(columns), given)
            return np.asarray(tangent.detach().numpy(), dtype=float)
        assert callable(self.map.jacobian)
        matrices = np.empty((many, size, size))
        for lane in range(many):
            own = {name: float(value[lane]) for name, value in spread.items()}
            matrix = np.asarray(self.map.jacobian(columns[:, lane], **own), dtype=float)
            if matrix.shape != (size, size):
                raise ValueError(f"jacobian must return shape {(size, size)}, got {matrix.shape}")
            matrices[lane] = matrix
        return matrices

    def _differences(
        self, columns: np.ndarray, parameters: Mapping[str, Any], *, step: float = _DIFFERENCE
    ) -> np.ndarray:
        size, many = columns.shape
        width = step * np.maximum(1.0, np.abs(columns))
        # Axes: component of the state, direction that moves, node, lane.
        moved = np.tile(columns[:, None, None], (1, size, len(_NODES), 1))
        for direction in range(size):
            moved[direction, direction] += _NODES[:, None] * width[direction]
        spread = {
            name: np.tile(np.broadcast_to(value, many), size * len(_NODES))
            for name, value in parameters.items()
        }
        values = self._step(moved.reshape(size, -1), spread).reshape(moved.shape)
        slopes = np.einsum("k,idkb->bid", _WEIGHTS, values)
        return np.asarray(slopes / width.T[:, None, :])

    def advance(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> np.ndarray:
        """Iterate the map; see `System.advance`."""
        columns = np.ascontiguousarray(states.T)
        for _ in range(steps):
            columns = self._step(columns, parameters)
        return np.ascontiguousarray(columns.T)

    def derivative(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Iterate the map and its tangent map; see `System.derivative`."""
        columns = np.ascontiguousarray(states.T)
        matrices = np.broadcast_to(np.eye(self.size), (len(states), self.size, self.size))
        for _ in range(steps):
            with np.errstate(over="ignore", invalid="ignore"):
                matrices = self._jacobian(columns, parameters) @ matrices
            columns = self._step(columns, parameters)
        return np.ascontiguousarray(columns.T), np.ascontiguousarray(matrices)

    def observe(
        self, states: np.ndarray, *, steps: int, parameters: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Record the states themselves; see `System.observe`."""
        columns = np.ascontiguousarray(states.T)
        orbit = np.empty((len(states), steps, self.size))
        for number in range(steps):
            columns = self._step(columns, parameters)
            orbit[:, number] = columns.T
        return orbit, np.ascontiguousarray(columns.T)

    def unit(self, parameters: Mapping[str, Any]) -> int:
        """Return 1: a map has no drive."""
        return 1

    def flat(self, value: Any) -> np.ndarray:
        """Return the states, whose last axis is that of the components."""
        return np.asarray(value, dtype=float)

    def state(self, flat: np.ndarray) -> np.ndarray:
        """Return the states."""
        return flat


def as_system(system: AttentionNetwork | Map, start: Any, *, name: str = "start") -> System:
    """Give a network or a map the common form, and check states of it.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The system.
    start : Context or array_like
        States, a `Context` of a network or an array (..., n) of a map.
    name : str, default "start"
        Name of the states, for the error.

    Returns
    -------
    System
        The system in the common form.

    Raises
    ------
    TypeError
        If `system` is neither a network nor a map, or the states are of another class.
    ValueError
        If the states do not fit the system, the step of a map does not move each column as if it
        were alone, or the Jacobian that was given is not its derivative.

    Examples
    --------
    >>> doubling = Map(step=lambda x, a: a * x % 1.0, dimension=1, parameters={"a": 2.0})
    >>> system = as_system(doubling, [0.3])
    >>> system.advance(np.array([[0.3]]), steps=2, parameters={"a": 2.0}).round(9)
    array([[0.2]])
    """
    if isinstance(system, Map):
        check_array(
            name, start, shape=(..., system.dimension), low=-LARGEST_STATE, high=LARGEST_STATE
        )
        own = _MapSystem(system)
        states = np.asarray(start, dtype=float).reshape(-1, system.dimension)
        own.check_columns(states)
        own.check_jacobian(states)
        return own
    if not isinstance(system, AttentionNetwork):
        raise TypeError(f"system must be an AttentionNetwork or a Map, got {type(system).__name__}")
    check_instance(name, start, Context)
    check_context(system, start)
    return _NetworkSystem(system, start.position)
