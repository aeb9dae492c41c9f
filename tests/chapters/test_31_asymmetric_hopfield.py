"""Bipartite Hopfield networks and attention as their conditional, against plain sums."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp

from compendium.c31_asymmetric_hopfield.pairs import (
    bipartite_log_probability,
    conditional_means,
    iterate_pair,
    restricted_conditional,
)
from spinformer.core.states import overlaps, spin_states

seeds = st.integers(0, 10_000)


def signs(seed, *shape):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


@given(seeds, st.floats(0.0, 3.0))
@settings(deadline=None, max_examples=25, derandomize=True)
@pytest.mark.claim("C1b")
def test_conditional_follows_from_the_joint(seed, beta):
    left, right = signs(seed, 3, 5), signs(seed + 1, 3, 4)
    joint = bipartite_log_probability(left, right=right, beta=beta)
    assert logsumexp(joint) == pytest.approx(0.0, abs=1e-12)
    given_x = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    x, y = spin_states(5), spin_states(4)
    means = conditional_means(x, left=left, right=right, beta=beta)
    np.testing.assert_allclose(given_x @ y, means, rtol=0, atol=1e-12)
    # Independence given x: the joint conditional is the product of its factors.
    factors = 0.5 * (1.0 + y[None] * means[:, None])
    np.testing.assert_allclose(given_x, factors.prod(axis=2), rtol=0, atol=1e-12)


@pytest.mark.claim("C1a")
def test_retrieval_reaches_the_curie_weiss_overlap():
    stored = signs(0, 1, 20_000)
    lost = iterate_pair(stored[0], left=stored, right=stored, beta=0.8, steps=60, seed=0)
    assert abs(overlaps(lost[30:], patterns=stored).mean()) < 0.03
    path = iterate_pair(stored[0], left=stored, right=stored, beta=1.5, steps=60, seed=0)
    expected = brentq(lambda m: np.tanh(1.5 * m) - m, 0.1, 1.0)
    assert overlaps(path[30:], patterns=stored).mean() == pytest.approx(expected, abs=3e-3)


@given(seeds, st.floats(0.0, 20.0))
@settings(deadline=None, max_examples=25, derandomize=True)
@pytest.mark.claim("C2")
def test_restricted_conditional_is_scaled_dot_product_attention(seed, gamma):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((3, 7)), rng.standard_normal((3, 9))  # real-valued
    query, tokens = rng.standard_normal(7), rng.standard_normal((5, 9))
    got = restricted_conditional(query, allowed=tokens, left=left, right=right, gamma=gamma)
    q = torch.from_numpy(query[None] @ left.T / 7)
    k = torch.from_numpy(tokens @ right.T / 9)
    v = torch.eye(5, dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)
    np.testing.assert_allclose(got, attention[0].numpy(), rtol=0, atol=1e-12)
    # Binary tokens: rows of the table of all states, told that y is one of five.
    left, right = rng.choice([-1.0, 1.0], (2, 3, 5))
    joint = bipartite_log_probability(left, right=right, beta=0.1 * gamma)
    rows, x = rng.choice(32, 5, replace=False), int(rng.integers(32))
    told = np.exp(joint[x, rows] - logsumexp(joint[x, rows]))
    states = spin_states(5)
    got = restricted_conditional(
        states[x], allowed=states[rows], left=left, right=right, gamma=0.5 * gamma
    )
    np.testing.assert_allclose(got, told, rtol=0, atol=1e-12)
