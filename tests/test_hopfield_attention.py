"""Other convex functions of the scores: weights, descent, and the derivative through a rest."""

import numpy as np
import pytest
import torch

from spinformer.hopfield.attention import (
    LOG_SUM_EXP,
    Lagrangian,
    attention,
    hop,
    multi_head_attention,
)
from spinformer.hopfield.fixed_points import rest
from spinformer.hopfield.layer import HopfieldLayer

OWN = Lagrangian(name="own", value=lambda z: (2 + torch.logsumexp(2 * z, -1)).square().sqrt())
HINGE = Lagrangian(name="hinge", value=lambda z: z.clamp_min(0).square().sum(-1) / 2)
ALL = [LOG_SUM_EXP, OWN, HINGE]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("lagrangian", ALL, ids=str)
def test_weights_are_the_gradient_of_a_convex_function(lagrangian):
    scores = (2 * draw(40, 6)).requires_grad_()
    (slope,) = torch.autograd.grad(lagrangian.value(scores).sum(), scores)
    torch.testing.assert_close(lagrangian.gradient(scores), slope, rtol=0, atol=1e-9)
    left, right = scores[:20].detach(), scores[20:].detach()
    chord = 0.3 * lagrangian.value(left) + 0.7 * lagrangian.value(right)
    assert bool((lagrangian.value(0.3 * left + 0.7 * right) <= chord + 1e-12).all())
    # A pattern that is masked is a pattern that is not there.
    masked = torch.cat([scores.detach(), torch.full((40, 1), -torch.inf).double()], 1)
    torch.testing.assert_close(lagrangian.value(masked), lagrangian.value(scores).detach())
    assert float(lagrangian.gradient(masked).detach()[:, -1].abs().max()) == 0.0


@pytest.mark.parametrize("lagrangian", ALL, ids=str)
def test_a_hop_lowers_the_energy_by_half_its_squared_length(lagrangian):
    layer = HopfieldLayer(4, heads=2, beta=[0.7, 3.0], lagrangian=lagrangian, static=True).double()
    patterns, queries = 1.5 * draw(3, 6, 4, seed=1), 2 * draw(3, 8, 4, seed=2)
    found = layer.retrieve(queries, patterns=patterns)
    state = found.start
    keys = patterns.unflatten(-1, (2, 2)).transpose(1, 2)
    for _ in range(5):
        scaled = keys * layer.beta.view(-1, 1, 1)
        landed = hop(state, scaled=scaled, content=keys, lagrangian=lagrangian)
        before, after = (
            layer.energy(queries, states=x, patterns=patterns) for x in (state, landed)
        )
        assert bool((after - before <= -0.5 * (landed - state).square().sum(-1) + 1e-11).all())
        state = landed.detach()


def test_without_convexity_a_hop_may_climb():
    hill = Lagrangian(name="hill", value=lambda z: -0.5 * z.square().sum(-1))
    layer = HopfieldLayer(2, static=True, beta=1.0, lagrangian=hill)
    query, stored = torch.tensor([[1.0, 0.0]]), 2 * torch.eye(2)
    before = layer.energy(query, patterns=stored)
    landed = hop(query, scaled=stored, content=stored, lagrangian=hill)
    after = layer.energy(query, states=landed[None, None], patterns=stored)
    assert bool(after > before)


@pytest.mark.parametrize("lagrangian", [LOG_SUM_EXP, OWN], ids=str)
def test_first_and_second_derivatives_of_a_rest(lagrangian):
    keys = (0.9 * draw(2, 1, 4, 3, seed=5)).requires_grad_()
    beta = torch.tensor([0.3, 0.5]).double().view(2, 1, 1).requires_grad_()
    bias = (0.3 * draw(2, 1, 2, 4, seed=6)).requires_grad_()
    start = draw(2, 2, 2, 3, seed=7)
    how = {"lagrangian": lagrangian, "tolerance": 1e-11, "max_steps": 3000}

    def run(keys, beta, bias):
        return rest(start, keys=keys, beta=beta, bias=bias, **how)[0]

    assert float(rest(start, keys=keys, beta=beta, bias=bias, **how)[1].max()) <= 1e-11
    assert torch.autograd.gradcheck(run, (keys, beta, bias), fast_mode=True)
    start = start[:1, :1, :1, :2]
    few = (keys[:1, :, :3, :2], beta[:1], bias[:1, :, :1, :3])
    few = tuple(x.detach().requires_grad_() for x in few)
    # Along random directions: every entry of the second derivatives takes part.
    assert torch.autograd.gradgradcheck(run, few, fast_mode=True)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="value must be a function"):
        Lagrangian(name="none", value=None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"keys": torch.ones(3, 5)}, ValueError, "queries must have the width of the keys"),
        ({"values": torch.ones(2, 4)}, ValueError, "values must be as many as the keys"),
        ({"values": torch.ones(3, 4).double()}, TypeError, "values must have the keys' dtype"),
        ({"beta": 0.0}, ValueError, "beta must be"),
        ({"mask": torch.zeros(2, 3, dtype=torch.bool)}, ValueError, "mask must leave"),
        ({"mask": torch.ones(2, 2, dtype=torch.bool)}, ValueError, "mask"),
        ({"mask": torch.ones(2, 3)}, TypeError, "mask must be a boolean"),
        ({"heads": 3}, ValueError, "heads must divide the width of queries"),
    ],
)
def test_attention_refuses_what_does_not_fit(change, error, message):
    given = {"keys": torch.ones(3, 4), "values": torch.ones(3, 4), **change}
    function = multi_head_attention if "heads" in change else attention
    with pytest.raises(error, match=message):
        function(torch.ones(2, 4), **given)
