"""What `torch.compile` leaves as it is: importing this module imports torch's compiler."""

from __future__ import annotations

from typing import Any

import torch


@torch.compiler.disable
def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply(*inputs)`, not traced.

    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return 2 * x
    >>> apply(Double, torch.ones(1))
    tensor([2.])
    """
    return function.apply(*inputs)
