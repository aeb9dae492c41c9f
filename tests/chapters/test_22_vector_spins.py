"""Adaptive TAP for vector spins: its limits, exact systems, simulation, derivatives, flags."""

import numpy as np
import pytest
import torch

from compendium.c22_vector_spins.study import (
    METHODS,
    reaction,
    solve_adaptive_tap,
)
from compendium.common.exact_spins import three_spins, two_spins
from spinformer.core.solve import NotConverged, Status
from spinformer.core.special import mean_alignment
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.solvers import vector_spins

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
    np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 4.0, rtol=0.1)
    assert gaps[-1] < 3e-3


def free_mean(fields, *, beta):
    """Of u, exactly: along the field, as long as Bessel functions say."""
    length, dim = np.linalg.norm(fields, axis=-1, keepdims=True), fields.shape[-1]
    return mean_alignment(beta * dim * length, dim=dim) * fields / length


def test_one_spin_and_what_the_reaction_is():
    field = torch.tensor([[0.3, -0.8, 0.5]], dtype=DOUBLE)
    found = solve_adaptive_tap(torch.ones(1, 1, dtype=DOUBLE), fields=field, beta=1.4)
    np.testing.assert_allclose(found.value, free_mean(field.numpy(), beta=1.4), atol=1e-12)
    # With others: the response of the theory is the variance, and weak couplings give Onsager's V;
    # each spin answers its field less what it is held back.
    couplings, fields = _system()
    beta = torch.tensor(0.8, dtype=DOUBLE)
    for scale in (1.0, 0.02):
        mean = solve_adaptive_tap(scale * couplings, fields=fields, beta=beta).value
        pair = scale * (couplings + couplings.T).fill_diagonal_(0.0)
        held, width = reaction(mean, pair, beta, "adaptive"), 1 - mean.square().sum(-1)
        inverse = torch.linalg.inv(torch.diag(0.8 * held + 1 / width) - 0.8 * pair)
        torch.testing.assert_close(inverse.diagonal(), width, rtol=1e-9, atol=0)
        theta = fields + pair @ mean - held[:, None] * mean
        np.testing.assert_allclose(mean, free_mean(theta.numpy(), beta=0.8), atol=1e-10)
    torch.testing.assert_close(held, 0.8 * pair.square() @ width, rtol=0.02, atol=1e-9)


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
    adaptive = rms.pop("adaptive")
    assert adaptive < min(0.8 * min(rms.values()), 0.05 / dim)


@pytest.mark.parametrize(("method", "dim"), [("tap", 2), ("adaptive", 1), ("adaptive", 3)])
def test_first_and_second_derivatives(method, dim):
    """The implicit ones against differences with the equations solved anew."""
    couplings, fields = _system(sites=2, dim=dim, strength=0.4)
    inputs = (couplings, fields, torch.tensor(1.1, dtype=DOUBLE))

    def solve(couplings, fields, beta):
        return solve_adaptive_tap(couplings, fields=fields, beta=beta, method=method).value

    given = [x.clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(solve, given, eps=1e-5, atol=1e-8, rtol=1e-6)
    assert torch.autograd.gradgradcheck(
        solve, given, eps=1e-5, atol=1e-7, rtol=1e-5, fast_mode=True
    )


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_batches_flags_and_bad_input(dtype, limit):
    couplings, fields = (x.to(dtype) for x in _system(sites=3, dim=2))
    given = {"fields": fields, "beta": 0.7, "method": "tap"}
    cold = torch.stack([couplings, 30 * couplings])
    found = solve_adaptive_tap(cold, **given, throw=False)
    alone = solve_adaptive_tap(couplings, **given)
    torch.testing.assert_close(found.value[0], alone.value, rtol=0, atol=1e3 * limit)
    assert found.status.tolist() == [Status.CONVERGED, Status.STEP_LIMIT]
    assert float(found.residual[0]) <= limit < 1e-3 < float(found.residual[1])
    with pytest.raises(NotConverged, match="adaptive TAP"):
        solve_adaptive_tap(cold, **given)
    with pytest.raises(ValueError, match="method"):
        solve_adaptive_tap(couplings, **given | {"method": "best"})
