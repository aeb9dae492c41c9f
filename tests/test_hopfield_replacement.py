"""Attention of a torch model replaced: conventions are kept, and what would be lost is refused."""

import copy
import itertools
import math

import pytest
import torch
from known_memories import draw
from torch import nn
from torch.nn.utils import parametrizations

from spinformer.core.solve import Status
from spinformer.hopfield.layer import AttentionModule, HopfieldLayer, replace_attention
from spinformer.hopfield.separation import entmax

LATER = torch.ones(5, 5, dtype=torch.bool).triu(1)


def assert_equal(got, wanted, *, atol=1e-11):
    """Equal but for rounding, of whatever size the entries are."""
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def tokens(length, *, batch_first, seed=0):
    x = draw(2, length, 12, seed=seed)
    return x if batch_first else x.transpose(0, 1)


def hidden(length, seed=1):
    """True for padding, never at the first place."""
    mask = draw(2, length, seed=seed) > 0.3
    mask[:, 0] = False
    return mask


@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_layer_computes_what_it_did(batch_first):
    block = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=batch_first)
    replaced = replace_attention(block)
    assert type(block.self_attn) is nn.MultiheadAttention
    assert type(replaced.self_attn) is AttentionModule
    assert replaced.self_attn.batch_first is batch_first
    x = tokens(5, batch_first=batch_first)
    padding = hidden(5)
    numbers = torch.zeros(2, 5).masked_fill(padding, -math.inf)
    causal = torch.zeros(5, 5).masked_fill(LATER, -math.inf)
    # A mask of queries and keys, one of padding, and the hint that the former is causal.
    cases = (
        (None, None, False),
        (None, padding, False),
        (LATER, None, True),
        (LATER, padding, False),
        (causal, numbers, False),
    )
    for training, slopes, case in itertools.product((True, False), (True, False), cases):
        mask, hiding, is_causal = case
        outputs = []
        for run in (block, replaced):
            run.train(training)
            with torch.set_grad_enabled(slopes):
                output = run(x, src_mask=mask, src_key_padding_mask=hiding, is_causal=is_causal)
            if hiding is not None and not (training or slopes):
                # Torch's fast path gives 0 for tokens of padding.
                output = output[~padding if batch_first else ~padding.T]
            outputs.append(output)
        assert_equal(*outputs)
    # Later tokens change nothing before them.
    changed = x.clone()
    samples_first = changed if batch_first else changed.transpose(0, 1)
    samples_first[0, 3:] += 1.0
    first = (slice(None), slice(3)) if batch_first else slice(3)
    before = replaced(x, src_mask=LATER)
    after = replaced(changed, src_mask=LATER)
    assert_equal(after[first], before[first])
    assert not torch.equal(after, before)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_decoder_layer_computes_what_it_did(batch_first):
    block = nn.TransformerDecoderLayer(12, 3, 20, dropout=0.0, batch_first=batch_first)
    replaced = replace_attention(block)
    assert type(replaced.self_attn) is AttentionModule
    assert type(replaced.multihead_attn) is AttentionModule
    x = tokens(5, batch_first=batch_first)
    memory = tokens(7, batch_first=batch_first, seed=3)
    for training in (True, False):
        plain = []
        masked = []
        for run in (block, replaced):
            run.train(training)
            plain.append(run(x, memory))
            masked.append(
                run(
                    x,
                    memory,
                    tgt_mask=LATER,
                    tgt_is_causal=True,
                    tgt_key_padding_mask=hidden(5),
                    memory_mask=torch.ones(5, 7, dtype=torch.bool).triu(4),
                    memory_key_padding_mask=hidden(7),
                )
            )
        assert_equal(*plain)
        assert_equal(*masked)


# Torch says that it takes no nested tensors with the length first.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_whole_transformer_and_its_gradients():
    model = nn.Transformer(12, 3, 2, 2, 20, dropout=0.0)
    replaced = replace_attention(model)
    kinds = [type(module) for module in replaced.modules()]
    assert kinds.count(AttentionModule) == 6
    assert nn.MultiheadAttention not in kinds
    source = draw(7, 2, 12)
    target = draw(5, 2, 12, seed=1)
    outputs = [
        run(source, target, tgt_mask=LATER, src_key_padding_mask=hidden(7))
        for run in (model, replaced)
    ]
    assert_equal(*outputs)
    for run, output in zip((model, replaced), outputs, strict=True):
        output.square().sum().backward()
        assert all(p.grad is not None for p in run.parameters() if p.requires_grad)
    packed = model.encoder.layers[0].self_attn.in_proj_weight.grad.chunk(3)
    layer = replaced.encoder.layers[0].self_attn.layer
    for wanted, part in zip(packed, (layer.to_query, layer.to_key, layer.to_value), strict=True):
        torch.testing.assert_close(part.weight.grad, wanted, rtol=0, atol=1e-9)


# Torch's fast path would read the weights that are no longer there.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_an_encoder_with_nested_tensors_in_evaluation():
    block = nn.TransformerEncoderLayer(12, 2, 20, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(block, 2, enable_nested_tensor=True).eval()
    replaced = replace_attention(model)
    x = tokens(5, batch_first=True)
    padding = hidden(5)
    with torch.no_grad():
        result = replaced(x, src_key_padding_mask=padding)
        wanted = model(x, src_key_padding_mask=padding)
    assert_equal(result[~padding], wanted[~padding])


def test_settings_are_copied():
    block = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.3).eval()
    block.self_attn.in_proj_weight.requires_grad_(False)
    block.self_attn.dropout = 0.2
    block.linear1.weight.requires_grad_(False)
    replaced = replace_attention(block, steps=3, beta=[0.5, 1.0, 2.0], alpha=1.5)
    layer = replaced.self_attn.layer
    assert not replaced.self_attn.training
    assert (layer.dropout, layer.steps, layer.alpha) == (0.2, 3, 1.5)
    torch.testing.assert_close(layer.beta, torch.tensor([0.5, 1.0, 2.0]), rtol=0, atol=1e-15)
    frozen = [layer.to_query.weight, layer.to_key.weight, layer.to_value.weight]
    assert not any(weight.requires_grad for weight in frozen)
    assert layer.to_query.bias.requires_grad
    assert layer.to_output.weight.requires_grad
    assert not replaced.linear1.weight.requires_grad
    # Nothing is shared with the model, and dropout acts in training alone.
    x = draw(5, 2, 12)
    before = block(x)
    with torch.no_grad():
        for parameter in replaced.parameters():
            parameter.add_(1.0)
    assert_equal(block(x), before)
    module = replace_attention(nn.MultiheadAttention(12, 3, dropout=0.5))
    assert type(module) is AttentionModule
    first = module.train()(x, x, x)[0]
    assert not torch.equal(first, module(x, x, x)[0])
    assert torch.equal(module.eval()(x, x, x)[0], module(x, x, x)[0])


class Shared(nn.Module):
    """One attention module in two places, and a list that is no container of torch's."""

    def __init__(self):
        super().__init__()
        self.first = nn.MultiheadAttention(12, 3, batch_first=True)
        self.second = self.first
        self.order = [self.first, self.second]

    def forward(self, x):
        for attention in self.order:
            x = x + attention(x, x, x, need_weights=False)[0]
        return x


def test_one_module_in_two_places_stays_one():
    model = Shared()
    replaced = replace_attention(model)
    assert replaced.first is replaced.second
    assert replaced.order[0] is replaced.first
    x = draw(2, 5, 12)
    assert_equal(replaced(x), model(x))


class Derived(nn.MultiheadAttention):
    """An attention module with a computation of its own."""


def spoilt(what):
    """A model with an attention module that a replacement would not do justice to."""
    block = nn.TransformerEncoderLayer(12, 3, 20)
    if what == "derived":
        block.self_attn = Derived(12, 3)
    elif what == "weight norm":
        parametrizations.weight_norm(block.self_attn.out_proj)
    elif what == "a hook":
        block.self_attn.register_forward_hook(lambda *_: None)
    elif what == "tied weights":
        other = nn.MultiheadAttention(12, 3)
        other.in_proj_weight = block.self_attn.in_proj_weight
        return nn.ModuleList([block, other])
    else:
        block.self_attn = nn.MultiheadAttention(
            12, 3, add_bias_kv=what == "add_bias_kv", add_zero_attn=what == "add_zero_attn"
        )
    return nn.ModuleDict({"block": block})


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("derived", "block.self_attn must be a torch.nn.MultiheadAttention itself, got its Deriv"),
        ("weight norm", "block.self_attn must have no parametrization"),
        ("a hook", "block.self_attn must have no hooks"),
        ("tied weights", "0.self_attn must have weights of its own, got one shared by 0.self_attn"),
        ("add_bias_kv", "block.self_attn must have neither"),
        ("add_zero_attn", "block.self_attn must have neither"),
    ],
)
def test_what_a_replacement_would_lose_is_refused_by_name(what, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace_attention(spoilt(what))


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"must contain a torch\.nn\.MultiheadAttention, Linear"):
        replace_attention(nn.Linear(3, 3))
    with pytest.raises(TypeError, match="model must be"):
        replace_attention("model")
    # Once replaced, there is nothing left to replace.
    with pytest.raises(ValueError, match="must contain"):
        replace_attention(replace_attention(nn.TransformerEncoderLayer(12, 3, 20)))


def sparse_reference(layer, x, allowed):
    """The same layer in plain products and `entmax`, key by key."""

    def split(features):
        return features.unflatten(-1, (layer.heads, -1)).transpose(1, 2)

    stored = layer.pattern_norm(x)
    keys = split(layer.to_key(stored))
    values = split(layer.to_value(stored))
    states = split(layer.to_query(layer.query_norm(x)))
    for content in [keys] * (layer.steps - 1) + [values]:
        scores = layer.beta.view(-1, 1, 1) * states @ keys.mT
        scores = scores.masked_fill(~allowed, -math.inf)
        states = entmax(scores, alpha=layer.alpha) @ content
    return layer.to_output(states.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_sparse_layer_is_the_formula_and_its_weights_are_sparse(alpha, steps):
    layer = HopfieldLayer(12, heads=3, beta=4.0, alpha=alpha, steps=steps)
    x = draw(2, 5, 12)
    padding = hidden(5)
    allowed = ~(padding[:, None, None, :] | LATER)

    def run(need_weights=False):
        return layer(
            x,
            patterns=x,
            key_padding_mask=padding,
            attn_mask=LATER,
            need_weights=need_weights,
        )

    output, weights = run(need_weights=True)
    wanted = sparse_reference(layer, x, allowed)
    assert_equal(output, wanted)
    assert_equal(run(), wanted)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))
    seen = allowed.expand(2, 3, 5, 5)
    assert bool((weights[~seen] == 0).all())
    assert 0 < int((weights[seen] == 0).sum()) < int(seen.sum())
    slopes = [
        torch.autograd.grad(result.square().sum(), layer.to_key.weight)[0]
        for result in (run(), wanted)
    ]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-10)
    # Weights are dropped in training alone, whether they are returned or not.
    layer.dropout = 0.5
    for need_weights in (False, True):
        layer.train()
        first, second = run(need_weights), run(need_weights)
        assert not torch.equal(first[0], second[0])
        layer.eval()
        output = run(need_weights)
        assert_equal(output[0] if need_weights else output, wanted)
    # A row in which everything is masked reads nothing.
    blind = torch.ones(5, 5, dtype=torch.bool)
    nothing = layer(x, patterns=x, attn_mask=blind)
    assert_equal(nothing, layer.to_output.bias.expand(2, 5, 12))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_a_sparse_layer_iterated_to_its_fixed_point(alpha):
    settled = HopfieldLayer(12, heads=3, beta=2.0, alpha=alpha, tolerance=1e-12, steps=500)
    unrolled = HopfieldLayer(12, heads=3, beta=2.0, alpha=alpha, steps=400)
    unrolled.load_state_dict(settled.state_dict())
    x = draw(2, 5, 12)
    blind = LATER.clone()
    blind[2] = True
    for mask in (None, LATER, blind):
        output, states = settled(x, patterns=x, attn_mask=mask, return_states=True)
        assert bool((states.status == Status.CONVERGED).all())
        wanted = unrolled(x, patterns=x, attn_mask=mask)
        torch.testing.assert_close(output, wanted, rtol=0, atol=1e-9)
        slopes = [
            torch.autograd.grad(result.square().sum(), layer.to_key.weight)[0]
            for layer, result in ((settled, output), (unrolled, wanted))
        ]
        assert bool(slopes[0].isfinite().all())
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_a_sparse_layer_shows_what_is_not_finite(alpha):
    layer = HopfieldLayer(12, heads=3, alpha=alpha, steps=2)
    x = draw(2, 5, 12)
    again = copy.deepcopy(layer)
    with torch.no_grad():
        again.to_key.weight[0, 0] = math.nan
    assert bool(layer(x, patterns=x).isfinite().all())
    assert bool(again(x, patterns=x).isnan().all())
    half = layer.bfloat16()(x.bfloat16(), patterns=x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert bool(half.isfinite().all())
    with pytest.raises(ValueError, match="alpha must be"):
        HopfieldLayer(12, alpha=3.0)


@pytest.mark.nightly
# Torch's tracer itself asks a tensor for a gradient it has not, and makes an instance of a class.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@pytest.mark.parametrize(("steps", "tolerance"), [(3, None), (300, 1e-9)])
def test_a_sparse_layer_compiles_and_is_mapped(steps, tolerance):
    torch._dynamo.reset()
    layer = HopfieldLayer(12, heads=3, beta=2.0, alpha=1.5, steps=steps, tolerance=tolerance)
    x = draw(2, 5, 12)
    whole = tolerance is None  # the loop that asks for numbers stays outside of the graph
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=whole)
    outputs = [run(x, patterns=x, attn_mask=LATER) for run in (layer, compiled)]
    assert_equal(*outputs)
    slopes = [torch.autograd.grad(y.square().sum(), layer.to_key.weight)[0] for y in outputs]
    assert_equal(*slopes)
    # Softmax's fused kernel has no rule for a map; sparse weights need none.
    mapped = torch.vmap(lambda one: layer(one[None], patterns=one[None])[0])(x)
    assert_equal(mapped, layer(x, patterns=x))
