"""Cycles, their bifurcations and the closed curve by plain means, and the stored tables."""

from dataclasses import replace

import numpy as np
import pytest
from plain_exponents import tangent_map
from scipy.optimize import brentq, fsolve

from compendium.c33b_lifetimes.switching import settled_cycle
from compendium.c33c_bifurcations import cycles
from compendium.c33c_bifurcations.cycles import (
    Kind,
    _conditions,
    bifurcation,
    critical_rotation,
    cycle,
    follow_bifurcation,
    follow_cycle,
)
from compendium.c33c_bifurcations.rotation import rotation_number
from compendium.c33c_bifurcations.study import (
    ON_CURVE,
    STAIRCASE,
    TONGUES,
    closed_curve,
    driven_cycle,
)
from spinformer.core.solve import NotConverged
from spinformer.dmft.attractors import strobed
from spinformer.dmft.mean_field import document_context, random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset

NETWORK = Network.document()
ZERO = Context(np.zeros((4, 3)), 0)


# ---- cycles


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
        end, _ = plainly(Context(x.reshape(4, 3), 0), 4, beta)
        return end.attention.ravel() - x

    found = cycle(NETWORK, ZERO, beta=beta, period=4)
    root = fsolve(gap, np.zeros(12), xtol=1e-13)
    np.testing.assert_allclose(found.value.attention.ravel(), root, atol=1e-10)
    _, matrix = plainly(found.value, 4, beta)
    leading = np.abs(np.linalg.eigvals(matrix)).max()
    assert abs(found.multipliers[0]) == pytest.approx(leading, abs=1e-10)
    assert (leading < 1.0) == (beta < 1.2434)


def test_long_runs_end_on_what_newton_finds():
    periods = {1.25: 16, 1.27: 28, 1.2646: 44}
    betas = np.repeat(list(periods), 8)
    points, ends = strobed(
        NETWORK, random_contexts(NETWORK, 3, count=24), beta=betas, count=30, transient=200_000
    )
    gap = np.abs(points - points[:, :1]).max(axis=-1)
    for beta, period in periods.items():
        index = int(np.flatnonzero((betas == beta) & (gap[:, period // 4] < 1e-9))[0])
        state = ends.select(index)
        # Off the cycle by 1e-4, so that Newton's method has something to do.
        moved = state.attention + 1e-4 * np.sin(np.arange(12)).reshape(4, 3)
        found = cycle(NETWORK, Context(moved, state.position), beta=beta, period=period)
        assert found.period == period
        assert abs(found.multipliers[0]) < 1.0
        orbit, _ = trajectory(NETWORK, found.value, beta=beta, steps=2 * period)
        np.testing.assert_allclose(orbit[:period], orbit[period:], atol=1e-10)
        distance = np.abs(points[index][:, None] - orbit[:period]).max(axis=-1).min(axis=1)
        assert distance.max() < 1e-9


def test_the_least_period_is_found_and_failures_are_refused():
    twice, once = (cycle(NETWORK, ZERO, beta=1.2, period=period) for period in (24, 4))
    assert twice.period == once.period == 4
    np.testing.assert_allclose(np.abs(twice.multipliers), np.abs(once.multipliers), atol=1e-9)
    free = NETWORK.with_parameters(epsilon=0.0)
    assert cycle(free, ZERO, beta=1.1, period=6).period == 1
    with pytest.raises(ValueError, match="multiple of the 4"):
        cycle(NETWORK, ZERO, beta=1.4, period=6)


# ---- bifurcations


def events(branches, kind):
    return [x for one in branches for x in one.bifurcations if x.kind == kind]


@pytest.fixture(scope="module")
def torus():
    return bifurcation(NETWORK, cycle(NETWORK, ZERO, beta=1.26, period=4), kind=Kind.TORUS)


def test_conditions_by_hand():
    pair = 0.6 * np.exp(1j)
    mu = np.array([pair, pair.conj(), 1.0 / 0.36])
    fold = abs(1 - pair) ** 2 * (1 - 1 / 0.36)
    flip = abs(1 + pair) ** 2 * (1 + 1 / 0.36)
    neutral = (1 - 0.36) * abs(1 - pair / 0.36) ** 2
    np.testing.assert_allclose(_conditions(mu), [fold, flip, neutral], atol=1e-12)
    for kind, values in ((0, [1.0, 0.3]), (1, [-1.0, 0.3]), (2, [1j, -1j]), (2, [2.0, 0.5])):
        assert _conditions(np.array(values))[kind] == pytest.approx(0.0, abs=1e-15)


def test_a_neimark_sacker_point_by_bisection(torus):
    """Against the modulus of the leading multiplier, no condition and no extended system."""
    by_hand = brentq(
        lambda b: abs(cycle(NETWORK, ZERO, beta=b, period=4).multipliers[0]) - 1.0, 1.2, 1.3,
        xtol=1e-13,
    )  # fmt: skip
    assert torus.beta == pytest.approx(by_hand, abs=1e-10)
    at = cycle(NETWORK, ZERO, beta=by_hand, period=4).multipliers[0]
    assert torus.rotation == pytest.approx(abs(np.angle(at)) / (2 * np.pi), abs=1e-9)


@pytest.mark.parametrize("plane", ["gamma", "epsilon"])
def test_the_curve_ends_on_the_closed_form(torus, plane):
    values = np.linspace(getattr(NETWORK, plane), 0.0, 12)
    curve = follow_bifurcation(NETWORK, torus, name=plane, values=values)
    exact = onset(NETWORK, epsilon=0.02 if plane == "gamma" else 0.0)
    np.testing.assert_array_equal(curve[:, 1], values)
    np.testing.assert_allclose(curve[0, [0, 2]], [torus.beta, torus.rotation], atol=1e-9)
    assert curve[-1, 0] == pytest.approx(exact.critical_beta, abs=1e-5)
    assert curve[-1, 2] == pytest.approx(4 * exact.critical_rotation, abs=1e-6)


def test_the_critical_multiplier_is_one_of_the_kind():
    real, pair = [1.0, -1.0, 0.3], [np.exp(0.5j), np.exp(-0.5j), 0.3]
    wanted = [0.0, 0.5, np.nan], [np.nan, np.nan, 0.25 / np.pi]
    turns = [[critical_rotation(np.array(mu), kind=kind) for kind in Kind] for mu in (real, pair)]
    np.testing.assert_allclose(turns, wanted, atol=1e-12)


def test_folds_bound_a_window_of_locking():
    _, ends = strobed(
        NETWORK, random_contexts(NETWORK, 3, count=2), beta=1.25, count=8, transient=50_000
    )
    start = cycle(NETWORK, ends.select(0), beta=1.25, period=16)
    branches = [
        follow_cycle(NETWORK, start, step=size, within=(1.24, 1.26), max_steps=40)
        for size in (5e-4, -5e-4)
    ]
    for one in branches:
        # One where the sign of its condition changes between neighbors, and near them.
        signs = np.sign(_conditions(one.multipliers))
        changes = np.argwhere(signs[1:] != signs[:-1])
        assert len(one.bifurcations) == len(changes)
        for (at, kind), found in zip(changes, one.bifurcations, strict=True):
            ends = one.context.attention[at : at + 2]
            span = max(np.abs(ends[1] - ends[0]).max(), abs(one.values[at + 1] - one.values[at]))
            assert found.kind == kind
            assert np.abs(found.value.attention - ends).max(axis=(1, 2)).min() <= span
    folds = sorted({round(fold.beta, 8) for fold in events(branches, Kind.FOLD)})
    assert len(folds) == 2
    branch = branches[0]
    assert branch.values.min() > folds[0] - 1e-9
    assert branch.values.max() < folds[1] + 1e-9
    # A long run is locked inside, and turns past slowly a little outside.
    beta = np.array([folds[0] - 2e-5, folds[0] + 2e-5, folds[1] - 2e-4, folds[1] + 2e-5])
    points, _ = strobed(
        NETWORK, random_contexts(NETWORK, 0, count=4), beta=beta, count=2000, transient=50_000
    )
    off = rotation_number(points).value - 0.25
    assert off[0] < -1e-5
    assert off[3] > 1e-5
    np.testing.assert_allclose(off[1:3], 0.0, atol=1e-12)
    # Every point of the branch is a cycle, and its multipliers say whether it is stable.
    for i in range(0, len(branch.values), 7):
        context = branch.context.select(i)
        again = cycle(NETWORK, context, beta=float(branch.values[i]), period=16)
        assert np.abs(again.value.attention - context.attention).max() < 1e-7
        assert (abs(again.multipliers[0]) < 1.0) == branch.stable[i]
    assert set(branch.stable.tolist()) == {False, True}


def test_a_flip_doubles_the_period():
    there = NETWORK.with_parameters(epsilon=0.2)
    flip = bifurcation(there, cycle(there, ZERO, beta=1.0, period=4), kind=Kind.FLIP)
    assert flip.rotation == pytest.approx(0.5)
    assert np.abs(flip.multipliers + 1.0).min() < 1e-8
    beta = flip.beta + np.array([-2e-3, 3e-7, 2e-3])
    start = Context(flip.value.attention + 1e-3, 0)
    points, ends = strobed(there, start, beta=beta, count=8, transient=200_000)
    apart = np.abs(points[:, 0] - points[:, 1]).max(axis=-1)
    assert apart[0] < 1e-9 < 1e-3 < apart[2]
    assert np.abs(points[2, 0] - points[2, 2]).max() < 1e-9
    assert 1e-5 < apart[1] < 5e-4
    # However near its two halves are.
    for at, period in enumerate((4, 8, 8)):
        assert cycle(there, ends.select(at), beta=beta[at], period=8).period == period


def test_what_is_called_found_solves_the_equations(torus):
    """At every number of steps: some are too few."""
    start = cycle(NETWORK, ZERO, beta=1.26, period=4)

    def cycle_is_off(steps):
        found = cycle(NETWORK, ZERO, beta=1.26, period=4, max_steps=steps).value
        return np.abs(plainly(found, 4, 1.26)[0].attention - found.attention).max() / 2e-11

    def torus_is_off(steps):
        found = bifurcation(NETWORK, start, kind=Kind.TORUS, max_steps=steps)
        return abs(found.beta - torus.beta) / 1e-8

    for off in (cycle_is_off, torus_is_off):
        failed = 0
        for steps in range(2, 8):
            try:
                assert off(steps) < 1.0
            except NotConverged:
                failed += 1
        assert 0 < failed < 5
    with pytest.raises(NotConverged, match="flip"):
        bifurcation(NETWORK, replace(torus, beta=0.2), kind=Kind.FLIP, max_steps=15)


def test_a_point_far_from_where_the_sign_changed_is_not_taken(monkeypatch, torus):
    """Newton's method, sent elsewhere from one end, is asked again from the other."""
    asked = []

    def astray(*arguments, **others):
        point = bifurcation(*arguments, **others)
        asked.append(point)
        far = Context(point.value.attention + 0.5, point.value.position)
        return replace(point, value=far) if len(asked) % 2 else point

    monkeypatch.setattr(cycles, "bifurcation", astray)
    start = cycle(NETWORK, ZERO, beta=1.235, period=4)
    found = follow_cycle(NETWORK, start, step=5e-3, within=(1.2, 1.25), max_steps=9)
    assert len(asked) == 2
    assert [point.kind for point in found.bifurcations] == [Kind.TORUS]
    assert np.abs(found.bifurcations[0].value.attention - torus.value.attention).max() < 1e-9


def test_a_neutral_saddle_is_no_birth_of_a_closed_curve():
    """Beyond the resonance the condition vanishes where two real multipliers are inverse."""
    there = NETWORK.with_parameters(epsilon=0.206)
    branch = follow_cycle(
        there, cycle(there, ZERO, beta=0.8, period=4), step=0.005, within=(0.8, 1.45)
    )
    signs = np.sign(_conditions(branch.multipliers)[:, Kind.TORUS])
    born, neutral = np.flatnonzero(signs[1:] != signs[:-1])
    (torus,) = (point for point in branch.bifurcations if point.kind == Kind.TORUS)
    assert abs(torus.beta - branch.values[born]) < 0.05
    start = cycle(there, branch.context.select(neutral), beta=branch.values[neutral], period=4)
    assert np.isreal(start.multipliers[:2]).all()
    with pytest.raises(NotConverged, match="neutral saddle"):
        bifurcation(there, start, kind=Kind.TORUS)


# ---- the tables, and what the chapter says


@pytest.mark.nightly
def test_the_staircase_made_again():
    table = STAIRCASE.read()
    short = {"count": 1, "flashes": 1500, "steps": 6000, "transient": 12_000}
    for row in (100, 700):
        beta = float(table["beta"][row])
        (again,) = STAIRCASE.rows(beta, high=beta, **short)
        for name, near in (("rotation", 2e-6), ("extent", 2e-3), ("first", 2e-3), ("second", 3e-3)):
            assert float(again[name]) == pytest.approx(table[name][row], abs=near)


def test_long_runs_lock_inside_of_the_windows_and_nowhere_near():
    staircase, tongues = STAIRCASE.read(), TONGUES.read()
    here = staircase["extent"] < ON_CURVE
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
    within = (1.245, 1.285)
    return [
        follow_cycle(NETWORK, start, step=sign * step, within=within, max_steps=max_steps)
        for sign in (-1, 1)
    ]


@pytest.mark.nightly
def test_the_cycle_of_28_steps_and_its_doublings():
    """What the chapter says of them, and that the closed curve does not end on its saddle."""
    whole = branch(1.27, period=28, step=2e-4, max_steps=200)
    folds = [fold.beta for fold in events(whole, Kind.FOLD)]
    assert len(folds) == 7
    assert min(folds) == pytest.approx(1.26696, abs=1e-5)
    flips = events(whole, Kind.FLIP)
    for beta, ends in ((1.268, (1.26756, 1.26869)), (1.27, (1.269385,))):
        doubled = branch(beta, period=56, step=5e-5, max_steps=45)
        values = np.concatenate([one.values for one in doubled])
        assert values.min() == pytest.approx(ends[0], abs=1e-5)
        for end in ends:
            flip = min(flips, key=lambda one: abs(one.beta - end))
            assert flip.beta == pytest.approx(end, abs=1e-5)
        if len(ends) == 2:
            assert values.max() == pytest.approx(ends[1], abs=1e-5)
    # Where the other leaves, that of 28 is unstable, and both halves of the doubled one are one.
    at = int(np.argmin(doubled[0].values))
    start, beta = doubled[0].context.select(at), float(doubled[0].values[at])
    assert abs(flip.multipliers[0]) > 1.1
    _, after = trajectory(NETWORK, start, beta=beta, steps=0, transient=28)
    assert np.abs(after.attention - start.attention).max() < 0.02
    down = whole[0]
    saddles = np.arange(np.argmin(down.values), len(down.values))
    betas = np.array([1.2671, 1.2675])
    curves, _ = strobed(NETWORK, closed_curve(betas), beta=betas, count=1000)
    for beta, curve in zip(betas.tolist(), curves, strict=True):
        near = saddles[np.argmin(np.abs(down.values[saddles] - beta))]
        saddle = cycle(NETWORK, down.context.select(int(near)), beta=beta, period=28)
        assert np.abs(saddle.multipliers[0]) > 1.0
        flash, _ = strobed(NETWORK, saddle.value, beta=beta, count=7)
        assert np.linalg.norm(curve[:, None] - flash, axis=-1).min() > 0.02


def test_resonances_of_the_onset_and_where_the_driven_cycle_flips_first():
    """What the chapter says of larger ε."""
    start = bifurcation(NETWORK, driven_cycle(1.25), kind=Kind.TORUS)
    rows = follow_bifurcation(NETWORK, start, name="epsilon", values=np.arange(20, 240, 2) / 1000)
    turns = {round(1000 * epsilon): turn for _, epsilon, turn in rows}
    assert turns[30] == pytest.approx(1 / 4, abs=1e-3)
    assert turns[84] == pytest.approx(1 / 3, abs=1e-3)
    # At half a turn the curve ends.
    assert 0.44 < rows[-1, 2] < 0.5
    for epsilon, kind in ((0.17, Kind.TORUS), (0.19, Kind.FLIP)):
        there = NETWORK.with_parameters(epsilon=epsilon)
        first = cycle(there, Context(np.zeros((4, 3)), 0), beta=0.8, period=4)
        met = follow_cycle(there, first, step=0.01, within=(0.8, 1.5)).bifurcations
        assert met[0].kind == kind


@pytest.mark.claim("C9b")
def test_the_closed_curve_outlives_the_jump_of_the_protocol():
    """By finite differences of two orbits, no tangent map: on the curve they part linearly."""
    document = document_context(NETWORK)
    after, _ = trajectory(
        NETWORK, document, beta=np.array([1.2652, 1.2656]), steps=4000, transient=100_000
    )
    extent = np.ptp(after[:, ::4, 0], axis=1)
    assert extent[1] > 3 * extent[0]
    betas = np.array([1.2660, 1.2671])
    curve = closed_curve(betas, transient=20_000)
    points, _ = trajectory(NETWORK, curve, beta=betas, steps=16_000)
    assert (np.ptp(points[:, ::4, 0], axis=1) < 0.21).all()
    growth = parting(curve, betas, steps=20_000)
    # An exponent of 0.001 would give e^20.
    assert (np.log(growth) / 20_000 < 0.0005).all()
    wild = parting(Context(document.attention[None], document.position), np.array([1.28]), 2000)
    assert np.log(wild[0]) / 2000 > 0.005
    turns = rotation_number(points[:, ::4])
    assert (turns.error < 1e-5).all()


def parting(context, beta, steps):
    """Growth of a distance of 1e-9 in some steps."""
    twin = Context(context.attention + 1e-9, context.position)
    ends = [trajectory(NETWORK, c, beta=beta, steps=0, transient=steps)[1] for c in (context, twin)]
    gap = ends[1].attention - ends[0].attention
    return np.linalg.norm(gap, axis=(1, 2)) / (1e-9 * np.sqrt(12))
