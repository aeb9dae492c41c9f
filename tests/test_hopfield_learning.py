"""Learning the memory: against autograd, an optimizer, and contrastive divergence."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from known_memories import SETTINGS, mixture, normal
from scipy.optimize import minimize

from spinformer.core.solve import Status
from spinformer.hopfield.density import (
    _em_update,
    contrastive_gradient,
    fit,
    log_prob,
    log_weights,
    loss,
    loss_gradient,
    sample,
)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
@pytest.mark.claim("A11")
def test_loss_and_gradient_equal_autograd_through_the_mixture(setting):
    seed, number, d, beta = setting
    patterns, data = normal(seed, number, d).requires_grad_(), 1.5 * normal(seed + 1, 20, d)
    expected = -mixture(patterns, beta).log_prob(data).mean()
    (slope,) = torch.autograd.grad(expected, patterns)
    got = loss(patterns, data=data, beta=beta)
    (automatic,) = torch.autograd.grad(got, patterns)
    assert got.item() == pytest.approx(expected.item(), abs=1e-12)
    by_hand = loss_gradient(patterns.detach(), data=data, beta=beta)
    torch.testing.assert_close(by_hand, slope, rtol=0, atol=1e-12)
    torch.testing.assert_close(by_hand, automatic, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(SETTINGS)
def test_em_step_maximises_its_bound_and_never_raises_the_loss(setting):
    seed, number, d, beta = setting
    patterns, data = normal(seed, number, d), 2 * normal(seed + 1, 30, d) + 1
    after = _em_update(patterns, data=data, beta=beta)
    fallen = loss(patterns, data=data, beta=beta) - loss(after, data=data, beta=beta)
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


def test_em_and_gradient_reach_the_same_likelihood():
    three = torch.tensor([[2.0, 0.0], [0.0, -2.0], [-2.2, 0.4]], dtype=torch.float64)
    data = sample(three, count=600, seed=3)
    start = data[:3].clone()
    em = fit(start, data=data, method="em", max_steps=3000, tolerance=1e-13)
    descent = fit(start, data=data, method="gradient", max_steps=5000, rate=0.5, tolerance=1e-13)
    assert em.converged
    assert descent.converged
    assert (np.diff(em.losses) <= 1e-12).all()
    assert em.losses[-1] == pytest.approx(descent.losses[-1], abs=1e-8)
    assert float(loss_gradient(em.patterns, data=data).abs().max()) < 1e-5


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.claim("A12")
def test_exact_likelihood_beats_cd1_where_radii_differ(seed):
    means = torch.tensor([[2.0, 0.0], [-4.0, 0.0]], dtype=torch.float64)
    train, held_out = (means[torch.arange(4000) % 2] + normal(seed, 4000, 2)).split(2000)
    given = {"data": train, "seed": seed}
    exact = fit(means, max_steps=3000, tolerance=1e-12, **given)
    cd = fit(means, method="cd", max_steps=200, rate=0.3, **given)
    kept, lost = (log_prob(one.patterns, states=held_out) for one in (exact, cd))
    gain = kept - lost
    assert float(gain.mean()) > 1.0
    assert float(gain.mean()) > 5 * float(gain.std()) / math.sqrt(2000)
    # CD-1 sits at the cluster means; its weights are then wrong by the gap of the norms.
    torch.testing.assert_close(cd.patterns, means, atol=0.25, rtol=0)
    assert float(log_weights(cd.patterns)[1]) > -0.02
    # Exact learning obeys w_i‖x_i‖ = ½ r_i instead: nearly equal norms, t₂² − t₁² = 2 ln(w₂/w₁),
    # so weights near 2 : 4 and norms near ½(2 + 4) = 3.
    weights, norms = log_weights(exact.patterns).exp(), exact.patterns.norm(dim=1)
    assert abs(float(weights[0]) - 1 / 3) < 0.05
    assert ((norms - 3).abs() < 0.3).all()


def test_a_fit_by_cd_takes_the_steps_and_the_seed_that_it_is_given():
    patterns, data = 0.7 * normal(8, 3, 2), normal(9, 40, 2) + 0.5
    generator = torch.Generator().manual_seed(3)
    wanted = patterns
    for _ in range(2):
        slope = contrastive_gradient(wanted, data=data, steps=4, seed=generator)
        wanted = wanted - 0.2 * slope
    options = {"method": "cd", "max_steps": 2, "rate": 0.2, "cd_steps": 4}
    found = fit(patterns, data=data, seed=3, **options)
    torch.testing.assert_close(found.patterns, wanted, rtol=0, atol=0)
    assert not torch.equal(fit(patterns, data=data, seed=4, **options).patterns, wanted)


def test_cd_gradient_approaches_the_exact_one_where_the_chain_mixes():
    patterns, data = 0.7 * normal(8, 3, 2), normal(9, 40, 2) + 0.5
    many = data.repeat(2000, 1)
    exact = loss_gradient(patterns, data=data)
    short, long = (contrastive_gradient(patterns, data=many, steps=n, seed=4) for n in (1, 8))
    assert float((long - exact).abs().max()) < 0.01
    assert float((short - exact).abs().max()) > 0.03


def test_status_of_learning():
    data = normal(40, 200, 2) + 1.0
    start = data[:3].clone()
    found = fit(start, data=data, max_steps=2000, tolerance=1e-8)
    assert found.status == Status.CONVERGED
    steps = -np.diff(found.losses)
    assert found.residual == steps[-1]
    assert 0 <= steps[-1] < 1e-8
    assert (steps[:-1] >= 1e-8).all()
    assert found.steps == len(steps)
    for x, value in ((start, found.losses[0]), (found.patterns, found.losses[-1])):
        assert float(loss(x, data=data)) == value
    short = fit(start, data=data, max_steps=2)
    assert (short.status, short.steps) == (Status.STEP_LIMIT, 2)
    # A rate beyond stability: the loss rises, in small steps or out of range.
    best = found.patterns
    start = best + 0.1 * normal(45, 3, 2)
    rising = fit(start, data=data, method="gradient", rate=30.0, max_steps=1, tolerance=10.0)
    assert rising.losses[-1] > rising.losses[0]
    assert rising.status == Status.DIVERGED
    away = fit(best, data=data, method="gradient", rate=1e6, max_steps=500)
    assert away.status == Status.DIVERGED
    # CD is noisy: never converged, whatever the tolerance.
    noisy = fit(best, data=data, method="cd", rate=1e-9, max_steps=3, tolerance=10.0)
    assert noisy.status == Status.STEP_LIMIT
