"""Derivatives of a root that some solver found, by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_function, check_tensor

Residual = Callable[..., Tensor]


def implicit_root(residual: Residual, solution: Tensor, *parameters: Tensor) -> Tensor:
    """`solution` again, but with the derivatives of the root of `residual`.

    If g(x, θ) = 0 defines x(θ), then dx/dθ = −(∂g/∂x)⁻¹ ∂g/∂θ, whatever the solver did to get
    there: SciPy, Numba or torch, with or without a graph. The Jacobian is built densely, one
    backward pass a component, and solved directly: the plain tool for up to some hundred unknowns
    a sample.

    residual: g(x, *parameters), shape of x, made of differentiable torch operations; samples
    along leading axes must not mix. solution: (..., n), a root for the given parameters (not
    checked: an inexact root gives a derivative inexact by as much). parameters: floating-point
    tensors. The result is differentiable any number of times in the parameters. For a fixed
    point x = f(x) pass x - f(x). Raises ValueError if the residual has another shape;
    torch.linalg.LinAlgError on backward where ∂g/∂x is singular, as at a bifurcation.

    >>> square = torch.tensor([4.0], requires_grad=True)
    >>> root = implicit_root(lambda x, a: x * x - a, torch.tensor([2.0]), square)
    >>> root.sum().backward()
    >>> float(square.grad)
    0.25
    """
    check_function("residual", residual)
    solution = check_tensor("solution", solution)
    if solution.ndim < 1:
        raise ValueError("solution must have shape (..., n), got a scalar")
    for index, parameter in enumerate(parameters):
        check_tensor(f"parameters[{index}]", parameter)
    with torch.no_grad():
        shape = residual(solution, *parameters).shape
    if shape != solution.shape:
        raise ValueError(
            f"residual must return the shape of solution, {tuple(solution.shape)}, "
            f"got {tuple(shape)}"
        )
    return _Root.apply(residual, solution.detach(), *parameters)


class _Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Residual, solution: Tensor, *parameters: Tensor) -> Tensor:
        ctx.residual = residual
        root = solution.clone()
        ctx.save_for_backward(root, *parameters)
        return root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        # Fresh views keep the partial derivatives apart from the dependence of the root on the
        # parameters, which its own node supplies when this pass is differentiated again.
        fresh = (lambda x: x.view_as(x)) if again else (lambda x: x.detach())
        with torch.enable_grad():
            root, *parameters = (
                x if x.requires_grad else x.requires_grad_()
                for x in (fresh(saved) for saved in ctx.saved_tensors)
            )
            value = ctx.residual(root, *parameters)
            rows = [
                torch.autograd.grad(
                    value[..., i].sum(), root, create_graph=again, retain_graph=True
                )
                for i in range(root.shape[-1])
            ]
            jacobian = torch.stack([row for (row,) in rows], dim=-2)
            adjoint = torch.linalg.solve(jacobian.mT, grad[..., None])[..., 0]
            grads = torch.autograd.grad(
                value, parameters, -adjoint, create_graph=again, allow_unused=True
            )
        return None, None, *grads
