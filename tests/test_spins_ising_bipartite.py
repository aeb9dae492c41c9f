import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp

from spinformer.spins.ising.asymmetric import (
    analog_exponent,
    analog_exponent_theory,
    asymmetric_gain,
    asymmetric_magnetization,
    gaussian_couplings,
    parallel_glauber,
    zero_temperature_cycle,
)
from spinformer.spins.ising.bipartite import (
    all_states,
    bipartite_log_probability,
    conditional_means,
    couplings,
    hopfield_log_probability,
    iterate_pair,
    overlaps,
    restricted_conditional,
    sample_conditional,
)

betas = st.floats(0.0, 3.0)
seeds = st.integers(0, 10_000)


def signs(seed, *shape):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


@given(seeds, betas)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_hopfield_distribution_equals_the_sum_over_pairs(seed, beta):
    weights = signs(seed, 4, 2)
    exponents = [
        beta / 4 * sum((weights[i] @ weights[j]) * x[i] * x[j] for i in range(4) for j in range(i))
        for x in all_states(4)
    ]
    expected = exponents - logsumexp(exponents)
    got = hopfield_log_probability(weights, beta=beta)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@given(seeds, betas)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_conditional_follows_from_the_joint(seed, beta):
    left, right = signs(seed, 5, 3), signs(seed + 1, 4, 3)
    joint = bipartite_log_probability(left, right=right, beta=beta)
    assert logsumexp(joint) == pytest.approx(0.0, abs=1e-12)
    given_x = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    x, y = all_states(5), all_states(4)
    means = conditional_means(x, left=left, right=right, beta=beta)
    np.testing.assert_allclose(given_x @ y, means, rtol=0, atol=1e-12)
    # Independence given x: the joint conditional is the product of its factors.
    factors = 0.5 * (1.0 + y[None] * means[:, None])
    np.testing.assert_allclose(given_x, factors.prod(axis=2), rtol=0, atol=1e-12)


def test_couplings_are_symmetric_only_for_equal_weights():
    left, right = signs(0, 6, 3), signs(1, 6, 3)
    same, pair = couplings(left, right=left), couplings(left, right=right)
    np.testing.assert_array_equal(same, same.T)
    assert not np.array_equal(pair, pair.T)
    x, y = signs(2, 6), signs(3, 6)
    assert x @ pair @ y / 36 == pytest.approx(
        overlaps(x, weights=left) @ overlaps(y, weights=right), abs=1e-14
    )


def test_sampler_has_the_stated_means():
    left, right = signs(0, 40, 3), signs(1, 40, 3)
    means = conditional_means(signs(2, 40), left=left, right=right, beta=0.8)
    draws = sample_conditional(np.tile(means, (20_000, 1)), np.random.default_rng(0))
    z = (draws.mean(axis=0) - means) / np.sqrt((1 - means**2 + 1e-12) / 20_000)
    assert np.abs(z).max() < 4.5


def test_retrieval_reaches_the_curie_weiss_overlap():
    weights = signs(0, 20_000, 1)
    path = iterate_pair(weights[:, 0], left=weights, right=weights, beta=1.5, steps=60, seed=0)
    expected = 0.8586
    assert np.tanh(1.5 * expected) == pytest.approx(expected, abs=1e-4)
    assert overlaps(path[30:], weights=weights).mean() == pytest.approx(expected, abs=3e-3)


@given(seeds, st.floats(0.0, 20.0))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_restricted_conditional_is_scaled_dot_product_attention(seed, gamma):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((2, 7, 3))  # real-valued weights and tokens
    tokens = rng.standard_normal((5, 7))
    got = restricted_conditional(tokens[-1], allowed=tokens, left=left, right=right, gamma=gamma)
    q = torch.from_numpy(tokens[-1:] @ left / 7)
    k = torch.from_numpy(tokens @ right / 7)
    v = torch.eye(5, dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)
    np.testing.assert_allclose(got, attention[0].numpy(), rtol=0, atol=1e-12)


def test_gaussian_couplings_have_the_stated_moments():
    for symmetry in (-1.0, 0.0, 0.4, 1.0):
        pair = gaussian_couplings(600, symmetry=symmetry, rng=np.random.default_rng(0), mean=5.0)
        off = ~np.eye(600, dtype=bool)
        assert pair[off].mean() * 600 == pytest.approx(5.0, abs=0.3)
        centred = pair - pair[off].mean()
        assert (centred[off] ** 2).mean() * 600 == pytest.approx(1.0, abs=0.02)
        assert (centred * centred.T)[off].mean() * 600 == pytest.approx(symmetry, abs=0.02)
        assert not pair.diagonal().any()


def test_parallel_glauber_has_the_stationary_law_of_symmetric_couplings():
    # Peretto (1984): the stationary law is prod_i 2 cosh(beta h_i(x)), not exp(-beta E).
    pair = gaussian_couplings(4, symmetry=1.0, rng=np.random.default_rng(2)) * 1.5
    path = parallel_glauber(
        pair, states=signs(0, 4000, 4), beta=0.9, steps=200, rng=np.random.default_rng(0)
    )
    codes = (path[20::20].reshape(-1, 4) > 0) @ (1 << np.arange(3, -1, -1))
    share = np.bincount(codes, minlength=16) / codes.size
    weight = np.cosh(0.9 * all_states(4) @ pair.T).prod(axis=1)
    expected = weight / weight.sum()
    z = (share - expected) / np.sqrt(expected / codes.size)
    assert np.abs(z).max() < 4.5


def test_parallel_glauber_without_noise_follows_the_sign_of_the_field():
    pair = gaussian_couplings(30, symmetry=0.0, rng=np.random.default_rng(3))
    start = signs(1, 5, 30)
    path = parallel_glauber(pair, states=start, beta=1e9, steps=3, rng=np.random.default_rng(0))
    state = start
    for step in range(1, 4):
        state = np.where(np.einsum("ij,rj->ri", pair, state) > 0, 1.0, -1.0)
        np.testing.assert_array_equal(path[step], state)


def test_symmetric_cycles_are_at_most_two_long_and_cycles_are_cycles():
    rng = np.random.default_rng(0)
    longest = 0
    for _ in range(60):
        symmetric = gaussian_couplings(20, symmetry=1.0, rng=rng)
        start = rng.choice([-1.0, 1.0], 20)
        assert zero_temperature_cycle(symmetric, state=start).length in (1, 2)
        pair = gaussian_couplings(14, symmetry=0.0, rng=rng)
        start = rng.choice([-1.0, 1.0], 14)
        cycle = zero_temperature_cycle(pair, state=start)
        seen, state, step = {}, start, 0
        while tuple(state) not in seen:
            seen[tuple(state)] = step
            state = np.where(pair @ state > 0, 1.0, -1.0)
            step += 1
        assert cycle.transient == seen[tuple(state)]
        assert cycle.length == step - seen[tuple(state)]
        longest = max(longest, cycle.length)
    assert longest > 10
    assert zero_temperature_cycle(pair, state=start, limit=1).length in (0, 1)


def test_theory_averages_equal_adaptive_quadrature():
    def average(f):
        def density(z):
            return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * f(z)

        return quad(density, -12, 12, epsabs=1e-13, points=[0.0], limit=400)[0]

    for beta in (0.5, 2.0, 8.0):
        expected = beta * average(lambda z, b=beta: 1 / np.cosh(b * z) ** 2)
        assert asymmetric_gain(beta) == pytest.approx(expected, abs=1e-10)
    m = asymmetric_magnetization(2.0, mean=2.0)
    assert average(lambda z: np.tanh(2.0 * (2.0 * m + z))) == pytest.approx(m, abs=1e-10)
    assert asymmetric_magnetization(2.0, mean=0.99 / asymmetric_gain(2.0)) == 0.0
    assert analog_exponent_theory(0.5) == pytest.approx(np.log(0.5), abs=1e-12)


def test_simulations_follow_the_large_n_theory():
    rng = np.random.default_rng(0)
    pair = gaussian_couplings(1000, symmetry=0.0, rng=rng, mean=2.0)
    path = parallel_glauber(pair, states=np.ones((4, 1000)), beta=2.0, steps=150, rng=rng)
    assert path[50:].mean() == pytest.approx(asymmetric_magnetization(2.0, mean=2.0), abs=0.015)
    exponents = [
        analog_exponent(
            gaussian_couplings(500, symmetry=0.0, rng=rng),
            beta=3.0,
            transient=100,
            steps=400,
            rng=rng,
        )
        for _ in range(4)
    ]
    assert np.mean(exponents) == pytest.approx(analog_exponent_theory(3.0), abs=0.025)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: all_states(30), ValueError, "spins"),
        (lambda: hopfield_log_probability(np.ones((3, 2)), beta=-1.0), ValueError, "beta"),
        (
            lambda: bipartite_log_probability(np.ones((3, 2)), right=np.ones((3, 1)), beta=1.0),
            ValueError,
            "right",
        ),
        (lambda: overlaps(np.ones(4), weights=np.ones((3, 2))), ValueError, "states"),
        (
            lambda: gaussian_couplings(5, symmetry=2.0, rng=np.random.default_rng(0)),
            ValueError,
            "symmetry",
        ),
        (lambda: zero_temperature_cycle(np.eye(2), state=np.array([0.5, 1])), ValueError, "state"),
        (
            lambda: iterate_pair(
                np.ones(3), left=np.ones((3, 1)), right=None, beta=1.0, steps=2, seed=0
            ),
            TypeError,
            "right",
        ),
        (lambda: asymmetric_magnetization(float("nan"), mean=1.0), ValueError, "beta"),
    ],
)
def test_bad_input_names_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()
