"""Diagrams of networks with real weights and of other maps (`spinformer.dmft.regimes`)."""

from dataclasses import replace

import numpy as np
import pytest

from spinformer.dmft import regimes
from spinformer.dmft.attractors import Regime, strobed
from spinformer.dmft.continuation import Kind
from spinformer.dmft.lyapunov import returned, tangent_map
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.regimes import (
    Map,
    cycle,
    follow_cycle,
    onset,
    orbit_diagram,
    phase_diagram,
    rotation_number,
)

SIZES = {"transient": 3000, "kept": 2000, "exponent_steps": 2000}


def drawn(seed, *, bits=2, context=4, **others):
    """A network of five kinds of sites with normal weights."""
    rng = np.random.default_rng(seed)
    return Network(
        semantic=rng.normal(size=(4, 3, 5)),
        position=rng.normal(size=(4, 3, bits)),
        context=context,
        **({"gamma": 30.0, "epsilon": 0.02 if bits else 0.0} | others),
    )


@pytest.mark.parametrize(("bits", "context"), [(2, 4), (1, 5), (0, 3)])
def test_real_weights_and_long_windows_move_as_the_plain_step_says(bits, context):
    network = drawn(1, bits=bits, context=context)
    state = random_contexts(network, 0, count=1).select(0)
    found, end = trajectory(network, state, beta=0.8, steps=30)
    _, matrix = returned(network, state, beta=0.8, steps=1)
    assert np.allclose(matrix, tangent_map(network, state, 0.8), atol=1e-12)
    for overlaps in found:
        state, expected = step(network, state, 0.8)
        assert np.allclose(overlaps, expected, atol=1e-9)
    assert end.position == state.position


def test_explicit_bits_of_real_weights_are_segments():
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(4, 2, 3))
    network = Network(semantic=weights, context=3, gamma=5.0, fractions=[0.5, 0.25, 0.25])
    explicit = Network(semantic=network.weights(4), context=3, gamma=5.0)
    start = random_contexts(network, 0, count=4)
    one, other = (trajectory(n, start, beta=1.5, steps=20)[0] for n in (network, explicit))
    assert np.allclose(one, other, atol=1e-12)
    bound = np.abs(weights) @ network.fractions
    assert np.allclose(network.reach, bound)
    assert np.abs(one).max() <= bound[0].max()


def test_contexts_and_parameters_are_axes():
    network = drawn(4)
    starts, betas, gammas = random_contexts(network, 0, count=3), np.array([0.3, 0.9]), [5.0, 30.0]
    crossed = Context(starts.attention[:, None, None], 0)
    found, end = trajectory(network, crossed, beta=betas[:, None], gamma=np.array(gammas), steps=40)
    assert found.shape == (3, 2, 2, 40, 3)
    assert end.attention.shape == (3, 2, 2, 4, 3)
    for c in range(3):
        one, _ = trajectory(network, starts.select(c), beta=0.9, gamma=5.0, steps=40)
        assert (found[c, 1, 0] == one).all()
    # Networks come first, whatever follows.
    networks = [drawn(seed) for seed in (4, 5, 6)]
    many, _ = trajectory(
        networks, Context(crossed.attention[None, ..., 0, :, :], 0), beta=betas, steps=5
    )
    assert many.shape == (3, 3, 2, 5, 3)
    assert (many[0, 1] == trajectory(network, starts.select(1), beta=betas, steps=5)[0]).all()
    with pytest.raises(ValueError, match="must broadcast together"):
        trajectory(networks, starts.select([0, 1]), beta=betas[:, None], steps=5)


def test_a_network_and_the_same_map_in_plain_numpy_have_one_diagram():
    network, shape = drawn(6, bits=0, context=2), (2, 3)

    def plain(x, beta):
        following, _ = step(network, Context(x.reshape(-1, *shape), 0), beta)
        return following.attention.reshape(x.shape)

    def tangent(x, beta):
        # Central differences, of all directions side by side.
        width = 1e-6 * np.eye(6)
        ends = [plain((x[:, None] + s * width).reshape(-1, 6), np.repeat(beta, 6)) for s in (1, -1)]
        return ((ends[0] - ends[1]) / 2e-6).reshape(-1, 6, 6).swapaxes(1, 2)

    start = random_contexts(network, 0, count=1).select(0)
    betas = np.linspace(0.5, 4.0, 8)
    sizes = {"transient": 2000, "kept": 1000, "exponent_steps": 400}
    short = replace(regimes.SHORT_STRETCHES, longest=200)
    ours, theirs = (
        orbit_diagram(system, state, beta=betas, thresholds=short, exponents=1, **sizes)
        for system, state in (
            (network, start),
            (Map(step=plain, tangent=tangent), start.attention.ravel()),
        )
    )
    assert (ours.period == theirs.period).all()
    assert 0 < np.count_nonzero(ours.period) < len(betas)
    gap = np.abs(ours.exponents.value - theirs.exponents.value)
    assert (gap <= 4 * np.hypot(ours.exponents.error, theirs.exponents.error) + 2e-3).all()


def test_known_maps_have_the_regimes_that_they_should():
    logistic = Map(
        step=lambda x, r: r[:, None] * x * (1 - x),
        tangent=lambda x, r: (r[:, None] * (1 - 2 * x))[..., None],
    )
    found = orbit_diagram(logistic, [0.3], r=[0.5, 2.5, 3.2, 3.5, 3.83, 4.0], **SIZES)
    assert found.period.tolist() == [1, 1, 2, 4, 3, 0]
    assert found.regime[-1] == Regime.CHAOTIC
    assert found.exponents.value[-1, 0] == pytest.approx(np.log(2), abs=0.02)
    assert found.exponents.value[0, 0] == pytest.approx(np.log(0.5), abs=1e-6)

    # Two rotations of one circle, by the golden mean and by a third of a turn, over a second axis
    # that does nothing.
    def turn(angle):
        c, s = np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)
        return np.array([[c, -s], [s, c]]).transpose(2, 0, 1)

    circle = Map(
        step=lambda x, angle, idle: np.einsum("bij,bj->bi", turn(angle), x),
        tangent=lambda x, angle, idle: turn(angle),
    )
    golden = (np.sqrt(5) - 1) / 2
    plane = phase_diagram(circle, [1.0, 0.0], angle=[1 / 3, golden], idle=[0.0, 1.0, 2.0])
    assert list(plane.values) == ["idle", "angle"]
    assert plane.regime.tolist() == [[Regime.PERIODIC, Regime.QUASI_PERIODIC]] * 3
    assert plane.period[:, 0].tolist() == [3] * 3


def test_a_phase_diagram_is_its_rows():
    network = drawn(5)
    start = random_contexts(network, 1, count=2)
    betas, shares = np.array([0.2, 0.6, 1.0]), np.array([0.0, 0.1])
    plane = phase_diagram(network, start, beta=betas, epsilon=shares, transient=2000)
    assert plane.regime.shape == (2, 2, 3)
    assert plane.values["epsilon"].tolist() == [0.0, 0.1]
    row = orbit_diagram(
        network, start.select(1), beta=betas, epsilon=0.1, transient=2000, kept=4000, bins=1,
        exponent_steps=4000, exponents=1, thresholds=regimes.SHORT_STRETCHES,
    )  # fmt: skip
    assert (plane.regime[1, 1] == row.regime).all()
    assert (plane.exponents.value[1, 1] == row.exponents.value).all()
    critical = onset(network).critical_beta
    assert (plane.disordered[0] == (betas * (1 - shares[:, None]) < critical)).all()


def test_independent_bits_rest_and_the_report_says_why():
    network = Network.segmented(0, segments=1000, gamma=60.0).merged()
    assert 5.0 < onset(network).critical_beta < 200.0
    found = orbit_diagram(network, beta=np.linspace(0.1, 3.0, 20), **SIZES)
    assert (found.regime == Regime.PERIODIC).all()
    assert found.disordered.all()
    assert "N^-1/2" in found.report()
    few = Network.segmented(0)
    beyond = onset(few).critical_beta * np.array([1.1, 1.2])
    assert "rests" not in orbit_diagram(few, beta=beyond, **SIZES).report()
    part = found.select(found.values["beta"] > 2.0)
    assert part.values["beta"].min() > 2.0
    assert part.regime.shape == part.values["beta"].shape == part.disordered.shape
    assert (part.exponents.value == found.exponents.value[-len(part.regime) :]).all()


def test_the_onset_scales_with_the_weights():
    network = drawn(6)
    larger = Network(semantic=1e-6 * network.semantic, context=4, gamma=1.0)
    assert onset(larger).critical_beta == pytest.approx(1e12 * onset(network).critical_beta)
    # A matrix of rank one: the other eigenvalues are zero, however small the weights.
    flat = Network(semantic=np.full((4, 3, 2), 1e-7), context=4, gamma=1.0)
    assert np.isinf(onset(flat).beta).tolist() == [False, True, True]


def test_cycles_curves_and_their_bifurcations_of_real_weights():
    """The driven cycle loses its stability where long runs leave it, and turns as they turn."""
    network = drawn(6)
    first = cycle(network, Context(np.zeros((4, 3)), 0), beta=0.5, period=4)
    assert first.stable
    branch = follow_cycle(network, first, step=0.05, within=(0.4, 2.5))
    point = branch.bifurcations[0]
    assert point.kind == Kind.TORUS
    assert point.beta == pytest.approx(onset(network, epsilon=0.02).critical_beta, rel=0.1)
    betas = point.beta + np.array([-0.01, 1e-3, 0.01])
    points, _ = strobed(network, point.value, beta=betas, count=4000, transient=60_000)
    spread = np.ptp(points, axis=1).max(axis=1)
    assert spread[0] < 1e-6 < 1e-3 < spread[2]
    turn = rotation_number(points[1])
    assert turn.turns.value == pytest.approx(point.rotation, abs=0.02)


def test_what_does_not_fit_is_refused_by_name():
    network = drawn(0)
    with pytest.raises(ValueError, match="semantic must be finite"):
        Network(semantic=np.full((4, 1, 1), np.nan), context=1, gamma=1.0)
    with pytest.raises(TypeError, match="system must be a network or a Map"):
        orbit_diagram(3, beta=[1.0])
    with pytest.raises(ValueError, match="1 of the parameters must hold values"):
        orbit_diagram(network, beta=1.0)
    with pytest.raises(ValueError, match="2 of the parameters must hold values"):
        phase_diagram(network, beta=[1.0, 2.0])
    with pytest.raises(TypeError, match=r"beta and.*got \['beta', 'gama'\]"):
        orbit_diagram(network, beta=[1.0], gama=3.0)
    with pytest.raises(ValueError, match="beta must have entries"):
        orbit_diagram(network, beta=[-1.0])
    with pytest.raises(TypeError, match="start must be a Context"):
        orbit_diagram(network, np.zeros((4, 3)), beta=[1.0])
    away = Map(
        step=lambda x, a: a[:, None] * x, tangent=lambda x, a: a[:, None, None] + 0 * x[..., None]
    )
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="returned by step must be f"):
        orbit_diagram(away, [1.0], a=[1e9], transient=100)
    with pytest.raises(ValueError, match="must hold only"):
        network.correlations()
