"""Chapter 32: sums over texts by brute force, their saddle points, position, operations."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from known_networks import COIN
from open_cells import run_open_cells
from scipy.special import softmax

from compendium.c32_paths_to_mean_fields import functional
from spinformer.core.solve import NotConverged
from spinformer.core.states import spin_states
from spinformer.dmft.finite_size import (
    attention_of_window,
    mean_path,
    token_probabilities,
    token_states,
    window_of_context,
)
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.settling import settled_window


def test_the_open_cells_sum_over_texts_as_the_package_does():
    shown = run_open_cells("32_paths_to_mean_fields")
    half = np.array([[0.5]])
    for size, average in shown["exact_overlaps"].items():
        law = functional.propagate(COIN, size, beta=1.5, window=half, steps=3)[-1]
        assert average == pytest.approx((law @ token_states(COIN, size)).item(), abs=1e-12)
    assert shown["mean_field"] == pytest.approx(mean_path(COIN, 1.5, window=half, steps=3)[-1, 0])
    source = np.zeros((2, 4, 1))
    source[1, 0, 0] = 0.3  # the output feature of the second token alone
    found = functional.saddle_point(COIN, source, beta=1.5, window=half)
    assert shown["saddle_exponent"] == pytest.approx(found.value, abs=1e-10)
    assert shown["conjugate"] == pytest.approx(np.abs(found.conjugate).max(), abs=1e-8)
    texts = functional.enumerate_paths(COIN, 256, beta=1.5, window=half, steps=2)
    exact = float(torch.log(texts.generating_functional(torch.from_numpy(source)))) / 256
    assert shown["exact_exponent"] == pytest.approx(exact, abs=1e-12)


@pytest.mark.claim("C6")
def test_position_is_a_longer_token_and_alone_tells_the_order():
    network = Network.poclopez2024()
    rng = np.random.default_rng(3)
    bits = rng.choice([-1.0, 1.0], (4, 60))
    window = bits.reshape(4, 3, 20).mean(axis=2)
    for position in (3, 6):
        codes = spin_states(2)[(position - 3 + np.arange(4)) % 4]
        # One plain loop over explicit bits, semantic ones and those of the code.
        m = np.empty((4, 4, 3))
        for t, role, a in np.ndindex(4, 4, 3):
            semantic = sum(network.semantic[role, a, i // 20] * bits[t, i] for i in range(60))
            code = sum(network.position[role, a, k] * codes[t, k] for k in range(2))
            m[t, role, a] = 0.98 * semantic / 60 + 0.02 * code / 2
        weight = np.exp(network.gamma * (m[:, 3] @ m[3, 2]))
        expected = weight @ m[:, 1] / weight.sum()
        found = attention_of_window(network, window, position=position)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    turned = np.concatenate([window[-2::-1], window[-1:]])
    for epsilon, low, high in ((0.0, 0.0, 1e-13), (0.02, 1e-4, 1.0)):
        machine = network.with_parameters(epsilon=epsilon)
        one = attention_of_window(machine, window, position=3)
        two = attention_of_window(machine, turned, position=3)
        assert low <= np.abs(two - one).max() < high


@pytest.mark.claim("C15")
def test_a_step_needs_the_operations_that_a_hand_counts():
    other = Network.segmented(1, features=2, segments=5, bits=3, context=6, gamma=9.0)
    for network in (Network.poclopez2024(), other):
        context = random_contexts(network, 0, count=1).select(0)
        attention, count = functional.step_operations(network, context, beta=1.2)
        following, _ = step(network, context, 1.2)
        np.testing.assert_allclose(attention, following.attention[0], rtol=0, atol=1e-12)
        t = network.context
        p = network.features
        n = network.segments
        by_hand = n * (2 * p - 1) + n  # fields and tanh
        by_hand += 3 * p * (2 * n - 1) + 3 * p  # v, q, k of the new token, and its position
        by_hand += p + t * (2 * p - 1)  # scores
        by_hand += t + t + (t - 1)  # differences from the largest, exponentials, their sum
        by_hand += p * (2 * t - 1) + p  # averages
        assert count == by_hand
        if network is not other:
            # 600 s of a core of 2.1 GHz for 120,000 steps, a hundred cycles an operation.
            assert 100 * 100 * count < 600 * 2.1e9 / 120_000


def test_settled_window_takes_the_most_common_attractor_and_the_largest_of_two():
    # A ferromagnet: m = tanh(2 m), +0.957504 or −0.957504 by the sign it begins with.
    network = COIN.with_parameters(context=2)
    for signs, expected in (([1, 1, -1], 1), ([-1, 1, -1], -1), ([-1, 1], 1)):
        start = Context(0.8 * np.array(signs)[:, None, None] * np.ones((2, 1)), 0)
        window, _ = settled_window(network, 2.0, context=start, transient=200, steps=5)
        np.testing.assert_allclose(window, 0.957504 * expected, atol=1e-6)


def test_settled_window_is_that_of_the_highest_token_of_a_cycle():
    network = Network.poclopez2024()
    context = Context(np.full((4, 3), 0.3), 1)
    overlaps, _ = trajectory(network, context, beta=0.9, steps=8, transient=200)
    found = settled_window(network, 0.9, context=context, transient=200, steps=8)
    # The token is the newest one of the context in which the next is not yet recorded.
    for _ in range(200 + int(np.round(overlaps[:, 0], 7).argmax())):
        context, _ = step(network, context, 0.9)
    assert found[1] == context.position
    np.testing.assert_allclose(found[0], window_of_context(network, context, beta=0.9), atol=1e-9)


WINDOW = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])


def small_network():
    """Three bits, each a segment of its own; weights without symmetry, T = 2, one position bit."""
    return Network.segmented(3, features=2, segments=3, bits=1, context=2, gamma=1.7, epsilon=0.3)


def plain_means(network, beta, window, steps, position):
    """N<m> by brute force over all bit strings, every formula written out again."""
    bits = [np.array(s, dtype=float) for s in product((-1, 1), repeat=3)]
    total = np.zeros((steps, 4, network.features))
    norm = 0.0
    for path in product(bits, repeat=steps):
        tokens = list(window)
        probability = 1.0
        for new in range(steps):
            m = []
            for age in range(network.context):
                place = -1.0 if (position + new - age) % 2 == 0 else 1.0
                semantic = network.semantic @ tokens[-1 - age] / 3
                m.append(0.7 * semantic + 0.3 * network.position[:, :, 0] * place)
            weight = softmax([network.gamma * m[0][2] @ other[3] for other in m])
            field = beta * (weight @ [other[1] for other in m]) @ network.semantic[0]
            probability *= np.prod(np.exp(field * path[new]) / (2 * np.cosh(field)))
            tokens.append(path[new])
        norm += probability
        total += probability * np.array([network.semantic @ x for x in path])
    return total, norm


@pytest.mark.claim("C4")
def test_derivative_equals_plain_enumeration():
    network = small_network()
    paths = functional.enumerate_paths(network, 3, beta=1.4, window=WINDOW, steps=4)
    expected, norm = plain_means(network, 1.4, WINDOW, 4, 1)
    source = torch.zeros(4, 4, 2, dtype=torch.float64, requires_grad=True)
    value = paths.generating_functional(source)
    (slope,) = torch.autograd.grad(value, source)
    assert [norm, value.item()] == pytest.approx([1.0, 1.0], abs=1e-12)
    chain = functional.propagate(network, 3, beta=1.4, window=WINDOW, steps=9)
    np.testing.assert_allclose(chain.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    means = np.einsum("ts,sra->tra", chain, 3 * network.overlaps(token_states(network, 3)))
    for found in (slope, paths.mean_features(), means[:4]):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def exponent(network, window, beta, m, conjugate, source):
    """Φ at any m and m̂ in plain NumPy loops; position of the newest token of the window 1."""
    past = list(network.overlaps(window))
    value = -(m * conjugate).sum()
    for s in range(len(m)):
        recent = np.array([*past, *m[:s]])[-network.context :]
        codes = (1 + s + np.arange(1 - network.context, 1)) % network.positions
        place = network.epsilon * network.position_overlaps()[codes]
        known = (1 - network.epsilon) * recent + place
        weight = np.exp(network.gamma * (known[:, 3] @ known[-1, 2]))
        field = beta * (weight @ known[:, 1] / weight.sum()) @ network.semantic[0]
        tilt = np.einsum("ra,ral->l", source[s] + conjugate[s], network.semantic)
        value += network.fractions @ np.log(np.cosh(field + tilt) / np.cosh(field))
    return value


def saddle_at(network, seed, *, window=WINDOW):
    """A random source (2, 4, 3) and the saddle point there."""
    source = np.random.default_rng(seed).normal(size=(2, 4, 3))
    source *= 0.3 / np.abs(source).max()
    return source, functional.saddle_point(network, source, beta=1.27, window=window)


def limits(network, *sources, window=WINDOW, sizes=(9, 12, 15)):
    """ln Z / N for each source by the sum over all paths, extrapolated to infinite N."""
    found = []
    for size in sizes:
        paths = functional.enumerate_paths(network, size, beta=1.27, window=window, steps=2)
        sums = [float(paths.generating_functional(torch.from_numpy(one))) for one in sources]
        found.append(np.log(sums) / size)
    return np.polyfit(1 / np.array(sizes), found, 2)[-1]


def tilted(network, source):
    """Means of tokens whose fields are moved by W g, one after the other from WINDOW."""
    path = WINDOW
    for position, one in enumerate(source, 1):
        attention = attention_of_window(network, path[-2:], position=position)
        push = np.einsum("ra,ral->l", one, network.semantic)
        fields = 1.27 * attention @ network.semantic[0] + push
        path = np.concatenate([path, np.tanh(fields)[None]])
    return path[2:]


@pytest.mark.claim("C20")
def test_saddle_point_is_stationary_and_the_limit_of_exact_sums():
    network = Network.poclopez2024().with_parameters(context=2, gamma=6.0)
    source, found = saddle_at(network, 0)
    m = found.overlaps
    conjugate = found.conjugate
    assert np.abs(conjugate[0]).max() > 0.1
    assert not conjugate[1].any()  # nothing comes after the last token

    def value(m, conjugate):
        return exponent(network, WINDOW, 1.27, m, conjugate, source)

    assert value(m, conjugate) == pytest.approx(found.value, abs=1e-11)
    for way in 1e-5 * np.eye(m.size).reshape(-1, *m.shape):
        assert value(m + way, conjugate) == pytest.approx(value(m - way, conjugate), abs=1e-9)
        assert value(m, conjugate + way) == pytest.approx(value(m, conjugate - way), abs=1e-9)
    assert limits(network, source) == pytest.approx(found.value, abs=2e-3)
    # Without conjugate fields the tokens follow the sources alone.
    plain = network.overlaps(tilted(network, source))
    assert value(plain, 0 * conjugate) == pytest.approx(found.bare, abs=1e-12)
    assert abs(found.bare - found.value) > 0.01


@pytest.mark.nightly
def test_the_saddle_point_is_the_limit_at_19_of_20_sources():
    network = Network.poclopez2024().with_parameters(context=2, gamma=6.0)
    window = np.array(2 * [[1.0, -1.0, -1.0]])
    sources = []
    found = []
    for seed in range(20):
        source, point = saddle_at(network, seed, window=window)
        sources.append(source)
        found.append(point)
    values = np.array([one.value for one in found])
    gaps = limits(network, *sources, window=window, sizes=(15, 18, 21)) - values
    fields = np.array([np.abs(one.conjugate).max() for one in found])
    assert ((np.abs(gaps) < 0.002) & (fields > 0.05)).sum() >= 19
    # Without conjugate fields most draws would miss the bound.
    assert np.median([abs(one.value - one.bare) for one in found]) > 0.01


def test_without_sources_the_saddle_point_is_the_mean_field():
    network = Network.poclopez2024()
    window = np.random.default_rng(2).uniform(-1, 1, (4, 3))
    found = functional.saddle_point(network, np.zeros((5, 4, 3)), beta=1.1, window=window)
    path = mean_path(network, 1.1, window=window, steps=5)
    np.testing.assert_allclose(found.overlaps, network.overlaps(path[4:]), rtol=0, atol=1e-13)
    assert abs(found.value) < 1e-15
    assert np.abs(found.conjugate).max() < 1e-12


@pytest.mark.parametrize(
    ("function", "size", "message"),
    [(functional.propagate, 45, "size"), (functional.enumerate_paths, 3, "steps")],
)
def test_what_does_not_fit_is_refused(function, size, message):
    with pytest.raises(ValueError, match=f"{message} must leave at most"):
        function(small_network(), size, beta=1.0, window=WINDOW, steps=9)
    with pytest.raises(ValueError, match="attention must"):
        token_probabilities(small_network(), 3, beta=1.0, attention=np.ones(3))


def test_a_saddle_that_is_almost_found_is_not_called_found(monkeypatch):
    network = small_network()
    source = 0.2 * np.ones((4, 4, network.features))
    functional.saddle_point(network, source, beta=1.1, window=WINDOW)
    monkeypatch.setattr(functional, "root", lambda _, x, **others: SimpleNamespace(x=x + 1e-9))
    with pytest.raises(NotConverged, match="saddle point"):
        functional.saddle_point(network, source, beta=1.1, window=WINDOW)
