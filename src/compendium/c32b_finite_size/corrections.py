"""How far texts of N bits are from their limit, to first order of the noise and of 1/N.

Along a mean-field path the deviation δx of a text obeys δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}
(`finite_size.linear_maps`), ξ the binomial noise of the new token. What the *actual* noise
of a text drives has mean zero exactly, whatever N, because ξ is a martingale difference and M is
fixed. The mean itself is off by 1/N times a vector: to second order
E δx_{t+1} = M E δx + ½ Σ H E[δx δx], H the curvature of the step.

`path` (T + steps, L) is that of `mean_path`, its first T tokens drawn with N bits, too; `maps` are
its `linear_maps`.
"""

import numpy as np

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.dmft.finite_size import TokenRuns, semantic_overlaps, window_means
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import Network

_STEP = 3e-5  # of a second difference, small beside one over the steepness of attention


def next_means(network: Network, windows: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Mean tokens (..., L) after windows (..., T, L), newest at `position`, that may leave ±1."""
    overlaps = np.einsum("ral,...l->...ra", network.semantic * network.fractions, windows)
    m = network.placed(overlaps, position + np.arange(1 - network.context, 1))
    return window_means(network, beta, attention=attend(m, gamma=network.gamma, newest=-1))


def window_covariances(network: Network, path: np.ndarray, *, maps: np.ndarray) -> np.ndarray:
    """N times the covariance of the whole window, newest token first: (steps + 1, TL, TL)."""
    context, segments = network.context, network.segments
    noise = (1.0 - path**2) / network.fractions
    step = np.eye(context * segments, k=-segments)
    result = [np.diag(noise[:context][::-1].ravel())]
    for new, matrices in zip(noise[context:], maps, strict=True):
        step[:segments] = matrices.transpose(1, 0, 2).reshape(segments, -1)
        result.append(step @ result[-1] @ step.T)
        result[-1][:segments, :segments] += np.diag(new)
    return np.array(result)


def noise_covariance(network: Network, path: np.ndarray, *, maps: np.ndarray) -> np.ndarray:
    """N times the covariance of δx at every token of the path, linear noise: (T + steps, L, L)."""
    segments = network.segments
    joint = window_covariances(network, path, maps=maps)[:, :segments, :segments]
    older = (1.0 - path[: network.context - 1] ** 2) / network.fractions
    return np.array([*map(np.diag, older), *joint])


def mean_shift(
    network: Network, beta: float, *, path: np.ndarray, maps: np.ndarray, position: int
) -> np.ndarray:
    """N times the deviation of the *mean* token from the mean-field path, (T + steps, L).

    The coefficient of 1/N, exact for N → ∞: cumulants of third order are of order 1/N².
    `position` is that of the window's newest token.
    """
    context, shift = network.context, np.zeros_like(path)
    joint = window_covariances(network, path, maps=maps)
    for t, matrices in enumerate(maps):
        window = path[t : t + context]
        # Second differences along the principal axes of the covariance.
        size, turn = np.linalg.eigh(joint[t])
        away = _STEP * turn.T.reshape(-1, *window.shape)[:, ::-1]
        ways = np.array([window + away, window - away])
        around = next_means(network, ways, beta=beta, position=position + t)
        bend = size @ (around.sum(axis=0) - 2.0 * path[context + t]) / _STEP**2
        older = shift[t : t + context][::-1]
        shift[context + t] = np.einsum("slm,sm->l", matrices, older) + 0.5 * bend
    return shift


def growth_rate(maps: np.ndarray, *, drop: int = 0) -> float:
    """Mean logarithmic growth (nats per token) of a small generic perturbation of the window.

    The first `drop` steps only turn the perturbation into its own direction.
    """
    steps, context, segments = maps.shape[:3]
    remaining = iter(maps)

    def push(frame: np.ndarray) -> np.ndarray:
        window = frame.reshape(context, segments)
        newest = np.einsum("slm,sm->l", next(remaining), window)
        return np.vstack([newest, window[:-1]]).reshape(-1, 1)

    rate = lyapunov_exponents(push, dimension=context * segments, steps=steps - drop, align=drop)
    return float(rate.value[0])


def linear_fluctuations(runs: TokenRuns, *, maps: np.ndarray) -> np.ndarray:
    """First-order deviation (R, T + steps, L) of every run, driven by its own noise."""
    context = runs.network.context
    result = runs.tokens - runs.means
    for t, matrices in enumerate(maps):
        older = result[:, t : t + context][:, ::-1]
        result[:, context + t] += np.einsum("slm,rsm->rl", matrices, older)
    return result


def predicted_rms(network: Network, covariance: np.ndarray) -> np.ndarray:
    """√N times the root-mean-square |m − m_∞| of the linear noise of `covariance` (..., L, L)."""
    pattern = semantic_overlaps(network, np.eye(network.segments)).T
    return np.sqrt(np.einsum("al,...lm,am->...", pattern, covariance, pattern))
