"""The backward pass by hand of the spin modules, held to the same function in plain operations."""

import pytest
import torch
from known_memories import normal

from spinformer.spins import fused
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.module import Solver, SpinTransformerModule

DOUBLE = torch.float64
MODULES = {
    "one step": (SpinTransformerModule, {"solver": Solver(steps=1)}),
    "three naive steps": (SpinTransformerModule, {"solver": Solver(steps=3, order=1)}),
    "spins alone": (SpinTransformerModule, {"solver": Solver(steps=2), "response": False}),
    "saddle": (SpinTransformerModule, {"solver": "saddle"}),
    "saddle alone": (SpinTransformerModule, {"solver": "saddle", "response": False}),
    "driven": (DrivenSpinModule, {"steps": 3}),
    "driven, naive": (DrivenSpinModule, {"steps": 2, "theory": "naive"}),
}


def _module(kind, *, dtype=DOUBLE, dim=12, heads=3, seed=0, **options):
    cls, own = MODULES[kind]
    torch.manual_seed(seed)
    module = cls(dim, heads=heads, dtype=dtype, channel_maps=True, gamma=1.4, **own, **options)
    module.warned = True
    return module


def _slopes(module, inputs, plain, **masks):
    """Output and gradients, by hand or through the plain operations."""
    weight = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(9)).to(inputs)
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(type(module), "_is_fused", lambda *_: False)
        output = module(inputs, **masks)
        used = output.grad_fn
        wanted = [inputs, *module.parameters()]
        slopes = torch.autograd.grad((output * weight).sum(), wanted, allow_unused=True)
    assert used is not None
    return [output.detach(), *slopes]


def _assert_same(module, inputs, tolerance, **masks):
    by_hand = _slopes(module, inputs, False, **masks)
    plain = _slopes(module, inputs, True, **masks)
    for one, other in zip(by_hand, plain, strict=True):
        if other is None:
            assert one is None or one.abs().max() == 0
            continue
        assert (one - other).abs().max() <= tolerance * (1e-3 + other.abs().max())


def _masks(which, sites):
    generator = torch.Generator().manual_seed(4)
    if which == "forbidden":
        mask = torch.rand(sites, sites, generator=generator) < 0.3
        mask[1] = True
        return {"src_mask": mask}
    if which == "bias":
        return {"src_mask": torch.randn(sites, sites, generator=generator, dtype=DOUBLE)}
    if which == "each head":
        return {"src_mask": torch.rand(6, sites, sites, generator=generator) < 0.3}
    padded = torch.zeros(2, sites, dtype=torch.bool)
    padded[1, -2:] = True
    return {"src_key_padding_mask": padded}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("strength", [0.1, 0.5, 2.0])
def test_values_and_gradients_are_those_of_plain_operations(kind, strength):
    module = _module(kind, coupling_strength=strength, beta=1.3)
    for sites in (1, 2, 9):
        _assert_same(module, normal(sites, 2, sites, 12).requires_grad_(), 1e-9)


@pytest.mark.parametrize("kind", MODULES)
def test_single_precision(kind):
    module = _module(kind, dtype=torch.float32)
    inputs = normal(2, 2, 20, 12).float().requires_grad_()
    _assert_same(module, inputs, 2e-5 if "saddle" in kind else 2e-6)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("which", ["forbidden", "bias", "each head", "padding"])
def test_masks(kind, which):
    module = _module(kind)
    _assert_same(module, normal(3, 2, 6, 12).requires_grad_(), 1e-9, **_masks(which, 6))


@pytest.mark.parametrize("kind", MODULES)
def test_tiles_do_not_mix(kind, monkeypatch):
    """Of one system, of some and of all."""
    module = _module(kind)
    inputs = normal(4, 3, 7, 12).requires_grad_()
    want = _slopes(module, inputs, False)
    for tile in (1, 5 * 49):
        monkeypatch.setattr(fused, "_TILE", tile)
        for one, other in zip(_slopes(module, inputs, False), want, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def _kept_bytes(module, inputs):
    kept = {}

    def pack(values):
        kept[values.untyped_storage().data_ptr()] = values.untyped_storage().nbytes()
        return values

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda values: values):
        module(inputs)
    return sum(kept.values())


@pytest.mark.parametrize("kind", ["one step", "saddle", "driven"])
@pytest.mark.parametrize("sites", [32, 192])
def test_couplings_are_kept_where_they_are_small(kind, sites):
    """With four components a spin up to 64 of them, or 32 beside the inverse of the saddle."""
    module = _module(kind, dtype=torch.float32)
    inputs = normal(5, 1, sites, 12).float().requires_grad_()
    matrix = 3 * sites**2 * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "_KEPT_VECTORS", 0)
        least = _kept_bytes(module, inputs)
    assert _kept_bytes(module, inputs) == least + (matrix if sites == 32 else 0)
    if sites == 192:
        # What is kept grows with N, and at the saddle by one matrix.
        assert least < (1.6 if kind == "saddle" else 0.6) * matrix


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("which", [None, "forbidden", "bias"])
def test_kept_couplings_are_those_computed_again(kind, which, monkeypatch):
    module = _module(kind)
    inputs = normal(4, 3, 7, 12).requires_grad_()
    masks = {} if which is None else _masks(which, 7)
    kept = _slopes(module, inputs, False, **masks)
    monkeypatch.setattr(fused, "_KEPT_VECTORS", 0)
    for one, other in zip(kept, _slopes(module, inputs, False, **masks), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_have_gradients_through_plain_operations(kind):
    module = _module(kind, dim=4, heads=2)
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach().clone().requires_grad_() for value in module.parameters()]

    def call(inputs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs)

    inputs = normal(6, 1, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(call, (inputs, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (inputs, *values), fast_mode=True)


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_newton_finds_the_saddle_without_the_search(strength, monkeypatch):
    """Also where spins order, and half the sites are masked."""
    monkeypatch.setattr(fused, "saddle_of", None)
    module = _module("saddle", coupling_strength=strength)
    inputs = normal(7, 2, 40, 12).requires_grad_()
    _assert_same(module, inputs, 1e-9)
    padded = torch.arange(40).expand(2, 40) >= 20
    _assert_same(module, inputs, 1e-9, src_key_padding_mask=padded)


@pytest.mark.parametrize("stop", ["no steps", "far away", "not finite"])
def test_the_search_finds_the_saddle_where_newton_does_not(stop, monkeypatch):
    module = _module("saddle", coupling_strength=4.0)
    inputs = normal(7, 2, 20, 12).requires_grad_()
    if stop == "no steps":
        monkeypatch.setattr(fused, "_NEWTON_STEPS", 0)
    else:
        start = 0.01 if stop == "far away" else torch.nan
        monkeypatch.setattr(
            fused,
            "_mean_field_multipliers",
            lambda fields, *_: torch.full_like(fields, start)[..., :1],
        )
    _assert_same(module, inputs, 1e-9)


def test_a_gradient_of_the_mask_takes_the_plain_operations():
    module, inputs = _module("saddle"), normal(8, 2, 5, 12)
    bias = normal(9, 5, 5).requires_grad_()
    module(inputs, src_mask=bias).square().sum().backward()
    assert bias.grad.abs().max() > 1e-4


def test_threads_have_work_matrices_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    module = _module("one step")
    inputs = [normal(seed, 2, 24, 12) for seed in range(8)]
    with torch.no_grad():
        want = [module(x) for x in inputs]
        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                assert all(map(torch.equal, pool.map(module, inputs), want))
