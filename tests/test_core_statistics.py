import numpy as np
import pytest
from scipy import stats
from scipy.optimize import curve_fit

from spinformer.core import statistics


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (-0.5, 0.0096, "-0.5000(96)"),
        (1.0, 0.00996, "1.000(10)"),  # rounds up to the next power of ten
        (12.34, 9.96, "12(10)"),
        (12345.0, 678.0, "12345(678)"),
        (2.0, 0.0, "2"),
        (2.0, float("nan"), "2"),
        (np.float64(1.5), np.float64(0.25), "1.50(25)"),
        (1.25e-300, 2e-302, "1.25e-300 ± 2e-302"),
        (1.25e300, 2e298, "1.25e+300 ± 2e+298"),
    ],
)
def test_an_estimate_prints_its_uncertain_digits(value, error, shown):
    assert str(statistics.Estimate(value=value, error=error)) == shown
    many = statistics.Estimate(value=np.full(2, value), error=np.full(2, error))
    assert str(many).startswith("Estimate(value=float64[2]")


def test_the_error_of_a_mean_and_students_interval_are_those_of_scipy():
    draws = np.random.default_rng(0).exponential(size=(7, 5))
    for axis in (0, 1, -1):
        found = statistics.mean_estimate(draws, axis=axis)
        np.testing.assert_allclose(found.value, draws.mean(axis))
        np.testing.assert_allclose(found.error, stats.sem(draws, axis=axis))
        assert found.samples == draws.shape[axis]
    ends = stats.ttest_1samp(draws[0], 0.0).confidence_interval()
    np.testing.assert_allclose(statistics.student_interval(draws[0]), ends)


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
    times = np.array([statistics.integrated_autocorrelation_time(row) for row in series])
    assert times.mean() == pytest.approx(time, rel=0.05)
    values = series.mean(axis=1)
    errors = series.std(axis=1) / np.sqrt(length / times - 1.0)
    assert np.sqrt((errors**2).mean()) == pytest.approx(np.sqrt(time / length), rel=0.06)
    assert np.sqrt((errors**2).mean()) / values.std() == pytest.approx(1.0, abs=0.16)


def test_chains_share_one_mean_and_count_together():
    pieces = autoregressive(2, 8, 500, 0.5)
    assert statistics.integrated_autocorrelation_time(pieces) == pytest.approx(3.0, rel=0.25)
    # Chains that disagree are correlated for as long as they are: their time is long.
    apart = pieces + 5.0 * np.arange(8)[:, None]
    assert statistics.integrated_autocorrelation_time(apart) > 100
    # A series of anticorrelated samples is not credited with more samples than it has.
    assert statistics.integrated_autocorrelation_time([1.0, -1.0] * 50) == 1.0
    assert statistics.integrated_autocorrelation_time(np.full(100, 1e8)) == 1.0


@pytest.mark.parametrize("scale", [2.0**-1000, 1e-150, 1e-14, 1e-7, 1.0, 1e30, 2.0**1000])
def test_no_scale_of_a_series_changes_what_is_said_of_it(scale):
    series = autoregressive(4, 3, 400, 0.8)
    time = statistics.integrated_autocorrelation_time(series)
    assert time > 5
    assert statistics.integrated_autocorrelation_time(scale * series) == pytest.approx(time)
    plain, scaled = statistics.mean_estimate(series[0]), statistics.mean_estimate(scale * series[0])
    assert scaled.value == pytest.approx(scale * plain.value, rel=1e-12, abs=0)
    assert scaled.error == pytest.approx(scale * plain.error, rel=1e-12, abs=0)
    assert statistics.integrated_autocorrelation_time(np.full(100, scale)) == 1.0
    # What varies by rounding alone is constant.
    rounded = scale * (1.0 + 1e-15 * np.sign(series[0]))
    assert statistics.integrated_autocorrelation_time(rounded) == 1.0


def test_a_short_series_counts_the_pairs_that_it_has():
    """ρ(t) is the mean of n − t products, few of n in a short series."""
    for seed in range(20):
        short = autoregressive(seed, 2, 7, 0.7)
        assert statistics.integrated_autocorrelation_time(short) == pytest.approx(plain_time(short))


def plain_time(series):
    """1 + 2 Σ ρ(t) up to the first lag of at least three times the sum, in plain loops; the largest
    sum on the way where that has halved."""
    chains = np.atleast_2d(series) - np.mean(series)
    length, time, longest = chains.shape[1], 1.0, 1.0
    for lag in range(1, length):
        if lag - 1 >= 3.0 * max(time, 1.0):
            break
        products = [row[t] * row[t + lag] for row in chains for t in range(length - lag)]
        time += 2.0 * np.mean(products) / np.mean(chains**2)
        longest = max(longest, time)
    return max(time, 1.0) if time >= 0.5 * longest else longest


@pytest.mark.parametrize("length", [10, 100, 1000])
def test_a_trend_is_no_series_of_independent_samples(length):
    """What drifts through the whole series has a time of the order of its length."""
    line = np.arange(float(length))
    step = np.where(line < length / 2, -1.0, 1.0)
    for slow in (line, -line, step, np.sin(line / length * np.pi)):
        assert statistics.integrated_autocorrelation_time(slow) > 0.1 * length
    with pytest.raises(ValueError, match="series must have shape"):
        statistics.integrated_autocorrelation_time(np.zeros((0, length)))


@pytest.mark.parametrize("trials", [10, 200])
def test_a_share_ends_where_a_normal_test_just_rejects_what_was_seen(trials):
    counts = np.arange(trials + 1)
    ends = np.array([statistics.wilson_interval(int(k), trials=trials) for k in counts])
    share = counts[1:-1] / trials
    for side, end in zip((1, -1), ends[1:-1].T, strict=True):
        reach = side * stats.norm.ppf(0.975) * np.sqrt(end * (1 - end) / trials)
        np.testing.assert_allclose(share - end, reach)
    assert ends[0, 0] == 0.0
    assert ends[-1, 1] == 1.0


def test_a_power_law_is_the_weighted_fit_of_the_logarithms():
    sizes = np.array([30.0, 100.0, 400.0, 1000.0, 7000.0, 2e4])
    relative = np.array([0.01, 0.03, 0.02, 0.05, 0.01, 0.04])
    values = 3.0 * sizes**-0.7 * np.exp(relative * np.random.default_rng(3).standard_normal(6))
    found = statistics.fit_power_law(sizes, values=values, errors=values * relative)
    (slope, height), covariance = curve_fit(
        lambda x, slope, height: slope * x + height,
        *np.log([sizes, values]),
        sigma=relative,
        absolute_sigma=True,
    )
    assert found.slope.value == pytest.approx(slope, abs=1e-7)
    assert found.slope.error == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-6)
    assert found.slope.samples == 6
    assert found.scale == pytest.approx(np.exp(height), rel=1e-6)
    pulls = (np.log(values) - slope * np.log(sizes) - height) / relative
    assert found.chi2 == pytest.approx((pulls**2).sum() / 4, rel=1e-6)
