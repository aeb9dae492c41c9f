from functools import partial

import numpy as np
import pytest
from known_networks import CONTEXT, NETWORKS, OVERLAPS, UNEVEN, plain_step
from scipy.stats import chi2

from compendium.c32_paths_to_mean_fields.functional import propagate
from compendium.c32b_finite_size import study
from spinformer.dmft import corrections
from spinformer.dmft.finite_size import (
    attention_of_window,
    generate,
    linear_maps,
    mean_path,
    semantic_overlaps,
    token_states,
    window_means,
)
from spinformer.dmft.network import KEY, OUTPUT, Network

NETWORK = Network.poclopez2024()


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_conditional_means_equal_the_plain_loops(network, position):
    window = np.random.default_rng(0).uniform(-1, 1, (network.context, network.segments))
    runs = generate(
        network, 240, beta=1.3, window=window, steps=25, runs=3, seed=0, position=position
    )
    path = mean_path(network, 1.3, window=window, steps=25, position=position)
    np.testing.assert_array_equal(path[: network.context], window)
    for tokens, means in zip([path, *runs.tokens], [path, *runs.means], strict=True):
        for t in range(25):
            past = tokens[t : t + network.context]
            expected = plain_step(network, 1.3, past, position + t)
            attention = attention_of_window(network, past, position=position + t)
            direct = window_means(network, 1.3, attention=attention)
            for found in (means[t + network.context], direct):
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_texts_with_sharp_attention_stay_finite():
    """Exponents of attention are taken relative to the largest, in whichever row it is."""
    network = NETWORK.with_parameters(gamma=5000.0)
    window = np.random.default_rng(0).choice([-1.0, 1.0], (network.context, network.segments))
    runs = generate(network, 240, beta=1.3, window=window, steps=40, runs=4, seed=0, position=2)
    assert np.isfinite(runs.means).all()
    past = runs.tokens[0][: network.context]
    expected = plain_step(network, 1.3, past, 2)
    np.testing.assert_allclose(runs.means[0][network.context], expected, rtol=0, atol=1e-9)


def test_huge_network_reproduces_the_stated_overlaps():
    size = 3 * 10**14
    window = window_means(NETWORK, 1.27, attention=CONTEXT)
    path = mean_path(NETWORK, 1.27, window=window, steps=2, position=3)
    runs = generate(NETWORK, size, beta=1.27, window=window, steps=2, runs=4, seed=0, position=3)
    # Noise of a single token is below 1/sqrt(N), amplified by gamma: below 1e-5 here.
    for token, error in ((path, 2e-8), *((run, 1e-5) for run in runs.tokens)):
        found = semantic_overlaps(NETWORK, token[3:6])
        np.testing.assert_allclose(found, OVERLAPS, rtol=0, atol=error)


@pytest.mark.claim("C3")
def test_distribution_is_exact_for_a_few_bits():
    network = NETWORK.with_parameters(gamma=6.0, context=2)
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    exact = propagate(network, 6, beta=1.27, window=window, steps=6, position=1)
    sample = partial(
        generate, network, 6, beta=1.27, window=window, steps=6, runs=20_000, position=1
    )
    runs = sample(seed=5)
    assert sample(seed=5) == runs
    assert sample(seed=6) != runs
    states = token_states(network, 6)
    for t in range(6):
        match = np.isclose(runs.tokens[:, None, 2 + t], states).all(axis=2)
        assert match.any(axis=1).all()
        count = match.sum(axis=0)
        expected = 20_000 * exact[t]
        rare = expected < 5
        groups = np.append(count[~rare], count[rare].sum())
        wanted = np.append(expected[~rare], expected[rare].sum())
        groups = groups[wanted > 0]
        wanted = wanted[wanted > 0]
        statistic = ((groups - wanted) ** 2 / wanted).sum()
        assert chi2.sf(statistic, len(groups) - 1) > 1e-5


@pytest.mark.claim("C8")
def test_segment_correlations_take_four_values():
    networks = map(Network.segmented, range(300))
    found = np.ravel([network.pair_correlations(OUTPUT, KEY) for network in networks])
    values = np.array([-1, -1 / 3, 1 / 3, 1])
    nearest = np.abs(found[:, None] - values).argmin(axis=1)
    np.testing.assert_allclose(found, values[nearest], rtol=0, atol=1e-12)
    # Three fair signs: binomial shares 1, 3, 3, 1 of 8; correlations of one network share
    # weights, so the error is taken three times that of independent draws.
    share = np.bincount(nearest, minlength=4) / len(found)
    error = 3 * np.sqrt(np.array([7, 15, 15, 7]) / 64 / len(found))
    assert (np.abs(share - np.array([1, 3, 3, 1]) / 8) < 3 * error).all()


def test_every_run_may_begin_with_a_window_of_its_own():
    windows = np.where(np.random.default_rng(0).random((3, 4, 3)) < 0.5, -1.0, 1.0)
    size = 3 * 10**14
    runs = generate(NETWORK, size, beta=1.1, window=windows, steps=2, runs=3, seed=0, position=2)
    np.testing.assert_array_equal(runs.tokens[:, :4], windows)  # certain bits are drawn as such
    np.testing.assert_array_equal(runs.means[:, :4], windows)
    for run, window in zip(runs.tokens, windows, strict=True):
        path = mean_path(NETWORK, 1.1, window=window, steps=2, position=2)
        np.testing.assert_allclose(run, path, atol=1e-4)
    by_hand = np.einsum("as,rts->rta", NETWORK.semantic[OUTPUT], runs.tokens) / 3 * 0.98
    found = semantic_overlaps(NETWORK, runs.tokens)
    np.testing.assert_allclose(found, by_hand, atol=1e-14)


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_linear_maps_equal_finite_differences(network, position):
    context = network.context
    segments = network.segments
    window = np.random.default_rng(1).uniform(-0.8, 0.8, (context, segments))
    path = mean_path(network, 1.1, window=window, steps=3, position=position)
    maps = linear_maps(network, 1.1, path=path, position=position)
    for t, age, s in np.ndindex(3, context, segments):
        shift = np.zeros_like(window)
        shift[context - 1 - age, s] = 1e-6
        recent = path[t : t + context]
        up = plain_step(network, 1.1, recent + shift, position + t)
        down = plain_step(network, 1.1, recent - shift, position + t)
        np.testing.assert_allclose(maps[t, age, :, s], (up - down) / 2e-6, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_the_mean_shift_is_curvature_times_covariance(network, position):
    context = network.context
    segments = network.segments
    window = np.random.default_rng(2).uniform(-0.7, 0.7, (context, segments))
    path = mean_path(network, 1.1, window=window, steps=2, position=position)
    maps = linear_maps(network, 1.1, path=path, position=position)
    found = corrections.mean_shift(network, 1.1, path=path, maps=maps, position=position)
    noise = corrections.noise_covariance(network, path, maps=maps)
    # The window's tokens are independent: second differences entry by entry.
    bend = np.zeros(segments)
    h = 1e-3
    for t, s in np.ndindex(context, segments):
        shift = np.zeros_like(window)
        shift[t, s] = h
        up = plain_step(network, 1.1, window + shift, position)
        down = plain_step(network, 1.1, window - shift, position)
        bend += 0.5 * noise[t, s, s] * (up + down - 2 * path[context]) / h**2
    assert not found[:context].any()
    np.testing.assert_allclose(found[context], bend, rtol=1e-3, atol=1e-4)


def test_predicted_fluctuations_are_those_of_a_large_uneven_network():
    network = UNEVEN
    size = 10**10
    count = 8000
    window = np.linspace(-0.8, 0.9, 12).reshape(4, 3)
    path = mean_path(network, 1.2, window=window, steps=6, position=3)
    maps = linear_maps(network, 1.2, path=path)
    runs = generate(network, size, beta=1.2, window=window, steps=6, runs=count, seed=1, position=3)
    gaps = runs.tokens - path
    predicted = corrections.noise_covariance(network, path, maps=maps)
    measured = np.einsum("rtl,rtm->tlm", gaps, gaps) / count * size
    scale = np.sqrt(np.einsum("tll->tl", predicted))
    allowed = 5 * np.sqrt(2 / count) * scale[:, :, None] * scale[:, None, :]
    assert (np.abs(measured - predicted) <= allowed).all()
    rms = np.sqrt((semantic_overlaps(network, gaps) ** 2).sum(axis=2).mean(axis=0) * size)
    np.testing.assert_allclose(rms, corrections.predicted_rms(network, predicted), rtol=0.04)


def test_growth_rate_of_known_maps():
    # x' = a x + b y, y the token before: the larger root of z² = a z + b, by hand.
    maps = np.zeros((400, 2, 1, 1))
    maps[:, 0] = 1.1
    maps[:, 1] = 0.3
    root = (1.1 + np.sqrt(1.1**2 + 4 * 0.3)) / 2
    assert study.growth_rate(maps, drop=100) == pytest.approx(np.log(root), abs=1e-12)
    # Steps that are dropped do not count: a first stretch of growth leaves no trace.
    late = maps.copy()
    late[:50] *= 5.0
    assert study.growth_rate(late, drop=100) == pytest.approx(np.log(root), abs=1e-9)
