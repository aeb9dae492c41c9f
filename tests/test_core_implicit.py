import numpy as np
import pytest
import torch

from spinformer.core.implicit import implicit_root


def test_quadratic_root_has_its_closed_derivatives_of_two_orders():
    # x² + b x + c = 0, larger root.
    b = torch.tensor([[0.5], [-3.0]], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([[-2.0], [1.0]], dtype=torch.float64, requires_grad=True)

    def root(b, c):
        return (-b + (b * b - 4 * c).sqrt()) / 2

    x = implicit_root(lambda x, b, c: x * x + b * x + c, root(b, c).detach(), b, c)
    expected = torch.autograd.grad(root(b, c).sum(), (b, c), create_graph=True)
    found = torch.autograd.grad(x.sum(), (b, c), create_graph=True)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)
        for parameter in (b, c):
            (second,) = torch.autograd.grad(got.sum(), parameter, retain_graph=True)
            (target,) = torch.autograd.grad(wanted.sum(), parameter, retain_graph=True)
            torch.testing.assert_close(second, target, rtol=1e-11, atol=1e-13)


def test_linear_systems_have_the_derivatives_of_a_dense_solve():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 3, 3, dtype=torch.float64, generator=generator)
    matrix += 3.0 * torch.eye(3, dtype=torch.float64)  # well conditioned, not symmetric
    shift = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    weight = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    matrix.requires_grad_(True)
    shift.requires_grad_(True)

    def residual(x, matrix, shift):
        return (matrix @ x[..., None])[..., 0] - shift

    direct = torch.linalg.solve(matrix, shift[..., None])[..., 0]
    x = implicit_root(residual, direct.detach(), matrix, shift)
    torch.testing.assert_close(x, direct, rtol=0, atol=0)
    found = torch.autograd.grad((weight * x).sum(), (matrix, shift))
    wanted = torch.autograd.grad((weight * direct).sum(), (matrix, shift))
    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-13)


def test_only_the_parameters_that_ask_get_a_gradient():
    a = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    fixed = torch.tensor([3.0], dtype=torch.float64)
    unused = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    root = torch.tensor([6.0], dtype=torch.float64)
    x = implicit_root(lambda x, a, f, u: x - a * f, root, a, fixed, unused)
    x.sum().backward()
    assert a.grad.item() == pytest.approx(3.0)
    assert fixed.grad is None
    assert unused.grad is None or unused.grad.item() == 0.0
    assert root.grad is None


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
        (lambda x, a: x - a, torch.tensor(1.0), torch.tensor(1.0), ValueError, "solution"),
        (lambda x, a: x.sum() - a, torch.ones(2), torch.ones(1), ValueError, "residual must"),
        (lambda x, a: x - a, torch.full((1,), np.nan), torch.ones(1), ValueError, "solution"),
        (lambda x, a: x - a, torch.ones(1), torch.full((1,), np.inf), ValueError, r"parameters\[0"),
        (lambda x, a: x - a, torch.ones(1), torch.ones(1).int(), TypeError, r"parameters\[0"),
        (lambda x, a: x - a, np.ones(1), torch.ones(1), TypeError, "solution"),
    ],
)
def test_bad_input_names_the_argument(residual, solution, parameter, error, told):
    with pytest.raises(error, match=told):
        implicit_root(residual, solution, parameter)
