"""The answers to the exercises on modules of spins that learn, in equilibrium and driven."""

import math
import re

import numpy as np
import pytest
import torch
from exercises import answers, exercises, near, said

from compendium.c23_anatomy.study import autograd_response
from compendium.common.token_tasks import crowd_share
from spinformer.spins.module import SpinTransformerModule


def saddle(**options):
    options = {"solver": "saddle", "dtype": torch.float64} | options
    return SpinTransformerModule(options.pop("dim"), heads=1, **options)


@answers("24.1")
def test_two_alike_tokens_at_any_coupling():
    weak = float(said("24", r"turns into \$([\d.]+)\$ for"))
    token = torch.ones(1, 2, 1, dtype=torch.float64)
    with torch.no_grad():
        for strength, wanted in ((0.5, 1 / math.sqrt(2)), (1e-9, 2 / (1 + math.sqrt(5)))):
            found = saddle(dim=1, strength=strength, normalize=False)(token)[0, 0, 0]
            assert float(found) == pytest.approx(wanted, abs=1e-6)
    assert 2 / (1 + math.sqrt(5)) == near(weak, 3)


@answers("24.2", "24.3")
def test_the_response_needs_a_choice_and_knows_no_direction():
    rng = torch.Generator().manual_seed(0)
    three = torch.randn(1, 3, 4, dtype=torch.float64, generator=rng)
    module = saddle(dim=4, strength=1.0)
    with torch.no_grad():
        two = module(three[:, :2], return_parts=True)[1].response
        more = module(three, return_parts=True)[1].response
    assert two.abs().max() < 1e-12 < 1e-3 < more.abs().max()
    fields, weights = three[0, :2], torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64)
    correlation = torch.tensor([[1.0, 0.4], [0.4, 1.0]], dtype=torch.float64)
    zero = torch.zeros((), dtype=torch.float64)

    def coupled(first, second):
        def couplings(h):
            return torch.stack([zero, first(h), second(h), zero]).view(2, 2)

        return autograd_response(fields, couplings, correlation=correlation)

    def one(h):
        return torch.tanh(h[0] @ weights)

    def other(h):
        return (h[0] * h[1]).sum()

    def steeper(h):
        return one(h) + torch.sin(one(h) - one(fields))

    torch.testing.assert_close(coupled(one, other), coupled(other, one))
    assert steeper(fields) == one(fields)
    assert (coupled(steeper, other) - coupled(one, other)).abs().max() > 1e-3


@answers("24.5")
def test_how_fast_two_tokens_become_alike():
    told, modules = said("24", r"\$([\d.]+)\^L<0.001\$ gives \$L>([\d.]+)\$", 2)
    angle = 1e-4
    tokens = torch.tensor([[[1.0, angle], [1.0, -angle]]], dtype=torch.float64)
    with torch.no_grad():
        out = saddle(dim=2, strength=0.5)(tokens)[0]
    shrink = float(out[0, 1] / out[0, 0]) / angle
    assert shrink == near(told, 3)
    assert math.log(0.001) / math.log(shrink) == near(modules, 1)
    assert re.search(r"gives \$L>7.8\$: (\w+)", exercises("24"))[1] == "eight"


@answers("24.6", "24a.1")
def test_the_crowd_and_what_a_teacher_is_asked():
    assert crowd_share(2, kinds=8) == near(said("24", r"\\tfrac12=([\d.]+)\$\."), 4)
    numbers, unknowns = said("24a", r"Two: (\d+) numbers for (\d+) unknowns", 2)
    assert (numbers, unknowns) == (2 * 6 * 8, 8 * 8 + 2)
    assert math.ceil(66 / 24) == 3


@answers("25b.1")
def test_dissipation_of_a_pair():
    told = said("25b", r"which is ([\d.]+) for \$J=2\$")
    m = 2 / (1 + math.sqrt(5))

    def production(j):
        square = 1 + j * j
        gain = 2 / (1 + math.sqrt(1 + 4 * square))
        return 0.5 * j * j * gain * (1 - m * m)

    assert production(2.0) == near(told, 3)
    assert production(2e4) / production(1e4) == pytest.approx(2.0, rel=1e-3)


@answers("42.2")
def test_generator_voices():
    want, one = said(
        "42", r"deviation of ([0-9.]+) at the first token, if one voice deviates by ([0-9.]+)", 2
    )
    assert said("42", r"/0.05\)\^2 = (\d+)\$") == pytest.approx((one / want) ** 2)


@answers("42b.1")
def test_two_keys_of_a_head():
    s, share = 2.0, said("42b", r"1/\(1\+e\^\{2s\}\) = ([0-9.]+)")
    weights = np.exp([s, -s]) / np.exp([s, -s]).sum()
    assert weights[1] == near(share, 3)
    prior = np.log(np.mean(np.exp([s, -s])))
    assert prior == pytest.approx(np.log(np.cosh(s)))


@answers("42c.2")
def test_two_windows_meet():
    chance, steps = said(
        "42c", r"has the chance \$2.*\) = ([0-9.]+)\$ a step: after ([0-9.]+) steps", 2
    )
    rng = np.random.default_rng(0)
    turns = (rng.random((2, 20_000, 200)) < 0.1).sum(0) == 1
    assert chance == near(0.18, 2)
    assert turns.argmax(1).mean() + 1 == pytest.approx(steps, abs=0.15)
