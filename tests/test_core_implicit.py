"""Implicit derivatives of roots against closed forms, finite differences and unrolled solvers."""

import numpy as np
import pytest
import torch
from scipy.optimize import root

from spinformer.core.implicit import implicit_root


def _square(x, a):
    return x**2 - a


def test_square_root_to_third_order():
    a = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    x = implicit_root(_square, a.detach().sqrt(), a)
    (first,) = torch.autograd.grad(x.sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), a, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), a)
    for got, power, factor in ((first, -0.5, 0.5), (second, -1.5, -0.25), (third, -2.5, 0.375)):
        torch.testing.assert_close(got.detach(), factor * a.detach() ** power, rtol=1e-12, atol=0)


def _mean_field(m, couplings, fields, beta):
    return m - torch.tanh(beta * (fields + (couplings @ m[..., None])[..., 0]))


def _solved(couplings, fields, beta):
    """Naive mean field by SciPy, one sample at a time: a solver without any graph."""
    with torch.no_grad():
        samples = [
            root(
                lambda m, j=j, h=h: m - np.tanh(float(beta) * (h + j @ m)),
                np.zeros(len(h)),
                tol=1e-14,
            ).x
            for j, h in zip(couplings.numpy(), fields.numpy(), strict=True)
        ]
    return torch.tensor(np.array(samples))


@pytest.fixture
def system():
    generator = torch.Generator().manual_seed(3)
    couplings = 0.25 * torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    fields = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    beta = torch.tensor(0.9, dtype=torch.float64)
    return [x.requires_grad_() for x in (couplings, fields, beta)]


def _magnetization(couplings, fields, beta):
    found = _solved(couplings.detach(), fields.detach(), beta.detach())
    return implicit_root(_mean_field, found, couplings, fields, beta)


def test_gradients_of_mean_field_through_scipy(system):
    # Finite differences re-solve the equations; a non-symmetric J tells J from its transpose.
    assert torch.autograd.gradcheck(_magnetization, system)
    assert torch.autograd.gradgradcheck(_magnetization, system)


def test_equals_an_unrolled_iteration(system):
    m = torch.zeros(2, 4, dtype=torch.float64)
    for _ in range(200):
        m = m - _mean_field(m, *system)
    unrolled = torch.autograd.grad(m.square().sum(), system)
    implicit = torch.autograd.grad(_magnetization(*system).square().sum(), system)
    for got, want in zip(implicit, unrolled, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


def test_bifurcation_is_an_error_and_bad_input_is_named():
    a = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(torch.linalg.LinAlgError):
        implicit_root(_square, torch.zeros(1, dtype=torch.float64), a).sum().backward()
    with pytest.raises(ValueError, match="residual must return the shape"):
        implicit_root(lambda x, a: x.sum(), torch.ones(2), a)
    with pytest.raises(TypeError, match="solution"):
        implicit_root(_square, [1.0], a)
    with pytest.raises(TypeError, match=r"parameters\[0\]"):
        implicit_root(_square, torch.ones(1), 1.0)
