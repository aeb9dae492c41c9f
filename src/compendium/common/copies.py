"""Many networks trained side by side: every weight has a first axis of C independent copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def draw_copies(rows: int, columns: int, *, generators: Sequence[torch.Generator]) -> Tensor:
    """Standard normal matrices (C, rows, columns), each copy's from its own generator."""
    return torch.stack([torch.randn(rows, columns, generator=one) for one in generators])


def times_copies(states: Tensor, matrices: Tensor) -> Tensor:
    """States (C, B, N, D) times the matrices (C, D, F) of their copies, in one product."""
    return (states.flatten(1, 2) @ matrices).unflatten(1, states.shape[1:3])


def cooled(step: int, steps: int) -> float:
    """The share of a rate that is left where it falls to zero along a cosine."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))
