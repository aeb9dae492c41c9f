import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom, chi2

from spinformer.dmft.finite_size import (
    deviation,
    fit_power,
    growth_rate,
    linear_fluctuations,
    linear_maps,
    noise_covariance,
    onset_size,
    predicted_rms,
    settled_start,
)
from spinformer.dmft.functional import propagate, token_states
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import Context, random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import (
    attention_of_window,
    generate,
    generate_bits,
    mean_path,
    semantic_overlaps,
    window_means,
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
OVERLAPS = np.array(
    [
        (-0.13687093, -0.45839630, 0.39080248),
        (0.05145646, -0.34563085, 0.51576808),
        (-0.39746257, -0.26889716, -0.03326015),
    ]
)


def plain_step(network, beta, window, position):
    """Mean of the next token, written out with loops: shares no code with the package."""
    features, segments = network.features, network.segments
    m = np.zeros((len(window), 4, features))
    for age, token in enumerate(window[::-1]):
        place = (position - age) % network.positions
        for role in range(4):
            for a in range(features):
                for s in range(segments):
                    share = (1 - network.epsilon) * network.fractions[s]
                    m[age, role, a] += share * network.semantic[role, a, s] * token[s]
                for bit in range(network.bits):
                    sign = 1.0 if place >> (network.bits - 1 - bit) & 1 else -1.0
                    m[age, role, a] += (
                        network.epsilon * network.position[role, a, bit] * sign / network.bits
                    )
    weight = softmax([network.gamma * m[0, 2] @ m[age, 3] for age in range(len(window))])
    attention = weight @ m[:, 1]
    return np.tanh(beta * attention @ network.semantic[0])


def plain_path(network, beta, window, steps, position):
    path = list(window)
    for step in range(steps):
        path.append(plain_step(network, beta, path[-network.context :], position + step))
    return np.array(path)


NETWORKS = [
    (Network.document(), 3),
    (Network.segmented(1, features=2, segments=4, bits=3, context=5, gamma=9.0), 6),
    (Network.segmented(2, features=4, segments=2, bits=0, context=3, gamma=4.0, epsilon=0.0), 2),
    (Network.random(4, 12, features=1, bits=1, context=2, gamma=3.0, epsilon=0.2), 0),
]


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_conditional_means_equal_the_plain_loops(network, position):
    rng = np.random.default_rng(0)
    window = rng.uniform(-1, 1, (network.context, network.segments))
    runs = generate(
        network, 48, beta=1.3, window=window, steps=25, runs=3, seed=0, position=position
    )
    assert runs.tokens.shape == (3, network.context + 25, network.segments)
    for tokens, means in zip(runs.tokens, runs.means, strict=True):
        for t in range(25):
            past = tokens[t : t + network.context]
            expected = plain_step(network, 1.3, past, position + t)
            np.testing.assert_allclose(means[t + network.context], expected, rtol=0, atol=1e-12)
            attention = attention_of_window(network, past, position=position + t)
            np.testing.assert_allclose(
                window_means(network, 1.3, attention=attention), expected, rtol=0, atol=1e-12
            )


def test_huge_network_reproduces_the_stated_overlaps():
    network = Network.document()
    window = window_means(network, 1.27, attention=CONTEXT)
    path = plain_path(network, 1.27, window, 40, 3)
    short = mean_path(network, 1.27, window=window, steps=40, position=3)
    np.testing.assert_allclose(short, path, rtol=0, atol=1e-9)
    np.testing.assert_allclose(semantic_overlaps(network, path[3:6]), OVERLAPS, rtol=0, atol=2e-8)
    runs = generate(
        network, 3 * 10**14, beta=1.27, window=window, steps=2, runs=4, seed=0, position=3
    )
    # Noise of a single token is below 1/sqrt(N), amplified by gamma: below 1e-5 here.
    np.testing.assert_allclose(
        runs.overlaps()[:, 3:6], np.broadcast_to(OVERLAPS, (4, 3, 3)), rtol=0, atol=1e-5
    )


def test_distribution_is_exact_for_a_few_bits():
    network = Network.document().with_parameters(gamma=6.0, context=2)
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    exact = propagate(network, 6, beta=1.27, window=window, steps=6, position=1)
    runs = generate(network, 6, beta=1.27, window=window, steps=6, runs=20_000, seed=5, position=1)
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
    network = Network.document().with_parameters(gamma=20.0)
    weights = network.weights(12)
    window = np.where(window_means(network, 1.27, attention=CONTEXT) > 0, 1.0, -1.0)
    runs = generate(
        network,
        12,
        beta=1.27,
        window=window,
        steps=5,
        runs=50_000,
        seed=0,
        draw_window=False,
        position=3,
    )
    bits = np.repeat(window, 4, axis=1)
    plain = np.array(
        [
            generate_bits(weights, network, beta=1.27, window=bits, steps=5, seed=seed, position=3)[
                4:
            ]
            for seed in range(2000)
        ]
    )
    tokens = plain.reshape(2000, 5, 3, 4).mean(axis=3)
    for t in range(5):
        for s in range(3):
            got, wide = tokens[:, t, s], runs.tokens[:, 4 + t, s]
            for power in (1, 2):
                gap = (got**power).mean() - (wide**power).mean()
                error = np.sqrt((got**power).var() / 2000 + (wide**power).var() / 50_000)
                assert abs(gap) < 4.5 * error + 1e-12


def test_a_token_is_a_binomial_draw_with_the_right_counts():
    document = Network.document()
    network = Network(document.semantic, document.position, 4, 2.0, 0.02, [0.5, 0.3, 0.2])
    window = window_means(network, 1.27, attention=CONTEXT)
    runs = generate(
        network, 10, beta=1.27, window=window, steps=1, runs=40_000, seed=0, draw_window=False
    )
    mean = runs.means[0, 4]
    assert (runs.means[:, 4] == mean).all()
    for s, n in enumerate((5, 3, 2)):
        ups = np.rint(0.5 * (runs.tokens[:, 4, s] + 1) * n).astype(int)
        share = np.bincount(ups, minlength=n + 1) / 40_000
        expected = binom.pmf(np.arange(n + 1), n, 0.5 * (1 + mean[s]))
        assert np.abs(share - expected).max() < 4.5 * 0.5 / np.sqrt(40_000)


def test_seed_fixes_every_draw():
    network = Network.document()
    window = window_means(network, 1.27, attention=CONTEXT)
    first, second, other = (
        generate(network, 99, beta=1.27, window=window, steps=5, runs=4, seed=seed).tokens
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(("network", "position"), NETWORKS)
def test_linear_maps_equal_finite_differences(network, position):
    rng = np.random.default_rng(1)
    context = network.context
    window = rng.uniform(-0.8, 0.8, (context, network.segments))
    path = plain_path(network, 1.1, window, 3, position)
    maps = linear_maps(network, 1.1, path=path, position=position - context + 1)
    for t in range(3):
        for age in range(context):
            for s in range(network.segments):
                shift = np.zeros_like(window)
                shift[context - 1 - age, s] = 1e-6
                recent = path[t : t + context]
                up = plain_step(network, 1.1, recent + shift, position + t)
                down = plain_step(network, 1.1, recent - shift, position + t)
                np.testing.assert_allclose(
                    maps[t, age, :, s], (up - down) / 2e-6, rtol=0, atol=1e-7
                )


def test_noise_covariance_is_that_of_the_linear_recursion_and_of_large_networks():
    network = Network.document()
    window = window_means(network, 1.27, attention=CONTEXT)
    path = plain_path(network, 1.27, window, 12, 3)
    maps = linear_maps(network, 1.27, path=path, position=0)
    size = 3 * 10**11
    runs = generate(
        network, size, beta=1.27, window=window, steps=12, runs=6000, seed=0, position=3
    )
    linear = linear_fluctuations(runs, maps)
    predicted = noise_covariance(network, path, maps=maps)
    measured = np.einsum("rtl,rtm->tlm", linear, linear) / 6000 * size
    scale = np.sqrt(np.einsum("tll->tl", predicted))
    gap = (measured - predicted) / (scale[:, :, None] * scale[:, None, :] + 1e-300)
    assert np.abs(gap).max() < 5 * np.sqrt(2 / 6000)
    # The deviation of a sampled run itself: 3e11 bits are deep in the linear range.
    result = deviation(runs, path, maps=maps)
    np.testing.assert_allclose(
        result.rms * np.sqrt(size), predicted_rms(network, predicted), rtol=0.05
    )
    # The linear part is nearly all of it: without it the error of the mean is far smaller.
    assert (result.bias_error[4:] < 0.01 * result.plain_error[4:]).all()


def test_martingale_subtraction_has_mean_zero_and_finds_the_exact_bias():
    network = Network.document().with_parameters(gamma=6.0, context=2)
    window = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    size = 9
    path = plain_path(network, 1.27, window, 4, 1)
    maps = linear_maps(network, 1.27, path=path, position=0)
    runs = generate(
        network, size, beta=1.27, window=window, steps=4, runs=40_000, seed=3, position=1
    )
    linear = linear_fluctuations(runs, maps)[:, 2:]
    z = linear.mean(axis=0) / (linear.std(axis=0) / 200 + 1e-12)
    assert np.abs(z).max() < 4.5
    exact = propagate(network, size, beta=1.27, window=window, steps=4, position=1)
    means = exact @ token_states(network, size)
    truth = semantic_overlaps(network, means) - semantic_overlaps(network, path[2:])
    result = deviation(runs, path, maps=maps)
    z = (result.bias[2:] - truth) / (result.bias_error[2:] + 1e-12)
    assert np.abs(z).max() < 4.5
    assert np.abs(truth[1:] / result.bias_error[3:]).max() > 10


def test_growth_rate_is_the_leading_lyapunov_exponent():
    network = Network.document()
    for beta, settle in ((0.5, 200), (1.255, 3000)):
        origin = Context(CONTEXT[::-1], 3)
        spectrum = lyapunov_spectrum(
            network, origin, beta=beta, steps=20_000, count=1, transient=5000
        )
        window, position = settled_start(network, beta, origin, settle=settle)
        path = mean_path(network, beta, window=window, steps=3000, position=position)
        maps = linear_maps(network, beta, path=path, position=position - 3)
        got = growth_rate(maps, drop=200)
        assert got == pytest.approx(float(spectrum.exponents[..., 0]), abs=3e-3)


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


def test_segment_correlations_take_four_values():
    found = np.array(
        [Network.segmented(seed).pair_correlations("o", "k") for seed in range(300)]
    ).ravel()
    values = np.array([-1, -1 / 3, 1 / 3, 1])
    nearest = np.abs(found[:, None] - values).argmin(axis=1)
    np.testing.assert_allclose(found, values[nearest], rtol=0, atol=1e-12)
    # Three fair signs: binomial shares 1, 3, 3, 1 of 8; correlations of one network share
    # weights, so the error is taken three times that of independent draws.
    share = np.bincount(nearest, minlength=4) / len(found)
    error = 3 * np.sqrt(np.array([7, 15, 15, 7]) / 64 / len(found))
    assert (np.abs(share - np.array([1, 3, 3, 1]) / 8) < 3 * error).all()


def test_power_law_fit_and_onset():
    rng = np.random.default_rng(0)
    sizes = 10.0 ** np.arange(2, 8)
    values = 3.0 / np.sqrt(sizes)
    noisy = values * (1 + 0.01 * rng.standard_normal(6))
    fit = fit_power(sizes, values=noisy, errors=0.01 * values)
    assert abs(fit.slope + 0.5) < 4 * fit.error
    assert fit.error == pytest.approx(0.01 / np.sqrt(np.log(sizes).var() * 6), rel=0.05)
    assert (
        onset_size(
            sizes, measured=np.array([9, 1, 2, 1, 1, 1.0]), predicted=np.ones(6), tolerance=0.1
        )
        == 1e5
    )
    assert np.isnan(onset_size(sizes, measured=2 * np.ones(6), predicted=np.ones(6), tolerance=0.1))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"size": 100}, ValueError, "size"),
        ({"size": 3.0}, TypeError, "size"),
        ({"beta": -0.1}, ValueError, "beta"),
        ({"steps": -1}, ValueError, "steps"),
        ({"runs": 0}, ValueError, "runs"),
        ({"seed": -1}, ValueError, "seed"),
        ({"window": np.ones((3, 3))}, ValueError, "window"),
        ({"window": 1.5 * np.ones((4, 3))}, ValueError, "window"),
        ({"window": "none"}, TypeError, "window"),
    ],
)
def test_bad_input_names_the_argument(change, error, message):
    good = {"size": 99, "beta": 1.0, "window": np.ones((4, 3)), "steps": 2, "runs": 1, "seed": 0}
    with pytest.raises(error, match=message):
        generate(Network.document(), **(good | change))
