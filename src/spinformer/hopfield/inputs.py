"""Checks at the door of the continuous memories: patterns, states, results that overflow."""

from __future__ import annotations

from typing import Any

import torch

from spinformer.core.checks import check_broadcast, check_real, check_tensor


def check_patterns(patterns: Any, *, ndim: int | None = 2) -> torch.Tensor:
    """Real patterns as rows: (N, d), or (..., N, d) for `ndim=None`, N > 0, d > 0."""
    patterns = check_tensor("patterns", patterns, ndim=ndim)
    if patterns.ndim < 2:
        raise ValueError(f"patterns must have shape (..., N, d), got {tuple(patterns.shape)}")
    if 0 in patterns.shape[-2:]:
        raise ValueError(
            "patterns must hold at least 1 row of at least one component, "
            f"got shape {tuple(patterns.shape)}"
        )
    return patterns


def check_states(name: str, states: Any, *, patterns: torch.Tensor) -> torch.Tensor:
    """States (..., d) that fit `patterns` (..., N, d) in width, type, device and batch axes."""
    states, width = check_tensor(name, states, like=("patterns", patterns)), patterns.shape[-1]
    if states.ndim == 0 or states.shape[-1] != width:
        raise ValueError(
            f"{name} must have as last axis the patterns' width {width}, "
            f"got shape {tuple(states.shape)}"
        )
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
