"""Networks of biased signs: reversed ones, enumerated pairs of features, one feature alone."""

import itertools

import numpy as np
import pytest
from open_cells import run_open_cells

from compendium.c33g_sign_probability import study
from spinformer.core.regimes import Regime
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network


@pytest.mark.claim("C31")
def test_all_signs_turned_are_the_same_network():
    network = study.draw_network(3, probability=0.7)
    turned = Network(
        semantic=-network.semantic,
        position=-network.position,
        context=network.context,
        gamma=network.gamma,
        epsilon=network.epsilon,
    )
    context = random_contexts(network, 0, count=1).select(0)
    reversed_context = type(context)(-context.attention, context.position)
    overlaps, _ = trajectory(network, context, beta=1.5, steps=60)
    same, _ = trajectory(turned, reversed_context, beta=1.5, steps=60)
    np.testing.assert_allclose(same, -overlaps, atol=1e-9)


def test_signs_have_their_probability():
    drawn = [study.draw_network(seed, probability=0.8) for seed in range(200)]
    for name in ("semantic", "position"):
        positive = np.mean([getattr(network, name) > 0 for network in drawn])
        assert positive == pytest.approx(0.8, abs=0.02)


def test_distinct_features_by_enumeration():
    for probability in (0.3, 0.5, 0.85):
        total = 0.0
        for signs in itertools.product((1, -1), repeat=6):
            first, second = np.array(signs[:3]), np.array(signs[3:])
            weight = np.prod(np.where(np.array(signs) > 0, probability, 1 - probability))
            total += weight * (abs(first @ second) < 3)
        assert study.distinct_features(probability) == pytest.approx(total, abs=1e-12)
        assert study.distinct_features(1 - probability) == pytest.approx(total, abs=1e-12)


def test_one_feature_has_cycles_alone():
    network = study.draw_network(0, probability=1.0)
    assert (study.found_regimes(network, seed=0) == Regime.PERIODIC).all()
    assert not study.beyond_cycles(0, probability=1.0, networks=3).any()


def test_open_cells_count_features_that_differ():
    for chance, (counted, formula) in run_open_cells("33g_sign_probability")["different"].items():
        assert formula == pytest.approx(study.distinct_features(chance), abs=1e-12)
        assert counted == pytest.approx(formula, abs=0.006)


def test_the_robustness_line_compares_half_of_fair_signs_with_fresh_networks(monkeypatch):
    """A difference of two independent shares, whose errors add in squares."""
    asked = []

    def beyond(seed, *, probability, networks, epsilon, bits):
        asked.append((seed, networks, epsilon, bits))
        share = {0.8: 0.3, 0.5: 0.5}[probability]
        found = np.zeros((networks, 2))
        found[: round(share * networks), 0] = 1.0
        return found

    monkeypatch.setattr(study, "beyond_cycles", beyond)
    (row,) = study.fraction_rows(7, probability=0.8, epsilon=0.1, bits=3)
    size = study.NETWORKS
    shares = np.array([round(0.3 * size), round(0.5 * size)]) / size
    assert row["value"] == pytest.approx(shares[0] - shares[1] / 2)
    rng = np.random.default_rng(0)
    drawn = rng.binomial(size, shares, (40_000, 2)) / size
    error = (drawn[:, 0] - drawn[:, 1] / 2).std()
    for end, sign in (("low", -1), ("high", 1)):
        assert row[end] - row["value"] == pytest.approx(sign * 1.96 * error, rel=0.02)
    assert row["runs"] == 2 * size
    study.fraction_rows(8, probability=0.8, epsilon=0.1, bits=3)
    # No network counts twice, in a line or in the next one.
    drawn = [number for seed, count, *_ in asked for number in range(seed, seed + count)]
    assert len(set(drawn)) == 4 * size
    assert {one[2:] for one in asked} == {(0.1, 3)}
