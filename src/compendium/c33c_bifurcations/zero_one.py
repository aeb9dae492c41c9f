"""The 0-1 test for chaos, which looks at a series alone."""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.stats import norm

from spinformer.core.statistics import Estimate

# Frequencies c away from 0 and π, where a slow drift or an alternating series would resonate.
_LOWEST, _HIGHEST = np.pi / 5.0, 4.0 * np.pi / 5.0


def zero_one_test(series: np.ndarray, *, count: int = 100, seed: int = 0) -> Estimate:
    """The 0-1 test: near 1 for a chaotic series (n,), near 0 for a regular one.

    The series drives a walk in the plane, p + i s = Σ_j φ_j e^{icj}, which diffuses if φ is chaotic
    and stays bounded if not. K_c is the correlation of the mean square displacement after m steps,
    m ≤ n/10, its oscillation removed, with m; the value is the median over `count` random
    frequencies c, the error that of this median [gottwald2009implementation]. A series sampled too
    densely looks regular: strobe it.
    """
    n = len(series)
    c = np.random.default_rng(seed).uniform(_LOWEST, _HIGHEST, count)
    lags = np.arange(1, n // 10 + 1)
    walk = np.cumsum(series * np.exp(1j * c[:, None] * np.arange(1, n + 1)), axis=1)
    displacement = _mean_square_displacement(walk, n - n // 10, len(lags))
    # The term that oscillates without growing.
    wave = series.mean() ** 2 * (1.0 - np.cos(np.outer(c, lags))) / (1.0 - np.cos(c))[:, None]
    growth = displacement - wave
    growth -= growth.mean(axis=1, keepdims=True)
    centred = lags - lags.mean()
    k = growth @ centred / np.sqrt((growth**2).sum(axis=1) * (centred**2).sum())
    # A median of normal values has an error √(π/2) times that of the mean; the width by quartiles,
    # since a few frequencies lie near a line of the spectrum and are far off.
    low, high = np.quantile(k, (0.25, 0.75))
    width = (high - low) / (norm.ppf(0.75) - norm.ppf(0.25))
    error = float(np.sqrt(np.pi / 2) * width / np.sqrt(count))
    return Estimate(value=float(np.median(k)), error=error, samples=count)


def _mean_square_displacement(walk: np.ndarray, kept: int, lags: int) -> np.ndarray:
    """Mean over j < kept of |w_{j+m} − w_j|² for m = 1 … lags, (count, lags), by FFT."""
    length = next_fast_len(walk.shape[1] + kept)
    cross = np.zeros((len(walk), lags))
    for part in (walk.real, walk.imag):
        head = rfft(part[:, :kept], length)
        cross += irfft(rfft(part, length) * head.conj(), length)[:, 1 : lags + 1]
    squares = np.cumsum(np.pad(np.abs(walk) ** 2, ((0, 0), (1, 0))), axis=1)
    first = squares[:, kept : kept + 1]
    moved = squares[:, kept + 1 : kept + lags + 1] - squares[:, 1 : lags + 1]
    return np.asarray((first + moved - 2.0 * cross) / kept)
