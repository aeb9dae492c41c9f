"""The conditions for a bifurcation of a cycle, and the equations that hold cycle and condition.

See `spinformer.dmft.bifurcations` for what they are used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np

from spinformer.core.continuation import Equations
from spinformer.dmft.network import Network
from spinformer.dmft.return_map import returned
from spinformer.dmft.state import Context

PARAMETERS = ("beta", "gamma", "epsilon")
# What a parameter is measured in along a curve, the step of its differences in this unit, and
# what it is allowed to be.
UNIT = {"beta": 1.0, "gamma": 100.0, "epsilon": 0.1}
_HIGHEST = {"beta": np.inf, "gamma": np.inf, "epsilon": 1.0}
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5


class Kind(IntEnum):
    """What happens to a cycle."""

    FOLD = 0
    FLIP = 1
    TORUS = 2


class Point(Protocol):
    """A cycle at given parameters: what the equations start from."""

    @property
    def value(self) -> Context:
        """A context (T, P) on the cycle."""

    @property
    def period(self) -> int:
        """Its steps."""


def conditions(multipliers: np.ndarray) -> np.ndarray:
    """The three functions (..., 3), in the order of `Kind`, of multipliers (..., n).

    >>> conditions(np.array([0.5, -1.0]))
    array([1. , 0. , 1.5])
    """
    mu = np.asarray(multipliers)
    first, second = np.triu_indices(mu.shape[-1], 1)
    found = [
        np.prod(1.0 - mu, axis=-1),
        np.prod(1.0 + mu, axis=-1),
        np.prod(1.0 - mu[..., first] * mu[..., second], axis=-1),
    ]
    return np.real(np.stack(found, axis=-1))


def parameters_of(start: Point) -> dict[str, float]:
    """β, γ and ε of a cycle or a bifurcation.

    >>> from spinformer.dmft.cycles import cycle
    >>> found = cycle(Network.document(), Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> parameters_of(found)["epsilon"]
    0.02
    """
    return {name: float(getattr(start, name)) for name in PARAMETERS}


def equations_of(
    network: Network, start: Point, *, free: Sequence[str], kind: Kind | None
) -> Equations:
    """u = (x, free parameters) → Φ(x) − x and, if a kind is given, its condition; the Jacobian.

    The period and the fixed parameters are those of `start`.

    >>> from spinformer.dmft.cycles import cycle
    >>> network = Network.document()
    >>> found = cycle(network, Context(np.zeros((4, 3)), 0), beta=1.2, period=4)
    >>> equations = equations_of(network, found, free=("beta",), kind=Kind.TORUS)
    >>> value, jacobian = equations(np.append(found.value.attention.ravel(), 1.2))
    >>> value.shape, jacobian.shape
    ((13,), (13, 13))
    """
    fixed, shape = parameters_of(start), start.value.attention.shape
    size = int(np.prod(shape))

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = size + (kind is not None)
        low = np.append(np.full(size, -np.inf), np.zeros(len(free)))
        high = np.append(np.full(size, np.inf), [_HIGHEST[name] for name in free])
        if not np.isfinite(u).all() or (u < low).any() or (u > high).any():
            return np.full(count, np.nan), np.full((count, len(u)), np.nan)
        # Without a condition the derivative by x is exact and needs no differences.
        moved = np.arange(0 if kind is not None else size, len(u))
        width = _DIFFERENCE * np.append(np.ones(size), [UNIT[name] for name in free])
        shift = np.zeros((len(moved), len(u)))
        shift[np.arange(len(moved)), moved] = width[moved]
        points = np.clip(np.concatenate([u[None], u + shift, u - shift]), low, high)
        given = {name: np.full(len(points), value) for name, value in fixed.items()}
        given |= {name: points[:, size + i] for i, name in enumerate(free)}
        states = Context(points[:, :size].reshape(-1, *shape), start.value.position)
        ends, matrices = returned(network, states, steps=start.period, threads=1, **given)
        value = ends.attention.reshape(-1, size) - points[:, :size]
        if kind is not None:
            extra = conditions(np.linalg.eigvals(matrices))[:, kind]
            value = np.column_stack([value, extra])
        ahead, behind = np.split(points[1:], 2)
        distance = (ahead - behind)[np.arange(len(moved)), moved]
        above, below = np.split(value[1:], 2)
        jacobian = np.empty((count, len(u)))
        jacobian[:, moved] = ((above - below) / distance[:, None]).T
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    return equations


def critical_rotation(multipliers: np.ndarray, *, kind: Kind) -> np.ndarray:
    """Turns a period (...) of the critical one of multipliers (..., n); NaN if none is of the kind.

    >>> critical_rotation(np.array([1j, -1j, 0.3]), kind=Kind.TORUS)
    array(0.25)
    """
    if kind == Kind.TORUS:
        off = np.abs(np.abs(multipliers) - 1.0)
        off = np.where(np.abs(multipliers.imag) > _NEAR, off, np.inf)
    else:
        off = np.abs(multipliers - (1.0 if kind == Kind.FOLD else -1.0))
    index = np.argmin(off, axis=-1)[..., None]
    nearest = np.take_along_axis(off, index, axis=-1)[..., 0]
    turns = np.abs(np.angle(np.take_along_axis(multipliers, index, axis=-1)[..., 0])) / (2 * np.pi)
    if kind != Kind.TORUS:
        turns = np.full(turns.shape, 0.0 if kind == Kind.FOLD else 0.5)
    return np.where(nearest < _NEAR, turns, np.nan)
