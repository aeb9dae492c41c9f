"""The conventions that book/use.md states, run on input where the opposite gives something else.

A row of its table of masks says what True means. The test makes the mask that the row describes and
compares with the same call on what is left when the hidden tokens are not there at all.
"""

import math
import re
from pathlib import Path

import pytest
import torch
from known_memories import draw
from torch import nn

from spinformer.hopfield.attention import attention, retrieval_step
from spinformer.hopfield.continuous import energy, update
from spinformer.hopfield.layer import AttentionModule, HopfieldLayer
from spinformer.language.heads import head_report, overlap_energy
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.module import SpinTransformerModule

PAGE = (Path(__file__).parents[1] / "book" / "use.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
# Two sequences of six tokens; of the second the last two are hidden.
HIDDEN = torch.zeros(2, 6, dtype=torch.bool)
HIDDEN[1, 4:] = True


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    layer.self_attn = AttentionModule.from_attention(layer.self_attn, steps=2)
    return layer


def each_query(hidden):
    """A mask of queries and keys that hides the same keys from all queries of a sequence."""
    return hidden[:, None, :].expand(-1, hidden.shape[1], -1)


def report(**given):
    """The mean energy of heads whose queries, keys and values are the tokens."""
    x = given.pop("x")

    def read(states):
        return states.unflatten(-1, (2, 4)).transpose(1, 2)

    heads = {"keys": read(x), "values": read(x), "states": x, "output": torch.eye(8)}
    return torch.tensor(head_report(read(x), read=read, **heads, draws=0, **given).whole)[..., None]


# Of tokens (B, N, 8), a name and a mask of them: what a call makes of the tokens.
CALLS = {
    "torch's encoder layer around `AttentionModule`": (encoder, lambda f, x, how: f(x, **how)),
    "`SpinTransformerModule`": (
        lambda: SpinTransformerModule(8, heads=2),
        lambda f, x, how: f(x, **how),
    ),
    "`HopfieldLayer`": (
        lambda: HopfieldLayer(8, heads=2, steps=2),
        lambda f, x, how: f(x, patterns=x, **how),
    ),
    "`AttentionModule`": (
        lambda: AttentionModule(HopfieldLayer(8, heads=2)),
        lambda f, x, how: f(x, x, x, **how)[0],
    ),
    "`hopfield.attention.attention`": (
        lambda: attention,
        lambda f, x, how: f(x, keys=x, values=x, **how),
    ),
    "`hopfield.attention.retrieval_step`": (
        lambda: retrieval_step,
        lambda f, x, how: f(x, scaled=x, content=x, **how),
    ),
    "`language.heads.overlap_energy`": (
        lambda: overlap_energy,
        lambda f, x, how: f(x, keys=x, beta=1.0, **how)[..., None],
    ),
    "`language.heads.head_report`": (lambda: report, lambda f, x, how: f(x=x, **how)),
}


def test_the_page_says_what_every_mask_means():
    assert len(ROWS) == 10
    assert {owner for _, owner, _ in ROWS} == set(CALLS)


@pytest.mark.parametrize(("name", "owner", "meaning"), ROWS, ids=lambda word: word.split(".")[-1])
def test_a_mask_means_what_the_page_says(name, owner, meaning):
    make, run = CALLS[owner]
    function = make()
    x = draw(2, 6, 8, seed=3)

    def call(x, **masks):
        return run(function, x, masks).detach()

    mask = {
        "a token is padding": HIDDEN,
        "a query may not attend": each_query(HIDDEN),
        "a query may attend": ~each_query(HIDDEN),
    }[meaning]
    if mask.ndim == 3 and owner in ("`HopfieldLayer`", "`AttentionModule`"):
        mask = mask.repeat_interleave(2, 0)  # one for every head
    if owner == "`language.heads.head_report`" and mask.ndim == 3:
        # Here a query that is hidden counts as one that sees nothing.
        mask = (mask & ~HIDDEN[..., None])[:, None]
    wanted = [call(x[:1])[0], call(x[1:, :4])[0]]
    got = call(x, **{name: mask})
    opposite = None
    try:
        opposite = call(x, **{name: ~mask})
    except ValueError:
        assert owner.startswith("`hopfield.attention.attention") or "head_report" in owner
    for row, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(row[: len(right)], right, rtol=0, atol=1e-10)
    if opposite is not None:
        assert float((opposite[1, : len(wanted[1])] - wanted[1]).abs().max()) > 1e-3
    # Numbers are added, and minus infinity forbids; two take booleans alone.
    if name != "padding" and owner != "`hopfield.attention.attention`":
        hides = mask if meaning != "a query may attend" else ~mask
        numbers = torch.zeros(hides.shape).masked_fill(hides, -math.inf)
        torch.testing.assert_close(call(x, **{name: numbers}), got)


def test_axes_and_signs_are_those_of_the_page():
    assert "have the shape $(N, d)$" in PAGE
    patterns = draw(5, 3, seed=1)
    states = draw(4, 3, seed=2)
    moved = update(patterns, states=states, beta=2.0)
    assert moved.shape == (4, 3)
    assert "An update lowers the energy." in PAGE
    before, after = (energy(patterns, states=x, beta=2.0) for x in (states, moved))
    assert bool((after < before).all())

    assert "is the first axis of a `HopfieldLayer` unless its `batch_first` is False" in PAGE
    layer = HopfieldLayer(8, heads=2)
    x = draw(2, 6, 8)
    alone = layer(x[:1], patterns=x[:1])
    torch.testing.assert_close(layer(x, patterns=x)[:1], alone)
    layer.batch_first = False
    assert float((layer(x, patterns=x)[:1] - alone).abs().max().detach()) > 1e-3
    torch.testing.assert_close(
        layer(x.transpose(0, 1), patterns=x.transpose(0, 1))[:, :1], alone.transpose(0, 1)
    )

    # Modules of spins say which axis that is, too, as torch's layers do.
    for module in (SpinTransformerModule(8, heads=2), DrivenSpinModule(8, heads=2)):
        assert module.batch_first
        torch.testing.assert_close(module(x)[:1], module(x[:1]))

    assert "The energy $U$ of a head is never positive" in PAGE
    assert bool((overlap_energy(x, keys=x, beta=1.0) < 0).all())
    assert "a head that descends has a negative change" in PAGE
    # What a head reads by keys that are its values is the descent of U up to a common part.
    keys = x - x.mean(1, keepdim=True)
    whole = report_of_descent(x, keys)
    assert bool((whole < 0).all())


def report_of_descent(x, keys):
    """The change of U by a step along −∇U: one head whose keys, centred, are its values."""

    def read(states):
        return states[:, None]

    given = {"keys": keys[:, None], "values": keys[:, None], "states": x}
    found = head_report(read(x), read=read, output=0.1 * torch.eye(8), beta=1.0, draws=0, **given)
    return torch.tensor(found.whole)
