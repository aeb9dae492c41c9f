"""Spectrum and autocorrelation of a scalar signal.

Normalisations, once for all, for a signal x_0 … x_{n−1} of mean x̄ and variance s² (1/n):
the amplitude spectrum is `|X_k| / n`, X_k the discrete Fourier transform of x − x̄ (the mean,
a peak at frequency zero that hides all others, is removed); the power at frequency 0 < f_k < ½
counts both ±f_k, so that powers sum to s² (Parseval); the autocorrelation is
`r_l = 1/(n s²) sum_t (x_t − x̄)(x_{t+l} − x̄)` ("biased", as it should be for a spectrum), or
with 1/(n − l) in place of 1/n. Frequencies are in cycles per step, from 0 to ½.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

from spinformer.core.records import record


@record
class Spectrum:
    """One-sided spectrum: frequencies (cycles per step), amplitudes |X_k|/n and powers.

    >>> tone = spectrum(np.cos(2.0 * np.pi * np.arange(100) / 10))
    >>> f"{tone.power_below(0.2):.3f}"
    '1.000'
    """

    frequency: np.ndarray
    amplitude: np.ndarray
    power: np.ndarray

    def power_below(self, frequency: float) -> float:
        """Share of the variance at frequencies strictly below `frequency` (0 excluded)."""
        total = self.power.sum()
        return float(self.power[self.frequency < frequency].sum() / total) if total else 0.0

    def lines(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The `count` strongest local maxima as (frequencies, amplitudes), strongest first."""
        padded = np.concatenate([[0.0], self.amplitude, [0.0]])
        peak = (padded[1:-1] >= padded[:-2]) & (padded[1:-1] > padded[2:])
        where = np.flatnonzero(peak & (self.amplitude > 0.0))
        where = where[np.argsort(-self.amplitude[where], kind="stable")][:count]
        return self.frequency[where], self.amplitude[where]


def spectrum(signal: np.ndarray, *, window: bool = False) -> Spectrum:
    """One-sided spectrum of a real signal (n,), mean removed, normalised as stated above.

    With `window` the signal is tapered by a Hann window of unit mean square first: lines leak
    less into their neighbourhood, and the total power is kept on average only.
    """
    n = len(signal)
    centred = signal - signal.mean()
    if window:
        taper = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(n) / n)
        centred = centred * taper / np.sqrt(np.mean(taper**2))
    amplitude = np.abs(rfft(centred)) / n
    power = 2.0 * amplitude**2
    power[0] = amplitude[0] ** 2
    if n % 2 == 0:
        power[-1] = amplitude[-1] ** 2
    return Spectrum(frequency=rfftfreq(n), amplitude=amplitude, power=power)


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
