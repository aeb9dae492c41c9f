"""The derivative through a rest, of the first and second order, and a rest under `vmap`."""

import pytest
import torch
from known_memories import draw

from spinformer.hopfield.fixed_points import rest

HOW = {"tolerance": 1e-11, "max_steps": 3000}


def test_first_and_second_derivatives_of_a_rest():
    keys = (0.9 * draw(2, 1, 4, 3, seed=5)).requires_grad_()
    beta = torch.tensor([0.3, 0.5]).double().view(2, 1, 1).requires_grad_()
    bias = (0.3 * draw(2, 1, 2, 4, seed=6)).requires_grad_()
    start = draw(2, 2, 2, 3, seed=7)

    def run(keys, beta, bias):
        return rest(start, keys=keys, beta=beta, bias=bias, **HOW)[0]

    assert float(rest(start, keys=keys, beta=beta, bias=bias, **HOW)[1].max()) <= 1e-11
    assert torch.autograd.gradcheck(run, (keys, beta, bias), fast_mode=True)
    start, *few = start[:1, :1, :1, :2], keys[:1, :, :3, :2], beta[:1], bias[:1, :, :1, :3]
    few = tuple(x.detach().requires_grad_() for x in few)
    # Along random directions: every entry of the second derivatives takes part.
    assert torch.autograd.gradgradcheck(run, few, fast_mode=True)


@pytest.mark.parametrize("mapped", ["start", "keys", "beta", "bias"])
def test_one_argument_of_a_rest_is_mapped_alone(mapped):
    given = {"start": draw(5, 3), "keys": draw(4, 3, seed=1), "beta": torch.tensor(0.5).double()}
    given |= {"bias": draw(5, 4, seed=2)}
    batch = given[mapped] + 0.3 * draw(3, *given[mapped].shape, seed=3).abs()
    batch.requires_grad_(mapped != "start")

    def one(value):
        return rest(**given | {mapped: value}, **HOW)

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
