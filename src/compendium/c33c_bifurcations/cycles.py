"""Cycles of a network and their bifurcations, stable or not.

A cycle of q steps is a context with Φ_q(x) = x, Φ_q being q compiled steps. Its position comes back
as well, so that q is a multiple of 2^K unless ε = 0. Newton's method has the exact derivative, the
monodromy matrix ∂Φ_q/∂x (`lyapunov.returned`), whose eigenvalues are the Floquet multipliers. Long
runs find stable cycles only, Newton's method finds saddles, too.

A cycle changes its stability where a multiplier μ crosses the unit circle: at μ = 1 two cycles
meet and vanish (fold), at μ = −1 one of twice the period is born (flip), at μ = e^{±iα} a closed
curve, on which the motion turns by α a period (Neimark-Sacker, here TORUS). Three functions of the
multipliers vanish there and are smooth in state and β,

    fold: Π_i (1 − μ_i),   flip: Π_i (1 + μ_i),   torus: Π_{i<j} (1 − μ_i μ_j);

the last one also at a *neutral saddle*, μ and 1/μ real, which is no bifurcation and is told apart
[kuznetsov2004elements, Ch. 10]. Cycle and condition together are one system of equations, regular
at such a point. Its Jacobian holds the exact monodromy matrix; derivatives by β and of the
conditions are central differences of the compiled return map, all in the lanes of one block.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.optimize import root

from compendium.c33c_bifurcations.curves import Equations, follow
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.lyapunov import returned
from spinformer.dmft.network import Context, Network

# Shares of a Newton step that are tried side by side, in the lanes of one block; the best is taken.
_SHARES = np.array([1.0, 0.5, 0.25, 0.125, 1 / 32, 1 / 128])
# Two states of an orbit closer than this are one: the cycle is shorter than asked.
_SAME = 1e-7
# Largest residual of a cycle, and of a bifurcation.
_TOLERANCE, _FOUND = 1e-11, 1e-9
_DIFFERENCE = 1e-7
# How near the unit circle the multiplier of a located point must be, and how far off the real
# axis for a closed curve.
_NEAR = 1e-5


@record
class Cycle:
    """A context (T, P) on a cycle, or near one, at β.

    period: steps until the state comes back for the first time. multipliers: (n,) complex, n = T·P,
    the largest modulus first, of one period.
    """

    value: Context
    beta: float
    period: int
    multipliers: np.ndarray


def cycle(
    network: Network, start: Context, *, period: int, beta: float, max_steps: int = 40
) -> Cycle:
    """The cycle of `period` steps (or a divisor) that Newton's method reaches from `start`.

    Of several shares of each Newton step the best is taken; what is found is polished by one more.
    Raises NotConverged where an entry of |Φ(x) − x| stays above 1e-11.
    """
    # At ε = 0 a period need not bring the position back; it does not matter then.
    unit = network.positions if network.epsilon > 0.0 else 1
    if period % unit:
        raise ValueError(
            f"period must be a multiple of the {unit} positions while epsilon > 0, got {period}"
        )
    x = start.attention.ravel()
    tried, residual = x[None], np.inf
    for _ in range(max_steps + 1):
        ends, matrices = _returned(network, start, tried, period, beta)
        gaps = ends - tried
        sizes = np.nan_to_num(np.abs(gaps).max(axis=1), nan=np.inf)
        index = int(np.argmin(sizes))
        polished, better = residual <= _TOLERANCE, bool(sizes[index] < residual)
        if better:
            x, residual, matrix = tried[index], float(sizes[index]), matrices[index]
            change = np.linalg.lstsq(matrix - np.eye(x.size), -gaps[index], rcond=None)[0]
            tried = x + _SHARES[:, None] * change
        if polished or not better:
            break
    if residual > _TOLERANCE:
        raise NotConverged(f"no cycle of {period} steps was found, the residual is {residual:.1g}")
    for divisor in range(unit, period, unit):
        if period % divisor == 0:
            end, shorter = _returned(network, start, x, divisor, beta)
            if np.abs(end - x).max() < _SAME:
                period, matrix = divisor, shorter
                break
    multipliers = _sorted_multipliers(matrix)
    return Cycle(value=_like(start, x), beta=beta, period=period, multipliers=multipliers)


def _like(value: Context, x: np.ndarray) -> Context:
    """States (..., n) as contexts like `value`."""
    return Context(x.reshape(*x.shape[:-1], *value.attention.shape[-2:]), value.position)


def _returned(
    network: Network, kind: Context, x: np.ndarray, steps: int, beta: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States (..., n) after `steps` steps from `x` (..., n), and the derivatives (..., n, n)."""
    end, matrix = returned(network, _like(kind, x), beta=beta, steps=steps, threads=1)
    return end.attention.reshape(x.shape), matrix


def _sorted_multipliers(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues (..., n) of monodromy matrices (..., n, n), the largest modulus first."""
    values = np.linalg.eigvals(matrix).astype(complex)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    return np.take_along_axis(values, order, axis=-1)


# ---- bifurcations


class Kind(IntEnum):
    """What happens to a cycle."""

    FOLD = 0
    FLIP = 1
    TORUS = 2


@record
class Bifurcation(Cycle):
    """A point where a cycle of `period` steps bifurcates.

    rotation: turns a period of the critical pair: 0 at a fold, ½ at a flip.
    """

    kind: Kind
    rotation: float


@record
class Branch:
    """Cycles (m of them) along β, and the bifurcations met on the way.

    values: (m,) of β. context: (m, T, P). multipliers: (m, n).
    """

    values: np.ndarray
    context: Context
    multipliers: np.ndarray
    bifurcations: tuple[Bifurcation, ...]

    @property
    def stable(self) -> np.ndarray:
        """(m,) booleans."""
        return np.asarray(np.abs(self.multipliers[:, 0]) < 1.0)


def bifurcation(network: Network, start: Cycle, *, kind: Kind, max_steps: int = 200) -> Bifurcation:
    """The bifurcation of this kind near the cycle `start`, in β.

    `max_steps` limits the evaluations. Raises NotConverged where an entry of Φ(x) − x or the
    condition stays above 1e-9, or where what solves them is of another kind (a neutral saddle).
    """
    equations = _equations_of(network, start, kind=kind)

    def square(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, jacobian = equations(u)
        # Out of range: a wall that pushes the solver back.
        return np.nan_to_num(value, nan=1e3), np.nan_to_num(jacobian)

    u = np.append(start.value.attention.ravel(), start.beta)
    u = root(square, u, jac=True, options={"xtol": 1e-14, "maxfev": max_steps}).x
    x, beta = u[:-1], float(u[-1])
    what = f"no {kind.name.lower()} of the cycle of {start.period} steps was found"
    residual = float(np.abs(square(u)[0]).max())
    if residual > _FOUND:
        raise NotConverged(f"{what}, the residual is {residual:.1g}")
    multipliers = _sorted_multipliers(_returned(network, start.value, x, start.period, beta)[1])
    rotation = critical_rotation(multipliers, kind=kind)
    if np.isnan(rotation):
        raise NotConverged(f"{what}, but a neutral saddle")
    return Bifurcation(
        value=_like(start.value, x),
        beta=beta,
        period=start.period,
        multipliers=multipliers,
        kind=kind,
        rotation=rotation,
    )


def follow_bifurcation(
    network: Network, start: Bifurcation, *, name: str, values: Iterable[float]
) -> np.ndarray:
    """(n, 3): β, γ or ε (`name`), turns a period, of a bifurcation at some values of γ or ε.

    Each is found from the one before. The rows end where there is none: a curve of closed-curve
    births at a strong resonance 1:2, beyond which the equations go on along neutral saddles.
    """
    rows = []
    with suppress(NotConverged):
        for value in values:
            given: dict[str, Any] = {name: float(value)}
            start = bifurcation(network.with_parameters(**given), start, kind=start.kind)
            rows.append((start.beta, float(value), start.rotation))
    return np.array(rows)


def follow_cycle(
    network: Network,
    start: Cycle,
    *,
    step: float,
    within: tuple[float, float],
    max_steps: int = 200,
) -> Branch:
    """The branch of cycles through `start`, past its folds, in β.

    step: first change of β; its sign is the direction in which the branch starts. within: the
    branch ends where β leaves this interval. Sign changes of the three conditions between
    neighboring points are located; two of a kind within one step cancel, so that a small step
    finds more.
    """
    origin = np.append(start.value.attention.ravel(), start.beta)
    equations = _equations_of(network, start, kind=None)
    points = follow(equations, origin, step=step, within=within, max_steps=max_steps)
    states, values = points[:, :-1], points[:, -1]
    _, matrices = _returned(network, start.value, states, start.period, values)
    multipliers = _sorted_multipliers(matrices)
    signs = np.sign(_conditions(multipliers))
    found = []
    for number, kind in np.argwhere(signs[1:] != signs[:-1]).tolist():
        ends = points[number : number + 2]
        span = np.abs(ends[1] - ends[0]).max()
        for end in ends:
            near = replace(start, value=_like(start.value, end[:-1]), beta=float(end[-1]))
            with suppress(NotConverged):
                point = bifurcation(network, near, kind=Kind(kind))
                place = np.append(point.value.attention, point.beta)
                # Newton's method may have gone to another one, which has its own sign change.
                if np.abs(place - ends).max(axis=1).min() <= span:
                    found.append(point)
                    break
    return Branch(
        values=values,
        context=_like(start.value, states),
        multipliers=multipliers,
        bifurcations=tuple(found),
    )


def _conditions(multipliers: np.ndarray) -> np.ndarray:
    """The three functions (..., 3), in the order of `Kind`, of multipliers (..., n)."""
    first, second = np.triu_indices(multipliers.shape[-1], 1)
    found = [
        np.prod(1.0 - multipliers, axis=-1),
        np.prod(1.0 + multipliers, axis=-1),
        np.prod(1.0 - multipliers[..., first] * multipliers[..., second], axis=-1),
    ]
    return np.real(np.stack(found, axis=-1))


def critical_rotation(multipliers: np.ndarray, *, kind: Kind) -> float:
    """Turns a period of the critical one of the multipliers (n,); NaN if none is of the kind."""
    if kind == Kind.TORUS:
        off = np.abs(np.abs(multipliers) - 1.0)
        off = np.where(np.abs(multipliers.imag) > _NEAR, off, np.inf)
    else:
        off = np.abs(multipliers - (1.0 if kind == Kind.FOLD else -1.0))
    nearest = int(np.argmin(off))
    turns = float(np.abs(np.angle(multipliers[nearest])) / (2 * np.pi))
    return turns if off[nearest] < _NEAR else np.nan


def _equations_of(network: Network, start: Cycle, *, kind: Kind | None) -> Equations:
    """u = (x, β) → Φ(x) − x and, if a kind is given, its condition; the Jacobian."""
    size = start.value.attention.size
    # Without a condition the derivative by x is exact and needs no differences.
    moved = np.arange(0 if kind is not None else size, size + 1)
    shift = _DIFFERENCE * np.eye(size + 1)[moved]

    def equations(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = size + (kind is not None)
        if not np.isfinite(u).all() or u[-1] < 0.0:
            return np.full(count, np.nan), np.full((count, size + 1), np.nan)
        points = np.concatenate([u[None], u + shift, u - shift])
        points[:, -1] = np.maximum(points[:, -1], 0.0)
        states, betas = points[:, :-1], points[:, -1]
        ends, matrices = _returned(network, start.value, states, start.period, betas)
        value = ends - states
        if kind is not None:
            extra = _conditions(np.linalg.eigvals(matrices))[:, kind]
            value = np.column_stack([value, extra])
        ahead, behind = np.split(points[1:], 2)
        above, below = np.split(value[1:], 2)
        distance = (ahead - behind).sum(axis=1, keepdims=True)
        jacobian = np.empty((count, size + 1))
        jacobian[:, moved] = ((above - below) / distance).T
        jacobian[:size, :size] = matrices[0] - np.eye(size)
        return value[0], jacobian

    return equations
