"""The causal language model against NumPy written from the formulas, and against transformers."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from known_memories import normal
from scipy.special import expit, softmax

from spinformer.language.decoder import (
    encode,
    example_decoder,
    load_decoder,
    run_decoder,
)
from spinformer.language.minilm import ModelUnavailable
from spinformer.language.text import sample_texts
from spinformer.language.untrained import example_causal_model

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


def test_a_folder_of_transformers_gives_the_same_logits(tmp_path):
    theirs = example_causal_model("llama")
    theirs.save_pretrained(tmp_path / "llama")
    ours = load_decoder(tmp_path / "llama", dtype=torch.float64)
    assert (ours.heads, ours.key_heads, len(ours.blocks), ours.tokenizer) == (4, 2, 2, None)
    numbers = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(0))
    logits = run_decoder(ours, ours.embedding[numbers]) @ ours.embedding.T
    # The norms and angles of transformers are in single precision.
    torch.testing.assert_close(logits, theirs(input_ids=numbers).logits, atol=1e-4, rtol=1e-4)
    example_causal_model("gpt2").save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ModelUnavailable, match="gpt2 must be of the Llama layout"):
        load_decoder(tmp_path / "gpt2")
    with torch.no_grad():
        theirs.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    theirs.save_pretrained(tmp_path / "odd")
    with pytest.raises(ModelUnavailable, match=r"weights of odd are not finite: .*up_proj"):
        load_decoder(tmp_path / "odd")


def test_what_is_not_there_is_told():
    with pytest.raises(ValueError, match="dtype must"):
        load_decoder(dtype=torch.float16)
    with pytest.raises(ModelUnavailable, match=r"source must be one of .*, got /no/such/file"):
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
