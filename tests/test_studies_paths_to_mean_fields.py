import numpy as np
import pytest

from spinformer.dmft.finite_size import (
    linear_fluctuations,
    linear_maps,
    noise_covariance,
    predicted_rms,
)
from spinformer.dmft.functional import propagate, token_states
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context
from spinformer.dmft.tokens import generate, mean_path, semantic_overlaps, window_means
from spinformer.studies.paths_to_mean_fields import (
    deviation,
    mean_slope,
    onset_size,
    order_sensitivity,
    settled_start,
)

# Context of the document's network, oldest first, and the overlaps that follow at beta = 1.27.
CONTEXT = np.array(
    [
        (0.30752717, 0.29189849, 0.93811547),
        (-0.24761087, -0.23431948, 0.38146146),
        (-0.23496112, -0.24696923, 0.39411121),
        (-0.22889904, -0.25303131, 0.4001733),
    ]
)


@pytest.mark.claim("C5")
def test_martingale_subtraction_has_mean_zero_and_finds_the_exact_bias():
    network = Network.document().with_parameters(gamma=6.0, context=2)
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    size = 9
    path = mean_path(network, 1.27, window=window, steps=4, position=1)
    maps = linear_maps(network, 1.27, path=path, position=0)
    runs = generate(
        network, size, beta=1.27, window=window, steps=4, runs=40_000, seed=3, position=1
    )
    linear = linear_fluctuations(runs, maps=maps)[:, 2:]
    z = linear.mean(axis=0) / (linear.std(axis=0) / 200 + 1e-12)
    assert np.abs(z).max() < 4.5
    exact = propagate(network, size, beta=1.27, window=window, steps=4, position=1)
    means = exact @ token_states(network, size)
    truth = semantic_overlaps(network, means) - semantic_overlaps(network, path[2:])
    result = deviation(runs, path=path, maps=maps)
    z = (result.bias.value[2:] - truth) / (result.bias.error[2:] + 1e-12)
    assert np.abs(z).max() < 4.5
    assert np.abs(truth[1:] / result.bias.error[3:]).max() > 10


def test_linear_noise_is_nearly_all_of_a_large_network():
    network, size = Network.document(), 3 * 10**11
    window = window_means(network, 1.27, attention=CONTEXT)
    path = mean_path(network, 1.27, window=window, steps=12, position=3)
    maps = linear_maps(network, 1.27, path=path, position=0)
    runs = generate(
        network, size, beta=1.27, window=window, steps=12, runs=6000, seed=0, position=3
    )
    result = deviation(runs, path=path, maps=maps)
    predicted = noise_covariance(network, path, maps=maps)
    np.testing.assert_allclose(
        result.rms.value * np.sqrt(size), predicted_rms(network, predicted), rtol=0.05
    )
    # Without it the error of the mean is far smaller.
    assert (result.bias.error[4:] < 0.01 * result.plain.error[4:]).all()


@pytest.mark.parametrize(("size", "subtracted"), [(9, False), (3 * 10**6, True)])
def test_errors_are_the_scatter_over_seeds(size, subtracted):
    network = Network.document().with_parameters(gamma=20.0)
    window = window_means(network, 1.27, attention=CONTEXT)
    path = mean_path(network, 1.27, window=window, steps=4, position=3)
    maps = linear_maps(network, 1.27, path=path, position=0)
    found = [
        deviation(
            generate(
                network, size, beta=1.27, window=window, steps=4, runs=60, seed=seed, position=3
            ),
            path=path,
            maps=maps,
        )
        for seed in range(300)
    ]
    for name in ("rms", "bias", "plain"):
        value = np.array([getattr(one, name).value[5:] for one in found])
        error = np.array([getattr(one, name).error[5:] for one in found])
        # 300 seeds know a scatter to 4 %; several tokens and overlaps, correlated ones.
        ratio = np.sqrt((error**2).mean(axis=0)) / value.std(axis=0, ddof=1)
        assert np.abs(ratio.mean() - 1.0) < 0.08, (name, ratio)
    better = np.mean([one.bias.error[-1].sum() < one.plain.error[-1].sum() for one in found])
    assert better == pytest.approx(1.0) if subtracted else better < 0.9


def test_the_better_estimate_of_the_bias_is_chosen_at_every_token():
    network = Network.document()
    window = window_means(network, 1.27, attention=CONTEXT)
    path = mean_path(network, 1.27, window=window, steps=30, position=3)
    maps = linear_maps(network, 1.27, path=path, position=0)
    runs = generate(network, 999, beta=1.27, window=window, steps=30, runs=200, seed=0, position=3)
    found = deviation(runs, path=path, maps=maps)
    lengths = [(e**2).sum(axis=1) for e in (found.bias.error, found.plain.error)]
    assert (lengths[0] <= lengths[1]).all()
    # Deep in the nonlinear range the subtraction would only add noise: the plain mean is taken.
    np.testing.assert_array_equal(found.bias.value[-1], found.plain.value[-1])
    np.testing.assert_array_equal(found.bias.error[-1], found.plain.error[-1])


def test_a_window_that_is_not_drawn_deviates_by_nothing():
    network = Network.document()
    window = np.ones((4, 3))
    path = mean_path(network, 1.0, window=window, steps=1)
    runs = generate(
        network, 30, beta=1.0, window=window, steps=1, runs=5, seed=0, draw_window=False
    )
    found = deviation(runs, path=path, maps=linear_maps(network, 1.0, path=path, position=0))
    np.testing.assert_array_equal(found.rms.value[:4], 0.0)
    np.testing.assert_array_equal(found.rms.error[:4], 0.0)
    assert found.rms.error[4] > 0.0


def test_settled_start_is_a_window_of_the_trajectory():
    network = Network.document()
    contexts = random_contexts(network, 0, count=4)
    window, position = settled_start(network, 0.5, contexts, settle=300, look=40)
    again, place = settled_start(
        network, 0.5, random_contexts(network, 5, count=3), settle=400, look=40
    )
    np.testing.assert_allclose(window, again, rtol=0, atol=1e-6)
    assert position == place
    orbit, _ = trajectory(network, contexts, beta=0.5, steps=8, transient=400)
    path = mean_path(network, 0.5, window=window, steps=4, position=position)
    heights = semantic_overlaps(network, path)[:, 0]
    assert heights[3] == pytest.approx(orbit[..., 0].max(), abs=1e-9)
    np.testing.assert_allclose(path[4:], path[:4], rtol=0, atol=1e-9)


def test_settled_start_takes_the_most_common_attractor_and_the_largest_of_two():
    # A ferromagnet: m = tanh(2 m), +0.957504 or −0.957504 by the sign it begins with.
    network = Network(
        semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=2, gamma=1.0, epsilon=0.0
    )
    for signs, expected in (([1, 1, -1], 1), ([-1, 1, -1], -1), ([-1, 1], 1)):
        start = Context(
            attention=0.8 * np.array(signs)[:, None, None] * np.ones((2, 1)), position=0
        )
        window, _ = settled_start(network, 2.0, start, settle=200, look=5)
        np.testing.assert_allclose(window, 0.957504 * expected, atol=1e-6)


def test_onset_is_the_first_size_from_which_on_all_is_well():
    sizes = 10.0 ** np.arange(2, 8)
    assert (
        onset_size(
            sizes, measured=np.array([9, 1, 2, 1, 1, 1.0]), predicted=np.ones(6), tolerance=0.1
        )
        == 1e5
    )
    assert np.isnan(onset_size(sizes, measured=2 * np.ones(6), predicted=np.ones(6), tolerance=0.1))
    # A measured value below the prediction misses it as much as one above; each size may have
    # its own tolerance, and one exactly at the edge is within.
    low = np.array([1, 1, 0.5, 1, 1, 1])
    assert onset_size(sizes, measured=low, predicted=np.ones(6), tolerance=0.4) == 1e5
    wide = np.where(sizes == 1e4, 0.5, 0.1)
    assert onset_size(sizes, measured=low, predicted=np.ones(6), tolerance=wide) == 1e2
    assert onset_size([1, 2, 3], measured=[0, 1, 0], predicted=np.zeros(3), tolerance=9.0) == 3
    assert onset_size(sizes, measured=2 * low, predicted=2 * np.ones(6), tolerance=wide) == 1e2


def test_mean_slope_is_scattered_as_its_error_says():
    rng = np.random.default_rng(0)
    x = np.arange(8.0)
    slopes = rng.normal(1.5, 0.4, (400, 12))
    rows = slopes[..., None] * x + rng.standard_normal((400, 12, 8))
    found = [mean_slope(x, rows=table) for table in rows]
    values = np.array([one.value for one in found])
    errors = np.array([one.error for one in found])
    assert abs(values.mean() - 1.5) < 4 * values.std() / 20
    assert np.sqrt((errors**2).mean()) / values.std() == pytest.approx(1.0, abs=0.15)
    gaps = rows[0].copy()
    gaps[0, 3], gaps[1, 1:] = np.nan, np.nan  # one point less, and a row that tells nothing
    fits = [
        np.polyfit(x[np.isfinite(y)], y[np.isfinite(y)], 1)[0] for y in gaps[[0, *range(2, 12)]]
    ]
    found = mean_slope(x, rows=gaps)
    assert found.value == pytest.approx(np.mean(fits), abs=1e-12)
    assert found.samples == 11
    alone = mean_slope([0, 1, 2], rows=[[1, 2, 3], [np.nan, np.inf, 1]])
    assert np.isnan([alone.value, alone.error]).all()
    assert alone.samples == 1


def test_order_is_told_by_the_position_alone():
    network = Network.document().with_parameters(epsilon=0.3, gamma=5.0)
    window = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 3))
    assert order_sensitivity(network, window=window, position=3) > 0.01
    blind = network.with_parameters(epsilon=0.0)
    assert order_sensitivity(blind, window=window, position=3) < 1e-14
    # The newest token keeps its place: two older ones that are equal leave nothing to swap.
    window[:3] = window[0]
    assert order_sensitivity(network, window=window, position=3) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: onset_size([2, 1], measured=[1, 1], predicted=[1, 1], tolerance=0.1), "sizes"),
        (lambda: onset_size([1, 2], measured=[1], predicted=[1, 1], tolerance=0.1), "measured"),
        (lambda: onset_size([1, 2], measured=[1, 1], predicted=[1, 1], tolerance=-1), "tolerance"),
        (lambda: onset_size([1, 2], measured=[1, 1], predicted=[1, 1], tolerance=[1]), "tolerance"),
        (lambda: mean_slope([0, 1, 2], rows=[[1, 2], [3, 4]]), "rows"),
        (lambda: order_sensitivity(Network.document(), window=np.ones(3), position=0), "window"),
        (
            lambda: settled_start(
                Network.document(),
                1.0,
                Context(attention=np.ones((4, 3)), position=0),
                settle=-1,
            ),
            "settle",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_run_has_no_error():
    network = Network.document()
    path = mean_path(network, 1.0, window=np.ones((4, 3)), steps=1)
    runs = generate(network, 30, beta=1.0, window=np.ones((4, 3)), steps=1, runs=1, seed=0)
    maps = linear_maps(network, 1.0, path=path, position=0)
    with pytest.raises(ValueError, match="number of runs"):
        deviation(runs, path=path, maps=maps)
