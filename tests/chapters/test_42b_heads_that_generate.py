"""Heads of a generator: kinds that were put there, stages written out, heads that descend."""

import math

import numpy as np
import pytest
import torch
from known_generators import example_decoder
from open_cells import run_open_cells

from compendium.c14b_heads_and_fixed_points.loops import memory_of
from compendium.c23c_real_layer.study import text_blocks
from compendium.c42b_heads_that_generate import study
from compendium.c42b_heads_that_generate.study import kinds, layer_report, stage_changes
from spinformer.language.heads import overlap_energy
from spinformer.language.traces import output_matrix, project, trace_layers
from spinformer.spins.solvers import solve_saddle_point


def inputs_of(model, *, length=9, count=3):
    words = torch.randint(32, (count, length), generator=torch.Generator().manual_seed(0))
    return model.embedding[words]


def energy_of(model, number, states, keys):
    """U (B, H) by its definition: divergence of attention from equal weights, token by token."""
    queries = project(model.model, number, "query", states=states)
    beta = model.head_width**-0.5
    scores = beta * torch.einsum("bhnd,bhmd->bhnm", queries, keys[:, [0, 0, 1, 1]])
    seen = [scores[:, :, n, : n + 1] for n in range(1, states.shape[1])]
    each = [(math.log(s.shape[-1]) + s.mean(-1) - s.logsumexp(-1)) / beta for s in seen]
    return torch.stack(each).mean(0)


@pytest.mark.claim("R7")
def test_stages_are_changes_of_the_energy_written_out():
    model = example_decoder(seed=1)
    inputs = inputs_of(model)
    first, trace = trace_layers(model.model, inputs)
    stages = (trace.inputs, trace.inputs + trace.attended, trace.outputs)
    before, *after = (energy_of(model, 1, states, trace.keys) for states in stages)
    expected = {"attention": after[0] - before, "block": after[1] - before}
    torch.testing.assert_close(stage_changes(model, trace), expected)
    # What enters the second block is what left the first.
    torch.testing.assert_close(trace.inputs, first.outputs)


@pytest.mark.claim("R8")
def test_kinds_are_found_where_they_were_put():
    model = example_decoder(seed=2)
    trace = trace_layers(model.model, inputs_of(model, length=12))[0]
    weights = trace.attention
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]).double())
    assert float(weights.triu(1).abs().max()) == 0.0
    later = torch.arange(1, 12)
    told = {"sink": weights[:, :, 1:, 0], "previous": weights[:, :, later, later - 1]}
    wanted = {name: seen.mean((0, 2)) for name, seen in told.items()}
    torch.testing.assert_close(kinds(trace), wanted)


@pytest.mark.claim("R6")
def test_a_head_that_descends_is_told_from_one_that_climbs():
    """A small step and its reverse: who descends by the one climbs by the other."""
    model, reports = example_decoder(seed=3), []
    output = output_matrix(model.model, 0)
    for scale in (1e-3, -1.0):
        output.mul_(scale)
        trace = trace_layers(model.model, inputs_of(model))[0]
        report = layer_report(model, trace, draws=0)
        before = energy_of(model, 0, trace.inputs, trace.keys)
        assert report.energy == pytest.approx(before.numpy(), abs=1e-9)
        small = {"rtol": 0.05, "atol": 1e-7}
        np.testing.assert_allclose(report.whole, report.common + report.specific, **small)
        reports.append(report)
    for name in ("whole", "specific"):
        there, back = (getattr(report, name) for report in reports)
        np.testing.assert_allclose(there, -back, rtol=0.05, atol=1e-7)
        assert abs(there).max() > 1e-6


def test_what_a_head_writes_to_itself_is_read_as_the_model_reads():
    model = example_decoder(blocks=3, seed=4)
    inputs = inputs_of(model, count=1)
    keys, read, queries = memory_of(model, 1, inputs)
    trace = trace_layers(model.model, inputs)[1]
    weights = trace.attention[0]
    # The last of the queries that are asked at the end, the ninth token, stands there anyway.
    scores = model.head_width**-0.5 * torch.einsum("hd,hnd->hn", queries[:, -1], keys)
    torch.testing.assert_close(scores.softmax(-1), weights[:, -1])
    # What one key returns, as the query of a state that is it alone, but for the state's size.
    size = trace.inputs[0].square().mean(-1).sqrt().median()
    for head in range(4):
        columns = output_matrix(model.model, 1)[:, 4 * head : 4 * head + 4]
        states = trace.values[0, head // 2] @ columns.T
        asked = project(model.model, 1, "query", states=1e4 * states[:, None], start=8)[:, head, 0]
        own = states.square().mean(-1, keepdim=True).sqrt()
        torch.testing.assert_close(read[head], asked * own / size, rtol=1e-6, atol=1e-9)


def test_parts_of_a_causal_block_add_up_and_its_response_is_a_derivative():
    model = example_decoder(seed=5)
    inputs = inputs_of(model)
    terms, attended, flat = text_blocks(model, 1, inputs)
    trace = trace_layers(model.model, inputs)[1]
    weights = trace.attention
    own = weights.diagonal(0, -2, -1)[..., None] * terms["own"]
    torch.testing.assert_close((terms["directed"] + own).sum(1), attended)
    torch.testing.assert_close(attended, trace.attended)
    # The first token has nobody before it, and, symmetrised, sees those who look back.
    assert float(terms["directed"][:, :, 0].abs().max()) == 0.0
    pull = 0.5 * weights[:, :, 1:, 0, None]
    back = (pull * terms["own"][:, :, 1:]).sum(2)
    torch.testing.assert_close(terms["symmetrized"][:, :, 0], back)
    torch.testing.assert_close(terms["balanced"][:, :, 0], back / pull.sum(2))
    torch.testing.assert_close(terms["uniform"][:, :, 4], terms["own"][:, :, :5].mean(2))
    values = trace.values.repeat_interleave(2, 1)
    fields = 2.0 * values / values.square().sum(-1).mean(-1).sqrt()[..., None, None]
    c = solve_saddle_point(0.5 * weights, fields=fields, beta=1.0, tolerance=1e-8).correlations
    step = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(1)).double()
    alone = model.model
    alone.model.layers = alone.model.layers[1:]
    moved = (trace_layers(alone, trace.inputs + h * step)[0] for h in (1e-5, -1e-5))
    there, back = (each.attention for each in moved)
    for name, chosen in (("response", c), ("other head", c.roll(1, 1))):
        expected = float((0.5 * (there - back) * chosen).sum()) / 2e-5
        assert float((flat[name] * step.flatten(0, 1)).sum()) == pytest.approx(expected, rel=1e-6)


def test_counts_of_a_text_are_those_of_its_heads(monkeypatch):
    """Against a run of all blocks at once, each read by itself."""
    model = example_decoder(seed=6)
    inputs = inputs_of(model)
    monkeypatch.setattr(study, "decoder", lambda: model)
    monkeypatch.setattr(study, "corpus_inputs", lambda *_, **__: inputs)
    rows = study.text_table.rows("texts", blocks=2)
    wanted = {"whole": 0, "specific": 0, "sinks": 0, "others_climb": 0, "attention": 0, "block": 0}
    for number in range(2):
        trace = trace_layers(model.model, inputs, layers=[number])[0]
        report = layer_report(model, trace, draws=0)
        changes = stage_changes(model, trace)
        sinks = (trace.attention[:, :, 1:, 0].mean(2) > 0.5).numpy()
        wanted["whole"] += (report.whole < 0).sum(1)
        wanted["specific"] += (report.specific < 0).sum(1)
        wanted["sinks"] += sinks.sum(1)
        wanted["others_climb"] += (~sinks & (report.whole > 0)).sum(1)
        for name, change in changes.items():
            wanted[name] += (change.sum(1) < 0).numpy()
    for name, counts in wanted.items():
        assert [row[name] for row in rows] == counts.tolist(), name
    assert [row["sinks"] + row["others"] for row in rows] == [8, 8, 8]


def test_margins_of_a_text_are_the_smaller_ones(monkeypatch):
    text = {"data": 3, "heads": 100, "layers": 30, "whole": 80, "specific": 40}
    text |= {"sinks": 50, "sinks_climb": 40, "others": 50, "others_climb": 10}
    text |= {"attention": 24, "block": 12}
    monkeypatch.setattr(study, "of_corpus", lambda _: [text])
    expected = {"settings_R6": 0.6 - 2 * 0.4, "settings_R7": 0.1, "settings_R8": 0.3}
    for name, value in expected.items():
        [row] = getattr(study, name).rows("texts")
        assert row["value"] == pytest.approx(value)
        assert row["low"] < row["value"] < row["high"]


def test_the_open_cells_are_what_the_package_computes():
    names = run_open_cells("42b_heads_that_generate")
    generator = np.random.default_rng(3)
    keys = generator.normal(size=(20, 8))
    query = generator.normal(size=8)
    asked = torch.as_tensor(query)[None, None, None]
    found = overlap_energy(asked, keys=torch.as_tensor(keys)[None, None], beta=1.0)
    assert names["own_energy"](query, keys) == pytest.approx(found.item(), rel=1e-9)
    with_keys, independent, against = names["toy_fractions"]
    assert with_keys > 0.98
    assert against < 0.02
    assert independent == pytest.approx(0.5, abs=0.1)
