"""Chapter 32b: laws of finite size, and an onset that does not move with more texts."""

import numpy as np
import pytest
from known_networks import COIN, CONTEXT
from open_cells import run_open_cells

from compendium.c32_paths_to_mean_fields.functional import propagate
from compendium.c32b_finite_size import study
from compendium.common.finite_size import deviation, median_slope
from spinformer.dmft import corrections, finite_size
from spinformer.dmft.network import Network


def test_the_open_cells_have_the_coefficients_of_the_package():
    shown = run_open_cells("32b_finite_size")
    half = np.array([[0.5]])
    limit = corrections.finite_size_corrections(COIN, 2.0, window=half, steps=3, position=0)
    assert shown["mean"] == pytest.approx(limit.path[-1, 0], abs=1e-12)
    assert shown["variance"] == pytest.approx(limit.sigma[-1] ** 2, rel=1e-9)
    assert shown["shift"] == pytest.approx(limit.shift[-1, 0], rel=1e-6)
    # Sampled texts against the exact distribution, at a size where the laws are not yet met.
    law = propagate(COIN, 100, beta=2.0, window=half, steps=3, position=0, draw_window=True)[-1]
    states = finite_size.token_states(COIN, 100)[:, 0]
    average = law @ states
    square = law @ states**2 - average**2
    assert shown["variance_ratios"][100] * shown["variance"] == pytest.approx(
        100 * square, rel=0.02
    )
    assert shown["shift_ratios"][100] * shown["shift"] / 100 == pytest.approx(
        average - shown["mean"], rel=0.06
    )
    assert shown["variance_ratios"][1000] == pytest.approx(1.0, abs=0.02)


@pytest.mark.claim("C5")
def test_both_laws_hold_with_the_computed_coefficients_beyond_the_onset():
    # The coefficient of 1/N against exact sums over all texts, extrapolated to infinite N.
    mild = Network.poclopez2024().with_parameters(gamma=1.0, context=2)
    window = np.array([[1 / 3, -1 / 3, 1 / 3], [-1 / 3, 1 / 3, 1 / 3]])
    scaled = []
    sizes = np.array([9, 12, 15])
    path = finite_size.mean_path(mild, 0.8, window=window, steps=3, position=1)
    maps = finite_size.linear_maps(mild, 0.8, path=path, position=1)
    shift = corrections.mean_shift(mild, 0.8, path=path, maps=maps, position=1)
    for size in sizes:
        law = propagate(mild, size, beta=0.8, window=window, steps=3, position=1, draw_window=True)
        mean = law @ finite_size.token_states(mild, size)
        scaled.append(size * (mean - path).ravel())
    far = np.polyfit(1.0 / sizes, scaled, 2)[-1].reshape(5, 3)
    assert np.abs(shift[2:]).max() > 0.07
    np.testing.assert_allclose(far, shift, rtol=0.03, atol=0.002)
    # The onset from few and many texts is one number; beyond it both laws hold, before it not.
    window = finite_size.window_means(Network.poclopez2024(), 1.27, attention=CONTEXT)
    limit = corrections.finite_size_corrections(
        Network.poclopez2024(), 1.27, window=window, steps=6, position=3
    )
    ladder = 3 * 4 ** np.arange(3, 12)
    onsets = []
    for texts in (200, 2000):
        missed = [deviation(limit, n, texts=texts, seed=n).missed for n in ladder.tolist()]
        value, error = np.transpose([(m.value[-1], m.error[-1]) for m in missed])
        onsets.append(study.onset_size(ladder, missed=value, errors=error))
    few, many = onsets
    assert many.error < 0.2
    assert abs(few.value - many.value) < 4 * np.hypot(few.error, many.error)
    assert 4.5 < many.value / np.log(10) < 7
    along = limit.shift[-1] / np.linalg.norm(limit.shift[-1])
    for size, holds in ((3 * 10**7, True), (99, False)):
        rms, bias, _ = deviation(limit, size, texts=3000, seed=1)
        ratio = rms.value[-1] * np.sqrt(size) / limit.sigma[-1]
        scale = size / np.linalg.norm(limit.shift[-1])
        average = bias.value[-1] @ along * scale
        error = np.sqrt(bias.error[-1] ** 2 @ along**2) * scale
        assert (abs(ratio - 1) < 0.06) == holds
        assert (abs(average - 1) < 4 * error) == holds
        assert error < 0.03


def test_martingale_subtraction_has_mean_zero_and_finds_the_exact_bias():
    network = Network.poclopez2024().with_parameters(gamma=6.0, context=2)
    size = 9
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    limit = corrections.finite_size_corrections(network, 1.27, window=window, steps=4, position=1)
    runs = finite_size.generate(
        network, size, beta=1.27, window=window, steps=4, position=1, runs=40_000, seed=3
    )
    linear = corrections.linear_fluctuations(runs, maps=limit.maps)[:, 2:]
    z = linear.mean(axis=0) / (linear.std(axis=0) / 200 + 1e-12)
    assert np.abs(z).max() < 4.5
    law = propagate(network, size, beta=1.27, window=window, steps=4, position=1)
    means = law @ finite_size.token_states(network, size)
    truth = finite_size.semantic_overlaps(network, means) - finite_size.semantic_overlaps(
        network, limit.path[2:]
    )
    result = deviation(limit, size, texts=40_000, seed=3)
    z = (result.bias.value[2:] - truth) / (result.bias.error[2:] + 1e-12)
    assert np.abs(z).max() < 4.5
    assert np.abs(truth[1:] / result.bias.error[3:]).max() > 10


@pytest.mark.parametrize(("size", "subtracted"), [(9, False), (3 * 10**6, True)])
def test_errors_are_the_scatter_over_seeds(size, subtracted):
    network = Network.poclopez2024().with_parameters(gamma=20.0)
    window = finite_size.window_means(network, 1.27, attention=CONTEXT)
    limit = corrections.finite_size_corrections(network, 1.27, window=window, steps=4, position=3)
    found = [deviation(limit, size, texts=60, seed=seed) for seed in range(120)]
    for part, allowed in zip(zip(*found, strict=True), (0.12, 0.12, 0.3), strict=True):
        value, error = np.array([(one.value[5:], one.error[5:]) for one in part]).swapaxes(0, 1)
        # 120 seeds know a scatter to 6 %; several tokens and overlaps, correlated ones.
        ratio = np.sqrt((error**2).mean(axis=0)) / value.std(axis=0, ddof=1)
        assert np.abs(ratio.mean() - 1.0) < allowed
    # Without the subtraction the error would be that of the plain mean of sixty texts.
    rms, bias, _ = found[0]
    assert (np.linalg.norm(bias.error[-1]) < 0.1 * rms.value[-1] / 8) == subtracted


def test_the_onset_of_a_power_law_is_where_it_crosses():
    sizes = 10.0 ** np.arange(2, 8)
    missed = 30.0 / np.sqrt(sizes)
    found = study.onset_size(sizes, missed=missed, errors=0.03 * missed)
    assert found.value == pytest.approx(np.log(9e4))
    # ln N moves by twice the relative error of U, here of two neighbours that share the weight.
    rng = np.random.default_rng(0)
    drawn = missed * (1 + 0.03 * rng.normal(size=(2000, 6)))
    again = [study.onset_size(sizes, missed=one, errors=missed).value for one in drawn]
    assert found.error == pytest.approx(np.std(again), rel=0.06)
    # The last crossing counts; the ladder's ends censor.
    bumpy = np.array([0.5, 0.05, 0.4, 0.02, 0.01, 0.001])
    assert 1e4 < np.exp(study.onset_size(sizes, missed=bumpy, errors=0 * bumpy).value) < 1e5
    for level, value in ((0.05, -np.inf), (1.0, np.inf)):
        assert study.onset_size(sizes, missed=np.full(6, level), errors=np.zeros(6)).value == value


def test_censored_rows_count_as_larger_and_none_is_dropped():
    x = np.arange(5.0)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(31, 1)) + 0.7 * x + 0.1 * rng.normal(size=(31, 5))
    whole = median_slope(x, rows=rows, seed=1)
    late = rows.copy()
    late[late > np.quantile(late[:, -1], 0.7)] = np.inf
    assert np.isinf(late).any()
    cut = median_slope(x, rows=late, seed=1)
    assert cut.value == pytest.approx(whole.value, abs=1e-12)
    dropped = np.polyfit(x, np.nanmedian(np.where(np.isinf(late), np.nan, late), axis=0), 1)[0]
    assert dropped < whole.value - 0.05  # what leaving the censored out would have given
    assert np.isnan(median_slope(x, rows=np.where(x > 2, np.inf, rows), seed=1).value)
    drawn = rng.normal(size=(40, 31, 1)) * (1 + x) + 0.7 * x
    found = [median_slope(x, rows=one, seed=seed) for seed, one in enumerate(drawn)]
    scatter = np.std([one.value for one in found])
    assert 0.6 < np.mean([one.error for one in found]) / scatter < 1.6


def test_onsets_and_times_follow_the_limit():
    network = Network.poclopez2024()
    limits = study.settled_limits(network, 1.28, count=2, settle=30, steps=5, seed=0)
    tokens = np.array([2, 5])
    ladder = 3 * 10 ** np.arange(1, 10)
    found = study.onset_rows(limits, tokens=tokens, sizes=ladder, first=7)
    assert [(row["start"], row["token"]) for row in found] == [(7, 2), (7, 5), (8, 2), (8, 5)]
    for row in found:
        limit = limits[row["start"] - 7]
        at = 3 + row["token"]
        missed = [deviation(limit, n, texts=400, seed=9).missed.value[at] for n in ladder.tolist()]
        alone = study.onset_size(ladder, missed=np.array(missed), errors=np.zeros(9)).value
        assert row["onset"] * np.log(10) == pytest.approx(alone, abs=1.5)
        law = 300 * (limit.shift[at] ** 2).sum() / limit.sigma[at] ** 2
        assert row["computed"] == pytest.approx(np.log10(law))
    limit = limits[0]
    reach = study.agreement_times(limit, sizes=np.array([3.0, 1e30]), share=0.1)
    assert reach.tolist() == [0, 5]
    overlaps = finite_size.semantic_overlaps(network, limit.path)
    pairs = overlaps[:, None] - overlaps
    width = np.sqrt((pairs**2).sum(axis=2).mean())
    middle = 0.999 * (limit.sigma[6] / (0.1 * width)) ** 2
    expected = np.flatnonzero(limit.sigma[4:] > 0.1 * width * np.sqrt(middle))[0]
    assert study.agreement_times(limit, sizes=np.array([middle]), share=0.1) == expected
