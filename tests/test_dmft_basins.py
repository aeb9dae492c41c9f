"""Basins by proximity, uncertainty exponents, basin entropy against cases in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.c33d_phase_diagrams.basins import (
    attractor_set,
    basin_entropy,
    basins_of_attraction,
    grid_neighbors,
    slice_of_contexts,
    uncertainty_exponent,
)
from compendium.c33d_phase_diagrams.starts import coexisting, ends_apart
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network

NETWORK = Network.document()


@pytest.fixture(scope="module")
def cycles():
    return coexisting(1.27, count=256, transient=30_000)


def test_the_set_of_a_cycle_is_what_the_clock_sees_of_it(cycles):
    assert [len(one) for one in cycles.sets] == [7, 14, 4]
    for one, period in zip(cycles.sets, (28, 56, 16), strict=True):
        # Every window of the set belongs to a cycle of this period, and a step of the clock on
        # leads from one to the next.
        start = Context(one.reshape(-1, 4, 3), 0)
        ensemble = Ensemble(NETWORK, start, beta=1.27)
        ensemble.advance(4)
        after = ensemble.state().attention.reshape(len(one), -1)
        np.testing.assert_allclose(after, np.roll(one, -1, axis=0), atol=1e-6)
        ensemble.advance(period - 4)
        back = ensemble.state().attention.reshape(len(one), -1)
        np.testing.assert_allclose(back, one, atol=1e-6)


def test_proximity_agrees_with_fingerprints_and_periods(cycles):
    starts = random_contexts(NETWORK, 0, count=256)
    found = basins_of_attraction(NETWORK, starts, beta=1.27, sets=cycles.sets, horizon=60_000)
    assert (found.number == cycles.numbers).all()
    fresh = random_contexts(NETWORK, 5, count=64)
    ends = basins_of_attraction(NETWORK, fresh, beta=1.27, sets=cycles.sets, horizon=60_000)
    later = find_attractors(
        NETWORK, fresh, beta=1.27, transient=60_000, kept=2, exponents=0, bins=1
    )
    assert (np.array([28, 56, 16])[ends.number] == later.period).all()


def test_a_start_settles_when_its_orbit_is_near_the_set(cycles):
    starts = random_contexts(NETWORK, 2, count=8)
    found = basins_of_attraction(
        NETWORK, starts, beta=1.27, sets=cycles.sets, horizon=60_000, turns=25, radius=1e-3
    )
    ensemble = Ensemble(NETWORK, starts, beta=1.27)
    near = []
    for _ in range(int(found.time.max()) // 100 + 1):
        ensemble.advance(100)
        windows = ensemble.state().attention.reshape(8, -1)
        near.append(
            [
                np.linalg.norm(cycles.sets[n] - window, axis=1).min() <= 1e-3
                for n, window in zip(found.number, windows, strict=True)
            ]
        )
    near = np.array(near)
    both = near[:-1] & near[1:]
    assert (100 * (both.argmax(axis=0) + 1) == found.time).all()


def test_what_does_not_settle_says_so(cycles):
    starts = random_contexts(NETWORK, 2, count=64)
    early = basins_of_attraction(NETWORK, starts, beta=1.27, sets=cycles.sets, horizon=1200)
    late = basins_of_attraction(NETWORK, starts, beta=1.27, sets=cycles.sets, horizon=60_000)
    going = early.number < 0
    assert 0 < going.sum() < 64
    assert (early.time[going] == 1200).all()
    assert (late.time[going] >= 800).all()
    assert (early.number[~going] == late.number[~going]).all()
    assert (early.time[~going] == late.time[~going]).all()
    # An attractor that is not in the list attracts all the same.
    alone = basins_of_attraction(NETWORK, starts, beta=1.27, sets=cycles.sets[:1], horizon=20_000)
    assert set(alone.number[late.number != 0]) == {-1}


def test_slices_change_two_components():
    base = random_contexts(NETWORK, 0, count=1).select(0)
    values, plane = slice_of_contexts(
        base, first=(1, 2), second=(0, 1), extent=(-0.5, 1.5), count=5
    )
    np.testing.assert_allclose(values, [-0.3, 0.1, 0.5, 0.9, 1.3])
    assert (plane.attention[:, :, 1, 2] == values[:, None]).all()
    assert (plane.attention[:, :, 0, 1] == values).all()
    rest = np.ones((4, 3), dtype=bool)
    rest[1, 2] = rest[0, 1] = False
    assert (plane.attention[:, :, rest] == base.attention[rest]).all()


def test_exponents_of_borders_whose_dimension_is_known():
    # A circle: one dimension less than the plane.
    x, y = np.meshgrid(*2 * [np.linspace(-1, 1, 512)])
    circle = x**2 + y**2 < 0.5
    steps = (1, 2, 4, 8, 16)
    differ, tiles = grid_neighbors(circle, distances=steps)
    found = uncertainty_exponent(differ, distances=steps, groups=tiles)
    assert abs(found.exponent.value - 1.0) < 0.05
    # A coin for every point: no knowledge helps.
    coins = np.random.default_rng(0).random((256, 256)) < 0.5
    differ, tiles = grid_neighbors(coins, distances=steps)
    found = uncertainty_exponent(differ, distances=steps, groups=tiles)
    assert abs(found.exponent.value) < 3 * found.exponent.error < 0.02
    np.testing.assert_allclose(found.shares, 15 / 16, atol=0.01)
    # Stripes over a Cantor set of dimension ln 2/ln 3: the label is the number of thirds left out,
    # and pairs at a distance d end apart with probability d^{1 − ln 2/ln 3}.
    rng = np.random.default_rng(1)

    def label(x):
        level = np.zeros(x.shape, dtype=int)
        open_ = np.ones(x.shape, dtype=bool)
        for depth in range(1, 34):
            digit = np.floor(3 * x).astype(int)
            hit = open_ & (digit == 1)
            level[hit] = depth
            open_ &= ~hit
            x = 3 * x - digit
        return level

    distances = 3.0 ** -np.arange(5, 12)
    base = rng.random(40_000)
    differ = np.array([label(base) != label((base + d) % 1.0) for d in distances])
    found = uncertainty_exponent(differ, distances=distances)
    wanted = 1 - np.log(2) / np.log(3)
    assert abs(found.exponent.value - wanted) < max(3 * found.exponent.error, 0.02)
    assert found.exponent.error < 0.02


def test_the_error_of_an_exponent_is_its_scatter():
    rng = np.random.default_rng(0)
    distances = 10.0 ** -np.arange(5)
    slopes, errors, shares, share_errors = [], [], [], []
    for _ in range(60):
        # Every base point has its own threshold, so that its answers hang together.
        threshold = rng.random(1000)
        found = uncertainty_exponent(
            threshold[None] < 0.4 * distances[:, None] ** 0.3, distances=distances
        )
        slopes.append(found.exponent.value)
        errors.append(found.exponent.error)
        shares.append(found.shares)
        share_errors.append(found.errors)
    assert np.std(shares, axis=0, ddof=1) == pytest.approx(np.mean(share_errors, axis=0), rel=0.35)
    assert np.mean(slopes) == pytest.approx(0.3, abs=0.01)
    assert np.std(slopes) == pytest.approx(np.mean(errors), rel=0.35)


def test_basin_entropy_of_known_boxes():
    # Half of the boxes are pure, half hold a quarter of the other label.
    tile = np.zeros((4, 8), dtype=int)
    tile[:, 7] = 1
    found = basin_entropy(np.tile(tile, (6, 6)), box=4)
    border = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert (found.boxes, found.border_boxes) == (72, 36)
    assert found.border.value == pytest.approx(border)
    assert found.border.error == pytest.approx(0.0, abs=1e-12)
    assert found.mean.value == pytest.approx(border / 2)
    assert found.mean.error == pytest.approx(border / 2 / np.sqrt(71))
    coins = np.random.default_rng(0).integers(0, 3, (400, 400))
    assert basin_entropy(coins, box=20).border.value == pytest.approx(np.log(3), abs=0.01)
    none = basin_entropy(np.zeros((8, 8)), box=4)
    assert (none.border_boxes, none.border.value) == (0, 0.0)
    lone = np.zeros((8, 8))
    lone[0, 0] = 1
    one = basin_entropy(lone, box=2).border
    assert one.value == pytest.approx(border)
    assert np.isnan(one.error)


def test_near_starts_end_apart_as_lots_do(cycles):
    distances = 10.0 ** np.arange(-12, 0, 2)
    apart = ends_apart(1.27, sets=cycles.sets, distances=distances, count=400)
    assert apart.shape == (6, 400)
    found = uncertainty_exponent(apart, distances=distances)
    assert abs(found.exponent.value) < 0.02
    shares = np.bincount(cycles.numbers) / 256
    assert abs(found.shares.mean() - (1 - (shares**2).sum())) < 0.06
    # Where the cycles of 1.527 share the starts, knowledge helps.
    other = coexisting(1.527, gamma=14.7, count=32, transient=20_000)
    apart = ends_apart(1.527, gamma=14.7, sets=other.sets, distances=distances, count=400)
    steep = uncertainty_exponent(apart, distances=distances).exponent
    assert steep.value - 3 * steep.error > 0.03
    # Pairs that are the same point end together, wherever that is.
    again = ends_apart(1.27, sets=cycles.sets, distances=[0.0], count=20)
    assert not again.any()


def test_bad_calls(cycles):
    starts = random_contexts(NETWORK, 0, count=2)
    call = {"beta": 1.27, "sets": cycles.sets, "horizon": 4000}
    with pytest.raises(ValueError, match="sets 0 and 1 come within"):
        basins_of_attraction(NETWORK, starts, radius=0.1, **call)
    with pytest.raises(ValueError, match="horizon"):
        basins_of_attraction(NETWORK, starts, **{**call, "horizon": 400})
    with pytest.raises(ValueError, match="sets"):
        basins_of_attraction(NETWORK, starts, **{**call, "sets": []})
    with pytest.raises(ValueError, match="second"):
        slice_of_contexts(starts.select(0), first=(0, 0), second=(0, 0), extent=(0, 1), count=2)
    with pytest.raises(ValueError, match="differ"):
        uncertainty_exponent(np.zeros((3, 9), dtype=bool), distances=(1, 2, 3))
    with pytest.raises(ValueError, match="distances"):
        uncertainty_exponent(np.ones((2, 9), dtype=bool), distances=(1, 2))
    with pytest.raises(ValueError, match="beyond the largest distance"):
        grid_neighbors(np.zeros((8, 8)), distances=(3,))
    with pytest.raises(ValueError, match="turns"):
        attractor_set(NETWORK, starts.select(0), beta=1.0, turns=0)
    orbit, _ = trajectory(NETWORK, starts, beta=1.0, steps=2)
    assert orbit.shape == (2, 2, 3)
