"""Iterations as custom operators of torch, which compilers and transforms need not look into.

An iteration that stops when it has converged depends on values, which `torch.compile`,
`torch.export` and `torch.vmap` cannot follow. As a custom operator it is a single node for them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def iteration_operator(name: str, *, axes: Sequence[int]) -> Callable[[Callable[..., Any]], Any]:
    """Registration of an iteration as a custom operator of torch, with a rule for `torch.vmap`.

    An iteration that stops when it has converged depends on values, which compilers cannot follow.
    As a custom operator it is a single node for them.

    Parameters
    ----------
    name : str
        Name of the operator, `spinformer::name`.
    axes : sequence of int
        For each tensor argument, the number of its last axes that belong to one system.

    Returns
    -------
    callable
        A decorator. The function that it takes has tensors first, whose leading axes are a batch
        and broadcast, and then numbers. It has no gradient and returns new tensors of the common
        batch. Its `register_fake` is left to the caller.

    Examples
    --------
    >>> @iteration_operator("example_halve", axes=(1,))
    ... def halve(values: torch.Tensor, times: int) -> torch.Tensor:
    ...     return values / 2**times
    >>> _ = halve.register_fake(lambda values, times: torch.empty_like(values))
    >>> torch.vmap(lambda x: halve(x, 1))(torch.ones(2, 3, 1)).shape
    torch.Size([2, 3, 1])
    """

    def register(function: Callable[..., Any]) -> Any:
        operator = torch.library.custom_op(f"spinformer::{name}", function, mutates_args=())

        def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
            tensors = list(zip(arguments, axes, in_dims, strict=False))
            # Axes of the batch behind the mapped one, as many for every tensor.
            depth = max(x.ndim - own - (place is not None) for x, own, place in tensors)
            aligned = []
            for x, own, place in tensors:
                x = x.unsqueeze(0) if place is None else x.movedim(place, 0)
                x = x.reshape(len(x), *[1] * (1 + depth + own - x.ndim), *x.shape[1:])
                aligned.append(x.expand(info.batch_size, *x.shape[1:]))
            result = operator(*aligned, *arguments[len(axes) :])
            return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0

        operator.register_vmap(rule)
        return operator

    return register


def is_traced() -> bool:
    """Whether a compiler, an export or a transform of `torch.func` is tracing the code.

    Returns
    -------
    bool
        True while values are not available for checks.

    Examples
    --------
    >>> is_traced(), torch.vmap(lambda x: x + is_traced())(torch.zeros(1))
    (False, tensor([1.]))
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_forward_mode() -> bool:
    """Whether derivatives are being taken in forward mode, by `torch.func.jvp` or dual numbers.

    Returns
    -------
    bool
        True within `torch.func.jvp`, `torch.func.jacfwd` and `torch.autograd.forward_ad`.

    Examples
    --------
    >>> seen = []
    >>> _ = torch.func.jacfwd(lambda x: (seen.append(is_forward_mode()), x)[1])(torch.ones(1))
    >>> is_forward_mode(), seen
    (False, [True])
    """
    if torch.compiler.is_compiling():
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Jvp for level in stack)


def derivative_levels() -> int:
    """How many transforms of `torch.func` that take derivatives are nested around the code.

    Returns
    -------
    int
        The number; 0 under ordinary automatic differentiation and under a compiler.

    Examples
    --------
    >>> seen = []
    >>> twice = torch.func.grad(torch.func.grad(lambda x: (seen.append(derivative_levels()), x)[1]))
    >>> _ = twice(torch.tensor(1.0))
    >>> derivative_levels(), seen
    (0, [2])
    """
    if torch.compiler.is_compiling():
        return 0
    kinds = torch._C._functorch.TransformType
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return sum(level.key() in (kinds.Grad, kinds.Jvp) for level in stack)
