"""Corrections at finite size: stored tables against other arithmetic and other code."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from compendium.c32c_fluctuations.coupling import coupled_growth
from compendium.c32c_fluctuations.study import (
    BREAKS,
    CLOSURES,
    EXPONENTS,
    LAWS,
    REGIMES,
    break_rows,
    closure_rows,
    exponent_rows,
    law_rows,
    spread_windows,
)
from compendium.c33g_escapes.study import coexisting_cycles
from spinformer.core.statistics import mean_estimate
from spinformer.dmft.lifetimes import growth_rates
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import generate, semantic_overlaps


@pytest.mark.claim("C18a")
def test_the_law_of_the_average_breaks_after_the_logarithm_of_n():
    """Times of all starts on one line, growth measured from the mean field's own tangent vector."""
    table = BREAKS.read()
    bits = np.unique(table["bits"])
    measured = table["measured"].reshape(-1, len(bits))
    start = random_contexts(Network.document(), 1, count=16)
    rates, _ = growth_rates(Network.document(), start, beta=1.28, stretches=4)
    rate = rates.mean()
    # Ends of the ladder: from a million to a trillion bits, medians over starts.
    middle = np.median(measured, axis=0)
    first, last = np.searchsorted(bits, (1e6, 9e11))
    pace = (middle[last] - middle[first]) / np.log(bits[last] / bits[first])
    assert 0.7 < 2 * rate * pace < 1.3
    assert (np.diff(middle) > 0).all()
    again = break_rows(3)
    stored = measured[3]
    assert np.abs([row["measured"] for row in again] - stored).max() <= 8


@pytest.mark.claim("C18b")
def test_the_closure_beats_the_naive_mean_field_except_in_chaos():
    table = CLOSURES.read()
    bits = np.unique(table["bits"])
    core = (bits > 900) & (bits < 2e7)
    better = {}
    for regime in REGIMES:
        rows = table["regime"] == regime
        logs = np.log(table["closure"] / table["naive"])[rows].reshape(-1, len(bits))
        test = ttest_1samp(logs, 0.0, axis=0)
        better[regime] = (test.statistic < 0) & (test.pvalue < 0.05)
        # Far beyond the onset closure and 1/N correction are one.
        if regime in ("driven", "quasi-periodic"):
            last = np.log(table["closure"] / table["corrected"])[rows].reshape(-1, len(bits))
            assert np.abs(last[:, -1]).max() < 0.5
    for regime in ("driven", "quasi-periodic", "periodic"):
        assert better[regime][core].all()
    # In chaos only where noise fills the attractor, and far beyond the onset.
    assert better["chaotic"][bits < 4e3].all()
    assert better["chaotic"][bits > 3e6].all()
    assert not better["chaotic"][(bits > 1e4) & (bits < 2e6)].any()


def test_a_unit_of_the_closures_comes_out_again_and_agrees_with_plain_averages():
    table = CLOSURES.read()
    rows = (table["regime"] == "quasi-periodic") & (table["start"] == 4)
    found = closure_rows("quasi-periodic", start=4, texts=1000, steps=30)
    naive = np.array([row["naive"] for row in found])
    np.testing.assert_allclose(naive[2:], table["naive"][rows][2:], rtol=0.25)
    # The average of the texts without anything subtracted, at a size where noise allows it.
    windows, position = spread_windows(1.255, count=1, settle=3004, seed=1004)
    runs = generate(
        Network.document(), 999, beta=1.255, window=windows[0], steps=30, runs=4000, seed=9,
        position=position,
    )  # fmt: skip
    mean = mean_estimate(semantic_overlaps(runs.network, runs.tokens))
    huge = generate(
        Network.document(), 3 * 10**14, beta=1.255, window=windows[0], steps=30, runs=1, seed=9,
        position=position,
    )  # fmt: skip
    off = mean.value - semantic_overlaps(runs.network, huge.tokens[0])
    plain = np.sqrt((off[4:] ** 2).sum(axis=1).mean())
    assert plain == pytest.approx(naive[2], rel=0.15)


@pytest.mark.claim("C18c")
def test_stationary_laws_tend_to_the_measure_of_the_attractor():
    table = LAWS.read()
    for regime in dict.fromkeys(table["regime"]):
        for seed in (0, 1):
            rows = (table["regime"] == regime) & (table["seed"] == seed)
            distance = table["distance"][rows]
            floor = table["floor"][table["regime"] == regime].mean()
            assert distance[0] > 3 * floor
            if regime == "driven":
                # Gaussians around points: the mean distance is σ √(2/π), all the way down.
                power = np.log(distance[0] / distance[-1]) / np.log(1e5)
                assert power == pytest.approx(0.5, abs=0.06)
            else:
                assert distance[-1] < 2 * floor
    found = law_rows("driven", exponent=4.0, texts=60, burn=40)[0]
    at = (table["regime"] == "driven") & (table["exponent"] == 4.0)
    np.testing.assert_allclose(table["distance"][at], found["distance"], rtol=0.1)


@pytest.mark.claim("C18e")
def test_noise_makes_chaos_of_a_cycle_and_exponents_tend_to_the_limit():
    table = EXPONENTS.read()
    network = Network.document()
    start = random_contexts(network, 2, count=16)
    for beta in (1.28, 1.4):
        rates, _ = growth_rates(network, start, beta=beta, stretches=8)
        limit = rates[:, 4:].mean()
        rows = (table["beta"] == beta) & (table["exponent"] == 8)
        np.testing.assert_allclose(table["growth"][rows], limit, atol=0.015)
    # Where cycles coexist it is not so from random starts, only for pairs that begin on the cycle.
    rows = (table["beta"] == 1.27) & (table["exponent"] == 8)
    rates, _ = growth_rates(network, start, beta=1.27, stretches=8)
    limit = np.median(rates[:, 4:].mean(axis=1))
    assert (table["growth"][rows] > limit + 0.02).all()
    known = coexisting_cycles(1.27)
    begun = coupled_growth(
        network, 99_999_999, beta=1.27, windows=np.repeat(known.windows[1:2], 4, axis=0),
        position=known.position, steps=112, transient=56, seed=3,
    )  # fmt: skip
    assert begun.growth.value == pytest.approx(limit, abs=0.015)
    small = table["growth"][(table["beta"] == 1.27) & (table["exponent"] == 5)]
    assert (small > 0.05).all()
    found = exponent_rows(1.27, exponent=5.0, seed=0)[0]
    assert found["growth"] == pytest.approx(small[0], abs=0.03)
