"""Where rest ends; networks with real weights, long windows, batches of contexts."""

import numpy as np
import pytest
from known_networks import tangent_map

from compendium.c32_paths_to_mean_fields.functional import odd_correlations
from spinformer.dmft.cycles import Bifurcation, find_bifurcation, find_cycle
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.stroboscopic import rotation_number, stroboscopic_section


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
    points, end = stroboscopic_section(network, start, beta=0.8, count=4, transient=transient)
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
    beta = np.array([[0.9], [1.5]])
    gamma = np.array([5.0, 30.0])
    found, end = trajectory(network, crossed, beta=beta, gamma=gamma, steps=20)
    assert end.attention.shape == (4, 2, 2, 3, 2)
    other, _ = trajectory(explicit, start, beta=1.5, steps=20)
    assert np.allclose(found[:, 1, 0], other, atol=1e-12)
    assert np.allclose(network.overlap_bound, np.abs(weights) @ network.fractions)
    assert np.abs(found).max() <= network.overlap_bound[0].max()


def test_the_onset_scales_with_the_weights():
    network = drawn(6)
    larger = Network(semantic=1e-6 * network.semantic, context=4, gamma=1.0)
    assert onset(larger).critical_beta == pytest.approx(
        1e12 * onset(network, epsilon=0.0).critical_beta
    )
    # A matrix of rank one: the other eigenvalues are zero, however small the weights.
    flat = Network(semantic=np.full((4, 3, 2), 1e-7), context=4, gamma=1.0)
    assert np.isinf(onset(flat).beta).tolist() == [False, True, True]


def test_cycles_curves_and_their_bifurcations_of_real_weights():
    """The driven cycle loses its stability where long runs leave it, and turns as they turn."""
    network = drawn(6)
    first = find_cycle(network, Context(np.zeros((4, 3)), 0), beta=0.5, period=4)
    assert abs(first.multipliers[0]) < 1.0
    expected = onset(network).critical_beta
    near = find_cycle(network, first.value, beta=expected, period=4)
    point = find_bifurcation(network, near, kind=Bifurcation.NEIMARK_SACKER)
    assert point.beta == pytest.approx(expected, rel=0.1)
    betas = point.beta + np.array([-0.01, 1e-3, 0.01])
    points, _ = stroboscopic_section(network, point.value, beta=betas, count=4000, transient=60_000)
    spread = np.ptp(points, axis=1).max(axis=1)
    assert spread[0] < 1e-6 < 1e-3 < spread[2]
    turn = rotation_number(points[1])
    assert turn.value == pytest.approx(point.rotation, abs=0.02)


def test_points_that_do_not_move_have_no_rotation_number():
    angle = 2 * np.pi * 0.3 * np.arange(100)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    found = rotation_number(np.stack([circle, np.full_like(circle, 0.7), 1e-6 * circle]))
    assert np.isnan(found.value[1])
    assert np.isnan(found.error[1])
    np.testing.assert_allclose(found.value[[0, 2]], 0.3, atol=1e-12)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="must hold only"):
        odd_correlations(drawn(0))


SIZES = [(2, 3, 4), (3, 5, 2), (4, 5, 3), (3, 16, 8), (1, 3, 1), (5, 9, 1)]


def at_rest(network, beta, **parameters):
    """Eigenvalues of the plain tangent map of the disordered state."""
    zero = Context(np.zeros((network.context, network.features)), 0)
    return np.linalg.eigvals(tangent_map(network, zero, beta, **parameters))


@pytest.mark.parametrize("seed", range(12))
def test_every_instability_is_an_eigenvalue_on_the_unit_circle(seed):
    features, segments, context = SIZES[seed % len(SIZES)]
    network = Network.segmented(
        seed, features=features, segments=segments, bits=3, context=context, gamma=1.0 + 30 * seed
    )
    found = onset(network, epsilon=0.0)
    for beta, rotation in zip(found.beta, found.rotation, strict=True):
        if np.isfinite(beta):
            z = at_rest(network, beta, epsilon=0.0)
            wanted = np.exp(2j * np.pi * rotation)
            assert np.abs(z - wanted).min() < 1e-12 or np.abs(z - wanted.conj()).min() < 1e-12
    if np.isfinite(found.critical_beta):
        for factor, stable in ((0.999, True), (1.001, False)):
            z = at_rest(network, factor * found.critical_beta, epsilon=0.0)
            assert (np.abs(z).max() < 1.0) == stable
    else:
        assert np.abs(at_rest(network, 50.0, epsilon=0.0)).max() < 1e-3


def test_the_published_network():
    network = Network.poclopez2024()
    found = onset(network, epsilon=0.0)
    assert found.critical_beta == pytest.approx(1.22124, abs=5e-6)
    assert found.critical_rotation == pytest.approx(0.05888, abs=5e-6)
    # γ drops out, ε does not; at γ = 0 the position averages out of a whole window.
    for gamma in (0.0, 50.0):
        z = at_rest(network, found.critical_beta, gamma=gamma, epsilon=0.0)
        assert np.abs(z).max() == pytest.approx(1.0, abs=1e-12)
    shifted = onset(network).critical_beta
    assert shifted == pytest.approx(1.24616, abs=5e-6)
    assert np.abs(at_rest(network, shifted, gamma=0.0)).max() == pytest.approx(1.0, abs=1e-12)
