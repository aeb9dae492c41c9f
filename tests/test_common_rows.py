"""Lines of tables of settings: value and interval on the side that a claim asks for."""

import math

import numpy as np
import pytest
from scipy import stats

from compendium.common.rows import (
    estimate_rows,
    mean_rows,
    median_rows,
    near_rows,
    share_rows,
)
from spinformer.core.statistics import Estimate


def wilson(hits, trials):
    """The shares whose own spread of 1.96 standard deviations reaches the seen one, by a root."""
    z = stats.norm.ppf(0.975)
    share = hits / trials
    # (p − share)² = z² p (1 − p)/n, a quadratic in p.
    roots = np.roots([1 + z**2 / trials, -2 * share - z**2 / trials, share**2])
    return sorted(roots.real)


@pytest.mark.parametrize(("hits", "trials"), [(45, 50), (3, 50), (0, 7), (7, 7)])
def test_a_share_lies_above_its_bound_or_below_it(hits, trials):
    low, high = wilson(hits, trials)
    (above,) = share_rows(hits, trials=trials, bound=0.2)
    assert above["value"] == pytest.approx(hits / trials - 0.2)
    assert above["low"] == pytest.approx(low - 0.2, abs=1e-9)
    assert above["high"] == pytest.approx(high - 0.2, abs=1e-9)
    assert above["runs"] == trials
    # Asked to be below: what a share has less than the bound counts, and the ends change places.
    (below,) = share_rows(hits, trials=trials, bound=0.2, sign=-1)
    assert below["value"] == pytest.approx(0.2 - hits / trials)
    assert below["low"] == pytest.approx(0.2 - high, abs=1e-9)
    assert below["high"] == pytest.approx(0.2 - low, abs=1e-9)
    for row in (above, below):
        assert row["low"] <= row["value"] <= row["high"]


def test_no_trial_says_nothing():
    for sign in (1, -1):
        (row,) = share_rows(0, trials=0, bound=0.5, sign=sign)
        assert row["runs"] == 0
        assert row["low"] < 0 < row["high"]


def test_means_medians_and_estimates():
    samples = np.random.default_rng(0).normal(0.3, 1.0, 12)
    (mean,) = mean_rows(samples)
    error = samples.std(ddof=1) / math.sqrt(12)
    half = stats.t.ppf(0.975, 11) * error
    assert (mean["value"], mean["runs"]) == (pytest.approx(samples.mean()), 12)
    assert mean["low"] == pytest.approx(samples.mean() - half)
    assert mean["high"] == pytest.approx(samples.mean() + half)
    (middle,) = median_rows(samples)
    ordered = np.sort(samples)
    assert middle["value"] == pytest.approx((ordered[5] + ordered[6]) / 2)
    # Of twelve the third and the tenth: 96.1 % by the binomial law; inside them 85.4 %.
    assert (middle["low"], middle["high"], middle["runs"]) == (ordered[2], ordered[9], 12)
    (found,) = estimate_rows(Estimate(value=1.0, error=0.2, samples=9), bound=0.7)
    assert found == {
        "value": pytest.approx(0.3),
        "low": pytest.approx(-0.1),
        "high": pytest.approx(0.7),
        "runs": 9,
    }


def test_a_value_near_its_aim():
    """Inside the interval the aim is at no distance; outside the nearer end is the best case."""
    (inside,) = near_rows((0.9, 0.7, 1.1), aim=1.0, within=0.5, runs=4)
    assert list(inside.values()) == pytest.approx([0.4, 0.2, 0.5, 4])
    for sign in (1, -1):
        ends = sorted((1.0 + sign * 0.6, 1.0 + sign * 0.3))
        (outside,) = near_rows((1.0 + sign * 0.4, *ends), aim=1.0, within=0.5, runs=4)
        assert list(outside.values()) == pytest.approx([0.1, -0.1, 0.2, 4])
