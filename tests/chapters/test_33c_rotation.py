import numpy as np
import pytest

from compendium.c33c_bifurcations.rotation import rotation_number

GOLDEN = (np.sqrt(5) - 1) / 2


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


@pytest.mark.parametrize("omega", [0.2419, 0.26, 0.1, 1 - 0.2419, GOLDEN])
def test_against_the_lift_of_a_circle_map(omega):
    theta = circle_map(omega, 0.5, 20_000)
    truth = (theta[-1] - theta[0]) / 20_000
    truth = min(truth % 1, 1 - truth % 1)
    found = rotation_number(on_a_curve(theta[:4001]))
    assert found.value == pytest.approx(truth, abs=1e-4)
    longer = rotation_number(on_a_curve(theta[:8001]))
    # The stated error covers what twice the length changes, and is far below 1/n.
    assert abs(longer.value - found.value) <= 3 * found.error + 1e-12
    assert found.error < 1e-6


def test_a_locked_motion_is_rational_and_batches_keep_apart():
    both = [on_a_curve(circle_map(omega, 0.0, 1000)) for omega in (0.2, 0.3)]
    np.testing.assert_allclose(rotation_number(np.stack(both)).value, [0.2, 0.3], atol=1e-12)


def test_the_error_of_noisy_turns_is_about_their_scatter():
    """It comes from the halves of a run: right to a factor of about two, not of ten."""
    rng = np.random.default_rng(1)
    theta = 0.2 * np.arange(301) + np.cumsum(0.03 * rng.standard_normal((60, 301)), axis=1)
    angle = 2 * np.pi * theta
    found = rotation_number(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    scatter = found.value.std(ddof=1)
    assert 0.5 < found.error.mean() / scatter < 3.0


@pytest.mark.parametrize("order", [1, -1])
def test_the_error_sees_a_change_in_either_half(order):
    angle = 2 * np.pi * np.cumsum(np.repeat([0.2, 0.2, 0.2, 0.26], 100)[::order])
    found = rotation_number(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    assert found.error > 0.02
