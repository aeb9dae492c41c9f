import numpy as np
import pytest
from scipy.stats import binom, linregress, norm

from spinformer.core.statistics import (
    Estimate,
    fit_power,
    integrated_autocorrelation_time,
    mean_estimate,
    mean_interval,
    share_interval,
)


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (0.2953, 0.0131, "0.295(13)"),
        (-0.5, 0.0096, "-0.5000(96)"),
        (1.0, 0.00996, "1.000(10)"),  # rounds up to the next power of ten
        (12.34, 9.96, "12(10)"),
        (12345.0, 678.0, "12345(678)"),
        (3.14159, 0.1, "3.14(10)"),
        (2.0, 0.0, "2"),
        (2.0, float("nan"), "2"),
        (np.float64(1.5), np.float64(0.25), "1.50(25)"),
    ],
)
def test_an_estimate_prints_its_uncertain_digits(value, error, shown):
    assert str(Estimate(value=value, error=error)) == shown


def test_an_estimate_of_arrays_prints_their_shape():
    assert "value=float64[2]" in str(Estimate(value=np.zeros(2), error=np.ones(2)))
    assert Estimate(value=1.0, error=0.1) == Estimate(value=1.0, error=0.1, samples=float("nan"))


def test_error_of_a_mean_is_the_scatter_over_seeds():
    draws = np.random.default_rng(0).exponential(size=(3000, 5))
    found = mean_estimate(draws, axis=1)
    assert found.value.shape == found.error.shape == (3000,)
    assert found.samples == 5
    # Five samples: dividing by n instead of n − 1 would be off by a tenth.
    assert np.mean(found.error**2) / found.value.var() == pytest.approx(1.0, abs=0.08)
    np.testing.assert_allclose(mean_estimate(draws.T).error, found.error)
    np.testing.assert_allclose(mean_estimate(draws, axis=-1).value, found.value)


def test_interval_of_few_samples_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(1).standard_normal((4000, 5))
    ends = np.array([mean_interval(row) for row in draws])
    # The normal interval would hold it in 88 % of the cases, four degrees too many in 93 %.
    assert np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0)) == pytest.approx(0.95, abs=0.012)
    low, high = mean_interval(draws[0], level=0.5)
    np.testing.assert_allclose((low + high) / 2, draws[0].mean())
    with pytest.raises(ValueError, match="samples"):
        mean_interval([1.0])


def autoregressive(seed, chains, length, memory):
    """x' = memory · x + noise, of unit variance and time (1 + memory)/(1 − memory)."""
    rng = np.random.default_rng(seed)
    series = np.empty((chains, length))
    series[:, 0] = rng.standard_normal(chains)
    scale = np.sqrt(1.0 - memory**2)
    for t in range(1, length):
        series[:, t] = memory * series[:, t - 1] + scale * rng.standard_normal(chains)
    return series


@pytest.mark.parametrize("memory", [0.0, 0.6, 0.9])
def test_autoregressive_series_has_its_known_time_and_an_error_that_is_the_scatter(memory):
    length = 4000
    series = autoregressive(1, 200, length, memory)
    time = (1 + memory) / (1 - memory)
    times = np.array([integrated_autocorrelation_time(row) for row in series])
    assert times.mean() == pytest.approx(time, rel=0.05)
    values = series.mean(axis=1)
    errors = series.std(axis=1) / np.sqrt(length / times - 1.0)
    assert np.sqrt((errors**2).mean()) == pytest.approx(np.sqrt(time / length), rel=0.06)
    assert np.sqrt((errors**2).mean()) / values.std() == pytest.approx(1.0, abs=0.16)


def test_chains_share_one_mean_and_count_together():
    pieces = autoregressive(2, 8, 500, 0.5)
    assert integrated_autocorrelation_time(pieces) == pytest.approx(3.0, rel=0.25)
    # Chains that disagree are correlated for as long as they are: their time is long.
    apart = pieces + 5.0 * np.arange(8)[:, None]
    assert integrated_autocorrelation_time(apart) > 100
    # A series of anticorrelated samples is not credited with more samples than it has.
    assert integrated_autocorrelation_time([1.0, -1.0] * 50) == 1.0
    assert integrated_autocorrelation_time(np.full(100, 1e8)) == 1.0


@pytest.mark.parametrize("trials", [10, 40, 200])
def test_share_interval_covers_the_truth_as_often_as_it_says(trials):
    counts = np.arange(trials + 1)
    ends = np.array([share_interval(int(k), trials=trials, level=0.9) for k in counts])
    truths = np.linspace(0.05, 0.95, 91)
    inside = (ends[:, :1] <= truths) & (truths <= ends[:, 1:])
    coverage = (binom.pmf(counts[:, None], trials, truths) * inside).sum(axis=0)
    assert coverage.mean() == pytest.approx(0.9, abs=0.012)
    assert coverage.min() > 0.8
    # The ends are where a normal test at this level just rejects the share seen.
    z = norm.ppf(0.95)
    share = counts[1:-1] / trials
    for end in ends[1:-1].T:
        np.testing.assert_allclose(np.abs(share - end), z * np.sqrt(end * (1 - end) / trials))
    assert ends[0, 0] == 0.0
    assert ends[-1, 1] == 1.0
    assert share_interval(3, trials=trials, level=1.0) == (0.0, 1.0)


def test_power_law_has_unit_pulls_and_unit_chi2():
    rng = np.random.default_rng(3)
    sizes = np.array([30.0, 100.0, 400.0, 1000.0, 7000.0, 2e4])
    relative = np.array([0.01, 0.03, 0.02, 0.05, 0.01, 0.04])
    truth = 3.0 * sizes**-0.7
    fits = [
        fit_power(
            sizes, values=truth * (1.0 + relative * rng.standard_normal(6)), errors=truth * relative
        )
        for _ in range(800)
    ]
    pulls = np.array([(fit.slope.value + 0.7) / fit.slope.error for fit in fits])
    assert abs(pulls.mean()) < 0.15
    assert pulls.std() == pytest.approx(1.0, abs=0.08)
    assert np.mean([fit.chi2 for fit in fits]) == pytest.approx(1.0, abs=0.08)
    assert np.exp(np.mean(np.log([fit.scale for fit in fits]))) == pytest.approx(3.0, rel=0.01)
    # With equal relative errors it is the plain regression of the logarithms.
    fit = fit_power(sizes, values=truth * np.exp(relative), errors=0.1 * truth * np.exp(relative))
    plain = linregress(np.log(sizes), np.log(truth) + relative)
    assert fit.slope.value == pytest.approx(plain.slope, abs=1e-12)
    assert fit.scale == pytest.approx(np.exp(plain.intercept), rel=1e-12)
    assert fit.slope.samples == 6


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: mean_estimate([1.0]), ValueError, "samples"),
        (lambda: mean_estimate([1.0, 2.0], axis=1), ValueError, "axis"),
        (lambda: integrated_autocorrelation_time([1.0, 2.0, 3.0]), ValueError, "series"),
        (lambda: integrated_autocorrelation_time(np.ones((2, 2, 9))), ValueError, "series"),
        (lambda: share_interval(3, trials=2), ValueError, "successes"),
        (lambda: share_interval(-1, trials=2), ValueError, "successes"),
        (lambda: fit_power([1, 2], values=[1, 1], errors=[1, 1]), ValueError, "sizes"),
        (lambda: fit_power([2, 2, 2], values=[1, 1, 1], errors=[1, 1, 1]), ValueError, "sizes"),
        (lambda: fit_power([1, 2, 3], values=[1, 1], errors=[1, 1, 1]), ValueError, "values"),
        (lambda: fit_power([1, 2, 3], values=[1, 1, 1], errors=[1, 0, 1]), ValueError, "positive"),
        (lambda: fit_power([0, 2, 3], values=[1, 1, 1], errors=[1, 1, 1]), ValueError, "positive"),
    ],
)
def test_bad_input_names_the_argument(call, error, told):
    with pytest.raises(error, match=told):
        call()
