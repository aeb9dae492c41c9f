"""How far the network of N bits is from its mean field: fluctuations, bias, and their onset.

Along a mean-field path the deviation δx of a sampled path obeys, to first order,
`δx_{t+1} = sum_s M_{t,s} δx_{t−s} + ξ_{t+1}`, where ξ is the binomial noise of the new token,
ξ = token − its conditional mean, of variance (1 − m²)/n per segment of n bits. Hence

- a single run is off by N^{-1/2} times a factor that `noise_covariance` computes without
  sampling (the linear-noise approximation);
- the solution of the linear recursion driven by the *actual* noise of a run has mean zero
  exactly, whatever N, because ξ is a martingale difference and M is fixed. Subtracting it
  (`bias`) removes the leading fluctuation without touching the mean: what is left resolves the
  1/N bias with a thousand runs, where plain averaging would need of the order of N of them.

Paths are segment means (T + steps, L), windows first, old to new (see `tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.dmft.mean_field import Context, trajectory
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network
from spinformer.dmft.tokens import TokenRuns, window_means


def linear_maps(network: Network, beta: float, *, path: np.ndarray, position: int) -> np.ndarray:
    """`M[t, s] = ∂x_{T+t} / ∂x_{T+t−1−s}` along a mean-field path, shape (steps, T, L, L).

    path: (T + steps, L) tokens; `position` is the position index of its first token.
    s = 0 is the newest token of the window, which is also the query.
    """
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
        m = m[::-1]  # newest first, as in the result
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

    `maps` from `linear_maps`; `draw_window` as in `tokens.generate`.
    """
    context, segments = network.context, network.segments
    path = check_array("path", path, shape=(None, segments), low=-1.0, high=1.0)
    maps = check_array("maps", maps, shape=(len(path) - context, context, segments, segments))
    noise = (1.0 - path**2) / network.fractions
    size = context * segments
    # Covariance of the whole window, newest token first.
    joint = np.zeros((size, size))
    if draw_window:
        joint = np.diag(noise[:context][::-1].ravel())
    result = np.zeros((len(path), segments, segments))
    if draw_window:
        result[:context] = noise[:context, :, None] * np.eye(segments)
    for t, matrices in enumerate(maps):
        step = np.zeros((size, size))
        step[:segments] = matrices.transpose(1, 0, 2).reshape(segments, size)
        step[segments:, :-segments] = np.eye(size - segments)
        joint = step @ joint @ step.T
        joint[:segments, :segments] += np.diag(noise[context + t])
        result[context + t] = joint[:segments, :segments]
    return result


def growth_rate(maps: np.ndarray, *, drop: int = 0) -> float:
    """Mean logarithmic growth per token of a small generic perturbation of the window.

    maps: (steps, T, L, L) from `linear_maps`; the first `drop` steps only turn the perturbation
    into its own direction. Over long paths this is the leading Lyapunov exponent (nats per
    token), 0 on a quasi-periodic path. -inf where the perturbation dies altogether.
    """
    maps = check_array("maps", maps, ndim=4)
    drop = check_integer("drop", drop, low=0, high=len(maps) - 1)
    context, segments = maps.shape[1:3]
    window = np.random.default_rng(0).standard_normal((context, segments))
    total = 0.0
    for step, matrices in enumerate(maps):
        newest = np.einsum("slm,sm->l", matrices, window)
        window = np.concatenate([newest[None], window[:-1]])
        size = float(np.linalg.norm(window))
        if size == 0.0:
            return -np.inf
        window /= size
        if step >= drop:
            total += np.log(size)
    return total / (len(maps) - drop)


def linear_fluctuations(runs: TokenRuns, maps: np.ndarray) -> np.ndarray:
    """First-order deviation of every run from the mean field, driven by its own noise.

    Shape (R, T + steps, L). Its expectation is zero exactly at every N.
    """
    context = runs.network.context
    noise = runs.tokens - runs.means
    steps, segments = noise.shape[1] - context, noise.shape[2]
    maps = check_array("maps", maps, shape=(steps, context, segments, segments))
    result = noise.copy()
    for t in range(steps):
        for s in range(context):
            result[:, context + t] += result[:, context + t - 1 - s] @ maps[t, s].T
    return result


@dataclass(frozen=True, eq=False)
class Deviation:
    """Deviation of R runs from the mean field, at every token: arrays (T + steps, ...).

    rms: root mean square over runs of |m − m_∞| (Euclidean norm of the P overlaps), with its
        standard error `rms_error`.
    bias: mean over runs of m − m_∞, (T + steps, P), with its standard error `bias_error`. The
        linear fluctuation is subtracted at those tokens where that lowers the standard error,
        i.e. wherever noise is still small enough for a linear theory.
    plain_error: the standard error without subtraction, for comparison.
    """

    rms: np.ndarray
    rms_error: np.ndarray
    bias: np.ndarray
    bias_error: np.ndarray
    plain_error: np.ndarray


def deviation(runs: TokenRuns, path: np.ndarray, *, maps: np.ndarray) -> Deviation:
    """Compare runs with the mean-field path they should follow, in the output overlaps.

    Overlaps are the semantic ones, factor 1 − ε included. The subtraction uses the regression
    coefficient 1, so it introduces no bias of its own.
    """
    network = runs.network
    path = check_array("path", path, shape=runs.tokens.shape[1:])
    pattern = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    raw = (runs.tokens - path) @ pattern.T
    corrected = raw - linear_fluctuations(runs, maps) @ pattern.T
    count = len(raw)
    square = (raw**2).sum(axis=2)
    rms = np.sqrt(square.mean(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        rms_error = np.where(rms > 0, square.std(axis=0) / np.sqrt(count) / (2.0 * rms), 0.0)
    ddof = min(1, count - 1)
    plain_error = raw.std(axis=0, ddof=ddof) / np.sqrt(count)
    corrected_error = corrected.std(axis=0, ddof=ddof) / np.sqrt(count)
    better = (corrected_error**2).sum(axis=1) < (plain_error**2).sum(axis=1)
    chosen = np.where(better[:, None], corrected.mean(axis=0), raw.mean(axis=0))
    chosen_error = np.where(better[:, None], corrected_error, plain_error)
    return Deviation(rms, rms_error, chosen, chosen_error, plain_error)


def predicted_rms(network: Network, covariance: np.ndarray) -> np.ndarray:
    """√N times the root-mean-square deviation |m − m_∞| of the linear-noise approximation.

    covariance: (..., L, L) from `noise_covariance`; overlaps as in `deviation`.
    """
    pattern = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    return np.sqrt(np.einsum("al,...lm,am->...", pattern, covariance, pattern))


@dataclass(frozen=True)
class PowerLaw:
    """Fit of `value = scale · N^slope`, standard error of the slope, and chi² per freedom."""

    slope: float
    error: float
    scale: float
    chi2: float


def fit_power(sizes: np.ndarray, *, values: np.ndarray, errors: np.ndarray) -> PowerLaw:
    """Weighted least squares of log(values) on log(sizes); at least three positive values."""
    sizes = check_array("sizes", sizes, ndim=1)
    values = check_array("values", values, shape=sizes.shape)
    errors = check_array("errors", errors, shape=sizes.shape)
    check_integer("number of sizes", len(sizes), low=3)
    if not ((sizes > 0).all() and (values > 0).all() and (errors > 0).all()):
        raise ValueError("sizes, values and errors must be positive for a power law")
    relative = errors / values
    design = np.stack([np.log(sizes), np.ones_like(sizes)], axis=1) / relative[:, None]
    target = np.log(values) / relative
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    covariance = np.linalg.inv(design.T @ design)
    residual = target - design @ solution
    freedom = len(sizes) - 2
    return PowerLaw(
        float(solution[0]),
        float(np.sqrt(covariance[0, 0])),
        float(np.exp(solution[1])),
        float(residual @ residual / freedom),
    )


def onset_size(
    sizes: np.ndarray, *, measured: np.ndarray, predicted: np.ndarray, tolerance: float | np.ndarray
) -> float:
    """Smallest N from which on every measured value is within `tolerance` of the prediction.

    Relative tolerance, one for all sizes or one each; sizes ascending. NaN where even the
    largest size misses it.
    """
    sizes = check_array("sizes", sizes, ndim=1)
    measured = check_array("measured", measured, shape=sizes.shape)
    predicted = check_array("predicted", predicted, shape=sizes.shape)
    tolerance = check_array("tolerance", tolerance, low=0.0)
    good = np.abs(measured / predicted - 1.0) <= tolerance
    bad = np.flatnonzero(~good)
    start = 0 if bad.size == 0 else int(bad[-1]) + 1
    return float(sizes[start]) if start < len(sizes) else float("nan")


def settled_start(
    network: Network, beta: float, context: Context, *, settle: int, look: int = 120
) -> tuple[np.ndarray, int]:
    """A well-defined point of an attractor to start paths from: window (T, L), its position.

    Every context of the batch is followed for `settle` tokens and then for `look` more. Each run
    has its own largest m^o_1; of the value reached most often (the most common attractor) the
    start is the window whose newest token has it. On a periodic attractor that is one point,
    the same on every machine, however the transients went.
    """
    settle = check_integer("settle", settle, low=0)
    look = check_integer("look", look, low=1)
    overlaps, _ = trajectory(network, context, beta=beta, steps=look, transient=settle)
    # Points that agree to seven digits are one point.
    heights = np.round(overlaps.reshape(-1, look, network.features)[..., 0], 7)
    peaks, times = np.unique(heights.max(axis=1), return_counts=True)
    best = peaks[::-1][np.argmax(times[::-1])]
    run, token = np.argwhere(heights == best)[0]
    attention = context.attention.reshape(-1, network.context, network.features)[run]
    single = Context(attention, context.position)
    if settle + token > 0:
        # A run of n tokens ends in the context whose newest token is token n, not yet recorded.
        _, single = trajectory(
            network, single, beta=beta, steps=1, transient=settle + int(token) - 1
        )
    return window_means(network, beta, attention=single.attention[::-1]), single.position
