"""Checks at the door of the continuous memories: patterns, states, results that overflow."""

from typing import Any

import torch

from spinformer.core.checks import check_broadcast, check_real, check_tensor


def check_patterns(patterns: Any) -> torch.Tensor:
    """Real patterns as rows, (N, d), N > 0, d > 0."""
    return check_tensor("patterns", patterns, shape=("N", "d"))


def check_states(name: str, states: Any, *, patterns: torch.Tensor) -> torch.Tensor:
    """States (..., d) that fit `patterns` (..., N, d) in width, type, device and batch axes."""
    fitting = (..., patterns.shape[-1])
    states = check_tensor(name, states, like=("patterns", patterns), shape=fitting)
    check_broadcast(**{name: states.shape[:-2], "patterns": patterns.shape[:-2]})
    return states


def check_result(what: str, result: torch.Tensor) -> torch.Tensor:
    """`result`, if it is finite; ValueError where finite input was too large for its type."""
    if not bool(torch.isfinite(result.detach()).all()):
        raise ValueError(
            f"overflow in the {what}: beta, patterns or states are too large for {result.dtype}"
        )
    return result


def check_beta(beta: Any) -> float:
    """An inverse temperature > 0."""
    return check_real("beta", beta, low=0.0, open_low=True)
