"""What the last T tokens of a noisy network know of an earlier one: Fisher memory.

Along a mean-field path the deviation of a network of N bits obeys, to first order in N^{-1/2},
`δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}` with independent noise ξ of covariance D/N
(`finite_size`). The window of T deviations is then a Gaussian state z of n = T·L numbers,
`z' = F z + (ξ, 0, …, 0)`, of covariance C/N. Shift the noise of one token by a vector u: k tokens
later the state's mean has moved by Φ_k u, its covariance is C_k/N, and the Fisher information of
the state about the shift is [ganguli2008memory, Eq. (3), there for a stationary linear network]

    N uᵀ Φ_kᵀ C_k⁻¹ Φ_k u  =  N |B_k e|²,   u = D^{1/2} e,   B_k = C_k^{-1/2} Φ_k D^{1/2} .

B_k, an (n, L) matrix, is followed by itself. With C = S Sᵀ, one step turns S into the factor of
`[F S, D^{1/2}]`, whose orthogonal factor O takes B along: B' = O₁ᵀ B. O is orthogonal, so memory
never grows with the delay, and the memories of all tokens whose noise made the window add up to n
whatever the dynamics. No covariance is inverted, which chaos would make impossible.

Conventions of `finite_size`: maps (steps, T, L, L) with the axis s counting back, noise
(T + steps, L) from old to new.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spinformer.dmft.network import Network


def token_noise(network: Network, path: np.ndarray) -> np.ndarray:
    """N times the variance of the noise of every token of a path (..., L) of segment means.

    A segment that holds the share f of N bits of mean m has variance (1 − m²)/(f N).
    """
    return (1.0 - path**2) / network.fractions


def fisher_memory(maps: np.ndarray, *, noise: np.ndarray) -> np.ndarray:
    """B_k of the newest token of the first window after k = 0, 1, … steps: (steps + 1, n, L).

    A shift of that token by N^{-1/2} D^{1/2} e, D its noise, is known k tokens later with the
    Fisher information |B_k e|², at most |e|²; what stood before the first window is known. The
    singular values of B_k never grow with k.
    noise: (T + steps, L), positive.
    """
    size = maps.shape[1] * maps.shape[2]
    memory = np.eye(size)[:, : maps.shape[2]]
    followed = [memory]
    for _, orthogonal in _steps(maps, noise):
        memory = orthogonal[:size].T @ memory
        followed.append(memory)
    return np.array(followed)


def memory_profile(maps: np.ndarray, *, noise: np.ndarray) -> np.ndarray:
    """How much the last window knows of every token of the path, (T + steps,), old to new.

    The trace of B Bᵀ for each token: L where all of its components are known as well as they
    were written, 0 where nothing is. They add up to T·L, the size of the window.
    """
    context, segments = maps.shape[1:3]
    size = context * segments
    # The window is newest first, the profile old to new.
    memory = np.eye(size).reshape(size, context, segments).transpose(1, 0, 2)[::-1]
    for _, orthogonal in _steps(maps, noise):
        kept, new = orthogonal[:size], orthogonal[size:]
        memory = np.concatenate([kept.T @ memory, new.T[None]])
    return np.asarray((memory**2).sum(axis=(1, 2)))


def noise_growth(maps: np.ndarray, *, noise: np.ndarray, readout: np.ndarray) -> np.ndarray:
    """√N times the rms deviation of `readout @ x` after each of the steps, (steps + 1,).

    readout: (P, L). The noise of the first window is the first noise there is.
    """
    segments = maps.shape[2]
    factors = [_start(maps, noise), *(factor for factor, _ in _steps(maps, noise))]
    return np.array([np.linalg.norm(readout @ factor[:segments]) for factor in factors])


def _start(maps: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """S of the first window, newest token first, as the axis s of the maps counts."""
    return np.diag(np.sqrt(noise[: maps.shape[1]][::-1]).ravel())


def _steps(maps: np.ndarray, noise: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """After each step S with C = S Sᵀ, and the orthogonal factor (n + L, n) that led to it."""
    steps, context, segments = maps.shape[:3]
    size = context * segments
    factor = _start(maps, noise)
    for time in range(steps):
        push = np.zeros((size, size + segments))
        newest = maps[time].transpose(1, 0, 2).reshape(segments, size)
        push[:segments, :size] = newest @ factor
        push[segments:, :size] = factor[:-segments]
        push[:segments, size:] = np.diag(np.sqrt(noise[context + time]))
        orthogonal, upper = np.linalg.qr(push.T)
        factor = upper.T
        yield factor, orthogonal
