"""Pseudo-arclength continuation of curves that are known in closed form."""

import numpy as np
import pytest

from spinformer.core.solve import NotConverged
from spinformer.dmft.continuation import trace_curve


def traced(equations, start, *, step, most, within=(-np.inf, np.inf)):
    """Points of a curve that begins in the direction of the sign of the step."""
    along = np.array([0.0, np.sign(step)])
    bounds = np.array([within])
    return trace_curve(
        equations, start, along=along, step=abs(step), bounds=bounds, max_steps=most, closed=False
    ).points


def test_curves_are_followed_and_no_other_is_taken():
    def ellipse(u):
        x, y = u
        return np.array([x**2 + (y / 3.0) ** 2 - 1.0]), np.array([[2 * x, 2 * y / 9.0]])

    def ladder(u):
        # Curves x = s(p) + integer: s rises by 0.6 within a tenth of the first step.
        rise = 0.3 * (1.0 + np.tanh(u[1] / 0.05))
        slope = 6.0 / np.cosh(u[1] / 0.05) ** 2
        angle = np.pi * (u[0] - rise)
        return np.array([np.sin(angle)]), np.pi * np.cos(angle) * np.array([[1.0, -slope]])

    start = np.array([1.0, 0.05])
    for sign in (1, -1):
        x, y = traced(ellipse, start, step=0.1 * sign, most=60).T
        np.testing.assert_allclose(x**2 + y**2 / 9.0, 1.0, atol=1e-9)
        turned = sign * np.unwrap(np.arctan2(y / 3.0, x))
        assert (np.diff(turned) > 0).all()
        assert turned[-1] - turned[0] > 5.5
    start = np.array([0.0, -0.3])
    x, p = traced(ladder, start, step=0.6, within=(-9.0, 0.5), most=200).T
    # The first point beyond the bounds is the last.
    assert p[-1] > 0.5 >= p[-2]
    np.testing.assert_allclose(x, 0.3 * (1.0 + np.tanh(p / 0.05)), atol=1e-9)


def test_steps_grow_shrink_and_end():
    def wall(u):
        return np.array([u[0] + 1e3 * (u[1] > 0.5)]), np.array([[1.0, 0.0]])

    def never(u):
        return np.array([u[0] ** 2 + 1.0]), np.array([[2 * u[0], 0.0]])

    def steps(equations, step, most):
        start = np.array([0.3, 0.0])
        return traced(equations, start, step=step, most=most)

    # It gives up below the smallest step, not far below it.
    assert 2e-6 < 0.5 - steps(wall, 0.1, 1000)[-1, 1] < 2e-5
    back = steps(wall, -0.1, 30)
    assert len(back) == 30
    assert np.diff(back[:, 1]).min() == pytest.approx(-1.0)
    with pytest.raises(NotConverged, match="start of the curve"):
        steps(never, 0.1, 9)
