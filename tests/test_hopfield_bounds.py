"""Bounds of the continuous memory: where they hold, and where they are all but reached."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_memories import draw

from compendium.c12_continuous_memory import bounds
from spinformer.hopfield.continuous import jacobian, update
from spinformer.hopfield.fixed_points import mean_critical_beta


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    size=st.integers(2, 20),
    width=st.integers(2, 30),
    log_beta=st.floats(-2.0, 4.0),
    reach=st.floats(0.0, 1.0),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold(size, width, log_beta, reach, seed):
    beta = math.exp(log_beta)
    patterns = draw(size, width, seed=seed)
    directions = torch.nn.functional.normalize(draw(size, width, seed=seed + 1), dim=-1)
    for radius in (reach, reach * bounds.storage_radius(patterns, beta=beta)):
        states = patterns + radius * directions
        moved = update(patterns, states=states, beta=beta)
        error = (moved - patterns).norm(dim=-1)
        limit = bounds.one_step_bound(patterns, beta=beta, radius=radius)
        assert bool((error <= limit + 1e-12 * patterns.norm(dim=-1).max()).all())
        slope = torch.linalg.eigvalsh(jacobian(patterns, states=states, beta=beta))[:, -1]
        slack = 1e-12 * beta * patterns.square().sum()
        for sharp in (False, True):
            limit = bounds.jacobian_bound(patterns, beta=beta, radius=radius, sharp=sharp)
            assert bool((slope <= limit + slack).all())


@pytest.mark.parametrize("beta", [0.2, 0.6])
def test_opposite_patterns_all_but_reach_the_bounds(beta):
    """Patterns ±x: the competitor is as far as can be, so each estimate in the proofs is tight."""
    x = torch.tensor([2.0, 1.0, -2.0], dtype=torch.float64)
    patterns, norm = torch.stack([x, -x]), 3.0
    for radius in (0.0, 0.5):
        states = (1.0 - radius / norm) * patterns
        leak = math.exp(-2.0 * beta * norm * (norm - radius))
        error = (update(patterns, states=states, beta=beta) - patterns).norm(dim=-1)
        limit = bounds.one_step_bound(patterns, beta=beta, radius=radius)
        torch.testing.assert_close(error * (1.0 + leak), limit, rtol=1e-6, atol=0)
        slope = torch.linalg.eigvalsh(jacobian(patterns, states=states, beta=beta))[:, -1]
        for sharp in (False, True):  # equal for two patterns
            limit = bounds.jacobian_bound(patterns, beta=beta, radius=radius, sharp=sharp)
            torch.testing.assert_close(slope * (1.0 + leak) ** 2, limit, rtol=1e-6, atol=0)
    assert mean_critical_beta(patterns) == pytest.approx(1.0 / norm**2)


def test_the_threshold_is_where_the_ball_just_maps_into_itself():
    patterns = 3.0 * draw(6, 5, seed=3)
    for beta in (0.2, 1.0):
        radius = bounds.storage_radius(patterns, beta=beta)
        largest = float(patterns.norm(dim=-1).max())
        assert radius == pytest.approx(1.0 / (beta * 6 * largest))
        own = patterns @ patterns.T
        others = own.masked_fill(torch.eye(6) > 0, -math.inf).amax(1)
        separation = bounds.pattern_separation(patterns)
        torch.testing.assert_close(separation, own.diagonal() - others)
        margin = separation - bounds.separation_threshold(patterns, beta=beta)
        error = bounds.one_step_bound(patterns, beta=beta, radius=radius)
        torch.testing.assert_close(error, radius * torch.exp(-beta * margin), rtol=1e-10, atol=0)
        # Published over sharper: 2N over 4.
        loose, sharp = (
            bounds.jacobian_bound(patterns, beta=beta, radius=radius, sharp=flag)
            for flag in (False, True)
        )
        torch.testing.assert_close(loose, 3.0 * sharp)
        torch.testing.assert_close(sharp, 2.0 * beta * largest * error)
