"""Derivatives of a root that a solver has found, by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_function, check_tensor
from spinformer.core.operators import derivative_levels, is_forward_mode

# In plain operations: to which order derivatives are right at least.
_PLAIN_ORDER = 3


def implicit_root(
    residual: Callable[..., Any], solution: Tensor, *parameters: Tensor, jacobian: bool = False
) -> Tensor:
    r"""Derivative of the root of an equation by the implicit function theorem.

    The value is that of `solution`, which some solver has found. The result is differentiable any
    number of times in the parameters, and under `torch.vmap`. For a fixed point x = f(x) pass the
    residual x − f(x).

    Parameters
    ----------
    residual : callable
        The function g(x, *parameters), made of torch operations that `torch.func` can
        differentiate. It returns the shape of x, and samples along leading axes must not mix. With
        `jacobian` it returns g and ∂g/∂x, the latter of shape (..., n, n).
    solution : Tensor, shape (..., n)
        A root for the given parameters. This is not checked, and an inexact root gives a
        derivative that is inexact by as much.
    *parameters : Tensor
        Floating-point tensors on which the root depends.
    jacobian : bool, default False
        Whether `residual` returns its Jacobian as well. Nothing is checked or refused then, and
        first derivatives work under a compiler, too.

    Returns
    -------
    Tensor, shape (..., n)
        The root, with its derivatives.

    Raises
    ------
    TypeError
        If `residual` cannot be called or an argument is not a floating-point tensor.
    ValueError
        If `residual` returns another shape, or a value is not finite.
    torch.linalg.LinAlgError
        On backward, if ∂g/∂x is singular, as at a bifurcation.

    Notes
    -----
    If g(x, θ) = 0 defines x(θ), then

    .. math::

        \frac{dx}{d\theta} = -\left(\frac{\partial g}{\partial x}\right)^{-1} \frac{\partial
        g}{\partial \theta}.

    The Jacobian is dense, built by one backward pass for each component, and the system is solved
    directly. This is meant for up to some hundred unknowns in a sample.

    Examples
    --------
    >>> square = torch.tensor([4.0], requires_grad=True)
    >>> root = implicit_root(lambda x, a: x * x - a, torch.tensor([2.0]), square)
    >>> root.sum().backward()
    >>> float(square.grad)
    0.25
    """
    if not jacobian:
        _check(residual, solution, parameters)
        if _is_plain():
            return _newton_steps(_with_jacobian(residual), solution, parameters, count=_order())
        return _Root.apply(solution.detach(), _with_jacobian(residual), True, *parameters)
    if torch.compiler.is_compiling():
        return _newton_steps(residual, solution, parameters, count=1)
    if _is_plain():
        return _newton_steps(residual, solution, parameters, count=_order())
    return _Root.apply(solution.detach(), residual, False, *parameters)


def _is_plain() -> bool:
    """Whether a transform asks for plain operations.

    Forward mode has no rule for `_Root`. Nested `jacrev` and `vjp` call the backward passes of
    inner transforms after these have ended, in which torch allows no transform of our own.
    """
    return is_forward_mode() or derivative_levels() > 1


def _order() -> int:
    return max(_PLAIN_ORDER, derivative_levels())


def _newton_steps(
    equations: Callable[..., Any], solution: Tensor, parameters: tuple[Tensor, ...], *, count: int
) -> Tensor:
    """Newton's steps at the root, in plain operations: they change no value, and each of them makes
    the derivatives of one more order right."""
    root = solution.detach()
    for _ in range(count):
        value, slope = equations(root, *parameters)
        step = torch.linalg.solve_ex(slope.detach(), value.unsqueeze(-1)).result.squeeze(-1)
        root = root - (step - step.detach())
    return root


@torch.no_grad()
def _check(residual: Any, solution: Tensor, parameters: tuple[Tensor, ...]) -> None:
    check_function("residual", residual)
    wanted = tuple(check_tensor("solution", solution, shape=(..., None)).shape)
    for index, parameter in enumerate(parameters):
        check_tensor(f"parameters[{index}]", parameter)
    value = residual(solution, *parameters)
    check_tensor("residual", value, like=("solution", solution))
    if tuple(value.shape) != wanted:
        shape = tuple(value.shape)
        raise ValueError(f"residual must return the shape of solution, {wanted}, got {shape}")


def _with_jacobian(residual: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def equations(root: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        found: Any = torch.func.vjp(lambda x: residual(x, *parameters), root)
        value, pull = found
        units = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
        return value, torch.stack([pull(unit.expand_as(root))[0] for unit in units], dim=-2)

    return equations


class _Root(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        root: Tensor, equations: Callable[..., Any], strict: bool, *parameters: Tensor
    ) -> Tensor:
        return root.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.equations, ctx.strict, *parameters = inputs
        # The root itself is saved: its own node supplies what second derivatives need.
        ctx.save_for_backward(output, *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        root, *parameters = ctx.saved_tensors
        found: Any = torch.func.vjp(
            lambda *given: ctx.equations(root, *given), *parameters, has_aux=True
        )
        _, pull, jacobian = found
        right = grad.unsqueeze(-1)
        solved = torch.linalg.solve_ex(jacobian.mT, right, check_errors=ctx.strict)
        return None, None, None, *pull(-solved.result.squeeze(-1))
