"""Other convex functions of the scores: weights, descent, and the derivative through a rest."""

import pytest
import torch
from known_memories import draw

from spinformer.hopfield.attention import (
    LOG_SUM_EXP,
    Lagrangian,
    hop,
)
from spinformer.hopfield.fixed_points import rest

OWN = Lagrangian(name="own", value=lambda z: (2 + torch.logsumexp(2 * z, -1)).square().sqrt())
HINGE = Lagrangian(name="hinge", value=lambda z: z.clamp_min(0).square().sum(-1) / 2)
ALL = [LOG_SUM_EXP, OWN, HINGE]


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


def descents(lagrangian, *, beta=1.0):
    """What a hop lowers E = ½ ξ·ξ − Λ(βkξ)/β by, and half its squared length."""
    keys, state = 1.5 * draw(3, 6, 4, seed=1), 2 * draw(3, 8, 4, seed=2)
    scaled = beta * keys

    def energy(x):
        return 0.5 * x.square().sum(-1) - lagrangian.value(x @ scaled.mT) / beta

    for _ in range(5):
        landed = hop(state, scaled=scaled, content=keys, lagrangian=lagrangian).detach()
        yield energy(state) - energy(landed), 0.5 * (landed - state).square().sum(-1)
        state = landed


@pytest.mark.parametrize("beta", [0.7, 3.0])
@pytest.mark.parametrize("lagrangian", ALL, ids=str)
def test_a_hop_lowers_the_energy_by_half_its_squared_length(lagrangian, beta):
    for fall, least in descents(lagrangian, beta=beta):
        assert bool((fall >= least - 1e-11 * (1 + least)).all())


def test_without_convexity_a_hop_may_climb():
    hill = Lagrangian(name="hill", value=lambda z: -0.5 * z.square().sum(-1))
    assert bool((next(descents(hill))[0] < 0).any())


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
    start, *few = start[:1, :1, :1, :2], keys[:1, :, :3, :2], beta[:1], bias[:1, :, :1, :3]
    few = tuple(x.detach().requires_grad_() for x in few)
    # Along random directions: every entry of the second derivatives takes part.
    assert torch.autograd.gradgradcheck(run, few, fast_mode=True)


@pytest.mark.parametrize("lagrangian", [LOG_SUM_EXP, OWN], ids=str)
@pytest.mark.parametrize("mapped", ["start", "keys", "beta", "bias"])
def test_one_argument_of_a_rest_is_mapped_alone(mapped, lagrangian):
    given = {"start": draw(5, 3), "keys": draw(4, 3, seed=1), "beta": torch.tensor(0.5).double()}
    given |= {"bias": draw(5, 4, seed=2)}
    batch = given[mapped] + 0.3 * draw(3, *given[mapped].shape, seed=3).abs()
    batch.requires_grad_(mapped != "start")

    how = {"lagrangian": lagrangian, "tolerance": 1e-11, "max_steps": 3000}

    def one(value):
        return rest(**given | {mapped: value}, **how)

    found = torch.vmap(one)(batch)
    wanted = tuple(torch.stack(parts) for parts in zip(*map(one, batch), strict=True))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    if mapped != "start":
        slopes = [
            torch.autograd.grad(states.square().sum(), batch, retain_graph=True)
            for states, *_ in (found, wanted)
        ]
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-9)
    if mapped == "bias":  # a batch of biases is met without a map, too
        torch.testing.assert_close(one(batch)[0], wanted[0], rtol=0, atol=1e-10)
