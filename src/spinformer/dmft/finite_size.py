"""How far the network of N bits is from its mean field: the theory, to first order in N^{-1/2}.

Along a mean-field path the deviation δx of a sampled path obeys, to first order,
`δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}`, where ξ is the binomial noise of the new token,
ξ = token − its conditional mean, of variance (1 − m²)/n for a segment of n bits. Hence

- a single run is off by N^{-1/2} times a factor that `noise_covariance` computes without
  sampling (the linear-noise approximation);
- the solution of the linear recursion driven by the *actual* noise of a run
  (`linear_fluctuations`) has mean zero exactly, whatever N, because ξ is a martingale difference
  and M is fixed: it may be subtracted from a run without touching the mean;
- the mean over runs is off by 1/N times a vector that `mean_shift` computes without sampling: to
  second order `E δx_{t+1} = M E δx + ½ Σ H E[δx δx]`, H the curvature of the step.

Conventions of `tokens`: paths (T + steps, L) are segment means, the window first, old to new. The
axis s of the maps counts back from the newest token of the window, s = 0, as the sum does.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.statistics import Estimate
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network
from spinformer.dmft.tokens import TokenRuns, reverse_window


def linear_maps(network: Network, beta: float, *, path: np.ndarray, position: int) -> np.ndarray:
    """`M[t, s] = ∂x_{T+t} / ∂x_{T+t−1−s}` along a mean-field path, shape (steps, T, L, L).

    path: (T + steps, L), at least one step; `position` is the position index of its *first*
    token. Raises ValueError for another shape or entries outside [−1, 1].

    >>> machine = Network.document().with_parameters(gamma=0.0)  # every token weighs the same
    >>> maps = linear_maps(machine, 1.0, path=np.zeros((5, 3)), position=0)
    >>> maps.shape, bool(np.allclose(maps, maps[:, :1]))
    ((1, 4, 3, 3), True)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0)
    context, segments = network.context, network.segments
    path = check_array("path", path, shape=(None, segments), low=-1.0, high=1.0)
    position = check_integer("position", position)
    steps = check_integer("steps of path", len(path) - context, low=1)
    linear = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()
    output = network.semantic[OUTPUT]
    result = np.empty((steps, context, segments, segments))
    for t in range(steps):
        codes = (position + t + np.arange(context)) % network.positions
        m = np.einsum("ral,tl->tra", linear, path[t : t + context]) + place[codes]
        m = m[::-1]  # the axis s of the result counts back
        query, value, key = m[0, QUERY], m[:, VALUE], m[:, KEY]
        weight = softmax(network.gamma * (key @ query))
        attention = weight @ value
        spread = network.gamma * weight[:, None] * (value - attention)  # dA/d(score_s), (T, P)
        jacobian = weight[:, None, None] * linear[VALUE]
        jacobian = jacobian + spread[:, :, None] * (query @ linear[KEY])
        jacobian[0] += spread.T @ key @ linear[QUERY]
        slope = beta * (1.0 - path[t + context] ** 2)
        result[t] = slope[:, None] * np.einsum("al,sam->slm", output, jacobian)
    return result


def noise_covariance(
    network: Network, path: np.ndarray, *, maps: np.ndarray, draw_window: bool = True
) -> np.ndarray:
    """N times the covariance of δx at every token of the path, linear noise: (T + steps, L, L).

    `maps` from `linear_maps`; `draw_window` as in `tokens.generate`. Raises ValueError for
    shapes that do not fit.

    >>> machine = Network.document()
    >>> path = np.zeros((5, 3))
    >>> maps = np.zeros((1, 4, 3, 3))  # no memory: what is left is the noise of the new token
    >>> noise_covariance(machine, path, maps=maps)[-1].round(12)
    array([[3., 0., 0.],
           [0., 3., 0.],
           [0., 0., 3.]])
    """
    joint = _window_covariances(network, path, maps=maps, draw_window=draw_window)
    segments = network.segments
    result = joint[:, :segments, :segments]
    # Of the window every token is the newest of a shorter one: its block on the diagonal.
    blocks = [
        joint[0, i : i + segments, i : i + segments] for i in range(0, len(joint[0]), segments)
    ]
    return np.concatenate([np.array(blocks)[:0:-1], result])


def _window_covariances(
    network: Network, path: np.ndarray, *, maps: np.ndarray, draw_window: bool
) -> np.ndarray:
    """N times the covariance of the whole window, newest token first: (steps + 1, TL, TL)."""
    check_instance("network", network, Network)
    check_flag("draw_window", draw_window)
    context, segments = network.context, network.segments
    path = check_array("path", path, shape=(None, segments), low=-1.0, high=1.0)
    maps = check_array("maps", maps, shape=(len(path) - context, context, segments, segments))
    noise = (1.0 - path**2) / network.fractions
    size = context * segments
    result = np.zeros((len(maps) + 1, size, size))
    if draw_window:
        result[0] = np.diag(reverse_window(noise[:context]).ravel())
    step = np.zeros((size, size))
    step[segments:, :-segments] = np.eye(size - segments)
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
    `maps` and `position` as in `linear_maps`, `draw_window` as in `tokens.generate`. Raises
    ValueError for shapes that do not fit.

    >>> machine = Network.document().with_parameters(gamma=0.0)  # an average of the values ...
    >>> path = np.zeros((5, 3))  # ... and tanh without curvature at rest: no shift
    >>> maps = linear_maps(machine, 1.0, path=path, position=0)
    >>> bool(np.allclose(mean_shift(machine, 1.0, path=path, maps=maps, position=0), 0.0))
    True
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0)
    position = check_integer("position", position)
    context, segments = network.context, network.segments
    joint = _window_covariances(network, path, maps=maps, draw_window=draw_window)
    shift = np.zeros_like(check_array("path", path))
    for t, matrices in enumerate(maps):
        window = path[t : t + context]
        # The columns of a square root of the covariance: directions that carry all the noise.
        size, turn = np.linalg.eigh(joint[t])
        root = (turn * np.sqrt(np.maximum(size, 0.0))).T
        directions = reverse_window(root.reshape(-1, context, segments))
        bend = _curvature(network, beta, window, directions, position=position + t).sum(axis=0)
        older = reverse_window(shift[t : t + context])
        shift[context + t] = np.einsum("slm,sm->l", matrices, older) + 0.5 * bend
    return shift


def _curvature(
    network: Network, beta: float, window: np.ndarray, directions: np.ndarray, *, position: int
) -> np.ndarray:
    """Second derivative of the next token along each of the directions (D, T, L): (D, L).

    All arrays oldest first; `position` is that of the window's oldest token.
    """
    codes = (position + np.arange(network.context)) % network.positions
    linear = (1.0 - network.epsilon) * network.semantic * network.fractions
    m = np.einsum("ral,tl->tra", linear, window)
    m = m + network.epsilon * network.position_overlaps()[codes]
    d = np.einsum("ral,dtl->dtra", linear, directions)
    query, value, key = m[-1, QUERY], m[:, VALUE], m[:, KEY]
    weight = softmax(network.gamma * (key @ query))
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
    token), 0 on a quasi-periodic path; −∞ where the perturbation dies altogether. The error is
    that of `core.lyapunov.lyapunov_exponents`. Raises ValueError for another shape.

    >>> f"{growth_rate(np.full((50, 1, 1, 1), 0.5)).value:.6f}"  # halved at every token
    '-0.693147'
    """
    maps = check_array("maps", maps, ndim=4)
    steps, context, segments = maps.shape[:3]
    check_array("maps", maps, shape=(steps, context, segments, segments))
    drop = check_integer("drop", drop, low=0, high=steps - 1)
    remaining = iter(maps)

    def push(frame: np.ndarray) -> np.ndarray:
        window = frame.reshape(context, segments)
        newest = np.einsum("slm,sm->l", next(remaining), window)
        return np.concatenate([newest, window[:-1].ravel()])[:, None]

    rate = lyapunov_exponents(push, dimension=context * segments, steps=steps - drop, align=drop)
    return Estimate(value=float(rate.value[0]), error=float(rate.error[0]), samples=rate.samples)


def linear_fluctuations(runs: TokenRuns, *, maps: np.ndarray) -> np.ndarray:
    """First-order deviation of every run from the mean field, driven by its own noise.

    Shape (R, T + steps, L). Its expectation is zero exactly at every N, because maps (from
    `linear_maps`) do not depend on the run. Raises ValueError for maps of another shape.

    >>> from spinformer.dmft.tokens import generate
    >>> machine = Network.document()
    >>> runs = generate(machine, 30, beta=1.0, window=np.ones((4, 3)), steps=1, runs=2, seed=0)
    >>> noise = linear_fluctuations(runs, maps=np.zeros((1, 4, 3, 3)))  # no memory: noise alone
    >>> bool(np.allclose(noise, runs.tokens - runs.means))
    True
    """
    check_instance("runs", runs, TokenRuns)
    context = runs.network.context
    noise = runs.tokens - runs.means
    steps, segments = noise.shape[1] - context, noise.shape[2]
    maps = check_array("maps", maps, shape=(steps, context, segments, segments))
    result = noise.copy()
    for t in range(steps):
        for s in range(context):
            result[:, context + t] += result[:, context + t - 1 - s] @ maps[t, s].T
    return result


def predicted_rms(network: Network, covariance: np.ndarray) -> np.ndarray:
    """√N times the root-mean-square deviation |m − m_∞| of the linear-noise approximation.

    m are the semantic output overlaps (`tokens.semantic_overlaps`), |·| the Euclidean norm over
    their P features; covariance: (..., L, L) from `noise_covariance`. Raises ValueError for
    another shape.

    >>> machine = Network.document().with_parameters(epsilon=0.0)
    >>> f"{float(predicted_rms(machine, 3.0 * np.eye(3))):.6f}"  # three overlaps of fair bits
    '1.732051'
    """
    check_instance("network", network, Network)
    segments = network.segments
    covariance = check_array("covariance", covariance)
    if covariance.shape[-2:] != (segments, segments):
        raise ValueError(
            f"covariance must end in {(segments, segments)}, got shape {covariance.shape}"
        )
    pattern = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    return np.sqrt(np.einsum("al,...lm,am->...", pattern, covariance, pattern))
