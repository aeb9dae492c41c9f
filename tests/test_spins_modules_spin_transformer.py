"""The spin module: its output is −dF/dH, its gradients are right, its tokens are a set."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from compendium.c23_anatomy.study import slope_at_zero, softmax_couplings, softmax_response
from spinformer.core.solve import Status
from spinformer.spins.large_d import langevin_response, mean_field
from spinformer.spins.module import Solver, SpinTransformerModule
from spinformer.spins.solvers import solve_fixed_point, solve_saddle_point

DOUBLE = torch.float64


def _module(dim=12, heads=3, seed=0, **options):
    """Options of the solver by name, as the others."""
    names = ("steps", "order", "tolerance", "max_steps")
    own = {name: options.pop(name) for name in names if name in options}
    solver = Solver(options.pop("solver", "fixed point"), **own)
    torch.manual_seed(seed)
    return SpinTransformerModule(dim, heads=heads, solver=solver, dtype=DOUBLE, **options)


def _inputs(batch=2, sites=5, dim=12, seed=1):
    return torch.randn(batch, sites, dim, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(
    "options",
    [
        {"order": 1, "coupling_strength": 1.5, "beta": 0.4},
        {"order": 1, "coupling_strength": 0.4, "beta": 2.0},
        {"order": 2, "coupling_strength": 1.5, "beta": 0.4},
        {"order": 2, "coupling_strength": 0.4, "beta": 2.0},
        {"solver": "saddle", "coupling_strength": 1.5, "beta": 0.4},
        {"solver": "saddle", "coupling_strength": 4.0, "beta": 1.0},
    ],
)
@pytest.mark.claim("B8")
def test_output_is_minus_the_gradient_of_the_free_energy(options):
    """By autograd through F(H, J(H), m*(H)), and by finite differences with m* solved again."""
    module = _module(**options, gamma=1.5, normalize=False, tolerance=3e-15)
    fields = _inputs().requires_grad_()
    energy = module.free_energy(fields).sum()
    (slope,) = torch.autograd.grad(-energy, fields)
    with torch.no_grad():
        output, parts = module(fields, return_parts=True)
        assert parts.response.abs().max() > 1e-2
        torch.testing.assert_close(output, slope, rtol=0, atol=1e-12)
        push = _inputs(seed=3)
        along = -slope_at_zero(lambda s: module.free_energy(fields + s * push).sum(), step=1e-3)
        assert abs(along - (output * push).sum()) < 3e-9


def test_one_head_is_the_formula_of_the_couplings_module():
    """Scaled fields, A = W_Q W_Kᵀ, γ√D: m = ⟨u⟩ + response, put together from other functions."""
    module = _module(dim=6, heads=1, steps=None, beta=0.9, gamma=1.3)
    inputs = _inputs(dim=6)
    with torch.no_grad():
        output, parts = module(inputs, return_parts=True)
        fields = module.fields(inputs) / 6**0.5
        bilinear = module.query @ module.key.mT
        options = {"scale": 1.3 * 6**0.5, "strength": 0.5}
        couplings = softmax_couplings(fields, bilinear=bilinear, **options)
        spins = solve_fixed_point(couplings, fields=fields, beta=0.9)
        torch.testing.assert_close(parts.couplings[:, 0], couplings)
        given = {"couplings": couplings, "correlation": parts.correlation[:, 0]}
        response = softmax_response(fields, bilinear=bilinear, **given, **options)
        torch.testing.assert_close(output, 6**0.5 * (spins.value + response), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 1, "order": 2},
        {"steps": 3, "order": 1},
        {"order": 1},
        {"order": 2},
        {"solver": "saddle"},
    ],
)
def test_gradients_once_and_twice(options):
    module = _module(dim=4, heads=2, **options, channel_maps=True, beta=1.4, tolerance=1e-14)
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach().clone().requires_grad_() for value in module.parameters()]
    assert set(names) == {"query", "key", "log_beta", "log_strength", "map_in", "map_out"}

    def call(inputs, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs)

    inputs = _inputs(batch=2, sites=3, dim=4).requires_grad_()
    assert torch.autograd.gradcheck(call, (inputs, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (inputs, *values), fast_mode=True)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    sites=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    options=st.sampled_from(
        [{"steps": 1}, {"steps": 2, "order": 1}, {"order": 1}, {}, {"solver": "saddle"}]
    ),
    beta=st.floats(0.1, 2.0),
)
def test_tokens_are_a_set_and_batches_do_not_mix(sites, seed, options, beta):
    module = _module(seed=seed, beta=beta, **options)
    module.warned = True
    inputs = _inputs(batch=3, sites=sites, seed=seed)
    # One neighbour is made much harder to solve than the others.
    inputs[2] *= 30
    with torch.no_grad():
        together = module(inputs)
        order_of = torch.randperm(sites, generator=torch.Generator().manual_seed(seed))
        moved = module(inputs[:, order_of])
        torch.testing.assert_close(moved, together[:, order_of], rtol=0, atol=2e-10)
        for index in range(3):
            alone = module(inputs[index : index + 1])
            torch.testing.assert_close(alone[0], together[index], rtol=0, atol=1e-11)
        changed = inputs.clone()
        changed[1:] = _inputs(batch=2, sites=sites, seed=seed + 1)
        torch.testing.assert_close(module(changed)[0], together[0], rtol=0, atol=1e-11)


def test_orders_approach_the_saddle_point_of_large_dimension():
    """⟨σ⟩ against the determinant form: naive mean field errs as g², the Onsager term as g³."""
    inputs = _inputs(batch=1, sites=6, dim=8)
    errors = {1: [], 2: []}
    for strength in (0.01, 0.02, 0.04):
        for order in (1, 2):
            module = _module(
                dim=8, heads=1, steps=None, order=order, coupling_strength=strength, beta=1.5
            )
            with torch.no_grad():
                _, parts = module(inputs, return_parts=True)
                fields = module.fields(inputs)
                large = solve_saddle_point(parts.couplings[:, 0], fields=fields, beta=1.5)
                spins = parts.magnetization - parts.response
                errors[order].append((spins - large.magnetization).norm().item())
    for order, want in ((1, 4.0), (2, 8.0)):
        low, middle, high = errors[order]
        assert (middle / low, high / middle) == pytest.approx((want, want), rel=0.15)


def test_failure_to_converge_is_said():
    module = _module(steps=None, beta=3.0, coupling_strength=2.0, max_steps=2)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="6 of 6 systems did not converge"):
        _, parts = module(_inputs(), return_parts=True)
    assert not parts.solution.converged.all()
    assert not parts.validity().converged.any()
    module(_inputs())  # once is enough, and a warning would be an error here


@pytest.mark.parametrize("steps", [1, 3, 60])
@pytest.mark.parametrize("order", [1, 2])
def test_steps_are_converged_only_where_they_arrived(steps, order):
    """The residual of K steps is the distance to K + 1 steps, measured here by that module."""
    options = {"order": order, "beta": 1.0, "coupling_strength": 0.4, "tolerance": 1e-9}
    with torch.no_grad():
        (_, parts), (_, later) = (
            _module(steps=n, **options)(_inputs(), return_parts=True) for n in (steps, steps + 1)
        )
    if steps == 1:
        square = parts.pair.square() if order == 2 else None
        given = (parts.fields, parts.pair, parts.beta, square)
        theta, gain = mean_field(langevin_response(parts.fields, parts.beta), *given)
        torch.testing.assert_close(parts.solution.value, gain * theta)
    change = later.solution.value - parts.solution.value
    want = change.square().sum((-2, -1)).sqrt() / 5**0.5
    torch.testing.assert_close(parts.solution.residual, want, rtol=1e-6, atol=1e-15)
    arrived = steps == 60
    assert (parts.validity().converged == arrived).all()
    assert (want <= 1e-9).all() == arrived
    assert (parts.solution.status == (Status.CONVERGED if arrived else Status.STEP_LIMIT)).all()
    assert (parts.solution.steps == steps).all()


@pytest.mark.parametrize(
    ("options", "call", "error", "words"),
    [
        ({"heads": 4}, {}, ValueError, "multiple of heads"),
        ({"coupling_strength": 0.0}, {}, ValueError, "coupling_strength"),
        ({"dtype": torch.int64}, {}, TypeError, "dtype"),
        ({}, {"src": torch.ones(6)}, ValueError, "src"),
        ({}, {"src": torch.ones(1, 2, 6).double()}, TypeError, "src"),
        ({}, {"src_mask": torch.ones(3, 3)}, ValueError, "src_mask"),
        ({}, {"src_key_padding_mask": torch.ones(1, 2)}, ValueError, "is a spin or it is none"),
    ],
)
def test_bad_input(options, call, error, words):
    with pytest.raises(error, match=words):
        SpinTransformerModule(6, **{"heads": 2, **options})(**{"src": torch.ones(1, 2, 6), **call})
