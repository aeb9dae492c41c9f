"""Tangent maps against automatic differentiation, exponents against QR in NumPy and sum rules."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from known_networks import step_in_torch, tangent_map

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.dmft.lyapunov import (
    average_growth,
    detect_change_point,
    lyapunov_spectrum,
    period_map,
)
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, trajectory
from spinformer.dmft.network import Context, Network

NETWORK = Network.poclopez2024()


def plain_exponents(network, context, beta, *, count, **how):
    """By single steps and Householder's QR."""
    state = context
    dimension = network.context * network.features

    def push(frame):
        nonlocal state
        state, tangent = period_map(network, state, beta=beta, steps=1)
        return tangent @ frame

    return lyapunov_exponents(push, dimension=dimension, count=count or dimension, **how).value


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    features=st.integers(1, 4),
    segments=st.integers(1, 5),
    bits=st.integers(1, 3),
    beta=st.floats(0.0, 3.0),
    gamma=st.floats(0.0, 150.0),
    epsilon=st.floats(0.0, 1.0),
)
def test_the_derivative_of_a_step_equals_autograd(
    seed, features, segments, bits, beta, gamma, epsilon
):
    network = Network.segmented(
        seed, features=features, segments=segments, bits=bits, gamma=gamma, epsilon=epsilon
    )
    if seed % 2:
        semantic = np.random.default_rng(seed).normal(size=network.semantic.shape)
        network = replace(network, semantic=semantic)
    attention = random_contexts(network, seed, count=1).attention[0]
    position = seed % network.positions
    pushed = tangent_map(network, Context(attention, position), beta)
    jacobian = torch.autograd.functional.jacobian(
        lambda moved: step_in_torch(network, moved, position, beta=beta)[0], torch.tensor(attention)
    )
    size = network.context * features
    scale = max(1.0, np.abs(pushed).max())
    assert np.abs(pushed - jacobian.numpy().reshape(size, size)).max() < 1e-11 * scale


@pytest.mark.parametrize(("qr_interval", "count"), [(1, None), (2, None), (3, 5), (4, 2)])
def test_spectrum_equals_householder_qr_on_the_same_orbit(qr_interval, count):
    # A soft attention: all six exponents stay above rounding.
    network = Network.segmented(
        6, features=2, segments=5, bits=3, context=3, gamma=3.0, epsilon=0.2
    )
    start = random_contexts(network, 0, count=1).select(0)
    reference = plain_exponents(network, start, 1.3, count=count, steps=600, align=300)
    spectrum = partial(
        lyapunov_spectrum,
        network,
        beta=1.3,
        steps=600,
        align=300,
        count=count,
        qr_interval=qr_interval,
    )
    found = spectrum(start)
    assert found.resolved.all()
    assert np.abs(found.exponents.value - reference).max() < 5e-3
    # Here the first steps lose every direction; what was lost while the frame aligned is forgotten.
    assert spectrum(Context(np.full((3, 2), 1e3), 0)).resolved.all()


@pytest.mark.parametrize("count", [2, None])
def test_where_a_long_interval_leaves_rounding_nothing_is_resolved(count):
    # In chaos, where vectors grow by e^0.14 a step and lie along the first of them after a while.
    start = random_contexts(NETWORK, 0, count=8)
    spectrum = partial(
        lyapunov_spectrum, NETWORK, start, beta=1.28, steps=4096, transient=1000, count=count
    )
    usual = spectrum()
    for interval, least in ((32, 2), (64, 2), (128, 1)):
        found = spectrum(qr_interval=interval)
        wrong = np.abs(found.exponents.value - usual.exponents.value) > 1e-3
        assert not (found.resolved & wrong).any()
        assert (found.resolved.sum(axis=-1) >= least).all()
        assert count or wrong.any()


def test_what_is_averaged_follows_the_alignment():
    # In chaos the leading direction is found in 150 steps, and rounding is not felt in 200.
    start = random_contexts(NETWORK, 0, count=1).select(0)
    found = lyapunov_spectrum(NETWORK, start, beta=1.4, steps=50, count=1, align=150, batches=5)
    plain = plain_exponents(NETWORK, start, 1.4, steps=50, count=1, align=150)
    assert found.exponents.value == pytest.approx(plain, abs=1e-4)


def test_stretches_that_are_no_multiple_of_the_steps_between_lose_nothing():
    contexts = random_contexts(NETWORK, 3, count=3)
    beta = np.array([0.5, 1.24, 2.8])
    spectrum = partial(lyapunov_spectrum, NETWORK, contexts, beta=beta, steps=24, count=1)
    short = spectrum(batches=4).growth[..., 0]
    whole = spectrum(batches=2).growth[..., 0]
    np.testing.assert_allclose(short.reshape(3, 2, 2).mean(axis=2), whole, atol=1e-9)


def test_same_numbers_whatever_the_lanes_and_threads():
    start = poclopez2024_context(NETWORK, steps=500)
    beta = np.linspace(1.24, 1.4, 130)
    spectrum = partial(lyapunov_spectrum, NETWORK, start, steps=200, count=3, align=50)
    many = spectrum(beta=beta, threads=2)
    single = spectrum(beta=beta[129], threads=1)
    assert (many.exponents.value[129] == single.exponents.value).all()
    assert (many.exponents.error[129] == single.exponents.error).all()


@pytest.mark.parametrize(("beta", "steps"), [(1.28, 4000), (1.4, 2000)])
def test_errors_are_the_scatter_over_independent_contexts(beta, steps):
    starts = random_contexts(NETWORK, 5, count=320)
    found = lyapunov_spectrum(NETWORK, starts, beta=beta, steps=steps, count=2, transient=3000)
    stated = np.sqrt((found.exponents.error**2).mean(axis=0))
    scatter = found.exponents.value.std(axis=0, ddof=1)
    assert ((scatter / stated > 0.75) & (scatter / stated < 1.1)).all()
    assert detect_change_point(found.growth).jumps.mean() < 0.01


def test_an_error_grows_with_correlations_between_stretches():
    rng = np.random.default_rng(0)
    lengths = np.full(20, 100)
    white = rng.normal(size=(4000, 20, 1))
    walk = np.zeros((4000, 40, 1))
    for n in range(1, 40):
        walk[:, n] = 0.5 * walk[:, n - 1] + rng.normal(size=(4000, 1))
    for growth, most in ((white, 1.05), (walk[:, 20:], 1.5)):
        found = average_growth(growth, lengths)
        assert 0.85 < (found.value / found.error).std() < most
    naive = walk[:, 20:].std(axis=1, ddof=1) / np.sqrt(20)
    assert (walk[:, 20:].mean(axis=1) / naive).std() > 1.6


@pytest.mark.parametrize("last", [1, 2, 10, 15, 19])
def test_an_error_reaches_to_where_a_transient_went(last):
    # Stretches 0 … last − 1 grow at 0.15, the rest at 0, which is what lasts.
    noise = 0.01 * np.random.default_rng(last).normal(size=(500, 20, 1))
    growth = noise + np.where(np.arange(20) < last, 0.15, 0.0)[:, None]
    jump = detect_change_point(growth)
    assert jump.jumps.all()
    # Both levels, the first with its error (of one stretch, where one is all there is).
    assert 0.85 < np.sqrt((((jump.before - 0.15) / jump.error) ** 2).mean()) < 1.15
    assert np.abs(jump.after).mean() < 0.01
    found = average_growth(growth, np.full(20, 100))
    assert (found.value / found.error).max() < 2.0
    assert np.median(found.value / found.error) == pytest.approx(1.0, abs=0.1)
    assert detect_change_point(noise).jumps.mean() < 0.02
    assert average_growth(noise, np.full(20, 100)).error.mean() < 0.004
    # Too few stretches to tell; and rounding is no jump.
    assert not detect_change_point(growth[:, :7]).jumps.any()
    assert not average_growth(np.zeros((20, 1)), np.full(20, 1)).error.any()


def test_averages_and_errors_by_hand():
    # Stretches weigh by their length.
    found = average_growth(np.array([[1.0], [4.0]]), np.array([2, 1]))
    assert (found.value, found.error) == (pytest.approx(2.0), pytest.approx(1.5))
    assert np.isnan(average_growth(np.ones((1, 1)), np.ones(1)).error).all()
    # Before a jump: two means are taken from eight numbers, which leave 8 over 6.
    steps = np.array([1, 3, 1, 3, 11, 13, 11, 13])[:, None]
    jump = detect_change_point(steps)
    assert jump.jumps.all()
    assert (jump.before, jump.after) == (pytest.approx(2.0), pytest.approx(12.0))
    assert jump.error == pytest.approx(np.sqrt(8 / 6 / 4))
    assert average_growth(steps, np.ones(8)).error == pytest.approx(5.0)


def test_nothing_below_a_lost_direction_is_resolved():
    # All bits of one kind: each step leaves 2·3 − 3 old directions and one new one.
    dead = Network.segmented(0, features=3, segments=1, bits=1)
    start = random_contexts(dead, 0, count=1)
    found = lyapunov_spectrum(dead, start, beta=1.0, steps=205, align=50, qr_interval=2)
    assert np.isfinite(found.exponents.value).all()
    assert found.resolved[0, [0, -1]].tolist() == [True, False]
    # The slowest five shrink by less than e³ a step, the others by more than e⁹. Which of these
    # is lost first is decided by rounding; what follows from it is not.
    network = Network.segmented(3, segments=2)
    start = random_contexts(network, 0, count=1)
    found = lyapunov_spectrum(network, start, beta=1.2, steps=2000, align=50, qr_interval=1)
    assert 5 <= found.resolved.sum() < 12
    assert (np.diff(found.resolved[0].astype(int)) <= 0).all()


def test_transient_steps_come_before_the_frame():
    start = random_contexts(NETWORK, 0, count=3)
    whole = lyapunov_spectrum(NETWORK, start, beta=1.3, steps=80, count=2, transient=40)
    moved = trajectory(NETWORK, start, beta=1.3, steps=1, transient=39)[1]
    assert whole == lyapunov_spectrum(NETWORK, moved, beta=1.3, steps=80, count=2)
    end = trajectory(NETWORK, moved, beta=1.3, steps=1, transient=500 + 80 - 1)[1]
    assert whole.context == end


def test_fewer_steps_than_stretches_are_averaged_one_by_one():
    start = random_contexts(NETWORK, 0, count=1)
    assert lyapunov_spectrum(NETWORK, start, beta=1.2, steps=5).growth.shape == (1, 5, 12)
