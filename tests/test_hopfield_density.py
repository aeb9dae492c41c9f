"""The density and its learning against quadrature, torch.distributions, autograd, an optimizer."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from known_memories import SETTINGS, mixture, normal
from scipy.optimize import minimize

from spinformer.core.solve import Status
from spinformer.hopfield import density


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
        assert float(density.log_partition(patterns, beta=beta)) == pytest.approx(exact, abs=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
def test_log_prob_equals_the_mixture_of_torch_distributions(setting):
    seed, number, d, beta = setting
    patterns = normal(seed, number, d)
    states = 2 * normal(seed + 1, 7, 2, d)
    expected = mixture(patterns, beta).log_prob(states)
    got = density.log_prob(patterns, states=states, beta=beta)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    weights = mixture(patterns, beta).mixture_distribution.logits
    torch.testing.assert_close(
        density.log_weights(patterns, beta=beta), weights, rtol=1e-12, atol=1e-12
    )
    assert float(density.log_weights(100 * patterns).exp().sum()) == pytest.approx(
        1.0
    )  # no overflow


def test_samples_have_the_density():
    patterns = 1.2 * normal(3, 3, 2)
    beta = 1.5
    drawn = density.sample(patterns, count=200_000, beta=beta, seed=1)
    weights = density.log_weights(patterns, beta=beta).exp()
    mean = weights @ patterns
    second = (weights[:, None] * patterns).T @ patterns + torch.eye(2, dtype=torch.float64) / beta
    for values, exact in ((drawn, mean), (drawn[:, :, None] * drawn[:, None, :], second)):
        error = values.std(0) / math.sqrt(len(drawn))
        assert (abs(values.mean(0) - exact) < 4 * error).all()


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="too large"):
        density.log_partition(1e200 * normal(0, 3, 2))


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
@pytest.mark.claim("A11")
def test_loss_and_gradient_equal_autograd_through_the_mixture(setting):
    seed, number, d, beta = setting
    patterns = normal(seed, number, d).requires_grad_()
    data = 1.5 * normal(seed + 1, 20, d)
    expected = -mixture(patterns, beta).log_prob(data).mean()
    (slope,) = torch.autograd.grad(expected, patterns)
    got = density.loss(patterns, data=data, beta=beta)
    (automatic,) = torch.autograd.grad(got, patterns)
    assert got.item() == pytest.approx(expected.item(), abs=1e-12)
    by_hand = density.loss_gradient(patterns.detach(), data=data, beta=beta)
    for derived in (slope, automatic):
        torch.testing.assert_close(by_hand, derived, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
def test_em_step_maximises_its_bound_and_never_raises_the_loss(setting):
    seed, number, d, beta = setting
    patterns = normal(seed, number, d)
    data = 2 * normal(seed + 1, 30, d) + 1
    after = density._em_update(patterns, data=data, beta=beta)
    fallen = density.loss(patterns, data=data, beta=beta) - density.loss(
        after, data=data, beta=beta
    )
    assert float(fallen) >= -1e-12
    pull = (torch.softmax(beta * data @ patterns.T, 1).T @ data / 30).numpy()

    def negative(flat):
        x = torch.tensor(flat.reshape(number, d), requires_grad=True)
        value = torch.logsumexp(0.5 * beta * x.square().sum(1), 0)
        value = value - beta * (x * torch.tensor(pull)).sum()
        value.backward()
        return value.item(), x.grad.numpy().ravel()

    best = minimize(negative, patterns.numpy().ravel(), jac=True, options={"gtol": 1e-9})
    value, slope = negative(after.numpy().ravel())
    assert value <= best.fun + 1e-9
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)


def test_a_pattern_that_no_datum_chooses_still_shares_the_weight():
    far = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-900.0, -900.0]], dtype=torch.float64)
    data = normal(5, 30, 2).abs() + 1.0
    pull = torch.softmax(data @ far.T, 1).T @ data / 30
    assert float(pull[2].abs().max()) == 0.0
    after = density._em_update(far, data=data, beta=1.0)
    weights = density.log_weights(after).exp()
    torch.testing.assert_close(weights[:, None] * after, pull, rtol=0, atol=1e-12)


def test_em_and_descent_reach_the_same_likelihood():
    three = torch.tensor([[2.0, 0.0], [0.0, -2.0], [-2.2, 0.4]], dtype=torch.float64)
    data = density.sample(three, count=600, seed=3)
    patterns = data[:3].clone()
    em = density.fit_em(patterns, data=data, max_steps=3000, tolerance=1e-13)
    for _ in range(2000):
        patterns = patterns - 0.5 * density.loss_gradient(patterns, data=data)
    assert em.converged
    assert em.losses[-1] == pytest.approx(float(density.loss(patterns, data=data)), abs=1e-8)
    assert float(density.loss_gradient(em.patterns, data=data).abs().max()) < 1e-5


def test_status_of_learning():
    data = normal(40, 200, 2) + 1.0
    start = data[:3].clone()
    result = density.fit_em(start, data=data, max_steps=2000, tolerance=1e-8)
    assert result.status == Status.CONVERGED
    steps = -np.diff(result.losses)
    assert result.residual == steps[-1]
    assert 0 <= steps[-1] < 1e-8
    assert (steps[:-1] >= 1e-8).all()
    assert result.steps == len(steps)
    for x, value in ((start, result.losses[0]), (result.patterns, result.losses[-1])):
        assert float(density.loss(x, data=data)) == value
    short = density.fit_em(start, data=data, max_steps=2)
    assert (short.status, short.steps) == (Status.STEP_LIMIT, 2)


def test_lengths_that_leave_no_digits_to_the_weights_are_refused():
    patterns = torch.ones(2, 3).double()
    data = torch.eye(3).double()
    for changed in ({"beta": 1e30}, {"data": 1e15 * data}):
        with pytest.raises(ValueError, match="beta times the squared length"):
            density.fit_em(patterns, **{"data": data} | changed)
    with pytest.raises(ValueError, match="overflow in the sample"):
        density.sample(patterns.float(), count=2, beta=1e-300)
