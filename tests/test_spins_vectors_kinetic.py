"""Driven vector spins: theories against simulation and each other, and the causal module."""

import numpy as np
import pytest
import torch
from known_memories import normal

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.large_d import THEORIES, driven_step, entropy_rate, langevin_response

ONE = torch.ones(1, 1, dtype=torch.float64)
STEPS = 8


def _system(sites=6, seed=0, size=1.2):
    rng = np.random.default_rng(seed)
    couplings = size * rng.standard_normal((sites, sites)) / sites**0.5
    np.fill_diagonal(couplings, 0.0)
    return couplings, 0.4 * rng.standard_normal((sites, 4))


def _theory(couplings, fields, *, theory, steps=STEPS):
    couplings, fields = torch.as_tensor(couplings), torch.as_tensor(fields)
    given = {"couplings": couplings, "fields": fields, "beta": ONE, "theory": theory}
    mean = langevin_response(fields, ONE)
    covariance = torch.diag_embed(1 - mean.square().sum(-1))
    for _ in range(steps):
        mean, covariance, delayed = driven_step(mean, covariance, **given)
    return mean, delayed, entropy_rate(delayed, couplings=couplings, beta=ONE)


def _simulation(couplings, fields, *, dim, replicas, seed):
    """Unit spins of `dim` components in fields within the first four, which hold all of ⟨u⟩."""
    rng = np.random.default_rng(seed)
    whole = np.zeros((len(fields), dim))
    whole[:, :4] = fields
    u = sample_von_mises_fisher(dim * np.broadcast_to(whole, (replicas, *whole.shape)), seed=rng)
    for _ in range(STEPS):
        before = u
        u = sample_von_mises_fisher(dim * (whole + couplings @ before), seed=rng)
    delayed = np.einsum("rid,rjd->ij", u, before) / replicas
    return u.mean(0)[:, :4], delayed


def test_the_large_d_theory_is_what_simulation_approaches():
    """Strong asymmetric couplings: errors fall as 1/D; naive and second order keep theirs."""
    couplings, fields = _system()
    errors, rates = {name: [] for name in THEORIES}, []
    for dim in (8, 32):
        mean, delayed = _simulation(couplings, fields, dim=dim, replicas=6000, seed=1)
        for name in THEORIES:
            found = _theory(couplings, fields, theory=name)[0].numpy()
            errors[name].append(np.linalg.norm(found - mean) / np.linalg.norm(mean))
        rates.append(np.sum((couplings - couplings.T) * delayed))
    assert errors["large D"][0] < 0.05
    assert errors["large D"][1] < 0.5 * errors["large D"][0]
    assert errors["second order"][1] > 1.5 * errors["large D"][1]
    assert errors["naive"][1] > 0.1
    _, _, rate = _theory(couplings, fields, theory="large D")
    assert abs(rates[1] / rate - 1) < 0.01
    assert abs(_theory(couplings, fields, theory="naive")[2] / rate - 1) > 0.05


def test_orders_in_the_couplings():
    """Halving J divides the error of naive theory by 4, and that of the second order by 16.

    The correlations between neighbours, which it leaves out, are of order J², and act as J Q Jᵀ.
    """
    errors = {name: [] for name in ("naive", "second order")}
    for size in (0.1, 0.05):
        couplings, fields = _system(seed=3, size=size)
        exact = _theory(couplings, fields, theory="large D")[0]
        for name, found in errors.items():
            found.append((_theory(couplings, fields, theory=name)[0] - exact).norm())
    assert errors["naive"][0] / errors["naive"][1] == pytest.approx(4, rel=0.15)
    assert errors["second order"][0] / errors["second order"][1] == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("theory", THEORIES)
def test_symmetric_couplings_produce_no_entropy(theory):
    couplings, fields = _system(seed=5, size=0.5)
    symmetric = (couplings + couplings.T) / 2
    _, delayed, rate = _theory(symmetric, fields, theory=theory, steps=60)
    assert abs(rate) < 1e-12
    # In equilibrium what follows is correlated with what went before as the other way round.
    if theory == "large D":
        assert (delayed - delayed.T).abs().max() < 1e-10
    turned = couplings - couplings.T
    assert _theory(turned, fields, theory=theory, steps=60)[2] > 0.01


def _module(**options):
    torch.manual_seed(0)
    return DrivenSpinModule(8, heads=2, dtype=torch.float64, **options)


@pytest.mark.parametrize("theory", THEORIES)
def test_future_tokens_do_not_change_the_past(theory):
    module = _module(theory=theory, steps=4, coupling_strength=2.0, channel_maps=True)
    inputs = normal(1, 2, 6, 8).requires_grad_()
    output = module(inputs)
    changed = inputs.detach().clone()
    changed[:, 4:] = normal(5, 2, 2, 8)
    assert torch.equal(module(changed)[:, :4], output[:, :4])
    torch.testing.assert_close(module(inputs[:, :4]), output[:, :4], rtol=0, atol=1e-13)
    (slope,) = torch.autograd.grad(output[:, :4].sum(), inputs, retain_graph=True)
    assert slope[:, 4:].abs().max() == 0
    (slope,) = torch.autograd.grad(output[:, 5].square().sum(), inputs)
    assert (slope.abs().amax((0, 2)) > 1e-6).all()


@pytest.mark.parametrize("theory", THEORIES)
def test_a_triangular_network_is_stationary_after_as_many_steps_as_it_has_tokens(theory):
    inputs = normal(1, 2, 5, 8)
    with torch.no_grad():
        early = _module(theory=theory, steps=3, coupling_strength=2.0)(inputs)
        late, parts = _module(theory=theory, steps=6, coupling_strength=2.0)(
            inputs, return_parts=True
        )
        later = _module(theory=theory, steps=9, coupling_strength=2.0)(inputs)
    assert ((early - late).abs().amax((-2, -1)) > 1e-6).all()
    torch.testing.assert_close(late, later, rtol=0, atol=1e-13)
    # Every coupling is one-way, so that all of it produces entropy.
    assert (parts.entropy_production > 0.01).all()


@pytest.mark.parametrize("theory", THEORIES)
def test_symmetric_spins_feel_half_of_each_direction(theory):
    """By the steps with (J + Jᵀ)/2 of the masked J; the future is felt, and no entropy produced."""
    inputs, couplings = normal(1, 2, 6, 8), []
    fields = inputs / inputs.square().mean(-1, keepdim=True).sqrt()
    fields = fields.reshape(2, 6, 2, 4).transpose(1, 2) / 2
    for symmetric in (False, True):
        module = _module(theory=theory, steps=3, symmetric=symmetric)
        with torch.no_grad():
            output, parts = module(inputs, return_parts=True)
        couplings.append(parts.couplings)
        mean, _, rate = _theory(parts.couplings, fields, theory=theory, steps=3)
        torch.testing.assert_close(output, 2 * mean.transpose(1, 2).reshape(2, 6, 8))
        torch.testing.assert_close(parts.entropy_production, rate / 6)
    torch.testing.assert_close(couplings[1], 0.5 * (couplings[0] + couplings[0].mT))
    assert rate.abs().max() < 1e-15
    changed = inputs.clone()
    changed[:, 4:] = normal(5, 2, 2, 8)
    assert (module(changed) - output)[:, :4].abs().max() > 0.01


@pytest.mark.parametrize("theory", THEORIES)
def test_gradients(theory):
    module = _module(theory=theory, steps=3, coupling_strength=1.5, gamma=1.4, channel_maps=True)
    names = [name for name, _ in module.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def call(inputs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs)

    inputs = normal(1, 1, 4, 8).requires_grad_()
    assert torch.autograd.gradcheck(call, (inputs, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(
        lambda x: call(x, *values).square().sum(), (inputs,), fast_mode=True
    )
