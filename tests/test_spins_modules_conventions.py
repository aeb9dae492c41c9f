"""The spin module as a torch module: shapes, masks, devices, precision, files, transforms."""

import copy
import io
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.large_d import THEORIES
from spinformer.spins.module import Solver, SpinTransformerModule

FIXED = {"solver": "fixed point"}
DRIVEN = {"theory": "large D"}
TWO_STEPS = {"solver": Solver(steps=2)}
SOLVERS = [{"solver": "saddle"}, FIXED, TWO_STEPS]
DOUBLE = torch.float64


def _module(seed=0, dtype=DOUBLE, **options):
    torch.manual_seed(seed)
    if "theory" in options:
        return DrivenSpinModule(12, heads=3, dtype=dtype, **options)
    return SpinTransformerModule(12, heads=3, dtype=dtype, **options)


def _inputs(*shape, dtype=DOUBLE, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("options", SOLVERS)
def test_unbatched_and_single_tokens(options):
    module, inputs = _module(**options), _inputs(3, 5, 12)
    with torch.no_grad():
        whole = module(inputs)
        torch.testing.assert_close(module(inputs[0]), whole[0], rtol=0, atol=1e-11)
        # One spin has nobody to couple to: a free spin in its field, for every solver.
        alone, parts = module(inputs[:, :1], return_parts=True)
        size = (module.fields(inputs[:, :1]).unflatten(-1, (3, 4)) / 2).norm(dim=-1)
        length = (alone.unflatten(-1, (3, 4)) / 2).norm(dim=-1)
        torch.testing.assert_close(length, 2 * size / (1 + (1 + 4 * size**2).sqrt()))
        assert parts.couplings.abs().max() == 0
        assert parts.response.abs().max() == 0


@pytest.mark.parametrize("options", [*SOLVERS, DRIVEN])
def test_padded_tokens_are_not_there(options):
    module, inputs = _module(**options), _inputs(2, 6, 12)
    padded = torch.zeros(2, 6, dtype=torch.bool)
    padded[1, 4:] = True
    inputs[1, 4:] = torch.nan
    with torch.no_grad():
        output = module(inputs, src_key_padding_mask=padded)
        short = module(inputs[1, :4])
        torch.testing.assert_close(output[1, :4], short, rtol=0, atol=1e-11)
        assert output[1, 4:].abs().max() == 0
        torch.testing.assert_close(output[0], module(inputs[0]), rtol=0, atol=1e-11)
        one = module(inputs[1], src_key_padding_mask=padded[1])
        torch.testing.assert_close(one, output[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("options", [{"solver": "saddle"}, FIXED, TWO_STEPS])
def test_blocks_forbidden_in_both_directions_are_separate_systems(options):
    module, inputs = _module(**options), _inputs(2, 6, 12).requires_grad_()
    forbidden = torch.zeros(6, 6, dtype=torch.bool)
    forbidden[:4, 4:] = forbidden[4:, :4] = True
    output = module(inputs, src_mask=forbidden)
    apart = torch.cat([module(inputs[:, :4]), module(inputs[:, 4:])], dim=1)
    torch.testing.assert_close(output, apart, rtol=0, atol=1e-10)
    added = torch.zeros(6, 6, dtype=DOUBLE).masked_fill(forbidden, -torch.inf)
    torch.testing.assert_close(module(inputs, src_mask=added), output, rtol=0, atol=0)
    each = forbidden.expand(6, 6, 6)
    torch.testing.assert_close(module(inputs, src_mask=each), output, rtol=0, atol=1e-12)
    slopes = [torch.autograd.grad(x.square().sum(), inputs)[0] for x in (output, apart)]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [{"solver": "saddle"}, {"theory": "naive", "symmetric": True}])
def test_a_causal_mask_is_refused_where_every_token_feels_the_future(options):
    """Whatever its form, and for good reason: the future is felt through B = J + Jᵀ."""
    module, inputs = _module(**options), _inputs(2, 5, 12)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    added = torch.zeros(5, 5, dtype=DOUBLE).masked_fill(causal, -torch.inf)
    one_of_six = torch.zeros(6, 5, 5, dtype=torch.bool)
    one_of_six[4] = causal
    strict = torch.ones(5, 5, dtype=torch.bool).triu()
    window = causal | torch.ones(5, 5, dtype=torch.bool).tril(-3)
    for mask in (causal, added, one_of_six, strict, window):
        with pytest.raises(ValueError, match="src_mask must not be causal"):
            module(inputs, src_mask=mask)
    # A mask that also lets a token see a later one, or that lets nobody see anybody, is none.
    allowed = causal.clone()
    allowed[0, 1] = False
    module(inputs, src_mask=allowed)
    module(inputs, src_mask=torch.ones(5, 5, dtype=torch.bool))
    # What a causal mask would leave: as a bias, which is no mask, it lets the future be felt.
    almost = torch.zeros(5, 5, dtype=DOUBLE).masked_fill(causal, -1e9)
    with torch.no_grad():
        before = module(inputs, src_mask=almost)
        inputs[:, -1] += 1.0
        assert (module(inputs, src_mask=almost) - before)[:, 0].abs().max() > 1e-3


def test_a_bias_of_the_scores_is_part_of_the_free_energy():
    module, inputs = _module(solver="saddle"), _inputs(1, 4, 12)
    bias = _inputs(4, 4, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, b: module(x, src_mask=b), (inputs.requires_grad_(), bias), fast_mode=True
    )


@pytest.mark.parametrize("options", [*SOLVERS, *({"theory": theory} for theory in THEORIES)])
def test_it_computes_on_the_device_of_its_input(options):
    """Nothing is made on the default device, here one on which nothing can be computed."""
    module, inputs = _module(**options), _inputs(2, 5, 12)
    masks = {"src_mask": torch.ones(5, 5).triu(2) > 0}
    masks["src_key_padding_mask"] = torch.tensor([[False] * 5, [False] * 4 + [True]])
    with torch.device("meta"):
        output, parts = module(inputs, **masks, return_parts=True)
        output.sum().backward()
        module(inputs, **masks).sum().backward()
        if "theory" not in options:
            parts.validity()


@pytest.mark.parametrize("options", SOLVERS)
def test_half_precision_and_autocast_solve_in_single(options):
    exact, inputs = _module(dtype=torch.float32, **options), _inputs(2, 5, 12, dtype=torch.float32)
    half = copy.deepcopy(exact).to(torch.bfloat16)
    want = exact(inputs)
    low = half(inputs.bfloat16())
    assert low.dtype == torch.bfloat16
    assert (low.float() - want).abs().max() < 0.1 * want.abs().max()
    low.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in half.parameters() if p.grad is not None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = exact(inputs)
    assert (cast - want).abs().max() < 0.05 * want.abs().max()
    cast.sum().backward()


def test_state_and_copies_hold_no_data():
    module, inputs = _module(channel_maps=True, solver="saddle"), _inputs(2, 5, 12)
    output = module(inputs)
    other = _module(seed=5, channel_maps=True, solver="saddle")
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(inputs), output)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(inputs), output)


@pytest.mark.parametrize("options", [*SOLVERS, {"solver": "saddle", "normalize": False}])
def test_what_overflows_is_not_a_number_and_not_converged(options):
    """Never a free spin: (βh)² = ∞ would have looked like one. Neighbours are not harmed."""
    module, inputs = _module(dtype=torch.float32, **options), _inputs(3, 4, 12, dtype=torch.float32)
    module.warned = True
    with torch.no_grad():
        want = module(inputs)
        inputs[1, 2] = 1e30
        inputs[2, 0] = torch.nan
        output, parts = module(inputs, return_parts=True)
    assert output[1:].isnan().any(-1).any(-1).all()
    torch.testing.assert_close(output[0], want[0], rtol=0, atol=1e-5)
    converged = parts.validity().converged
    assert converged[0].all() == (options is not TWO_STEPS)
    assert not converged[1:].any()
    assert not parts.validity().trusted(10.0)[1:].any()


@pytest.mark.parametrize("options", [*SOLVERS, DRIVEN])
def test_vmap_over_inputs_and_over_ensembles(options):
    module, inputs = _module(**options), _inputs(3, 5, 12)
    torch.testing.assert_close(torch.vmap(module)(inputs), module(inputs), rtol=0, atol=1e-11)
    modules = [_module(seed=seed, beta=0.8 + 0.2 * seed, **options) for seed in range(3)]
    parameters, _ = torch.func.stack_module_state(modules)
    called = torch.vmap(lambda p: torch.func.functional_call(modules[0], p, (inputs,)))
    outputs = called(parameters)
    outputs.square().sum().backward()
    for index, one in enumerate(modules):
        out = one(inputs)
        torch.testing.assert_close(outputs[index], out, rtol=0, atol=1e-11)
        out.square().sum().backward()
        for name, parameter in one.named_parameters():
            torch.testing.assert_close(
                parameters[name].grad[index], parameter.grad, rtol=1e-8, atol=1e-9
            )


@pytest.mark.parametrize("options", [*SOLVERS, DRIVEN, {"theory": "second order"}])
def test_forward_mode_derivatives(options):
    """Jacobians and Hessians in either mode, nested in either order, and dual numbers."""
    module, inputs = _module(**options), _inputs(1, 3, 12)
    forward, reverse = torch.func.jacfwd, torch.func.jacrev
    jacobian = forward(module)(inputs)
    torch.testing.assert_close(jacobian, reverse(module)(inputs), rtol=0, atol=1e-9)

    def energy(x):
        return module(x).square().sum()

    want = torch.autograd.functional.hessian(energy, inputs)
    for second in (forward(forward(energy)), forward(reverse(energy)), reverse(forward(energy))):
        torch.testing.assert_close(second(inputs), want, rtol=0, atol=1e-9)
    push = _inputs(1, 3, 12, seed=7)
    with torch.autograd.forward_ad.dual_level():
        output = module(torch.autograd.forward_ad.make_dual(inputs, push))
        tangent = torch.autograd.forward_ad.unpack_dual(output).tangent
    torch.testing.assert_close(tangent, torch.einsum("abcdef,def->abc", jacobian, push))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("options", [{"solver": "saddle"}, FIXED, DRIVEN])
def test_compiled_and_exported(options):
    """One graph without breaks, forward and backward; iterations are operators within it."""
    module, inputs = _module(**options), _inputs(2, 4, 12)
    want = module(inputs)
    want.square().sum().backward()
    slopes = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    exported = torch.export.export(module, (inputs,)).module()
    torch.testing.assert_close(exported(inputs), want, rtol=0, atol=1e-11)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    output = compiled(inputs)
    torch.testing.assert_close(output, want, rtol=0, atol=1e-11)
    output.square().sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, slopes[name], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("options", [{}, DRIVEN])
def test_it_stands_in_the_encoder_of_torch(options):
    module, inputs = _module(channel_maps=True, **options), _inputs(2, 5, 12)
    stack = nn.TransformerEncoder(module, 2, enable_nested_tensor=False)
    torch.manual_seed(4)
    stack.layers[1].reset_parameters()
    fresh = _module(seed=4, channel_maps=True, **options)
    assert all(map(torch.equal, stack.layers[1].parameters(), fresh.parameters()))
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    later, near = torch.ones(5, 5).triu(1) > 0, torch.ones(5, 5).tril(-3) > 0
    for mode in (True, False):
        stack.train(mode)
        for given in ({}, {"mask": near}, {"mask": near, "src_key_padding_mask": padded}):
            by_hand = inputs
            for layer in stack.layers:
                by_hand = layer(by_hand, given.get("mask"), given.get("src_key_padding_mask"))
            torch.testing.assert_close(stack(inputs, **given), by_hand, rtol=0, atol=1e-13)
            assert given == {} or not torch.allclose(by_hand, stack(inputs))
        if options:
            changed = torch.cat([inputs[:, :3], inputs[:, 3:] + 1.0], dim=1)
            for given in ({}, {"mask": later}, {"mask": later, "is_causal": True}):
                assert torch.equal(stack(changed, **given)[:, :3], stack(inputs, **given)[:, :3])
        else:
            with pytest.raises(ValueError, match="every token feels the future"):
                stack(inputs, mask=later)
    stack(inputs).sum().backward()
    assert stack.layers[0].query.grad.abs().max() > 0


@pytest.mark.parametrize("options", [*SOLVERS, DRIVEN])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_mask_that_is_no_bias_is_refused_by_name(options, bad):
    """NaN would be forbidden here and NaN there, infinity all of one row's attention."""
    module, inputs = _module(**options), _inputs(2, 4, 12)
    mask = torch.zeros(4, 4, dtype=DOUBLE)
    mask[1, 0] = bad
    with pytest.raises(ValueError, match="src_mask must be boolean, or finite and minus infinity"):
        module(inputs, src_mask=mask)
    padding = torch.zeros(2, 4, dtype=DOUBLE)
    padding[0, 1] = bad
    with pytest.raises(ValueError, match="src_key_padding_mask must be boolean, or 0 and minus"):
        module(inputs, src_key_padding_mask=padding)


def layers_of_the_page():
    """The three layers that book/use.md makes, by the names it gives them, and its words."""
    page = (Path(__file__).parents[1] / "book" / "use.md").read_text(encoding="utf-8")
    section = page.partition("## A layer in your own model")[2].partition("\n## ")[0]
    code, *_ = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    kept: dict[str, nn.Module] = {}
    scope = {"keep": kept}
    # The page gives one name to three layers, one after the other.
    torch.manual_seed(0)
    exec(
        re.sub(r"^(layer(?:\.self_attn)? = .*)$", r"\1\nkeep[len(keep)] = layer", code, flags=re.M),
        scope,
    )
    return list({id(layer): layer for layer in kept.values()}.values()), section


def test_what_the_page_says_of_masks_is_what_layers_do():
    """Ragged sentences: each is computed as if it were alone, by the polarity that is written."""
    layers, words = layers_of_the_page()
    assert len(layers) == 3
    words = " ".join(words.split())
    assert "| `src_key_padding_mask` | `SpinTransformerModule` | a token is padding |" in words
    assert "`src_mask` is True at (i, j) where token i may not be coupled to token j" in words
    inputs = _inputs(2, 6, 32, dtype=torch.float32)
    padding = torch.arange(6) >= torch.tensor([[5], [4]])
    for layer in layers:
        layer.eval()
        with torch.no_grad():
            together = layer(inputs, src_key_padding_mask=padding)
            alone = layer(inputs[1:, :4])
            other = layer(inputs, src_key_padding_mask=~padding)
        torch.testing.assert_close(together[1:, :4], alone, rtol=0, atol=1e-5)
        assert (other[1:, :4] - alone).abs().max() > 1e-2
        # (i, j) and not (j, i): the first row is forbidden, the first column is not.
        row = torch.zeros(6, 6, dtype=torch.bool)
        row[0, 1:] = True
        if isinstance(layer, DrivenSpinModule | SpinTransformerModule):
            couplings = layer(inputs, src_mask=row, return_parts=True)[1].couplings
            assert couplings[..., 0, :].abs().max() == 0
            assert couplings[..., 1:, 0].abs().min() > 0
    equilibrium, driven = layers[1:]
    with pytest.raises(ValueError, match="every token feels the future"):
        equilibrium(inputs, is_causal=True)
    later = torch.cat([inputs[:, :3], inputs[:, 3:] + 1.0], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(driven(later)[:, :3], driven(inputs)[:, :3])
        assert (equilibrium(later) - equilibrium(inputs))[:, :3].abs().max() > 1e-2


def test_units_of_what_goes_in_and_comes_out():
    """Tokens are fields H on spins of length √D: alone, ⟨σ⟩ = √D L(H/√D), by its first terms."""
    weak = 1e-3 * _inputs(1, 1, 12)
    for options in ({"solver": "saddle"}, FIXED):
        module = _module(beta=1.7, normalize=False, **options)
        output, parts = module(weak, return_parts=True)
        # Of a weak field H: ⟨σ⟩ = βH, whatever D; the opposite order of √D would give β D^±½ H.
        torch.testing.assert_close(output, 1.7 * weak, rtol=1e-5, atol=0)
        torch.testing.assert_close(parts.fields.transpose(1, 2).flatten(2), weak / 2)
        torch.testing.assert_close(parts.spins, output)
        # F = −(β/2) H² for each spin of any D, less that without a field.
        rise = module.free_energy(weak) - module.free_energy(0 * weak)
        torch.testing.assert_close(rise, -0.85 * weak.square().sum((1, 2)), rtol=1e-4, atol=1e-12)
    driven = _module(theory="second order", beta=1.7)
    driven.normalize = False
    torch.testing.assert_close(driven(weak), 1.7 * weak, rtol=1e-5, atol=0)


@pytest.mark.filterwarnings("ignore:.*did not converge:RuntimeWarning")
@pytest.mark.parametrize("options", [*SOLVERS, {"channel_maps": True}, DRIVEN])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_parameters_that_are_no_numbers_do_not_hide(options, bad):
    """A module's own parameters reach its output: nothing finite comes out of NaN."""
    inputs = _inputs(2, 4, 12)
    names = [name for name, _ in _module(**options).named_parameters()]
    for name in names:
        module = _module(**options)
        with torch.no_grad():
            module.get_parameter(name).flatten()[0] = bad
            output, parts = module(inputs, return_parts=True)
        assert not output.isfinite().all(), name
        if name not in ("map_out",) and options != DRIVEN:
            assert not parts.validity().trusted(10.0).all(), name


@pytest.mark.parametrize("options", [*SOLVERS, DRIVEN])
def test_strengths_and_temperatures_beyond_numbers_are_their_limits(options):
    inputs = _inputs(2, 4, 12)
    for name in ("log_strength", "log_beta"):
        module = _module(**options)
        module.warned = True
        with torch.no_grad():
            module.get_parameter(name).fill_(-1000.0)
            output, parts = module(inputs, return_parts=True)
            alone = module(inputs, src_mask=torch.ones(4, 4, dtype=torch.bool))
        if name == "log_strength":
            torch.testing.assert_close(output, alone, rtol=0, atol=1e-12)
        elif options != DRIVEN:
            assert not parts.validity().converged.any()


def test_a_mask_may_be_of_another_precision_than_the_module():
    module, inputs = _module(dtype=torch.float32), _inputs(2, 4, 12, dtype=torch.float32)
    forbidden = torch.ones(4, 4).tril(-2) > 0
    want = module(inputs, src_mask=forbidden)
    for lowest in (-torch.inf, -1e300):
        mask = torch.zeros(4, 4, dtype=DOUBLE).masked_fill(forbidden, lowest)
        torch.testing.assert_close(module(inputs, src_mask=mask), want)
    with pytest.raises(ValueError, match="src_mask must be"):
        module(inputs, src_mask=-mask)


@pytest.mark.parametrize("solver", [None, 3, ["saddle"]])
def test_a_solver_that_is_none_is_refused_when_it_is_given(solver):
    with pytest.raises(TypeError, match="solver must be a word or a Solver"):
        SpinTransformerModule(12, heads=3, solver=solver)


def test_masks_are_read_as_torch_means_them():
    """A float mask is a bias, minus infinity forbids; heads of a batch are laid out batch first."""
    module, inputs = _module(solver="saddle"), _inputs(2, 4, 12)
    bias = _inputs(4, 4, seed=5)
    bias[0, 2] = -torch.inf
    each = torch.rand(6, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.3
    padded = torch.tensor([[False] * 4, [False, False, False, True]])
    with torch.no_grad():
        _, plain = module(inputs, return_parts=True)
        _, biased = module(inputs, src_mask=bias, return_parts=True)
        given = {"src_mask": each, "src_key_padding_mask": padded}
        _, masked = module(inputs, **given, return_parts=True)
    odds = plain.couplings * bias.exp()
    torch.testing.assert_close(biased.couplings, 0.5 * odds / odds.sum(-1, keepdim=True))
    either = padded[:, None, :, None] | padded[:, None, None, :] | torch.eye(4, dtype=torch.bool)
    assert torch.equal(masked.couplings == 0, each.unflatten(0, (2, 3)) | either)
