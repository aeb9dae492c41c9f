"""Cycles and bifurcations of maps with known answers, of the published network and of others."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from compendium.c33b_lifetimes.switching import settled_cycle
from spinformer.core.solve import NotConverged
from spinformer.dmft import (
    Bifurcation,
    Context,
    Map,
    Network,
    bifurcation_curves,
    bifurcation_values,
    continue_bifurcation,
    continue_cycle,
    find_bifurcation,
    find_cycle,
    normal_form,
    onset,
    step,
    switch_branch,
    trajectory,
)
from spinformer.dmft.maps import as_system

FOLD = Bifurcation.FOLD
FLIP = Bifurcation.FLIP
TORUS = Bifurcation.NEIMARK_SACKER
NETWORK = Network.poclopez2024()
ZERO = Context(np.zeros((4, 3)), 0)


def henon_step(x, a, b):
    return np.array([1.0 - a * x[0] ** 2 + x[1], b * x[0]])


HENON = Map(step=henon_step, dimension=2, parameters={"a": 0.3, "b": 0.3})
LOGISTIC = Map(step=lambda x, r: r * x * (1.0 - x), dimension=1, parameters={"r": 2.8})


def labels(branch, parameter):
    return [(point.kind, point.parameters[parameter]) for point in branch.bifurcations]


@pytest.mark.parametrize("b", [0.3, -0.2])
def test_fold_and_flips_of_henon(b):
    """The fold is at a = −(1 − b)²/4, the flips of the fixed point and of the 2-cycle behind it."""
    henon = replace(HENON, parameters={"a": 0.3, "b": b})
    point = find_cycle(henon, [0.9, 0.3], period=1)
    fold = find_bifurcation(henon, find_cycle(henon, [2.0, 0.6], period=1, a=-0.05), kind=FOLD,
                            parameter="a")  # fmt: skip
    assert fold.parameters["a"] == pytest.approx(-((1 - b) ** 2) / 4, abs=1e-9)
    branch = continue_cycle(henon, point, parameter="a", within=(0.0, 1.5), direction="up")
    assert branch.complete
    assert branch.values[-1] == 1.5
    assert branch.parameters == {"b": b}
    ((kind, a),) = labels(branch, "a")
    assert kind == FLIP
    assert a == pytest.approx(3 * (1 - b) ** 2 / 4, abs=1e-8)
    flip = branch.bifurcations[0]
    assert normal_form(henon, flip).label == "supercritical"
    doubled = switch_branch(henon, flip, parameter="a")
    assert (doubled.period, doubled.stable) == (2, True)
    behind = continue_cycle(henon, doubled, parameter="a", within=(a, 1.7), direction="up")
    second = labels(behind, "a")[0]
    assert second[0] == FLIP
    assert second[1] == pytest.approx((1 - b) ** 2 + (1 + b) ** 2 / 4, abs=1e-8)


def test_derivatives_given_automatic_and_by_differences_agree():
    network = turning(1.3, 0.4)
    state = np.array([[0.3, -0.8]])
    end, found = as_system(network, state).derivative(state, steps=1, parameters={"g": 1.3})
    turn = 1.3 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    np.testing.assert_allclose(found[0], (1.0 - end[0][:, None] ** 2) * turn, atol=1e-11)
    given = replace(HENON, jacobian=lambda x, a, b: np.array([[-2 * a * x[0], 1.0], [b, 0.0]]))
    automatic = replace(
        HENON,
        step=lambda x, a, b: torch.stack([1.0 - a * x[0] ** 2 + x[1], b * x[0]]),
        jacobian="torch",
    )
    found = [find_cycle(one, [0.9, 0.3], period=6, a=1.2) for one in (HENON, given, automatic)]
    for one in found:
        x = one.value
        matrix = np.eye(2)
        for _ in range(one.period):
            matrix = np.array([[-2.4 * x[0], 1.0], [0.3, 0.0]]) @ matrix
            x = henon_step(x, 1.2, 0.3)
        np.testing.assert_allclose(x, one.value, atol=1e-9)
        exact = np.linalg.eigvals(matrix)
        exact = exact[np.argsort(-np.abs(exact), kind="stable")]
        np.testing.assert_allclose(one.multipliers, exact, atol=1e-8)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, a, b: np.array([[-2 * a * x[0], b], [1.0, 0.0]]),
        lambda x, a, b: np.array([[-a * x[0], 1.0], [b, 0.0]]),
        lambda x, a, b: np.full((2, 2), np.inf) if x[0] == 0.9 else np.eye(2),
    ],
    ids=["transposed", "factor", "constant"],
)
def test_a_derivative_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="jacobian must be the derivative of step"):
        find_cycle(replace(HENON, jacobian=wrong), [0.9, 0.3], period=6, a=1.2)


def test_a_right_derivative_is_taken_at_a_kink_and_where_the_step_is_steep():
    tent = Map(
        step=lambda x, s: s * np.minimum(x, 1.0 - x),
        dimension=1,
        parameters={"s": 1.5},
        jacobian=lambda x, s: np.array([[s if x[0] < 0.5 else -s]]),
    )
    assert as_system(tent, [0.5]).exact
    steep = Map(
        step=lambda x, k: np.tanh(k * x),
        dimension=1,
        parameters={"k": 1e3},
        jacobian=lambda x, k: np.array([[k / np.cosh(k * x[0]) ** 2]]),
    )
    for start in (0.0, 1e-4, 5e-4, 0.3):
        assert as_system(steep, [start]).exact
    # Beside this state there is no root.
    root = Map(
        step=lambda x, r: r * np.sqrt(x),
        dimension=1,
        parameters={"r": 1.5},
        jacobian=lambda x, r: np.array([[0.5 * r / np.sqrt(x[0])]]),
    )
    assert as_system(root, [1e-4]).exact


def test_the_period_doubling_cascade_and_the_window_of_the_logistic_map():
    point = find_cycle(LOGISTIC, [0.65], period=1)
    first = continue_cycle(LOGISTIC, point, within=(2.0, 3.9)).bifurcations[0]
    assert (first.kind, first.period) == (FLIP, 1)
    flips = [first.parameters["r"]]
    for end in (3.52, 3.56):
        doubled = switch_branch(LOGISTIC, first)
        branch = continue_cycle(LOGISTIC, doubled, within=(flips[-1], end), direction="up")
        first = branch.bifurcations[0]
        flips.append(first.parameters["r"])
    np.testing.assert_allclose(flips[:2], [3.0, 1.0 + 6.0**0.5], atol=1e-8)
    assert flips[2] == pytest.approx(3.5440904, abs=1e-6)
    three = find_cycle(LOGISTIC, [0.15], period=3, r=3.84)
    born = find_bifurcation(LOGISTIC, three, kind=FOLD)
    assert born.parameters["r"] == pytest.approx(1.0 + 8.0**0.5, abs=1e-8)


def test_neimark_sacker_of_the_delayed_logistic_map():
    """At r = 2 the multipliers are e^{±iπ/3}; the closed curve behind is stable."""
    delayed = Map(
        step=lambda x, r: np.array([r * x[0] * (1.0 - x[1]), x[0]]),
        dimension=2,
        parameters={"r": 1.9},
    )
    point = find_cycle(delayed, [0.45, 0.45], period=1)
    (born,) = continue_cycle(delayed, point, within=(1.5, 2.2)).bifurcations
    assert born.kind == TORUS
    assert born.parameters["r"] == pytest.approx(2.0, abs=1e-9)
    assert born.rotation == pytest.approx(1 / 6, abs=1e-9)
    form = normal_form(delayed, born)
    assert form.label == "supercritical"
    # Just behind it the closed curve has the radius² (|μ| − 1)/|d| along the critical direction.
    r = 2.0005
    fixed = 1.0 - 1.0 / r
    matrix = np.array([[r * (1.0 - fixed), -r * fixed], [1.0, 0.0]])
    values, left = np.linalg.eig(matrix.T)
    chosen = int(np.argmax(values.imag))
    p = np.conj(left[:, chosen])
    p = p / np.conj(np.vdot(p, form.vector))
    x = np.array([fixed + 0.01, fixed])
    radii = []
    for number in range(60_000):
        x = np.array([r * x[0] * (1.0 - x[1]), x[0]])
        if number >= 40_000:
            radii.append(abs(np.vdot(p, x - fixed)) ** 2)
    expected = (abs(values[chosen]) - 1.0) / -form.coefficient
    assert np.mean(radii) == pytest.approx(expected, rel=0.02)


def test_the_elliptic_fixed_point_of_the_standard_map_flips_at_four():
    standard = Map(
        step=lambda x, k: np.array([x[0] + x[1] + k * np.sin(x[0]), x[1] + k * np.sin(x[0])]),
        dimension=2,
        parameters={"k": 2.0},
    )
    point = find_cycle(standard, [np.pi, 0.0], period=1)
    # Trace 2 − k: the residue is k/4.
    assert np.abs(point.multipliers) == pytest.approx([1.0, 1.0], abs=1e-9)
    flip = find_bifurcation(standard, find_cycle(standard, [np.pi, 0.0], period=1, k=4.2),
                            kind=FLIP)  # fmt: skip
    assert flip.parameters["k"] == pytest.approx(4.0, abs=1e-9)


def turning(g, angle):
    """Two tanh units coupled by g times a rotation."""
    c = np.cos(angle)
    s = np.sin(angle)
    return Map(
        step=lambda x, g: np.tanh(g * np.array([c * x[0] - s * x[1], s * x[0] + c * x[1]])),
        dimension=2,
        parameters={"g": g},
    )


def test_normal_forms_of_coupled_tanh_units():
    """By hand: d = −½ for a rotation at g = 1, c = ⅓ for the unit x' = tanh(−g x)."""
    network = turning(0.9, 1.1)
    point = find_cycle(network, [0.01, 0.0], period=1)
    born = find_bifurcation(network, point, kind=TORUS)
    assert born.parameters["g"] == pytest.approx(1.0, abs=1e-8)
    assert born.rotation == pytest.approx(1.1 / (2 * np.pi), abs=1e-9)
    form = normal_form(network, born)
    assert form.coefficient == pytest.approx(-0.5, abs=1e-4)
    assert form.label == "supercritical"
    odd = Map(step=lambda x, g: np.tanh(-g * x), dimension=1, parameters={"g": 0.9})
    flip = find_bifurcation(odd, find_cycle(odd, [0.0], period=1), kind=FLIP)
    assert normal_form(odd, flip).coefficient == pytest.approx(1 / 3, abs=1e-4)


def test_points_of_codimension_two_of_henon():
    """The curves a = −(1 − b)²/4, 3(1 − b)²/4 and b = −1 meet at resonances of known place."""
    everywhere = ((-2.0, 4.0), (-1.5, 0.5))
    point = find_cycle(HENON, [0.9, 0.3], period=1)
    flip = find_bifurcation(HENON, point, kind=FLIP, parameter="a")
    curve = continue_bifurcation(HENON, flip, parameters=("a", "b"), within=everywhere)
    a, b = curve.values.T
    np.testing.assert_allclose(a, 0.75 * (1 - b) ** 2, atol=1e-7)
    assert [one.label for one in curve.codimension_two] == ["1:2 resonance"]
    at = curve.codimension_two[0].cycle.parameters
    np.testing.assert_allclose([at["a"], at["b"]], [3.0, -1.0], atol=1e-6)
    fold = find_bifurcation(HENON, find_cycle(HENON, [2.0, 0.6], period=1, a=-0.1), kind=FOLD,
                            parameter="a")  # fmt: skip
    curve = continue_bifurcation(HENON, fold, parameters=("a", "b"), within=everywhere)
    np.testing.assert_allclose(curve.values[:, 0], -0.25 * (1 - curve.values[:, 1]) ** 2, atol=1e-7)
    assert [one.label for one in curve.codimension_two] == ["1:1 resonance"]
    turned = replace(HENON, parameters={"a": 0.5, "b": -0.9})
    near = find_cycle(turned, [0.5, -0.4], period=1)
    torus = find_bifurcation(turned, near, kind=TORUS, parameter="b")
    curve = continue_bifurcation(turned, torus, parameters=("b", "a"), within=everywhere[::-1])
    # On b = −1 the multipliers have the angle arccos(−a x), x² a + 2x = 1.
    assert [one.label for one in curve.codimension_two if "resonance" in one.label] == [
        "1:1 resonance", "1:4 resonance", "1:3 resonance", "1:2 resonance",
    ]  # fmt: skip
    places = [one.cycle.parameters["a"] for one in curve.codimension_two if "res" in one.label]
    np.testing.assert_allclose(places, [-1.0, 0.0, 1.25, 3.0], atol=1e-6)
    assert curve.complete


def chenciner_step(x, p, s):
    """z' = e^{i} z (1 + p + s|z|² − |z|⁴), as two real components."""
    r2 = x[0] ** 2 + x[1] ** 2
    scale = 1.0 + p + s * r2 - r2**2
    c = np.cos(1.0)
    t = np.sin(1.0)
    return np.array([scale * (c * x[0] - t * x[1]), scale * (t * x[0] + c * x[1])])


@pytest.mark.parametrize(
    ("kind", "label", "given", "start"),
    [
        (FOLD, "cusp", lambda x, p, s: p + (1.0 + s) * x - x**3, [0.6]),
        (FLIP, "generalized flip", lambda x, p, s: -(1.0 + p) * x + s * x**3 + x**5, [0.0]),
        (TORUS, "Chenciner", chenciner_step, [0.0, 0.0]),
    ],
)
def test_normal_forms_of_codimension_two_have_their_point_at_the_origin(kind, label, given, start):
    system = Map(step=given, dimension=len(start), parameters={"p": -0.1, "s": 0.5})
    if kind == FOLD:
        # The fold is where 1 + s − 3x² = 1 and p = x³ − s x.
        start = [-np.sqrt(0.5 / 3) + 0.05]
        system = replace(system, parameters={"p": 0.13, "s": 0.5})
    point = find_cycle(system, start, period=1)
    critical = find_bifurcation(system, point, kind=kind, parameter="p")
    curve = continue_bifurcation(
        system, critical, parameters=("p", "s"), within=((-0.5, 0.5), (-0.6, 0.6))
    )
    assert [one.label for one in curve.codimension_two] == [label]
    at = curve.codimension_two[0].cycle.parameters
    np.testing.assert_allclose([at["p"], at["s"]], 0.0, atol=1e-4)


def test_an_interval_is_honoured_or_refused():
    first = find_cycle(NETWORK, ZERO, period=4, beta=1.1)
    with pytest.raises(ValueError, match=r"start must have beta within \(1.2, 1.3\), got 1.1"):
        continue_cycle(NETWORK, first, within=(1.2, 1.3))
    branch = continue_cycle(NETWORK, first, within=(1.0, 1.3))
    assert (branch.beta[0], branch.beta[-1], branch.complete) == (1.0, 1.3, True)
    assert (np.diff(branch.beta) > 0).all()
    for index in (0, -1):
        cycle = branch.select(index)
        end, _ = step(NETWORK, cycle.value, cycle.beta)
        for _ in range(3):
            end, _ = step(NETWORK, end, cycle.beta)
        assert np.abs(end.attention - cycle.value.attention).max() < 1e-9
    with pytest.raises(NotConverged, match="followed in beta only within"):
        continue_cycle(NETWORK, first, within=(1.0, 1.3), max_steps=3)
    part = continue_cycle(NETWORK, first, within=(1.0, 1.3), max_steps=3, throw=False)
    assert not part.complete
    # A fixed point that runs to infinity behind its fold.
    low = find_cycle(HENON, [0.9, 0.3], period=1)
    with pytest.raises(NotConverged, match="max_steps"):
        continue_cycle(HENON, low, parameter="a", within=(-0.2, 0.5), max_steps=60)


def test_a_closed_branch_ends_at_its_start():
    """x² + (λ/2)² = 1 as fixed points."""
    ring = Map(
        step=lambda x, p: x + 0.3 * (1.0 - x**2 - (0.5 * p) ** 2),
        dimension=1,
        parameters={"p": 0.0},
    )
    point = find_cycle(ring, [0.9], period=1)
    branch = continue_cycle(ring, point, within=(-3.0, 3.0), step=0.05)
    assert branch.complete
    folds = sorted(value for kind, value in labels(branch, "p") if kind == FOLD)
    np.testing.assert_allclose(folds, [-2.0, 2.0], atol=1e-7)


@pytest.mark.parametrize("parameter", ["gamma", "epsilon"])
def test_a_cycle_is_continued_in_any_parameter_of_a_network(parameter):
    first = find_cycle(NETWORK, ZERO, period=4, beta=1.25)
    within = {"gamma": (20.0, 250.0), "epsilon": (0.001, 0.2)}[parameter]
    branch = continue_cycle(NETWORK, first, parameter=parameter, within=within)
    assert (branch.values[0], branch.values[-1]) == within
    for index in (0, len(branch.values) // 2, -1):
        there = NETWORK.with_parameters(**{parameter: float(branch.values[index])})
        again = find_cycle(there, branch.select(index).value, period=4, beta=1.25)
        expected = branch.select(index).value.attention
        np.testing.assert_allclose(again.value.attention, expected, atol=1e-9)
    for point in branch.bifurcations:
        assert np.abs(np.abs(point.multipliers) - 1.0).min() < 1e-6


def test_the_curve_of_the_published_onset_and_what_lies_on_it():
    """It begins on the closed form, turns subcritical between two Chenciner points, ends at 1:2."""
    driven = find_cycle(NETWORK, ZERO, period=4, beta=1.24)
    torus = find_bifurcation(NETWORK, driven, kind=TORUS)
    assert torus.beta == pytest.approx(1.2434445, abs=1e-7)
    assert torus.rotation == pytest.approx(0.2419386, abs=1e-7)
    curve = continue_bifurcation(
        NETWORK, torus, parameters=("beta", "epsilon"), within=((0.5, 2.5), (0.0, 0.5))
    )
    exact = onset(NETWORK, epsilon=0.0)
    assert curve.values[0] == pytest.approx([exact.critical_beta, 0.0], abs=1e-7)
    assert curve.rotation[0] == pytest.approx(4 * exact.critical_rotation, abs=1e-6)
    found = {one.label: one.cycle.parameters["epsilon"] for one in reversed(curve.codimension_two)}
    assert found["1:4 resonance"] == pytest.approx(0.030, abs=1e-3)
    assert found["1:3 resonance"] == pytest.approx(0.0842, abs=1e-3)
    assert curve.codimension_two[-1].label == "1:2 resonance"
    places = [
        one.cycle.parameters["epsilon"] for one in curve.codimension_two if one.label == "Chenciner"
    ]
    low, high = sorted(places)[:2]
    for epsilon, label in (
        (0.5 * low, "supercritical"), (0.5 * (low + high), "subcritical"), (0.07, "supercritical"),
    ):  # fmt: skip
        (row,) = bifurcation_values(NETWORK, torus, name="epsilon",
                                    values=np.linspace(0.02, epsilon, 9))[-1:]  # fmt: skip
        there = NETWORK.with_parameters(epsilon=float(row[1]))
        near = find_cycle(there, ZERO, period=4, beta=float(row[0]))
        assert normal_form(there, find_bifurcation(there, near, kind=TORUS)).label == label


def test_a_curve_reaches_the_bound_beyond_which_a_network_has_no_parameters():
    """A closed curve is born on a magnetized cycle, so that the equations bend at ε = 0."""
    rng = np.random.default_rng(5)
    network = Network(
        semantic=rng.normal(size=(4, 5, 4)), position=rng.normal(size=(4, 5, 2)), context=6,
        gamma=25.0, epsilon=0.03,
    )  # fmt: skip
    driven = find_cycle(network, Context(np.zeros((6, 5)), 0), period=4, beta=0.2)
    torus = continue_cycle(network, driven, within=(0.2, 3.4)).bifurcations[0]
    assert torus.kind == TORUS
    curve = continue_bifurcation(
        network, torus, parameters=("beta", "epsilon"), within=((3.0, 3.5), (0.0, 0.04)),
        direction="down",
    )  # fmt: skip
    assert curve.values[-1, 1] == 0.0
    # There it is a fixed point of the network without positions, solved for by itself.
    (row,) = bifurcation_values(network, torus, name="epsilon", values=[1e-6])
    assert curve.values[-1, 0] == pytest.approx(row[0], abs=1e-4)


def test_behind_a_subcritical_birth_runs_jump_and_behind_a_supercritical_one_they_grow():
    """At ε = 0.045 the coefficient is positive, at 0.02 negative: against plain runs."""
    sizes = {}
    for epsilon in (0.02, 0.045):
        there = NETWORK.with_parameters(epsilon=epsilon)
        near = find_cycle(there, ZERO, period=4, beta=1.245)
        born = find_bifurcation(there, near, kind=TORUS)
        moved = Context(born.value.attention + 1e-6, 0)
        overlaps, _ = trajectory(there, moved, beta=born.beta + 2e-4, steps=800, transient=200_000)
        sizes[epsilon] = np.ptp(overlaps[::4, 0])
    assert sizes[0.02] < 0.05 < sizes[0.045]


def test_the_cycle_of_28_steps_its_folds_and_doublings():
    start = settled_cycle(1.27, period=28)
    branch = continue_cycle(NETWORK, start, within=(1.245, 1.285), step=2e-4)
    assert branch.complete
    folds = [beta for kind, beta in labels(branch, "beta") if kind == FOLD]
    assert min(folds) == pytest.approx(1.2669596, abs=1e-6)
    assert branch.beta.min() == pytest.approx(min(folds), abs=1e-5)
    flips = [point for point in branch.bifurcations if point.kind == FLIP]
    for beta in (1.26756, 1.26869, 1.269385):
        (flip,) = [one for one in flips if abs(one.beta - beta) < 1e-5]
        doubled = switch_branch(NETWORK, flip, distance=1e-3)
        assert doubled.period == 56
        # Stable behind a supercritical flip, where the cycle of 28 is not.
        assert doubled.stable == (normal_form(NETWORK, flip).label == "supercritical")
        end, _ = trajectory(NETWORK, doubled.value, beta=doubled.beta, steps=56)
        assert np.abs(end[-28:] - end[:28]).max() > 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_branches_of_random_networks_are_not_left_for_others(seed):
    """Plain runs stay on a branch while it is stable; stability changes where it is said to."""
    network = Network.segmented(seed)
    period = network.positions
    start = Context(np.zeros((network.context, network.features)), 0)
    branch = continue_cycle(network, find_cycle(network, start, period=period, beta=0.5),
                            within=(0.3, 2.5))  # fmt: skip
    assert branch.complete
    last = len(branch.beta) - 1 if branch.stable.all() else int(branch.stable.argmin()) - 1
    state = branch.select(0).value
    for beta in np.linspace(0.3, branch.beta[last], 60):
        _, state = trajectory(network, state, beta=beta, steps=0, transient=4000)
    gap = np.abs(state.attention - branch.select(last).value.attention).max()
    assert gap < 1e-6 + 0.2 * (abs(branch.multipliers[last, 0]) > 0.995)
    changes = np.flatnonzero(branch.stable[1:] != branch.stable[:-1])
    crossings = [one for one in branch.bifurcations if abs(abs(one.multipliers[0]) - 1) < 1e-6]
    assert len(crossings) == len(changes)
    for point in crossings:
        if point.kind in (FLIP, TORUS):

            def leading(beta, point=point):
                cycle = find_cycle(network, point.value, period=period, beta=beta)
                return abs(cycle.multipliers[0]) - 1.0

            found = brentq(leading, point.beta * 0.9995, point.beta * 1.0005, xtol=1e-12)
            assert found == pytest.approx(point.beta, abs=1e-8)


def test_two_branches_that_cross_are_told_from_a_fold():
    ferromagnet = Map(step=lambda x, g: np.tanh(g * x), dimension=1, parameters={"g": 0.5})
    branch = continue_cycle(
        ferromagnet, find_cycle(ferromagnet, [0.0], period=1), within=(0.5, 1.5)
    )
    ((kind, g),) = labels(branch, "g")
    assert kind == Bifurcation.BRANCH_POINT
    assert g == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(ValueError, match="got a branch point"):
        normal_form(ferromagnet, branch.bifurcations[0])


COUPLING = np.array([[1.0, 0.2], [0.2, 0.9]])
UNITS = Map(step=lambda x, g: np.tanh(g * (COUPLING @ x)), dimension=2, parameters={"g": 0.5})


def test_behind_a_pitchfork_both_sides_of_the_other_branch_are_found():
    """Of two coupled units: the branch that plain iteration reaches, and its mirror image."""
    origin = continue_cycle(UNITS, find_cycle(UNITS, [0.0, 0.0], period=1), within=(0.5, 1.1))
    (pitchfork,) = origin.bifurcations
    assert pitchfork.kind == Bifurcation.BRANCH_POINT
    critical = 1.0 / np.linalg.eigvalsh(COUPLING)[-1]
    assert pitchfork.parameters["g"] == pytest.approx(critical, abs=1e-6)
    beside = switch_branch(UNITS, pitchfork)
    assert (beside.period, beside.stable) == (1, True)
    branch = continue_cycle(UNITS, beside, within=(0.5, 2.0))
    assert branch.complete
    np.testing.assert_allclose(branch.values[[0, -1]], 2.0)
    np.testing.assert_allclose(branch.value[0], -branch.value[-1], atol=1e-9)
    assert branch.values.min() == pytest.approx(critical, abs=1e-3)
    x = np.array([0.5, 0.5])
    for _ in range(2000):
        x = np.tanh(2.0 * COUPLING @ x)
    ends = branch.value[[0, -1]]
    np.testing.assert_allclose(ends[ends[:, 0] > 0.0][0], x, atol=1e-9)
    # At the pitchfork this branch turns in the parameter and touches the other: nothing else.
    assert branch.bifurcations == ()


def test_behind_a_transcritical_bifurcation_the_other_branch_is_found():
    """x = 0 and x = 1 − 1/r of the logistic map cross at r = 1."""
    zero = continue_cycle(LOGISTIC, find_cycle(LOGISTIC, [0.0], period=1, r=0.5), within=(0.5, 2.0))
    (crossing,) = zero.bifurcations
    other = switch_branch(LOGISTIC, crossing)
    branch = continue_cycle(LOGISTIC, other, within=(0.5, 2.0))
    np.testing.assert_allclose(branch.value[:, 0], 1.0 - 1.0 / branch.values, atol=1e-6)
    assert sorted(branch.values[[0, -1]]) == [0.5, 2.0]
    # From the other branch it leads back.
    (again,) = branch.bifurcations
    assert again.kind == Bifurcation.BRANCH_POINT
    assert abs(switch_branch(LOGISTIC, again).value[0]) < 1e-6


def test_a_network_without_positions_magnetizes_in_a_pitchfork():
    """One feature with equal weights: m = tanh(β m) behind β = 1, whatever γ."""
    network = Network(semantic=np.ones((4, 1, 1)), context=3, gamma=2.0)
    still = find_cycle(network, Context(np.zeros((3, 1)), 0), period=1, beta=0.5)
    (pitchfork,) = continue_cycle(network, still, within=(0.5, 1.5)).bifurcations
    assert pitchfork.beta == pytest.approx(onset(network).critical_beta, abs=1e-6)
    beside = switch_branch(network, pitchfork)
    magnetized = continue_cycle(network, beside, within=(0.5, 1.5))
    assert magnetized.bifurcations == ()
    end = magnetized.select(-1)
    m = abs(end.value.attention[0, 0])
    assert m == pytest.approx(np.tanh(1.5 * m), abs=1e-9)
    assert m > 0.5


def test_a_branch_point_without_two_branches_is_refused():
    origin = continue_cycle(UNITS, find_cycle(UNITS, [0.0, 0.0], period=1), within=(0.5, 1.1))
    (pitchfork,) = origin.bifurcations
    with pytest.raises(ValueError, match="must be a branch point that continue_cycle found"):
        switch_branch(UNITS, replace(pitchfork, tangent=None))
    # Three equal units: two multipliers reach one together with that of the mean.
    three = Map(step=lambda x, g: np.tanh(g * x), dimension=3, parameters={"g": 0.5})
    at_one = find_cycle(three, np.zeros(3), period=1, g=1.0)
    several = replace(
        at_one, kind=Bifurcation.BRANCH_POINT, tangent=np.array([0.0, 0.0, 0.0, 1.0]), along="g"
    )
    with pytest.raises(ValueError, match="one multiplier at 1, got several"):
        switch_branch(three, several)


def test_what_does_not_fit_is_refused_by_name():
    point = find_cycle(HENON, [0.9, 0.3], period=1)
    for call, word in (
        (lambda: find_cycle(HENON, [0.9, 0.3], period=1, c=1.0), "c is no parameter"),
        (lambda: find_cycle(NETWORK, ZERO, period=4), "beta must be given"),
        (lambda: find_cycle(NETWORK, [0.9], period=4, beta=1.0), "start"),
        (lambda: find_cycle(HENON, [0.9], period=1), "start"),
        (lambda: continue_cycle(HENON, point, within=(0.0, 1.0)), "parameter"),
        (lambda: normal_form(HENON, point), "point must be a bifurcation"),
        (
            lambda: switch_branch(HENON, point, parameter="a"),
            "point must be a flip or a branch point",
        ),
        (
            lambda: find_cycle(replace(HENON, step=lambda x, a, b: x[:1]), [0.9, 0.3], period=1),
            "step must return the shape",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            call()


def test_a_steep_condition_is_solved_as_well_as_a_flat_one():
    """Rounding of the parameter alone moves the multiplier of the origin by 1e-8."""
    steep = Map(
        step=lambda x, s: x**3 - (0.9 + 1e8 * (s - 1.0)) * x,
        dimension=1,
        parameters={"s": 1.0},
    )
    point = find_cycle(steep, [0.0], period=1)
    found = find_bifurcation(steep, point, kind=FLIP)
    assert found.parameters["s"] == pytest.approx(1.0 + 1e-9, abs=1e-14)


def test_a_strong_resonance_is_at_its_fraction_of_a_turn():
    for label, cosine in bifurcation_curves._RESONANCES.items():
        turns = int(label.removeprefix("1:").removesuffix(" resonance"))
        assert cosine == pytest.approx(np.cos(2.0 * np.pi / turns), abs=1e-15)
