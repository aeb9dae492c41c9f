"""The causal language model against NumPy written from the formulas, its file against gguf."""

import copy
import dataclasses
import struct

import gguf
import numpy as np
import pytest
import torch
from known_memories import normal
from scipy.special import expit, softmax

from spinformer.language.decoder import (
    _MATRICES,
    encode,
    example_decoder,
    load_decoder,
    run_decoder,
)
from spinformer.language.minilm import ModelUnavailable
from spinformer.language.text import sample_texts

# The last logits of 150 tokens by transformers 5.23, which read the same file: number of the
# likeliest token, and its logit.
REFERENCE = {"narrative": (8648, 17.9264), "list": (33, 35.8105)}


def plain(model, inputs, *, span=None):
    """Final states (N, D) of one sequence, token by token; complex numbers turn the pairs.

    With `span` a token sees itself and the span − 1 before it in every block.
    """

    def norm(x, gain):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + model.epsilon) * gain.numpy()

    d = model.head_width
    speed = model.base ** (-2 * np.arange(d // 2) / d)

    def turned(x, place):
        z = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * place * speed)
        return np.stack((z.real, z.imag), -1).reshape(x.shape)

    x = inputs.copy()
    for block in model.blocks:
        w = {name: matrix.numpy() for name, matrix in block.items()}
        n = norm(x, block["attention_gain"])
        heads = np.zeros((len(x), model.heads, d))
        for i, h in np.ndindex(heads.shape[:2]):
            k = h // (model.heads // model.key_heads)
            seen = range(0 if span is None else max(0, i - span + 1), i + 1)
            query = turned(w["query"][h * d : (h + 1) * d] @ n[i], i)
            keys = [turned(w["key"][k * d : (k + 1) * d] @ n[j], j) for j in seen]
            values = n[seen] @ w["value"][k * d : (k + 1) * d].T
            heads[i, h] = softmax(np.array(keys) @ query / d**0.5) @ values
        x = x + heads.reshape(len(x), -1) @ w["output"].T
        n = norm(x, block["feed_forward_gain"])
        gate = n @ w["gate"].T
        x = x + (gate * expit(gate) * (n @ w["up"].T)) @ w["down"].T
    return norm(x, model.final_gain)


def test_states_are_those_of_the_formulas():
    model = example_decoder(blocks=3, seed=1)
    inputs = normal(2, 2, 7, 16)
    found = run_decoder(model, inputs)
    for one, states in zip(inputs, found, strict=True):
        np.testing.assert_allclose(states, plain(model, one.numpy()), atol=1e-12)
    # Kept keys and values: all of them, and the last three.
    for span in (None, 3):
        memory: list[tuple[torch.Tensor, torch.Tensor]] = []
        last = [
            run_decoder(model, inputs[:, n : n + 1], memory=memory, span=span, start=n)[:, 0]
            for n in range(7)
        ]
        expected = plain(model, inputs[0].numpy(), span=span)
        np.testing.assert_allclose(torch.stack(last, 1)[0], expected, atol=1e-12)


def test_several_tokens_at_once_see_the_window_that_one_at_a_time_sees():
    model, inputs = example_decoder(blocks=3, seed=1), normal(2, 2, 9, 16)
    for span in (1, 2, 3, 20):
        wanted = np.stack([plain(model, one.numpy(), span=span) for one in inputs])
        for cuts in ((9,), (2, 7), (4, 1, 4), (1,) * 9):
            memory: list[tuple[torch.Tensor, torch.Tensor]] = []
            parts, place = [], 0
            for length in cuts:
                new = inputs[:, place : place + length]
                parts.append(run_decoder(model, new, memory=memory, span=span, start=place))
                place += length
                assert memory[0][0].shape[2] == min(span, place)
            np.testing.assert_allclose(torch.cat(parts, 1), wanted, atol=1e-12)
        # A window needs no memory.
        np.testing.assert_allclose(run_decoder(model, inputs, span=span), wanted, atol=1e-12)


def test_a_memory_must_be_of_the_model_and_the_position_must_follow_it():
    model, inputs = example_decoder(blocks=2), normal(2, 2, 4, 16)
    memory: list[tuple[torch.Tensor, torch.Tensor]] = []
    run_decoder(model, inputs, memory=memory)
    before = copy.deepcopy(memory)
    keys, values = memory[0]
    long = torch.cat((keys, keys), 2)

    def stop(number, block):
        raise KeyboardInterrupt

    calls = [
        ({"start": None}, "start must be given where memory holds tokens, of which it has 4"),
        ({"start": 3}, "start must be at least the 4 tokens that memory holds, got 3"),
        ({"start": 2**40}, "start must be an integer in"),
        ({"span": 0}, "span must be"),
        ({"span": -2}, "span must be"),
        ({"span": 1.5}, "span must be"),
        ({"memory": memory[:1]}, "memory must be of a model of 2 blocks, got 1"),
        ({"memory": [*memory, memory[0]]}, "memory must be of a model of 2 blocks, got 3"),
        ({"memory": tuple(memory)}, "memory must be a list"),
        ({"memory": [keys, keys]}, "memory must hold pairs"),
        ({"memory": [(keys, values), (keys[:1], values[:1])]}, "memory must have shape"),
        ({"memory": [(keys, values), (keys, keys.float())]}, "memory must be torch.float64"),
        ({"memory": [(keys, values), (keys, values * torch.nan)]}, "memory must be finite"),
        ({"memory": [(keys, values), (long, long)]}, "memory must hold as many keys"),
        ({"inputs": inputs[:, :0]}, "inputs must have shape"),
        ({"watch": 3}, "watch must be a function"),
    ]
    for changed, message in calls:
        given = {"inputs": inputs[:, :1], "memory": memory, "start": 4} | changed
        with pytest.raises((TypeError, ValueError), match=message):
            run_decoder(model, given.pop("inputs"), **given)
    with pytest.raises(KeyboardInterrupt):
        run_decoder(model, inputs[:, :1], memory=memory, start=4, watch=stop)
    for now, then in zip(memory, before, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)


def test_weights_that_are_not_finite_give_no_states():
    for name in ("query", "key", "value", "output", "gate"):
        model = example_decoder()
        model.blocks[1][name][0, 0] = torch.nan
        assert bool(run_decoder(model, normal(2, 2, 4, 16)).isnan().any()), name
    # Scores that overflow downwards: the kernel takes them for a mask and reads 0.
    model = example_decoder()
    block = model.blocks[1]
    block["query"][:4] = -1e160 * block["key"][:4]
    block["key"] *= 1e160
    assert bool(run_decoder(model, normal(2, 2, 4, 16)).isnan().all())
    # Squares that overflow make a norm's factor 0.
    assert bool(run_decoder(example_decoder(), 1e200 * normal(2, 2, 4, 16)).isnan().all())


def test_a_decoder_of_parts_that_do_not_fit_is_refused():
    model = example_decoder()
    short = [{**model.blocks[0], "key": model.blocks[0]["key"][:4]}]
    gone = [{name: x for name, x in model.blocks[0].items() if name != "down"}]
    single = [{**model.blocks[0], "up": model.blocks[0]["up"].float()}]
    narrow = [{**model.blocks[0], "down": model.blocks[0]["down"][:, :5]}]
    for changed, message in (
        ({"heads": 3}, "heads must divide"),
        ({"heads": 2, "key_heads": 4}, "heads must divide"),
        ({"heads": 16}, "heads must divide"),
        ({"base": 0.0}, "base must be"),
        ({"final_gain": model.final_gain[:3]}, "final_gain must"),
        ({"embedding": model.embedding[0]}, "embedding must have 2 axes"),
        ({"blocks": short}, r"blocks\[0\] key must have shape"),
        ({"blocks": gone}, r"blocks\[0\] lacks \['down'\]"),
        ({"blocks": single}, r"blocks\[0\] up must be torch.float64"),
        ({"blocks": narrow}, r"blocks\[0\] down must have shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            dataclasses.replace(model, **changed)
    with pytest.raises(ValueError, match="model must have a tokenizer"):
        encode(model, "a")


def test_a_file_is_read_as_the_library_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    facts = {"block_count": 1, "head_count": 4, "head_count_kv": 2, "rope_freq_base": 1e5}
    for name, value in {**facts, "layer_norm_rms_eps": 1e-5}.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_array("tokenizer.ggml.tokens", ["<|end|>", "a", "b", "ab"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1, 1])
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    kinds = (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0)
    shapes = dict.fromkeys(_MATRICES, (64, 64)) | {"attn_k": (32, 64), "attn_v": (32, 64)}
    for number, (name, shape) in enumerate({**shapes, "embd": (4, 64)}.items()):
        matrix = rng.normal(size=shape).astype(np.float32)
        full = "token_embd.weight" if name == "embd" else f"blk.0.{name}.weight"
        if "norm" in name:
            writer.add_tensor(full, matrix[0])
        else:
            kind = kinds[number % 2]
            writer.add_tensor(full, gguf.quantize(matrix, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    model = load_decoder(file, dtype=torch.float64)
    for tensor in gguf.GGUFReader(file).tensors:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        stem = tensor.name.removesuffix(".weight")
        found = {"token_embd": model.embedding, "output_norm": model.final_gain}.get(stem)
        if found is None:
            found = model.blocks[0][_MATRICES[stem.removeprefix("blk.0.")]]
        np.testing.assert_array_equal(found, expected)
    assert (model.heads, model.key_heads, model.base) == (4, 2, 1e5)
    assert encode(model, "abba<|end|>").tolist() == [3, 2, 1, 0]
    whole, broken = file.read_bytes(), tmp_path / "broken.gguf"
    # A list of a list of a list, and so on, and one of more entries than there is memory.
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    nested = head + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000
    endless = head + struct.pack("<I", 9) + struct.pack("<IQ", 8, 2**62)
    odd = whole.replace(struct.pack("<f", 1.0) * 64, struct.pack("<f", np.nan) * 64)
    assert odd != whole
    damaged = (whole[:200], b"GGUF", b"none", whole.replace(b"llama", b"falco"), nested, endless)
    for read in (*damaged, odd):
        broken.write_bytes(read)
        with pytest.raises(ModelUnavailable, match=r"broken\.gguf is no GGUF file of the Llama"):
            load_decoder(broken)


def test_what_is_not_there_is_told():
    with pytest.raises(ValueError, match="dtype must"):
        load_decoder(dtype=torch.float16)
    with pytest.raises(ModelUnavailable, match="no file /no/such/file"):
        load_decoder("/no/such/file")


def test_the_installed_model_says_what_another_program_says():
    try:
        model = load_decoder()
    except ModelUnavailable as missing:
        pytest.skip(str(missing))
    assert (len(model.blocks), model.width, model.head_width) == (30, 576, 64)
    for name, (token, logit) in REFERENCE.items():
        numbers = encode(model, sample_texts()[name])[:150]
        with torch.no_grad():
            logits = run_decoder(model, model.embedding[numbers][None])[0, -1] @ model.embedding.T
        assert int(logits.argmax()) == token
        assert float(logits.max()) == pytest.approx(logit, abs=1e-3)
