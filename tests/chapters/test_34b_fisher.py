"""Fisher memory against exact inverses, sums over noise and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from known_networks import UNEVEN

from compendium.c32b_finite_size.corrections import noise_covariance, predicted_rms
from compendium.c34_memory_beyond_window.messages import (
    fisher_memory,
    memory_profile,
    noise_growth,
    token_noise,
)
from spinformer.dmft.finite_size import linear_maps, mean_path
from spinformer.dmft.network import OUTPUT, Network

SHORT = replace(UNEVEN, context=3)


def along_a_path(network, beta, steps, seed=0):
    rng = np.random.default_rng(seed)
    window = rng.uniform(-0.6, 0.6, (network.context, network.segments))
    path = mean_path(network, beta, window=window, steps=steps, position=1)
    maps = linear_maps(network, beta, path=path, position=1)
    return path, maps, token_noise(network, path)


def stacked(maps, noise):
    """The window as a linear function of all noises, (n, tokens · L), by plain sums over paths.

    The response of token t to the noise of token τ is built from the definition of the maps.
    """
    steps, context, segments = maps.shape[:3]
    total = context + steps
    response = np.zeros((total, total, segments, segments))
    for token in range(total):
        response[token, token] = np.eye(segments)
        for time in range(max(token + 1, context), total):
            for back in range(context):
                response[time, token] += (
                    maps[time - context, back] @ response[time - 1 - back, token]
                )
    newest_first = range(total - 1, total - 1 - context, -1)
    rows = np.concatenate([np.concatenate(list(response[t]), axis=1) for t in newest_first])
    return rows * np.sqrt(noise.ravel())


@pytest.mark.parametrize("network", [Network.document(), SHORT])
def test_memory_equals_the_inverse_covariance_between_responses(network):
    _, maps, noise = along_a_path(network, 1.3, 9)
    context, segments = network.context, network.segments
    found = fisher_memory(maps, noise=noise)
    for steps in (0, 1, 2, 4, 9):
        rows = stacked(maps[:steps], noise[: context + steps])
        shift = rows[:, (context - 1) * segments : context * segments]
        wanted = shift.T @ np.linalg.solve(rows @ rows.T, shift)
        assert np.abs(found[steps].T @ found[steps] - wanted).max() < 1e-9
    rows = stacked(maps, noise)
    inverse = np.linalg.inv(rows @ rows.T)
    each = np.einsum("ij,ik,kj->j", rows, inverse, rows).reshape(-1, segments).sum(axis=1)
    profile = memory_profile(maps, noise=noise)
    assert np.abs(profile - each).max() < 1e-9
    assert profile.sum() == pytest.approx(context * segments)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_one_spin_by_hand(factor):
    steps = 600  # 2^600 overflows nothing: the covariance itself is never squared
    found = fisher_memory(np.full((steps, 1, 1, 1), factor), noise=np.ones((steps + 1, 1)))
    # 1 / J(k) = sum of factor^(-2 j), j = 0 … k; past 300 terms the sums of 1/2 overflow.
    for k in (0, 1, 7, 300):
        assert found[k, 0, 0] ** 2 == pytest.approx(
            1.0 / np.sum(factor ** (-2.0 * np.arange(k + 1))), rel=1e-10
        )
    assert np.isfinite(found).all()


def test_noise_grows_as_the_covariance_says():
    network = SHORT
    path, maps, noise = along_a_path(network, 1.3, 12, seed=3)
    readout = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    covariance = noise_covariance(network, path, maps=maps)[network.context - 1 :]
    wanted = predicted_rms(network, covariance)
    assert noise_growth(maps, noise=noise, readout=readout) == pytest.approx(wanted, rel=1e-10)


def test_noise_of_a_token_is_that_of_its_bits():
    network = SHORT
    rng = np.random.default_rng(0)
    size, means = 1000, np.array([0.3, -0.8, 0.0])
    counts = network.counts(size)
    tokens = 2.0 * rng.binomial(counts, 0.5 * (1 + means), (40_000, 3)) / counts - 1.0
    assert size * tokens.var(axis=0) == pytest.approx(token_noise(network, means), rel=0.03)
