"""What a series alone, or a spectrum of exponents alone, says about chaos."""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.stats import norm

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate

# Frequencies c away from 0 and π, where a slow drift or an alternating series would resonate.
_LOWEST, _HIGHEST = np.pi / 5.0, 4.0 * np.pi / 5.0
_FEWEST = 100


def zero_one_test(series: np.ndarray, *, count: int = 100, seed: Seed = 0) -> Estimate:
    """The 0-1 test: near 1 for a chaotic series (n,), near 0 for a regular one, at least 100 long.

    The series drives a walk in the plane, p + i s = Σ_j φ_j e^{icj}, which diffuses if φ is chaotic
    and stays bounded if not. K_c is the correlation of the mean square displacement after m steps,
    m ≤ n/10, its oscillation removed, with m; the value is the median over `count` random
    frequencies c, the error that of this median [gottwald2009implementation]. A series sampled too
    densely looks regular: strobe it. ValueError for a constant series.

    >>> logistic = [0.3]
    >>> for _ in range(2000):
    ...     logistic.append(3.97 * logistic[-1] * (1 - logistic[-1]))
    >>> wave = np.cos(2 * np.pi * 0.2419 * np.arange(2000))
    >>> zero_one_test(np.array(logistic)).value > 0.9, zero_one_test(wave).value < 0.1
    (True, True)
    """
    values = check_array("series", series, ndim=1)
    n = check_integer("length of series", len(values), low=_FEWEST)
    count = check_integer("count", count, low=1)
    if not np.ptp(values) > 1e-12 * max(1.0, float(np.abs(values).max())):
        raise ValueError("series must vary, got a constant")
    c = numpy_generator(seed).uniform(_LOWEST, _HIGHEST, count)
    lags = np.arange(1, n // 10 + 1)
    kept = n - n // 10
    walk = np.cumsum(values * np.exp(1j * c[:, None] * np.arange(1, n + 1)), axis=1)
    displacement = _mean_square_displacement(walk, kept, len(lags))
    # The term that oscillates without growing.
    wave = values.mean() ** 2 * (1.0 - np.cos(np.outer(c, lags))) / (1.0 - np.cos(c))[:, None]
    growth = displacement - wave
    growth -= growth.mean(axis=1, keepdims=True)
    centred = lags - lags.mean()
    spread = np.sqrt((growth**2).sum(axis=1) * (centred**2).sum())
    k = growth @ centred / np.where(spread > 0.0, spread, 1.0)
    # A median of normal values has an error √(π/2) times that of the mean; the width by quartiles,
    # since a few frequencies lie near a line of the spectrum and are far off.
    low, high = np.quantile(k, (0.25, 0.75))
    width = (high - low) / (norm.ppf(0.75) - norm.ppf(0.25))
    error = float(np.sqrt(np.pi / 2) * width / np.sqrt(count)) if count > 1 else np.nan
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


def kaplan_yorke_dimension(exponents: np.ndarray) -> np.ndarray:
    """D = j + (λ_1 + … + λ_j)/|λ_{j+1}|, j the last sum that is not negative; (..., k) → (...).

    exponents: the largest first. 0 where λ_1 < 0, and k where no sum is negative (then the
    dimension is at least k) [kaplan1979chaotic].

    >>> kaplan_yorke_dimension(np.array([[0.1, 0.0, -0.4], [-0.1, -0.2, -0.3]])).tolist()
    [2.25, 0.0]
    """
    values = check_array("exponents", exponents)
    if values.ndim < 1 or not values.shape[-1]:
        raise ValueError(f"exponents must have shape (..., k), got {values.shape}")
    if (np.diff(values, axis=-1) > 0.0).any():
        raise ValueError("exponents must be sorted, the largest first")
    k = values.shape[-1]
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    # Sums of a falling sequence rise, then fall: the last that is not negative.
    index = k - np.argmax((sums >= 0.0)[..., ::-1], axis=-1)
    full = index == k
    at = np.minimum(index, k - 1)[..., None]
    total = np.take_along_axis(sums, at, axis=-1)[..., 0]
    following = np.take_along_axis(values, at, axis=-1)[..., 0]
    return np.asarray(np.where(full, float(k), index + total / np.where(full, 1.0, -following)))
