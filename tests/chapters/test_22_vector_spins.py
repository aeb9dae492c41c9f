"""Adaptive TAP for vector spins: its limits, exact systems, simulation, derivatives, flags."""

import numpy as np
import pytest
import torch

from compendium.c22_vector_spins.study import (
    METHODS,
    alignment_gain,
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
    """The same equations, solved by climbing a functional of Ising spins: m and ln Z."""
    couplings, fields = _system(dim=1)
    pair = (couplings + couplings.T).fill_diagonal_(0.0).numpy()
    found = solve_adaptive_tap(couplings, fields=fields, beta=1.2, method=method)
    ising = solve_mean_field(pair, fields=fields[:, 0].numpy(), beta=1.2, method=method)
    np.testing.assert_allclose(found.value[:, 0].numpy(), ising.magnetization, atol=1e-10)
    # ln Z is counted from free spins, and the diagonal is a constant of the energy.
    constant = 1.2 * float(couplings.trace()) - 5 * np.log(2)
    assert float(found.log_partition) == pytest.approx(ising.log_partition + constant, abs=1e-9)


def test_many_components_are_the_saddle_point():
    """m and ln Z/D approach those of the large-D theory as 1/D."""
    couplings, _ = _system()
    gaps = []
    for dim in (32, 128, 512):
        fields = torch.zeros(5, dim, dtype=DOUBLE)
        fields[:, :3] = _system()[1]
        found = solve_adaptive_tap(couplings, fields=fields, beta=0.9)
        limit = vector_spins(couplings, fields=fields * dim**0.5, beta=0.9)
        m = limit.magnetization / dim**0.5
        log_z = -0.9 * limit.free_energy
        gaps.append(
            [float((found.value - m).norm()), float((found.log_partition - log_z).abs()) / dim]
        )
    np.testing.assert_allclose(np.array(gaps)[:-1] / np.array(gaps)[1:], 4.0, rtol=0.1)
    assert max(gaps[-1]) < 3e-3


def test_one_spin_and_what_the_reaction_is():
    field = torch.tensor([[0.3, -0.8, 0.5]], dtype=DOUBLE)
    found = solve_adaptive_tap(torch.ones(1, 1, dtype=DOUBLE), fields=field, beta=1.4)
    exact = one_spin(field[0].numpy() * 3**0.5, beta=1.4)
    np.testing.assert_allclose(found.value[0].numpy() * 3**0.5, exact.magnetization[0], atol=1e-12)
    assert float(found.log_partition) == pytest.approx(exact.log_partition + 3 * 1.4, abs=1e-12)
    assert abs(float(found.reaction)) < 1e-12
    # With others: the response of the theory is the variance, and weak couplings give Onsager's V.
    couplings, fields = _system()
    for scale, tolerance in ((1.0, None), (0.02, 0.02)):
        found = solve_adaptive_tap(scale * couplings, fields=fields, beta=0.8)
        pair = scale * (couplings + couplings.T).fill_diagonal_(0.0)
        width = 1 - found.value.square().sum(-1)
        inverse = torch.linalg.inv(torch.diag(0.8 * found.reaction + 1 / width) - 0.8 * pair)
        torch.testing.assert_close(inverse.diagonal(), width, rtol=1e-9, atol=0)
        if tolerance:
            onsager = 0.8 * pair.square() @ width
            torch.testing.assert_close(found.reaction, onsager, rtol=tolerance, atol=1e-9)


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
    """The implicit ones against differences with the equations solved anew; ln Z gives m."""
    couplings, fields = _system(sites=3, dim=2, strength=0.4)
    beta = torch.tensor(1.1, dtype=DOUBLE)

    def solve(couplings, fields, beta):
        found = solve_adaptive_tap(couplings, fields=fields, beta=beta, method=method)
        return found.value, found.reaction

    # One direction in the space of all three, and one combination of all outputs.
    generator = torch.Generator().manual_seed(5)
    inputs = [x.clone().requires_grad_() for x in (couplings, fields, beta)]
    ways = [torch.randn(x.shape, generator=generator, dtype=DOUBLE) for x in inputs]
    found = solve(*inputs)
    weights = [torch.randn(x.shape, generator=generator, dtype=DOUBLE) for x in found]

    def combined(values):
        return sum((w * x).sum() for w, x in zip(weights, values, strict=True))

    slopes = torch.autograd.grad(combined(found), inputs)
    along = sum((g * w).sum() for g, w in zip(slopes, ways, strict=True))
    up, down = (
        combined(solve(*(x.detach() + step * w for x, w in zip(inputs, ways, strict=True))))
        for step in (1e-5, -1e-5)
    )
    assert float(along) == pytest.approx(float(up - down) / 2e-5, rel=1e-6)
    push = torch.tensor([[0.0, 0.0], [0.3, -0.7], [0.0, 0.0]], dtype=DOUBLE)
    up, down = (
        solve_adaptive_tap(
            couplings, fields=fields + x * push, beta=beta, method=method
        ).log_partition
        for x in (1e-4, -1e-4)
    )
    slope = float((solve(couplings, fields, beta)[0] * push).sum()) * 2 * 1.1
    assert float(up - down) / 2e-4 == pytest.approx(slope, rel=1e-7)


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


def test_batches_flags_and_bad_input():
    couplings, fields = _system(sites=3, dim=2)
    cold = torch.stack([couplings, 8 * couplings])
    found = solve_adaptive_tap(cold, fields=fields, beta=0.7, max_steps=12, throw=False)
    alone = solve_adaptive_tap(couplings, fields=fields, beta=0.7, max_steps=12, throw=False)
    torch.testing.assert_close(found.value[0], alone.value, rtol=0, atol=1e-9)
    assert found.status.tolist()[1] == Status.STEP_LIMIT
    assert float(found.residual[1]) > 1e-12
    with pytest.raises(ValueError, match="beta must be"):
        solve_adaptive_tap(0.1 * torch.ones(2, 2), fields=torch.ones(2, 1), beta=0.0)
    with pytest.raises(NotConverged, match="adaptive TAP"):
        solve_adaptive_tap(8 * couplings, fields=fields, beta=0.7, max_steps=2)
    for wrong, words in (({"method": "best"}, "method"), ({"damping": 0.0}, "damping")):
        with pytest.raises(ValueError, match=words):
            solve_adaptive_tap(couplings, fields=fields, beta=0.7, **wrong)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_the_slope_of_the_gain_is_that_of_differences_on_both_sides_of_the_series(dim):
    """With β = 1/D the gain is A(κ)/κ of κ²; the series takes over below 1e-4 D."""
    square = dim * torch.tensor([1e-7, 9e-5, 1.1e-4, 1e-3, 0.05, 1.0], dtype=torch.float64)

    def gain(x):
        return alignment_gain(x, beta=torch.tensor(1.0 / dim, dtype=torch.float64), dim=dim)

    given = square.clone().requires_grad_()
    (slope,) = torch.autograd.grad(gain(given).sum(), given)
    step = 0.02 * dim * torch.ones_like(square)  # κ² < 0 is another function: forwards, 4th order
    points = [gain(square + k * step) for k in range(7)]
    weights = [-147 / 60, 6.0, -7.5, 20 / 3, -3.75, 1.2, -1 / 6]
    wanted = sum(w * p for w, p in zip(weights, points, strict=True)) / step
    torch.testing.assert_close(slope, wanted, rtol=2e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_called_found_has_the_residual_of_its_precision(dtype):
    couplings, fields = (x.to(dtype) for x in (0.3 * torch.ones(4, 4), torch.ones(4, 2)))
    limit = 1e-5 if dtype == torch.float32 else 1e-12
    residuals = []
    for steps in range(2, 16):
        found = solve_adaptive_tap(
            couplings, fields=fields, beta=0.6, method="tap", max_steps=steps, throw=False
        )
        assert bool(found.converged) == (float(found.residual) <= limit)
        residuals.append(float(found.residual))
    assert residuals[-1] <= limit
    assert any(limit < residual < 1e3 * limit for residual in residuals)
