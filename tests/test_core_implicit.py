"""Implicit derivatives of roots against closed forms, finite differences and unrolled solvers."""

import numpy as np
import pytest
import torch
from scipy.optimize import root

from spinformer.core.implicit import implicit_root


def test_square_root_to_third_order():
    a = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    x = implicit_root(lambda x, a: x**2 - a, a.detach().sqrt(), a)
    (first,) = torch.autograd.grad(x.sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), a, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), a)
    for got, power, factor in ((first, -0.5, 0.5), (second, -1.5, -0.25), (third, -2.5, 0.375)):
        torch.testing.assert_close(got.detach(), factor * a.detach() ** power, rtol=1e-12, atol=0)


def _mean_field(m, couplings, fields, beta):
    return m - torch.tanh(beta * (fields + (couplings @ m[..., None])[..., 0]))


def _magnetization(couplings, fields, beta):
    """Naive mean field by SciPy, one sample at a time: a solver without any graph."""
    given = zip(couplings.detach().numpy(), fields.detach().numpy(), strict=True)
    found = [
        root(lambda m, j=j, h=h: m - np.tanh(beta.item() * (h + j @ m)), 0 * h, tol=1e-14).x
        for j, h in given
    ]
    return implicit_root(_mean_field, torch.tensor(np.array(found)), couplings, fields, beta)


def test_gradients_of_mean_field_through_scipy():
    # Finite differences re-solve the equations; a non-symmetric J tells J from its transpose.
    generator = torch.Generator().manual_seed(3)
    couplings = 0.25 * torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    fields = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    system = [couplings, fields, torch.tensor(0.9, dtype=torch.float64)]
    for parameter in system:
        parameter.requires_grad_()
    assert torch.autograd.gradcheck(_magnetization, system)
    assert torch.autograd.gradgradcheck(_magnetization, system)


def test_only_the_parameters_that_ask_get_a_gradient():
    a, unused, fixed, root = torch.tensor([[2.0], [1.0], [3.0], [6.0]]).double()
    a.requires_grad_()
    unused.requires_grad_()
    implicit_root(lambda x, a, f, u: x - a * f, root, a, fixed, unused).sum().backward()
    assert (a.grad.item(), unused.grad or 0.0, fixed.grad, root.grad) == (3.0, 0.0, None, None)


def test_an_inexact_root_is_wrong_by_as_much_and_a_fold_is_refused():
    a = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    off = implicit_root(lambda x, a: x * x - a, torch.tensor([2.1], dtype=torch.float64), a)
    off.sum().backward()
    assert a.grad.item() == pytest.approx(1 / 4.2)  # 1/(2x) at the point given, not at the root
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    fold = implicit_root(lambda x, a: x * x - a, torch.zeros(1, dtype=torch.float64), zero)
    with pytest.raises(torch.linalg.LinAlgError):
        fold.sum().backward()


@pytest.mark.parametrize(
    ("residual", "solution", "parameter", "error", "told"),
    [
        (torch.sub, torch.tensor(1.0), torch.tensor(1.0), ValueError, "solution"),
        (lambda x, a: x.sum() - a, torch.ones(2), torch.ones(1), ValueError, "residual must"),
        (torch.sub, torch.full((1,), np.nan), torch.ones(1), ValueError, "solution"),
        (torch.sub, torch.ones(1), torch.ones(1).int(), TypeError, r"parameters\[0"),
        (lambda x, a: x * np.nan, torch.ones(1), torch.ones(1), ValueError, "residual must be fin"),
        (lambda x, a: x + 0j, torch.ones(1), torch.ones(1), TypeError, "residual must be"),
        (lambda x, a: x.double(), torch.ones(1), torch.ones(1), TypeError, "residual must be"),
    ],
)
def test_bad_input_names_the_argument(residual, solution, parameter, error, told):
    with pytest.raises(error, match=told):
        implicit_root(residual, solution, parameter)


def test_forward_mode_has_the_same_derivatives_to_third_order():
    """Of √a; in nested transforms, in either order, and with dual numbers."""
    start = torch.tensor([4.0, 9.0], dtype=torch.float64)

    def total(a):
        return implicit_root(lambda x, a: x * x - a, a.detach().sqrt(), a).sum()

    forward, reverse = torch.func.jacfwd, torch.func.jacrev
    torch.testing.assert_close(forward(total)(start), 0.5 * start**-0.5)
    for second in (forward(forward(total)), forward(reverse(total)), reverse(forward(total))):
        torch.testing.assert_close(second(start).diagonal(), -0.25 * start**-1.5)
    third = forward(forward(forward(total)))(start)
    torch.testing.assert_close(third[0, 0, 0], 0.375 * start[0] ** -2.5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(start, torch.ones_like(start))
        pushed = torch.autograd.forward_ad.unpack_dual(total(dual)).tangent
    torch.testing.assert_close(pushed, (0.5 * start**-0.5).sum())


def test_nested_reverse_transforms_have_the_same_derivatives():
    """Of √a: torch ends the inner transform before its backward pass runs."""
    start = torch.tensor([4.0, 9.0], dtype=torch.float64)

    def total(a):
        return implicit_root(lambda x, a: x * x - a, a.detach().sqrt(), a).sum()

    reverse, grad = torch.func.jacrev, torch.func.grad
    for second in (reverse(reverse(total)), reverse(grad(total))):
        torch.testing.assert_close(second(start).diagonal(), -0.25 * start**-1.5)
    third = reverse(reverse(reverse(total)))(start)
    torch.testing.assert_close(third[0, 0, 0], 0.375 * start[0] ** -2.5)
    fourth = reverse(reverse(reverse(reverse(total))))(start)
    torch.testing.assert_close(fourth[0, 0, 0, 0], -0.9375 * start[0] ** -3.5)
