"""The TAP equation applied layer by layer, and what becomes of it for N → ∞."""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.special import normal_rule


def unrolled_tap(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, layers: int, memory: str = "before"
) -> np.ndarray:
    """m after each of `layers` layers, (layers + 1, N), the first zero, for one system.

        m(t+1) = tanh(βh + βJ m(t) − β² m(t′) v(t)),   v_i = Σ_j J_ij² (1 − m_j(t)²).

    With `memory` "before" t′ = t − 1: the reaction of the other spins to m_i(t−1) is what J m(t)
    contains [bolthausen2014iterative]; with "now" t′ = t, the TAP equation iterated as it is
    written.
    """
    square = couplings**2
    path = np.zeros((layers + 1, len(fields)))
    for t in range(layers):
        reaction = beta**2 * (square @ (1.0 - path[t] ** 2))
        held = path[t] if memory == "now" else path[max(t - 1, 0)]
        path[t + 1] = np.tanh(beta * (fields + couplings @ path[t]) - reaction * held)
    return path


def state_evolution(layers: int, *, beta: float, field_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean of m(t)² and of m(t) m(t−1) in `unrolled_tap` "before", each (layers + 1,), for N → ∞.

    For Gaussian couplings q(t+1) = E tanh² β√(q(t) + field_std²) z, and the same average over two
    layers whose fields have the covariance of the layers before [bolthausen2014iterative].
    """
    size, pair = np.zeros(layers + 1), np.zeros(layers + 1)
    for t in range(layers):
        now = math.hypot(math.sqrt(size[t]), field_std)
        outer, weights = normal_rule(beta * now)
        size[t + 1] = weights @ np.tanh(beta * now * outer) ** 2
        if t == 0:
            continue
        # Layer t − 1 has fields `before` z, layer t `shared` z + `rest` z', z and z' unit normals.
        before = math.hypot(math.sqrt(size[t - 1]), field_std)
        shared = (pair[t] + field_std**2) / before if before > 0 else 0.0
        rest = math.sqrt(max(now**2 - shared**2, 0.0))
        outer, weights = normal_rule(beta * max(before, shared))
        inner, inner_weights = normal_rule(beta * rest)
        told = np.tanh(beta * (shared * outer[:, None] + rest * inner)) @ inner_weights
        pair[t + 1] = weights @ (np.tanh(beta * before * outer) * told)
    return size, pair
