"""How much discrete memories hold: theory against its equations, experiments and their errors."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import erf, erfc, factorial2
from scipy.stats import binom

from compendium.c11_discrete_memories.capacity import (
    ags_capacity,
    ags_overlap,
    birthday_law,
    capacity_at_error,
    exponential_rate,
    signal_to_noise,
)
from compendium.c11_discrete_memories.results import capacity_curve
from compendium.c11_discrete_memories.study import (
    Curve,
    all_fixed_probability,
    basin_edge,
    capacity_exponent,
    curves_cross,
    end_overlaps,
    exponential_recall,
    half_capacity,
    one_step_error,
    subset_recall,
)
from spinformer.core.statistics import mean_estimate
from spinformer.hopfield.discrete import CLASSICAL, Separation, polynomial


def spins(rng, *shape):
    return rng.choice([-1.0, 1.0], shape)


def bit_error_at_finite_size(dim, *, count, separation):
    """P(an update turns a spin of a stored pattern), the noise's variance exact at finite d."""
    return 0.5 * erfc(np.sqrt(signal_to_noise(dim, separation) / (2.0 * (count - 1))))


def test_mean_field_curve_solves_the_equations_of_amit_gutfreund_sompolinsky():
    capacity, overlap = ags_capacity()
    assert capacity == pytest.approx(0.1379, abs=5e-5)
    assert overlap == pytest.approx(0.967, abs=5e-4)
    for load in (0.03, 0.1, 0.135):
        m, r = 1.0, 1.0
        for _ in range(5000):  # the three order-parameter equations at T = 0, iterated
            c = np.sqrt(2 / (np.pi * load * r)) * np.exp(-(m**2) / (2 * load * r))
            m, r = erf(m / np.sqrt(2 * load * r)), 1 / (1 - c) ** 2
        assert ags_overlap(load) == pytest.approx(m, abs=1e-10)
    assert ags_overlap(0.139) == 0.0


def plain_overlap(d, load, networks, queries, seed):
    """Zero-temperature dynamics of the classical network, written out; overlap of each network."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(networks):
        patterns = spins(rng, round(load * d), d).astype(np.float32)
        weights = patterns.T @ patterns
        np.fill_diagonal(weights, 0)
        ends = patterns[:queries].copy()
        for state in ends:
            field = weights @ state
            while (wrong := np.flatnonzero(field * state < 0)).size:
                i = rng.choice(wrong)
                state[i] *= -1
                field += 2 * state[i] * weights[i]
        result.append((ends * patterns[:queries]).mean())
    return np.array(result)


@pytest.mark.claim("A6")
def test_overlap_at_2000_spins_agrees_with_an_independent_simulation():
    curve = capacity_curve(2000)
    ours = curve.samples[list(curve.x).index(0.16)]
    plain = plain_overlap(2000, 0.16, networks=6, queries=4, seed=12)
    error = np.sqrt(ours.var(ddof=1) / ours.size + plain.var(ddof=1) / plain.size)
    assert abs(ours.mean() - plain.mean()) < 3 * error
    assert error < 0.1


def test_crossing_finds_where_two_noisy_lines_cross():
    rng = np.random.default_rng(20)
    x = np.linspace(0.1, 0.2, 6)
    found = []
    for _ in range(40):
        curves = []
        for slope in (1.0, 3.0):  # both lines pass through 0.9 at 0.143
            samples = (0.9 - slope * (x - 0.143))[:, None] + 0.02 * rng.normal(size=(6, 40))
            curves.append(Curve(x=x, samples=samples))
        found.append(curves_cross(curves[0], large=curves[1]))
    load, error = np.array([(e.value, e.error) for e in found]).T
    assert abs(load.mean() - 0.143) < 3 * load.std(ddof=1) / np.sqrt(40)
    assert 0.75 < error.mean() / load.std(ddof=1) < 1.35
    assert np.isnan(curves_cross(curves[0], large=curves[0]).value)


def test_runs_start_where_they_should_and_are_compared_with_what_is_asked():
    loads = [0.02, 0.5]
    exact, far = end_overlaps(
        200, loads=loads, starts=[1.0, 0.3], networks=6, queries=4, seed=1
    ).mean(axis=(2, 3))
    assert exact[0] == 1.0
    assert far[0] > 0.95  # four patterns in 200 spins: a wide basin
    assert far[1] < exact[1] < 0.7
    # A single sweep that turns no spin leaves the start: with the diagonal at a huge load.
    kept = end_overlaps(60, loads=[50.0], starts=[0.6], networks=3, diagonal=True, seed=2)
    assert kept.mean() == pytest.approx(0.6, abs=0.15)
    own = {
        diagonal: end_overlaps(
            200, loads=[2.0], starts=[0.0], networks=4, diagonal=diagonal, reference="start"
        ).mean()
        for diagonal in (False, True)
    }
    assert own[False] < 0.25
    assert own[True] > 0.6


def test_recall_hides_the_share_that_is_asked():
    dark = -np.ones((3, 8))
    # All unknown: no field, and an unknown spin becomes +1. One known spin decides for all.
    for hidden, share in ((1.0, 0.0), (7 / 8, 1.0)):
        found = subset_recall(dark, count=1, separation=CLASSICAL, subsets=2, hidden=hidden)
        assert found.tolist() == [share, share]


def test_basins_end_where_half_of_the_runs_do():
    starts = np.array([0.2, 0.4, 0.6, 0.8])
    share = np.array([0.0, 0.25, 0.75, 1.0])  # of four runs
    ends = np.where(np.arange(4) < (4 * share)[:, None], 0.95, 0.3)[:, None, None]
    assert basin_edge(starts, ends=ends) == pytest.approx(0.5)
    assert basin_edge(starts, ends=np.full((4, 1, 1, 2), 1.0)) == pytest.approx(0.2)
    assert np.isnan(basin_edge(starts, ends=np.full((4, 1, 1, 2), 0.5)))
    # A run that comes back from afar by luck does not count while nearer ones fail.
    lucky = ends.copy()
    lucky[0] = 0.95
    assert basin_edge(starts, ends=lucky) == pytest.approx(0.5)


@pytest.mark.parametrize(("degree", "d", "count"), [(2, 400, 80), (3, 100, 1500), (4, 60, 2500)])
def test_one_step_error_follows_krotov_and_hopfield(degree, d, count):
    theory = bit_error_at_finite_size(d, count=count, separation=polynomial(degree))
    # Without negative overlaps half of the patterns are silent.
    cut = Separation(name="rectified", function=lambda x: np.maximum(x, 0.0) ** degree)
    for stored, memory in ((count, polynomial(degree)), (2 * count - 1, cut)):
        found = one_step_error(d, count=stored, separation=memory, queries=60, seed=16)
        # 2 % for what the Gaussian law leaves out at these sizes.
        assert abs(found.value - theory) < 3 * found.error + 0.02 * theory
    # At many spins it is their law to leading order in 1/d.
    wide = capacity_at_error(4000, degree=degree, error=0.01)
    shape = 4000 ** (degree - 1.0) / factorial2(2 * degree - 3)
    assert 0.5 * erfc(np.sqrt(shape / (2 * wide))) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize(("degree", "dims"), [(2, (200, 400, 800)), (3, (50, 80, 126))])
@pytest.mark.claim("A7")
def test_capacity_grows_as_d_to_the_degree_minus_one(degree, dims):
    fitted = capacity_exponent(dims, degree=degree, bits=10_000, blocks=5, seed=17)
    assert abs(fitted.exponent.value - fitted.predicted_exponent) < 4 * fitted.exponent.error + 0.01


@pytest.mark.claim("A8")
def test_exponential_memory_loses_patterns_by_the_birthday_law():
    d, counts = 12, [10, 20, 30, 45]
    law = np.array([birthday_law(d, count=n) for n in counts])
    measured = all_fixed_probability(d, counts=counts, networks=200, seed=18)
    assert (abs(measured.estimate.value - law) < 3 * np.sqrt(law * (1 - law) / 200)).all()
    rng = np.random.default_rng(22)  # the estimate and its error, on draws from the law itself
    truth = 0.5 + np.sqrt(0.25 + np.log(2) * 2.0 ** (d + 1) / d)
    pulls = []
    for _ in range(200):
        draws = (rng.random((4, 100)) < law[:, None]).astype(float)
        fit = half_capacity(Curve(x=np.array(counts), samples=draws))
        pulls.append((fit.value - truth) / fit.error)
    assert abs(np.mean(pulls)) < 0.3
    assert 0.8 < np.std(pulls) < 1.2
    assert exponential_rate(0.0) == pytest.approx(np.log(2) / 2)
    assert exponential_rate(0.5) == 0.0


def test_exponential_memory_recalls_damaged_patterns_in_one_sweep():
    d, count, damage = 60, 1000, [0.0, 0.1, 0.3]
    one_sweep, final, found = exponential_recall(
        d, count=count, corruptions=damage, queries=200, seed=21
    )
    assert np.log(count) / d < exponential_rate(0.1)
    assert (one_sweep[:2] == 1.0).all()
    assert (final >= one_sweep).all()
    # A random pattern is farther than the query's own with probability q, ties with p; sum over
    # the number of ties, each an equal guess.
    flips = np.rint(np.array(damage) * d)
    q, p = binom.sf(flips, d, 0.5), binom.pmf(flips, d, 0.5)
    nearest = (q + p) ** count * -np.expm1(count * np.log1p(-p / (q + p))) / (count * p)
    error = np.sqrt(np.maximum(nearest * (1 - nearest), 0) / 200)
    assert (np.abs(found - nearest) <= 3 * error + 1e-6).all()
    assert 0.1 < nearest[2] < 0.9


def scatter_over_error(estimates):
    """Spread of independent estimates over the root mean square of the errors they claim."""
    values = np.array([estimate.value for estimate in estimates])
    errors = np.array([estimate.error for estimate in estimates])
    return values.std(axis=0, ddof=1) / np.sqrt((errors**2).mean(axis=0))


def test_errors_are_the_scatter_over_seeds():
    overlaps = [
        mean_estimate(ends[0].mean(-1), axis=1)
        for ends in (
            end_overlaps(200, loads=[0.1, 0.15], networks=8, queries=5, seed=s) for s in range(80)
        )
    ]
    shares = [
        one_step_error(40, count=20, separation=polynomial(2), networks=6, queries=4, seed=s)
        for s in range(150)
    ]
    fixed = [all_fixed_probability(8, counts=[8], networks=12, seed=s).estimate for s in range(150)]
    for estimates in (overlaps, shares, fixed):
        ratio = scatter_over_error(estimates)
        assert (ratio > 0.8).all()
        assert (ratio < 1.25).all()


@pytest.mark.nightly
def test_errors_of_the_fitted_exponent_are_the_scatter_over_seeds():
    fits = [
        capacity_exponent([20, 30, 45], degree=2, blocks=8, bits=1000, seed=s) for s in range(24)
    ]
    ratio = scatter_over_error([fit.capacity for fit in fits])
    assert (ratio > 0.75).all()
    assert (ratio < 1.35).all()
    # Weights from eight blocks are noisy themselves, which widens the scatter of the slope.
    assert 0.8 < scatter_over_error([fit.exponent for fit in fits]) < 1.6


def test_theory_at_its_limits():
    assert ags_overlap(1e-300) == 1.0
    assert ags_overlap(0.05) < 1.0
    for dim, count in ((10, 3), (60, 2**30), (1100, 2**550), (1100, 2**600)):
        exact = math.exp(-float(Fraction(count * (count - 1) * dim, 2 ** (dim + 1))))
        assert birthday_law(dim, count=count) == pytest.approx(exact, rel=1e-9, abs=1e-300)
    assert birthday_law(5, count=1) == 1.0
    for degree in (2, 3, 5):
        count = 9 * 40 ** (degree - 2)
        error = bit_error_at_finite_size(40, count=count, separation=polynomial(degree))
        found = capacity_at_error(40, degree=degree, error=error)
        assert found == pytest.approx(count, rel=1e-9)
    # By the definition: two patterns, one update, all 2^d partners of a fixed one.
    d, degree = 9, 3
    overlap = np.arange(-d + 1, d, 2)  # of the other pattern, without the spin itself
    weight = binom.pmf(np.arange(d), d - 1, 0.5)
    noise = ((overlap + 1.0) ** degree - (overlap - 1.0) ** degree) ** 2 @ weight
    ratio = (d**degree - (d - 2) ** degree) ** 2 / noise
    assert bit_error_at_finite_size(d, count=3, separation=polynomial(degree)) == pytest.approx(
        0.5 * math.erfc(math.sqrt(ratio / 4.0))
    )
