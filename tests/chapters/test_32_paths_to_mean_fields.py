"""Chapter 32: position, starts on attractors, and the count of operations."""

import numpy as np
import pytest
from known_networks import COIN

from compendium.c32_paths_to_mean_fields.functional import step_operations
from compendium.common.windows import settled_start
from spinformer.core.states import spin_states
from spinformer.dmft.finite_size import attention_of_window
from spinformer.dmft.mean_field import random_contexts, step
from spinformer.dmft.network import Context, Network


@pytest.mark.claim("C6")
def test_position_is_a_longer_token_and_alone_tells_the_order():
    network, rng = Network.document(), np.random.default_rng(3)
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
        one, two = (attention_of_window(machine, w, position=3) for w in (window, turned))
        assert low <= np.abs(two - one).max() < high


@pytest.mark.claim("C15")
def test_a_step_needs_the_operations_that_a_hand_counts():
    other = Network.segmented(1, features=2, segments=5, bits=3, context=6, gamma=9.0)
    for network in (Network.document(), other):
        context = random_contexts(network, 0, count=1).select(0)
        attention, count = step_operations(network, context, beta=1.2)
        following, _ = step(network, context, 1.2)
        np.testing.assert_allclose(attention, following.attention[0], rtol=0, atol=1e-12)
        t, p, n = network.context, network.features, network.segments
        by_hand = n * (2 * p - 1) + n  # fields and tanh
        by_hand += 3 * p * (2 * n - 1) + 3 * p  # v, q, k of the new token, and its position
        by_hand += p + t * (2 * p - 1)  # scores
        by_hand += t + t + (t - 1)  # differences from the largest, exponentials, their sum
        by_hand += p * (2 * t - 1) + p  # averages
        assert count == by_hand
        if network is not other:
            # 600 s of a core of 2.1 GHz for 120,000 steps, a hundred cycles an operation.
            assert 100 * 100 * count < 600 * 2.1e9 / 120_000


def test_settled_start_takes_the_most_common_attractor_and_the_largest_of_two():
    # A ferromagnet: m = tanh(2 m), +0.957504 or −0.957504 by the sign it begins with.
    network = COIN.with_parameters(context=2)
    for signs, expected in (([1, 1, -1], 1), ([-1, 1, -1], -1), ([-1, 1], 1)):
        start = Context(0.8 * np.array(signs)[:, None, None] * np.ones((2, 1)), 0)
        window, _ = settled_start(network, 2.0, start, settle=200, look=5)
        np.testing.assert_allclose(window, 0.957504 * expected, atol=1e-6)
