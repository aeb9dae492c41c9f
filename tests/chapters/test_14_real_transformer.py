"""Steps of heads and their energies, written out."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from minilm_model import installed_model, two_models
from open_cells import run_open_cells
from scipy.stats import ortho_group

from compendium.c14_real_transformer import steps
from spinformer.language.heads import overlap_energy
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import project, trace_layers
from spinformer.language.untrained import example_model

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


def asked(model, trace, head, states):
    """Queries of one head at hidden states (B, N, D), by NumPy, from the weights: (B, N, d)."""
    bias = model.encoder.layer[trace.layer].attention.self.query.bias.numpy()
    maps = maps_of(model, trace.layer)[0]
    return states @ maps[head].T + bias.reshape(len(maps), -1)[head]


def own_energy(trace, head, queries, kind="overlap"):
    """U, or the Hopfield energy, of queries (B, N, d) of one head, by NumPy: (B, N)."""
    keys = trace.keys[:, head].numpy()
    beta = trace.beta
    if kind == "hopfield":
        scores = np.exp(beta * queries @ keys.swapaxes(1, 2))
        return 0.5 * (queries**2).sum(-1) - np.log(scores.sum(-1)) / beta
    scores = queries @ (keys - keys.mean(1, keepdims=True)).swapaxes(1, 2)
    return -np.log(np.exp(beta * scores).mean(-1)) / beta


def mixed(trace, values, head):
    """What one head's attention makes of `values` (B, H, N, d), by NumPy: (B, N, d)."""
    weights = torch.softmax(trace.beta * trace.queries[:, head] @ trace.keys[:, head].mT, -1)
    return (weights @ values[:, head]).numpy()


def maps_of(model, layer):
    """W_Q, W_K, W_V and W_Oᵀ of every head, four arrays (H, d, D)."""
    heads = model.config.num_attention_heads
    attention = model.encoder.layer[layer].attention
    maps = [getattr(attention.self, which).weight for which in ("query", "key", "value")]
    maps.append(attention.output.dense.weight.T)
    return [matrix.numpy().reshape(heads, -1, matrix.shape[-1]) for matrix in maps]


def cosine(one, other):
    return (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)


def descent(model, trace):
    """−∇Σ_h U_h of a layer at its inputs, by autograd, without its mean over tokens: (B, N, D)."""
    states = trace.inputs.clone().requires_grad_()
    queries = project(model, trace.layer, "query", states=states)
    overlap_energy(queries, keys=trace.keys, beta=trace.beta).sum().backward()
    return (states.grad.mean(1, keepdim=True) - states.grad).numpy()


@pytest.mark.claim("A14a")
def test_changes_are_those_of_steps_written_out():
    """Whole, common and specific part of one head after the other, added to the state itself."""
    for model, trace in two_models(1):
        found = steps.head_steps(model, trace)
        output = maps_of(model, trace.layer)[-1]
        inputs = trace.inputs.numpy()
        for head in range(len(output)):
            step = mixed(trace, trace.values, head) @ output[head]
            common = step.mean(1, keepdims=True)
            before = own_energy(trace, head, asked(model, trace, head, inputs))
            for name, part in (("whole", step), ("common", common), ("specific", step - common)):
                after = own_energy(trace, head, asked(model, trace, head, inputs + part))
                expected = (after - before).mean(1)
                np.testing.assert_allclose(getattr(found, name)[:, head], expected, atol=1e-9)


@pytest.mark.claim("A14b")
@pytest.mark.parametrize("kind", ["hopfield", "overlap"])
def test_stages_are_the_states_of_the_models_run(kind):
    """The model's own states after each stage, and the energy of its heads written out."""
    for model, trace in two_models(4):
        before, after = steps.stage_energies(model, trace, kind)
        other = steps.stage_energies(model, trace, kind, scale=0.5)[1]
        states = {
            "attention": trace.attended,
            "residual": trace.inputs + trace.attended,
            "layer norm": trace.normalized,
            "feed forward": trace.outputs,
        }
        assert list(after) == list(steps.STAGES) == ["hopfield", *states]
        for head in range(trace.queries.shape[1]):
            queries = {n: asked(model, trace, head, x.numpy()) for n, x in states.items()}
            queries["hopfield"] = mixed(trace, trace.keys, head)
            start = own_energy(trace, head, asked(model, trace, head, trace.inputs.numpy()), kind)
            np.testing.assert_allclose(before[:, head], start, rtol=1e-9, atol=1e-9)
            for stage, query in queries.items():
                expected = own_energy(trace, head, query, kind)
                np.testing.assert_allclose(after[stage][:, head], expected, rtol=1e-9, atol=1e-9)
            # Of the energy only the first term, ½ q·q, knows how queries and keys are written.
            lost = 0.375 * np.square(queries["residual"]).sum(-1) * (kind == "hopfield")
            found = (after["residual"] - other["residual"])[:, head]
            np.testing.assert_allclose(found, lost, rtol=1e-9, atol=1e-9)
        if kind == "hopfield":
            assert float((after["hopfield"] - before).max()) <= 1e-10
        else:
            changes = [(after[stage] - before).mean((1, 2)) for stage in steps.STAGES_OF_U]
            np.testing.assert_allclose(steps.stage_changes(model, trace), np.stack(changes))


def test_turned_heads_write_for_each_other(monkeypatch):
    """Alone, and together with the layer's bias; not turned, in their own places, its step."""
    model = example_model(seed=3).model
    trace = trace_layers(model, TOKENS)[1]
    turns = torch.from_numpy(ortho_group.rvs(4, size=2, random_state=7))
    monkeypatch.setattr(steps, "random_rotations", lambda like, seed: turns)
    output = maps_of(model, 1)[-1]
    inputs = trace.inputs.numpy()

    def change(head, step):
        before = own_energy(trace, head, asked(model, trace, head, inputs))
        after = own_energy(trace, head, asked(model, trace, head, inputs + step))
        return (after - before).mean()

    bias = model.encoder.layer[1].attention.output.dense.bias.numpy()
    orders = set()
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(2)
        values = trace.values @ turns.mT
        written = [mixed(trace, values, head) @ output[order[head]] for head in range(2)]
        alone, together = steps.turned_steps(model, trace, seed=seed)
        np.testing.assert_allclose(alone, [change(h, written[h]) for h in range(2)], atol=1e-10)
        expected = np.mean([change(head, sum(written) + bias) for head in range(2)])
        assert together == pytest.approx(expected, abs=1e-10)
        orders.add(tuple(order))
    assert len(orders) == 2
    turns = torch.eye(4, dtype=torch.float64).expand(2, -1, -1)
    found = steps.step_alignment(model, trace, draws=40)
    cosines = np.unique(found["null"].round(9))
    assert len(cosines) == 2
    assert np.abs(cosines - found["pooled"]).min() < 1e-8


def test_step_alignment_is_the_cosine_of_step_and_descent():
    """The whole step, of the model's run, and autograd's gradient."""
    for model, trace in two_models(1):
        found = steps.step_alignment(model, trace, draws=0)
        down = descent(model, trace)
        step = (trace.attended - trace.attended.mean(1, keepdim=True)).numpy()
        expected = [cosine(*pair) for pair in zip(step, down, strict=True)]
        np.testing.assert_allclose(found["layer"], expected, atol=1e-9)
        assert found["pooled"] == pytest.approx(cosine(step, down), abs=1e-9)


def test_weight_alignment_is_a_cosine_of_matrices():
    """Against W_O W_V and W_QᵀW_K multiplied out."""
    model = example_model(seed=2).model
    query, key, value, output = maps_of(model, 1)
    expected = [
        [cosine(output[h].T @ value[h], query[g].T @ key[g]) for g in (0, 1)] for h in (0, 1)
    ]
    np.testing.assert_allclose(steps.weight_alignment(model, 1), expected, atol=1e-12)


def test_query_energy_by_hand_and_turned():
    """The mean of `overlap_energy`; turned, as with rotations drawn here: mean and deviation."""
    trace = trace_layers(example_model().model, TOKENS)[0]

    def energy(turn):
        return overlap_energy(trace.queries @ turn, keys=trace.keys, beta=0.5).mean((0, 2)).numpy()

    np.testing.assert_allclose(steps.query_energy(trace), energy(torch.eye(4).double()))
    drawn = np.array([steps.query_energy(trace, turned=seed) for seed in range(300)])
    turns = torch.from_numpy(ortho_group.rvs(4, size=300, random_state=7))
    by_hand = np.array([energy(turn) for turn in turns])
    error = np.hypot(drawn.std(0), by_hand.std(0)) / 300**0.5
    assert (abs(drawn.mean(0) - by_hand.mean(0)) < 4 * error).all()
    np.testing.assert_allclose(drawn.std(0), by_hand.std(0), rtol=0.2)
    # Of each entry, whose variance is 1/4: a null must favor no sign.
    turns = steps.random_rotations(torch.zeros(1, 2000, 1, 4), seed=0)
    assert float(turns.mean(0).abs().max()) < 5 * 0.5 / 2000**0.5


def test_keys_are_not_equally_long_where_tokens_nearly_are():
    """What chapter 12 says of a LayerNorm in front of attention, over all heads of the model."""
    encoder = installed_model()
    windows = torch.cat([text_windows(encoder, text, 128)[:1] for text in sample_texts().values()])
    spreads = {"inputs": [], "keys": []}
    negative = []
    for trace in trace_layers(encoder.model, windows):
        for name, found in spreads.items():
            norms = getattr(trace, name).norm(dim=-1)
            found.append((norms.std(-1) / norms.mean(-1)).numpy())
        products = trace.keys @ trace.keys.mT
        own = products.diagonal(dim1=-2, dim2=-1).clone()
        products.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
        negative.append(float((own < products.amax(-1)).double().mean()))
    heads = np.mean(spreads["keys"], axis=1)
    assert np.median(spreads["inputs"]) == pytest.approx(0.1, abs=0.02)
    assert np.median(heads) == pytest.approx(1 / 6, abs=0.01)
    assert heads.max() > 0.4
    assert np.mean(negative) == pytest.approx(1 / 3, abs=0.03)


def test_the_open_cells_do_what_the_package_does():
    """U of the package, its gradient by autograd, and the random head's step through them."""
    cells = run_open_cells("14_real_transformer")
    ends = [1.0, 1 + np.tanh(1), 1 - np.tanh(1), np.tanh(1)]
    np.testing.assert_allclose(cells["energies_by_hand"], -np.log(np.cosh(ends)), atol=1e-12)
    keys = torch.as_tensor(cells["head_keys"])
    states = torch.as_tensor(cells["states_in"]).requires_grad_()
    reads = torch.as_tensor(cells["w_query"]).T
    before = overlap_energy(states @ reads, keys=keys, beta=0.25)
    before.sum().backward()
    np.testing.assert_allclose(cells["descent"], -states.grad, atol=1e-10)
    steps_of = {"descent": cells["descent"], "own": cells["own_output"]}
    steps_of["reverse"] = -cells["descent"]
    for name, step in steps_of.items():
        moved = (states.detach() + torch.as_tensor(step)) @ reads
        fell = overlap_energy(moved, keys=keys, beta=0.25) < before
        assert cells["lowered"][name] == float(fell.double().mean())
    assert cells["lowered"]["descent"] == 1.0
    assert 0.3 < cells["lowered"]["own"] < 0.7


@pytest.fixture
def three_layers(monkeypatch):
    """Three layers of four windows and two heads, whose energies change by known amounts."""
    asked = []

    def traces(sources, length):
        asked.append((tuple(sources), length))
        return [SimpleNamespace(layer=layer) for layer in range(3)]

    def head_changes(model, trace):
        window = np.array([-0.3, -0.1, 0.1, 0.3])[:, None]
        head = trace.layer + 0.5 * np.arange(2)
        return SimpleNamespace(
            whole=head + window, common=2 * head + window, specific=3 * head + window
        )

    def stages(model, trace):
        return np.array([[9.0] * 4, [0.1 * (trace.layer == 1) - 0.2 + 0.1 * k for k in range(4)]])

    def turned(model, trace, *, seed):
        return 0.1 * np.arange(2) + trace.layer, 10.0 * seed + trace.layer

    for name, fake in {
        "encoder": lambda: SimpleNamespace(model=None),
        "traces_of": traces,
        "head_steps": head_changes,
        "stage_changes": stages,
        "turned_steps": turned,
    }.items():
        monkeypatch.setattr(steps, name, fake)
    return asked


def test_tables_of_steps_hold_means_over_windows_of_each_head(three_layers):
    rows = steps.steps_table.rows(32, source="essay")
    assert [(row["layer"], row["head"]) for row in rows] == [
        (l, h) for l in range(3) for h in (0, 1)
    ]
    for row in rows:
        head = row["layer"] + 0.5 * row["head"]
        wanted = {"whole": head, "common": 2 * head, "specific": 3 * head}
        assert {name: row[name] for name in wanted} == pytest.approx(wanted)
    rows = steps.stages_table.rows(32, source="essay")
    # After the last stage, on average over the windows.
    assert [row["change"] for row in rows] == pytest.approx([-0.05, 0.05, -0.05])
    assert three_layers == [(("essay",), 32)] * 2
    rows = steps.turned_table.rows(128, seed=4)
    assert three_layers[-1] == (tuple(steps.TEXTS), 128)
    for row in rows:
        assert row["whole"] == pytest.approx(row["layer"] + 0.1 * row["head"])
        assert row["residual"] == 40.0 + row["layer"]
    (line,) = steps.settings_A14b.rows("essay 32", source="essay", length=32)
    # The layer that raises the energy most speaks against a descent.
    assert line["value"] == pytest.approx(-0.05)
    assert line["runs"] == 4
