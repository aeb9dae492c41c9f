"""Checks that the modules of this room share: patterns, states, masks, results that overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from spinformer.core.checks import check_array, check_real, check_tensor


def check_spin_patterns(patterns: Any) -> np.ndarray:
    """Patterns of ±1 as rows, shape (N, d) with N, d > 0.

    >>> check_spin_patterns([[1, -1]])
    array([[ 1., -1.]])
    """
    patterns = check_array("patterns", patterns, ndim=2, values=(-1, 1))
    if 0 in patterns.shape:
        raise ValueError(f"patterns must hold at least one pattern, got shape {patterns.shape}")
    return patterns


def check_spin_states(name: str, states: Any, *, dim: int) -> np.ndarray:
    """States of ±1 and 0 (unknown) as rows, shape (Q, d), for patterns of `dim` spins.

    >>> check_spin_states("queries", [[1, 0]], dim=2)
    array([[1., 0.]])
    """
    return check_array(name, states, shape=(None, dim), values=(-1, 0, 1))


def check_spin_memory(patterns: Any, *, states: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A memory of spins: patterns (N, d) of ±1 and states (Q, d) of ±1 and 0.

    >>> check_spin_memory([[1, -1]], states=[[1, 0]], name="states")[1]
    array([[1., 0.]])
    """
    patterns = check_spin_patterns(patterns)
    return patterns, check_spin_states(name, states, dim=patterns.shape[1])


def check_patterns(patterns: Any, *, ndim: int | None = 2, least: int = 1) -> torch.Tensor:
    """Real patterns as rows: (N, d), or (..., N, d) for `ndim=None`, N ≥ `least`, d > 0.

    >>> tuple(check_patterns(torch.ones(3, 2)).shape)
    (3, 2)
    """
    patterns = check_tensor("patterns", patterns, ndim=ndim)
    if patterns.ndim < 2:
        raise ValueError(f"patterns must have shape (..., N, d), got {tuple(patterns.shape)}")
    if patterns.shape[-2] < least or patterns.shape[-1] == 0:
        raise ValueError(
            f"patterns must hold at least {least} rows of at least one component, "
            f"got shape {tuple(patterns.shape)}"
        )
    return patterns


def check_states(name: str, states: Any, *, patterns: torch.Tensor) -> torch.Tensor:
    """States (..., d) that fit `patterns` (..., N, d) in width, type, device and batch axes.

    >>> tuple(check_states("states", torch.ones(5, 2), patterns=torch.ones(3, 2)).shape)
    (5, 2)
    """
    states = check_tensor(name, states)
    width = patterns.shape[-1]
    if states.ndim == 0 or states.shape[-1] != width:
        raise ValueError(
            f"{name} must have as last axis the patterns' width {width}, "
            f"got shape {tuple(states.shape)}"
        )
    check_like(name, states, model=patterns, role="patterns")
    if states.ndim > 1 and not can_broadcast(states.shape[:-2], patterns.shape[:-2]):
        raise ValueError(
            f"{name} must have batch axes that broadcast with the patterns', "
            f"{tuple(patterns.shape[:-2])}, got shape {tuple(states.shape)}"
        )
    return states


def check_memory(
    patterns: Any, *, states: Any, beta: Any, name: str = "states"
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """A continuous memory: patterns (..., N, d), states that fit them, β.

    >>> check_memory(torch.ones(3, 2), states=torch.ones(2), beta=1)[2]
    1.0
    """
    patterns = check_patterns(patterns, ndim=None)
    return patterns, check_states(name, states, patterns=patterns), check_beta(beta)


def check_sample(
    patterns: Any, *, data: Any, beta: Any, name: str = "data"
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """One memory (N, d) and at least one row of data for it, (M, d), and β.

    >>> check_sample(torch.eye(2), data=torch.ones(4, 2), beta=1)[1].shape
    torch.Size([4, 2])
    """
    patterns = check_patterns(patterns)
    data = check_states(name, data, patterns=patterns)
    if data.ndim != 2 or data.shape[0] == 0:
        raise ValueError(
            f"{name} must have shape (M, {patterns.shape[1]}), M > 0, got {tuple(data.shape)}"
        )
    return patterns, data, check_beta(beta)


def check_like(name: str, tensor: torch.Tensor, *, model: torch.Tensor, role: str) -> None:
    """Same dtype and device as `model`, which the error calls `role`.

    >>> check_like("states", torch.ones(1).double(), model=torch.ones(1), role="patterns")
    Traceback (most recent call last):
    TypeError: states must have the patterns' dtype torch.float32, got torch.float64
    """
    for what in ("dtype", "device"):
        wanted, got = getattr(model, what), getattr(tensor, what)
        if wanted != got:
            raise TypeError(f"{name} must have the {role}' {what} {wanted}, got {got}")


def check_wide(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """float32 or float64, which linear algebra needs.

    >>> check_wide("patterns", torch.ones(1)).dtype
    torch.float32
    """
    if tensor.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be float32 or float64, got {tensor.dtype}")
    return tensor


def largest_norm(patterns: torch.Tensor) -> float:
    """M, the largest norm of a row; ValueError where it overflows.

    >>> largest_norm(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    5.0
    """
    norm = float(torch.linalg.vector_norm(patterns.detach(), dim=-1).max())
    if not norm < torch.finfo(patterns.dtype).max ** 0.5:
        raise ValueError(f"patterns must have squared norms within the range of {patterns.dtype}")
    return norm


def check_result(what: str, result: torch.Tensor) -> torch.Tensor:
    """`result`, if it is finite; ValueError where finite input was too large for its type.

    >>> check_result("energy", torch.zeros(1))
    tensor([0.])
    """
    if not bool(torch.isfinite(result.detach()).all()):
        raise ValueError(
            f"overflow in the {what}: beta, patterns or states are too large for {result.dtype}"
        )
    return result


def check_beta(beta: Any) -> float:
    """An inverse temperature > 0.

    >>> check_beta(2)
    2.0
    """
    return check_real("beta", beta, low=0.0, open_low=True)


def check_mask(name: str, mask: Any, *, shape: tuple[int, ...], exact: bool = False) -> None:
    """Booleans that broadcast to `shape`, or have it if `exact`.

    >>> check_mask("mask", torch.ones(2, dtype=torch.bool), shape=(3, 2))
    """
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean torch tensor, got {type(mask).__name__}")
    fits = can_broadcast(mask.shape, torch.Size(shape))
    if fits:
        fits = torch.broadcast_shapes(mask.shape, shape) == torch.Size(shape)
    if not fits or (exact and tuple(mask.shape) != shape):
        raise ValueError(f"{name} must fit the shape {shape}, got {tuple(mask.shape)}")


def can_broadcast(*shapes: torch.Size) -> bool:
    """Whether the shapes broadcast together.

    >>> can_broadcast(torch.Size([3, 1]), torch.Size([2]))
    True
    """
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True
