"""Periods, regimes and orbit diagrams against constructed orbits and stored trajectories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import (
    Regime,
    Thresholds,
    bump_weights,
    classify,
    continue_attractors,
    find_attractors,
    find_period,
)
from spinformer.dmft.mean_field import Context, document_context, random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.plotting.orbits import diagram_image

QUICK = {"transient": 30_000, "kept": 10_000, "exponent_steps": 10_000}


@pytest.fixture(scope="module")
def start():
    return document_context(Network.document(), steps=20_000)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(period=st.integers(1, 60), seed=st.integers(0, 10**6), noise=st.sampled_from([0.0, 1e-9]))
def test_the_period_of_a_repeated_cycle(period, seed, noise):
    rng = np.random.default_rng(seed)
    cycle = rng.normal(size=(period, 3))
    orbit = np.concatenate([cycle] * (400 // period)) + noise * rng.uniform(-1, 1)
    assert find_period(orbit, longest=100) == period
    orbit[1, 0] += 1e-5
    assert find_period(orbit, longest=100) == 0


def test_no_period_in_a_rotation():
    angle = 2 * np.pi * (np.sqrt(5) - 1) / 2 * np.arange(4000)
    assert find_period(np.stack([np.cos(angle), np.sin(angle)], 1), longest=2000) == 0


def test_bump_averages_converge_fast_on_rotations():
    angle = 2 * np.pi * (np.sqrt(5) - 1) / 2 * np.arange(4000)
    weight = bump_weights(4000)
    assert weight.sum() == pytest.approx(1.0)
    assert abs(weight @ np.cos(angle)) < 1e-13
    assert abs(np.cos(angle).mean()) > 1e-6


def test_classification_table():
    cases = [
        # period, λ₁, error, digits
        (4, -0.1, 1e-3, 16, Regime.PERIODIC),
        (4, 0.0, 1e-3, 16, Regime.PERIODIC),
        (4, 0.1, 1e-3, 16, Regime.UNDECIDED),
        (0, 1e-3, 1e-5, 9, Regime.QUASI_PERIODIC),
        (0, 1e-3, 1e-5, 3, Regime.UNDECIDED),
        (0, 0.05, 1e-3, 3, Regime.CHAOTIC),
        (0, 0.05, 0.05, 3, Regime.UNDECIDED),
        (0, 0.05, 1e-3, 12, Regime.UNDECIDED),
        (0, -0.05, 1e-3, 12, Regime.UNDECIDED),
    ]
    period, rate, error, digits, wanted = (np.array(column) for column in zip(*cases, strict=True))
    found = classify(period, exponent=Estimate(value=rate, error=error), digits=digits)
    assert found.tolist() == wanted.tolist()


def test_regimes_of_the_document_network(start):
    # (β, regime) far from the borders of the regimes; periods from stored trajectories below.
    beta = np.array([0.2, 1.255, 1.26451, 1.28, 1.4])
    found = find_attractors(Network.document(), start, beta=beta, **QUICK)
    names = [Regime(code).label for code in found.regime]
    assert names == ["periodic", "quasi-periodic", "periodic", "chaotic", "chaotic"]
    assert found.period.tolist() == [4, 0, 44, 0, 0]
    assert abs(found.exponents.value[1, 0]) < 2e-3
    assert found.digits[1] > 10
    assert (found.digits[3:] < 4).all()


def test_periods_agree_with_a_stored_trajectory(start):
    network = Network.document()
    contexts = random_contexts(network, 0, count=24)
    found = find_attractors(network, contexts, beta=1.27, exponents=0, bins=50, **QUICK)
    orbit, _ = trajectory(network, found.context, beta=1.27, steps=500)
    for period, path in zip(found.period, orbit, strict=True):
        shifts = range(1, 250)
        seen = [p for p in shifts if np.abs(path[p:] - path[:-p]).max() < 1e-7]
        assert period == (seen[0] if seen else 0)
    # More than one attractor at this β.
    assert len(set(found.period)) > 1


def test_streamed_histograms_equal_those_of_a_stored_trajectory(start):
    network = Network.document()
    beta = np.linspace(1.2, 1.4, 70)
    found = find_attractors(
        network, start, beta=beta, transient=50, kept=4000, exponents=0, bins=64, tolerance=0.01
    )
    orbit, _ = trajectory(network, start, beta=beta, steps=4000, transient=50)
    for b in range(70):
        counts, _ = np.histogram(orbit[b, :, 0], bins=64, range=(-1, 1))
        assert np.abs(found.histogram[b].astype(int) - counts).sum() <= 4
        near = np.abs(orbit[b, :, 1]) < 0.01
        counts, _ = np.histogram(orbit[b, near, 0], bins=64, range=(-1, 1))
        assert np.abs(found.section[b].astype(int) - counts).sum() <= 4
    halves = np.stack([orbit[:, :2000], orbit[:, 2000:]])
    mean = np.einsum("n,hbna->hba", bump_weights(2000), halves)
    assert np.abs(found.mean - mean.mean(axis=0)).max() < 1e-12
    gap = np.abs(mean[0] - mean[1]).max(axis=-1)
    coarse = gap > 1e-9
    assert np.abs(found.digits + np.log10(gap))[coarse].max() < 1e-5


def test_diagram_image_shares_columns():
    counts = np.zeros((6, 4), dtype=int)
    counts[:, 1] = 1
    counts[::2, 3] = 5
    image = diagram_image(counts, columns=3)
    assert image.shape == (4, 3)
    assert image[1].tolist() == [1.0, 1.0, 1.0]
    assert image[3].tolist() == [0.5, 0.5, 0.5]
    only = diagram_image(counts, columns=6, regime=np.arange(6), only=[2, 3])
    assert only[1].tolist() == [0, 0, 1, 1, 0, 0]


def test_continuation_follows_each_attractor(start):
    network = Network.document()
    found = find_attractors(
        network, random_contexts(network, 0, count=24), beta=1.27, exponents=0, bins=1, **QUICK
    )
    picks = [int(np.flatnonzero(found.period == p)[0]) for p in sorted(set(found.period))]
    begin = Context(found.context.attention[picks], found.context.position)
    betas = np.linspace(1.27, 1.2702, 5)
    up = continue_attractors(network, begin, betas)
    assert up.period[0].tolist() == found.period[picks].tolist()
    # Each β continues the one before: the same as chaining the calls by hand.
    half = continue_attractors(network, begin, betas[:3])
    rest = continue_attractors(network, half.context, betas[3:])
    assert (np.concatenate([half.mean, rest.mean]) == up.mean).all()
    down = continue_attractors(network, up.context, betas[::-1])
    assert down.period[-1].tolist() == up.period[0].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": 3}, "observed"),
        ({"plane": -1}, "plane"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"bins": 0}, "bins"),
        ({"kept": 1}, "kept"),
        ({"exponents": 13}, "exponents"),
        ({"transient": -1}, "transient"),
        ({"thresholds": Thresholds(longest=0)}, "longest"),
    ],
)
def test_bad_calls(start, change, message):
    with pytest.raises(ValueError, match=message):
        find_attractors(Network.document(), start, beta=1.0, **change)
    with pytest.raises(ValueError, match="longest"):
        find_period(np.zeros((10, 2)), longest=6)
