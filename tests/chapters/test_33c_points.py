from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

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
from spinformer.core.solve import NotConverged
from spinformer.dmft.attractors import strobed
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset

NETWORK = Network.document()
ZERO = Context(np.zeros((4, 3)), 0)


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
    assert torus.beta == pytest.approx(1.2434445, abs=1e-7)
    assert torus.rotation == pytest.approx(0.241939, abs=1e-6)


def test_long_runs_begin_to_turn_there(torus):
    """Size² of the closed curve grows linearly from the point, and turns at its rotation."""
    beta = torus.beta + np.array([2e-4, 4e-4, 6e-4])
    points, _ = strobed(
        NETWORK, random_contexts(NETWORK, 0, count=3), beta=beta, count=2000, transient=100_000
    )
    squares = np.ptp(points[:, :, 0], axis=1) ** 2
    slope, level = np.polyfit(beta, squares, 1)
    assert -level / slope == pytest.approx(torus.beta, abs=1e-5)
    turns = rotation_number(points).value
    assert np.polyval(np.polyfit(beta, turns, 2), torus.beta) == pytest.approx(
        torus.rotation, abs=2e-6
    )


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
    turns = [critical_rotation(np.array(real), kind=kind) for kind in Kind]
    np.testing.assert_allclose(turns, [0.0, 0.5, np.nan])
    turns = [critical_rotation(np.array(pair), kind=kind) for kind in Kind]
    np.testing.assert_allclose(turns, [np.nan, np.nan, 0.25 / np.pi], atol=1e-12)


@pytest.fixture(scope="module")
def branch():
    points, ends = strobed(
        NETWORK, random_contexts(NETWORK, 3, count=2), beta=1.25, count=8, transient=50_000
    )
    assert np.abs(points[:, 0] - points[:, 4]).max() < 1e-9
    start = cycle(NETWORK, ends.select(0), beta=1.25, period=16)
    return [
        follow_cycle(NETWORK, start, step=step, within=(1.24, 1.26), max_steps=40)
        for step in (5e-4, -5e-4)
    ]


def test_folds_bound_a_window_of_locking(branch):
    both = branch[0].bifurcations + branch[1].bifurcations
    for one in branch:
        # One where the sign of its condition changes between neighbors, and near them.
        signs = np.sign(_conditions(one.multipliers))
        changes = np.argwhere(signs[1:] != signs[:-1])
        assert len(one.bifurcations) == len(changes)
        for (at, kind), found in zip(changes, one.bifurcations, strict=True):
            ends = one.context.attention[at : at + 2]
            span = max(np.abs(ends[1] - ends[0]).max(), abs(one.values[at + 1] - one.values[at]))
            assert found.kind == kind
            assert np.abs(found.value.attention - ends).max(axis=(1, 2)).min() <= span
    folds = sorted({round(x.beta, 8) for x in both if x.kind == Kind.FOLD})
    branch = branch[0]
    assert folds == pytest.approx([1.24949117, 1.25102131], abs=1e-7)
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
    assert branch.stable.any()
    assert not branch.stable.all()


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
    start, failed = cycle(NETWORK, ZERO, beta=1.26, period=4), 0
    for steps in range(2, 8):
        try:
            found = bifurcation(NETWORK, start, kind=Kind.TORUS, max_steps=steps)
        except NotConverged:
            failed += 1
        else:
            assert found.beta == pytest.approx(torus.beta, abs=1e-8)
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
