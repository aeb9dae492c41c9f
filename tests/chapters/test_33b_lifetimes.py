"""Escape times and lifetimes; parts of the chaos by counting, distances by plain loops."""

from itertools import groupby

import numpy as np
import pytest
from known_networks import COIN
from open_cells import run_open_cells
from scipy.stats import kstest

from compendium.c33b_lifetimes import escapes, switching
from compendium.c33b_lifetimes.finite_size_escapes import chain_lifetimes
from compendium.c34_memory_beyond_window.study import autocorrelation
from spinformer.dmft.lifetimes import detect_escapes, estimate_lifetime
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import poclopez2024_context, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import closed_curve
from spinformer.dmft.settling import perturbed_replicas
from spinformer.dmft.stroboscopic import stroboscopic_section


def test_the_open_cells_estimate_and_solve_as_the_package_does():
    shown = run_open_cells("33b_lifetimes")
    times = shown["escape_time"]
    found = estimate_lifetime(times, ended=times < 100)
    assert shown["estimated_lifetime"] == pytest.approx(found.value)
    assert found.low < shown["exact_lifetime"] < found.high
    # The hole takes the same fraction of the interval in every step.
    survived = np.mean(times > 50.5)
    assert survived == pytest.approx((2 / 2.02) ** 51, abs=0.015)
    sizes = np.array([11, 51, 351])
    exact = [shown["mean_escape_time"](int(size)) for size in sizes]
    np.testing.assert_allclose(exact, chain_lifetimes(COIN, sizes, beta=1.2), rtol=1e-5)
    # The rate is the least action, here in closed form.
    fixed = 1.0
    for _ in range(5000):
        fixed = np.tanh(1.2 * fixed)
    chances = np.array([0.5 * (1 + fixed), 0.5 * (1 - fixed)])
    action = np.log(np.cosh(1.2 * fixed)) - chances @ np.log(chances) - np.log(2.0)
    assert shown["escape_rate"] == pytest.approx(action, rel=0.01)


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
    found = detect_escapes(0.1 * np.array(loud)[:, None], threshold=0.05)
    assert (found.first.item(), found.escaped.item()) == (first, escaped)
    assert found.returned.item() == returned


def test_times_of_escape_are_exponential_and_another_seed_agrees():
    network = Network.poclopez2024()
    found = escapes.escape_times(
        1.27375, rate=0.05, horizon=200_000, stretch=1000, copies=128, seed=7
    )
    assert found.escaped.mean() > 0.97
    assert not found.returned.any()
    life = found.lifetime()
    times = found.times[found.times > 0] + found.stretch / 2
    assert kstest(times, "expon", args=(0, times.mean())).pvalue > 0.01
    # Of other seeds, in the tables: intervals that hold the truth in 95 of 100 cases overlap.
    stored = escapes.lifetimes_table.read()
    draws = escapes.seeds_table.read()
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
    network = Network.poclopez2024()
    start = perturbed_replicas(poclopez2024_context(network, steps=100_000, decimals=8), count=2)
    _, start = trajectory(network, start, beta=1.28, steps=0, transient=7)
    spectrum = lyapunov_spectrum(network, start, beta=1.28, steps=300, batches=3, count=1)
    rates = spectrum.growth[..., 0]
    found = escapes.escape_times(1.28, rate=0.05, horizon=300, copies=2, stretch=100, transient=7)
    np.testing.assert_array_equal(found.growth, rates.T)


@pytest.mark.nightly
def test_stored_columns_are_what_the_code_makes():
    columns = escapes.columns_table.read()
    again = escapes.columns_table.rows("zoom", 26)
    mine = (columns["diagram"] == "zoom") & (columns["chunk"] == 26)
    # Rounding decides on which side of a border a column falls.
    assert abs(columns["chaotic"][mine][0] - again[0]["chaotic"]) <= 10
    for name in ("before", "after"):
        mean = np.mean([row[name] for row in again])
        assert mean == pytest.approx(columns[name][mine].mean(), abs=0.03)


@pytest.mark.parametrize("horizon", [0.2, 1.0, 5.0])
def test_a_lifetime_holds_the_truth_however_many_are_censored(horizon):
    times = np.random.default_rng(4).exponential(1.0, (1500, 20))
    lives = [estimate_lifetime(np.minimum(own, horizon), ended=own <= horizon) for own in times]
    # With few ends, a count that jumps in whole steps, the interval is on the safe side.
    assert 0.94 < np.mean([found.low <= 1.0 <= found.high for found in lives]) < 0.99
    whole = estimate_lifetime(np.minimum(times, horizon), ended=times <= horizon)
    assert whole.value == pytest.approx(1.0, abs=0.04)
    assert whole.ended == (times <= horizon).sum()


def test_nothing_ended_gives_a_lower_end_only():
    found = estimate_lifetime([10.0, 10.0], ended=[False, False])
    assert (found.value, found.high, found.ended) == (np.inf, np.inf, 0)
    # P(no end) = exp(−T/τ) is 2.5 % at the lower end.
    assert np.exp(-20.0 / found.low) == pytest.approx(0.025)


@pytest.mark.claim("C21")
def test_the_parts_of_the_chaos_by_counting():
    """No operator: the overlap's size in stretches of 20 flashes, and how slowly it forgets."""
    points, _ = switching.chaotic_orbits(1.266, count=8, flashes=12_000, seed=21)

    def memory(series):
        """Tokens until the size of the motion has forgotten all but 1/e, over all orbits."""
        size = (series**2).sum(axis=-1).reshape(len(series), -1, 20).mean(axis=-1)
        falling = autocorrelation(size, lags=60, unbiased=True).mean(axis=0)
        at = int(np.argmax(falling < np.exp(-1.0)))
        return (
            switching.FLASH
            * 20
            * (at - (np.exp(-1.0) - falling[at]) / (falling[at - 1] - falling[at]))
        )

    slow = memory(points)
    twin = switching.phase_surrogate(points, seed=0)
    mixed = switching.shuffled_blocks(points[:, :12_000], block=20, seed=0)
    wild, _ = switching.chaotic_orbits(1.28, count=8, flashes=12_000, seed=21)
    table = switching.orbits_table.read()
    mine = table["slow"][table["beta"] == 1.266].mean()
    assert slow == pytest.approx(mine, rel=0.4)
    assert max(memory(twin), memory(mixed), memory(wild)) < slow / 3.0
    # Every orbit has stretches of both kinds, split at the middle of two well-parted sizes.
    size = np.abs(points[..., 0]).reshape(8, -1, 20).max(axis=-1)
    calm = (size < 0.24).mean(axis=1)
    assert (calm > 0.1).all()
    assert (calm < 0.9).all()
    parts = switching.calm_parts(points)
    state = np.round(parts.reshape(8, -1, 20).mean(axis=-1))
    assert ((state == 0) == (size < 0.24))[:, 5:].mean() > 0.85
    # Whatever sign the eigenvector comes with, the wild part is that of the larger overlaps.
    for orbit in points:
        alone = switching.calm_parts(orbit[None])[0]
        largest = np.abs(orbit).max(axis=-1)
        assert largest[alone == 1].mean() > largest[alone == 0].mean()
    # Long dwells have no memory: beyond two lags of the operator they scatter as exponentials do.
    runs = [(part, len(list(run))) for row in parts for part, run in groupby(row.tolist())]
    # At one border in the middle there would be twice as many.
    assert len(runs) < 1500
    for part in (0, 1):
        left = np.array([length - 32 for which, length in runs if which == part and length > 32])
        assert len(left) > 100
        assert left.std(ddof=1) / left.mean() == pytest.approx(1.0, abs=0.2)


def test_shuffling_keeps_blocks_whole_and_following_is_counted():
    points = np.arange(48.0).reshape(2, 24, 1)
    mixed = switching.shuffled_blocks(points, block=4, seed=1)
    assert sorted(mixed[0].ravel()) == sorted(points[0].ravel())
    inner = np.diff(mixed[:, :, 0], axis=1).reshape(2, -1)
    assert (inner[:, [n for n in range(23) if n % 4 != 3]] == 1.0).all()
    assert not np.array_equal(mixed[0], points[0])
    runs = switching.followed(np.array([[0.0, 0.01, 0.5, 0.0, 0.0, 0.019]]), rounds=3)
    assert runs[0].tolist() == [False, False, False, True, True, True]


@pytest.mark.nightly
def test_stored_rows_come_out_again():
    rows = switching.orbits_table.rows(1.266, seed=5)
    table = switching.orbits_table.read()
    here = table["beta"] == 1.266
    for name, tolerance in (("slow", 0.5), ("surrogate", 0.2), ("shuffled", 0.2), ("calm", 0.3)):
        mean = np.mean([row[name] for row in rows])
        assert mean == pytest.approx(table[name][here].mean(), rel=tolerance), name


@pytest.mark.parametrize("lag", [1, 5])
def test_the_time_of_two_parts_is_that_of_the_chain(lag):
    # Leaves part 0 with probability 0.01, part 1 with 0.03: the eigenvalue is 1 - 0.01 - 0.03.
    chain = [0]
    for draw in np.random.default_rng(0).random(60_000):
        chain.append(int(draw > (0.99, 0.03)[chain[-1]]))
    # Within a part 40 boxes at random each, so that ten eigenvalues are some of many.
    labels = np.array(chain) * 40 + np.random.default_rng(1).integers(0, 40, len(chain))
    times, vector = switching.slow_modes(labels, lag=lag)
    assert times[0] == pytest.approx(-1.0 / np.log(0.96), rel=0.1)
    # The second is another real one of the ten largest moduli, or the bound that these set.
    kernel = np.zeros((80, 80))
    np.add.at(kernel, (labels[:-lag], labels[lag:]), 1.0)
    found = np.linalg.eigvals(kernel / kernel.sum(axis=1, keepdims=True))
    largest = found[np.argsort(-np.abs(found))[:10]]
    real = np.sort(largest.real[(np.abs(largest.imag) < 1e-9) & (largest.real > 0.0)])
    least = real[-3] if len(real) > 2 else np.abs(largest).min()
    assert times[1] == pytest.approx(-lag / np.log(least), rel=1e-4)
    # The vector is flat on either part: by mean 0 and mean square 1 it is sqrt(3) on the rarer.
    assert np.abs(vector[40:]).mean() == pytest.approx(np.sqrt(3.0), rel=0.1)
    assert vector[:40].mean() * vector[40:].mean() < 0.0


def test_turning_is_no_part_and_an_end_that_is_never_left_is_no_trap():
    rng = np.random.default_rng(0)
    turning = np.where(rng.random(6000) < 0.1, 2, np.arange(6000) % 3)
    # A wheel of five boxes has complex eigenvalues of real part 0.95 cos 72°: no parts either.
    wheel = np.cumsum(1 + (rng.random(6000) < 0.05)) % 5
    # Eight boxes at random in place of one.
    scattered = [8 * one + rng.integers(0, 8, 6000) for one in (turning, wheel)]
    ended = np.append(rng.integers(0, 80, 20_000), 80)
    for labels in (*scattered, ended):
        assert switching.slow_modes(labels, lag=1)[0][0] < 1.5


def test_the_core_that_was_visited_last():
    seen = switching.last_core(
        np.array([[0.5, 0.9, 0.5, 0.1], [0.1, 0.5, 0.9, 0.5]]), low=0.2, high=0.8
    )
    assert seen.tolist() == [[-1, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("length", [200, 201])
def test_a_surrogate_keeps_spectra_and_cross_spectra_and_nothing_else(length):
    rng = np.random.default_rng(4)
    series = rng.standard_normal((length, 2)).cumsum(axis=0) ** 2
    twin = switching.phase_surrogate(series, seed=5)
    np.testing.assert_allclose(twin.mean(axis=0), series.mean(axis=0))
    one = np.fft.fft(series - series.mean(axis=0), axis=0)
    two = np.fft.fft(twin - twin.mean(axis=0), axis=0)
    crossed = [np.einsum("fi,fj->fij", waves, waves.conj()) for waves in (one, two)]
    np.testing.assert_allclose(crossed[1], crossed[0], atol=1e-4)
    skew = [((x - x.mean(axis=0)) ** 3).mean(axis=0) / x.std(axis=0) ** 3 for x in (series, twin)]
    assert not np.allclose(*skew, rtol=0.05)
    assert not np.array_equal(twin, switching.phase_surrogate(series, seed=6))


def test_lifetimes_of_both_tables_are_pooled():
    """Ten escapes of mean lifetime 100 and thirty of 200 are forty of 175, at either β."""
    betas = np.array([1.27, 1.28])
    table = {"beta": betas, "escaped": np.array([10, 10]), "lifetime": np.array([100.0, 100.0])}
    draws = {"beta": betas, "escaped": np.array([30, 30]), "total": np.array([6000.0, 6000.0])}
    law = escapes.lifetime_law(table, draws=draws)
    assert law["common"] == pytest.approx(175.0)
    assert law["middle"] == pytest.approx(175.0)
    assert law["chi2"] == pytest.approx(0.0, abs=1e-9)
    # Each logarithm has the error 40^(-1/2), and the two values of β are 0.01 apart.
    assert law["slope"].error == pytest.approx(np.sqrt(2 / 40) / 0.01)


def test_growth_beside_structures_is_measured_where_their_points_are(monkeypatch):
    """An orbit on the closed curve is on it all the time, and its flashes in another order too."""
    curve = switching.structure_points("closed curve")
    places = {"closed curve": curve, "cycle 28": curve + 5.0}
    network = Network.poclopez2024()
    _, start = stroboscopic_section(network, closed_curve([1.266]), beta=1.266, count=1)
    monkeypatch.setattr(switching, "chaotic_orbits", lambda beta, **_: (None, start))
    monkeypatch.setattr(switching, "structure_points", places.__getitem__)
    monkeypatch.setattr(switching, "followed", lambda distance, rounds: distance)
    (row,) = switching.growth_table.rows(1.266, seed=1)
    # The curve is known at 4000 of its points.
    assert row["near closed curve"] < row["follows closed curve"] < 1e-3
    assert row["mixed closed curve"] == pytest.approx(row["follows closed curve"], rel=0.05)
    assert 4.0 < row["near cycle 28"] < row["follows cycle 28"] < 6.0
