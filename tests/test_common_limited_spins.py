"""The spin module with a bound of its couplings: exact gradients, and the bound is kept."""

import pytest
import torch
from known_memories import normal

from compendium.common.spin_modules import LimitedSpinModule, limited_correlation
from spinformer.spins.module import Solver, SpinTransformerModule

DOUBLE = torch.float64
OPTIONS = [
    {"solver": Solver(order=2, tolerance=3e-15), "coupling_limit": 0.9},
    {"solver": Solver("saddle", tolerance=3e-15), "coupling_limit": 6.0},
]


def _limited(dim=16, seed=1, **options):
    torch.manual_seed(seed)
    return LimitedSpinModule(dim, dtype=DOUBLE, **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_output_is_minus_the_gradient_of_the_free_energy(options):
    module = _limited(dim=12, heads=3, beta=1.3, gamma=1.5, normalize=False, **options)
    fields = normal(1, 2, 5, 12).requires_grad_()
    (slope,) = torch.autograd.grad(-module.free_energy(fields).sum(), fields)
    output, parts = module(fields, return_parts=True)
    assert parts.response.abs().max() > 1e-2
    torch.testing.assert_close(output, slope, rtol=0, atol=1e-12)
    torch.testing.assert_close(module(fields), output, rtol=0, atol=0)


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_once_and_twice(options):
    module = _limited(dim=4, heads=2, channel_maps=True, beta=1.4, **options)
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach().clone().requires_grad_() for value in module.parameters()]

    def call(inputs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs)

    inputs = normal(1, 2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(call, (inputs, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (inputs, *values), fast_mode=True)


def test_a_new_start_is_half_of_the_bound():
    module = _limited(heads=2, coupling_limit=0.8)
    with torch.no_grad():
        module.log_strength.fill_(3.0)
    module.reset_parameters()
    _, parts = module(normal(0, 2, 5, 16), return_parts=True)
    rows = parts.pair.sum(-1).amax(-1)
    torch.testing.assert_close(rows, torch.full_like(rows, 0.4))
    with pytest.raises(ValueError, match="coupling_limit"):
        LimitedSpinModule(8, heads=2, coupling_limit=0.0)


def test_the_limit_keeps_what_it_promises():
    """Below the limit: solved, physical, β‖B‖ < κ. Without it, only naive mean field always is."""
    inputs = normal(5, 6, 12, 16)
    sharp = {"gamma": 4.0, "beta": 2.0, "heads": 4}
    for order in (1, 2):
        torch.manual_seed(2)
        free = SpinTransformerModule(
            16, solver=Solver(order=order), coupling_strength=2.0, dtype=DOUBLE, **sharp
        )
        kept = _limited(solver=Solver(order=order), coupling_limit=0.95, seed=2, **sharp)
        free.warned = True
        with torch.no_grad():
            kept.log_strength.fill_(20.0)
            _, loose = free(inputs, return_parts=True)
            _, parts = kept(inputs, return_parts=True)
        assert (parts.validity().converged & parts.validity().physical).all()
        valid = loose.validity().converged & loose.validity().physical
        assert bool(valid.all()) is (order == 1)
        norm = 2.0 * torch.linalg.matrix_norm(parts.pair, ord=2)
        rows = 2.0 * parts.pair.sum(-1).amax(-1)
        assert (norm < rows + 1e-12).all()
        torch.testing.assert_close(rows, torch.full_like(rows, 0.95), rtol=1e-6, atol=0)


def test_rows_that_tie_share_what_a_limited_strength_takes_back():
    """Against autograd of Σ C A/n(A), n the largest row sum, as torch differentiates a maximum."""
    tied = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.2, 0.0]], dtype=DOUBLE)
    generator = torch.Generator().manual_seed(0)
    for attention in (tied, torch.rand(3, 3, dtype=DOUBLE, generator=generator)):
        correlation = torch.rand(3, 3, dtype=DOUBLE, generator=generator)
        eye = torch.eye(3, dtype=torch.bool)
        a = attention.clone().requires_grad_()
        pair = (a + a.mT).masked_fill(eye, 0.0)
        n = pair.sum(-1).max()
        (slope,) = torch.autograd.grad((correlation * a / n).sum(), a)
        found = limited_correlation(correlation, attention=attention, pair=pair.detach())
        torch.testing.assert_close(found, n.detach() * slope)
