import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compendium.c34_memory_beyond_window.signals import autocorrelation, spectrum

lengths = st.integers(3, 80)
seeds = st.integers(0, 10_000)


@given(lengths, seeds)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_spectrum_equals_the_sum_that_defines_it(n, seed):
    signal = np.random.default_rng(seed).standard_normal(n) + 3.0
    result = spectrum(signal)
    time = np.arange(n)
    for k in range(n // 2 + 1):
        term = np.sum((signal - signal.mean()) * np.exp(-2j * np.pi * k * time / n))
        assert result.amplitude[k] == pytest.approx(abs(term) / n, abs=1e-12)
        assert result.frequency[k] == pytest.approx(k / n, abs=1e-15)
    assert result.power.sum() == pytest.approx(signal.var(), rel=1e-12)


@given(lengths, seeds, st.booleans())
@settings(deadline=None, max_examples=25, derandomize=True)
def test_autocorrelation_equals_the_sum_that_defines_it(n, seed, unbiased):
    signal = np.random.default_rng(seed).standard_normal((2, n)).cumsum(axis=1)
    result = autocorrelation(signal, lags=n - 1, unbiased=unbiased)
    for row in range(2):
        x = signal[row] - signal[row].mean()
        for lag in range(n):
            terms = n - lag if unbiased else n
            expected = np.sum(x[: n - lag] * x[lag:]) / (terms * np.mean(x**2))
            assert result[row, lag] == pytest.approx(expected, abs=1e-10)


def test_biased_autocorrelation_and_power_are_a_transform_pair():
    signal = np.random.default_rng(1).standard_normal(64).cumsum()
    r = autocorrelation(signal, lags=63)
    lags = np.arange(1, 64)
    result = spectrum(signal)
    # Wiener-Khinchin: n |X_k/n|² / s² = r_0 + 2 sum_l r_l cos(2 pi k l / n), any k.
    for k in (0, 1, 5, 31):
        expected = 1.0 + 2.0 * np.sum(r[1:] * np.cos(2 * np.pi * k * lags / 64))
        assert 64 * result.amplitude[k] ** 2 / signal.var() == pytest.approx(expected, abs=1e-10)


def test_line_of_a_cosine_sits_where_it_should():
    time = np.arange(1000)
    signal = 0.6 * np.cos(2 * np.pi * 0.111 * time) + 0.2 * np.cos(2 * np.pi * 0.3 * time)
    frequency, amplitude = spectrum(signal).lines(2)
    np.testing.assert_allclose(frequency, [0.111, 0.3], rtol=0, atol=1e-12)
    np.testing.assert_allclose(amplitude, [0.3, 0.1], rtol=0, atol=1e-12)
    assert spectrum(signal).power_below(0.2) == pytest.approx(0.9, abs=1e-12)
    assert spectrum(signal).power_below(0.111 - 1e-9) == pytest.approx(0.0, abs=1e-12)
    assert spectrum(signal).power_below(float(frequency[0])) == pytest.approx(0.0, abs=1e-12)


def test_hann_taper_keeps_power_and_stops_leakage():
    signal = np.cos(2 * np.pi * 0.1234 * np.arange(1000))
    plain, tapered = spectrum(signal), spectrum(signal, window=True)
    assert tapered.power.sum() == pytest.approx(plain.power.sum(), rel=0.02)
    far = plain.frequency > 0.3
    assert tapered.amplitude[far].max() < 1e-3 * plain.amplitude[far].max()


def test_a_constant_has_no_autocorrelation():
    for signal in (np.ones(9), 1.0 + 1e-14 * np.arange(9.0)):
        with pytest.raises(ValueError, match="constant"):
            autocorrelation(signal, lags=3)
