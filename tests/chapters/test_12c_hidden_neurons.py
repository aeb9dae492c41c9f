"""The two-layer network against Newton's equation, its own energy and its eigenvalues."""

from itertools import product

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.integrate import solve_ivp
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from compendium.c12c_hidden_neurons import boltzmann, study
from spinformer.hopfield import continuous

BETA = 1.5


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def downhill(patterns, v):
    """−∇E of attention."""
    slope = continuous.gradient(torch.as_tensor(patterns), states=torch.as_tensor(v), beta=BETA)
    return -slope.numpy()


@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
def test_the_neurons_are_a_particle_with_friction(ratio):
    """ρ ü + (1 + ρ) u̇ = −∇E(u) from rest, h = Xu, v = u + ρ u̇; ρ and 1/ρ give one path."""
    patterns = draw(7, 4)
    query = draw(1, 4, seed=1)

    def neurons(ratio, duration):
        times = study.Times(duration=duration, points=13, accuracy=1e-11)
        return study.flow(patterns, queries=query, beta=BETA, ratio=ratio, times=times)

    visible, hidden = neurons(ratio, 6.0)

    def newton(_, state):
        u, speed = np.split(state, 2)
        return np.concatenate([speed, (downhill(patterns, u) - (1 + ratio) * speed) / ratio])

    path = solve_ivp(
        newton,
        (0, 6),
        np.concatenate([query[0], np.zeros(4)]),
        t_eval=np.linspace(0, 6, 13),
        rtol=1e-11,
        atol=1e-11,
    ).y.T
    np.testing.assert_allclose(hidden[0], path[:, :4] @ patterns.T, atol=1e-7)
    np.testing.assert_allclose(visible[0], path[:, :4] + ratio * path[:, 4:], atol=1e-7)
    _, mirrored = neurons(1 / ratio, 6.0 / ratio)
    np.testing.assert_allclose(hidden, mirrored, atol=1e-7)


@pytest.mark.parametrize("ratio", [0.05, 20.0])
def test_the_energy_of_both_kinds_falls_from_an_empty_start(ratio):
    """E = v²/2 + h·f − L_h − f·Xv, written out here; attention's where hidden neurons follow."""
    patterns = draw(7, 4)
    query = draw(1, 4, seed=1)

    def energy(v, h):
        f = study.softmax(BETA * h)
        own = 0.5 * (v**2).sum(-1) + (h * f).sum(-1) - logsumexp(BETA * h, axis=-1) / BETA
        return own - (f * (v @ patterns.T)).sum(-1)

    times = study.Times(duration=4.0, points=400, accuracy=1e-11)
    v, h = study.flow(patterns, queries=query, beta=BETA, ratio=ratio, times=times, empty=True)
    assert not h[:, 0].any()
    assert np.diff(energy(v, h), axis=1).max() < 1e-9
    plain = continuous.energy(torch.as_tensor(patterns), states=torch.as_tensor(query), beta=BETA)
    np.testing.assert_allclose(energy(query, query @ patterns.T), plain)


def test_the_slow_flow_descends_the_energy_of_attention():
    patterns = draw(7, 4)
    queries = draw(3, 4, seed=1)
    times = study.Times(duration=2.0, points=11, accuracy=1e-11)
    paths = study.slow_flow(patterns, queries=queries, beta=BETA, times=times)
    for query, path in zip(queries, paths, strict=True):
        other = solve_ivp(
            lambda _, v: downhill(patterns, v),
            (0, 2),
            query,
            t_eval=np.linspace(0, 2, 11),
            rtol=1e-11,
            atol=1e-11,
        )
        np.testing.assert_allclose(path, other.y.T, atol=1e-8)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 7.0])
def test_relaxation_rates_are_eigenvalues_of_the_whole_network(ratio):
    patterns = draw(7, 4)
    values = draw(7, 4, seed=1)
    slope = approx_fprime(draw(7, seed=2), lambda h: study.softmax(BETA * h), 1e-8)
    slope = 0.5 * (slope + slope.T)
    for given, real in ((patterns, True), (values, False)):
        whole = np.block([[-np.eye(4), given.T @ slope], [patterns / ratio, -np.eye(7) / ratio]])
        rates = study.relaxation_rates(np.linalg.eigvals(given.T @ slope @ patterns), ratio=ratio)
        spectrum = np.linalg.eigvals(whole)
        for rate in rates.ravel():
            assert np.abs(spectrum - rate).min() < 1e-6
        if real:
            assert np.abs(rates.imag).max() < 1e-6
    # However fast the hidden neurons are, the slow rate is that of the slow flow, a − 1.
    slow = study.relaxation_rates([0.5, 0.9, 1.2], ratio=1e-15)[:, 1]
    np.testing.assert_allclose(slow, [-0.5, -0.1, 0.2], rtol=1e-8)
    # The edge of stability for complex slopes: a parabola.
    for imaginary in (0.5, 1.5, 3.0):
        edge = 1 - ratio * imaginary**2 / (1 + ratio) ** 2 + 1j * imaginary
        assert abs(study.relaxation_rates(edge, ratio=ratio).real.max()) < 1e-12


@pytest.mark.claim("A9b")
def test_hidden_neurons_may_be_eliminated_if_they_start_where_they_belong():
    drawn = study.memories(2, queries=3, seed=11)
    ratios = [1e-3, 1e-2]
    first = study.distances(drawn[:1], beta=0.8, ratios=ratios)
    second = study.distances(drawn[1:], beta=0.8, ratios=ratios)
    errors = study.distances(drawn, beta=0.8, ratios=ratios)
    assert (errors == np.maximum(first, second)).all()
    assert (abs(np.log10(errors[:, 1] / errors[:, 0]) - [1, 2]) < [0.1, 0.2]).all()
    # Other memories than those of the chapter.
    drawn = study.memories(5, queries=8, seed=12)
    reference = study.ends(drawn, beta=0.8, ratio=0.0)
    matched = study.elsewhere(reference, other=study.ends(drawn, beta=0.8, ratio=1.0))
    fresh = study.elsewhere(reference, other=study.ends(drawn, beta=0.8, ratio=10.0, empty=True))
    assert matched["tried"] == fresh["tried"] == 40
    assert matched["count"] / matched["tried"] < 0.1
    assert fresh["low"] > 0.3
    # A query that rests in one of the two only is not counted, nor tried.
    moved = study.elsewhere(reference, other=(reference[0] + 1.0, np.arange(40) >= 3))
    assert moved["count"] == moved["tried"] == 37


def test_open_cells_find_the_distances_of_the_package():
    cells = run_open_cells("12c_hidden_neurons")
    drawn = [(cells["random_patterns"], cells["query"][None])]
    distances = study.distances(drawn, beta=0.8, ratios=cells["ratios"])[0]
    # Euler's steps have an error of their own, of the order of their length.
    np.testing.assert_allclose(cells["largest_distances"], distances, rtol=0.02)
    assert cells["order"] == pytest.approx(np.log10(distances[1] / distances[0]), abs=0.02)


def test_the_line_of_a_ratio_counts_queries_that_end_elsewhere(monkeypatch):
    asked = []

    def ends(drawn, *, beta, ratio, empty=False):
        asked.append((beta, ratio, empty))
        place = np.zeros((200, 3))
        place[:30] += 10.0 * (ratio > 0)  # 30 of the 160 that are stationary in both end elsewhere
        stationary = np.arange(200) >= (40 if ratio else 0) - 20
        stationary[160:] = ratio == 0
        return place, stationary

    monkeypatch.setattr(study, "ends", ends)
    (row,) = study.settings_A9b.rows(4, start="empty", ratio=3.0, beta=0.7)
    assert asked == [(0.7, 0.0, False), (0.7, 3.0, True)]
    assert row["runs"] == 140
    assert row["value"] == pytest.approx(0.1 - 10 / 140)
    assert row["low"] < row["value"] < row["high"]
    assert study.confirm_A9b.rows(4, start="empty", ratio=3.0, beta=0.7) == [row]
    study.settings_A9b.rows(4, start="in balance", ratio=3.0, beta=0.7)
    assert asked[-1] == (0.7, 3.0, False)


@pytest.mark.claim("A18d")
def test_machines_are_gibbs_distributions_and_attention_is_one_of_them():
    """Energies by hand; products without couplings; attention as strong mutual inhibition."""
    rng = np.random.default_rng(1)
    states = np.array(list(product((-1.0, 1.0), repeat=4)))
    features = boltzmann.machine("unrestricted", 2, visible=2)
    theta = rng.normal(size=features.shape[-1])
    biases = theta[:4]
    couplings = np.zeros((4, 4))
    couplings[np.triu_indices(4, 1)] = theta[4:]
    joint = np.exp(states @ biases + np.einsum("si,ij,sj->s", states, couplings, states))
    seen = joint.reshape(4, 4).sum(1) / joint.sum()
    np.testing.assert_allclose(np.exp(boltzmann.log_probabilities(features, theta)), seen)
    # Restricted: ln p is a sum of ln cosh, up to a constant.
    features = boltzmann.machine("restricted", 3, visible=4)
    theta = rng.normal(size=features.shape[-1])
    between = theta[7:].reshape(4, 3)
    plain = states @ theta[:4] + np.log(np.cosh(states @ between + theta[4:7])).sum(1)
    found = boltzmann.log_probabilities(features, theta)
    np.testing.assert_allclose(found - found[0], plain - plain[0])
    # Attention: hidden units 0 or 1 that exclude each other, among all couplings that there are.
    patterns = rng.normal(size=(3, 4))
    bias = np.array([0.0, 0.3, -0.4])
    features = boltzmann.machine("attention", 3, visible=4)
    found = boltzmann.log_probabilities(features, np.concatenate([bias[1:], patterns.ravel()]))
    units = np.array(list(product((0.0, 1.0), repeat=3)))
    active = units.sum(1)
    gain = 20.0 * active - 30.0 * active * (active - 1)
    joint = np.exp(states @ patterns.T @ units.T + units @ bias + gain)
    np.testing.assert_allclose(np.exp(found), joint.sum(1) / joint.sum(), rtol=1e-6)
    weights = joint[5] / joint[5].sum()
    scores = np.exp(patterns @ states[5] + bias)
    np.testing.assert_allclose(weights @ units, scores / scores.sum(), rtol=1e-6)


def test_the_best_machine_of_a_target_that_it_can_reach_is_found():
    """A pairwise target: nothing is left without hidden spins of an unrestricted machine."""
    states = np.array(list(product((-1.0, 1.0), repeat=boltzmann.VISIBLE)))
    draw = np.random.default_rng(2)
    energy = np.einsum("si,ij,sj->s", states, 0.3 * draw.normal(size=(6, 6)), states)
    target = np.exp(energy) / np.exp(energy).sum()
    for hidden in (0, 1):
        features = boltzmann.machine("unrestricted", hidden)
        assert boltzmann.best_divergence(features, target, starts=1) < 1e-5
    # Independent spins: what is left is their mutual information.
    marginal = (1 + states * (target @ states)) / 2
    left = target @ (np.log(target) - np.log(marginal).sum(1))
    found = boltzmann.best_divergence(boltzmann.machine("restricted", 0), target, starts=1)
    assert found == pytest.approx(left, rel=1e-4)
    for kind in boltzmann.TARGETS:
        drawn = boltzmann.draw_target(kind, seed=3)
        assert drawn.sum() == pytest.approx(1.0)
        assert drawn.min() > 0.0
    both = [
        boltzmann.best_divergence(boltzmann.machine("attention", n), target, seed=5) for n in (3, 4)
    ]
    found = boltzmann.divergence_at("attention", parameters=24, target=target, seed=5)
    assert found == pytest.approx((3 * both[0] + 4 * both[1]) / 7)
