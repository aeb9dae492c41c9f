"""Phase diagrams: identity and basins against plain means, labels by brute force, stored cells."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from open_cells import run_open_cells
from scipy.ndimage import gaussian_filter

from compendium.c33d_phase_diagrams import study
from compendium.c33d_phase_diagrams.study import BETAS, COARSE, UPWARDS
from spinformer.core.statistics import wilson_interval
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.basin_boundaries import ends_apart, neighbours_differ, uncertainty_exponent
from spinformer.dmft.basins import basins_of_attraction, find_coexisting_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.fingerprints import (
    Fingerprints,
    fingerprint_moments,
    identify_attractors,
    separation,
)
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network

NETWORK = Network.poclopez2024()
TABLES = {"gamma": study.GAMMA, "epsilon": study.EPSILON}


def moved(context, steps, **parameters):
    """The same orbits some steps later."""
    ensemble = Ensemble(NETWORK, context, **parameters)
    ensemble.advance(steps)
    return ensemble.state()


def made(moments, errors, rate=0.0, spread=0.0):
    """Fingerprints of one number each."""
    numbers = [np.broadcast_to(one, len(moments)) for one in (errors, rate, spread)]
    values = np.array(moments, float)[:, None, None]
    return Fingerprints(moments=values, error=numbers[0], rate=numbers[1], rate_error=numbers[2])


def coexisting(**given):
    """What random contexts end on."""
    return find_coexisting_attractors(NETWORK, "uniform", **given)


def test_a_plane_is_drawn_where_its_values_are():
    """Of every point the colour of its regime and exponent, with a scale for the exponents."""
    regime = np.arange(15).reshape(3, 5) % 5
    exponent = np.linspace(-0.3, 0.3, 15).reshape(3, 5)
    across = np.linspace(1.0, 2.0, 5)
    upwards = np.linspace(10.0, 30.0, 3)
    figure, axes = plt.subplots(1, 2)
    study.draw_plane(axes, regime, exponent, across=across, upwards=upwards)
    for axis, layer in zip(axes, (regime, exponent), strict=True):
        (image,) = axis.images
        assert image.origin == "lower"
        left, right, below, above = image.get_extent()
        for j, x in enumerate(across):
            for i, y in enumerate(upwards):
                row = int((y - below) / (above - below) * 3)
                column = int((x - left) / (right - left) * 5)
                assert image.get_array()[row, column] == layer[i, j]
    colors = axes[0].images[0].to_rgba(np.arange(5))
    assert [to_hex(color) for color in colors] == [
        to_hex(study.REGIME_COLORS[code]) for code in Regime
    ]
    assert axes[1].images[0].norm(0.0) == 0.5
    assert len(figure.axes) == 3
    assert figure.axes[2].get_ylabel() == "leading exponent (nats per step)"
    plt.close(figure)


def test_the_open_cells_find_the_attractors_of_a_point():
    cells = run_open_cells("33d_phase_diagrams")
    softer = NETWORK.with_parameters(gamma=14.7)
    starts = np.random.default_rng(3).uniform(-1.0, 1.0, (5, 4, 3))
    windows = starts.swapaxes(1, 2)
    for t in range(6):
        windows = cells["next_windows"](windows, t, 1.527, 14.7)
    for start, window in zip(starts, windows, strict=True):
        context = Context(start, 0)
        for _ in range(6):
            context, _ = step(softer, context, 1.527)
        assert context.attention == pytest.approx(window.T, abs=1e-12)
    sets = coexisting(count=256, seed=0, beta=1.527, gamma=14.7)
    fractions = np.sort(np.unique(sets.numbers, return_counts=True)[1])[::-1] / 256
    found = np.sort(cells["fractions_at_a_point"])[::-1]
    # Both are draws; 64 of them scatter by 0.06.
    assert found == pytest.approx(fractions, abs=0.2)
    assert cells["attractor_shares"](1.0, 14.7, starts=8).tolist() == [1.0]


@pytest.fixture(scope="module")
def cycles():
    """What 256 random contexts end on at β = 1.27."""
    return coexisting(beta=1.27, count=256, transient=30_000)


def found_at(starts):
    """What contexts have settled on at β = 1.27, 60,000 steps later."""
    return find_attractors(
        NETWORK, starts, beta=1.27, transient=60_000, kept=4000, exponents=0, bins=1
    )


@pytest.fixture(scope="module")
def settled():
    return found_at(random_contexts(NETWORK, 0, count=64))


def test_moments_are_the_averages_over_a_period(settled):
    moments, _, _ = fingerprint_moments(NETWORK, settled.context, beta=1.27)
    # A whole number of each of the periods 16, 28 and 56.
    orbit, _ = trajectory(NETWORK, settled.context, beta=1.27, steps=112)
    for b in range(10):
        for phase in range(4):
            seen = orbit[b, phase::4]
            pairs = [seen[:, a] * seen[:, c] for a in range(3) for c in range(a, 3)]
            wanted = np.concatenate([seen.mean(axis=0), np.mean(pairs, axis=1)])
            np.testing.assert_allclose(moments[b, phase], wanted, atol=2e-9)


def test_errors_of_moments_are_their_scatter(settled):
    starts = moved(random_contexts(NETWORK, 3, count=256), 4000, beta=1.3)
    moments, error, _ = fingerprint_moments(NETWORK, starts, beta=1.3)
    scatter = np.sqrt(moments.var(axis=0, ddof=1).mean())
    assert np.sqrt(np.mean(error**2)) / scatter == pytest.approx(1.0, abs=0.07)
    # Stretches of 28 turns hold four periods of a cycle of 28 steps and would all say the same.
    ends = settled.context.select(np.flatnonzero(settled.period == 28)[:4])
    moments, error, _ = fingerprint_moments(NETWORK, ends, beta=1.27, kept=4 * 4 * 28)
    off = separation(moments, other=fingerprint_moments(NETWORK, ends, beta=1.27, kept=40_000)[0])
    assert (off > 1e-9).all()
    assert (error > 0.2 * off).all()


def test_another_phase_of_an_orbit_is_the_same_attractor(settled):
    one, errors, _ = fingerprint_moments(NETWORK, settled.context, beta=1.27)
    later, _, _ = fingerprint_moments(NETWORK, moved(settled.context, 12, beta=1.27), beta=1.27)
    both = np.concatenate([one, later])
    zeros = np.zeros(128)
    numbers = identify_attractors(
        Fingerprints(moments=both, error=np.tile(errors, 2), rate=zeros, rate_error=zeros)
    )
    assert (numbers[:64] == numbers[64:]).all()
    assert (np.array([28, 56, 16])[numbers[:64]] == settled.period).all()
    # And from a start of the survey that is no multiple of the clock's turn.
    odd, _, ends = fingerprint_moments(NETWORK, moved(settled.context, 3, beta=1.27), beta=1.27)
    assert ends.position == 3
    assert separation(later, other=odd).max() < 1e-8


def test_the_clock_is_part_of_the_state_where_it_drives():
    start = moved(random_contexts(NETWORK, 3, count=4), 4000, beta=1.0)
    late, _, _ = fingerprint_moments(NETWORK, start, beta=1.0)
    assert separation(late, other=late[0]).max() < 1e-9
    assert separation(late, other=np.roll(late, 1, axis=1)).min() > 1e-4
    # An orbit of the undriven network does not know the position.
    start = random_contexts(NETWORK, 3, count=4)
    begun = moved(start, 20_000, beta=1.3, epsilon=0.0, gamma=10.0).attention
    undriven = partial(fingerprint_moments, NETWORK, kept=8000, beta=1.3, epsilon=0.0, gamma=10.0)
    one = undriven(Context(begun, 0))[0]
    other = undriven(Context(begun, 1))[0]
    assert np.ptp(one, axis=1).max() == 0.0
    assert separation(one, other=other).max() < 1e-9


def test_two_cycles_of_one_period_are_told_apart_and_chaos_is_one_attractor():
    found = coexisting(beta=1.527, gamma=14.7, count=64, transient=20_000)
    assert found.labels == ["periodic 28", "periodic 28"]
    assert found.between > 1e6 * found.within
    one, other = found.sets
    assert len(one) == len(other) == 7
    assert np.linalg.norm(one[:, None] - other, axis=-1).min() > 1e-2
    wild = coexisting(beta=1.28, count=48, transient=4000)
    assert wild.labels == ["chaotic"]
    assert (wild.numbers == 0).all()
    # At 1.2752 strong chaos is a transient beside weak chaos and a cycle of 224 steps.
    near = coexisting(beta=1.2752, count=48, transient=120_000)
    assert set(near.labels) == {"chaotic", "periodic 224"}
    assert len(near.labels) == 3


def test_what_is_the_same_within_errors():
    prints = made([0.0, 5e-5, 0.01, 0.012, 0.5], [0.0, 0.0, 1e-3, 1e-3, 0.0])
    assert identify_attractors(prints).tolist() == [0, 0, 1, 1, 2]
    # An orbit that agrees with two is on neither.
    between = made([0.0, 0.01, 0.005], [0.0, 0.0, 0.002])
    assert identify_attractors(between).tolist() == [0, 1, -1]
    # The same averages and another growth: another attractor.
    grown = made([0.0, 0.0], [1e-6, 1e-3], [0.0, 0.1], [1e-4, 1e-3])
    assert identify_attractors(grown).tolist() == [0, 1]
    assert identify_attractors(made([0.0, 0.0], [0.0, 0.0], [0.0, 0.007])).tolist() == [0, 0]
    # Chaotic orbits that dwelt in two parts are joined by a third that saw both.
    parts = [0.0, 0.05, 0.025], [1e-3, 1e-3, 8e-3]
    assert identify_attractors(made(*parts, 0.1, 1e-3)).tolist() == [0, 0, 0]
    assert identify_attractors(made(*parts)).tolist() == [0, 1, -1]
    # The most frequent attractor comes first.
    assert identify_attractors(made([0.3, 0.0, 0.0], [0.0, 0.0, 0.0])).tolist() == [1, 0, 0]


def settled_on(starts, sets, horizon=60_000):
    return basins_of_attraction(NETWORK, starts, beta=1.27, sets=sets, horizon=horizon)


def test_proximity_agrees_with_fingerprints_and_periods(cycles):
    starts = random_contexts(NETWORK, 0, count=256)
    assert (settled_on(starts, cycles.sets) == cycles.numbers).all()
    fresh = random_contexts(NETWORK, 5, count=64)
    ends = settled_on(fresh, cycles.sets)
    assert (np.array([28, 56, 16])[ends] == found_at(fresh).period).all()
    with pytest.raises(ValueError, match="sets 0 and 1 come within"):
        settled_on(fresh, cycles.sets[:1] * 2)


def test_a_start_settles_within_the_horizon_or_on_nothing(cycles):
    starts = random_contexts(NETWORK, 2, count=64)
    found = settled_on(starts, cycles.sets)
    early = settled_on(starts, cycles.sets, horizon=2000)
    going = early < 0
    assert 0 < going.sum() < 64
    assert (early[~going] == found[~going]).all()
    # An attractor that is not in the list attracts all the same.
    alone = settled_on(starts, cycles.sets[:1], horizon=20_000)
    assert set(alone[found != 0]) == {-1}
    # Where an orbit is at one check only, it has not settled.
    passed = moved(starts, 400, beta=1.27).attention[going][0].reshape(1, -1)
    assert (settled_on(starts, [passed], horizon=2000) == -1).all()


def test_exponents_of_borders_whose_dimension_is_known():
    steps = (1, 2, 4, 8, 16)
    # A circle: one dimension less than the plane. A coin for every point: no knowledge helps.
    x, y = np.meshgrid(*2 * [np.linspace(-1, 1, 512)])
    maps = {
        "circle": x**2 + y**2 < 0.5,
        "coins": np.random.default_rng(0).random((256, 256)) < 0.5,
    }
    borders = {}
    for word, labels in maps.items():
        differ, tiles = neighbours_differ(labels, distances=steps)
        borders[word] = uncertainty_exponent(differ, distances=steps, groups=tiles)
    circle = borders["circle"]
    coins = borders["coins"]
    assert abs(circle.exponent.value - 1.0) < 0.05
    assert abs(coins.exponent.value) < 3 * coins.exponent.error < 0.02
    np.testing.assert_allclose(coins.fractions, 15 / 16, atol=0.01)
    with pytest.raises(ValueError, match="differ"):
        uncertainty_exponent(np.zeros((3, 9), dtype=bool), distances=(1, 2, 3))


def test_the_error_of_an_exponent_is_its_scatter():
    rng = np.random.default_rng(0)
    distances = 10.0 ** -np.arange(5)
    # Every base point has its own threshold, so that its answers hang together.
    chance = 0.4 * distances[:, None] ** 0.3
    draws = (rng.random(1000) < chance for _ in range(60))
    found = [uncertainty_exponent(differ, distances=distances) for differ in draws]
    shares = np.std([one.fractions for one in found], axis=0, ddof=1)
    assert shares == pytest.approx(np.mean([one.errors for one in found], axis=0), rel=0.35)
    slopes = [one.exponent.value for one in found]
    assert np.std(slopes) == pytest.approx(np.mean([one.exponent.error for one in found]), rel=0.35)


def test_near_starts_end_apart_as_lots_do(cycles):
    distances = 10.0 ** np.arange(-12, 0, 2)
    apart = ends_apart(
        NETWORK, "uniform", sets=cycles.sets, distances=distances, count=400, beta=1.27, seed=0
    )
    assert apart.shape == (6, 400)
    found = uncertainty_exponent(apart, distances=distances)
    assert abs(found.exponent.value) < 0.02
    shares = np.bincount(cycles.numbers) / 256
    assert abs(found.fractions.mean() - (1 - (shares**2).sum())) < 0.06
    # Pairs that are the same point end together, wherever that is.
    same = ends_apart(
        NETWORK, "uniform", sets=cycles.sets, distances=[0.0], count=20, beta=1.27, seed=0
    )
    assert not same.any()


@pytest.mark.parametrize("name", TABLES)
def test_cells_of_a_stored_plane_again(name):
    layers = study.read_plane(TABLES[name])
    columns = np.arange(0, len(BETAS), len(BETAS) // 10)
    row = {"gamma": 101, "epsilon": 32}[name]
    again = study.cells(name, np.full(10, UPWARDS[name][row]), beta=BETAS[columns])
    assert (again["regime"] == layers["regime"][row, columns]).all()
    gap = np.abs(again["exponent"] - layers["exponent"][row, columns])
    assert gap.max() <= 0.5001e-3
    few = row // COARSE[name], columns // COARSE[name]
    for layer in ("attractors", "regimes"):
        assert (again[layer] == layers[layer][few]).all()


def test_errors_of_the_agreement_are_the_scatter_over_maps():
    found = []
    for seed in range(40):
        noise = np.random.default_rng(seed).standard_normal((80, 80))
        smooth = gaussian_filter(noise, 1.5, mode="wrap")
        labels = np.digitize(smooth, np.quantile(smooth, [0.4, 0.5]))
        found.append([(one.value, one.error) for one in study.agreement(labels).values()])
    scores, errors = np.moveaxis(found, -1, 0)
    ratio = np.sqrt(np.mean(errors**2, axis=0)) / np.std(scores, axis=0, ddof=1)
    assert ((ratio > 0.65) & (ratio < 1.5)).all()


@pytest.mark.claim("C14")
def test_the_criterion_of_the_planes_by_counting():
    """The three quantities of the criterion, cell by cell, without the package's formulas."""
    for name, table in TABLES.items():
        layers = study.read_plane(table)
        regime = layers["regime"]
        few = regime[:60, 40:100]
        padded = np.pad(few, 1, constant_values=-1)
        places = ((0, 1), (2, 1), (1, 0), (1, 2))
        around = np.array([padded[down : down + 60, right : right + 60] for down, right in places])
        for code, score in study.agreement(few).items():
            mine = around[:, few == code]
            share = (few == code).mean()
            alike = (mine == code).sum() / (mine >= 0).sum()
            assert score.value == pytest.approx((alike - share) / (1 - share))
        # The same labels, thrown about, are dust.
        thrown = np.random.default_rng(0).permutation(regime.ravel()).reshape(regime.shape)
        for score in study.agreement(thrown).values():
            assert abs(score.value) < 0.05
        several = np.array([int(code).bit_count() > 1 for code in layers["regimes"].ravel()])
        assert (study.mixed(layers["regimes"]).ravel() == several).all()
        if name == "epsilon":
            # The condition of the claim: half the resolution, and the strip is no region.
            assert study.agreement(regime[::2, ::2])[Regime.QUASI_PERIODIC].value < 0.5
        _, before, after = study.control_changes(name, regime)
        assert wilson_interval(int((before != after).sum()), trials=800)[1] < 0.1


@pytest.mark.nightly
def test_control_cells_are_those_of_the_plane_and_come_out_again():
    name = "epsilon"
    stored = study.control_table.read()
    mine = np.flatnonzero(stored["plane"] == name)
    betas, values = study.control_cells(name)
    cells = [stored[column][mine] for column in ("beta", "value")]
    np.testing.assert_allclose(cells, [betas, values], rtol=1e-5)
    _, before, after = study.control_changes(name, study.read_plane(TABLES[name])["regime"])
    # Marked is what changes, and nothing else, when it is run again.
    chosen = np.append(np.flatnonzero(before == after)[:12], np.flatnonzero(before != after)[:6])
    late = study.cells(name, values[chosen], beta=betas[chosen], transient=200_000, random=False)
    assert (late["regime"] == stored["regime"][mine[chosen]]).all()


def test_a_longer_network_is_the_document_s_with_slower_bits():
    assert study.longer_network(2) == NETWORK
    for bits in (3, 4, 5):
        network = study.longer_network(bits, seed=3)
        assert network.context == network.positions == 2**bits
        assert (network.semantic == NETWORK.semantic).all()
        assert (network.position[..., -2:] == NETWORK.position).all()
        # What was drawn for fewer bits stays.
        assert (study.longer_network(bits + 1, seed=3).position[..., 1:] == network.position).all()
