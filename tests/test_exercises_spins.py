"""The answers to the exercises on spins with many components and on layers made of them."""

import math

import numpy as np
import pytest
import torch
from exercises import answers, near, said
from minilm_model import installed_model
from scipy.optimize import brentq

from compendium.c23_anatomy.feed_forward import share_between_groups
from compendium.c23_anatomy.study import dissect, draw_bilinear, draw_tokens, softmax_couplings
from compendium.c23c_real_layer.study import mixing_terms
from spinformer.language.encoder import embed, run_layer
from spinformer.language.text import sample_texts, text_windows
from spinformer.spins.large_d import correlations, magnetization, vector_spins
from spinformer.spins.module import response_attention
from spinformer.spins.vectors import two_spins


@answers("22.1", "22.2")
def test_vector_spins():
    beta, h = 1.3, 0.7
    aligned = 2 * beta * h / (1 + math.sqrt(1 + 4 * (beta * h) ** 2))
    assert aligned / (1 - aligned**2) == pytest.approx(beta * h)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    field = torch.tensor([[h, 0.0]], dtype=torch.float64)
    answer = torch.autograd.functional.jacobian(
        lambda x: magnetization(zero, fields=math.sqrt(2) * x, beta=beta) / math.sqrt(2), field
    )[0, :, 0]
    along = beta * (1 - aligned**2) ** 2 / (1 + aligned**2)
    np.testing.assert_allclose(answer, [[along, 0.0], [0.0, aligned / h]], atol=1e-7)
    told = said("22", r"Both give ([\d.]+): a pair")
    pair = torch.tensor([[0, 0.5], [0.5, 0]]).double()
    by_package = correlations(pair, fields=torch.zeros(2, 1).double(), beta=1.0)
    assert float(by_package[0, 1]) == near(told, 3)
    exact = two_spins(pair.numpy(), fields=np.zeros((2, 100)), beta=1.0)
    assert exact.correlation[0, 1] == pytest.approx(told, abs=2e-3)
    assert 2 / (1 + math.sqrt(5)) == near(told, 3)


@answers("23.1", "23.2", "23.3")
def test_the_anatomy():
    fields, bilinear = draw_tokens(24, sites=24, dim=32, seed=0), draw_bilinear(32, seed=1)
    couplings = softmax_couplings(fields, bilinear=bilinear, scale=32**0.5, strength=0.7)
    alike = torch.rand(24, 24, 1, dtype=torch.float64, generator=torch.manual_seed(0))
    options = {"strength": 0.7}
    weights = response_attention(couplings, correlation=fields @ fields.mT, **options)
    assert float(weights.sum(-1).abs().max()) < 1e-12
    none = response_attention(couplings, correlation=alike.expand(24, 24, 24), **options)
    assert float(none.abs().max()) < 1e-12
    # All g/N: free spins below βg = ½, order above.
    ordered = said("23", r"which is \$(-[\d.]+)\$ at \$g = 2\$")
    assert -2 + (1 + math.log(4)) / 2 == near(ordered, 3)
    for strength, multiplier, density in ((0.3, 0.5, 0.0), (0.5, 0.5, 0.0), (2.0, 2.0, ordered)):
        off = []
        for count in (64, 256):
            uniform = torch.full((count, count), strength / count, dtype=torch.float64)
            solved = vector_spins(uniform, fields=0 * uniform[:, :1], beta=1.0)
            tau = float(solved.saddle.value[0]) - strength / count
            off.append((tau - multiplier, float(solved.free_energy) / count - density))
        first, second = np.abs(off)
        assert (second < 0.55 * first).all()
        assert (second < 0.035).all()
    at, size = said("23", r"near \$g = ([\d.]+)\$, where both have a size of about ([\d.]+)\.", 2)

    def sizes(strength):
        parts = dissect(fields, bilinear=bilinear, beta=1.0, strength=strength).sizes()
        return [float(parts[name].mean()) for name in ("first_step", "higher_orders")]

    crossing = brentq(lambda g: float(np.diff(sizes(g))[0]), 0.4, 0.6, xtol=1e-3)
    assert crossing == near(at, 2)
    assert sizes(crossing) == [near(size, 2)] * 2


@answers("23.4", "23.5")
def test_the_response():
    pair = torch.tensor([[0.0, 0.4], [0.4, 0.0]], dtype=torch.float64)
    any_two = torch.randn(2, 2, dtype=torch.float64, generator=torch.manual_seed(0))
    weights = response_attention(pair, correlation=any_two @ any_two.mT, strength=0.4)
    assert float(weights.abs().max()) == 0.0
    told = said(
        "23",
        r"is ([\d.]+) for random directions and ([\d.]+) for clusters .*"
        r"against ([\d.]+) and ([\d.]+) for the response",
        4,
    )
    bilinear = draw_bilinear(16, seed=1)
    centres = draw_tokens(1, sites=4, dim=16, seed=6)[0]
    found: dict[str, list[float]] = {"first_step": [], "response": []}
    for prototypes in (None, centres):
        # Eighty tokens, each with ten draws of its companions.
        fields = draw_tokens(800, sites=12, dim=16, seed=30, prototypes=prototypes, spread=0.5)
        fields = fields.unflatten(0, (80, 10)).clone()
        fields[:, :, 0] = fields[:, :1, 0]
        parts = dissect(fields, bilinear=bilinear, beta=1.0, strength=0.5)
        for name, shares in found.items():
            shares.append(share_between_groups(getattr(parts, name)[:, :, 0]))
    shares = found["first_step"] + found["response"]
    assert shares == [near(value, 2) for value in told]


@answers("23c.1")
def test_a_real_layer():
    looks = torch.zeros(5, 5, dtype=torch.float64)
    looks[:, -1] = 1.0
    both = (looks + looks.T) / 2
    both = both - torch.diag(both.diagonal())
    assert both.sum(-1).tolist() == [0.5, 0.5, 0.5, 0.5, (5 - 1) / 2]
    values = torch.randn(5, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    normalized = both / both.sum(-1, keepdim=True)
    torch.testing.assert_close((normalized @ values)[-1], values[:4].mean(0))


@answers("23c.2")
def test_heads_of_a_real_layer():
    model = installed_model()
    square, product, whole, wanted, ahead = (np.zeros(12) for _ in range(5))
    total = 0.0
    for words in sample_texts().values():
        trace = run_layer(model, 0, inputs=embed(model, text_windows(model, words, 64)[:1]))
        terms = mixing_terms(model, trace)
        balanced, directed = (
            terms[name] - terms[name].mean(2, keepdim=True) for name in ("balanced", "directed")
        )
        square += balanced.square().sum((0, 2, 3)).numpy()
        product += (balanced * directed).sum((0, 2, 3)).numpy()
        whole += directed.square().sum((0, 2, 3)).numpy()
        total += float(directed.sum(1).square().sum())
        weights = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
        wanted += weights.diagonal(-1, -2, -1).mean((0, 2)).numpy() / 7
        ahead += weights.diagonal(1, -2, -1).mean((0, 2)).numpy() / 7
    explained = product**2 / square / whole
    lost = (1 - explained) * whole / total
    assert lost.argmax() == 2
    assert (wanted[2], ahead[2]) == pytest.approx((1.0, 0.0), abs=0.05)
    assert [explained[2], lost[2]] == [
        near(value, 2)
        for value in said("23c", r"explains ([\d.]+) of .* the rest is ([\d.]+) of the", 2)
    ]
    lower = np.flatnonzero(explained < explained[2])
    assert len(lower) == 2
    assert (whole[lower] < whole[2]).all()
