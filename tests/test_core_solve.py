import numpy as np
import pytest
import torch

from spinformer.core.anderson import anderson
from spinformer.core.solve import NotConverged, Solution, Status, status_of


def solution(status, residual):
    return Solution(value=None, residual=residual, steps=3, status=status)


def test_flag_and_count_follow_the_status_for_numbers_arrays_and_tensors():
    for zero in (Status.CONVERGED, np.int64(0), torch.tensor(0)):
        one = solution(zero, 0.0)
        assert one.converged
        assert one.count(Status.CONVERGED) == 1
    for make in (np.array, torch.tensor):
        many = solution(make([0, 1, 4, 1]), make([0.0, 1.0, 2.0, 3.0]))
        assert list(many.converged) == [True, False, False, False]
        assert [many.count(status) for status in Status] == [1, 2, 0, 0, 1]
        assert status_of(make([True, False])).tolist() == [0, 1]
    assert not solution(Status.CYCLE, 0.0).converged
    assert (status_of(True), status_of(False)) == (Status.CONVERGED, Status.STEP_LIMIT)


def test_require_raises_unless_all_converged_and_says_what_and_why():
    solution(Status.CONVERGED, 0.0).require("x")
    with pytest.raises(NotConverged, match=r"the root was not found \(stalled after 3 steps\)"):
        solution(Status.STALLED, 0.5).require("the root")
    for make in (np.array, torch.tensor):
        solution(make([[0, 0]]), make([[0.0, 0.0]])).require("x")
        with pytest.raises(NotConverged, match=r"largest residual is 7\.5") as raised:
            solution(make([1, 0, 4, 1]), make([0.25, 0.0, 7.5, 1.0])).require("the saddle point")
        told = "the saddle point was not found for 3 of 4 systems (step limit: 2, diverged: 1)"
        assert told in str(raised.value)
    with pytest.raises(NotConverged, match="largest residual is nan"):
        solution(np.array([4]), np.array([np.nan])).require("x")


def linear_case(seed, size, radius):
    """Systems x = M x + b whose M has the given spectral radius: plain repetition may fail."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((3, size, size))
    maps *= radius / np.abs(np.linalg.eigvals(maps)).max(axis=1)[:, None, None]
    shifts = rng.standard_normal((3, size))
    exact = np.linalg.solve(np.eye(size) - maps, shifts[..., None])[..., 0]
    maps, shifts = torch.tensor(maps), torch.tensor(shifts)
    return lambda x: (maps @ x.flatten(-2)[..., None])[..., 0].add(shifts).view_as(x), exact


@pytest.mark.parametrize("radius", [0.9, 1.5])
@pytest.mark.parametrize("damping", [0.4, 1.0])
def test_anderson_finds_the_dense_solution_where_repetition_is_slow_or_fails(radius, damping):
    step, exact = linear_case(0, 6, radius)
    start = torch.zeros(3, 3, 2, dtype=torch.float64)
    found = anderson(step, start, damping=damping, tolerance=1e-11, max_steps=200)
    assert found.converged.all()
    np.testing.assert_allclose(found.value.flatten(1).numpy(), exact, rtol=0, atol=1e-8)
    gap = (step(found.value) - found.value).flatten(1).norm(dim=1) / 3**0.5
    np.testing.assert_allclose(found.residual, gap, rtol=1e-6, atol=1e-15)
    # Six dimensions and six remembered steps: about as many steps as dimensions, not 10/(1 - ρ).
    assert int(found.steps.max()) < 60


def test_anderson_stops_at_the_limit_and_says_so():
    step, _ = linear_case(1, 6, 0.9)
    start = torch.zeros(3, 6, 1, dtype=torch.float64)
    for limit in (1, 2, 5):
        found = anderson(step, start, tolerance=1e-11, max_steps=limit)
        assert (found.steps == limit).all()
        assert (found.status == Status.STEP_LIMIT).all()
        # The residual belongs to the point that is returned.
        gap = (step(found.value) - found.value).flatten(1).norm(dim=1) / 6**0.5
        np.testing.assert_allclose(found.residual, gap, rtol=1e-12)
        # The flag turns exactly where the residual meets the tolerance.
        largest = float(found.residual.max())
        for factor, solved in ((0.999, False), (1.001, True)):
            edge = anderson(step, start, tolerance=factor * largest, max_steps=limit)
            assert bool(edge.converged.all()) == solved


def test_anderson_does_not_call_what_has_no_solution_solved():
    start = torch.zeros(1, 1).double()
    found = anderson(lambda x: x * x + 1.0, start, tolerance=1e-9, max_steps=80)
    assert not found.converged
    assert found.residual.item() >= 0.75 - 1e-12  # x² − x + 1 is nowhere below 3/4


def test_anderson_keeps_systems_apart():
    def step(x):
        bad = x.clone()
        bad[1] = float("nan")
        return torch.where(torch.arange(3).view(3, 1, 1) == 1, bad, torch.cos(x))

    start = torch.tensor([0.0, 0.0, 5.0], dtype=torch.float64).view(3, 1, 1)
    found = anderson(step, start, tolerance=1e-12, max_steps=60)
    assert found.status.tolist() == [Status.CONVERGED, Status.DIVERGED, Status.CONVERGED]
    alone = anderson(torch.cos, start[:1], tolerance=1e-12, max_steps=60)
    assert torch.equal(found.value[0], alone.value[0])
    assert found.value[2].item() == pytest.approx(0.7390851332151607, abs=1e-11)


def test_anderson_forgets_where_the_residual_grew_threefold():
    """Residuals by a script: after a jump the next point is a plain damped step."""
    residuals = torch.tensor([[1.0, 0.2], [0.5, 0.3], [0.4, -0.2], [5.0, 1.0], [0.3, 0.1]])
    seen = []

    def step(x):
        seen.append(x.clone())
        return x + residuals[len(seen) - 1].view(1, 1, 2)

    anderson(step, torch.zeros(1, 1, 2), damping=0.5, tolerance=1e-6, max_steps=5)
    plain = [x + 0.5 * residuals[i] for i, x in enumerate(seen)]
    assert torch.allclose(seen[4], plain[3])
    assert not torch.allclose(seen[3], plain[2])


def test_anderson_refuses_a_step_that_changes_its_argument():
    """Its answer would be the same array, and the residual zero."""
    with pytest.raises(ValueError, match="step must leave its argument"):
        anderson(lambda x: x.mul_(0.5).add_(1), torch.zeros(1, 1), tolerance=1e-6, max_steps=50)


@pytest.mark.parametrize(
    "step", [lambda x: x[:1], lambda x: x[..., 0], lambda x: x.float(), lambda x: x + 0j, list]
)
def test_anderson_refuses_a_step_of_another_shape_or_type(step):
    with pytest.raises(ValueError, match="step must return what start is"):
        anderson(step, torch.zeros(2, 3, 1).double(), tolerance=1e-6, max_steps=5)
