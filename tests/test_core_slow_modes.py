"""Slow modes of chains whose eigenvalues are known, surrogates by FFT."""

import numpy as np
import pytest

from compendium.c33b_lifetimes.slow_modes import box_labels, last_core, phase_surrogate, slow_modes


def _chain(kernel, *, steps, seed):
    state, found = 0, []
    for draw in np.random.default_rng(seed).random(steps).tolist():
        state = int(draw > kernel[state, 0])
        found.append(state)
    return np.array(found)


@pytest.mark.parametrize("lag", [1, 5])
def test_the_time_of_two_parts_is_that_of_the_chain(lag):
    # Leaves part 0 with probability 0.01, part 1 with 0.03: the eigenvalue is 1 - 0.01 - 0.03.
    chain = _chain(np.array([[0.99, 0.01], [0.03, 0.97]]), steps=60_000, seed=0)
    # Within a part 40 boxes at random each, so that more than the small problem is solved.
    labels = chain * 40 + np.random.default_rng(1).integers(0, 40, len(chain))
    modes = slow_modes(labels, lag=lag)
    assert modes.times[0] == pytest.approx(-1.0 / np.log(0.96), rel=0.1)
    # The second is another real one of the ten largest moduli, or the bound that these set.
    kernel = np.zeros((80, 80))
    np.add.at(kernel, (labels[:-lag], labels[lag:]), 1.0)
    found = np.linalg.eigvals(kernel / kernel.sum(axis=1, keepdims=True))
    largest = found[np.argsort(-np.abs(found))[:10]]
    real = np.sort(largest.real[(np.abs(largest.imag) < 1e-9) & (largest.real > 0.0)])
    least = real[-3] if len(real) > 2 else np.abs(largest).min()
    assert modes.times[1] == pytest.approx(-lag / np.log(least), rel=1e-4)
    # The vector is flat on either part: by mean 0 and mean square 1 it is sqrt(3) on the rarer.
    assert np.abs(modes.vector[40:]).mean() == pytest.approx(np.sqrt(3.0), rel=0.1)
    assert modes.vector[:40].mean() * modes.vector[40:].mean() < 0.0


def test_turning_is_no_part_and_an_end_that_is_never_left_is_no_trap():
    turning = np.arange(6000) % 3
    noisy = np.where(np.random.default_rng(0).random(6000) < 0.1, 2, turning)
    assert slow_modes(noisy, lag=1).times[0] < 1.0
    # A wheel of twelve boxes has complex eigenvalues of real part 0.95 cos 30°: no parts either.
    slips = np.random.default_rng(0).random(6000) < 0.05
    wheel = np.cumsum(1 + slips) % 12
    assert slow_modes(wheel, lag=1).times[0] < 1.0
    mixed = np.random.default_rng(2).integers(0, 80, 20_000)
    ended = np.concatenate([mixed, [80]])
    assert slow_modes(ended, lag=1).times[0] < 1.0


def test_boxes_are_those_of_a_plain_loop():
    points = np.random.default_rng(3).uniform(-1, 1, (2, 50, 3))
    labels = box_labels(points, side=0.5)
    named: dict[tuple[int, ...], int] = {}
    for label, point in zip(labels.ravel(), points.reshape(-1, 3), strict=True):
        key = tuple(np.floor(point / 0.5).astype(int).tolist())
        assert named.setdefault(key, int(label)) == label
    assert sorted(named.values()) == list(range(len(named)))


def test_the_core_that_was_visited_last():
    seen = last_core(np.array([[0.5, 0.9, 0.5, 0.1], [0.1, 0.5, 0.9, 0.5]]), low=0.2, high=0.8)
    assert seen.tolist() == [[-1, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("length", [200, 201])
def test_a_surrogate_keeps_spectra_and_cross_spectra_and_nothing_else(length):
    rng = np.random.default_rng(4)
    series = rng.standard_normal((length, 2)).cumsum(axis=0) ** 2
    twin = phase_surrogate(series, seed=5)
    assert twin.shape == series.shape
    assert np.isrealobj(twin)
    one, two = (np.fft.fft(x - x.mean(axis=0), axis=0) for x in (series, twin))
    np.testing.assert_allclose(np.abs(two), np.abs(one), atol=1e-7)
    np.testing.assert_allclose(
        two[:, 0] * two[:, 1].conj(), one[:, 0] * one[:, 1].conj(), atol=1e-4
    )
    np.testing.assert_allclose(twin.mean(axis=0), series.mean(axis=0))
    skew = [((x - x.mean(axis=0)) ** 3).mean(axis=0) / x.std(axis=0) ** 3 for x in (series, twin)]
    assert not np.allclose(*skew, rtol=0.05)
    assert not np.array_equal(twin, phase_surrogate(series, seed=6))
