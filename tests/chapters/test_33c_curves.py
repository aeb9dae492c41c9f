import numpy as np
import pytest

from compendium.c33c_bifurcations import curves
from spinformer.core.solve import NotConverged


def follow(equations, start, *, step, within=(-np.inf, np.inf), max_steps=200):
    return curves.follow(equations, np.array(start), step=step, within=within, max_steps=max_steps)


def test_a_closed_curve_is_followed_once_around():
    def ellipse(u):
        x, y = u
        return np.array([x**2 + (y / 3.0) ** 2 - 1.0]), np.array([[2 * x, 2 * y / 9.0]])

    found = follow(ellipse, [1.0, 0.05], step=0.1)
    x, y = found.T
    np.testing.assert_allclose(x**2 + y**2 / 9.0, 1.0, atol=1e-9)
    turned = np.unwrap(np.arctan2(y / 3.0, x))
    assert (np.diff(turned) > 0).all()
    assert 5.5 < turned[-1] - turned[0] < 6.8
    assert follow(ellipse, [1.0, 0.05], step=-0.1)[1, 1] < 0


def test_a_curve_that_ends_and_a_start_that_is_none():
    def wall(u):
        x, p = u
        if p > 0.5:
            return np.array([np.nan]), np.full((1, 2), np.nan)
        return np.array([x]), np.array([[1.0, 0.0]])

    # It gives up below the smallest step, not far below it.
    found = follow(wall, [0.0, 0.0], step=0.1, max_steps=1000)
    assert 2e-6 < 0.5 - found[-1, 1] < 2e-5
    assert len(follow(wall, [0.0, 0.0], step=-0.1, max_steps=5)) == 5

    def never(u):
        return np.array([u[0] ** 2 + 1.0]), np.array([[2 * u[0], 0.0]])

    with pytest.raises(NotConverged, match="start of the curve"):
        follow(never, [0.3, 0.0], step=0.1)


def test_a_step_that_lands_on_another_curve_is_taken_back():
    """Curves x = s(p) + integer: s rises by 0.6 within a tenth of the first step."""

    def ladder(u):
        x, p = u
        rise = 0.3 * (1.0 + np.tanh(p / 0.05))
        slope = 0.3 / (0.05 * np.cosh(p / 0.05) ** 2)
        angle = np.pi * (x - rise)
        return np.array([np.sin(angle)]), np.pi * np.cos(angle) * np.array([[1.0, -slope]])

    found = follow(ladder, [0.0, -0.3], step=0.6, within=(-9.0, 0.5))
    x, p = found.T
    # The first point beyond the bounds is the last.
    assert p[-1] > 0.5 >= p[-2]
    np.testing.assert_allclose(x, 0.3 * (1.0 + np.tanh(p / 0.05)), atol=1e-9)


def test_steps_grow_to_the_largest_and_a_crossing_is_no_return():
    def line(u):
        return np.array([u[0]]), np.array([[1.0, 0.0]])

    found = follow(line, [0.0, 0.0], step=0.1, max_steps=30)
    assert np.diff(found[:, 1]).max() == pytest.approx(1.0)

    def eight(u):
        # (x² + y²)² = x² − y²: the second pass near the start runs across the first.
        x, y = u
        square = x**2 + y**2
        slope = [4 * x * square - 2 * x, 4 * y * square + 2 * y]
        return np.array([square**2 - x**2 + y**2]), np.array([slope])

    found = follow(eight, [0.03, 0.03], step=0.007)
    x, _ = found.T
    assert len(found) < 200
    assert x.max() > 0.9
    assert x.min() < -0.9
