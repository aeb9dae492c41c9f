"""How much discrete memories hold: theory against its equations, experiments and their errors."""

import numpy as np
import pytest
from open_cells import run_open_cells
from scipy.special import erf, erfc
from scipy.stats import binom

from compendium.c11_discrete_memories import study
from compendium.common.classical_capacity import retrieval_load
from spinformer.core.statistics import mean_estimate
from spinformer.hopfield.discrete import Separation, energy, fields, polynomial


def test_mean_field_curve_solves_the_equations_of_amit_gutfreund_sompolinsky():
    overlaps = np.linspace(0.9, 0.99, 9001)
    loads = retrieval_load(overlaps)
    assert loads.max() == pytest.approx(0.1379, abs=5e-5)
    assert overlaps[loads.argmax()] == pytest.approx(0.967, abs=5e-4)
    for load in (0.03, 0.1, 0.135):
        m = r = 1.0
        for _ in range(5000):  # the three order-parameter equations at T = 0, iterated
            c = np.sqrt(2 / (np.pi * load * r)) * np.exp(-(m**2) / (2 * load * r))
            m = erf(m / np.sqrt(2 * load * r))
            r = 1 / (1 - c) ** 2
        assert retrieval_load(m) == pytest.approx(load, rel=1e-6)


def plain_overlap(d, load, networks, queries, seed):
    """Zero-temperature dynamics of the classical network, written out; overlap of each network."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(networks):
        patterns = rng.choice([-1.0, 1.0], (round(load * d), d)).astype(np.float32)
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
    ours = study.capacity_curve(2000)[study.LOADS == 0.16][0]
    plain = plain_overlap(2000, 0.16, networks=6, queries=4, seed=12)
    error = np.sqrt(ours.var(ddof=1) / ours.size + plain.var(ddof=1) / plain.size)
    assert abs(ours.mean() - plain.mean()) < 3 * error
    assert error < 0.1


def test_crossing_finds_where_two_noisy_lines_cross():
    rng = np.random.default_rng(20)
    x = np.linspace(0.1, 0.2, 6)
    found = []

    def line(slope):  # through 0.9 at 0.143
        return (0.9 - slope * (x - 0.143))[:, None] + 0.02 * rng.normal(size=(6, 40))

    for _ in range(40):
        small = line(1.0)
        large = line(3.0)
        found.append(study.curves_cross(x, small=small, large=large))
    load, error = np.array([(e.value, e.error) for e in found]).T
    assert abs(load.mean() - 0.143) < 3 * load.std(ddof=1) / np.sqrt(40)
    assert 0.75 < error.mean() / load.std(ddof=1) < 1.35
    with pytest.warns(RuntimeWarning):
        assert np.isnan(study.curves_cross(x, small=large, large=large - 1.0).value)


def test_runs_start_where_they_should_and_are_compared_with_what_is_asked():
    loads = [0.02, 0.5]
    exact, far = study.end_overlaps(
        200, loads=loads, starts=[1.0, 0.3], networks=6, queries=4, seed=1
    ).mean(axis=(2, 3))
    assert exact[0] == 1.0
    assert far[0] > 0.95  # four patterns in 200 spins: a wide basin
    assert far[1] < exact[1] < 0.7
    # A single sweep that turns no spin leaves the start: with the diagonal at a huge load.
    kept = study.end_overlaps(60, loads=[50.0], starts=[0.6], networks=3, diagonal=True, seed=2)
    assert kept.mean() == pytest.approx(0.6, abs=0.15)
    # A random state keeps little of itself without the diagonal, much with it.
    plain = study.end_overlaps(200, loads=[2.0], starts=[0.0], networks=4)
    loyal = study.end_overlaps(200, loads=[2.0], starts=[0.0], networks=4, diagonal=True)
    assert plain.mean() < 0.25
    assert loyal.mean() > 0.6


def test_basins_end_where_half_of_the_runs_do():
    starts = np.array([0.2, 0.4, 0.6, 0.8])
    share = np.array([0.0, 0.25, 0.75, 1.0])  # of four runs
    ends = np.where(np.arange(4) < (4 * share)[:, None], 0.95, 0.3)[:, None, None]
    assert study.basin_edge(starts, ends=ends) == pytest.approx(0.5)
    assert study.basin_edge(starts, ends=np.full((4, 1, 1, 2), 1.0)) == pytest.approx(0.2)
    assert np.isnan(study.basin_edge(starts, ends=np.full((4, 1, 1, 2), 0.5)))
    # A run that comes back from afar by luck does not count while nearer ones fail.
    lucky = ends.copy()
    lucky[0] = 0.95
    assert study.basin_edge(starts, ends=lucky) == pytest.approx(0.5)


def bit_error(dim, *, count, function):
    """Share of spins that one update turns, by signal and noise: two patterns, one spin turned."""
    overlap = np.arange(-dim + 1.0, dim, 2)  # of the other pattern, without the spin itself
    noise = (function(overlap + 1) - function(overlap - 1)) ** 2
    signal = function(float(dim)) - function(dim - 2.0)
    variance = (count - 1) * (noise @ binom.pmf(np.arange(dim), dim - 1, 0.5))
    return 0.5 * erfc(signal / np.sqrt(2 * variance))


@pytest.mark.parametrize(("degree", "d", "count"), [(2, 400, 80), (3, 100, 1500), (4, 60, 2500)])
def test_one_step_error_follows_krotov_and_hopfield(degree, d, count):
    theory = bit_error(d, count=count, function=lambda x: x**degree)
    assert study.capacity_at_error(d, degree=degree, error=theory) == pytest.approx(count, rel=1e-9)
    # Without negative overlaps half of the patterns are silent.
    cut = Separation(name="rectified", function=lambda x: np.maximum(x, 0.0) ** degree)
    for stored, memory in ((count, polynomial(degree)), (2 * count - 1, cut)):
        shares = study.one_step_error(d, count=stored, separation=memory, queries=60, seed=16)
        found = mean_estimate(shares)
        # 2 % for what the Gaussian law leaves out at these sizes.
        assert abs(found.value - theory) < 3 * found.error + 0.02 * theory
    # At many spins it is their law to leading order in 1/d.
    wide = study.capacity_at_error(4000, degree=degree, error=0.01)
    shape = 4000 ** (degree - 1.0) / {2: 1, 3: 3, 4: 15}[degree]
    assert 0.5 * erfc(np.sqrt(shape / (2 * wide))) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize(("degree", "dims"), [(2, (200, 400, 800)), (3, (50, 80, 126))])
@pytest.mark.claim("A7")
def test_capacity_grows_as_d_to_the_degree_minus_one(degree, dims):
    fitted = study.capacity_exponent(dims, degree=degree, bits=10_000, blocks=5, seed=17)
    off = abs(fitted.exponent.value - fitted.predicted)
    assert off < 4 * fitted.exponent.error + 0.01


@pytest.mark.claim("A8")
def test_exponential_memory_loses_patterns_by_the_birthday_law():
    d = 12
    counts = np.array([10, 20, 30, 45])
    law = np.exp(-counts * (counts - 1) * d / 2 ** (d + 1))
    measured = study.all_fixed_probability(d, counts=counts, networks=200, seed=18).mean(axis=1)
    assert (abs(measured - law) < 3 * np.sqrt(law * (1 - law) / 200)).all()


def test_half_of_the_memories_is_fixed_where_the_likelihood_is_largest():
    """Score and information of P(N) = 2^{−N(N−1)/H(H−1)}, by differences."""
    counts = np.array([2, 3, 4, 6])
    wins = np.array([45, 33, 19, 2])
    tries = 50
    fixed = np.arange(tries) < wins[:, None]
    found = study.half_capacity(counts, fixed=fixed.astype(float))

    def law(half):
        return 2.0 ** (-counts * (counts - 1) / (half * (half - 1)))

    step = 1e-4
    share = law(found.value)
    slope = (law(found.value + step) - law(found.value - step)) / (2 * step)
    information = tries * (slope**2 / (share * (1 - share))).sum()
    score = ((wins - tries * share) * slope / (share * (1 - share))).sum()
    assert abs(score) < 1e-3 * information
    assert found.error == pytest.approx(information**-0.5, rel=1e-5)


def test_exponential_memory_recalls_damaged_patterns_in_one_sweep():
    d = 60
    count = 1000
    damage = [0.0, 0.1, 0.3]
    one_sweep, final, found = study.exponential_recall(
        d, count=count, corruptions=damage, queries=200, seed=21
    )
    assert (one_sweep[:2] == 1.0).all()
    assert (final >= one_sweep).all()
    # A random pattern is farther than the query's own with probability q, ties with p; sum over
    # the number of ties, each an equal guess.
    flips = np.rint(np.array(damage) * d)
    q = binom.sf(flips, d, 0.5)
    p = binom.pmf(flips, d, 0.5)
    nearest = (q + p) ** count * -np.expm1(count * np.log1p(-p / (q + p))) / (count * p)
    error = np.sqrt(np.maximum(nearest * (1 - nearest), 0) / 200)
    assert (np.abs(found - nearest) <= 3 * error + 1e-6).all()
    assert 0.1 < nearest[2] < 0.9


def test_errors_are_the_scatter_over_seeds():
    overlaps = [
        study.end_overlaps(200, loads=[0.1, 0.15], networks=8, queries=5, seed=seed)[0].mean(-1)
        for seed in range(80)
    ]
    shares = [
        study.one_step_error(
            40, count=20, separation=polynomial(2), networks=6, queries=4, seed=seed
        )
        for seed in range(150)
    ]
    fixed = [study.all_fixed_probability(8, counts=[8], networks=12, seed=s) for s in range(150)]
    for samples in map(np.array, (overlaps, shares, fixed)):
        # Were the networks not independent, the means would scatter otherwise.
        claimed = (samples.var(axis=-1, ddof=1) / samples.shape[-1]).mean(axis=0)
        ratio = samples.mean(axis=-1).std(axis=0, ddof=1) / np.sqrt(claimed)
        assert ((ratio > 0.8) & (ratio < 1.25)).all()


@pytest.mark.nightly
def test_errors_of_the_fitted_exponent_are_the_scatter_over_seeds():
    fits = [
        study.capacity_exponent([20, 30, 45], degree=2, blocks=8, bits=1000, seed=seed)
        for seed in range(24)
    ]

    def scatter_over_error(values, errors):
        return np.std(values, axis=0, ddof=1) / np.sqrt(np.mean(np.square(errors), axis=0))

    of_sizes = scatter_over_error([fit.capacities for fit in fits], [fit.errors for fit in fits])
    assert ((of_sizes > 0.75) & (of_sizes < 1.35)).all()
    exponents = [fit.exponent for fit in fits]
    of_power = scatter_over_error([e.value for e in exponents], [e.error for e in exponents])
    # Weights from eight blocks are noisy themselves, which widens the scatter of the slope.
    assert 0.8 < of_power < 1.6


def test_open_cells_descend_the_package_energy_to_one_of_its_fixed_points():
    cells = run_open_cells("11_discrete_memories")
    patterns = cells["random_patterns"]
    ends = np.array([cells["noisy_state"], cells["state"]])
    # The package counts the diagonal, which is the same constant in both states.
    change = np.diff(energy(patterns, states=ends))[0]
    assert cells["energy_change"] == pytest.approx(change)
    assert change < 0
    assert cells["overlap_before"] == pytest.approx(0.6)
    assert cells["overlap_after"] > 0.99
    local = fields(patterns, states=ends[1:], diagonal=False)
    np.testing.assert_allclose(local[0], cells["couplings"] @ cells["state"])
    assert (local * ends[1:] >= 0).all()


def test_open_cells_find_the_capacity_of_the_package():
    cells = run_open_cells("11_discrete_memories")
    loads = retrieval_load(np.linspace(0.95, 0.99, 40_001))
    assert cells["largest_load"] == pytest.approx(loads.max(), abs=1e-8)


def test_what_a_larger_network_loses_more_is_a_difference_of_independent_networks(monkeypatch):
    """With overlaps that fall by a known amount, more in larger networks, and scatter."""
    asked = []

    def ends(dim, *, loads, starts, networks, diagonal, seed):
        asked.append((dim, tuple(starts), networks, diagonal))
        below, beyond = loads
        assert below < 0.138 < beyond
        scatter = seed.standard_normal((1, 2, networks, 20)) * 0.1
        scatter += seed.standard_normal((1, 1, networks, 1)) * 0.5  # shared by both loads
        lost = np.array([0.0, 2e-4 * dim])[:, None, None]
        return 0.9 - lost + scatter

    monkeypatch.setattr(study, "end_overlaps", ends)
    chosen = {"small": 500, "start": 0.8, "diagonal": "kept"}
    rows = [study.settings_A6.rows(data, **chosen)[0] for data in range(200)]
    values, low, high = np.array([[row[n] for n in ("value", "low", "high")] for row in rows]).T
    assert values.mean() == pytest.approx(2e-4 * 500, abs=0.003)
    # Two errors each way, of the differences within a network, in which the shared part drops out.
    assert np.mean((high - low) / 4) == pytest.approx(values.std(), rel=0.15)
    assert (low + high) / 2 == pytest.approx(values)
    assert rows[0]["runs"] == 16
    assert set(asked) == {(500, (0.8,), 16, True), (1000, (0.8,), 16, True)}
    asked.clear()
    study.confirm_A6.rows(3, small=400, start=1.0, diagonal="zero")
    assert asked == [(400, (1.0,), 16, False), (800, (1.0,), 16, False)]
