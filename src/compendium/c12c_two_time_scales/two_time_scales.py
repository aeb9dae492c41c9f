"""Visible and hidden neurons with two time scales, of which attention is the fast limit.

[krotov2021large, Eqs. (1) and (2)], without external input, for patterns as rows x_i, (N, d):

    τ_v dv/dt = Xᵀ f(h) − v ,    τ_h dh/dt = X g(v) − h ,    f = ∂L_h/∂h ,  g = ∂L_v/∂v

with visible neurons v (d,), one hidden neuron for each pattern, h (N,), and two convex Lagrangians.
Time is measured in τ_v, so that only the ratio ρ = τ_h/τ_v is left. The energy

    E = v·g − L_v + h·f − L_h − f·Xg ,   dE/dt = −v̇ᵀ L_v'' v̇ − ρ ḣᵀ L_h'' ḣ ≤ 0

never rises [krotov2021large, Eqs. (4) and (5)]. For L_v = ½ v² and L_h = β⁻¹ log Σ exp(βh), f is a
softmax, and h = Xv, the limit ρ → 0, leaves dv/dt = −∇E of `continuous`: attention is one Euler
step of size τ_v. For any ρ, if h starts as Xu, it stays Xu, v = u + ρ du/dt, and

    ρ d²u/dt² + (1 + ρ) du/dt = −∇E(u) ,

a particle with friction in the energy of attention (our own derivation, in the chapter on two time
scales). To first order in ρ, (1 + ρA) dv/dt = −∇E, A = β Cov_p(x) the slope of attention: hidden
neurons drag where patterns compete. NumPy, float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import odeint
from scipy.special import logsumexp

from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of

Array = np.ndarray
MOST_STEPS = 10**6  # of the integrator between two times
FINEST = 1e-13  # relative error of a step


@record
class Lagrangian:
    """A convex function of neurons (..., n): its value (...), its gradient, the activation (...,
    n).

    Make one with `quadratic`, `softmax_lagrangian`, `sphere`, `layer_norm`, or from own functions.
    """

    value: Callable[[Array], Array]
    activation: Callable[[Array], Array]


def quadratic() -> Lagrangian:
    """½ Σ x², activation x."""
    return Lagrangian(value=lambda x: 0.5 * (x**2).sum(-1), activation=lambda x: x)


def softmax_lagrangian(beta: float) -> Lagrangian:
    """β⁻¹ log Σ exp(βx), activation softmax(βx)."""
    return Lagrangian(
        value=lambda x: logsumexp(beta * x, axis=-1) / beta,
        activation=lambda x: _softmax(beta * x),
    )


def sphere(radius: float) -> Lagrangian:
    """R (|x|² + 10⁻¹²)^½, activation R x/|x|: neurons that are normalised."""

    def norm(x: Array) -> Array:
        return np.sqrt((x**2).sum(-1) + 1e-12)

    return Lagrangian(
        value=lambda x: radius * norm(x), activation=lambda x: radius * x / norm(x)[..., None]
    )


def layer_norm(gain: float = 1.0) -> Lagrangian:
    """n · gain · (variance of x + 10⁻¹²)^½, activation LayerNorm without bias.

    [krotov2021large] name normalisations as Lagrangians; this one is used by
    [hoover2023energy, Eq. (1)].
    """

    def parts(x: Array) -> tuple[Array, Array]:
        centred = x - x.mean(-1, keepdims=True)
        return centred, np.sqrt((centred**2).mean(-1) + 1e-12)

    return Lagrangian(
        value=lambda x: gain * x.shape[-1] * parts(x)[1],
        activation=lambda x: gain * parts(x)[0] / parts(x)[1][..., None],
    )


@record
class Flow(Solution[np.ndarray]):
    """Trajectories of S queries at T times.

    value: (S, d), v at the last time. residual: (S,), the larger of the lengths of X^T f(h) − v and
    X g(v) − h there. steps: (S,), evaluations of the velocity, which all queries share. status:
    (S,), CONVERGED where the residual is at most the tolerance of rest, else STEP_LIMIT: the time
    is over. times: (T,). visible: (S, T, d). hidden: (S, T, N). energies: (S, T).
    """

    times: np.ndarray
    visible: np.ndarray
    hidden: np.ndarray
    energies: np.ndarray


def energy(
    patterns: ArrayLike,
    *,
    visible: ArrayLike,
    hidden: ArrayLike,
    hidden_lagrangian: Lagrangian,
    visible_lagrangian: Lagrangian | None = None,
) -> np.ndarray:
    """E = v·g − L_v + h·f − L_h − f·Xg, shape (...), for v (..., d) and h (..., N).

    `visible_lagrangian` is `quadratic()` unless given.
    """
    x, seen = _check(patterns, visible_lagrangian)
    v = np.asarray(visible, dtype=float)
    h = np.asarray(hidden, dtype=float)
    return _energy(x, v, h, seen, hidden_lagrangian)


def flow(
    patterns: ArrayLike,
    *,
    queries: ArrayLike,
    ratio: float,
    hidden_lagrangian: Lagrangian,
    visible_lagrangian: Lagrangian | None = None,
    hidden_start: str = "adiabatic",
    duration: float = 50.0,
    points: int = 201,
    accuracy: float = 1e-9,
    tolerance: float = 1e-6,
    throw: bool = False,
) -> Flow:
    """Integrate both kinds of neurons from v = query; ρ = `ratio` > 0, `duration` in units of τ_v.

    `hidden_start`: h = X g(v) ("adiabatic") or 0 ("zero"). All queries (S, d) take the same steps
    (SciPy's LSODA, which switches to a stiff method where it must), with relative error
    `accuracy` a step for each of them, and are shown at `points` times.
    """
    x, seen = _check(patterns, visible_lagrangian)
    hidden = hidden_lagrangian
    queries = np.asarray(queries, dtype=float)
    d = x.shape[1]

    def velocity(_: float, state: Array) -> Array:
        v, h = state[:, :d], state[:, d:]
        return np.concatenate(
            [hidden.activation(h) @ x - v, (seen.activation(v) @ x.T - h) / ratio], axis=1
        )

    on = 1.0 if hidden_start == "adiabatic" else 0.0
    starts = np.concatenate([queries, on * seen.activation(queries) @ x.T], axis=1)
    times, states, counts = _integrate(velocity, starts, duration, points, accuracy)
    v, h = states[..., :d], states[..., d:]
    last = np.stack(
        [
            np.linalg.norm(hidden.activation(h[:, -1]) @ x - v[:, -1], axis=1),
            np.linalg.norm(seen.activation(v[:, -1]) @ x.T - h[:, -1], axis=1),
        ]
    ).max(0)
    found = Flow(
        value=v[:, -1],
        residual=last,
        steps=counts,
        status=status_of(last <= tolerance),
        times=times,
        visible=v,
        hidden=h,
        energies=_energy(x, v, h, seen, hidden),
    )
    if throw:
        found.require("the rest of the neurons")
    return found


def slow_flow(
    patterns: ArrayLike,
    *,
    queries: ArrayLike,
    beta: float = 1.0,
    ratio: float = 0.0,
    duration: float = 50.0,
    points: int = 201,
    accuracy: float = 1e-9,
    tolerance: float = 1e-6,
) -> Flow:
    """The visible neurons alone: (1 + ρA) dv/dt = Xᵀ softmax(βXv) − v.

    ρ = `ratio` = 0 is attention in continuous time; ρ > 0 the first correction for hidden neurons
    of softmax. `hidden` is Xv − ρX dv/dt, and `energies` are those of v and this h.
    """
    x, seen = _check(patterns, None)
    queries = np.asarray(queries, dtype=float)
    hidden = softmax_lagrangian(beta)

    def velocity(_: float, v: Array) -> Array:
        weights = hidden.activation(v @ x.T)
        mean = weights @ x
        if ratio == 0.0:
            return mean - v
        centred = x - mean[:, None]
        slope = beta * centred.swapaxes(-1, -2) @ (weights[..., None] * centred)
        drag = np.eye(x.shape[1]) + ratio * slope
        return np.asarray(np.linalg.solve(drag, (mean - v)[..., None])[..., 0])

    times, v, counts = _integrate(velocity, queries, duration, points, accuracy)
    speed = velocity(0.0, v.reshape(-1, x.shape[1])).reshape(v.shape)
    h = (v - ratio * speed) @ x.T
    last = np.linalg.norm(hidden.activation(v[:, -1] @ x.T) @ x - v[:, -1], axis=1)
    return Flow(
        value=v[:, -1],
        residual=last,
        steps=counts,
        status=status_of(last <= tolerance),
        times=times,
        visible=v,
        hidden=h,
        energies=_energy(x, v, h, seen, hidden),
    )


def relaxation_rates(slopes: ArrayLike, *, ratio: float) -> np.ndarray:
    """Eigenvalues (..., 2) of the linearised flow at a rest: (1 + λ)(1 + ρλ) = a.

    `slopes`, real or complex (...): the eigenvalues a of the attention step Xᵀ softmax(βXv), or
    with values that differ from keys of V^T softmax(βXv). Patterns alone give a ≥ 0 and real rates
    with the larger one below zero exactly for a < 1, whatever ρ.
    """
    a = np.asarray(slopes, dtype=complex)
    root = np.sqrt((1.0 - ratio) ** 2 + 4.0 * ratio * a)
    both = 1.0 + ratio + root
    # The slow one from their product (1 − a)/ρ: the difference (1 + ρ) − root would lose it.
    return np.stack([-both / (2.0 * ratio), -2.0 * (1.0 - a) / both], axis=-1)


def _softmax(scores: Array) -> Array:
    # SciPy's checks of its argument take several times as long as these four lines.
    weights = scores - scores.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def _check(patterns: Any, lagrangian: Lagrangian | None) -> tuple[Array, Lagrangian]:
    x = np.asarray(patterns, dtype=float)
    seen = quadratic() if lagrangian is None else lagrangian
    return x, seen


def _energy(x: Array, v: Array, h: Array, seen: Lagrangian, hidden: Lagrangian) -> Array:
    g, f = seen.activation(v), hidden.activation(h)
    own = (v * g).sum(-1) - seen.value(v) + (h * f).sum(-1) - hidden.value(h)
    return own - (f * (g @ x.T)).sum(-1)


def _integrate(
    velocity: Callable[[float, Array], Array],
    starts: Array,
    duration: float,
    points: int,
    accuracy: float,
) -> tuple[Array, Array, Array]:
    """Times (T,), states (S, T, n) and numbers of evaluations (S,).

    All queries are one system, whose Jacobian lies in a band, since none feels another.
    """
    times = np.linspace(0.0, duration, points)
    count, width = starts.shape
    if not count:
        return times, np.empty((0, points, width)), np.empty(0, int)
    # LSODA measures an error by its mean square over the system: one query may have all of it.
    each = max(accuracy / np.sqrt(count), FINEST)
    states, told = odeint(
        lambda time, state: velocity(time, state.reshape(count, width)).ravel(),
        starts.ravel(),
        times,
        rtol=each,
        atol=each,
        ml=width - 1,
        mu=width - 1,
        mxstep=MOST_STEPS,
        full_output=True,
        tfirst=True,
    )
    if told["message"] != "Integration successful.":
        raise RuntimeError(f"the integration failed: {told['message']}")
    paths = states.reshape(points, count, width).transpose(1, 0, 2)
    return times, paths, np.full(count, told["nfe"][-1])
