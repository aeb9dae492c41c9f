"""The mean-field fixed point: residuals recomputed, honest flags, batches, derivatives."""

import pytest
import torch

from spinformer.core.solve import NotConverged, Status
from spinformer.spins.large_d import log_partition
from spinformer.spins.solvers import solve_fixed_point

DOUBLE = torch.float64


def _system(*batch, sites=4, dim=3, strength=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    couplings = strength * torch.randn(*batch, sites, sites, generator=generator, dtype=DOUBLE)
    return couplings, torch.randn(*batch, sites, dim, generator=generator, dtype=DOUBLE)


def _right_hand_side(m, couplings, fields, beta, order):
    """The mean-field equations by loops over spins, no shared code."""
    answer = torch.zeros_like(m)
    for i in range(len(m)):
        theta = fields[i].clone()
        for j in range(len(m)):
            if j != i:
                bond = couplings[i, j] + couplings[j, i]
                theta += bond * m[j]
                if order == 2:
                    theta -= beta * m[i] * bond**2 * (1 - m[j] @ m[j])
        answer[i] = 2 * beta * theta / (1 + (1 + 4 * beta**2 * theta @ theta) ** 0.5)
    return answer


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-11])
def test_the_residual_is_what_the_equations_leave(order, tolerance):
    couplings, fields = _system()
    found = solve_fixed_point(couplings, fields=fields, beta=0.8, order=order, tolerance=tolerance)
    left = _right_hand_side(found.value, couplings, fields, 0.8, order) - found.value
    residual = float(left.norm()) / 2
    assert abs(residual - float(found.residual)) < 1e-14
    assert residual <= tolerance
    # Not solved much better than asked: the rule that stops is the tolerance.
    assert residual > 1e-5 * tolerance
    assert int(found.status) == Status.CONVERGED


@pytest.mark.parametrize("order", [1, 2])
def test_the_fixed_point_makes_ln_z_stationary(order):
    """∂(ln Z/D)/∂m = 0, by autograd through a function that the solver does not use."""
    couplings, fields = _system()
    beta = torch.tensor(0.8, dtype=DOUBLE)
    m = solve_fixed_point(couplings, fields=fields, beta=beta, order=order).value.requires_grad_()
    value = log_partition(m, couplings=couplings, fields=fields, beta=beta, order=order)
    (slope,) = torch.autograd.grad(value, m)
    assert slope.abs().max() < 1e-11
    # The diagonal is a constant of the energy and nothing else.
    lifted = couplings + 0.7 * torch.eye(4, dtype=DOUBLE)
    other = log_partition(m, couplings=lifted, fields=fields, beta=beta, order=order)
    assert abs(float((other - value).detach()) - 0.8 * 0.7 * 4) < 1e-12


def test_a_step_limit_is_said_per_system():
    couplings, fields = _system(3)
    couplings[1] = 0.0
    options = {"fields": fields, "beta": 2.0, "max_steps": 3}
    found = solve_fixed_point(couplings, throw=False, **options)
    assert found.converged.tolist() == [False, True, False]
    assert found.count(Status.STEP_LIMIT) == 2
    assert (found.residual[[0, 2]] > 1e-12).all()
    with pytest.raises(NotConverged, match=r"fixed point .* not found for 2 of 3 .*step limit: 2"):
        solve_fixed_point(couplings, **options)


def test_batches_broadcast():
    """One system in one field or many, temperatures along a batch axis: as one by one."""
    couplings, beta = _system()[0], torch.tensor([0.2, 0.5, 0.9], dtype=DOUBLE)
    for fields in (_system(3)[1], _system()[1]):
        together = solve_fixed_point(couplings, fields=fields, beta=beta).value
        assert together.shape == (3, 4, 3)
        for one, field, b in zip(together, fields.expand(3, 4, 3), beta, strict=True):
            alone = solve_fixed_point(couplings, fields=field, beta=float(b)).value
            torch.testing.assert_close(one, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_once_and_twice(order):
    couplings, fields = (x.requires_grad_() for x in _system(2, sites=3, dim=2))
    beta = torch.rand(2, dtype=DOUBLE).requires_grad_()

    def solved(couplings, fields, beta):
        found = solve_fixed_point(
            couplings, fields=fields, beta=0.5 + beta, order=order, tolerance=1e-14
        )
        return found.value

    assert torch.autograd.gradcheck(solved, (couplings, fields, beta), fast_mode=True)
    assert torch.autograd.gradgradcheck(solved, (couplings, fields, beta), fast_mode=True)


@pytest.mark.parametrize(("size", "beta"), [(1e30, 1.0), (1.0, 1e30)])
def test_what_leaves_the_range_is_refused(size, beta):
    with pytest.raises(ValueError, match="in range"):
        solve_fixed_point(torch.full((3, 3), size), fields=torch.ones(3, 2), beta=beta)


@pytest.mark.parametrize("strength", [3.0, 30.0])
def test_no_spin_is_longer_than_one_where_the_iteration_does_not_arrive(strength):
    """Extrapolation by Anderson leaves the unit ball; the last step of the equations comes back."""
    couplings, fields = _system(20, sites=12, strength=strength)
    found = solve_fixed_point(couplings, fields=fields, beta=1.0, max_steps=60, throw=False)
    assert not found.converged.all()
    assert found.value.norm(dim=-1).max() < 1
    left = [
        (_right_hand_side(m, j, h, 1.0, 2) - m).norm() / 12**0.5
        for m, j, h in zip(found.value, couplings, fields, strict=True)
    ]
    torch.testing.assert_close(found.residual, torch.stack(left), rtol=1e-6, atol=1e-9)
