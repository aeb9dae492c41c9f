"""The driven module: causal, stationary after N − 1 steps, differentiable, and able to recall."""

import pytest
import torch

from spinformer.spins.large_d import THEORIES, driven_step, entropy_rate, free_spins
from spinformer.spins.module import DrivenSpinModule

DOUBLE = torch.float64


def _module(seed=0, **options):
    torch.manual_seed(seed)
    return DrivenSpinModule(8, heads=2, dtype=DOUBLE, **options)


def _inputs(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


@pytest.mark.parametrize("theory", THEORIES)
def test_future_tokens_do_not_change_the_past(theory):
    module = _module(theory=theory, steps=4, strength=2.0, channel_maps=True)
    inputs = _inputs(2, 6, 8).requires_grad_()
    output = module(inputs)
    changed = inputs.detach().clone()
    changed[:, 4:] = _inputs(2, 2, 8, seed=5)
    assert torch.equal(module(changed)[:, :4], output[:, :4])
    torch.testing.assert_close(module(inputs[:, :4]), output[:, :4], rtol=0, atol=1e-13)
    (slope,) = torch.autograd.grad(output[:, :4].sum(), inputs, retain_graph=True)
    assert slope[:, 4:].abs().max() == 0
    (slope,) = torch.autograd.grad(output[:, 5].square().sum(), inputs)
    assert (slope.abs().amax((0, 2)) > 1e-6).all()


@pytest.mark.parametrize("theory", THEORIES)
def test_a_triangular_network_is_stationary_after_as_many_steps_as_it_has_tokens(theory):
    inputs = _inputs(2, 5, 8)
    with torch.no_grad():
        early = _module(theory=theory, steps=3, strength=2.0)(inputs)
        late, parts = _module(theory=theory, steps=6, strength=2.0)(inputs, return_parts=True)
        later = _module(theory=theory, steps=9, strength=2.0)(inputs)
    assert ((early - late).abs().amax((-2, -1)) > 1e-6).all()
    torch.testing.assert_close(late, later, rtol=0, atol=1e-13)
    # Every coupling is one-way, so that all of it produces entropy.
    assert (parts.entropy_production > 0.01).all()


@pytest.mark.parametrize("theory", THEORIES)
def test_symmetric_spins_feel_half_of_each_direction(theory):
    """The steps written out with (J + J^T)/2 of the masked J; the future is felt, no entropy."""
    inputs, one = _inputs(2, 6, 8), torch.ones(1, 1, dtype=DOUBLE)
    fields = inputs / inputs.square().mean(-1, keepdim=True).sqrt()
    fields = fields.reshape(2, 6, 2, 4).transpose(1, 2) / 2
    couplings = []
    for symmetric in (False, True):
        module = _module(theory=theory, steps=3, symmetric=symmetric)
        with torch.no_grad():
            output, parts = module(inputs, return_parts=True)
        couplings.append(parts.couplings)
        given = {"couplings": parts.couplings, "fields": fields, "beta": one, "theory": theory}
        mean = free_spins(fields, one)
        covariance = torch.diag_embed(1 - mean.square().sum(-1))
        for _ in range(3):
            mean, covariance, delayed = driven_step(mean, covariance, **given)
        torch.testing.assert_close(output, 2 * mean.transpose(1, 2).reshape(2, 6, 8))
        rate = entropy_rate(delayed, couplings=parts.couplings, beta=one) / 6
        torch.testing.assert_close(parts.entropy_production, rate)
    torch.testing.assert_close(couplings[1], 0.5 * (couplings[0] + couplings[0].mT))
    assert rate.abs().max() < 1e-15
    changed = inputs.clone()
    changed[:, 4:] = _inputs(2, 2, 8, seed=5)
    assert (module(changed) - output)[:, :4].abs().max() > 0.01


@pytest.mark.parametrize("theory", THEORIES)
def test_gradients(theory):
    module = _module(theory=theory, steps=3, strength=1.5, gamma=1.4, channel_maps=True)
    names = [name for name, _ in module.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def call(inputs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs)

    inputs = _inputs(1, 4, 8).requires_grad_()
    assert torch.autograd.gradcheck(call, (inputs, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(
        lambda x: call(x, *values).square().sum(), (inputs,), fast_mode=True
    )
