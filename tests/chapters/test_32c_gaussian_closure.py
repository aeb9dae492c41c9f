"""Corrections at finite size: exact enumeration, the Gaussian closure, and the tables."""

import itertools
from functools import partial

import numpy as np
import pytest
from known_networks import COIN
from open_cells import run_open_cells
from scipy.stats import ttest_1samp

from compendium.c32_paths_to_mean_fields.functional import propagate
from compendium.c32c_gaussian_closure import study
from compendium.c32c_gaussian_closure.settings import settings_c18f
from compendium.common.finite_size import spread_windows
from spinformer.dmft import corrections
from spinformer.dmft.corrections import finite_size_corrections
from spinformer.dmft.finite_size import generate, semantic_overlaps, token_states
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network

START = np.array([[0.3, -0.2, 0.6], [-0.5, 0.1, 0.4]])
SHORT = Network.poclopez2024().with_parameters(context=2, gamma=20.0, epsilon=0.1)


def test_the_open_cells_are_the_closure_of_the_package():
    shown = run_open_cells("32c_gaussian_closure")
    half = np.array([[0.5]])
    law = propagate(COIN, 9, beta=1.5, window=half, steps=4, position=0, draw_window=True)[-1]
    exact = law @ token_states(COIN, 9)[:, 0]
    assert shown["exact_average"] == pytest.approx(exact, abs=1e-12)
    limit = finite_size_corrections(COIN, 1.5, window=half, steps=4, position=0)
    assert shown["naive_average"] == pytest.approx(limit.path[-1, 0], abs=1e-12)
    corrected = (limit.path + limit.shift / 9)[-1, 0]
    assert shown["corrected_average"] == pytest.approx(corrected, abs=1e-6)
    closed = corrections.gaussian_closure(limit, 9)[-1, 0]
    assert shown["closure_average"] == pytest.approx(closed, abs=1e-3)
    assert abs(closed - exact) < 0.1 * abs(corrected - exact)


def test_a_drawn_window_is_a_mixture_of_known_ones():
    states = token_states(SHORT, 3)
    chances = [np.prod(0.5 * (1.0 + states * token), axis=1) for token in START]
    later = partial(propagate, SHORT, 3, beta=1.3, steps=2, position=2)
    laws = 0.0
    for (i, one), (j, two) in itertools.product(*map(enumerate, chances)):
        laws = laws + one * two * later(window=states[[i, j]])
    whole = later(window=START, draw_window=True)
    np.testing.assert_allclose(whole, [*chances, *laws], atol=1e-12)


def test_the_closure_has_the_shift_of_order_one_over_n():
    start = 0.6 * np.sin(np.arange(12.0)).reshape(4, 3)
    limit = finite_size_corrections(Network.poclopez2024(), 1.2, window=start, steps=5, position=3)
    size = 3 * 10**9
    found = size * semantic_overlaps(
        limit.network, corrections.gaussian_closure(limit, size) - limit.path
    )
    np.testing.assert_allclose(found, limit.shift, atol=2e-3 * np.abs(limit.shift).max())


def test_closed_steps_are_gaussian_integrals_and_beat_the_naive_mean_field():
    size = 20
    beta = 2.0
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    limit = finite_size_corrections(COIN, beta, window=np.array([[0.5]]), steps=2, position=0)
    mean = 0.5
    variance = 0.75 / size
    expected = []
    for _ in range(2):
        answer = np.tanh(beta * (mean + points * np.sqrt(variance)))
        mean = weights @ answer
        variance = weights @ answer**2 - mean**2 + weights @ (1.0 - answer**2) / size
        expected.append(mean)
    np.testing.assert_allclose(
        corrections.gaussian_closure(limit, size)[1:, 0], expected, atol=3e-4
    )
    # Exact means of a network of nine bits, eight tokens on: the closure is nearer.
    limit = finite_size_corrections(SHORT, 1.3, window=START, steps=8, position=2)
    law = propagate(SHORT, 9, beta=1.3, window=START, steps=8, position=2, draw_window=True)
    exact = law @ token_states(SHORT, 9)

    def error(path):
        return np.sqrt(((path - exact)[2:] ** 2).sum(axis=1).mean())

    assert error(corrections.gaussian_closure(limit, 9)) < 0.4 * error(limit.path)


@pytest.mark.claim("C18f")
def test_independent_bits_are_the_theory_of_kinetic_spins():
    """One feature and a window of one: N spins with the couplings 1/N, by the theory of spins."""
    size = 40
    beta = 1.5
    steps = 6
    limit = finite_size_corrections(COIN, beta, window=np.array([[0.5]]), steps=steps, position=0)
    found = corrections.gaussian_closure(limit, size, independent=True)[:, 0]
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    expected = [0.5]
    couplings = np.full((size, size), 1 / size)
    for _ in range(steps):
        spins = np.full(size, expected[-1])
        width = np.sqrt(couplings**2 @ (1 - spins**2))[0]
        level = (couplings @ spins)[0]
        expected.append(np.tanh(beta * (level + width * points)) @ weights / weights.sum())
    np.testing.assert_allclose(found, expected, atol=3e-4)
    # It forgets deviations that the closure passes on, beyond those of the first step.
    closed = corrections.gaussian_closure(limit, size)[:, 0]
    assert found[1] == pytest.approx(closed[1], abs=1e-12)
    assert abs(found[3] - closed[3]) > 3e-3
    table = settings_c18f.read()
    million = (table["bits"] == 10**6) & (table["tokens"] == 30)
    gain = dict(zip(table["regime"][million], table["value"][million], strict=True))
    assert gain["driven"] > 1.5 > 0.3 > gain["quasi-periodic"] > gain["periodic"] > 0


@pytest.mark.claim("C18a")
def test_the_law_of_the_average_breaks_after_the_logarithm_of_n():
    """Times of all starts on one line, growth measured from the mean field's own tangent vector."""
    table = study.breaks_table.read()
    bits = np.unique(table["bits"])
    start = random_contexts(Network.poclopez2024(), 1, count=16)
    found = lyapunov_spectrum(Network.poclopez2024(), start, beta=1.28, steps=20_000, count=1)
    rates = found.exponents.value
    # Ends of the ladder: from a million to a trillion bits, medians over starts.
    middle = np.median(table["measured"].reshape(-1, len(bits)), axis=0)
    first, last = np.searchsorted(bits, (1e6, 9e11))
    pace = (middle[last] - middle[first]) / np.log(bits[last] / bits[first])
    assert 0.7 < 2 * rates.mean() * pace < 1.3
    assert (np.diff(middle) > 0).all()


@pytest.mark.claim("C18b")
def test_the_closure_beats_the_naive_mean_field_except_in_chaos():
    table = study.closures_table.read()
    bits = np.unique(table["bits"])
    better = {}
    for regime in study.REGIMES:
        logs = np.log(table["closure"] / table["naive"])[table["regime"] == regime]
        test = ttest_1samp(logs.reshape(-1, len(bits)), 0.0)
        better[regime] = (test.statistic < 0) & (test.pvalue < 0.05)
    core = (bits > 1e4) & (bits < 2e6)
    assert not better.pop("chaotic")[core].any()
    assert all(found[core].all() for found in better.values())
    # A unit comes out again.
    rows = (table["regime"] == "quasi-periodic") & (table["start"] == 4)
    found = study.closures_table.rows(
        "quasi-periodic", start=4, texts=1000, steps=30, exponents=(3, 5, 7)
    )
    naive = np.array([row["naive"] for row in found])
    assert all(row["closure"] < 0.5 * row["naive"] for row in found)
    np.testing.assert_allclose(naive, table["naive"][rows][2::4], rtol=0.25)
    # The average of the texts without anything subtracted, at a size where noise allows it.
    windows, position = spread_windows(1.255, count=1, settle=3004, seed=1004)
    texts = partial(
        generate,
        Network.poclopez2024(),
        beta=1.255,
        window=windows[0],
        steps=30,
        seed=9,
        position=position,
    )
    small = texts(999, runs=4000).tokens.mean(axis=0)
    huge = texts(3 * 10**14, runs=1).tokens.mean(axis=0)
    off = semantic_overlaps(Network.poclopez2024(), small - huge)
    plain = np.sqrt((off[4:] ** 2).sum(axis=1).mean())
    assert plain == pytest.approx(naive[0], rel=0.15)
