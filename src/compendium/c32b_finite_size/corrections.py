"""How far texts of N bits are from their limit, to first order of the noise and of 1/N.

Along a mean-field path the deviation δx of a text obeys δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}
(`finite_size.linear_maps`), ξ the binomial noise of the new token. The solution that the *actual*
noise of a text drives has mean zero exactly, whatever N, because ξ is a martingale difference and M
is fixed: it may be subtracted from a text without touching the mean. The mean itself is off by 1/N
times a vector: to second order E δx_{t+1} = M E δx + ½ Σ H E[δx δx], H the curvature of the step.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.statistics import Estimate
from spinformer.dmft.finite_size import TokenRuns, semantic_overlaps
from spinformer.dmft.mean_field import softmax_weights
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


def noise_covariance(
    network: Network, path: np.ndarray, *, maps: np.ndarray, draw_window: bool = True
) -> np.ndarray:
    """N times the covariance of δx at every token of the path, linear noise: (T + steps, L, L).

    `maps` from `linear_maps`; `draw_window` as in `generate`.
    """
    joint = window_covariances(network, path, maps=maps, draw_window=draw_window)
    segments = network.segments
    # Of the window every token is the newest of a shorter one: its block on the diagonal.
    older = [
        joint[0, i : i + segments, i : i + segments]
        for i in range((network.context - 1) * segments, 0, -segments)
    ]
    return np.array([*older, *joint[:, :segments, :segments]])


def window_covariances(
    network: Network, path: np.ndarray, *, maps: np.ndarray, draw_window: bool
) -> np.ndarray:
    """N times the covariance of the whole window, newest token first: (steps + 1, TL, TL)."""
    context, segments = network.context, network.segments
    noise = (1.0 - path**2) / network.fractions
    size = context * segments
    result = np.zeros((len(maps) + 1, size, size))
    if draw_window:
        result[0] = np.diag(noise[:context][::-1].ravel())
    step = np.eye(size, k=-segments)
    for t, matrices in enumerate(maps):
        step[:segments] = matrices.transpose(1, 0, 2).reshape(segments, size)
        result[t + 1] = step @ result[t] @ step.T
        result[t + 1, :segments, :segments] += np.diag(noise[context + t])
    return result


def mean_shift(
    network: Network,
    beta: float,
    *,
    path: np.ndarray,
    maps: np.ndarray,
    position: int,
    draw_window: bool = True,
) -> np.ndarray:
    """N times the deviation of the *mean* token from the mean-field path, (T + steps, L).

    The coefficient of 1/N, exact for N → ∞: cumulants of third order are of order 1/N². `path`,
    `maps` and `position` as in `linear_maps`, `draw_window` as in `generate`.
    """
    context, segments = network.context, network.segments
    joint = window_covariances(network, path, maps=maps, draw_window=draw_window)
    shift = np.zeros_like(path)
    for t, matrices in enumerate(maps):
        window = path[t : t + context]
        # The columns of a square root of the covariance: directions that carry all the noise.
        size, turn = np.linalg.eigh(joint[t])
        root = (turn * np.sqrt(np.maximum(size, 0.0))).T
        directions = root.reshape(-1, context, segments)[:, ::-1]
        bend = _curvature(network, beta, window, directions, position=position + t).sum(axis=0)
        older = shift[t : t + context][::-1]
        shift[context + t] = np.einsum("slm,sm->l", matrices, older) + 0.5 * bend
    return shift


def _curvature(
    network: Network, beta: float, window: np.ndarray, directions: np.ndarray, *, position: int
) -> np.ndarray:
    """Second derivative of the next token along each of the directions (D, T, L): (D, L).

    All arrays oldest first; `position` is that of the window's newest token.
    """
    linear = (1.0 - network.epsilon) * network.semantic * network.fractions
    places = position + np.arange(1 - network.context, 1)
    m = network.placed(network.overlaps(window), places)
    d = np.einsum("ral,dtl->dtra", linear, directions)
    query, value, key = m[-1, QUERY], m[:, VALUE], m[:, KEY]
    weight = softmax_weights(m, gamma=network.gamma, newest=-1)
    # First and second derivative of the scores, then of the weighted average, then of tanh.
    first = network.gamma * (d[:, -1, QUERY] @ key.T + d[:, :, KEY] @ query)
    first = first - (first @ weight)[:, None]
    second = 2.0 * network.gamma * np.einsum("da,dta->dt", d[:, -1, QUERY], d[:, :, KEY])
    second = second + first**2
    second = second - (second @ weight)[:, None]
    slope = np.einsum("t,dta->da", weight, d[:, :, VALUE]) + (weight * first) @ value
    bend = (weight * second) @ value
    bend = bend + 2.0 * np.einsum("dt,dta->da", weight * first, d[:, :, VALUE])
    output = network.semantic[OUTPUT]
    mean = np.tanh(beta * ((weight @ value) @ output))
    steep = beta * (1.0 - mean**2)
    return steep * (bend @ output - 2.0 * beta * mean * (slope @ output) ** 2)


def growth_rate(maps: np.ndarray, *, drop: int = 0) -> Estimate:
    """Mean logarithmic growth per token of a small generic perturbation of the window.

    maps: (steps, T, L, L) from `linear_maps`; the first `drop` steps only turn the perturbation
    into its own direction. Over long paths this is the leading Lyapunov exponent (nats per
    token), 0 on a quasi-periodic path; −∞ where the perturbation dies altogether.
    """
    steps, context, segments = maps.shape[:3]
    remaining = iter(maps)

    def push(frame: np.ndarray) -> np.ndarray:
        window = frame.reshape(context, segments)
        newest = np.einsum("slm,sm->l", next(remaining), window)
        return np.concatenate([newest, window[:-1].ravel()])[:, None]

    rate = lyapunov_exponents(push, dimension=context * segments, steps=steps - drop, align=drop)
    return Estimate(value=float(rate.value[0]), error=float(rate.error[0]), samples=rate.samples)


def linear_fluctuations(runs: TokenRuns, *, maps: np.ndarray) -> np.ndarray:
    """First-order deviation (R, T + steps, L) of every run, driven by its own noise."""
    context = runs.network.context
    result = runs.tokens - runs.means
    for t, matrices in enumerate(maps):
        for s in range(context):
            result[:, context + t] += result[:, context + t - 1 - s] @ matrices[s].T
    return result


def predicted_rms(network: Network, covariance: np.ndarray) -> np.ndarray:
    """√N times the root-mean-square |m − m_∞| of the linear noise of `covariance` (..., L, L).

    m are the semantic output overlaps, |·| the Euclidean norm over their P features.
    """
    pattern = semantic_overlaps(network, np.eye(network.segments)).T
    return np.sqrt(np.einsum("al,...lm,am->...", pattern, covariance, pattern))
