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
