"""Autocorrelation of a signal x_0 … x_{n−1} of mean x̄ and variance s² (1/n).

`r_l = 1/(n s²) sum_t (x_t − x̄)(x_{t+l} − x̄)` ("biased"), or with 1/(n − l) in place of 1/n.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft


def autocorrelation(signal: np.ndarray, *, lags: int, unbiased: bool = False) -> np.ndarray:
    """Autocorrelation r_0 … r_lags of a signal (..., n) along its last axis; r_0 = 1.

    By FFT with zero padding, O(n log n). `unbiased` divides lag l by n − l instead of n.
    A constant signal has no autocorrelation: ValueError.
    """
    n = signal.shape[-1]
    centred = signal - signal.mean(axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    if not (variance > 1e-24 * (1.0 + np.max(signal**2, initial=0.0))).all():
        raise ValueError("signal must vary, got a constant")
    length = next_fast_len(n + lags, real=True)
    transform = rfft(centred, length)
    sums = irfft(np.abs(transform) ** 2, length)[..., : lags + 1]
    terms = n - np.arange(lags + 1) if unbiased else n
    return sums / (terms * variance)
