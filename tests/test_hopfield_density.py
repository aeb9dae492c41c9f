"""The density against quadrature, torch.distributions, autograd and sampling."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from known_memories import SETTINGS, mixture, normal

from spinformer.hopfield.density import log_partition, log_prob, log_weights, sample


def quadrature(patterns, beta):
    """log ∫ e^{−βE}: trapezoid rule on a box, exponentially accurate for such integrands."""
    reach = np.abs(patterns.numpy()).max() + 9 / math.sqrt(beta)
    points = math.ceil(2 * reach * math.sqrt(beta) / 0.6) + 1
    axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * patterns.shape[1]).reshape(-1, patterns.shape[1])
    # Written out, with the document's formula for the energy.
    scores = torch.exp(beta * grid @ patterns.T).sum(1)
    total = float((torch.exp(-0.5 * beta * grid.square().sum(1)) * scores).sum())
    return math.log(total * float(axis[1] - axis[0]) ** patterns.shape[1])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.5])
@pytest.mark.claim("A10")
def test_log_partition_equals_quadrature(d, beta):
    for seed in range(3):
        patterns = normal(seed, 4, d)
        exact = quadrature(patterns, beta)
        assert float(log_partition(patterns, beta=beta)) == pytest.approx(exact, abs=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
def test_log_prob_equals_the_mixture_of_torch_distributions(setting):
    seed, number, d, beta = setting
    patterns, states = normal(seed, number, d), 2 * normal(seed + 1, 7, 2, d)
    expected = mixture(patterns, beta).log_prob(states)
    got = log_prob(patterns, states=states, beta=beta)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    weights = mixture(patterns, beta).mixture_distribution.logits
    torch.testing.assert_close(log_weights(patterns, beta=beta), weights, rtol=1e-12, atol=1e-12)
    assert float(log_weights(100 * patterns).exp().sum()) == pytest.approx(1.0)  # no overflow


def test_samples_have_the_density():
    patterns, beta = 1.2 * normal(3, 3, 2), 1.5
    drawn = sample(patterns, count=200_000, beta=beta, seed=1)
    weights = log_weights(patterns, beta=beta).exp()
    mean = weights @ patterns
    second = (weights[:, None] * patterns).T @ patterns + torch.eye(2, dtype=torch.float64) / beta
    for values, exact in ((drawn, mean), (drawn[:, :, None] * drawn[:, None, :], second)):
        error = values.std(0) / math.sqrt(len(drawn))
        assert (abs(values.mean(0) - exact) < 4 * error).all()


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="too large"):
        log_partition(1e200 * normal(0, 3, 2))
