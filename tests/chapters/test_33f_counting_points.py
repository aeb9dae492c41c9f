"""Counting the points of a diagram: thresholds by exhaustion, renumbered features, known maps."""

import itertools
import math

import numpy as np
import pytest
from open_cells import run_open_cells
from scipy.stats import binomtest

from compendium.c33f_counting_points import study
from spinformer.core.regimes import Regime
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network


@pytest.mark.claim("C24")
def test_thresholds_are_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(20):
        regime = rng.choice(list(study.ORDER), 15)
        points = rng.integers(1, 12, 15)
        found = study.best_thresholds(study.Counts(regime, points))
        right = (study.label_by_points(points, found) == regime).sum()
        every = itertools.combinations_with_replacement(np.arange(0.5, 13.0), 2)
        best = max((study.label_by_points(points, pair) == regime).sum() for pair in every)
        assert right == best
    # A count on a threshold is below it, and what is undecided is left out.
    assert list(study.label_by_points(np.array([1, 2, 3]), (1.0, 2.0))) == list(study.ORDER)
    kept = study.Counts(np.array([Regime.PERIODIC, Regime.UNDECIDED]), np.array([4, 9])).decided()
    assert kept.points.tolist() == [4]


@pytest.mark.claim("C25")
def test_renumbered_features_are_the_same_network():
    network = Network.segmented(4018)
    context = random_contexts(network, 3, count=1).select(0)
    overlaps, _ = trajectory(network, context, beta=1.4, steps=40)
    for overlap, order in ((1, [1, 0, 2]), (2, [2, 0, 1])):
        moved = type(context)(context.attention[:, order], context.position)
        renumbered = study.with_first_overlap(network, overlap)
        same, _ = trajectory(renumbered, moved, beta=1.4, steps=40)
        np.testing.assert_allclose(same, overlaps[:, order], atol=1e-9)


def test_overlaps_of_a_token_with_all_roles_follow_from_those_of_the_output():
    network = Network.poclopez2024()
    tokens = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 3))
    direct = np.einsum("ral,nl->nra", network.semantic, tokens) / 3.0
    np.testing.assert_allclose(study.role_overlaps(network, direct[:, 0]), direct, atol=1e-12)


def test_points_are_the_bins_that_an_overlap_visits():
    network = Network.poclopez2024()
    betas = np.array([0.9, 1.255])
    found = study.count_points(network, betas, seed=0, kept=300, bins=5000, overlap=1)
    context = random_contexts(network, 0, count=1).select(0)
    for beta, points in zip(betas, found.points, strict=True):
        overlaps, _ = trajectory(network, context, beta=beta, steps=300, transient=20_000)
        visited = np.floor(2500 * (overlaps[:, 1] + 1.0))
        # A value on the border of a bin may be rounded into the next.
        assert abs(len(set(visited.tolist())) - points) <= 2


def test_open_cells_tell_three_maps_apart():
    cells = run_open_cells("33f_counting_points")
    assert cells["cycle"][0] == 2
    # Slopes at the two points x and y of the cycle of r = 3.2: their product is 4 + 2 r − r².
    assert cells["cycle"][1] == pytest.approx(0.5 * math.log(abs(4 + 2 * 3.2 - 3.2**2)), abs=1e-3)
    assert cells["curve"] == (1000, 0.0)
    assert cells["chaos"][1] == pytest.approx(math.log(2), abs=0.01)


def test_a_line_of_the_tables_has_the_interval_of_its_fraction():
    line = study._fraction_row(np.arange(40) < 37, question="cycle or not")
    wanted = binomtest(37, 40).proportion_ci(method="wilson")
    assert line["value"] == pytest.approx(37 / 40 - study.ASKED)
    assert [line["low"], line["high"]] == pytest.approx(np.array(wanted) - study.ASKED)
