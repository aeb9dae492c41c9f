"""Networks with real weights, long windows and batches of contexts and parameters."""

import numpy as np
import pytest

from compendium.c32_paths_to_mean_fields.functional import odd_correlations
from compendium.c33c_bifurcations.cycles import Kind, bifurcation, cycle
from compendium.c33c_bifurcations.study import rotation_number
from spinformer.dmft.attractors import strobed
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset


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
    for overlaps in found:
        state, expected = step(network, state, 0.8)
        assert np.allclose(overlaps, expected, atol=1e-9)
    assert np.allclose(end.attention, state.attention, atol=1e-9)
    assert end.position == state.position


@pytest.mark.parametrize("transient", [0, 5, 8])
def test_strobed_points_are_the_tokens_at_position_0(transient):
    network = drawn(3)
    start = random_contexts(network, 2, count=1).select(0)
    whole, _ = trajectory(network, start, beta=0.8, steps=30)
    points, end = strobed(network, start, beta=0.8, count=4, transient=transient)
    # Kept is the last token of every period, of whole periods after the transient.
    first = transient + -transient % 4 + 4
    assert np.array_equal(points, whole[first::4][:4])
    assert end.position == 1


def test_explicit_bits_of_real_weights_are_segments_and_starts_and_parameters_are_axes():
    weights = np.random.default_rng(2).normal(size=(4, 2, 3))
    network = Network(semantic=weights, context=3, gamma=5.0, fractions=[0.5, 0.25, 0.25])
    explicit = Network(semantic=network.weights(4), context=3, gamma=5.0)
    start = random_contexts(network, 0, count=4)
    crossed = Context(start.attention[:, None, None], 0)
    beta, gamma = np.array([[0.9], [1.5]]), np.array([5.0, 30.0])
    found, end = trajectory(network, crossed, beta=beta, gamma=gamma, steps=20)
    assert end.attention.shape == (4, 2, 2, 3, 2)
    other, _ = trajectory(explicit, start, beta=1.5, steps=20)
    assert np.allclose(found[:, 1, 0], other, atol=1e-12)
    assert np.allclose(network.reach, np.abs(weights) @ network.fractions)
    assert np.abs(found).max() <= network.reach[0].max()


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
    assert abs(first.multipliers[0]) < 1.0
    expected = onset(network, epsilon=0.02).critical_beta
    near = cycle(network, first.value, beta=expected, period=4)
    point = bifurcation(network, near, kind=Kind.TORUS)
    assert point.beta == pytest.approx(expected, rel=0.1)
    betas = point.beta + np.array([-0.01, 1e-3, 0.01])
    points, _ = strobed(network, point.value, beta=betas, count=4000, transient=60_000)
    spread = np.ptp(points, axis=1).max(axis=1)
    assert spread[0] < 1e-6 < 1e-3 < spread[2]
    turn = rotation_number(points[1])
    assert turn.value == pytest.approx(point.rotation, abs=0.02)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="must hold only"):
        odd_correlations(drawn(0))
