"""The trainable layer: the formula, steps to the fixed point, and its place in torch."""

import copy
import io
import math
import pickle
from itertools import product

import numpy as np
import pytest
import torch
from known_memories import draw
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn.attention import SDPBackend, sdpa_kernel

from spinformer.core.anderson import anderson
from spinformer.core.implicit import implicit_root
from spinformer.core.solve import Status
from spinformer.dmft.mean_field import torch_step
from spinformer.dmft.network import Network
from spinformer.hopfield import continuous, density
from spinformer.hopfield.fixed_points import _conjugate_gradients, find_fixed_points
from spinformer.hopfield.layer import AttentionModule, HopfieldLayer


def assert_equal(got, wanted, *, atol=1e-12):
    """Equal but for rounding, of whatever size the entries are."""
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make(*, learn_beta=False, steps=None, tolerance=None, beta=None, memories=0, pooling=0):
    torch.manual_seed(4)
    layer = HopfieldLayer(
        12,
        heads=3,
        steps=steps,
        tolerance=tolerance,
        beta=beta,
        memories=memories,
        pooling=pooling,
    )
    layer.log_beta.requires_grad_(learn_beta)
    for part in (layer.to_query, layer.to_key):
        nn.init.normal_(part.weight, std=0.5)
    return layer


def explicit(layer, queries, patterns, allowed=None, memories=0):
    """The same computation in plain products and softmax."""

    def split(x):
        return x.unflatten(-1, (layer.heads, -1)).transpose(1, 2)

    if memories:
        patterns = torch.cat([patterns, layer.memory.expand(len(patterns), -1, -1)], 1)
    stored = layer.pattern_norm(patterns)
    keys = split(layer.to_key(stored))
    values = split(layer.to_value(stored))
    states = split(layer.to_query(layer.query_norm(queries)))
    forbidden = torch.zeros(*states.shape[:3], keys.shape[2], dtype=torch.bool)
    if allowed is not None:
        forbidden[..., : allowed.shape[-1]] = ~allowed
    for content in [keys] * (layer.steps - 1) + [values]:
        scores = layer.log_beta.exp().view(-1, 1, 1) * states @ keys.mT
        states = torch.softmax(scores.masked_fill(forbidden, -math.inf), -1) @ content
    return layer.to_output(states.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize(("steps", "tolerance"), [(1, None), (3, None), (400, 1e-14)])
@pytest.mark.parametrize(("memories", "beta"), [(0, None), (0, [0.2, 1.0, 3.0]), (4, 0.7)])
def test_layer_and_its_gradients_equal_those_of_the_formula(steps, tolerance, memories, beta):
    layer = make(learn_beta=True, steps=steps, tolerance=tolerance, memories=memories, beta=beta)
    queries = draw(2, 4, 12, seed=4).requires_grad_()
    patterns = draw(2, 6, 12, seed=6).requires_grad_()
    hidden = draw(2, 6, seed=3) < -0.5
    closed = draw(2, 3, 4, 6, seed=4) < -1.0
    closed[..., 0] = hidden[:, 0] = False
    allowed = ~(hidden[:, None, None, :] | closed)
    closed = closed.flatten(0, 1)
    numbers = torch.zeros(closed.shape).masked_fill(closed, -math.inf)
    for seen, padding, masks in ((None, None, [None]), (allowed, hidden, [closed, numbers])):
        wanted = explicit(layer, queries, patterns, seen, memories)
        slopes = gradients(wanted, layer, queries, patterns)
        for mask in masks:
            got = layer(queries, patterns=patterns, key_padding_mask=padding, attn_mask=mask)
            assert_equal(got, wanted)
            result = gradients(got, layer, queries, patterns)
            assert_equal(result, slopes, atol=1e-10)


def gradients(output, layer, *inputs):
    """Of every parameter and input; zero where one takes no part."""
    leaves = (*layer.parameters(), *inputs)
    return torch.autograd.grad(output.square().sum(), leaves, materialize_grads=True)


def test_memory_alone_pooling_and_dropout():
    layer = make(memories=5, steps=2)
    queries = draw(2, 4, 12, seed=1)
    shared = layer.memory.detach().expand(2, -1, -1)
    assert_equal(layer(queries), explicit(layer, queries, shared))
    pool = make(pooling=2)
    patterns = draw(3, 9, 12, seed=2)
    wanted = explicit(pool, pool.pooled_queries.expand(3, -1, -1), patterns)
    assert_equal(pool(patterns=patterns), wanted)
    both = make(memories=5, pooling=2)
    alone = explicit(both, both.pooled_queries[None], both.memory.detach()[None])
    assert_equal(both(), alone)
    pool.dropout = 0.5

    def read(need_weights):
        result = pool(patterns=patterns, need_weights=need_weights)
        return result[0] if need_weights else result

    for need_weights in (False, True):
        # The weights that are returned are read by a path of their own.
        pool.train()
        assert not torch.equal(read(need_weights), read(need_weights))
        pool.eval()
        assert_equal(read(need_weights), wanted)


def test_the_record_says_what_another_step_would_do():
    queries = draw(2, 4, 12, seed=1)
    patterns = draw(2, 6, 12, seed=2)
    tolerance = 1e-6
    resting = make(tolerance=tolerance, steps=500)
    output, result = resting(queries, patterns=patterns, return_states=True)
    assert_equal(output, resting(queries, patterns=patterns))
    assert bool(result.converged.all())
    keys = resting.to_key(resting.pattern_norm(patterns)).unflatten(-1, (3, 4)).transpose(1, 2)
    start = resting.to_query(resting.query_norm(queries)).unflatten(-1, (3, 4)).transpose(1, 2)
    beta = float(resting.beta[0])
    wanted = continuous.retrieve(keys, queries=start, beta=beta, tolerance=tolerance)
    for part in ("value", "steps", "residual", "status"):
        assert_equal(getattr(result, part), getattr(wanted, part))

    def ended(*, steps, tolerance=None):
        layer = make(steps=steps, tolerance=tolerance)
        return layer(queries, patterns=patterns, return_states=True)[1]

    with pytest.warns(RuntimeWarning, match="reached no fixed point in 9 steps"):
        nearly = ended(tolerance=tolerance, steps=9)
    assert torch.equal(nearly.converged, nearly.residual <= tolerance)
    assert bool((~nearly.converged & (nearly.residual < 1e-3)).any())
    with pytest.warns(RuntimeWarning, match="in 2 steps"):
        short = ended(tolerance=tolerance, steps=2)
    assert short.count(Status.STEP_LIMIT) > 0
    assert int(short.steps.max()) == 2
    fixed = ended(steps=6)
    one_more = ended(steps=7)
    assert bool((fixed.steps == 5).all())
    moved = (one_more.value - fixed.value).norm(dim=-1)
    assert_equal(fixed.residual, moved)
    assert torch.equal(fixed.converged, moved <= 1e-3)
    assert 0 < fixed.count(Status.CONVERGED) < moved.numel()


def test_a_layer_without_maps_is_the_memory_itself():
    queries = draw(2, 4, 6, seed=1)
    patterns = draw(2, 9, 6, seed=2)
    labels = draw(2, 9, 3, seed=3)
    bare = HopfieldLayer(6, beta=0.8, steps=2)
    for name, _ in list(bare.named_children()):
        setattr(bare, name, nn.Identity())
    assert not any(parameter.requires_grad for parameter in bare.parameters())
    moved = continuous.update(patterns, states=queries, beta=0.8)
    weights = continuous.attention_weights(patterns, states=moved, beta=0.8)
    for values, read in ((None, patterns), (labels, labels)):
        assert_equal(bare(queries, patterns=patterns, values=values), weights @ read)
        output, own = bare(queries, patterns=patterns, values=values, need_weights=True)
        assert_equal(output, weights @ read)
        assert_equal(own[:, 0], weights)


def test_the_adjoint_is_solved_to_the_tolerance():
    matrix = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = 0.9 * (matrix + matrix.T) / torch.linalg.matrix_norm(matrix + matrix.T, ord=2)
    right = torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6)
    for tolerance in (1e-2, 1e-6):
        result = _conjugate_gradients(lambda u: u @ matrix, right, tolerance, 100)
        lack = (result - result @ matrix - right).norm(dim=-1) / right.norm(dim=-1)
        assert float(lack.max()) <= tolerance


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("bias", "kdim", "vdim"), [(True, 12, 12), (False, 12, 12), (True, 5, 5), (True, 5, 7)]
)
def test_from_attention_gives_the_same_numbers(bias, kdim, vdim, batch_first):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        12, 3, batch_first=batch_first, bias=bias, kdim=kdim, vdim=vdim
    ).eval()
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    other = AttentionModule(HopfieldLayer.from_attention(module))
    assert not other.training
    shapes = [(2, 4, 12), (2, 6, kdim), (2, 6, vdim)]
    inputs = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    if not batch_first:
        inputs = [x.transpose(0, 1) for x in inputs]
    hidden = draw(2, 6, seed=3) > 0.5
    forbidden = draw(4, 6, seed=4) > 1.0
    added = draw(6, 4, 6, seed=5)
    single = [x[0] if batch_first else x[:, 0] for x in inputs]
    for tensors, padding, mask, average in (
        (inputs, None, None, True),
        (inputs, hidden, forbidden, True),
        (inputs, None, forbidden.expand(6, 4, 6), False),
        (inputs, draw(2, 6, seed=6), added, True),
        (single, hidden[0], forbidden, True),
    ):

        def call(attention, need_weights=True):
            return attention(
                *tensors,  # noqa: B023
                key_padding_mask=padding,  # noqa: B023
                attn_mask=mask,  # noqa: B023
                average_attn_weights=average,  # noqa: B023
                need_weights=need_weights,
            )

        wanted = call(module)
        assert_equal(call(other), wanted)
        output, weights = call(other, need_weights=False)
        assert_equal(output, wanted[0])
        assert weights is None


def test_from_attention_refuses_what_it_cannot_hold():
    for module in (
        nn.MultiheadAttention(12, 3, add_bias_kv=True),
        nn.MultiheadAttention(12, 3, add_zero_attn=True),
    ):
        with pytest.raises(ValueError, match="module must"):
            HopfieldLayer.from_attention(module)
    layer = HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3), steps=3, beta=[0.5, 1, 2])
    assert layer.steps == 3
    assert_equal(layer.beta, torch.tensor([0.5, 1.0, 2.0]))
    torch.set_default_dtype(torch.float32)
    layer = HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3, dtype=torch.float64))
    assert float((layer.beta - 0.5).abs().max()) < 1e-15


# Torch says that it takes no nested tensors through a module of another kind.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_it_stands_in_the_encoders_of_torch():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True)
    other = copy.deepcopy(block)
    other.self_attn = AttentionModule(HopfieldLayer.from_attention(other.self_attn))
    x = draw(2, 5, 12)
    hidden = draw(2, 5, seed=1) > 0.8
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    hidden[:, 0] = False
    # Without gradients torch takes its fast path, where there is one.
    for nested, mode, slopes in product((True, False), repeat=3):
        pair = [
            nn.TransformerEncoder(part, 2, enable_nested_tensor=nested).train(mode)
            for part in (block, other)
        ]
        for mask, padding in ((None, hidden), (later, None), (None, None)):
            with torch.set_grad_enabled(slopes):
                outputs = [model(x, mask=mask, src_key_padding_mask=padding) for model in pair]
            wanted, got = outputs
            seen = ... if padding is None else ~hidden
            assert_equal(got[seen], wanted[seen], atol=1e-11)
            assert got.requires_grad is slopes


def test_every_layer_is_saved_and_read_back():
    layer = make(steps=3, memories=2)
    x = draw(2, 5, 12)
    stored = io.BytesIO()
    torch.save(AttentionModule(layer), stored)
    stored.seek(0)
    for other in (pickle.loads(pickle.dumps(layer)), torch.load(stored, weights_only=False).layer):
        assert torch.equal(other(x, patterns=x), layer(x, patterns=x))
    torch.manual_seed(7)
    fresh = HopfieldLayer(12, heads=3, steps=3, memories=2)
    again = copy.deepcopy(layer)
    again.log_beta.data += 1.0
    torch.manual_seed(7)
    AttentionModule(again).reset_parameters()
    assert all(map(torch.equal, again.parameters(), fresh.parameters()))


@pytest.mark.parametrize(("steps", "tolerance"), [(3, None), (60, 1e-3)])
def test_half_precision_is_near(steps, tolerance):
    torch.set_default_dtype(torch.float32)
    layer = make(steps=steps, tolerance=tolerance)
    x = draw(2, 5, 12).float()
    wanted = layer(x, patterns=x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, result = layer(x, patterns=x, return_states=True)
    if layer.tolerance is not None:
        assert float(result.residual.max()) <= layer.tolerance
        assert result.residual.dtype == torch.float32  # steps are not taken in half precision
    half = layer.bfloat16()(x.bfloat16(), patterns=x.bfloat16())
    for got in (mixed, half):
        assert got.dtype == torch.bfloat16
        assert float((got - wanted).detach().abs().max()) < 0.05


@pytest.mark.nightly
# Torch's tracer itself asks a tensor for a gradient it has not.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(("steps", "tolerance"), [(3, None), (300, 1e-9)])
def test_it_compiles_to_the_same(steps, tolerance):
    torch._dynamo.reset()
    layer = make(steps=steps, tolerance=tolerance)
    x = draw(2, 5, 12)
    whole = tolerance is None  # the loop that asks for numbers stays outside of the graph
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=whole)
    padding = draw(2, 5, seed=1) > 0.5
    outputs = [run(x, patterns=x, key_padding_mask=padding) for run in (layer, compiled)]
    slopes = [torch.autograd.grad(y.square().sum(), layer.to_key.weight) for y in outputs]
    assert_equal(*zip(outputs, slopes, strict=True), atol=1e-10)


@pytest.mark.parametrize(("steps", "tolerance"), [(3, None), (300, 1e-9)])
def test_an_ensemble_by_vmap(steps, tolerance):
    layers = [make(pooling=2, learn_beta=True, steps=steps, tolerance=tolerance) for _ in range(3)]
    for index, layer in enumerate(layers):
        nn.init.normal_(layer.to_key.weight, std=0.2 + 0.1 * index)
    parameters, _ = stack_module_state(layers)
    parameters = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    x = draw(3, 2, 5, 12)

    def one(weights, patterns):
        return functional_call(layers[0], weights, (), {"patterns": patterns})

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no rule for vmap
        got = torch.vmap(one)(parameters, x)
        shared = torch.vmap(one, in_dims=(0, None))(parameters, x[0])
    wanted = torch.stack([layer(patterns=x[i]) for i, layer in enumerate(layers)])
    assert_equal(got, wanted, atol=1e-10)
    assert_equal(shared[2], layers[2](patterns=x[0]), atol=1e-10)
    (slopes,) = torch.autograd.grad(got.square().sum(), parameters["to_key.weight"])
    keys = [layer.to_key.weight for layer in layers]
    alone = torch.stack(torch.autograd.grad(wanted.square().sum(), keys))
    assert_equal(slopes, alone, atol=1e-9)


def test_bad_calls_are_refused():
    layer = make()
    x = draw(2, 4, 12)
    calls = [
        ({"patterns": None}, "patterns must be given"),
        ({"queries": None}, "queries must be given exactly"),
        ({"patterns": x[:1]}, "must have one batch size"),
        ({"patterns": x[0]}, "queries and patterns must all have a batch axis"),
        ({"values": x[:, :2]}, "values must be as many"),
        ({"attn_mask": torch.ones(5, 4, 4)}, "attn_mask must have shape"),
        ({"attn_mask": math.inf * torch.ones(4, 4)}, "attn_mask must have entr"),
        ({"attn_mask": torch.ones(4, 4).long()}, "attn_mask must be a boolean"),
        ({"attn_mask": math.nan * torch.ones(4, 4)}, "attn_mask must have entries below inf"),
        ({"key_padding_mask": math.nan * torch.ones(2, 4)}, "key_padding_mask must have entries"),
        (
            {"key_padding_mask": 1e308 * torch.ones(2, 4), "attn_mask": 1e308 * torch.ones(4, 4)},
            "key_padding_mask plus attn_mask must have entries below infinity",
        ),
        ({"key_padding_mask": torch.ones(2, 3) > 0}, "key_padding_mask must have"),
        ({"queries": x[..., :5]}, "queries must have width 12"),
        ({"patterns": x[..., :5]}, "patterns must have width 12, got 5"),
        ({"values": x[..., :5]}, "values must have width 12, got 5"),
        ({"queries": x.to("meta")}, "queries must hold values"),
        ({"attn_mask": torch.zeros(4, 4, device="meta") > 0}, "attn_mask must hold values"),
        ({"attn_mask": torch.zeros(4, 4, device="meta")}, "attn_mask must hold values"),
    ]
    for name, bad in product(("queries", "patterns"), (math.nan * x, x.float(), x.numpy())):
        calls.append(({name: bad}, f"{name} must be .*(finite|like|torch)"))
    for change, message in calls:
        with pytest.raises((ValueError, TypeError), match=message):
            layer(**{"queries": x, "patterns": x, **change})
    large = 1e39 * x  # beyond float32, but finite
    assert bool(torch.isfinite(layer(large, patterns=large)).all())
    _, infinite = make(steps=3)(1e300 * x, patterns=1e300 * x, return_states=True)
    assert bool((infinite.status == Status.DIVERGED).any())


def test_maps_of_ones_own_must_fit_each_other():
    x = draw(2, 4, 12)
    layer = make()
    layer.to_key = nn.Linear(12, 9)
    with pytest.raises(ValueError, match="to_query and to_key must give the same width, got 4 and"):
        layer(x, patterns=x)
    layer.to_key = nn.Linear(12, 10)
    with pytest.raises(ValueError, match="to_key must give a multiple of the 3 heads, got 10"):
        layer(x, patterns=x)
    plain = HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3, kdim=5, vdim=5))
    with pytest.raises(ValueError, match="patterns must have width 5, got 12"):
        plain(x, patterns=x)


def spoil(layer, what):
    """NaN, or numbers whose products overflow, in one place of a layer's parameters."""
    with torch.no_grad():
        if what == "scores too large":
            layer.to_query.weight.fill_(1e200)
            # All scores overflow downwards, which the kernel takes for a mask.
            layer.to_key.weight.fill_(-1e200)
        elif what == "keys too large for the second step":
            layer.to_key.weight.mul_(1e200)
        elif what == "one entry of to_query.weight":
            layer.to_query.weight[0, 0] = math.nan
        else:
            layer.get_parameter(what).fill_(math.nan)


SPOILT = ["log_beta", "to_key.weight", "one entry of to_query.weight", "to_value.weight"]
SPOILT += ["memory", "pattern_norm.bias", "scores too large", "keys too large for the second step"]


# Torch's tracer itself asks a tensor for a gradient it has not.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(("steps", "tolerance"), [(3, None), (None, 1e-6)])
def test_a_weight_that_is_not_finite_never_gives_a_number(steps, tolerance):
    """Eager and compiled, with the weights or by the kernel, which returns 0 for scores of NaN."""
    torch._dynamo.reset()
    layer = make(memories=2, learn_beta=True, steps=steps, tolerance=tolerance)
    x = draw(2, 5, 12)
    layer.warned = True
    start = copy.deepcopy(layer.state_dict())
    compiled = torch.compile(layer, backend="eager")
    for what, run, need_weights in product(SPOILT, (layer, compiled), (False, True)):
        layer.load_state_dict(start)
        output, *_, result = run(x, patterns=x, need_weights=need_weights, return_states=True)
        assert bool(output.isfinite().all())
        assert result.count(Status.DIVERGED) == 0
        spoil(layer, what)
        output, *_, result = run(x, patterns=x, need_weights=need_weights, return_states=True)
        assert bool(output.isnan().all()), (what, need_weights)
        # One row of the query map is one head's.
        heads = 1 if "one" in what else 3
        assert bool((result.status[:, :heads] == Status.DIVERGED).all()), what
        assert bool(result.value[:, :heads].isnan().all()), what
        (slope,) = torch.autograd.grad(output.sum(), layer.to_key.bias)
        assert bool(slope.isnan().any()), what
    # Fixed steps of one: nothing but the read.
    layer = make(learn_beta=True)
    spoil(layer, "log_beta")
    assert bool(layer(x, patterns=x).isnan().all())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(("steps", "tolerance"), [(1, None), (3, None), (300, 1e-9)])
def test_a_query_that_may_look_nowhere_reads_nothing(steps, tolerance):
    """Left padding under a causal mask, an empty sample, one masked head: eager and compiled."""
    layer = make(steps=steps, tolerance=tolerance)
    x = draw(3, 5, 12, seed=7)
    with torch.no_grad():
        layer.to_output.bias.normal_()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, :2] = True
    padding[1] = True
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masked = torch.zeros(3, 3, 5, 5, dtype=torch.bool)
    masked[2, 1] = True
    allowed = ~(padding[:, None, None, :] | later | masked)
    closed = (later | masked).flatten(0, 1)
    numbers = torch.zeros(closed.shape).masked_fill(closed, -math.inf)
    blind = ~allowed.any(-1)
    assert 0 < int(blind.sum()) < blind.numel()
    torch._dynamo.reset()
    for run in (layer, torch.compile(layer, backend="eager")):
        for mask in (closed, numbers):
            output, weights, result = run(
                x, patterns=x, key_padding_mask=padding, attn_mask=mask, need_weights=True,
                return_states=True,
            )  # fmt: skip
            plain = run(x, patterns=x, key_padding_mask=padding, attn_mask=mask)
            assert_equal(plain, output)
            assert float(weights[blind].detach().abs().max()) == 0.0
            torch.testing.assert_close(weights[~blind].sum(-1), torch.ones(int((~blind).sum())))
            # A sample in which nothing may be seen gives the bias of the output map alone.
            empty = layer.to_output.bias.expand(5, 12)
            assert_equal(output[1], empty)
            # The others do not notice.
            alone = layer(x[2:], patterns=x[2:], attn_mask=mask[6:])
            assert_equal(output[2:], alone)
            assert bool((result.status != Status.DIVERGED).all())
            slopes = torch.autograd.grad(plain.square().sum(), layer.to_key.weight)
            assert bool(slopes[0].isfinite().all())
    if steps == 1:
        held = layer.to_value(layer.pattern_norm(x)).unflatten(-1, (3, 4)).transpose(1, 2)
        wanted = layer.to_output((weights @ held).transpose(1, 2).flatten(-2))
        assert_equal(output, wanted)
        torch.manual_seed(1)
        module = nn.MultiheadAttention(12, 3, batch_first=True)
        other = AttentionModule.from_attention(module)
        outputs = [
            run(x, x, x, key_padding_mask=padding, attn_mask=closed, need_weights=False)
            for run in (other, module)
        ]
        assert_equal(*outputs)


def test_a_layer_says_once_that_it_did_not_converge():
    """At β = 0.99 two patterns ±1 have one fixed point, 0, approached by 0.99 a step."""
    x = torch.tensor([[[1.0], [-1.0]]])
    layer = HopfieldLayer(1, tolerance=1e-9, beta=0.99)
    for name, _ in list(layer.named_children()):
        setattr(layer, name, nn.Identity())
    layer.log_beta.requires_grad_()
    with pytest.warns(RuntimeWarning, match="2 of 2 states reached no fixed point in 100") as told:
        layer(x, patterns=x)
    assert told[0].filename == __file__
    layer(x, patterns=x)  # said once
    layer.steps = 10_000
    layer.warned = False
    layer(x, patterns=x)
    layer.steps = 100
    layer.warned = False
    with sdpa_kernel(SDPBackend.MATH):
        torch.vmap(lambda y: layer(y, patterns=y))(x[None])  # no values to be looked at


def test_a_tolerance_below_rounding_is_that_of_the_type():
    layer = make(tolerance=1e-12)
    x = draw(2, 5, 12)
    with torch.no_grad():
        layer.log_beta.fill_(1.0)
    exact = layer.double()(x, patterns=x, return_states=True)[1]
    single = layer.float()(x.float(), patterns=x.float(), return_states=True)[1]
    assert bool(exact.converged.all())
    assert float(exact.residual.max()) <= 1e-12
    assert bool(single.converged.all())
    assert int(single.steps.max()) < int(exact.steps.max()) < 100
    # Some states still move in the last place when they are let go.
    assert 1e-12 < float(single.residual.max()) < 1e-5
    assert_equal(single.value.double(), exact.value, atol=1e-4)


def test_in_the_place_of_attention_the_batch_is_where_it_was():
    """Torch's layers put the length first unless told; read the other way, numbers differ."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0)
    x = draw(5, 2, 12)
    wanted = block(x)
    block.self_attn = AttentionModule.from_attention(block.self_attn)
    assert block.self_attn.batch_first is False
    assert_equal(block(x), wanted, atol=1e-11)
    block.self_attn.layer.batch_first = True
    assert block.self_attn.batch_first is True
    assert float((block(x) - wanted).abs().max().detach()) > 1e-3
    made = AttentionModule.from_attention(nn.MultiheadAttention(12, 3, dropout=0.3), steps=3)
    assert (made.layer.dropout, made.layer.steps) == (0.3, 3)


def test_nothing_is_made_on_another_device_than_that_of_the_input():
    patterns = draw(5, 6)
    queries = draw(3, 6, seed=1)
    pair = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    start = torch.tensor([[0.3, 0.01]])
    layer = make(tolerance=1e-4, memories=2)
    x = draw(2, 5, 12)
    padding = x[..., 0] > 1
    mask = torch.zeros(5, 5)
    network = Network.poclopez2024()
    generator = torch.Generator().manual_seed(0)
    semantic = torch.tensor(network.semantic)
    fractions = torch.tensor(network.fractions)
    overlaps = torch.tensor(network.position_overlaps())
    attention = torch.tensor(np.ones((4, 3)))
    with torch.device("meta"):
        output, result = layer(
            x, patterns=x, key_padding_mask=padding, attn_mask=mask, return_states=True
        )
        made = [
            result,
            continuous.retrieve(patterns, queries=queries, beta=2.0),
            find_fixed_points(patterns, beta=2.0),
            # Newton's method finishes what is slow.
            find_fixed_points(pair, starts=start, beta=1.001, max_steps=20),
            density.fit_em(patterns, data=queries, max_steps=5),
            anderson(torch.cos, queries[None], tolerance=1e-8, max_steps=30),
        ]
        parts = [*torch.autograd.grad(output.sum(), (layer.memory, layer.to_key.weight))]
        parts.append(density.sample(patterns, count=4, seed=generator))
        parts += torch_step(
            semantic,
            fractions=fractions,
            position_overlaps=overlaps,
            attention=attention,
            position=1,
            beta=1.2,
            gamma=20.0,
            epsilon=0.02,
        )
        parts.append(implicit_root(lambda z, a: z * z - a, patterns.abs().sqrt(), patterns.abs()))
    parts += [value for one in made for value in vars(one).values() if isinstance(value, Tensor)]
    assert {part.device.type for part in parts} == {"cpu"}


def scaled(part, size):
    """A layer whose input, or one map, is so large that squares or scores overflow."""
    layer = make(steps=2, memories=1).float()
    x = draw(2, 5, 12).float()
    if part == "queries":
        return layer, {"queries": size * x, "patterns": x}
    if part == "patterns":
        return layer, {"queries": x, "patterns": size * x}
    return layer, {"queries": x, "patterns": x, "values": size * x}


@pytest.mark.parametrize("part", ["queries", "patterns", "values"])
def test_a_norm_whose_squares_overflow_gives_nan(part):
    """Torch's own gives its bias there, as if the input were zero."""
    torch._dynamo.reset()
    for size in (1e15, 1e30):
        layer, given = scaled(part, size)
        for run in (layer, torch.compile(layer, backend="eager")):
            assert bool(run(**given).isfinite().all()) is (size == 1e15)


def test_a_norm_overflows_by_the_sum_of_squares():
    """Each square is a number of the type, their sum over the features is not."""
    layer, given = scaled("patterns", 1.0)
    given["patterns"] = 1e19 * torch.sign(given["patterns"])
    assert given["patterns"].square().isfinite().all()
    for run in (layer, torch.compile(layer, backend="eager")):
        assert not run(**given).isfinite().any()


class Map(nn.Module):
    """A map of one's own that does not do what a layer needs."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("to_key", lambda x: x[:, :3], "to_key and to_value must keep every pattern, got 3 and 5"),
        ("to_value", lambda x: x[:, :3], "must keep every pattern, got 5 and 3"),
        ("to_query", lambda x: x.float(), "must give one real dtype"),
        ("to_value", lambda x: x + 0j, "must give one real dtype"),
    ],
)
def test_a_map_that_drops_patterns_or_changes_the_type_is_refused(part, change, message):
    """The kernel would read beyond the shorter of keys and values."""
    layer = make()
    x = draw(2, 5, 12)
    setattr(layer, part, Map(change))
    with pytest.raises((ValueError, TypeError), match=message):
        layer(x, patterns=x)


def test_parameters_and_settings_that_were_changed_are_looked_at():
    x = draw(2, 5, 12)
    layer = make()
    layer.log_beta.data = torch.zeros(2)
    with pytest.raises(ValueError, match=r"log_beta must have shape \(3,\), got \(2,\)"):
        layer(x, patterns=x)
    for dropout in (1.5, -0.1, math.nan):
        layer = make()
        layer.dropout = dropout
        with pytest.raises(ValueError, match="dropout must be"):
            layer(x, patterns=x)
        layer.eval()(x, patterns=x)
