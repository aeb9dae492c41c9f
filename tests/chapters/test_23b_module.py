"""Chapter 23b: the distance of a module from its saddle point, and the module of the open cells."""

import pytest
import torch
from open_cells import run_open_cells

from compendium.c23_anatomy.study import draw_tokens
from compendium.c23b_module import study
from spinformer.spins.module import Solver, SpinTransformerModule


def test_the_distance_of_a_module_from_the_saddle():
    torch.manual_seed(0)
    options = {"heads": 2, "coupling_strength": 0.3, "dtype": torch.float64}
    module = SpinTransformerModule(8, solver=Solver(max_steps=300), **options)
    exact = SpinTransformerModule(8, solver="saddle", **options)
    exact.load_state_dict(module.state_dict())
    with torch.no_grad():
        for one in (module, exact):
            one.log_beta += torch.tensor([0.0, 0.7])
    inputs = draw_tokens(2, sites=5, dim=8, seed=3)
    distance, converged = study.distance_to_saddle(module, inputs)
    with torch.no_grad():
        found = module(inputs, return_parts=True)[1].spins
        truth = exact(inputs, return_parts=True)[1].spins
    assert distance == pytest.approx(float((found - truth).norm() / truth.norm()), rel=1e-9)
    assert 1e-4 < distance < 0.1
    assert converged
    module.solver = Solver(max_steps=2)
    assert not study.distance_to_saddle(module, inputs)[1]


def test_the_open_cells_are_the_module():
    """The layer of the chapter and the package's, with the same maps, at the fixed point."""
    cells = run_open_cells("23b_module")
    layer = cells["layer"]
    module = SpinTransformerModule(
        16,
        heads=1,
        solver=Solver(steps=None, order=2),
        coupling_strength=layer.g,
        response=False,
        dtype=torch.float64,
    )
    with torch.no_grad():
        module.query.copy_(layer.maps[0])
        module.key.copy_(layer.maps[1])
        wanted = module(cells["eight_tokens"][None])[0] / 4
    torch.testing.assert_close(cells["settled"], wanted, rtol=0, atol=1e-8)
    assert cells["one_step_distance"][0.1] < 0.2 * cells["one_step_distance"][0.6]


def test_naive_steps_contract_by_the_largest_eigenvalue_and_may_oscillate_above_one():
    """The response of a spin is steepest at zero, with slope β = 1, so that c is at most ‖B‖."""
    aligned = run_open_cells("23b_module")["aligned"]
    source = torch.Generator().manual_seed(0)
    tokens = torch.randn(8, 6, generator=source, dtype=torch.float64)
    square = torch.randn(8, 8, generator=source, dtype=torch.float64)
    couplings = (square + square.T).fill_diagonal_(0.0)
    couplings = 0.5 * couplings / torch.linalg.matrix_norm(couplings, 2)

    assert aligned(1e-6 * tokens) == pytest.approx(1e-6 * tokens, rel=1e-6)
    path = [aligned(tokens)]
    for _ in range(60):
        path.append(aligned(tokens + couplings @ path[-1]))
    distances = torch.stack([(means - path[-1]).norm() for means in path[:21]])
    bound = distances[0] * 0.5 ** torch.arange(21, dtype=torch.float64)
    assert (distances <= bound + 1e-13).all()

    opposed = 2.5 * (torch.eye(8, dtype=torch.float64) - 1)
    means = aligned(0.1 * tokens)
    for _ in range(401):
        before = means
        means = aligned(0.1 * tokens + opposed @ means)
    assert (means - before).norm() > means.norm()
