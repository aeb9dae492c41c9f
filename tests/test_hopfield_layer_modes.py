"""The layer that rests, its record and energies, and its place in torch: masks, compile, vmap."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn.attention import SDPBackend, sdpa_kernel

from spinformer.core.solve import Status
from spinformer.hopfield import continuous
from spinformer.hopfield.attention_module import AttentionModule
from spinformer.hopfield.lagrangians import LOG_SUM_EXP, Lagrangian
from spinformer.hopfield.layer import HopfieldLayer
from spinformer.hopfield.resting import _conjugate_gradients, judge

EXACT = {"rtol": 0, "atol": 1e-12}
PLAIN = Lagrangian(name="plain", value=LOG_SUM_EXP.value, weights=LOG_SUM_EXP.gradient)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def make(width: int = 12, heads: int = 3, **options) -> HopfieldLayer:
    torch.manual_seed(4)
    layer = HopfieldLayer(width, heads=heads, **{"dtype": torch.float64, **options})
    for part in (layer.to_query, layer.to_key):
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.5)
    return layer


# --- hops until rest ---------------------------------------------------------------------------


def test_implicit_derivatives_are_those_of_many_unrolled_steps():
    options = {"learn_beta": True, "beta": [0.3, 0.6, 1.0], "memories": 2}
    resting = make(tolerance=1e-12, max_steps=3000, **options)
    unrolled = make(steps=1500, **options)
    queries, patterns = draw(2, 4, 12, seed=1), draw(2, 5, 12, seed=2)
    looks = draw(2, 3, 4, 5, seed=4) > -1.0
    found = []
    for layer in (resting, unrolled):
        inputs = patterns.clone().requires_grad_()
        output = layer(queries, patterns=inputs, attention_mask=looks)
        output.square().sum().backward()
        grads = {name: p.grad for name, p in layer.named_parameters()}
        found.append((output, inputs.grad, grads))
    (output, inputs, grads), (output_, inputs_, grads_) = found
    torch.testing.assert_close(output, output_, rtol=0, atol=1e-9)
    torch.testing.assert_close(inputs, inputs_, rtol=0, atol=1e-7)
    for name, grad in grads_.items():
        if name.startswith(("to_query", "query_norm")):
            # The rest does not feel where it was reached from.
            assert grads[name] is None
            assert float(grad.abs().max()) < 1e-7
        else:
            torch.testing.assert_close(grads[name], grad, rtol=0, atol=1e-7)


def test_gradcheck_of_a_resting_layer():
    layer = make(4, 2, tolerance=1e-12, max_steps=2000, learn_beta=True, tied=True, beta=0.8)
    queries, patterns = draw(1, 2, 4, seed=1), draw(1, 3, 4, seed=2).requires_grad_()
    names = [name for name, _ in layer.named_parameters() if "query" not in name]
    values = [layer.get_parameter(name).detach().requires_grad_() for name in names]

    def run(patterns, *parameters):
        named = dict(zip(names, parameters, strict=True))
        return functional_call(layer, named, (queries,), {"patterns": patterns})

    assert torch.autograd.gradcheck(run, (patterns, *values))


def test_the_record_says_what_another_hop_would_do():
    queries, patterns = draw(2, 4, 12, seed=1), draw(2, 6, 12, seed=2)
    tolerance = 1e-6
    resting = make(tolerance=tolerance, max_steps=500)
    output, found = resting(queries, patterns=patterns, return_states=True)
    torch.testing.assert_close(output, resting(queries, patterns=patterns), **EXACT)
    assert found.converged_share.tolist() == [1.0] * 3
    assert found.value.shape == (2, 3, 4, 4)
    keys = resting.to_key(resting.pattern_norm(patterns)).unflatten(-1, (3, 4)).transpose(1, 2)
    for head in range(3):
        beta = float(resting.beta[head])
        wanted = continuous.retrieve(
            keys[:, head], queries=found.start[:, head], beta=beta, tolerance=tolerance
        )
        torch.testing.assert_close(found.value[:, head], wanted.states, **EXACT)
        torch.testing.assert_close(found.steps[:, head], wanted.steps)
        torch.testing.assert_close(found.residual[:, head], wanted.residual, **EXACT)
        energies = resting.energy(queries, patterns=patterns, states=found.value)[:, head]
        torch.testing.assert_close(energies, wanted.energies[-1], **EXACT)
        start = resting.energy(queries, patterns=patterns)[:, head]
        torch.testing.assert_close(start, wanted.energies[0], **EXACT)
        assert bool((energies <= start + 1e-12).all())

    short = make(tolerance=tolerance, max_steps=2).retrieve(queries, patterns=patterns)
    assert short.count(Status.STEP_LIMIT) > 0
    assert int(short.steps.max()) == 2
    fixed = make(steps=4).retrieve(queries, patterns=patterns, tolerance=0.1)
    one_more = make(steps=5).retrieve(queries, patterns=patterns)
    assert bool((fixed.steps == 3).all())
    moved = (one_more.value - fixed.value).norm(dim=-1)
    torch.testing.assert_close(fixed.residual, moved, **EXACT)
    assert torch.equal(fixed.converged, moved <= 0.1)


def test_a_rest_does_not_depend_on_its_neighbours():
    layer = make(tolerance=1e-3, max_steps=300)
    queries, patterns = draw(3, 5, 12, seed=1), draw(3, 6, 12, seed=2)
    both = layer.retrieve(queries, patterns=patterns)
    assert len(both.steps.unique()) > 2
    for b in range(3):
        for s in range(5):
            alone = layer.retrieve(queries[b : b + 1, s : s + 1], patterns=patterns[b : b + 1])
            torch.testing.assert_close(alone.value[0, :, 0], both.value[b, :, s], **EXACT)


def test_static_and_tied_layers_are_the_memory_itself():
    queries, patterns = draw(2, 4, 6, seed=1), draw(2, 9, 6, seed=2)
    layer = HopfieldLayer(6, static=True, tolerance=1e-9, beta=0.8, dtype=torch.float64)
    assert list(layer.parameters()) == []
    wanted = continuous.retrieve(patterns, queries=queries, beta=0.8, tolerance=1e-9)
    found = layer(queries, patterns=patterns)
    torch.testing.assert_close(found, wanted.states, rtol=0, atol=1e-8)
    torch.testing.assert_close(
        layer.energy(queries, patterns=patterns)[:, 0],
        continuous.energy(patterns, states=queries, beta=0.8),
        **EXACT,
    )
    labels = draw(2, 9, 3, seed=3)
    reader = HopfieldLayer(6, static=True, value_width=3, beta=0.8, dtype=torch.float64)
    weights = continuous.attention_weights(patterns, states=queries, beta=0.8)
    read = reader(queries, patterns=patterns, values=labels)
    torch.testing.assert_close(read, weights @ labels, **EXACT)

    tied = make(6, 1, steps=3, tied=True, normalize=False, bias=False, beta=0.8)
    for part in (tied.to_query, tied.to_key, tied.to_output):
        nn.init.eye_(part.weight)
    wanted = continuous.retrieve(patterns, queries=queries, beta=0.8, steps=3)
    torch.testing.assert_close(tied(queries, patterns=patterns), wanted.states, **EXACT)
    assert tied.to_value is None


# --- in place of torch's attention -------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"kdim": 5, "vdim": 5}, {"kdim": 5, "vdim": 7}]
)
def test_from_attention_gives_the_same_numbers(options, batch_first):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        12, 3, batch_first=batch_first, dtype=torch.float64, **options
    ).eval()
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    other = AttentionModule(HopfieldLayer.from_attention(module))
    assert not other.training
    kdim, vdim = options.get("kdim", 12), options.get("vdim", 12)
    shapes = [(2, 4, 12), (2, 6, kdim), (2, 6, vdim)]
    inputs = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    if not batch_first:
        inputs = [x.transpose(0, 1) for x in inputs]
    hidden = draw(2, 6, seed=3) > 0.5
    forbidden = draw(4, 6, seed=4) > 1.0
    added = draw(6, 4, 6, seed=5)
    for masks in (
        {},
        {"key_padding_mask": hidden, "attn_mask": forbidden},
        {"attn_mask": forbidden.expand(6, 4, 6)},
        {"key_padding_mask": draw(2, 6, seed=6), "attn_mask": added},
    ):
        for average in (True, False):
            wanted = module(*inputs, average_attn_weights=average, **masks)
            got = other(*inputs, average_attn_weights=average, **masks)
            torch.testing.assert_close(got, wanted, **EXACT)
        plain = other(*inputs, need_weights=False, **masks)
        torch.testing.assert_close(plain[0], wanted[0], **EXACT)
        assert plain[1] is None
    single = [x[0] if batch_first else x[:, 0] for x in inputs]
    wanted = module(*single, key_padding_mask=hidden[0], attn_mask=forbidden)
    got = other(*single, key_padding_mask=hidden[0], attn_mask=forbidden)
    torch.testing.assert_close(got, wanted, **EXACT)


def test_from_attention_refuses_what_it_cannot_hold():
    for options in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        with pytest.raises(ValueError, match="module must have neither"):
            HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3, **options))
    with pytest.raises(ValueError, match="options must not tie"):
        HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3), tied=True)
    with pytest.raises(TypeError, match="module must be a MultiheadAttention"):
        HopfieldLayer.from_attention(nn.Linear(2, 2))
    layer = HopfieldLayer.from_attention(nn.MultiheadAttention(12, 3), steps=3, learn_beta=True)
    assert layer.steps == 3
    assert isinstance(layer.log_beta, nn.Parameter)


def test_it_stands_in_a_transformer_layer_of_torch():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, dtype=torch.float64)
    encoder.eval()
    x, hidden = draw(2, 5, 12), draw(2, 5, seed=1) > 0.8
    wanted = encoder(x, src_key_padding_mask=hidden)
    encoder.self_attn = AttentionModule(HopfieldLayer.from_attention(encoder.self_attn))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            got = encoder(x, src_key_padding_mask=hidden)
        torch.testing.assert_close(got[~hidden], wanted[~hidden], rtol=0, atol=1e-11)
    encoder(x).sum().backward()
    assert encoder.self_attn.layer.to_key.weight.grad is not None


def test_the_two_conventions_of_masks_agree():
    layer, x = make(steps=3, memories=2), draw(2, 5, 12)
    exists, looks = draw(2, 5, seed=1) > -0.5, draw(5, 5, seed=2) > -0.7
    ours = layer(x, patterns=x, pattern_mask=exists, attention_mask=looks, causal=True)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    theirs = layer(x, patterns=x, key_padding_mask=~exists, attn_mask=~looks | later)
    torch.testing.assert_close(ours, theirs, **EXACT)
    numbers = torch.zeros(5, 5).double().masked_fill(~looks | later, -math.inf)
    mixed = layer(x, patterns=x, pattern_mask=exists, attn_mask=numbers)
    torch.testing.assert_close(ours, mixed, **EXACT)


def test_state_dict_round_trip():
    options = {"memories": 2, "head_width": 5, "learn_beta": True, "value_width": None}
    one, other = make(**options), HopfieldLayer(12, heads=3, dtype=torch.float64, **options)
    x = draw(2, 5, 12)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(x, patterns=x), other(x, patterns=x), **EXACT)


@pytest.mark.parametrize("options", [{"steps": 3}, {"tolerance": 1e-3, "max_steps": 60}])
def test_half_precision_is_near(options):
    layer = make(dtype=torch.float32, **options)
    x = draw(2, 5, 12).float()
    wanted = layer(x, patterns=x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, found = layer(x, patterns=x, return_states=True)
    assert got.dtype == torch.bfloat16
    assert float((got - wanted).detach().abs().max()) < 0.05
    if layer.tolerance is not None:
        assert float(found.residual.max()) <= layer.tolerance
        assert found.residual.dtype == torch.float32  # hops are not made in half precision
    half = layer.bfloat16()
    got = half(x.bfloat16(), patterns=x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert float((got - wanted).detach().abs().max()) < 0.05


# Torch's tracer itself asks a tensor for a gradient it has not.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("options", [{"steps": 3}, {"tolerance": 1e-9, "max_steps": 300}])
def test_it_compiles_to_the_same(options):
    torch._dynamo.reset()
    layer, x = make(**options), draw(2, 5, 12)
    whole = "steps" in options  # the loop that asks for numbers stays outside of the graph
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=whole)
    masks = {"key_padding_mask": draw(2, 5, seed=1) > 0.5}
    found = []
    for run in (layer, compiled):
        layer.zero_grad()
        output = run(x, patterns=x, **masks)
        output.square().sum().backward()
        found.append((output.detach(), layer.to_key.weight.grad.clone()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{"steps": 3}, {"tolerance": 1e-9, "max_steps": 300}])
def test_an_ensemble_by_vmap(options):
    layers = [make(pooling=2, learn_beta=True, **options) for _ in range(3)]
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
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(shared[2], layers[2](patterns=x[0]), rtol=0, atol=1e-10)
    got.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(
        parameters["to_key.weight"].grad,
        torch.stack([layer.to_key.weight.grad for layer in layers]),
        rtol=0,
        atol=1e-9,
    )


def test_second_derivatives_are_right_or_refused():
    x = draw(1, 3, 4).requires_grad_()

    def run(patterns, layer):
        return layer(patterns.detach(), patterns=patterns).square().sum()

    fused = make(4, 2, steps=2)
    (grad,) = torch.autograd.grad(run(x, fused), x, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        grad.sum().backward()
    plain = make(4, 2, tolerance=1e-12, max_steps=3000, lagrangian=PLAIN)
    plain.requires_grad_(False)
    assert torch.autograd.gradgradcheck(lambda p: run(p, plain), (x,))


def test_the_adjoint_is_solved_to_the_tolerance_and_a_state_is_judged_by_its_own():
    matrix = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = 0.9 * (matrix + matrix.T) / torch.linalg.matrix_norm(matrix + matrix.T, ord=2)
    point = torch.zeros(4, 6, dtype=torch.float64, requires_grad=True)
    right = torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6)
    for tolerance in (1e-2, 1e-6):
        found = _conjugate_gradients(point @ matrix, point, right, tolerance, 100)
        lack = (found - found @ matrix - right).norm(dim=-1) / right.norm(dim=-1)
        assert float(lack.max()) <= tolerance
    states = torch.zeros(2, 3, 4, 5)
    states[0, 0, 0, 0] = torch.inf
    moved = torch.full((2, 3, 4), 1e-4)
    moved[:, 1, :3] = 2e-3
    given = {"start": states, "moved": moved, "hops": torch.ones(2, 3, 4), "tolerance": None}
    told = judge(states, **given)
    assert int(told.status[0, 0, 0]) == int(Status.DIVERGED)
    torch.testing.assert_close(told.converged_share, torch.tensor([7 / 8, 1 / 4, 1.0]).double())
