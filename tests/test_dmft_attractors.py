"""Periods, regimes and orbit diagrams against constructed orbits and stored trajectories."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from spinformer.core.statistics import Estimate
from spinformer.dmft import attractors
from spinformer.dmft.birkhoff import bump_weights
from spinformer.dmft.lyapunov import ChangePoint, detect_change_point, lyapunov_spectrum
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, trajectory
from spinformer.dmft.network import Network

NETWORK = Network.poclopez2024()
QUICK = {"transient": 30_000, "kept": 10_000, "exponent_steps": 10_000}


@pytest.fixture(scope="module")
def start():
    return poclopez2024_context(NETWORK, steps=20_000)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(period=st.integers(1, 45), seed=st.integers(0, 10**6))
def test_the_period_of_a_cycle_holds_in_every_turn(period, seed):
    rng = np.random.default_rng(seed)
    cycle = rng.normal(size=(period, 3))
    orbit = np.tile(cycle, (400 // period, 1))
    assert attractors.find_period(orbit, longest=100) == period
    assert period == 1 or attractors.find_period(orbit, longest=period - 1) == 0
    orbit[rng.integers(len(orbit)), rng.integers(3)] += 2e-7
    assert attractors.find_period(orbit, longest=100) == 0
    assert attractors.find_period(orbit, longest=100, distance=3e-7) == period


def test_bump_averages_converge_fast_on_rotations():
    angle = 2 * np.pi * (np.sqrt(5) - 1) / 2 * np.arange(4000)
    weight = bump_weights(4000)
    assert weight.sum() == pytest.approx(1.0)
    assert abs(weight @ np.cos(angle)) < 1e-13
    assert abs(np.cos(angle).mean()) > 1e-6


@pytest.mark.claim("C9", "C10")
def test_regimes_of_the_document_network(start):
    # (β, regime) far from the borders of the regimes; periods from stored trajectories below.
    beta = np.array([0.2, 1.255, 1.26451, 1.28, 1.4])
    found = attractors.find_attractors(NETWORK, start, beta=beta, exponents=2, **QUICK)
    names = [attractors.Regime(code).label for code in found.regime]
    assert names == ["periodic", "quasi-periodic", "periodic", "chaotic", "chaotic"]
    assert found.period.tolist() == [4, 0, 44, 0, 0]
    assert abs(found.exponents.value[1, 0]) < 2e-3
    assert found.digits[1] > 10
    assert (found.digits[3:] < 4).all()


@pytest.mark.claim("C13")
def test_periods_agree_with_a_stored_trajectory(start):
    contexts = random_contexts(NETWORK, 0, count=24)
    found = attractors.find_attractors(NETWORK, contexts, beta=1.27, exponents=0, bins=50, **QUICK)
    orbit, _ = trajectory(NETWORK, found.context, beta=1.27, steps=500)
    for period, path in zip(found.period, orbit, strict=True):
        seen = [p for p in range(1, 250) if np.abs(path[p:] - path[:-p]).max() < 1e-7]
        assert period == (seen[0] if seen else 0)
    # More than one attractor at this β.
    assert len(set(found.period)) > 1


def test_streamed_histograms_equal_those_of_a_stored_trajectory(start):
    beta = np.linspace(1.2, 1.4, 70)
    given = {"beta": beta, "transient": 50}
    found = attractors.find_attractors(NETWORK, start, kept=4000, exponents=0, bins=64, **given)
    orbit, _ = trajectory(NETWORK, start, steps=4000, **given)
    for b, path in enumerate(orbit):
        near = path[np.abs(path[:, 1]) < 1e-3]
        for counted, points in ((found.histogram[b], path), (found.section[b], near)):
            counts, _ = np.histogram(points[:, 0], bins=64, range=(-1, 1))
            assert np.abs(counted.astype(int) - counts).sum() <= 4
    assert found.section.sum() > 100
    halves = np.stack([orbit[:, :2000], orbit[:, 2000:]])
    mean = np.einsum("n,hbna->hba", bump_weights(2000), halves)
    gap = np.abs(mean[0] - mean[1]).max(axis=-1)
    coarse = gap > 1e-9
    assert np.abs(found.digits + np.log10(gap))[coarse].max() < 1e-5


def test_borders_of_the_regimes():
    limit = attractors.Thresholds(neutral=0.01, digits_regular=5.0, digits_chaotic=8.0, sigmas=2.0)
    cases = [
        (0, 0.0301, 0.01, 8.0, attractors.Regime.CHAOTIC),
        (0, 0.0299, 0.01, 8.0, attractors.Regime.UNDECIDED),
        (0, 0.0301, 0.01, 8.1, attractors.Regime.UNDECIDED),
        (0, 0.01, 0.01, 5.0, attractors.Regime.QUASI_PERIODIC),
        (0, -0.01, 0.01, 5.0, attractors.Regime.QUASI_PERIODIC),
        (0, 0.0101, 0.01, 5.0, attractors.Regime.UNDECIDED),
        (0, 0.0, 0.01, 4.9, attractors.Regime.UNDECIDED),
        # Zero within its error, or to what so many steps resolve.
        (0, -0.009, 0.0046, 5.0, attractors.Regime.QUASI_PERIODIC),
        (0, -0.009, 0.0044, 5.0, attractors.Regime.UNDECIDED),
        (0, 0.001, 0.0, 5.0, attractors.Regime.QUASI_PERIODIC),
        (0, -0.0011, 0.0, 5.0, attractors.Regime.UNDECIDED),
        (3, 0.0299, 0.01, 0.0, attractors.Regime.PERIODIC),
        (3, 0.0301, 0.01, 0.0, attractors.Regime.UNDECIDED),
        (0, 0.5, np.nan, 0.0, attractors.Regime.UNDECIDED),
    ]
    period = np.array([case[0] for case in cases])
    rates = Estimate(
        value=np.array([[case[1]] for case in cases]), error=np.array([[case[2]] for case in cases])
    )
    digits = np.array([case[3] for case in cases])
    zero = np.zeros((len(cases), 1))
    still = ChangePoint(jumps=zero > 0, before=zero, error=zero, after=zero)
    found = attractors._classify(
        period, digits, rates=rates, resolution=0.001, jump=still, limit=limit
    )
    assert found.tolist() == [case[4] for case in cases]
    # Undecided as a whole: chaos before, surely, and none after is what ended.
    last = attractors.Regime.TRANSIENT_CHAOS
    none = attractors.Regime.UNDECIDED
    before = np.array([[0.1], [0.1], [0.01], [0.1], [0.1], [0.0299]])
    after = np.array([[0.0], [0.05], [0.0], [0.01], [0.011], [0.0]])
    error = np.full((6, 1), 0.01)
    whole = Estimate(value=np.full((6, 1), 0.05), error=np.full((6, 1), 0.05))
    for jumps, wanted in ((True, [last, none, none, last, none, none]), (False, [none] * 6)):
        jump = ChangePoint(jumps=np.full((6, 1), jumps), before=before, error=error, after=after)
        found = attractors._classify(
            np.zeros(6), np.full(6, 3.0), rates=whole, resolution=0.0, jump=jump, limit=limit
        )
        assert found.tolist() == wanted


def test_chaos_that_ends_in_the_measurement_is_transient():
    # At β = 1.27 all contexts end on cycles, most after a few thousand steps of chaos.
    start = random_contexts(NETWORK, 1, count=64)
    limit = attractors.Thresholds(longest=64)
    brief = {"transient": 0, "kept": 4, "exponent_steps": 10_000, "exponents": 1, "bins": 1}
    found = attractors.find_attractors(NETWORK, start, beta=1.27, thresholds=limit, **brief)
    # The same exponents: four steps were kept and twice the longest period was looked at before.
    growth = lyapunov_spectrum(NETWORK, start, beta=1.27, steps=10_000, count=1, transient=132)
    settled = ~detect_change_point(growth.growth).jumps[:, 0]
    assert growth.exponents == found.exponents
    assert (~settled).sum() > 15
    assert not (found.regime[~settled] == attractors.Regime.CHAOTIC).any()
    transient = found.regime == attractors.Regime.TRANSIENT_CHAOS
    assert transient.sum() > 15
    assert not settled[transient].any()


def test_a_slow_approach_to_a_cycle_is_no_quasi_periodic_motion():
    # λ₁ is −0.00054: small, but not zero. What approaches so slowly is undecided until it is there.
    semantic = np.random.default_rng(6).normal(size=(4, 3, 5))
    network = Network(semantic=semantic, context=4, gamma=30.0)
    start = random_contexts(network, 0, count=1).select(0)
    beta = np.linspace(0.5, 6.0, 40)[[5, 30]]
    names = []
    periods = []
    for transient in (5_000, 50_000):
        found = attractors.find_attractors(
            network, start, beta=beta, transient=transient, kept=5_000
        )
        names.append([attractors.Regime(code).label for code in found.regime])
        periods.append(found.period.tolist())
    # The other is quasi-periodic however long it waits.
    assert names == [["quasi-periodic", "undecided"], ["quasi-periodic", "periodic"]]
    assert periods == [[0, 0], [0, 50]]


def test_a_network_of_one_variable_has_one_exponent():
    network = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=1.0)
    start = random_contexts(network, 0, count=2)
    brief = {"beta": 0.5, "transient": 100, "kept": 100, "exponent_steps": 100}
    found = attractors.find_attractors(network, start, **brief)
    # The map is x → tanh βx, whose multiplier at its fixed point 0 is β.
    assert found.exponents.value == pytest.approx(np.full((2, 1), np.log(0.5)))
    with pytest.raises(ValueError, match=r"exponents must be an integer in \[0, 1\], got 2"):
        attractors.find_attractors(network, start, exponents=2, **brief)


def test_advice_tells_every_reason_apart():
    said = {
        "it is unstable": (4, 0.1, 0.001, 3.0),
        "± 0.05: raise": (4, 0.1, 0.05, 3.0),
        "is negative": (0, -0.1, 0.001, 3.0),
        "raise kept": (0, 0.1, 0.001, 3.0),
        "not clear of zero": (0, 0.1, 0.05, 3.0),
        "digits only": (0, 0.0, 0.001, 3.0),
        "not zero within": (0, 0.001, 0.0001, 12.0),
        "left for infinity": (0, np.nan, 0.001, 3.0),
    }
    period, rate, error, digits = np.array(list(said.values())).T
    found = attractors.Attractors(
        regime=np.full(len(said), attractors.Regime.UNDECIDED),
        period=period.astype(int),
        exponents=Estimate(value=rate[:, None], error=error[:, None]),
        digits=digits,
        histogram=np.zeros((len(said), 1)),
        section=np.zeros((len(said), 1)),
        context=None,
    )
    for sentence, words in zip(found.advice(), said, strict=True):
        assert [other for other in said if other in sentence] == [words]
