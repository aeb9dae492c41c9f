"""The three views of one small system against loops over states, other rooms and simulation."""

import itertools
import math

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.optimize import brentq
from scipy.special import softmax

from compendium.c51_synthesis import study
from compendium.c51_synthesis.study import resting_state, spins_at_once, three_keys, turned
from spinformer.hopfield.continuous import energy
from spinformer.spins.kinetic import kinetic_stationary

VIEWS = {
    "equilibrium": lambda keys, **how: study.spins_in_equilibrium(keys, **how)[0],
    "all at once": spins_at_once,
}
# The keys that each of four spins chooses, in all states.
STATES = np.array(list(itertools.product(range(3), repeat=4)))


@pytest.mark.claim("S1")
def test_three_views_agree_up_to_the_first_correction():
    for seed in (100, 101, 102):
        keys = np.random.default_rng(seed).standard_normal((3, 2))
        # Half of the bound below which repeated attention contracts.
        beta = 2.0 / np.square(keys[:, None] - keys).sum(-1).max()
        means = keys[STATES].mean(1)
        weight = np.exp(0.5 * 4 * beta * np.square(means).sum(1))
        mean, log_partition = study.spins_in_equilibrium(keys, beta=beta, spins=4)
        assert log_partition == pytest.approx(math.log(weight.sum()), abs=1e-12)
        np.testing.assert_allclose(mean, weight @ means / weight.sum(), atol=1e-12)
        from_energy = study.energy_log_partition(keys, beta=beta, spins=4)
        assert from_energy == pytest.approx(log_partition, abs=1e-9)
        rest = resting_state(keys, beta=beta, start=keys.mean(0))
        np.testing.assert_allclose(softmax(beta * keys @ rest) @ keys, rest, atol=1e-12)
        law = study.first_shift(keys, beta=beta, at=rest)
        for name, view in VIEWS.items():
            near = 20 * (view(keys, beta=beta, spins=20) - rest)
            far = 40 * (view(keys, beta=beta, spins=40) - rest)
            assert np.linalg.norm(2 * far - near - law[name]) < 0.05 * np.linalg.norm(law[name])


def test_readers_that_draw_at_once_against_all_their_states_and_driven_spins():
    keys = three_keys() + 0.3
    chances = softmax(0.7 * keys[STATES].mean(1) @ keys.T, axis=1)
    weights = np.linalg.matrix_power(chances[:, STATES].prod(2), 500)[0]
    found = spins_at_once(keys, beta=0.7, spins=4)
    np.testing.assert_allclose(found, weights @ keys[STATES].mean(1), atol=1e-12)
    values = turned(keys, degrees=50.0)
    chances = softmax(0.7 * values[STATES].mean(1) @ keys.T, axis=1)
    found = study.slowest_mode(keys, beta=0.7, spins=4, values=values)
    modes = np.linalg.eigvals(chances[:, STATES].prod(2))
    assert abs(found) == pytest.approx(np.sort(abs(modes))[-2], abs=1e-12)
    assert abs(modes - found).min() < 1e-12
    driven = kinetic_stationary(np.full((4, 4), 0.25), drive=np.full(4, 0.3), beta=1.2)
    pair = spins_at_once(np.array([[1.3], [-0.7]]), beta=1.2, spins=4)
    assert pair[0] - 0.3 == pytest.approx(driven.magnetization[0], abs=1e-12)


@pytest.mark.claim("S2")
def test_times_to_change_sides_follow_from_the_energy():
    depth = study.valley_depth(1.7)
    m = brentq(lambda m: math.tanh(1.7 * m) - m, 0.1, 1.0)
    keys = torch.tensor([[1.0], [-1.0]]).double()
    ends = torch.tensor([[0.0], [m]]).double()
    top, bottom = energy(keys, states=ends, beta=1.7).tolist()
    assert depth == pytest.approx(1.7 * (top - bottom), abs=1e-12)
    times = {n: np.log(study.change_times(n, beta=1.7)) for n in (36, 40)}
    slopes = (times[40] - times[36]) / (4 * depth)
    assert slopes == pytest.approx([1.0, 2.0], abs=0.1)


def test_times_are_those_of_the_matrix_over_all_states():
    states = np.array(list(itertools.product((1.0, -1.0), repeat=5)))
    up = 1 / (1 + np.exp(-2 * 1.5 * (states.sum(1)[:, None] - states) / 5))
    one = np.zeros((32, 32))
    for row, spin in itertools.product(range(32), range(5)):
        flip = up[row, spin] if states[row, spin] < 0 else 1 - up[row, spin]
        # The states are numbers of five digits, the last spin the lowest one.
        one[row, row ^ (16 >> spin)] += flip / 5
        one[row, row] += (1 - flip) / 5
    field = 1.5 * states.mean(1)
    chances = np.exp(np.outer(field, states.sum(1))) / (2 * np.cosh(field))[:, None] ** 5
    second = np.sort(np.linalg.eigvals([one, chances]).real)[:, -2]
    wanted = -1 / ([5, 1] * np.log(second))
    assert study.change_times(5, beta=1.5) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.claim("S3")
def test_turned_values_end_the_rest_and_drives_are_followed_with_a_lag():
    keys = three_keys()
    edge = study.rest_edge(4.0)
    assert 31.5 < edge < 33.5
    assert 57 < study.rest_edge(100.0) < 60
    angles = np.array([0.0, edge - 0.5, edge + 0.5])
    speeds, _ = study.late_motion(np.array(4.0), degrees=angles, steps=3000, kept=1)
    assert (speeds < 1e-6).tolist() == [True, True, False]
    values = turned(keys, degrees=40.0)
    assert values[0] @ keys[0] == pytest.approx(math.cos(math.radians(40.0)))
    turns = study.late_motion(np.array(4.0), degrees=np.array(40.0), steps=2000, kept=1500)[1]
    mode = study.slowest_mode(keys, beta=4.0, spins=16, values=values)
    assert turns > 0.05
    assert abs(np.angle(mode) / (2 * np.pi) - turns) < 0.01
    # The gain of infinitely many spins, from their map.
    path = [0.0]
    for shift in 0.2 + 0.01 * np.cos(2 * np.pi * np.arange(400) / 4):
        path.append(math.tanh(0.5 * (path[-1] + shift)))
    slow = [brentq(lambda x, c=c: math.tanh(0.5 * (x + c)) - x, -1, 1) for c in (0.19, 0.21)]
    lag = abs(np.array(path[-4:]) @ np.array([1, -1j, -1, 1j])) / (slow[1] - slow[0])
    found = study.follow_gain(60, beta=0.5, shift=0.2, period=4, change=0.01)
    assert found == pytest.approx(lag, abs=0.01)
    assert lag < 0.9


def test_motion_is_that_of_a_plain_loop():
    keys = three_keys()
    values = turned(three_keys(), degrees=50.0)
    state = values[0] @ np.array([[math.cos(0.1), math.sin(0.1)], [-math.sin(0.1), math.cos(0.1)]])
    speeds = []
    angles = []
    for _ in range(60):
        before = state
        state = softmax(3.0 * keys @ state) @ values
        speeds.append(np.linalg.norm(state - before))
        angles.append(math.atan2(np.linalg.det([before, state]), before @ state) / (2 * math.pi))
    found = study.late_motion(np.array(3.0), degrees=np.array(50.0), steps=60, kept=20)
    assert found == pytest.approx([np.mean(speeds[-20:]), np.mean(angles[-20:])], abs=1e-9)


def test_spins_needed_are_the_fewest():
    keys = np.array([[1.2], [-0.8]])
    rest = resting_state(keys, beta=0.8, start=np.zeros(1))
    for view, tolerance in itertools.product(VIEWS.values(), (0.2, 0.1, 0.07, 0.05, 0.03)):
        found = study.spins_needed(view, keys, beta=0.8, tolerance=tolerance)
        counts = range(max(found - 1, 1), found + 1)
        off = [abs(view(keys, beta=0.8, spins=n) - rest)[0] for n in counts]
        assert off[-1] <= tolerance
        assert found == 1 or off[0] > tolerance
    with pytest.raises(ValueError, match="tolerance"):
        study.spins_needed(VIEWS["equilibrium"], keys, beta=0.8, tolerance=1e-9)
    # Where the average loses its stability it is reached ever more slowly.
    with pytest.raises(ValueError, match="start"):
        resting_state(np.array([[1.0], [-1.0]]), beta=1.0, start=np.ones(1))


def test_the_open_cells_take_one_step_in_four_ways():
    told = run_open_cells("51_synthesis")
    keys = told["two_keys"].numpy()
    step = softmax(0.5 * keys[:, 0] * 0.5) @ keys[:, 0]
    for name in ("energy", "attention", "mean_field", "driven"):
        assert told[f"{name}_step"] == pytest.approx(step, abs=1e-12)
    # The package's partition function of the same two spins.
    _, log_partition = study.spins_in_equilibrium(keys, beta=0.5, spins=2)
    assert told["z_by_states"] == pytest.approx(math.exp(log_partition), rel=1e-12)
    assert told["z_by_energy"] == pytest.approx(math.exp(log_partition), rel=1e-9)
