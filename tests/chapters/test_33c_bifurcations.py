"""Cycles, their bifurcations and the closed curve by plain means, and the stored tables."""

from contextlib import suppress

import numpy as np
import pytest
from known_networks import tangent_map
from open_cells import run_open_cells
from scipy.optimize import brentq, fsolve

from compendium.c33b_lifetimes.switching import settled_cycle
from compendium.c33c_bifurcations import settings, study
from spinformer.core.solve import NotConverged
from spinformer.dmft.bifurcation_curves import bifurcation_values
from spinformer.dmft.branches import continue_cycle
from spinformer.dmft.cycles import (
    Bifurcation,
    bifurcation_condition,
    find_bifurcation,
    find_cycle,
)
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import closed_curve
from spinformer.dmft.stroboscopic import rotation_number, stroboscopic_section

NETWORK = Network.poclopez2024()
ZERO = Context(np.zeros((4, 3)), 0)


def plainly(context, steps, beta):
    """The context after some plain steps, and the product of the plain tangent maps."""
    matrix = np.eye(context.attention.size)
    for _ in range(steps):
        matrix = tangent_map(NETWORK, context, beta) @ matrix
        context, _ = step(NETWORK, context, beta)
    return context, matrix


@pytest.mark.parametrize("beta", [1.1, 1.25, 1.5])
def test_a_cycle_against_a_plain_root_finder(beta):
    def gap(x):
        return plainly(Context(x.reshape(4, 3), 0), 4, beta)[0].attention.ravel() - x

    found = find_cycle(NETWORK, ZERO, beta=beta, period=4)
    root = fsolve(gap, np.zeros(12), xtol=1e-13)
    np.testing.assert_allclose(found.value.attention.ravel(), root, atol=1e-10)
    _, matrix = plainly(found.value, 4, beta)
    leading = np.abs(np.linalg.eigvals(matrix)).max()
    assert abs(found.multipliers[0]) == pytest.approx(leading, abs=1e-10)
    assert (leading < 1.0) == (beta < 1.2434)


def test_the_least_period_is_found_and_failures_are_refused():
    twice = find_cycle(NETWORK, ZERO, beta=1.2, period=24)
    once = find_cycle(NETWORK, ZERO, beta=1.2, period=4)
    assert twice.period == once.period == 4
    np.testing.assert_allclose(np.abs(twice.multipliers), np.abs(once.multipliers), atol=1e-9)
    free = NETWORK.with_parameters(epsilon=0.0)
    assert find_cycle(free, ZERO, beta=1.1, period=6).period == 1
    with pytest.raises(ValueError, match="multiple of 4"):
        find_cycle(NETWORK, ZERO, beta=1.4, period=6)


@pytest.fixture(scope="module")
def torus():
    return find_bifurcation(
        NETWORK, find_cycle(NETWORK, ZERO, beta=1.26, period=4), kind=Bifurcation.NEIMARK_SACKER
    )


def test_a_neimark_sacker_point_by_bisection(torus):
    """Against the modulus of the leading multiplier, no condition and no extended system."""

    def leading(beta):
        return find_cycle(NETWORK, ZERO, beta=beta, period=4).multipliers[0]

    by_hand = brentq(lambda beta: abs(leading(beta)) - 1.0, 1.2, 1.3, xtol=1e-13)
    assert torus.beta == pytest.approx(by_hand, abs=1e-10)
    turns = abs(np.angle(leading(by_hand))) / (2 * np.pi)
    assert torus.rotation == pytest.approx(turns, abs=1e-9)


def test_the_open_cells_find_the_onset(torus):
    cells = run_open_cells("33c_bifurcations")
    exact = onset(NETWORK, epsilon=0.0)
    assert cells["onset_beta"] == pytest.approx(exact.critical_beta, abs=1e-12)
    assert cells["onset_rotation"] == pytest.approx(4 * exact.critical_rotation, abs=1e-12)
    window = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 3))
    context = Context(window, 0)
    for _ in range(4):
        context, _ = step(NETWORK, context, 1.3)
    assert cells["four_steps"](window, 1.3) == pytest.approx(context.attention, abs=1e-14)
    # At the driven cycle that the cells end on, whose multipliers they find by differences.
    _, matrix = plainly(Context(cells["window"], 0), 4, cells["middle"])
    assert cells["monodromy"](cells["window"], cells["middle"]) == pytest.approx(matrix, abs=1e-8)
    assert cells["low"] == pytest.approx(torus.beta, abs=2e-7)


@pytest.mark.parametrize("plane", ["gamma", "epsilon"])
def test_the_curve_ends_on_the_closed_form(torus, plane):
    values = np.linspace(getattr(NETWORK, plane), 0.0, 12)
    curve = bifurcation_values(NETWORK, torus, name=plane, values=values)
    exact = onset(NETWORK, epsilon=0.02 if plane == "gamma" else 0.0)
    np.testing.assert_array_equal(curve[:, 1], values)
    np.testing.assert_allclose(curve[0, [0, 2]], [torus.beta, torus.rotation], atol=1e-9)
    assert curve[-1, 0] == pytest.approx(exact.critical_beta, abs=1e-5)
    assert curve[-1, 2] == pytest.approx(4 * exact.critical_rotation, abs=1e-6)


def test_a_branch_of_cycles_passes_both_folds_of_its_window():
    start = find_cycle(NETWORK, closed_curve([1.25]).select(0), beta=1.25, period=16)
    branch = continue_cycle(
        NETWORK, start, step=5e-4, within=(1.24, 1.26), direction="up", max_steps=80, throw=False
    )
    stable = np.abs(branch.multipliers[:, 0]) < 1.0
    assert set(stable.tolist()) == {False, True}
    for i in range(0, len(stable), 9):
        context = branch.value.select(i)
        beta = float(branch.beta[i])
        end, matrix = plainly(context, 16, beta)
        np.testing.assert_allclose(end.attention, context.attention, atol=1e-9)
        assert (np.abs(np.linalg.eigvals(matrix)).max() < 1.0) == stable[i]
    window = study.tongues_table.read()
    assert branch.beta.min() == pytest.approx(window["low"][0], abs=3e-6)
    assert branch.beta.max() == pytest.approx(window["high"][0], abs=3e-6)


def test_what_is_called_found_solves_the_equations(torus):
    """At every number of steps: some are too few."""
    start = find_cycle(NETWORK, ZERO, beta=1.26, period=4)
    cycles = []
    births = []
    for steps in range(3, 24, 2):
        with suppress(NotConverged):
            cycles.append(find_cycle(NETWORK, ZERO, beta=1.26, period=4, max_steps=steps).value)
        with suppress(NotConverged):
            births.append(
                find_bifurcation(
                    NETWORK, start, kind=Bifurcation.NEIMARK_SACKER, max_steps=steps
                ).beta
            )
    assert 1 < len(cycles) < 11
    assert 1 < len(births) < 11
    for found in cycles:
        assert np.abs(plainly(found, 4, 1.26)[0].attention - found.attention).max() < 2e-10
    np.testing.assert_allclose(births, torus.beta, rtol=0, atol=1e-8)


def test_a_neutral_saddle_is_no_birth_of_a_closed_curve():
    """Beyond the resonance the condition vanishes where two real multipliers are inverse."""
    there = NETWORK.with_parameters(epsilon=0.206)
    first = find_cycle(there, ZERO, beta=0.8, period=4)
    branch = continue_cycle(there, first, step=0.005, within=(0.8, 1.45), direction="up")
    condition = bifurcation_condition(branch.multipliers, Bifurcation.NEIMARK_SACKER)
    places = np.flatnonzero(np.diff(np.sign(condition)))
    assert len(places) == 2
    cycles = [
        find_cycle(there, branch.value.select(at), beta=float(branch.beta[at]), period=4)
        for at in places
    ]
    born = cycles[0]
    neutral = cycles[1]
    birth = find_bifurcation(there, born, kind=Bifurcation.NEIMARK_SACKER)
    assert abs(birth.beta - born.beta) < 0.05
    assert np.isreal(neutral.multipliers[:2]).all()
    with pytest.raises(NotConverged, match="neutral saddle"):
        find_bifurcation(there, neutral, kind=Bifurcation.NEIMARK_SACKER)


@pytest.mark.nightly
def test_the_staircase_made_again():
    table = study.staircase_table.read()
    for row in (100, 700):
        beta = float(table["beta"][row])
        (again,) = study.staircase_table.rows(beta, high=beta, count=1)
        for name, near in (("rotation", 2e-7), ("extent", 2e-3), ("first", 3e-4), ("second", 5e-4)):
            assert float(again[name]) == pytest.approx(table[name][row], abs=near)


def test_long_runs_lock_inside_of_the_windows_and_nowhere_near():
    staircase = study.staircase_table.read()
    tongues = study.tongues_table.read()
    here = staircase["extent"] < study.ON_CURVE
    for p, q, low, high in zip(*(tongues[k] for k in ("p", "q", "low", "high")), strict=True):
        # At the ends of two windows an unlocked curve or the next window lies beside the cycle.
        share = (staircase["beta"] - low) / (high - low)
        inside = here & (share > 0.1) & (share < 0.6)
        if q <= 46 and inside.any():
            np.testing.assert_allclose(staircase["rotation"][inside], p / q, atol=2e-9)
        below = here & (staircase["beta"] < low) & (staircase["beta"] > low - 1e-5)
        assert not np.isclose(staircase["rotation"][below], p / q, atol=1e-9).any()


def branch(beta, *, period, step, max_steps):
    """Downwards in β, then upwards, from where runs end."""
    start = settled_cycle(beta, period=period)
    return [
        continue_cycle(
            NETWORK,
            start,
            step=step,
            within=(1.245, 1.285),
            direction=way,
            max_steps=max_steps,
            throw=False,
        )
        for way in ("down", "up")
    ]


def flips_of(branch):
    """β where a multiplier passes −1, between two points of a branch."""
    product = np.prod(1.0 + branch.multipliers, axis=1).real
    at = np.flatnonzero(product[1:] * product[:-1] < 0.0)
    share = product[at] / (product[at] - product[at + 1])
    return branch.beta[at] + share * (branch.beta[at + 1] - branch.beta[at])


@pytest.mark.nightly
def test_the_cycle_of_28_steps_and_its_doublings():
    """What the chapter says of them, and that the closed curve does not end on its saddle."""
    whole = branch(1.27, period=28, step=2e-4, max_steps=200)
    assert sum(np.count_nonzero(np.diff(np.sign(np.diff(one.beta)))) for one in whole) == 7
    assert whole[0].beta.min() == pytest.approx(1.26696, abs=1e-5)
    flips = np.concatenate([flips_of(one) for one in whole])
    for beta, ends in ((1.268, (1.26756, 1.26869)), (1.27, (1.269385,))):
        doubled = branch(beta, period=56, step=5e-5, max_steps=45)
        betas = np.concatenate([one.beta for one in doubled])
        for end, reached in zip(ends, (betas.min(), betas.max()), strict=False):
            assert reached == pytest.approx(end, abs=1e-5)
            assert np.abs(flips - end).min() < 5e-5
    # Where the other leaves, that of 28 is unstable, and both halves of the doubled one are one.
    at = int(np.argmin(doubled[0].beta))
    start = doubled[0].value.select(at)
    beta = float(doubled[0].beta[at])
    assert abs(find_cycle(NETWORK, start, beta=beta, period=28).multipliers[0]) > 1.1
    _, after = trajectory(NETWORK, start, beta=beta, steps=0, transient=28)
    assert np.abs(after.attention - start.attention).max() < 0.02
    down = whole[0]
    saddles = np.arange(np.argmin(down.beta), len(down.beta))
    betas = np.array([1.2671, 1.2675])
    curves, _ = stroboscopic_section(NETWORK, closed_curve(betas), beta=betas, count=1000)
    for beta, curve in zip(betas.tolist(), curves, strict=True):
        near = saddles[np.argmin(np.abs(down.beta[saddles] - beta))]
        saddle = find_cycle(NETWORK, down.value.select(int(near)), beta=beta, period=28)
        assert np.abs(saddle.multipliers[0]) > 1.0
        flash, _ = stroboscopic_section(NETWORK, saddle.value, beta=beta, count=7)
        assert np.linalg.norm(curve[:, None] - flash, axis=-1).min() > 0.02


def test_resonances_of_the_onset_and_where_the_driven_cycle_flips_first(torus):
    """What the chapter says of larger ε."""
    rows = bifurcation_values(NETWORK, torus, name="epsilon", values=np.arange(20, 240, 2) / 1000)
    turns = {round(1000 * epsilon): turn for _, epsilon, turn in rows}
    assert turns[30] == pytest.approx(1 / 4, abs=1e-3)
    assert turns[84] == pytest.approx(1 / 3, abs=1e-3)
    # At half a turn the curve ends.
    assert 0.44 < rows[-1, 2] < 0.5
    for epsilon, flips in ((0.17, False), (0.19, True)):
        there = NETWORK.with_parameters(epsilon=epsilon)
        first = find_cycle(there, ZERO, beta=0.8, period=4)
        branch = continue_cycle(there, first, step=0.01, within=(0.8, 1.5), direction="up")
        left = branch.multipliers[np.argmax(np.abs(branch.multipliers[:, 0]) > 1.0), 0]
        assert (abs(left.imag) < 1e-9) == flips
        assert left.real < -0.5


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, [0.030, 0.084]),
        # Its rotation number is above 1/4, so that the onset is followed to smaller weights, too.
        ({"epsilon": 0.04}, [0.030, 0.084]),
        # Without the softmax the onset has the rotation number of the closed form at every weight.
        ({"gamma": 0.0}, [np.nan, np.nan]),
    ],
)
def test_resonances_do_not_depend_on_the_weight_from_which_they_are_found(changed, found):
    network = NETWORK.with_parameters(**changed)
    near = onset(network).critical_beta
    driven = find_cycle(network, ZERO, beta=near, period=4)
    born = find_bifurcation(network, driven, kind=Bifurcation.NEIMARK_SACKER)
    weights = study.weights_of_rotations(network, born, rotations=[1 / 4, 1 / 3])
    np.testing.assert_allclose(weights, found, atol=5e-4)


@pytest.mark.claim("C9b")
def test_the_closed_curve_outlives_the_jump_of_the_protocol():
    """By finite differences of two orbits, no tangent map: on the curve they part linearly."""
    document = poclopez2024_context(NETWORK)
    before = np.array([1.2652, 1.2656])
    after, _ = stroboscopic_section(NETWORK, document, beta=before, count=1000, transient=100_000)
    extent = np.ptp(after[..., 0], axis=1)
    assert extent[1] > 3 * extent[0]
    betas = np.array([1.2660, 1.2671])
    curve = closed_curve(betas, transient=20_000)
    points, _ = stroboscopic_section(NETWORK, curve, beta=betas, count=4000)
    assert (np.ptp(points[..., 0], axis=1) < 0.21).all()
    # An exponent of 0.001 would give e^20.
    assert (parting(curve, betas, steps=20_000) < 0.0005).all()
    assert parting(document, 1.28, steps=2000) > 0.005
    assert (rotation_number(points).error < 1e-5).all()


def parting(context, beta, *, steps):
    """Growth per step of the logarithm of a distance of 1e-9."""
    twin = Context(context.attention + 1e-9, context.position)
    _, first = trajectory(NETWORK, context, beta=beta, steps=0, transient=steps)
    _, second = trajectory(NETWORK, twin, beta=beta, steps=0, transient=steps)
    one = first.attention
    two = second.attention
    return np.log(np.linalg.norm(two - one, axis=(-2, -1)) / (1e-9 * np.sqrt(12))) / steps


def circle_map(omega, k, n):
    """θ' = θ + Ω − (K/2π) sin 2πθ, as lifted angles."""
    theta = np.empty(n + 1)
    theta[0] = 0.1
    for i in range(n):
        theta[i + 1] = theta[i] + omega - k / (2 * np.pi) * np.sin(2 * np.pi * theta[i])
    return theta


def on_a_curve(theta):
    """A skew, uneven closed curve in three dimensions."""
    a = 2 * np.pi * theta
    flat = np.stack([2 * np.cos(a) + 0.3 * np.cos(2 * a), np.sin(a), 0.4 * np.sin(a + 1)], axis=-1)
    return flat + np.array([5.0, -2.0, 1.0])


@pytest.mark.parametrize("length", [1000, 4000])
def test_against_the_lift_of_a_circle_map(length):
    omegas = (0.2419, 0.26, 0.1, 1 - 0.2419, (np.sqrt(5) - 1) / 2)
    lifts = [circle_map(omega, 0.5, 20_000) for omega in omegas]
    truth = np.array([(theta[-1] - theta[0]) / 20_000 for theta in lifts]) % 1
    truth = np.minimum(truth, 1 - truth)
    found = rotation_number(np.stack([on_a_curve(theta[: length + 1]) for theta in lifts]))
    np.testing.assert_allclose(found.value, truth, atol=1e-4)
    longer = rotation_number(np.stack([on_a_curve(theta[: 2 * length + 1]) for theta in lifts]))
    # The stated error covers what twice the length changes, and is far below 1/n.
    assert (np.abs(longer.value - found.value) <= 3 * found.error + 1e-12).all()
    assert (found.error < 1e-4 * (4000 / length) ** 3).all()
    locked = rotation_number(on_a_curve(circle_map(0.3, 0.0, length)))
    assert locked.value == pytest.approx(0.3, abs=1e-12)


def test_the_error_of_noisy_turns_is_about_their_scatter():
    """It comes from the halves of a run: right to a factor of about two, not of ten."""
    rng = np.random.default_rng(1)
    theta = 0.2 * np.arange(301) + np.cumsum(0.03 * rng.standard_normal((60, 301)), axis=1)
    found = rotation_number(on_a_curve(theta))
    assert 0.5 < found.error.mean() / found.value.std(ddof=1) < 3.0
    # A change in either half is seen.
    change = np.repeat([0.2, 0.2, 0.2, 0.26], 100)
    for turns in (change, change[::-1]):
        assert rotation_number(on_a_curve(np.cumsum(turns))).error > 0.02


def test_chaos_begins_with_a_jump_from_contexts_of_order_one_and_not_from_small_ones(monkeypatch):
    """C9b: by the extent of the motion, which the table's labels do not use."""
    monkeypatch.setattr(settings, "_CONTEXTS", 16)
    share = {}
    for law in ("uniform", "narrow"):
        [line] = settings.jump_of_chaos(7, law, 1.266, 20_000)
        starts = random_contexts(NETWORK, 7, count=16, law=law)
        wide = {}
        for beta in (1.265, 1.266):
            overlaps, _ = trajectory(NETWORK, starts, beta=beta, steps=2000, transient=20_000)
            # At one position of the clock: the closed curve extends over less than 0.24.
            wide[beta] = (np.ptp(overlaps[:, ::4, 0], axis=1) > 0.3).mean()
        share[law] = line["value"] + 0.5
        assert share[law] == pytest.approx(wide[1.266] - wide[1.265], abs=0.15)
    assert share["narrow"] == 0.0
    assert share["uniform"] > 0.7


def test_a_rotation_number_that_an_onset_does_not_have_gives_nan(monkeypatch):
    """On either side; between them the weight is interpolated."""

    def turning(network, born, *, name, values):
        return np.stack([0 * values, values, 2.0 * values], axis=1)

    monkeypatch.setattr(study, "bifurcation_values", turning)
    found = study.weights_of_rotations(NETWORK, None, [0.0, 0.07, 0.9])
    np.testing.assert_allclose(found, [np.nan, 0.035, np.nan])
