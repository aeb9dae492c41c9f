"""Fused pieces of the spin module against plain formulas: values, first and second derivatives."""

import pytest
import torch

from spinformer.spins.modules.fused import (
    covariance_attention,
    covariance_attention_reference,
    scaled_attention,
    scaled_attention_reference,
)
from spinformer.spins.modules.spin_transformer import SpinTransformerModule
from spinformer.spins.vectors.tap import square_times


def _tensors(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]


def _same(fused, plain, arguments):
    """Values and gradients of all outputs together, and gradgradcheck of the fused one."""
    for got, want in zip(fused(*arguments), plain(*arguments), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)
    weights = [torch.randn_like(x) for x in plain(*arguments)]

    def slopes(function, again):
        outputs = function(*arguments)
        total = sum((x * w).sum() for x, w in zip(outputs, weights, strict=True))
        return torch.autograd.grad(total, arguments, create_graph=again)

    # gradgradcheck only asks whether the gradient's gradient fits the gradient *with* a graph.
    for again in (False, True):
        for got, want in zip(slopes(fused, again), slopes(plain, False), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(fused, arguments)
    assert torch.autograd.gradgradcheck(fused, arguments)


@pytest.mark.parametrize("mask_diagonal", [True, False])
def test_scaled_attention(mask_diagonal):
    queries, keys, strength = _tensors((2, 3, 2), (2, 3, 2), (2, 1, 1))

    def call(function):
        return lambda q, k, g: function(q, keys=k, strength=g.exp(), mask_diagonal=mask_diagonal)

    _same(call(scaled_attention), call(scaled_attention_reference), (queries, keys, strength))


@pytest.mark.parametrize("order", [1, 2])
def test_covariance_attention(order):
    shapes = [(2, 3, 3), (2, 1, 1), (2, 3, 2), (2, 3, 2), (2, 3, 2)]
    shapes += [(2, 3, 3), (2, 3, 1), (2, 1, 1)] if order == 2 else []
    names = ("strength", "mean", "queries", "keys", "pair", "width", "beta")

    def call(function):
        def of(couplings, *others):
            named = dict.fromkeys(names) | dict(zip(names, others, strict=False))
            named["strength"] = named["strength"].exp()
            if named["pair"] is not None:
                named["pair"] = named["pair"] + named["pair"].mT
            return function(couplings, **named)

        return of

    arguments = _tensors(*shapes)
    _same(call(covariance_attention), call(covariance_attention_reference), arguments)


def test_square_times():
    _same(
        lambda b, v: (square_times(b, vector=v),),
        lambda b, v: (b.square() @ v,),
        _tensors((2, 3, 3), (2, 3, 1)),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 1},
        {"steps": 2, "order": 1},
        {"order": 1},
        {"order": 2},
        {"solver": "saddle"},
        {"coupling_limit": 0.8},
    ],
)
def test_second_derivatives_of_the_module(options):
    torch.manual_seed(0)
    module = SpinTransformerModule(4, heads=2, **options, tolerance=1e-14, dtype=torch.float64)
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach().clone().requires_grad_() for value in module.parameters()]
    (inputs,) = _tensors((1, 3, 4), seed=1)

    def call(inputs, *parameters):
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, named, inputs).sum()

    assert torch.autograd.gradgradcheck(call, (inputs, *values))
