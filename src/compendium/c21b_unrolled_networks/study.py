"""Chapter 21b: the TAP iteration as the layers of a network, and its state evolution."""

import math

import numpy as np

from spinformer.core.special import gaussian_quadrature
from spinformer.spins.ising import sherrington_kirkpatrick


def unrolled_tap(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, layers: int, memory: str = "before"
) -> np.ndarray:
    """m after each of `layers` layers, (layers + 1, N), the first zero, for one system.

        m(t+1) = tanh(βh + βJ m(t) − β² m(t′) v(t)),   v_i = Σ_j J_ij² (1 − m_j(t)²).

    `memory` "before": t′ = t − 1 [bolthausen2014iterative]; "now": t′ = t, TAP as it is written.
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

    Two layers have the fields' variance and the covariance of the layers before, Gaussian couplings
    [bolthausen2014iterative].
    """
    size = np.zeros(layers + 1)
    pair = np.zeros(layers + 1)
    for t in range(layers):
        now = math.hypot(math.sqrt(size[t]), field_std)
        outer, weights = gaussian_quadrature(beta * now)
        size[t + 1] = weights @ np.tanh(beta * now * outer) ** 2
        if t == 0:
            continue
        # Layer t − 1 has fields `before` z, layer t `shared` z + `rest` z', z and z' unit normals.
        before = math.hypot(math.sqrt(size[t - 1]), field_std)
        shared = (pair[t] + field_std**2) / before if before > 0 else 0.0
        rest = math.sqrt(max(now**2 - shared**2, 0.0))
        outer, weights = gaussian_quadrature(beta * max(before, shared))
        inner, inner_weights = gaussian_quadrature(beta * rest)
        told = np.tanh(beta * (shared * outer[:, None] + rest * inner)) @ inner_weights
        pair[t + 1] = weights @ (np.tanh(beta * before * outer) * told)
    return size, pair


def _foretold(layers: int, beta: float, field_std: float) -> np.ndarray:
    square, pair = state_evolution(layers, beta=beta, field_std=field_std)
    return np.asarray(square[1:] + square[:-1] - 2 * pair[1:])


def layer_distances(
    size: int, *, beta: float, field_std: float, layers: int, systems: int, seed: int
) -> np.ndarray:
    """Root mean square distances of layers, (2, layers): of unrolled TAP for so many `systems` from
    a `seed`, and by state evolution."""
    drawn = sherrington_kirkpatrick(size, seed=seed, count=systems, field_std=field_std)
    paths = [
        unrolled_tap(couplings, fields=fields, beta=beta, layers=layers)
        for couplings, fields in zip(*drawn, strict=True)
    ]
    measured = np.mean([(np.diff(p, axis=0) ** 2).mean(1) for p in paths], axis=0)
    foretold = _foretold(layers, beta, field_std)
    return np.sqrt([measured, np.maximum(foretold, 0.0)])


def layers_needed(beta: float, *, field_std: float) -> float:
    """Layers until their distance falls below 10⁻³ by state evolution, NaN beyond 200."""
    close = _foretold(200, beta, field_std) < 1e-6
    return int(np.argmax(close)) + 1 if close.any() else math.nan


def convergence(
    size: int, *, beta: float, field_std: float, systems: int, seed: int, memory: str = "before"
) -> float:
    """Share of Gaussian systems whose layers stop changing within 300, to 1e-6 on average."""
    drawn = sherrington_kirkpatrick(size, seed=seed, count=systems, field_std=field_std)
    moved = []
    for couplings, fields in zip(*drawn, strict=True):
        path = unrolled_tap(couplings, fields=fields, beta=beta, layers=300, memory=memory)
        moved.append(np.sqrt(np.mean((path[-1] - path[-2]) ** 2)))
    return float(np.mean(np.array(moved) < 1e-6))
