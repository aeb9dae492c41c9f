"""Many networks trained side by side: every weight has a first axis of C independent replicas."""

import math
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor


def draw_replicas(rows: int, columns: int, *, generators: Sequence[torch.Generator]) -> Tensor:
    """Standard normal matrices (C, rows, columns), each replica's from its own generator."""
    return torch.stack([torch.randn(rows, columns, generator=one) for one in generators])


def multiply_replicas(states: Tensor, matrices: Tensor) -> Tensor:
    """States (C, B, N, D) times the matrices (C, D, F) of their replicas, in one product."""
    return (states.flatten(1, 2) @ matrices).unflatten(1, states.shape[1:3])


def train_replicas(
    weights: dict[str, Tensor],
    *,
    losses: Callable[[], Tensor],
    rate: float,
    steps: int,
    keep: Collection[int] = (),
    warmup: int = 1,
    betas: tuple[float, float] = (0.9, 0.999),
) -> dict[int, dict[str, Tensor]]:
    """Lower the losses (C,) of the next batch, again and again, by changing `weights` in place.

    By Adam, whose rate rises for `warmup` updates and falls to zero along a cosine. Returns the
    weights after each number of updates in `keep` and at the end, by number. Weights that a loss
    does not reach stay as they are.
    """
    parameters = [weight.requires_grad_() for weight in weights.values()]
    optimizer = torch.optim.Adam(parameters, betas=betas)
    kept = {}
    for step in range(steps + 1):
        if step in keep or step == steps:
            kept[step] = {name: weight.detach().clone() for name, weight in weights.items()}
        if step == steps:
            break
        found = losses()
        if not bool(torch.isfinite(found.detach()).all()):
            raise RuntimeError(f"the loss is no longer finite in update {step + 1}: lower rates")
        cooled = 0.5 * (1.0 + math.cos(math.pi * step / steps))
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / warmup) * cooled
        optimizer.zero_grad()
        # The sum over replicas: each has the gradient of its own loss.
        found.sum().backward()
        optimizer.step()
    return kept
