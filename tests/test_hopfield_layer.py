"""The trainable layer against the explicit formula, head by head and sample by sample."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from spinformer.hopfield.continuous import retrieve
from spinformer.hopfield.layer import HopfieldLayer

EXACT = {"rtol": 0, "atol": 1e-12}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def make(width: int = 12, heads: int = 3, **options) -> HopfieldLayer:
    torch.manual_seed(4)
    return HopfieldLayer(width, heads=heads, dtype=torch.float64, **options)


def explicit(layer: HopfieldLayer, queries, patterns, allowed=None, memories=0) -> torch.Tensor:
    """The same computation for one head, one sample and one query at a time, in NumPy."""

    def norm(x, module):
        if isinstance(module, nn.Identity):
            return x
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + module.eps)
        return scaled * array(module.weight) + array(module.bias)

    def array(tensor):
        return tensor.detach().numpy()

    def linear(x, module):
        return x @ array(module.weight).T + (0 if module.bias is None else array(module.bias))

    depth = layer.head_width
    out = np.empty((len(queries), queries.shape[1], layer.heads * depth))
    for b in range(len(queries)):
        stored = array(patterns[b])
        if memories:
            stored = np.concatenate([stored, array(layer.memory)])
        stored = norm(stored, layer.pattern_norm)
        keys, values = linear(stored, layer.to_key), linear(stored, layer.to_value)
        states = linear(norm(array(queries[b]), layer.query_norm), layer.to_query)
        for h in range(layer.heads):
            part = slice(h * depth, (h + 1) * depth)
            for s, start in enumerate(states[:, part]):
                seen = np.ones(len(stored), bool)
                if allowed is not None:
                    seen[: allowed.shape[-1]] = allowed[b, h, s].numpy()
                xi = start
                for step in range(layer.steps):
                    factor = np.exp(array(layer.beta)[h] * keys[seen, part] @ xi)
                    content = values if step == layer.steps - 1 else keys
                    xi = factor @ content[seen, part] / factor.sum()
                out[b, s, part] = xi
    return torch.as_tensor(linear(out, layer.to_output))


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": [0.2, 1.0, 3.0]},
        {"beta": 0.7, "normalize": False, "bias": False},
        {"head_width": 5},
        {"memories": 4, "pattern_width": 5, "beta": [2.0, 0.1, 0.5], "learn_beta": True},
    ],
)
def test_layer_equals_the_formula(steps, options):
    layer = make(steps=steps, **options)
    nn.init.normal_(layer.to_query.weight)
    queries, patterns = draw(2, 4, 12, seed=1), draw(2, 6, layer.pattern_width, seed=2)
    memories = options.get("memories", 0)
    wanted = explicit(layer, queries, patterns, memories=memories)
    torch.testing.assert_close(layer(queries, patterns=patterns), wanted, **EXACT)

    present = draw(2, 6, seed=3) > -0.5
    looks = draw(2, 3, 4, 6, seed=4) > -1.0
    looks[..., 0], present[:, 0] = True, True
    got = layer(queries, patterns=patterns, pattern_mask=present, attention_mask=looks)
    allowed = present[:, None, None, :] & looks
    torch.testing.assert_close(got, explicit(layer, queries, patterns, allowed, memories), **EXACT)

    allowed = torch.ones(4, 6, dtype=torch.bool).tril().expand(2, 3, 4, 6)
    got = layer(queries, patterns=patterns, causal=True)
    torch.testing.assert_close(got, explicit(layer, queries, patterns, allowed, memories), **EXACT)


def test_one_step_is_the_framework_module_with_the_same_weights():
    layer, x = make(normalize=False), draw(2, 5, 12, seed=1)
    other = nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        parts = (layer.to_query, layer.to_key, layer.to_value)
        other.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        other.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        other.out_proj.weight.copy_(layer.to_output.weight)
        other.out_proj.bias.copy_(layer.to_output.bias)
    wanted, weights = other(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(layer(x, patterns=x), wanted, **EXACT)
    torch.testing.assert_close(layer.attention_weights(x, patterns=x), weights, **EXACT)


@pytest.mark.parametrize("steps", [1, 4])
def test_with_identity_projections_it_is_retrieval(steps):
    layer = make(6, 1, steps=steps, normalize=False, bias=False, beta=0.8)
    for part in (layer.to_query, layer.to_key, layer.to_value, layer.to_output):
        nn.init.eye_(part.weight)
    queries, patterns = draw(2, 4, 6, seed=1), draw(2, 9, 6, seed=2)
    found = retrieve(patterns, queries=queries, beta=0.8, steps=steps)
    torch.testing.assert_close(layer(queries, patterns=patterns), found.states, **EXACT)
    weights = layer.attention_weights(queries, patterns=patterns)
    torch.testing.assert_close(weights[:, 0], found.attention, **EXACT)


@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck_of_inputs_and_every_parameter(steps):
    layer = make(4, 2, steps=steps, memories=2, learn_beta=True, beta=[0.5, 1.5])
    inputs = [draw(2, 2, 4, seed=1).requires_grad_(), draw(2, 3, 4, seed=2).requires_grad_()]
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]

    def run(queries, patterns, *parameters):
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, named, (queries,), {"patterns": patterns})

    assert torch.autograd.gradcheck(run, (*inputs, *values))
    layer(inputs[0], patterns=inputs[1]).square().sum().backward()
    # The key bias alone is idle at one step: it adds the same score to every pattern.
    idle = {"to_key.bias"} if steps == 1 else set()
    for name, parameter in layer.named_parameters():
        assert (float(parameter.grad.abs().max()) < 1e-12) is (name in idle), name


def test_beta_of_one_head_changes_that_head_only():
    # Identity output: features 4h … 4h + 3 belong to head h.
    base, other = (make(beta=beta, bias=False) for beta in ([0.3, 0.6, 0.9], [0.3, 2.0, 0.9]))
    other.load_state_dict(
        {k: v for k, v in base.state_dict().items() if k != "log_beta"}, strict=False
    )
    x = draw(2, 5, 12, seed=1)
    for layer in (base, other):
        nn.init.eye_(layer.to_output.weight)
    moved = (base(x, patterns=x) - other(x, patterns=x)).abs().amax((0, 1)).view(3, 4)
    assert moved[[0, 2]].max() == 0.0
    assert bool((moved[1] > 1e-3).all())


def test_samples_and_masked_patterns_do_not_leak():
    layer = make(steps=2, memories=3)
    queries, patterns = draw(3, 4, 12, seed=1), draw(3, 6, 12, seed=2)
    present = torch.ones(3, 6, dtype=torch.bool)
    present[:, 4:] = False
    full = layer(queries, patterns=patterns, pattern_mask=present)
    for b in range(3):
        alone = layer(queries[b : b + 1], patterns=patterns[b : b + 1, :4])
        torch.testing.assert_close(alone[0], full[b], **EXACT)
    patterns[:, 4:] = 1e3
    torch.testing.assert_close(
        layer(queries, patterns=patterns, pattern_mask=present), full, **EXACT
    )


def test_memory_alone_and_pooling():
    layer = make(memories=5, steps=2)
    queries = draw(2, 4, 12, seed=1)
    given = make(memories=0, steps=2)
    given.load_state_dict(layer.state_dict(), strict=False)
    shared = layer.memory.detach().expand(2, -1, -1)
    torch.testing.assert_close(layer(queries), given(queries, patterns=shared), **EXACT)
    before = layer(queries)
    with torch.no_grad():
        layer.memory[0, :6] += 1.0
    assert float((layer(queries) - before).detach().abs().max()) > 1e-3

    pool = make(pooling=2, pattern_width=7)
    patterns = draw(3, 9, 7, seed=2)
    order = torch.arange(8, -1, -1)
    torch.testing.assert_close(pool(patterns=patterns), pool(patterns=patterns[:, order]), **EXACT)
    wanted = explicit(pool, pool.pooled_queries.expand(3, -1, -1), patterns)
    torch.testing.assert_close(pool(patterns=patterns), wanted, **EXACT)


def test_dropout_acts_in_training_only():
    layer = make(dropout=0.5)
    x = draw(1, 6, 12, seed=1)
    assert not torch.equal(layer(x, patterns=x), layer(x, patterns=x))
    layer.eval()
    assert torch.equal(layer(x, patterns=x), layer(x, patterns=x))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"heads": 5}, ValueError, "heads must divide width"),
        ({"beta": [1.0, 2.0]}, ValueError, "beta must be one number or one per head"),
        ({"beta": 0.0}, ValueError, "beta must be a finite number"),
        ({"beta": "x"}, TypeError, "beta must be a real number"),
        ({"steps": 0}, ValueError, "steps must be an integer"),
        ({"dropout": 1.5}, ValueError, "dropout must be"),
        ({"memories": -1}, ValueError, "memories must be"),
        ({"normalize": 2}, ValueError, "normalize must be one of"),
        ({"head_width": 0}, ValueError, "head_width must be"),
        ({"steps": 2, "tolerance": 1e-3}, ValueError, "tolerance must be None where steps"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be"),
        ({"lagrangian": torch.relu}, TypeError, "lagrangian must be a Lagrangian"),
        ({"static": True, "pattern_width": 6}, ValueError, "static must be False where widths"),
        ({"static": True, "value_width": 7}, ValueError, "heads must divide value_width"),
        ({"tied": True, "value_width": 6}, ValueError, "tied must be False"),
        ({"memories": 2, "value_width": 6}, ValueError, "memories must be 0"),
        ({"static": 1}, TypeError, "static must be True or False"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        HopfieldLayer(12, **{"heads": 3, **options})


def test_bad_calls_are_refused():
    layer, x = make(), draw(2, 4, 12)
    calls = [
        (x, {}, "patterns must be given"),
        (None, {"patterns": x}, "queries must be given exactly"),
        (x, {"patterns": x[:1]}, "patterns must have the batch size"),
        (x, {"patterns": x[0]}, "patterns must have a batch axis"),
        (x, {"patterns": x, "values": x[:, :2]}, "values must be as many"),
        (x, {"patterns": x, "attn_mask": torch.ones(5, 4, 4)}, "attn_mask must have shape"),
        (x, {"patterns": x, "attn_mask": torch.ones(5, 4)}, "attn_mask must fit"),
        (x, {"patterns": x, "attn_mask": math.inf * torch.ones(4, 4)}, "attn_mask must have entr"),
        (x, {"patterns": x, "key_padding_mask": torch.ones(2, 4) > 0}, "the masks must leave"),
        (x[..., :5], {"patterns": x}, "queries must have shape"),
        (
            x,
            {"patterns": x, "pattern_mask": torch.ones(2, 3, dtype=torch.bool)},
            "pattern_mask must fit",
        ),
        (
            x,
            {"patterns": x, "attention_mask": torch.ones(5, 4, dtype=torch.bool)},
            "attention_mask must fit",
        ),
        (
            x,
            {"patterns": x, "pattern_mask": torch.zeros(2, 4, dtype=torch.bool)},
            "the masks must leave",
        ),
    ]
    for queries, kwargs, message in calls:
        with pytest.raises(ValueError, match=message):
            layer(queries, **kwargs)
    for name in ("queries", "patterns"):
        for bad, error, message in (
            (math.nan * x, ValueError, "finite"),
            (x.float(), TypeError, "torch.float64 like the layer"),
            (x.numpy(), TypeError, "floating-point torch tensor"),
        ):
            with pytest.raises(error, match=f"{name} must be .*{message}"):
                layer(**{"queries": x, "patterns": x, name: bad})
    large = 1e39 * x  # beyond float32, in which the inputs are summed, but finite
    assert bool(torch.isfinite(layer(large, patterns=large)).all())
    with pytest.raises(TypeError, match="attention_mask must be a boolean"):
        layer(x, patterns=x, attention_mask=torch.ones(4, 4).long())
    assert math.isclose(float(layer.beta[0]), 0.5)
