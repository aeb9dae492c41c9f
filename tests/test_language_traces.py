"""What is read inside of models: by NumPy from the formulas, by torch, by transformers itself."""

import numpy as np
import pytest
import torch
import transformers
from known_memories import normal
from scipy.special import expit, softmax
from torch import nn

from spinformer.language.traces import output_matrix, project, trace_layers
from spinformer.language.untrained import (
    LAYOUTS,
    example_causal_model,
    example_model,
    random_weights,
)

# transformers divides by the root mean square, and turns positions, in single precision.
SINGLE = 2e-6
PARTS = ("queries", "keys", "values", "attended", "residual", "normalized", "fed", "outputs")


def plain_llama(model, inputs):
    """Parts of each layer for one sequence (N, D), token by token; complex numbers turn pairs."""
    config = model.config
    heads = config.num_attention_heads
    groups = config.num_key_value_heads
    d = config.hidden_size // heads
    speed = config.rope_parameters["rope_theta"] ** (-2 * np.arange(d // 2) / d)

    def norm(x, module):
        size = np.sqrt((x**2).mean(-1, keepdims=True) + config.rms_norm_eps)
        return x / size * module.weight.numpy()

    def turned(x, place):
        # An entry of the first half of a head is turned together with that of the second.
        z = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * np.exp(1j * place * speed)
        return np.concatenate((z.real, z.imag), -1)

    x = inputs.copy()
    for layer in model.model.layers:
        query, key, value, output = (
            getattr(layer.self_attn, f"{name}_proj").weight.numpy() for name in "qkvo"
        )
        n = norm(x, layer.input_layernorm)
        queries = np.zeros((heads, len(x), d))
        keys = np.zeros((groups, len(x), d))
        values = np.zeros((groups, len(x), d))
        returned = np.zeros((len(x), heads, d))
        for i in range(len(x)):
            for h in range(heads):
                queries[h, i] = turned(query[h * d : (h + 1) * d] @ n[i], i)
            for g in range(groups):
                keys[g, i] = turned(key[g * d : (g + 1) * d] @ n[i], i)
                values[g, i] = value[g * d : (g + 1) * d] @ n[i]
            for h in range(heads):
                g = h // (heads // groups)
                seen = softmax(keys[g, : i + 1] @ queries[h, i] / d**0.5)
                returned[i, h] = seen @ values[g, : i + 1]
        attended = returned.reshape(len(x), -1) @ output.T
        residual = x + attended
        normalized = norm(residual, layer.post_attention_layernorm)
        gate = normalized @ layer.mlp.gate_proj.weight.numpy().T
        raised = normalized @ layer.mlp.up_proj.weight.numpy().T
        fed = (gate * expit(gate) * raised) @ layer.mlp.down_proj.weight.numpy().T
        x = residual + fed
        parts = (queries, keys, values, attended, residual, normalized, fed, x)
        yield dict(zip(PARTS, parts, strict=True))


def test_a_decoder_computes_what_the_formulas_say():
    model = example_causal_model("llama", layers=3, seed=1)
    inputs = normal(2, 2, 7, 16)
    traces = trace_layers(model, inputs)
    for row, states in enumerate(inputs):
        for trace, parts in zip(traces, plain_llama(model, states.numpy()), strict=True):
            for name, expected in parts.items():
                found = getattr(trace, name)[row]
                np.testing.assert_allclose(found, expected, atol=SINGLE * abs(expected).max())


def test_an_encoder_computes_what_torchs_own_layer_does():
    """The layer against torch.nn.TransformerEncoderLayer with the same weights, to 1e-12."""
    model = example_model(seed=3).model
    config = model.config
    layer = nn.TransformerEncoderLayer(
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        0.0,
        "gelu",
        config.layer_norm_eps,
        batch_first=True,
    ).double()
    names = {
        "self_attn.in_proj_": [f"attention.self.{which}." for which in ("query", "key", "value")],
        "self_attn.out_proj.": ["attention.output.dense."],
        "linear1.": ["intermediate.dense."],
        "linear2.": ["output.dense."],
        "norm1.": ["attention.output.LayerNorm."],
        "norm2.": ["output.LayerNorm."],
    }
    own = model.encoder.layer[1].state_dict()
    state = {
        torchs + part: torch.cat([own[name + part] for name in parts])
        for torchs, parts in names.items()
        for part in ("weight", "bias")
    }
    layer.load_state_dict(state)
    trace = trace_layers(model, torch.randint(5, 20, (3, 7)))[1]
    torch.testing.assert_close(trace.outputs, layer(trace.inputs), atol=1e-12, rtol=0)
    returned, weights = layer.self_attn(
        trace.inputs, trace.inputs, trace.inputs, average_attn_weights=False
    )
    torch.testing.assert_close(trace.attended, returned, atol=1e-12, rtol=0)
    torch.testing.assert_close(trace.attention, weights, atol=1e-12, rtol=0)
    inner = layer.linear2(layer.activation(layer.linear1(trace.normalized)))
    torch.testing.assert_close(trace.fed, inner, atol=1e-12, rtol=0)


def sliding_gemma():
    """Layers that see two tokens, and all; another base of the angles in each."""
    config = transformers.Gemma3TextConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        query_pre_attn_scalar=3,
        sliding_window=2,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


MODELS = {layout: lambda layout=layout: example_causal_model(layout, seed=2) for layout in LAYOUTS}
MODELS |= {"sliding": sliding_gemma, "bert": lambda: example_model(seed=2).model}


@pytest.mark.parametrize("name", MODELS)
def test_every_layout_says_what_transformers_says(name):
    """States and attention by transformers' own record; heads, matrices and norms fit together."""
    model = MODELS[name]()
    tokens = torch.tensor([[2, 5, 6, 9, 3], [4, 7, 7, 1, 8]])
    traces = trace_layers(model, tokens)
    model.set_attn_implementation("eager")
    theirs = model(input_ids=tokens, output_hidden_states=True, output_attentions=True)
    for trace, states, weights in zip(
        traces, theirs.hidden_states[:-1], theirs.attentions, strict=True
    ):
        torch.testing.assert_close(trace.inputs, states, atol=SINGLE, rtol=SINGLE)
        torch.testing.assert_close(trace.attention, weights, atol=SINGLE, rtol=SINGLE)
    assert torch.equal(traces[1].inputs, traces[0].outputs)
    for trace in traces:
        for which in ("query", "key", "value"):
            found = project(model, trace.layer, which, states=trace.inputs)
            expected = {"query": trace.queries, "key": trace.keys, "value": trace.values}[which]
            torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
            # A text that begins at another token, at its own positions.
            later = project(model, trace.layer, which, states=trace.inputs[:, 2:], start=2)
            torch.testing.assert_close(later, expected[:, :, 2:], atol=1e-12, rtol=0)
        shared = trace.queries.shape[1] // trace.values.shape[1]
        returned = trace.attention @ trace.values.repeat_interleave(shared, 1)
        written = returned.transpose(1, 2).flatten(2) @ output_matrix(model, trace.layer).T
        # What is left is a bias.
        left = trace.attended - written
        assert float((left - left[0, 0]).abs().max()) < 1e-12
        if name not in ("gemma", "sliding"):
            torch.testing.assert_close(trace.residual, trace.inputs + trace.attended)
        if name not in ("gemma", "sliding", "bert"):
            torch.testing.assert_close(trace.outputs, trace.residual + trace.fed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_example_reads_and_predicts_words_by_one_matrix(layout):
    model = example_causal_model(layout)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_the_layers_that_are_asked_for_and_no_later_one():
    model = example_causal_model("llama", layers=4)
    inputs = normal(1, 2, 5, 16)
    every = trace_layers(model, inputs)
    entered = []
    model.model.layers[3].register_forward_pre_hook(lambda *_: entered.append(1))
    found = trace_layers(model, inputs, layers=(2, 0))
    assert [trace.layer for trace in found] == [0, 2]
    assert not entered
    for trace, expected in zip(found, every[::2], strict=True):
        torch.testing.assert_close(vars(trace), vars(expected), rtol=0, atol=0)
    assert trace_layers(model, inputs, layers=()) == []


def test_a_model_is_left_as_it_was():
    model = example_causal_model("llama")
    before = model.config._attn_implementation
    hooked = [len(module._forward_hooks) for module in model.modules()]
    trace_layers(model, torch.tensor([[1, 2]]), layers=[0])
    spoilt = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace_layers(model, torch.tensor([[1, 2]]))
    spoilt.remove()
    assert model.config._attn_implementation == before
    assert [len(module._forward_hooks) for module in model.modules()] == hooked


def test_a_trace_has_the_gradient_of_its_inputs():
    model = example_causal_model("gpt2")
    inputs = normal(3, 1, 4, 16).requires_grad_()
    trace = trace_layers(model, inputs, layers=[1])[0]
    (slope,) = torch.autograd.grad(trace.attention[0, 1, 3, 0], inputs)
    moved = torch.zeros_like(inputs)
    moved[0, 2, 5] = 1e-5
    ends = [
        trace_layers(model, (inputs + sign * moved).detach())[1].attention[0, 1, 3, 0]
        for sign in (1, -1)
    ]
    assert float(slope[0, 2, 5]) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_what_is_no_model_of_these_layouts_is_refused():
    tokens = torch.tensor([[1, 2, 3]])
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "vocab_size": 20}
    capped = transformers.Gemma2Config(
        **sizes, intermediate_size=8, num_key_value_heads=1, head_dim=4
    )
    other = transformers.DistilBertConfig(dim=8, n_layers=1, n_heads=2, hidden_dim=8, vocab_size=20)
    training = example_causal_model("llama")
    training.train()
    for model, message in (
        (nn.Linear(2, 2), "model must be one of the library transformers"),
        (transformers.DistilBertModel(other), "model must have the layers of BERT"),
        (
            transformers.Gemma2ForCausalLM(capped).eval(),
            "model must be one that transformers runs with scaled_dot",
        ),
        (training, "model must be in evaluation mode"),
    ):
        with pytest.raises(ValueError, match=message):
            trace_layers(model, tokens)


def test_a_checkpoint_is_no_model():
    holder = example_model()
    states = torch.ones(1, 3, 8).double()
    for call in (
        lambda: trace_layers(holder, torch.tensor([[2, 5, 3]])),
        lambda: project(holder, 0, "query", states=states),
        lambda: output_matrix(holder, 0),
        lambda: random_weights(holder, "initial", seed=0),
    ):
        with pytest.raises(TypeError, match="model must be a Module, got Checkpoint"):
            call()
    assert repr(holder) == "Checkpoint(name='example', quantization='none')"
