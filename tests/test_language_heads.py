"""Reports on heads: beside the code of chapter 14, a decoder written out, heads made to fall."""

import math
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compendium.c14_real_transformer.steps import turned_steps
from spinformer.language.heads import HeadReport, head_report, overlap_energy
from spinformer.language.traces import output_matrix, project, trace_layers
from spinformer.language.untrained import LAYOUTS, example_causal_model, example_model
from spinformer.plot.heads import head_map, show_heads

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


def of_encoder(model, trace, **options):
    given = {
        "keys": trace.keys,
        "values": trace.values,
        "states": trace.inputs,
        "read": lambda x: project(model, trace.layer, "query", states=x),
        "output": output_matrix(model, trace.layer),
        "outputs": trace.attended,
    }
    return head_report(trace.queries, **given | options)


def test_the_null_of_an_encoder_is_that_of_chapter_14():
    model = example_model(seed=3).model
    trace = trace_layers(model, TOKENS)[1]
    found = of_encoder(model, trace, draws=1, seed=5)
    null = turned_steps(model, trace, seed=5)[0]
    np.testing.assert_allclose(found.null_whole[0], null, atol=1e-12)
    # What all tokens get alike is no part of what is specific to one, of heads and of turned ones.
    alike = {"values": trace.values + 1.0, "outputs": None}
    other = of_encoder(model, trace, draws=1, seed=5, **alike)
    assert np.abs(other.null_whole - found.null_whole).max() > 1e-3
    for name in ("specific", "centered_cosine", "null_specific", "null_centered_cosine"):
        np.testing.assert_allclose(getattr(other, name), getattr(found, name), atol=1e-10)


def test_it_reports_on_the_device_of_the_queries():
    model, mask = example_model(seed=3).model, torch.ones(5, 5, dtype=torch.bool).tril()
    trace = trace_layers(model, TOKENS)[1]
    with torch.device("meta"):
        for options in ({}, {"mask": mask, "outputs": None}):
            of_encoder(model, trace, draws=1, **options)


class Attention(nn.Module):
    """Causal, four query heads on two key heads, rotary positions."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(12, 16), nn.Linear(16, 12)
        self.k_proj, self.v_proj = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, x):
        q, k, v = (heads(linear(x)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(
            rotate(q), rotate(k), v, is_causal=True, enable_gqa=True
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(12), Attention()

    def forward(self, x):
        return x + self.self_attn(self.input_layernorm(x))


def heads(x):
    return x.unflatten(-1, (-1, 4)).transpose(1, 2)


def rotate(x):
    angle = torch.arange(x.shape[-2]) * 0.7
    one, two = x.chunk(2, -1)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


@pytest.fixture
def decoder():
    torch.manual_seed(1)
    block, x = Block().double(), torch.randn(3, 6, 12).double()
    attention, normed = block.self_attn, block.input_layernorm(x).detach()
    with torch.no_grad():
        q, k, v = (heads(getattr(attention, f"{name}_proj")(normed)) for name in "qkv")
        outputs = attention(normed)
    return block, {
        "queries": rotate(q),
        "keys": rotate(k),
        "values": v,
        "states": x,
        "read": lambda y: rotate(heads(attention.q_proj(block.input_layernorm(y)))),
        "output": attention.o_proj.weight.detach(),
        "outputs": outputs,
        "mask": torch.ones(6, 6, dtype=torch.bool).tril(),
    }


def test_the_lines_of_the_page_say_the_same(decoder, capsys):
    """Hooks on the projections of a model that knows nothing of this package."""
    block, given = decoder
    page = (Path(__file__).parents[1] / "book" / "use.md").read_text(encoding="utf-8")
    traced, lines = re.findall(r"```py\n((?:(?!```).)*head_report\((?:(?!```).)*)```", page, re.S)
    names = {"model": block, "block": block, "tokens": given["states"], "rotate": rotate}
    exec(lines, names | {"width": 4, "count": 6})
    assert capsys.readouterr().out == "".join(f"{row}\n" for row in call(given).table())
    plt.close()
    # A model of transformers, of every layout: what is not explained is refused.
    for layout in LAYOUTS:
        exec(
            traced, {"model": example_causal_model(layout), "tokens": torch.tensor([[3, 4, 5, 6]])}
        )
        assert len(capsys.readouterr().out.splitlines()) == 4


def call(given, **changed):
    given = {**given, **changed}
    return head_report(given.pop("queries"), **given)


def test_a_decoder_written_out(decoder):
    """Head 3 of one sequence, token by token."""
    _, given = decoder
    found, head, row = call(given, draws=0), 3, 1
    keys, values = (given[name][row, head // 2] for name in ("keys", "values"))
    write = given["output"][:, 4 * head : 4 * head + 4]

    def energies(states):
        queries = given["read"](states[None])[0, head]
        overlaps = [keys[: t + 1] @ query / 2 for t, query in enumerate(queries)]
        return torch.stack([-2 * (one.exp().mean().log() - one.mean()) for one in overlaps])

    x = given["states"][row].clone().requires_grad_()
    weights = [(keys[: t + 1] @ given["queries"][row, head, t] / 2).softmax(0) for t in range(6)]
    step = torch.stack([write @ (w @ values[: len(w)]) for w in weights])
    common = step[1:].mean(0) + 0 * step
    now = energies(x)
    (down,) = torch.autograd.grad(-now.sum(), x)
    assert abs(now[0]) < 1e-14  # a token that sees itself alone is left out
    parts = {"whole": step, "common": common, "specific": step - common}
    wanted = {name: (energies(x + part) - now)[1:].mean() for name, part in parts.items()}
    wanted |= {"energy": now[1:].mean(), "fell": (energies(x + step) < now)[1:].double().mean()}

    def cosine(one, two):
        return torch.cosine_similarity(one[1:].flatten(), two[1:].flatten(), dim=0)

    wanted["cosine"] = cosine(step, down)
    wanted["centered_cosine"] = cosine(step - common, down - down[1:].mean(0))
    for name, value in wanted.items():
        assert getattr(found, name)[row, head] == pytest.approx(value.item(), abs=1e-12), name


def test_the_way_queries_and_keys_are_written_changes_nothing(decoder):
    _, given = decoder
    torch.manual_seed(2)
    change, shift = torch.randn(4, 4).double(), torch.randn(4).double()
    other = {
        "queries": given["queries"] @ change,
        "keys": given["keys"] @ torch.linalg.inv(change).T + shift,
        "read": lambda y: given["read"](y) @ change,
    }
    one, two = call(given, draws=3).table(), call(given, draws=3, **other).table()
    for row, same in zip(one, two, strict=True):
        assert row == pytest.approx(same, abs=1e-9)
    # Numbers that forbid, and a uniform bias of what is allowed, are the same mask.
    bias = torch.zeros(6, 6).double().masked_fill(~given["mask"], -1e9) + 2.0
    assert np.allclose(call(given, mask=bias, draws=0).whole, call(given, draws=0).whole)
    # Tokens that see nothing are not there.
    short = {n: given[n][..., :4, :] for n in ("queries", "keys", "values", "states", "outputs")}
    padded = given["mask"].clone()
    padded[4:] = False
    cut = call({**given, **short, "mask": given["mask"][:4, :4]}, draws=2)
    padded = call(given, mask=padded, draws=2)
    for name in ("null_whole", "specific"):
        np.testing.assert_allclose(getattr(padded, name), getattr(cut, name))


@pytest.mark.parametrize("sign", [1, -1])
def test_heads_made_to_descend_or_climb_are_told_from_the_null(sign):
    """W_O W_V = ± W_QᵀW_K with centered keys: the step is the descent, or its reverse."""
    torch.manual_seed(0)
    x, (q, k) = torch.randn(4, 16, 48), 0.2 * torch.randn(2, 6, 8, 48)
    x = x - x.mean(1, keepdim=True)
    keys = torch.einsum("hdD,bnD->bhnd", k, x)

    def read(y):
        return torch.einsum("hdD,bnD->bhnd", q, y)

    output = sign * 0.1 * q.permute(2, 0, 1).flatten(1)
    found = head_report(read(x), keys=keys, values=keys, states=x, read=read, output=output)
    np.testing.assert_allclose(found.centered_cosine, sign, atol=1e-5)
    assert (sign * found.z("whole") < -3).all()
    assert (sign * found.whole < 0).all()
    assert (sign * found.z("centered_cosine") > 3).all()
    for reports, panels in ((found, 2), ([found, found], 4)):
        assert len(show_heads(reports).axes) == panels
        plt.close()


class FirstOnly:
    """A map that gives NaN from its second call on."""

    def __init__(self, read):
        self.read, self.calls = read, 0

    def __call__(self, states):
        self.calls += 1
        return self.read(states) * (1.0 if self.calls == 1 else torch.nan)


def test_padding_takes_no_part(decoder):
    """Only what stands in the padding changes; and the numbers are those of the shorter texts."""
    _, given = decoder
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1:, 4:] = True
    there = ~padding[:, None, :, None]
    kept = dict.fromkeys(("mask", "outputs"))
    found = call(given, padding=padding, draws=3, **kept)
    for seed, size in ((1, 1.0), (2, 1e200)):
        torch.manual_seed(seed)
        drawn = size * torch.randn_like(given["states"])
        other = {"states": given["states"].where(there[:, 0], drawn)}
        other["queries"] = given["read"](other["states"])
        for name in ("keys", "values"):
            other[name] = given[name].where(there, size * torch.randn_like(given[name]))
        assert call(given, padding=padding, draws=3, **kept | other) == found
    counted = {**kept, "mask": ~padding[:, None, None]}
    with pytest.warns(RuntimeWarning, match="give padding="):
        wrong = call(given, draws=3, **counted)
    assert np.abs(wrong.whole[1:] - found.whole[1:]).max() > 1e-3
    # With its outputs, under a causal mask, and by a mask of numbers.
    numbers = torch.zeros(6, 6).double().masked_fill(~given["mask"], -torch.inf)
    parts = [call(given, padding=padding, draws=0, mask=mask) for mask in (given["mask"], numbers)]
    names = ("queries", "keys", "values", "states", "outputs")
    short = {name: given[name][1:, ..., :4, :] for name in names}
    alone = call({**given, **short, "mask": given["mask"][:4, :4]}, draws=0)
    whole = call({**given, **short}, draws=0, **kept)
    np.testing.assert_allclose(found.whole[1:], whole.whole, atol=1e-12)
    full = call(given, draws=0)
    for part in parts:
        for name in ("energy", "whole", "common", "specific", "fell", "cosine"):
            np.testing.assert_allclose(getattr(part, name)[1:], getattr(alone, name), atol=1e-12)
            np.testing.assert_allclose(getattr(part, name)[0], getattr(full, name)[0], atol=1e-12)
    # Numbers near the end of the range, where a query times a key would overflow.
    x = torch.randn(2, 5, 8).double()
    hidden = torch.arange(5).expand(2, 5) > 2
    reports = []
    for size in (1.0, 1e308):
        states = x.where(~hidden[..., None], size * x.sign())
        read = {"read": lambda y: heads(y), "output": torch.eye(8).double(), "states": states}
        how = {"keys": heads(x), "values": heads(x), "padding": hidden, "draws": 2}
        reports.append(head_report(heads(states), **how, **read))
    assert reports[0] == reports[1]
    with pytest.raises(ValueError, match="padding must be None where queries"):
        head_report(
            given["queries"][..., :5, :],
            **{name: given[name] for name in ("keys", "values", "output")},
            states=given["states"][:, :5],
            read=given["read"],
            padding=padding,
        )


def test_rows_print_as_lines_and_distances_are_in_spreads_of_a_sample():
    zero, pair = np.zeros((1, 1)), np.array([[0.0], [2.0]])
    names = ("energy", "common", "specific", "fell", "cosine", "centered_cosine")
    nulls = {f"null_{name}": pair for name in ("whole", "specific", "centered_cosine")}
    report = HeadReport(**dict.fromkeys(names, zero), whole=np.array([[3.0]]), **nulls)
    # Mean 1 and, of two draws, a spread of √2, which a divisor of two would call 1.
    assert report.z("whole") == pytest.approx([math.sqrt(2.0)])
    (row,) = report.table()
    assert row["whole_z"] == pytest.approx(math.sqrt(2.0))
    assert "whole +3 (z +1.4), common +0, " in str(row)
    assert str(report) == str(row)
    figure = show_heads(report)
    (bars,) = [c for c in figure.axes[0].collections if len(c.get_segments()) == 1][:1]
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((1.0 - 2 * math.sqrt(2.0), 1.0 + 2 * math.sqrt(2.0)))
    plt.close()


def test_the_energy_of_small_scores_leaves_the_gradient_of_large_ones():
    """The series that serves small scores overflows for large ones, which do not take it."""
    keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    queries = torch.tensor([[1e-3, 0.0], [2000.0, 0.0]], dtype=torch.float64, requires_grad=True)
    energy = overlap_energy(queries, keys=keys, beta=1.0)
    (slope,) = torch.autograd.grad(energy.sum(), queries)
    # −ln cosh x of the component along the keys.
    torch.testing.assert_close(slope[:, 0], -torch.tanh(queries.detach()[:, 0]))


def test_the_map_of_heads_drops_only_a_leading_zero():
    axis = plt.figure().subplots()
    show_map = {"label": "cosine", "limit": 20.0, "digits": 2}
    head_map(axis, np.array([[0.25, -0.25], [10.05, -10.05]]), **show_map)
    written = [text.get_text() for text in axis.texts]
    assert written == [".25", "-.25", "10.05", "-10.05"]
    plt.close()


def test_an_overlap_energy_is_a_number_or_refused():
    torch.manual_seed(0)
    keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    for changed, message in (
        ({"mask": torch.full((2, 2), torch.nan)}, "mask must have entries below infinity"),
        ({"mask": torch.full((2, 2), torch.inf)}, "mask must have entries below infinity"),
        ({"mask": 1e39 * torch.ones(2, 2).double()}, "mask must have entries below infinity"),
        ({"queries": torch.full((2, 2), 1e30), "keys": 1e30 * keys}, "overflow in the energy"),
    ):
        given = {"queries": torch.eye(2), "keys": keys, "beta": 1.0} | changed
        with pytest.raises(ValueError, match=message):
            overlap_energy(given.pop("queries"), **given)
    # Neither what a mask hides nor an origin far away takes part.
    queries, near = torch.randn(2, 6, 3, dtype=torch.float64).unbind()
    keys = torch.cat([near, 1e308 * near.sign()])
    mask = torch.arange(12).expand(6, 12) < 6
    found = overlap_energy(queries, keys=keys, beta=1.0, mask=mask)
    torch.testing.assert_close(found, overlap_energy(queries, keys=near, beta=1.0))
    far = near.float() + 1e6
    found = overlap_energy(queries.float(), keys=far, beta=1.0)
    wanted = overlap_energy(queries.float().double(), keys=far.double(), beta=1.0)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    # Where scores are small, log N is not subtracted from what is nearly log N.
    queries, keys = torch.randn(2, 6, 3).unbind()
    for mask in (None, torch.ones(6, 6, dtype=torch.bool).tril()):
        for beta in (1e-30, 1e-6, 1e-3, 0.1, 0.7, 2.0):
            given = {"beta": beta, "mask": mask}
            found = overlap_energy(queries.requires_grad_(), keys=keys, **given)
            wide = queries.detach().double().requires_grad_()
            exact = overlap_energy(wide, keys=keys.double(), **given)
            torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)
            slopes = [
                torch.autograd.grad(u.sum(), x)[0] for u, x in ((found, queries), (exact, wide))
            ]
            torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=1e-4, atol=1e-5)
            weights = torch.full((6, 6), 1 / 6) if mask is None else mask / mask.sum(-1, True)
            scores = wide.detach() @ keys.double().T
            if beta > 0.01:
                means = (weights * (beta * scores).exp()).sum(-1).log() / beta
                wanted = (weights * scores).sum(-1) - means
                torch.testing.assert_close(exact.detach(), wanted, rtol=1e-6, atol=1e-6)
            if beta < 1e-3:  # the second cumulant
                spread = (weights * scores**2).sum(-1) - (weights * scores).sum(-1) ** 2
                torch.testing.assert_close(
                    exact.detach(), -0.5 * beta * spread, rtol=1e-4, atol=1e-13
                )


def test_what_does_not_fit_is_refused(decoder):
    _, given = decoder
    for changed, message in (
        ({"mask": None}, "outputs must be what the heads write"),
        ({"beta": 1.0}, "outputs must be what the heads write"),
        ({"keys": given["keys"].flip(1)}, "outputs must be what the heads write"),
        ({"read": lambda y: given["queries"] + 1}, "read must"),
        ({name: given[name][:, [0, 1, 0]] for name in ("keys", "values")}, "keys and values must"),
        ({"values": given["values"][:, :1]}, "keys and values must"),
        ({"mask": torch.ones(5, 6) > 0}, "mask must"),
        ({"mask": torch.eye(6) > 0}, "mask and padding must leave two keys"),
        ({"mask": torch.full((6, 6), torch.nan)}, "mask must have entries below infinity"),
        ({"mask": torch.full((6, 6), torch.inf)}, "mask must have entries below infinity"),
        ({"padding": torch.zeros(3, 5) > 0}, "padding must have shape"),
        ({"padding": torch.zeros(3, 6)}, "padding must be a boolean"),
        ({"read": lambda y: given["read"](y).detach()}, "read must keep the gradient"),
        ({"read": lambda y: given["read"](y) + 0j}, "read must be"),
        ({"read": lambda y: given["read"](y).float()}, "read must be"),
        ({"read": FirstOnly(given["read"])}, "read must give finite queries"),
        ({"mask": torch.ones(6, 6).int()}, "mask must"),
        ({"output": given["output"].T}, "output must"),
        ({"states": given["states"].half()}, "states must"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call(given, **changed)
