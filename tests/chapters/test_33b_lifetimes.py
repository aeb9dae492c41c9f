import numpy as np
import pytest
from scipy.stats import kstest

from compendium.c33b_lifetimes.escapes import (
    COLUMNS,
    LIFETIMES,
    SEEDS,
    escape_times,
    escapes_of,
    lifetime_estimate,
)
from compendium.common.phase_transitions import protocol_start
from compendium.common.windows import replicas
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.network import Network


@pytest.mark.parametrize(
    ("loud", "first", "escaped", "returned"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 1], 8, False, False),
        ([1, 0, 1, 0, 0, 1, 1, 1], 8, False, False),
        ([1, 1, 0, 0, 0, 0, 0, 0], 2, True, False),
        ([0, 0, 0, 0, 0, 0, 0, 0], 0, True, False),
        ([1, 1, 1, 1, 1, 1, 0, 0], 8, False, False),  # too late to tell
        ([1, 0, 0, 0, 0, 1, 0, 0], 1, True, True),
    ],
)
def test_an_escape_is_quiet_from_some_stretch_on(loud, first, escaped, returned):
    found = escapes_of(0.1 * np.array(loud)[:, None], rate=0.05)
    assert [one.item() for one in found] == [first, escaped, returned]


def test_times_of_escape_are_exponential_and_another_seed_agrees():
    network, how = Network.document(), {"rate": 0.05, "horizon": 200_000, "stretch": 1000}
    found = escape_times(1.27375, copies=128, seed=7, **how)
    assert found.escaped.mean() > 0.97
    assert not found.returned.any()
    life = found.lifetime()
    times = found.times[found.times > 0] + found.stretch / 2
    assert kstest(times, "expon", args=(0, times.mean())).pvalue > 0.01
    # Of other seeds, in the tables: intervals that hold the truth in 95 of 100 cases overlap.
    stored, draws = LIFETIMES.read(), SEEDS.read()
    at = np.searchsorted(stored["beta"], draws["beta"])
    np.testing.assert_array_equal(stored["beta"][at], draws["beta"])
    meet = (draws["low"] < stored["high"][at]) & (stored["low"][at] < draws["high"])
    assert meet.mean() > 0.9
    [here] = np.flatnonzero(stored["beta"] == 1.27375)
    assert stored["low"][here] < life.high
    assert life.low < stored["high"][here]
    # Escaped copies rest on a cycle, to which no tangent vector grows.
    end = found.context.select(found.escaped)
    found = lyapunov_spectrum(network, end, beta=1.27375, steps=20_000, count=1)
    assert found.exponents.value.max() < 1e-3


def test_escapes_are_counted_after_the_transient():
    network = Network.document()
    start = replicas(protocol_start(network, steps=100_000), count=2)
    ensemble = Ensemble(network, start, beta=1.28)
    ensemble.advance(7)
    given = {"beta": 1.28, "steps": 300, "batches": 3, "count": 1}
    rates = lyapunov_spectrum(network, ensemble.state(), **given).growth[..., 0]
    found = escape_times(1.28, rate=0.05, horizon=300, copies=2, stretch=100, transient=7)
    np.testing.assert_array_equal(found.growth, rates.T)


@pytest.mark.nightly
def test_stored_columns_are_what_the_code_makes():
    columns, again = COLUMNS.read(), COLUMNS.rows("zoom", 26)
    mine = (columns["diagram"] == "zoom") & (columns["chunk"] == 26)
    # Rounding decides on which side of a border a column falls.
    assert abs(columns["chaotic"][mine][0] - again[0]["chaotic"]) <= 10
    for name in ("before", "after"):
        assert np.mean([row[name] for row in again]) == pytest.approx(
            columns[name][mine].mean(), abs=0.03
        )


@pytest.mark.parametrize("horizon", [0.2, 1.0, 5.0])
def test_a_lifetime_holds_the_truth_however_many_are_censored(horizon):
    times = np.random.default_rng(4).exponential(1.0, (1500, 20))
    lives = [lifetime_estimate(np.minimum(own, horizon), ended=own <= horizon) for own in times]
    # With few ends, a count that jumps in whole steps, the interval is on the safe side.
    assert 0.94 < np.mean([found.low <= 1.0 <= found.high for found in lives]) < 0.99
    whole = lifetime_estimate(np.minimum(times, horizon), ended=times <= horizon)
    assert whole.value == pytest.approx(1.0, abs=0.04)
    assert whole.ended == (times <= horizon).sum()


def test_nothing_ended_gives_a_lower_end_only():
    found = lifetime_estimate([10.0, 10.0], ended=[False, False])
    assert (found.value, found.high, found.ended) == (np.inf, np.inf, 0)
    # P(no end) = exp(−T/τ) is 2.5 % at the lower end.
    assert np.exp(-20.0 / found.low) == pytest.approx(0.025)
