"""Checks at the door of the continuous memories: patterns, states, results that overflow."""

import math
from typing import Any

import torch

from spinformer.core.checks import check_broadcast, check_real, check_tensor
from spinformer.core.operators import is_traced


def check_patterns(patterns: Any) -> torch.Tensor:
    """Real patterns as rows, (N, d), N > 0, d > 0."""
    return check_tensor("patterns", patterns, shape=("N", "d"))


def check_states(
    name: str, states: Any, *, patterns: torch.Tensor, finite: bool = True
) -> torch.Tensor:
    """States (..., d) that fit `patterns` (..., N, d) in width, type, device and batch axes.

    `finite` as in `check_tensor`.
    """
    fitting = (..., patterns.shape[-1])
    states = check_tensor(name, states, like=("patterns", patterns), finite=finite, shape=fitting)
    if states.ndim > 2 and patterns.ndim > 2:
        check_broadcast(**{name: states.shape[:-2], "patterns": patterns.shape[:-2]})
    return states


def check_result(what: str, result: torch.Tensor, **unseen: torch.Tensor) -> torch.Tensor:
    """`result`, if it is finite; ValueError where finite input was too large for its type.

    unseen: arguments whose entries nobody has looked at, because the result is finite only if they
    are. If it is not, or is empty, they are looked at now, and the error names the one at fault.
    A compiler and the transforms of `torch.func` see no values: they get what is not finite.
    """
    if is_traced():
        return result
    data = result.detach() if result.requires_grad else result
    # The sum is far faster than a look at each part, and not finite unless all of them are.
    if math.isfinite(data.sum()) and (not unseen or data.numel()):
        return result
    for name, argument in unseen.items():
        check_tensor(name, argument)
    if bool(torch.isfinite(data).all()):
        return result
    raise ValueError(
        f"overflow in the {what}: beta, patterns or states are too large for {result.dtype}, "
        "or beta is too small"
    )


def check_beta(beta: Any) -> float:
    """An inverse temperature > 0."""
    return check_real("beta", beta, low=0.0, open_low=True)
