import numpy as np
import pytest
from known_networks import CONTEXT, NETWORKS, OVERLAPS, plain_step
from scipy.stats import chi2

from compendium.c31_asymmetric_hopfield.pairs import generate_bits_reference
from compendium.c32_paths_to_mean_fields.functional import propagate
from spinformer.dmft.finite_size import (
    attention_of_window,
    generate,
    mean_path,
    semantic_overlaps,
    token_states,
    window_means,
)
from spinformer.dmft.network import Network

NETWORK = Network.document()


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_conditional_means_equal_the_plain_loops(network, position):
    window = np.random.default_rng(0).uniform(-1, 1, (network.context, network.segments))
    given = {"window": window, "steps": 25, "position": position}
    runs = generate(network, 240, beta=1.3, runs=3, seed=0, **given)
    path = mean_path(network, 1.3, **given)
    np.testing.assert_array_equal(path[: network.context], window)
    for tokens, means in zip([path, *runs.tokens], [path, *runs.means], strict=True):
        for t in range(25):
            past = tokens[t : t + network.context]
            expected = plain_step(network, 1.3, past, position + t)
            attention = attention_of_window(network, past, position=position + t)
            direct = window_means(network, 1.3, attention=attention)
            for found in (means[t + network.context], direct):
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_huge_network_reproduces_the_stated_overlaps():
    given = {"window": window_means(NETWORK, 1.27, attention=CONTEXT), "steps": 2, "position": 3}
    path = mean_path(NETWORK, 1.27, **given)
    runs = generate(NETWORK, 3 * 10**14, beta=1.27, runs=4, seed=0, **given)
    # Noise of a single token is below 1/sqrt(N), amplified by gamma: below 1e-5 here.
    for token, error in ((path, 2e-8), *((run, 1e-5) for run in runs.tokens)):
        found = semantic_overlaps(NETWORK, token[3:6])
        np.testing.assert_allclose(found, OVERLAPS, rtol=0, atol=error)


@pytest.mark.claim("C3")
def test_distribution_is_exact_for_a_few_bits():
    network = NETWORK.with_parameters(gamma=6.0, context=2)
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    given = {"beta": 1.27, "window": window, "steps": 6, "position": 1}
    exact = propagate(network, 6, **given)
    runs = generate(network, 6, runs=20_000, seed=5, **given)
    again, other = (generate(network, 6, runs=20_000, seed=n, **given) for n in (5, 6))
    assert again == runs != other
    states = token_states(network, 6)
    for t in range(6):
        match = np.isclose(runs.tokens[:, None, 2 + t], states).all(axis=2)
        assert match.any(axis=1).all()
        count, expected = match.sum(axis=0), 20_000 * exact[t]
        rare = expected < 5
        groups = np.append(count[~rare], count[rare].sum())
        wanted = np.append(expected[~rare], expected[rare].sum())
        groups, wanted = groups[wanted > 0], wanted[wanted > 0]
        statistic = ((groups - wanted) ** 2 / wanted).sum()
        assert chi2.sf(statistic, len(groups) - 1) > 1e-5


def test_bit_by_bit_reference_has_the_same_distribution():
    network = NETWORK.with_parameters(gamma=20.0)
    window = np.where(window_means(network, 1.27, attention=CONTEXT) > 0, 1.0, -1.0)
    given = {"beta": 1.27, "steps": 5, "position": 3}
    wide = generate(
        network, 12, window=window, runs=50_000, seed=0, draw_window=False, **given
    ).tokens[:, 4:]
    weights, bits = network.weights(12), np.repeat(window, 4, axis=1)
    plain = [
        generate_bits_reference(weights, network, window=bits, seed=seed, **given)[4:]
        for seed in range(2000)
    ]
    tokens = np.array(plain).reshape(2000, 5, 3, 4).mean(axis=3)
    for power in (1, 2):
        gap = (tokens**power).mean(axis=0) - (wide**power).mean(axis=0)
        error = np.hypot(*((x**power).std(axis=0) / len(x) ** 0.5 for x in (tokens, wide)))
        assert (np.abs(gap) < 4.5 * error + 1e-12).all()


@pytest.mark.claim("C8")
def test_segment_correlations_take_four_values():
    networks = map(Network.segmented, range(300))
    found = np.ravel([network.pair_correlations("o", "k") for network in networks])
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
    given = {"steps": 2, "position": 2}
    runs = generate(NETWORK, 3 * 10**14, beta=1.1, window=windows, runs=3, seed=0, **given)
    np.testing.assert_array_equal(runs.tokens[:, :4], windows)  # certain bits are drawn as such
    np.testing.assert_array_equal(runs.means[:, :4], windows)
    for run, window in zip(runs.tokens, windows, strict=True):
        path = mean_path(NETWORK, 1.1, window=window, **given)
        np.testing.assert_allclose(run, path, atol=1e-4)
    by_hand = np.einsum("as,rts->rta", NETWORK.semantic[2], runs.tokens) / 3 * 0.98
    found = semantic_overlaps(NETWORK, runs.tokens, role=2)
    np.testing.assert_allclose(found, by_hand, atol=1e-14)
