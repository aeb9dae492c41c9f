"""Iterations as single operators, so that what transforms or compiles code need not look inside.

An iteration that stops when it has arrived depends on values, which `torch.compile`,
`torch.export` and `torch.vmap` cannot follow. As a custom operator it is one node for them:
compiled code calls it, and a batch of batches is one larger batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def iteration_operator(name: str, *, axes: Sequence[int]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as the operator `spinformer::name`, with a rule for `torch.vmap`.

    The function takes tensors first, of which the last `axes` belong to one system each (the
    leading ones are a batch and broadcast), then numbers; it has no gradient and returns new
    tensors whose batch is the common one. Its `register_fake` is left to the caller.

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
            count = len(axes)
            first = [
                value if place is None else value.movedim(place, 0)
                for value, place in zip(arguments[:count], in_dims[:count], strict=True)
            ]
            # Axes of the batch behind the mapped one, as many for every tensor.
            depth = max(
                value.ndim - own - (place is not None)
                for value, own, place in zip(first, axes, in_dims[:count], strict=True)
            )
            aligned = []
            for value, own, place in zip(first, axes, in_dims[:count], strict=True):
                lead = value.shape[:1] if place is not None else (1,)
                inner = value.shape[value.ndim - own :]
                batch = value.shape[(place is not None) : value.ndim - own]
                filled = (1,) * (depth - len(batch))
                shaped = value.reshape(*lead, *filled, *batch, *inner)
                aligned.append(shaped.expand(info.batch_size, *shaped.shape[1:]))
            result = operator(*aligned, *arguments[count:])
            return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0

        operator.register_vmap(rule)
        return operator

    return register


def is_traced() -> bool:
    """Whether a compiler, an export or a transform of `torch.func` looks at what is done.

    >>> is_traced(), torch.vmap(lambda x: x + is_traced())(torch.zeros(1))
    (False, tensor([1.]))
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
