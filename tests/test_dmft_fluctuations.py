"""Corrections at finite size: exact enumeration, the Gaussian closure, texts that share noise."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from compendium.c32c_fluctuations.closure import gaussian_closure, next_means
from compendium.c32c_fluctuations.coupling import coupled_growth
from compendium.c33g_escapes.passage import mean_first_passage
from spinformer.dmft.finite_size import (
    attention_of_window,
    linear_maps,
    mean_path,
    mean_shift,
    noise_covariance,
    window_means,
)
from spinformer.dmft.functional import exact_moments, token_states, transition_probabilities
from spinformer.dmft.network import Network


@pytest.fixture(scope="module")
def coin():
    return Network(
        semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=1.0, epsilon=0.0
    )


@pytest.fixture(scope="module")
def short():
    return Network.document().with_parameters(context=2, gamma=20.0, epsilon=0.1)


def test_enumerated_moments_are_those_of_all_bit_strings(short):
    """Every configuration of 6 explicit bits in a window of two, with attention written out."""
    beta, position = 1.3, 2
    window = np.array([[0.3, -0.2, 0.6], [-0.5, 0.1, 0.4]])
    weights = short.weights(6)
    bits = np.array(list(itertools.product((-1.0, 1.0), repeat=6)))
    place = short.position_overlaps()

    def chances(mean):
        return np.prod(0.5 * (1.0 + bits * np.repeat(mean, 2)), axis=1)

    m = 0.9 * np.einsum("rai,si->sra", weights, bits) / 6
    law = np.outer(chances(window[0]), chances(window[1]))
    averages, squares = [], []
    for step in range(2):
        older = m + 0.1 * place[(position + step - 1) % 4]
        newer = m + 0.1 * place[(position + step) % 4]
        following = np.zeros_like(law)
        for i, j in itertools.product(range(64), repeat=2):
            scores = 20.0 * np.array([older[i, 3] @ newer[j, 2], newer[j, 3] @ newer[j, 2]])
            share = np.exp(scores) / np.exp(scores).sum()
            attention = share[0] * older[i, 1] + share[1] * newer[j, 1]
            mean = np.tanh(beta * (attention @ short.semantic[0]))
            following[j] += law[i, j] * chances(mean)
        law = following
        token = bits.reshape(64, 3, 2).mean(axis=2)
        averages.append(law.sum(axis=0) @ token)
        squares.append(token.T @ (law.sum(axis=0)[:, None] * token))
    mean, covariance = exact_moments(short, 6, beta=beta, window=window, steps=2, position=position)
    np.testing.assert_allclose(mean[2:], averages, atol=1e-12)
    for t in range(2):
        expected = squares[t] - np.outer(averages[t], averages[t])
        np.testing.assert_allclose(covariance[2 + t], expected, atol=1e-12)
    np.testing.assert_allclose(covariance[0], np.diag((1 - window[0] ** 2) / 2), atol=1e-12)


def test_the_shift_of_order_one_over_n_is_that_of_exact_and_closed_means(coin):
    """N (exact − mean field), extrapolated, against the expansion and the closure."""
    beta, window = 1.5, np.array([[0.5]])
    path = mean_path(coin, beta, window=window, steps=4, position=0)
    maps = linear_maps(coin, beta, path=path, position=0)
    shift = mean_shift(coin, beta, path=path, maps=maps, position=0)
    scatter = noise_covariance(coin, path, maps=maps)

    def scaled(size):
        mean, covariance = exact_moments(coin, size, beta=beta, window=window, steps=4, position=0)
        return size * (mean - path), size * covariance

    (one, wide), (two, wider) = scaled(400), scaled(800)
    np.testing.assert_allclose(2 * two - one, shift, atol=2e-3)
    np.testing.assert_allclose(2 * wider - wide, scatter, rtol=5e-3)
    machine, size = Network.document(), 3 * 10**9
    start = 0.6 * np.sin(np.arange(12.0)).reshape(4, 3)
    path = mean_path(machine, 1.2, window=start, steps=5, position=3)
    maps = linear_maps(machine, 1.2, path=path, position=0)
    shift = mean_shift(machine, 1.2, path=path, maps=maps, position=0)
    mean, covariance = gaussian_closure(machine, size, beta=1.2, window=start, steps=5, position=3)
    np.testing.assert_allclose(size * (mean - path), shift, atol=2e-3 * np.abs(shift).max())
    np.testing.assert_allclose(
        size * covariance, noise_covariance(machine, path, maps=maps), rtol=1e-3, atol=1e-2
    )


def test_a_closed_step_is_a_gaussian_integral_and_beats_the_naive_mean_field(coin, short):
    size, beta, window = 20, 2.0, np.array([[0.5]])
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    answer = np.tanh(beta * (0.5 + points * np.sqrt(0.75 / size)))
    first = weights @ answer
    own = weights @ answer**2 - first**2 + weights @ (1.0 - answer**2) / size
    mean, covariance = gaussian_closure(coin, size, beta=beta, window=window, steps=1, position=0)
    assert mean[1, 0] == pytest.approx(first, abs=2e-4)
    assert covariance[1, 0, 0] == pytest.approx(own, rel=2e-3)
    # Exact means of a network of nine bits, eight tokens on: the closure is nearer at each.
    start = np.array([[0.3, -0.2, 0.6], [-0.5, 0.1, 0.4]])
    options = {"beta": 1.3, "window": start, "steps": 8, "position": 2}
    exact, _ = exact_moments(short, 9, **options)
    closed, _ = gaussian_closure(short, 9, **options)
    naive = mean_path(short, 1.3, window=start, steps=8, position=2)
    off, worse = (np.linalg.norm(part - exact, axis=1)[2:] for part in (closed, naive))
    assert np.sqrt((off**2).mean()) < 0.4 * np.sqrt((worse**2).mean())
    inside = np.tanh(np.random.default_rng(0).normal(size=(5, 2, 3)))
    with pytest.raises(ValueError, match="power of two"):
        gaussian_closure(short, 9, **options, nodes=48)
    attention = attention_of_window(short, inside, position=7)
    np.testing.assert_allclose(
        next_means(short, inside, beta=1.3, position=7),
        window_means(short, 1.3, attention=attention),
        atol=1e-14,
    )


def test_first_passage_is_gamblers_ruin(coin):
    """Steps up with chance 0.6 on 0 … 6, by the textbook; the table's rows are probabilities."""
    walk = np.zeros((7, 7))
    for k in range(1, 6):
        walk[k, k - 1], walk[k, k + 1] = 0.4, 0.6
    walk[0, 0] = walk[6, 6] = 1.0
    inside = np.arange(7) % 6 > 0
    k, r = np.arange(7), 0.4 / 0.6
    expected = (6 * (1 - r**k) / (1 - r**6) - k) / 0.2
    np.testing.assert_allclose(mean_first_passage(walk, inside=inside), expected, atol=1e-12)
    # A climb of eight steps against a drift takes up to 1e26: rational numbers tell the digits.
    for chance in (1e-2, 3e-4):
        climb = np.diag(np.full(8, chance), 1) + np.diag(np.full(8, 0.5), -1)
        climb[8] = 0.0
        climb += np.diag(1.0 - climb.sum(axis=1))
        steps = [1 / Fraction(chance)]
        for _ in range(7):
            steps.append((1 + steps[-1] / 2) / Fraction(chance))
        inside = np.arange(9) < 8
        for order in (np.arange(9), np.arange(9)[::-1], np.array([3, 8, 0, 5, 1, 7, 2, 6, 4])):
            found = mean_first_passage(climb[np.ix_(order, order)], inside=inside[order])
            where = int(np.flatnonzero(order == 0)[0])
            assert found[where] == pytest.approx(float(sum(steps)), rel=1e-12)
    with pytest.raises(ValueError, match="without a way out"):
        mean_first_passage(np.eye(3), inside=np.array([True, True, False]))
    table = transition_probabilities(coin, 9, beta=1.3, position=0)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
    states = token_states(coin, 9)[:, 0]
    np.testing.assert_allclose(table @ states, np.tanh(1.3 * states), atol=1e-12)
    with pytest.raises(ValueError, match="size must leave"):
        transition_probabilities(Network.document(), 30, beta=1.0, position=0)


def test_texts_that_share_their_noise_grow_apart_as_the_limit_does(coin):
    """Below the onset x → tanh βx contracts by β at rest; pairs of few bits merge."""
    windows = np.zeros((40, 1, 1))
    found = coupled_growth(
        coin, 10**9, beta=0.7, windows=windows, position=0, steps=40, transient=8, seed=1
    )
    assert found.growth.value == pytest.approx(np.log(0.7), abs=3e-3)
    assert found.merged == 0.0
    sets = [
        coupled_growth(
            coin, 10**5, beta=0.7, windows=windows, position=0, steps=8, transient=4, seed=seed
        ).growth
        for seed in range(60)
    ]
    scatter = np.std([float(one.value) for one in sets], ddof=1)
    assert np.mean([float(one.error) for one in sets]) == pytest.approx(scatter, rel=0.3)
    few = coupled_growth(
        coin, 99, beta=0.7, windows=windows, position=0, steps=40, transient=8, seed=1
    )
    assert few.merged > 0.5
    none = coupled_growth(
        coin, 10**6, beta=0.0, windows=windows, position=0, steps=8, transient=0, seed=1
    )
    assert none.merged == 1.0
    assert none.growth.value == -np.inf


def test_growth_begins_after_the_transient_and_one_pair_has_a_growth_without_an_error(coin):
    """Pairs part by ln 1.5 a step from the unstable rest; later they contract by the slope."""
    fixed = 0.5
    for _ in range(200):
        fixed = np.tanh(1.5 * fixed)
    start = np.full((6, 1, 1), 1e-3)
    given = {"beta": 1.5, "position": 0, "steps": 8, "seed": 1}
    late = coupled_growth(coin, 10**12, windows=start, transient=40, **given).growth
    assert late.value == pytest.approx(np.log(1.5 * (1.0 - fixed**2)), abs=2e-3)
    early = coupled_growth(coin, 10**12, windows=start, transient=0, **given).growth
    assert early.value > 0.3
    alone = coupled_growth(coin, 10**12, windows=start[:1], transient=40, **given)
    assert alone.growth.value == pytest.approx(late.value, abs=2e-3)
    assert np.isnan(alone.growth.error)
    # The distance is in units of 1/√N: a closer twin of few bits merges at once.
    assert alone.merged == 0.0
