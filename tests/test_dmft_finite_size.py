import numpy as np
import pytest
from known_networks import NETWORKS, UNEVEN

from compendium.c32b_finite_size.corrections import (
    growth_rate,
    mean_shift,
    noise_covariance,
    predicted_rms,
)
from spinformer.dmft.finite_size import (
    attention_of_window,
    generate,
    linear_maps,
    mean_path,
    semantic_overlaps,
    window_means,
)


def step(network, beta, window, position):
    """Mean of the next token; test_dmft_tokens holds it to loops."""
    attention = attention_of_window(network, window, position=position)
    return window_means(network, beta, attention=attention)


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_linear_maps_equal_finite_differences(network, position):
    context, segments = network.context, network.segments
    window = np.random.default_rng(1).uniform(-0.8, 0.8, (context, segments))
    path = mean_path(network, 1.1, window=window, steps=3, position=position)
    maps = linear_maps(network, 1.1, path=path, position=position)
    for t, age, s in np.ndindex(3, context, segments):
        shift = np.zeros_like(window)
        shift[context - 1 - age, s] = 1e-6
        recent = path[t : t + context]
        up, down = (step(network, 1.1, recent + x, position + t) for x in (shift, -shift))
        np.testing.assert_allclose(maps[t, age, :, s], (up - down) / 2e-6, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_the_mean_shift_is_curvature_times_covariance(network, position):
    context, segments = network.context, network.segments
    window = np.random.default_rng(2).uniform(-0.7, 0.7, (context, segments))
    path = mean_path(network, 1.1, window=window, steps=2, position=position)
    maps = linear_maps(network, 1.1, path=path, position=position)
    found = mean_shift(network, 1.1, path=path, maps=maps, position=position)
    noise = noise_covariance(network, path, maps=maps)
    # The window's tokens are independent: second differences entry by entry.
    bend, h = np.zeros(segments), 1e-3
    for t, s in np.ndindex(context, segments):
        shift = np.zeros_like(window)
        shift[t, s] = h
        up, down = (step(network, 1.1, window + sign * shift, position) for sign in (1, -1))
        bend += 0.5 * noise[t, s, s] * (up + down - 2 * path[context]) / h**2
    assert not found[:context].any()
    np.testing.assert_allclose(found[context], bend, rtol=1e-3, atol=1e-4)


def test_predicted_fluctuations_are_those_of_a_large_uneven_network():
    network, size, count = UNEVEN, 10**10, 8000
    window = np.linspace(-0.8, 0.9, 12).reshape(4, 3)
    path = mean_path(network, 1.2, window=window, steps=6, position=3)
    maps = linear_maps(network, 1.2, path=path)
    how = {"window": window, "steps": 6, "position": 3}
    gaps = generate(network, size, beta=1.2, runs=count, seed=1, **how).tokens - path
    predicted = noise_covariance(network, path, maps=maps)
    measured = np.einsum("rtl,rtm->tlm", gaps, gaps) / count * size
    scale = np.sqrt(np.einsum("tll->tl", predicted))
    allowed = 5 * np.sqrt(2 / count) * scale[:, :, None] * scale[:, None, :]
    assert (np.abs(measured - predicted) <= allowed).all()
    rms = np.sqrt((semantic_overlaps(network, gaps) ** 2).sum(axis=2).mean(axis=0) * size)
    np.testing.assert_allclose(rms, predicted_rms(network, predicted), rtol=0.04)


def test_growth_rate_of_known_maps():
    # x' = a x + b y, y the token before: the larger root of z² = a z + b, by hand.
    maps = np.zeros((400, 2, 1, 1))
    maps[:, 0], maps[:, 1] = 1.1, 0.3
    root = (1.1 + np.sqrt(1.1**2 + 4 * 0.3)) / 2
    assert growth_rate(maps, drop=100) == pytest.approx(np.log(root), abs=1e-12)
    # Steps that are dropped do not count: a first stretch of growth leaves no trace.
    late = maps.copy()
    late[:50] *= 5.0
    assert growth_rate(late, drop=100) == pytest.approx(np.log(root), abs=1e-9)
