"""Magnetizations by passing messages: an unrolled TAP equation, and belief propagation.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once. `unrolled_tap` applies, layer by layer,

    m(t+1) = tanh(βh + βJ m(t) − β² m(t′) v(t)),   v_i = Σ_j J_ij² (1 − m_j(t)²),

where the memory t′ is t − 1: the reaction of the other spins to m_i(t−1) is what J m(t) contains
[bolthausen2014iterative]. With t′ = t it is the TAP equation iterated as it is written. For
Gaussian couplings and t′ = t − 1 the local field of layer t is Gaussian, and `state_evolution`
foretells its size without any system.
"""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.core.special import normal_rule
from spinformer.spins.ising.couplings import MAX_COUNT, check_ising

MEMORIES = ("before", "now")
# Averages over two layers' fields cost the square of how steep tanh β(field) is.
_STEEPEST = 50.0


@record
class BeliefSolution(Solution[np.ndarray]):
    """value: magnetizations (N,); residual: the largest change of a message in the last step."""


def unrolled_tap(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    layers: int,
    memory: str = "before",
) -> np.ndarray:
    """m after each of `layers` layers, (layers + 1, N), the first zero, for one system.

    `memory` "before" takes the reaction to m(t−1), "now" to m(t). Raises ValueError for bad input.

    >>> pair = np.array([[0.0, 0.1], [0.1, 0.0]])
    >>> m = unrolled_tap(pair, fields=np.array([0.2, 0.2]), beta=1.0, layers=30)[-1]
    >>> bool(np.allclose(m, np.tanh(0.2 + 0.1 * m - 0.01 * (1 - m**2) * m)))
    True
    """
    j, h, beta = check_ising(couplings, fields=fields, beta=beta)
    if h.ndim != 1:
        raise ValueError(f"couplings must be those of one system, got batch {h.shape[:-1]}")
    layers = check_integer("layers", layers, low=1, high=MAX_COUNT)
    check_choice("memory", memory, MEMORIES)
    square = j**2
    path = np.zeros((layers + 1, len(h)))
    for t in range(layers):
        reaction = beta**2 * (square @ (1.0 - path[t] ** 2))
        held = path[t] if memory == "now" else path[max(t - 1, 0)]
        path[t + 1] = np.tanh(beta * (h + j @ path[t]) - reaction * held)
    return path


def state_evolution(layers: int, *, beta: float, field_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean of m(t)² and of m(t) m(t−1), each (layers + 1,), in infinitely many spins.

    q(t+1) = E tanh² β√(q(t) + field_std²) z, and the same average over two layers whose Gaussian
    fields have the covariance of the layers before [bolthausen2014iterative]. Entry 0 of both
    is zero, the start. Raises ValueError where β√(1 + field_std²) exceeds 50 or β exceeds 20.

    >>> q, r = state_evolution(60, beta=1.0, field_std=0.5)
    >>> f"{q[-1]:.4f} {r[-1]:.4f}"
    '0.2846 0.2846'
    """
    layers = check_integer("layers", layers, low=1, high=MAX_COUNT)
    beta = check_real("beta", beta, low=0.0, high=20.0)
    std = check_real("field_std", field_std, low=0.0)
    steepest = beta * math.hypot(1.0, std)
    if steepest > _STEEPEST:
        raise ValueError(
            f"beta and field_std must keep beta √(1 + field_std²) at most {_STEEPEST:g}, "
            f"got {steepest:.3g}"
        )
    size, pair = np.zeros(layers + 1), np.zeros(layers + 1)
    for t in range(layers):
        now = math.hypot(math.sqrt(size[t]), std)
        outer, weights = normal_rule(beta * now)
        size[t + 1] = weights @ np.tanh(beta * now * outer) ** 2
        if t == 0:
            continue
        # Layer t − 1 has fields `before` z, layer t `shared` z + `rest` z', z and z' unit normals.
        before = math.hypot(math.sqrt(size[t - 1]), std)
        shared = (pair[t] + std**2) / before if before > 0 else 0.0
        rest = math.sqrt(max(now**2 - shared**2, 0.0))
        outer, weights = normal_rule(beta * max(before, shared))
        inner, inner_weights = normal_rule(beta * rest)
        told = np.tanh(beta * (shared * outer[:, None] + rest * inner)) @ inner_weights
        pair[t + 1] = weights @ (np.tanh(beta * before * outer) * told)
    return size, pair


def belief_propagation(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    damping: float = 0.0,
    tolerance: float = 1e-10,
    max_steps: int = 1000,
    throw: bool = True,
) -> BeliefSolution:
    """Magnetizations of one system by belief propagation, exact where the couplings form a tree.

    Spin j tells i the field artanh(tanh βJ_ij tanh θ_{j→i}), θ_{j→i} its own field without what
    i tells it [mezard2009information]. A share `damping` of the old messages is kept. Raises
    ValueError for bad input, NotConverged unless `throw` is False.

    >>> chain = np.array([[0.0, 0.7, 0.0], [0.7, 0.0, 0.4], [0.0, 0.4, 0.0]])
    >>> m = belief_propagation(chain, fields=np.array([0.3, 0.0, 0.0]), beta=1.0).value
    >>> f"{m[2] / np.tanh(0.3):.6f} {np.tanh(0.7) * np.tanh(0.4):.6f}"
    '0.229629 0.229629'
    """
    j, h, beta = check_ising(couplings, fields=fields, beta=beta)
    if h.ndim != 1:
        raise ValueError(f"couplings must be those of one system, got batch {h.shape[:-1]}")
    damping = check_real("damping", damping, low=0.0, high=0.999)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1, high=MAX_COUNT)
    check_flag("throw", throw)
    into, out = np.nonzero(j)
    # back[e]: the edge that runs the other way.
    back = np.argsort(out * len(h) + into, kind="stable")
    strength = beta * j[into, out]
    told = np.zeros(len(into))
    residual, steps = math.inf, 0
    while residual > tolerance and steps < max_steps:
        total = beta * h + np.bincount(into, told, minlength=len(h))
        cavity = total[out] - told[back]
        # artanh(tanh a tanh b) = ½ ln [cosh(a + b) / cosh(a − b)], in which nothing saturates.
        new = 0.5 * (_log_cosh(cavity + strength) - _log_cosh(cavity - strength))
        residual = float(np.abs(new - told).max(initial=0.0))
        told = damping * told + (1.0 - damping) * new
        steps += 1
    found = BeliefSolution(
        value=np.tanh(beta * h + np.bincount(into, told, minlength=len(h))),
        residual=residual,
        steps=steps,
        status=Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT,
    )
    if throw:
        found.require("the messages of belief propagation")
    return found


def _log_cosh(x: np.ndarray) -> np.ndarray:
    return np.abs(x) + np.log1p(np.exp(-2.0 * np.abs(x)))
