"""Adaptive TAP for vector spins: its limits, exact systems, simulation, derivatives, flags."""

import numpy as np
import pytest
import torch

from compendium.c22_vector_spins.study import (
    METHODS,
    alignment_gain,
    reaction,
    solve_adaptive_tap,
    three_spins,
)
from spinformer.core.solve import NotConverged, Status
from spinformer.spins.large_d import vector_spins
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.vectors import one_spin, two_spins

DOUBLE = torch.float64


def _system(sites=5, dim=3, strength=0.25, seed=0):
    generator = torch.Generator().manual_seed(seed)
    couplings = strength * torch.randn(sites, sites, generator=generator, dtype=DOUBLE)
    return couplings, torch.randn(sites, dim, generator=generator, dtype=DOUBLE) / dim**0.5


@pytest.mark.parametrize("method", METHODS)
def test_one_component_is_the_ising_theory(method):
    """The same equations, solved by climbing a functional of Ising spins."""
    couplings, fields = _system(dim=1)
    pair = (couplings + couplings.T).fill_diagonal_(0.0).numpy()
    found = solve_adaptive_tap(couplings, fields=fields, beta=1.2, method=method)
    ising = solve_mean_field(pair, fields=fields[:, 0].numpy(), beta=1.2, method=method)
    np.testing.assert_allclose(found.value[:, 0].numpy(), ising.magnetization, atol=1e-10)


def test_many_components_are_the_saddle_point():
    """m approaches that of the large-D theory as 1/D."""
    couplings, _ = _system()
    gaps = []
    for dim in (32, 128, 512):
        fields = torch.zeros(5, dim, dtype=DOUBLE)
        fields[:, :3] = _system()[1]
        found = solve_adaptive_tap(couplings, fields=fields, beta=0.9)
        m = vector_spins(couplings, fields=fields * dim**0.5, beta=0.9).magnetization / dim**0.5
        gaps.append(float((found.value - m).norm()))
    np.testing.assert_allclose(np.array(gaps)[:-1] / np.array(gaps)[1:], 4.0, rtol=0.1)
    assert gaps[-1] < 3e-3


def test_one_spin_and_what_the_reaction_is():
    field = torch.tensor([[0.3, -0.8, 0.5]], dtype=DOUBLE)
    found = solve_adaptive_tap(torch.ones(1, 1, dtype=DOUBLE), fields=field, beta=1.4)
    exact = one_spin(field[0].numpy() * 3**0.5, beta=1.4)
    np.testing.assert_allclose(found.value[0].numpy() * 3**0.5, exact.magnetization[0], atol=1e-12)
    # With others: the response of the theory is the variance, and weak couplings give Onsager's V;
    # each spin answers its field less what it is held back.
    couplings, fields = _system()
    beta = torch.tensor(0.8, dtype=DOUBLE)
    for scale, tolerance in ((1.0, None), (0.02, 0.02)):
        mean = solve_adaptive_tap(scale * couplings, fields=fields, beta=beta).value
        pair = scale * (couplings + couplings.T).fill_diagonal_(0.0)
        held, width = reaction(mean, pair, beta, "adaptive"), 1 - mean.square().sum(-1)
        inverse = torch.linalg.inv(torch.diag(0.8 * held + 1 / width) - 0.8 * pair)
        torch.testing.assert_close(inverse.diagonal(), width, rtol=1e-9, atol=0)
        theta = fields + pair @ mean - held[:, None] * mean
        for spin, pull in zip(mean.numpy(), theta.numpy(), strict=True):
            answer = one_spin(pull * 3**0.5, beta=0.8).magnetization[0]
            np.testing.assert_allclose(spin * 3**0.5, answer, atol=1e-10)
        if tolerance:
            onsager = 0.8 * pair.square() @ width
            torch.testing.assert_close(held, onsager, rtol=tolerance, atol=1e-9)


@pytest.mark.claim("B7e")
@pytest.mark.parametrize("dim", [2, 8])
def test_exact_systems(dim):
    """Random triples, and a pair in fields that are not parallel: adaptive TAP is closest."""
    rng = np.random.default_rng(1)
    along, apart = np.zeros((3, dim)), np.zeros((2, dim))
    along[:, 0] = (0.8, -0.3, 0.5)
    apart[0, 0], apart[1, :2] = 0.7, (-0.2, 0.4)
    systems = [(0.3 * rng.standard_normal((3, 3)), along, three_spins) for _ in range(2)]
    systems.append((np.array([[0.0, 0.6], [0.1, 0.0]]), apart, two_spins))
    wrong = {name: [] for name in (*METHODS, "saddle")}
    for couplings, h, exact in systems:
        truth = exact(couplings, fields=h * dim**0.5, beta=0.9).magnetization / dim**0.5
        j, field = torch.tensor(couplings), torch.tensor(h)
        for method in METHODS:
            found = solve_adaptive_tap(j, fields=field, beta=0.9, method=method).value
            wrong[method].append(np.abs(found.numpy() - truth).max())
        saddle = vector_spins(j, fields=field * dim**0.5, beta=0.9).magnetization / dim**0.5
        wrong["saddle"].append(np.abs(saddle.numpy() - truth).max())
    rms = {name: np.sqrt(np.mean(np.square(values))) for name, values in wrong.items()}
    assert rms["adaptive"] < 0.8 * min(rms[name] for name in ("naive", "tap", "saddle"))
    assert rms["adaptive"] < 0.05 / dim


@pytest.mark.parametrize("method", METHODS)
def test_derivatives(method):
    """The implicit ones against differences with the equations solved anew."""
    couplings, fields = _system(sites=3, dim=2, strength=0.4)
    beta = torch.tensor(1.1, dtype=DOUBLE)
    # One direction in the space of all three, and one combination of all outputs.
    generator = torch.Generator().manual_seed(5)
    inputs = [x.clone().requires_grad_() for x in (couplings, fields, beta)]
    ways = [torch.randn(x.shape, generator=generator, dtype=DOUBLE) for x in inputs]
    weights = torch.randn(fields.shape, generator=generator, dtype=DOUBLE)

    def combined(couplings, fields, beta):
        found = solve_adaptive_tap(couplings, fields=fields, beta=beta, method=method)
        return (weights * found.value).sum()

    slopes = torch.autograd.grad(combined(*inputs), inputs)
    along = sum((g * w).sum() for g, w in zip(slopes, ways, strict=True))
    up, down = (
        combined(*(x.detach() + step * w for x, w in zip(inputs, ways, strict=True)))
        for step in (1e-5, -1e-5)
    )
    assert float(along) == pytest.approx(float(up - down) / 2e-5, rel=1e-6)


def test_second_derivatives():
    couplings, fields = _system(sites=2, dim=2)

    def solve(fields):
        return solve_adaptive_tap(couplings, fields=fields, beta=1.0).value

    probe = fields.requires_grad_()
    (slope,) = torch.autograd.grad(solve(probe)[0, 1], probe, create_graph=True)
    (second,) = torch.autograd.grad(slope[1, 0], probe)
    step = torch.zeros_like(fields)
    step[0, 1] = 1e-4
    ends = []
    for sign in (1, -1):
        moved = (fields.detach() + sign * step).requires_grad_()
        ends.append(torch.autograd.grad(solve(moved)[0, 1], moved)[0][1, 0])
    assert float(second[0, 1]) == pytest.approx(float(ends[0] - ends[1]) / 2e-4, rel=1e-6)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_batches_flags_and_bad_input(dtype, limit):
    couplings, fields = (x.to(dtype) for x in _system(sites=3, dim=2))
    given = {"fields": fields, "beta": 0.7, "method": "tap", "throw": False}
    cold = torch.stack([couplings, 30 * couplings])
    found = solve_adaptive_tap(cold, **given)
    alone = solve_adaptive_tap(couplings, **given)
    torch.testing.assert_close(found.value[0], alone.value, rtol=0, atol=1e3 * limit)
    assert found.status.tolist() == [Status.CONVERGED, Status.STEP_LIMIT]
    assert float(found.residual[0]) <= limit < 1e-3 < float(found.residual[1])
    with pytest.raises(NotConverged, match="adaptive TAP"):
        solve_adaptive_tap(cold, **{**given, "throw": True})
    with pytest.raises(ValueError, match="beta must be"):
        solve_adaptive_tap(0.1 * torch.ones(2, 2), fields=torch.ones(2, 1), beta=0.0)
    with pytest.raises(ValueError, match="method"):
        solve_adaptive_tap(couplings, **{**given, "method": "best"})


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_the_slope_of_the_gain_is_that_of_differences(dim):
    """With β = 1/D the gain is A(κ)/κ of κ²."""
    square = dim * torch.tensor([1e-7, 1e-4, 1e-3, 0.05, 1.0], dtype=torch.float64)

    def gain(x):
        return alignment_gain(x, beta=torch.tensor(1.0 / dim, dtype=torch.float64), dim=dim)

    given = square.clone().requires_grad_()
    (slope,) = torch.autograd.grad(gain(given).sum(), given)
    step = 0.02 * dim * torch.ones_like(square)  # κ² < 0 is another function: forwards, 4th order
    points = [gain(square + k * step) for k in range(7)]
    weights = [-147 / 60, 6.0, -7.5, 20 / 3, -3.75, 1.2, -1 / 6]
    wanted = sum(w * p for w, p in zip(weights, points, strict=True)) / step
    torch.testing.assert_close(slope, wanted, rtol=2e-7, atol=0)
