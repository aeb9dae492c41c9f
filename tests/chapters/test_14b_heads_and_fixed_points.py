"""Repeated attention: where it ends, its four loops; attention statistics of heads."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from minilm_model import two_models
from open_cells import run_open_cells
from scipy.special import softmax

from compendium.c14b_heads_and_fixed_points import loops, sizes
from spinformer.hopfield.continuous import retrieve
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.traces import LayerTrace, trace_layers
from spinformer.language.untrained import example_model


def double(rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_a_row_that_rests_is_frozen_and_measured_alone():
    """Rates 0.5 and 0.9: the fast row stops first, after its own number of steps."""

    def step(x):
        return torch.stack([x[:, 0], x[:, 0] * x[:, 1]], dim=1)

    rates = np.array([0.5, 0.9])
    states, _ = loops.repeat(step, double([[0.5, 1.0], [0.9, 1.0]]), tolerance=1e-6)
    steps = np.log(states[:, 1].numpy()) / np.log(rates)
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)
    # x (1/r − 1) is the last step, in units of the size of the states.
    size = float(states.square().sum(-1).mean().sqrt())
    np.testing.assert_array_equal(
        steps.round(), np.ceil(np.log(1e-6 * size / (1 / rates - 1)) / np.log(rates))
    )


def test_repeat_says_what_rests():
    """Not too few steps, nor a cycle or a drift."""
    maps = {
        "rest": lambda x: 0.5 * x + 1.0,
        "slow": lambda x: 0.999 * x + 1.0,
        "flip": lambda x: -x,
        "drift": lambda x: x + 1.0,
    }
    for name, step in maps.items():
        assert bool(loops.repeat(step, double([[1.0, 2.0]]), max_steps=100)[1]) == (name == "rest")


def test_points_merge_just_inside_the_radius():
    """Two states of norm 1 ± 10⁻⁶: one point at 0.99, two at 1.01 times the radius."""
    for factor, count in ((0.99, 3), (1.01, 4)):
        far = double([[0.0, 1.0]])
        pair = double([[1.0, 0.0], [1.0, factor * loops.MERGE_RADIUS]])
        states = torch.cat([pair[:1], far, pair[1:], -far, far])
        assert loops.count_points(states) == count
    assert loops.count_points(states[:0]) == 0
    # Between two points a state stays at the first.
    chain = double([[1.0, step * loops.MERGE_RADIUS] for step in (0.0, 0.8, 1.6)])
    assert loops.count_points(chain) == 2


def identity_model(keys, values=None):
    """One layer, one head, no learning: queries and keys are the hidden states themselves."""
    width = keys.shape[-1]
    model = example_model(layers=1, heads=1, width=width).model
    attention = model.encoder.layer[0].attention
    for which in ("self.query", "self.key", "self.value", "output.dense"):
        attention.get_submodule(which).weight.copy_(torch.eye(width))
        attention.get_submodule(which).bias.zero_()
    lift = keys[None, None]
    trace = LayerTrace(
        layer=0,
        queries=lift,
        keys=lift,
        values=(keys if values is None else values)[None, None],
        mask=None,
        beta=width**-0.5,
        **dict.fromkeys(
            ("inputs", "attended", "residual", "normalized", "fed", "outputs"), keys[None]
        ),
    )
    return model, trace


@pytest.mark.parametrize("loop", ["keys", "readback"])
def test_end_points_show_the_three_kinds(loop):
    """Well-separated, paired and nearly equal keys: every query keeps its key, its pair, none."""
    eye = torch.eye(8, dtype=torch.float64)
    for keys, share, count in (
        (12.0 * eye, [1, 0, 0], 8),
        (12.0 * eye[[0, 0, 1, 1, 2, 2, 3, 3]], [0, 1, 0], 4),
        (0.1 * eye, [0, 0, 1], 1),
        # Three equal keys, more than half of five, and two single ones.
        (12.0 * eye[[0, 0, 0, 1, 2]], [0.4, 0.0, 0.6], 3),
    ):
        # W_Q, W_K, W_O are the identity: reading back the values repeats the Hopfield step.
        (found,) = loops.end_points(*identity_model(keys), loop)
        assert list(found.values()) == [*share, count, 1.0]


def test_some_queries_cycle_and_one_rests():
    """Values that swap the first two keys and keep the third: a third of the queries counts."""
    keys = 9.0 * torch.eye(3, dtype=torch.float64)
    model, trace = identity_model(keys, keys[[1, 0, 2]])
    (found,) = loops.end_points(model, trace, "readback")
    assert list(found.values()) == pytest.approx([1 / 3, 0.0, 0.0, 1, 1 / 3])


def test_the_derivative_of_a_loop_against_autograd():
    """Of the last head of the model and of a small one."""
    for model, trace in two_models(3):
        for values in (trace.keys, loops.readback_values(model, trace)):
            keys = trace.keys[0, -1]
            at = trace.queries[0, -1, 1]
            own = values[0, -1]
            found = loops.loop_jacobian(keys, values=own, at=at, beta=trace.beta)
            step = loops.attend(keys, values=own, beta=trace.beta)
            expected = torch.autograd.functional.jacobian(step, at)
            torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-9)
            assert torch.allclose(found, found.mT, atol=1e-9) == (values is trace.keys)


def test_turned_values_keep_every_length_and_angle():
    """A rotation a head: Gram matrices of the values stay, the values do not."""
    model = example_model().model
    trace = trace_layers(model, torch.tensor([[2, 5, 6, 3]]))[1]
    own = loops.readback_values(model, trace)
    turned = loops.readback_values(model, trace, turned=0)
    other = loops.readback_values(model, trace, turned=1)
    torch.testing.assert_close(turned @ turned.mT, own @ own.mT)
    assert float((turned - own).abs().max()) > 0.1
    assert float((turned - other).abs().max()) > 0.1


def test_gain_at_which_a_loop_flips():
    """Keys ±1, values ∓2: q ← −2g tanh(βq) rests while 2gβ < 1 and jumps to and fro above.

    A second component that all share keeps the length of the states above zero; β = 1/√2.
    """
    keys = double([[1.0, 1.0], [-1.0, 1.0]])
    values = double([[-2.0, 1.0], [2.0, 1.0]])
    model, trace = identity_model(keys, values)
    read = loops.readback_values(model, trace)
    gains = [0.4, 0.68, 0.73, 2.0]
    found = loops.gain_sweep(trace, read, gains=gains, every=1, max_steps=3000)
    np.testing.assert_allclose(found["leading"][:, 0], -(2**0.5) * np.array(gains), atol=1e-5)
    assert found["resting"][:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert found["count"][:, 0].tolist() == [1, 1, 0, 0]
    # The same with V = K: at gain g a memory at gβ, which rests at every gain, twice from √2 on.
    memory = loops.gain_sweep(trace, trace.keys, gains=[1.0, 3.0], every=1, max_steps=3000)
    assert memory["resting"].min() == 1.0
    assert memory["count"][:, 0].tolist() == [1, 2]


def test_sublayer_step_is_the_models_own():
    """From the layer's inputs one step is LayerNorm(x + attention(x)) of the model's run."""
    for model, trace in (*two_models(0), *two_models(5)):
        ours = loops.sublayer_step(model, trace, trace.inputs[0])
        torch.testing.assert_close(ours, trace.normalized[0], atol=1e-11, rtol=0)


def test_sublayer_end_points_solve_their_equation():
    """Each token's end, followed here step by step, is one of as many as `end_points` counts."""
    model = example_model(seed=4).model
    trace = trace_layers(model, torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 10, 3]]))[1]
    found = loops.end_points(model, trace, "sub-layer")
    states = trace.inputs[0].clone()
    for _ in range(1000):
        states = loops.sublayer_step(model, trace, states)
    again = loops.sublayer_step(model, trace, states)
    rests = (again - states).norm(dim=-1) < 1e-7
    ends = np.unique(np.round(states[rests].numpy(), 5), axis=0)
    assert {row["resting"] for row in found} == {float(rests.double().mean())}
    assert {row["count"] for row in found} == {len(ends)}


def maps_of(model, trace):
    """Rows of the last head in query, key and transposed output matrix, and in the query bias."""
    attention = model.encoder.layer[trace.layer].attention
    width = trace.queries.shape[-1]
    query = attention.self.query
    parts = (query.weight, attention.self.key.weight, attention.output.dense.weight.mT, query.bias)
    return [rows[-width:] for rows in parts]


def test_balanced_gauge_changes_no_attention():
    """Attention agrees to 1e-11; both maps have equal Gram matrices, keys no mean."""
    for model, trace in two_models(2):
        queries, keys = loops.balanced_gauge(model, trace)
        weights = torch.softmax(trace.beta * queries @ keys.mT, -1)
        own = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
        torch.testing.assert_close(weights, own, atol=1e-11, rtol=0)
        assert float(keys.mean(-2).abs().max()) < 1e-12 * float(keys.abs().max()) * keys.shape[-2]
        gauge = torch.linalg.lstsq(trace.queries[0, -1], queries[0, -1]).solution
        query_map, key_map, *_ = maps_of(model, trace)
        one = gauge.mT @ query_map
        other = torch.linalg.inv(gauge) @ key_map
        torch.testing.assert_close(one @ one.mT, other @ other.mT, atol=1e-9, rtol=0)


def test_readback_is_what_the_heads_own_matrices_make_of_its_values():
    for model, trace in two_models(3):
        query_map, _, output_map, bias = maps_of(model, trace)
        expected = trace.values[:, -1] @ output_map @ query_map.mT + bias
        found = loops.readback_values(model, trace)[:, -1]
        torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)


def test_medians_of_a_small_model_by_hand():
    for trace in trace_layers(example_model(seed=2).model, torch.arange(18).reshape(2, 9)):
        found = sizes.logit_rows(trace.beta * trace.queries @ trace.keys.mT)
        for head, row in enumerate(found):
            logits = (trace.queries[:, head] @ trace.keys[:, head].mT).numpy() / np.sqrt(4)
            shares = np.sort(softmax(logits, axis=-1))[..., ::-1].cumsum(-1)
            assert row["entries"] == np.median(1 + (shares < 0.9).sum(-1))
            assert row["spread"] == pytest.approx(np.median(logits.std(-1)), rel=1e-12)
        assert len(found) == 2


def test_the_open_cells_do_what_the_package_does():
    """Counts of keys before and after, the opposed loop's derivative, and its critical gain."""
    cells = run_open_cells("14b_heads_and_fixed_points")
    keys = torch.as_tensor(cells["centred_keys"])
    first = effective_entries(torch.softmax(3 * keys @ keys.mT, -1))
    found = retrieve(keys, queries=3 * keys, beta=1.0, tolerance=1e-12, max_steps=10_000)
    assert cells["needed"]["first step"] == first.tolist()
    assert cells["needed"]["fixed point"] == effective_entries(found.attention).tolist()
    assert cells["ends_of_pair"][1.0] == pytest.approx(0.0, abs=0.03)
    assert cells["ends_of_pair"][2.0] == pytest.approx(2 * np.tanh(2 * 1.9987), abs=1e-4)
    slope = loops.loop_jacobian(keys, values=-keys, at=torch.zeros(16).double(), beta=1.0)
    np.testing.assert_allclose(cells["derivative"], slope, atol=1e-12)
    assert cells["leading_eigenvalue"] == pytest.approx(loops.leading_eigenvalue(slope).real)
    assert cells["last_jump"]["below"] < 1e-6
    assert cells["last_jump"]["above"] > 0.1


def test_tables_of_ends_have_a_row_for_each_layer_and_head(monkeypatch):
    traces = [SimpleNamespace(layer=layer) for layer in range(2)]
    shares = {"single": 0.5, "metastable": 0.3, "average": 0.01}
    asked = []

    def ends(model, trace, loop):
        asked.append(loop)
        return [shares | {"average": 0.01 * (1 + head)} for head in range(3)]

    def values(model, trace, *, turned):
        asked.append(turned)
        return trace.layer

    def sweep(trace, layer, *, gains):
        number, head = np.indices((len(gains), 3))
        count = 100 * layer + 10 * number + head
        return {"resting": count / 1000, "count": count, "leading": count + 1j * head}

    monkeypatch.setattr(loops, "encoder", lambda: SimpleNamespace(model=None))
    monkeypatch.setattr(loops, "first_traces", lambda source: traces)
    monkeypatch.setattr(loops, "window_traces", lambda source, length, window: traces)
    monkeypatch.setattr(loops, "end_points", ends)
    monkeypatch.setattr(loops, "readback_values", values)
    monkeypatch.setattr(loops, "gain_sweep", sweep)
    rows = loops.ends_table.rows("keys", source=loops.TEXTS[0])
    assert [(row["layer"], row["head"]) for row in rows] == [
        (l, h) for l in (0, 1) for h in range(3)
    ]
    assert all(row["average"] == 0.01 * (1 + row["head"]) for row in rows)
    # The rarest kind decides.
    for table in (loops.settings_A15, loops.confirm_A15):
        (line,) = table.rows("", source="essay", length=32, window=0, loop="balanced")
        assert line["value"] == pytest.approx(0.02 - loops.SHOWN)
        assert line["low"] < line["value"] < line["high"]
    assert set(asked[-4:]) == {"balanced"}
    asked.clear()
    rows = loops.gain_table.rows("readback", source=loops.TEXTS[1])
    assert asked == [None, None]
    assert len(rows) == 2 * len(loops.GAINS) * 3
    for row in rows:
        count = 100 * row["layer"] + 10 * loops.GAINS.index(row["gain"]) + row["head"]
        assert (row["count"], row["real"], row["imaginary"]) == (count, count, row["head"])
        assert row["resting"] == count / 1000
    asked.clear()
    for source in loops.TEXTS:
        loops.gain_table.rows("turned", source=source)
    # Every layer of every text is turned by a rotation of its own.
    assert len(set(asked)) == len(asked) == 2 * len(loops.TEXTS)
