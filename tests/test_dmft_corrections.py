"""Finite-size corrections of a network of one's own against exact sums and sampled texts."""

import numpy as np
from known_networks import COIN
from scipy.stats import binom

from spinformer.dmft import Network, finite_size_corrections, generate
from spinformer.dmft.finite_size import attention_of_window, semantic_overlaps, window_means


def test_mean_and_deviation_of_one_token_against_exact_sums():
    """A window of one token of N bits: its next mean is a sum over the number of bits up."""
    beta = 1.7
    found = finite_size_corrections(COIN, beta, window=np.array([[0.5]]), steps=1, position=0)
    errors = []
    for size in (200, 800):
        ups = np.arange(size + 1)
        chance = binom.pmf(ups, size, 0.75)
        tokens = (2.0 * ups / size - 1.0)[:, None, None]
        attention = attention_of_window(COIN, tokens, position=0)
        answer = window_means(COIN, beta, attention=attention)[:, 0]
        mean = chance @ answer
        # The next token has the noise of its own bits, too.
        variance = chance @ (answer**2 + (1.0 - answer**2) / size) - mean**2
        scale = float(semantic_overlaps(COIN, np.ones(1))[0])
        errors.append(abs(found.mean(size)[1, 0] - scale * mean))
        assert abs(found.deviation(size)[1] / (scale * np.sqrt(variance)) - 1.0) < 5.0 / size
        naive = abs(scale * (found.path[1, 0] - mean))
        assert errors[-1] < 0.02 * naive
    # What is left is of order N^−2.
    assert 10.0 < errors[0] / errors[1] < 25.0


def test_mean_and_deviation_of_texts_of_ones_own_network():
    rng = np.random.default_rng(3)
    network = Network(
        semantic=rng.normal(size=(4, 3, 4)), position=rng.normal(size=(4, 3, 2)), context=5,
        gamma=3.0, epsilon=0.05,
    )  # fmt: skip
    window = np.tanh(rng.normal(size=(5, 4)))
    found = finite_size_corrections(network, 0.9, window=window, steps=6, position=4)
    size = 400
    texts = generate(
        network, size, beta=0.9, window=window, steps=6, runs=40_000, seed=1, position=4
    )
    overlaps = semantic_overlaps(network, texts.tokens)
    limit = semantic_overlaps(network, found.path)
    error = overlaps.std(axis=0) / np.sqrt(len(overlaps))
    assert (np.abs(overlaps.mean(axis=0) - found.mean(size)) < 4.5 * error + 2e-5).all()
    spread = np.sqrt(((overlaps - limit) ** 2).sum(axis=2).mean(axis=0))
    np.testing.assert_allclose(spread, found.deviation(size), rtol=0.03)
