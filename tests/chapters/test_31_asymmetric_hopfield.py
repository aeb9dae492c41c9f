"""Bipartite networks against plain sums; random ones against loops, quadrature, known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from open_cells import run_open_cells
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from compendium.c31_asymmetric_hopfield import pairs, study
from spinformer.core.solve import NotConverged
from spinformer.core.states import overlaps, spin_states
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import glauber_trajectory

seeds = st.integers(0, 10_000)


def signs(seed, *shape):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


def test_the_open_cells_walk_and_grow_as_the_package_does():
    shown = run_open_cells("31_asymmetric_hopfield")
    assert shown["visited_features"] == [2, 3, 1] * 3
    assert shown["simulated_overlap"] == pytest.approx(shown["mean_field_overlap"], abs=0.015)
    # The update draws the means that the package computes.
    patterns = shown["stored_patterns"]
    state = patterns[0]
    drawn = np.mean([shown["next_state"](state, shown["successors"], 0.7) for _ in range(40)], 0)
    means = pairs.conditional_means(state, left=patterns, right=shown["successors"], beta=0.7)
    assert np.abs((drawn - means).mean()) < 4 / np.sqrt(drawn.size * 40)
    assert drawn @ means / (means @ means) == pytest.approx(1.0, abs=0.01)
    found = study.analog_exponents(500, symmetry=0.0, beta=3.0, count=4, seed=1)
    assert shown["chaos_exponent"] == pytest.approx(found.value, abs=0.05)


@given(seeds, st.floats(0.0, 3.0))
@settings(deadline=None, max_examples=25, derandomize=True)
@pytest.mark.claim("C1b")
def test_conditional_follows_from_the_joint(seed, beta):
    left = signs(seed, 3, 5)
    right = signs(seed + 1, 3, 4)
    joint = pairs.bipartite_log_probability(left, right=right, beta=beta)
    assert logsumexp(joint) == pytest.approx(0.0, abs=1e-12)
    given_x = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    x = spin_states(5)
    y = spin_states(4)
    means = pairs.conditional_means(x, left=left, right=right, beta=beta)
    np.testing.assert_allclose(given_x @ y, means, rtol=0, atol=1e-12)
    # Independence given x: the joint conditional is the product of its factors.
    factors = 0.5 * (1.0 + y[None] * means[:, None])
    np.testing.assert_allclose(given_x, factors.prod(axis=2), rtol=0, atol=1e-12)


@pytest.mark.claim("C1a")
def test_retrieval_reaches_the_curie_weiss_overlap():
    stored = signs(0, 1, 20_000)
    lost = pairs.iterate_pair(stored[0], left=stored, right=stored, beta=0.8, steps=60, seed=0)
    assert abs(overlaps(lost[30:], patterns=stored).mean()) < 0.03
    path = pairs.iterate_pair(stored[0], left=stored, right=stored, beta=1.5, steps=60, seed=0)
    expected = brentq(lambda m: np.tanh(1.5 * m) - m, 0.1, 1.0)
    assert overlaps(path[30:], patterns=stored).mean() == pytest.approx(expected, abs=3e-3)


@given(seeds, st.floats(0.0, 20.0))
@settings(deadline=None, max_examples=25, derandomize=True)
@pytest.mark.claim("C2")
def test_restricted_conditional_is_scaled_dot_product_attention(seed, gamma):
    rng = np.random.default_rng(seed)
    # Real-valued features.
    left = rng.standard_normal((3, 7))
    right = rng.standard_normal((3, 9))
    query = rng.standard_normal(7)
    tokens = rng.standard_normal((5, 9))
    got = pairs.restricted_conditional(query, allowed=tokens, left=left, right=right, gamma=gamma)
    q = torch.from_numpy(query[None] @ left.T / 7)
    k = torch.from_numpy(tokens @ right.T / 9)
    v = torch.eye(5, dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)
    np.testing.assert_allclose(got, attention[0].numpy(), rtol=0, atol=1e-12)
    # Binary tokens: rows of the table of all states, told that y is one of five.
    left, right = rng.choice([-1.0, 1.0], (2, 3, 5))
    joint = pairs.bipartite_log_probability(left, right=right, beta=0.1 * gamma)
    rows = rng.choice(32, 5, replace=False)
    x = int(rng.integers(32))
    told = np.exp(joint[x, rows] - logsumexp(joint[x, rows]))
    states = spin_states(5)
    got = pairs.restricted_conditional(
        states[x], allowed=states[rows], left=left, right=right, gamma=0.5 * gamma
    )
    np.testing.assert_allclose(got, told, rtol=0, atol=1e-12)


def average(f):
    """E f(z), z a unit normal, by adaptive quadrature."""
    return norm.expect(f, lb=-12, ub=12, epsabs=1e-13, limit=400)


def test_cycles_are_those_of_a_plain_loop_and_short_where_couplings_are_mutual():
    rng = np.random.default_rng(0)
    longest = 0
    for _ in range(60):
        pair = gaussian_couplings(14, symmetry=0.0, seed=rng)
        state = start = rng.choice([-1.0, 1.0], 14)
        seen = []
        while state.tolist() not in seen:
            seen.append(state.tolist())
            state = np.where(pair @ state > 0, 1.0, -1.0)
        length = study.cycle_length(pair, start, 10**6)
        assert length == len(seen) - seen.index(state.tolist())
        longest = max(longest, length)
    assert longest > 10
    assert set(study.cycle_lengths(20, symmetry=1.0, count=60, seed=3)) <= {1, 2}
    ring = np.roll(np.eye(12), 1, axis=0)
    start = np.array([1.0] + 11 * [-1.0])
    assert [study.cycle_length(ring, start, limit) for limit in (40, 11)] == [12, 0]
    with pytest.raises(NotConverged, match="5 steps at size 14"):
        study.cycle_lengths(14, symmetry=0.0, count=60, seed=3, limit=5)


def test_exponents_are_those_of_two_neighbouring_orbits():
    found = study.analog_exponents(6, symmetry=0.0, beta=2.5, count=2, seed=5, steps=4000)
    rng = np.random.default_rng(5)
    means = []
    for _ in range(2):
        couplings = gaussian_couplings(6, symmetry=0.0, seed=rng)
        state = rng.uniform(-1.0, 1.0, 6)
        rng.standard_normal((6, 1))  # the tangent vector
        other = state + 1e-8 / np.sqrt(6)
        growth = []
        for _ in range(4300):
            state = np.tanh(2.5 * couplings @ state)
            other = np.tanh(2.5 * couplings @ other)
            distance = np.linalg.norm(other - state)
            growth.append(np.log(distance / 1e-8))
            other = state + (other - state) * 1e-8 / distance
        means.append(np.mean(growth[300:]))
    assert found.value == pytest.approx(np.mean(means), abs=1e-4)
    assert found.error == pytest.approx(abs(means[0] - means[1]) / 2, abs=1e-4)
    assert abs(means[0] - means[1]) > 0.01


def test_theory_just_above_the_onsets_and_against_adaptive_quadrature():
    assert study.analog_exponent_theory(1.0) == pytest.approx(0.0, abs=1e-12)
    for excess in (1e-15, 1e-9, 1e-4):
        assert abs(study.analog_exponent_theory(1 + excess)) < 3 * excess**2 + 1e-12
    assert study.analog_exponent_theory(1.2) > 0
    critical = 1 / study.asymmetric_gain(2.0)
    assert study.asymmetric_magnetization(2.0, mean=critical * (1 + 1e-14)) < 1e-5
    assert 0 < study.asymmetric_magnetization(2.0, mean=critical * 1.001) < 0.1
    assert study.asymmetric_magnetization(2.0, mean=critical * 0.99) == 0.0
    assert study.asymmetric_magnetization(0.0, mean=3.0) == 0.0
    assert study.asymmetric_magnetization(100.0, mean=50.0) == pytest.approx(1.0, abs=1e-9)
    for beta in (0.5, 2.0, 8.0):
        expected = beta * average(lambda z, b=beta: 1 / np.cosh(b * z) ** 2)
        assert study.asymmetric_gain(beta) == pytest.approx(expected, abs=1e-10)
    m = study.asymmetric_magnetization(2.0, mean=2.0)
    assert average(lambda z: np.tanh(2.0 * (2.0 * m + z))) == pytest.approx(m, abs=1e-10)


@pytest.mark.claim("C1d")
def test_independent_couplings_order_at_the_critical_mean_and_forget():
    rng = np.random.default_rng(0)
    critical = 1 / study.asymmetric_gain(2.0)
    for ratio in (0.8, 1.2, 1.5):
        order = study.mean_order(600, mean=ratio * critical, beta=2.0, replicas=8, seed=rng)
        assert order.error < 0.03
        expected = study.asymmetric_magnetization(2.0, mean=ratio * critical)
        assert order.value == pytest.approx(expected, abs=0.05)
        assert (expected > 0.5) == (ratio > 1)
    pair = gaussian_couplings(1000, symmetry=0.0, seed=rng)
    state = glauber_trajectory(pair, states=np.ones((1, 1000)), beta=2.0, steps=40, seed=rng)[:, 0]
    assert abs(np.mean(state[20] * state[22])) < 4 / np.sqrt(1000)


@pytest.mark.claim("C1c")
def test_mutual_couplings_freeze_near_the_simplest_theory_when_cold():
    # A plain loop of its own, and the theory's average by adaptive quadrature.
    rng = np.random.default_rng(0)
    kept = {0.5: [], 2.0: []}
    for beta, found in kept.items():
        for _ in range(8):
            half = rng.normal(size=(300, 300)) / np.sqrt(300)
            pair = np.triu(half, 1) + np.triu(half, 1).T
            state = rng.choice([-1.0, 1.0], 300)
            path = []
            for _ in range(500):
                up = rng.random(300) < 0.5 * (1 + np.tanh(beta * pair @ state))
                state = np.where(up, 1.0, -1.0)
                path.append(state)
            late = np.array(path[250:])
            found.append(np.mean(late[:-120] * late[120:]))
    assert abs(np.mean(kept[0.5])) < 0.03
    overlap = brentq(lambda q: average(lambda z: np.tanh(2 * np.sqrt(q) * z) ** 2) - q, 0.1, 1.0)
    assert -0.05 < np.mean(kept[2.0]) - overlap < 0.15
    assert np.mean(kept[2.0]) > 10 * np.std(kept[2.0], ddof=1) / np.sqrt(8)


def test_memory_of_mutual_couplings_has_a_sign_only_after_even_numbers_of_updates():
    # All spins are updated at once: without noise such a network ends on a cycle of two steps.
    signs_seen = set()
    for seed in range(6):
        memory = study.spin_memory(
            200,
            symmetry=1.0,
            beta=3.0,
            lags=np.array([60, 61, 62, 63]),
            steps=300,
            replicas=2,
            seed=seed,
        )
        assert (memory.value[[0, 2]] > 0.4).all()
        assert abs(memory.value[1] - memory.value[3]) < 0.1
        signs_seen.add(np.sign(memory.value[1]))
    assert signs_seen == {-1.0, 1.0}


@pytest.mark.claim("C1e")
def test_stored_exponents_extrapolate_to_the_theory():
    table = study.exponents_table.read()
    chosen = (table["symmetry"] == 0) & (table["beta"] == 3.0) & (table["size"] >= 250)
    fit, covariance = np.polyfit(
        1 / table["size"][chosen],
        table["exponent"][chosen],
        1,
        w=1 / table["error"][chosen],
        cov="unscaled",
    )
    delta = brentq(
        lambda d: average(lambda z: np.tanh(3 * np.sqrt(d) * z) ** 2) - d, 0.1, 1.0, xtol=1e-10
    )
    theory = 0.5 * np.log(9 * average(lambda z: np.cosh(3 * np.sqrt(delta) * z) ** -4.0))
    assert study.analog_exponent_theory(3.0) == pytest.approx(theory, abs=1e-8)
    assert abs(fit[1] - theory) < 3 * np.sqrt(covariance[1, 1]) < 0.009
    mutual = (table["symmetry"] == 1) & (table["beta"] == 3.0)
    assert (table["exponent"][mutual] + 3 * table["error"][mutual] < 0).all()


@pytest.mark.parametrize(
    ("symmetry", "size", "sign"), [(0.7, 120, -1), (0.7, 500, 1), (0.0, 120, 1)]
)
def test_nearly_symmetric_couplings_are_chaotic_in_large_networks_only(symmetry, size, sign):
    exponent = study.analog_exponents(size, symmetry=symmetry, beta=2.25, count=8, seed=3)
    assert sign * exponent.value > 2 * exponent.error


def test_memory_and_order_are_those_of_the_second_half_of_every_run():
    one = np.random.default_rng(5)
    other = np.random.default_rng(5)
    memories = []
    orders = []
    for _ in range(2):
        couplings = gaussian_couplings(30, symmetry=1.0, seed=one)
        first = one.choice([-1.0, 1.0], (1, 30))
        path = glauber_trajectory(couplings, beta=2.0, states=first, steps=9, seed=one)[:, 0]
        memories.append(np.mean([path[t] * 1.0 @ path[t + 3] / 30 for t in range(4, 7)]))
        couplings = gaussian_couplings(30, mean=1.0, seed=other)
        path = glauber_trajectory(
            couplings, beta=1.0, states=np.ones((1, 30)), steps=200, seed=other
        )
        orders.append(abs(np.mean([path[t] * 1.0 for t in range(100, 201)])))
    memory = study.spin_memory(
        30, symmetry=1.0, beta=2.0, lags=np.array([3]), steps=9, replicas=2, seed=5
    )
    for found, expected in (
        (memory, memories),
        (study.mean_order(30, mean=1.0, beta=1.0, replicas=2, seed=5), orders),
    ):
        assert found.value == pytest.approx(np.mean(expected), abs=1e-12)
        assert found.error == pytest.approx(abs(expected[0] - expected[1]) / 2)
