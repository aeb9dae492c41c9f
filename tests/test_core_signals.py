import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compendium.c34_memory_beyond_window.study import autocorrelation


@given(st.integers(3, 80), st.integers(0, 10_000), st.booleans())
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


def test_a_constant_has_no_autocorrelation():
    for signal in (np.ones(9), 1.0 + 1e-14 * np.arange(9.0)):
        with pytest.raises(ValueError, match="constant"):
            autocorrelation(signal, lags=3)
