"""A memory whose stored patterns interact: update, rest, when it is a plain memory, kinds of rest.

Conventions of `continuous`: patterns x_i are rows of X, shape (..., N, d). Beside the state ξ there
are weights p ≥ 0 of the patterns, Σ_i p_i = 1, and couplings J_ij = J_ji, shape (..., N, N):

    E(ξ, p) = ½ ξᵀξ − pᵀXξ − ½ pᵀJp + β⁻¹ Σ_i p_i log p_i .

A damped update is log p' = (1 − η) log p + η β (Xξ + Jp) + const.

The diagram of the kinds of rest has groups of patterns of norm 1; two of a group overlap by g, two
of different groups so much that all patterns sum to zero, and J = κ offdiag XXᵀ.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from spinformer.hopfield.fixed_points import effective_entries


def safe_step_size(couplings: Tensor, *, beta: float) -> float:
    """The largest η ≤ 1 for which no step of the weights raises the energy, 4/(2 + βλ).

    λ is minus the lowest eigenvalue of the couplings (..., N, N) among directions of zero sum, or 0
    if none is negative.
    """
    lowest = min(float(torch.linalg.eigvalsh(_centred(couplings)).min()), 0.0)
    return min(1.0, 4.0 / (2.0 - beta * lowest))


@torch.no_grad()
def solve(
    patterns: Tensor,
    *,
    queries: Tensor,
    couplings: Tensor,
    beta: float = 1.0,
    clamped: bool = False,
    start: Tensor | None = None,
    step_size: float = 1.0,
    tolerance: float = 1e-10,
    max_steps: int = 10_000,
) -> tuple[Tensor, Tensor]:
    """Weights (..., S, N) after damped updates, and which of the queries (..., S, d) rest.

    η = `step_size` in (0, 1]. `start`: weights (..., S, N); by default attention's, softmax(βXξ).
    ξ is Xᵀp of the weights, or, `clamped`, stays at the query. A query rests, and moves no more,
    once ‖softmax(β(Xξ + Jp)) − p‖, undamped, is within the tolerance.
    """
    scores = queries @ patterns.mT
    logs = torch.log_softmax(beta * scores, dim=-1) if start is None else start.log()
    logs = logs.expand(torch.broadcast_shapes(scores.shape, (*couplings.shape[:-2], 1, 1)))
    rest = torch.zeros(logs.shape[:-1], dtype=torch.bool)
    for _ in range(max_steps):
        weights = logs.exp()
        if not clamped:
            scores = weights @ patterns @ patterns.mT
        wanted = beta * (scores + weights @ couplings)
        away = torch.linalg.vector_norm(torch.softmax(wanted, dim=-1) - weights, dim=-1)
        if step_size < 1.0:
            # A pattern of weight zero stays out: 0^(1−η) = 0.
            wanted = (1.0 - step_size) * logs + step_size * wanted
        logs = torch.where(rest.unsqueeze(-1), logs, torch.log_softmax(wanted, dim=-1))
        rest = rest | (away <= tolerance)
        if bool(rest.all()):
            break
    return logs.exp(), rest


def equivalent_patterns(patterns: Tensor, *, couplings: Tensor) -> Tensor:
    """Patterns y_i, shape (N, N), whose plain memory has the weights of this interacting one.

    With ξ = Xᵀp the weights follow p' = softmax(βMp), M = XXᵀ + J. If M has no negative direction
    of zero sum, then M + c = YYᵀ for a large enough constant c, which softmax does not see.
    """
    joint = patterns @ patterns.mT + couplings
    values, vectors = torch.linalg.eigh(_centred(joint))
    # Eigenvalues this small are rounding: c would have to be of order 1/resolution.
    resolution = 1e3 * torch.finfo(joint.dtype).eps * len(joint) * float(joint.abs().max())
    if float(values[0]) < -resolution:
        raise ValueError(f"XXᵀ + J has a negative direction of zero sum: {float(values[0]):.3g}")
    # M = inside + slope 1ᵀ + 1 slopeᵀ + mean: (y_i + t)·(y_j + t) with Yt = slope, up to a
    # constant; a slope along a direction of rounding is none.
    roots = values.clamp(min=resolution).sqrt()
    slope = vectors.mT @ (joint.mean(1) - joint.mean())
    return torch.where(values > resolution, vectors * roots + slope / roots, 0.0)


def _centred(matrix: Tensor) -> Tensor:
    """The matrix seen by vectors of zero sum: rows and columns of zero mean."""
    rows = matrix - matrix.mean(-1, keepdim=True)
    return rows - rows.mean(-2, keepdim=True)


def group_patterns(groups: int, *, members: int, overlap: float) -> Tensor:
    """(N, N) patterns of norm 1 with zero sum, overlap g in a group, equal ones between groups."""
    size = groups * members
    between = (1 + (members - 1) * overlap) / (size - members)
    same = np.kron(np.eye(groups), np.ones((members, members)))
    gram = (1 - overlap) * np.eye(size) + (overlap + between) * same - between
    values, vectors = np.linalg.eigh(gram)
    return torch.as_tensor((vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T)


def eigenvalues(kappa: float, *, groups: int, members: int, overlap: float) -> tuple[float, float]:
    """Eigenvalues of M = XXᵀ + κ offdiag XXᵀ for contrasts inside of a group, and of groups."""
    apart = (1 + (members - 1) * overlap) / (groups * members - members)
    within = 1 - overlap
    between = 1 - overlap + members * (overlap + apart)
    return (1 + kappa) * within - kappa, (1 + kappa) * between - kappa


def kinds(
    patterns: Tensor, *, betas: ArrayLike, kappas: ArrayLike, start: str, max_steps: int = 3000
) -> np.ndarray:
    """Fewest patterns (κ, β) that hold 0.9 of the weight at rest, from a "pattern" or "mean"."""
    size = len(patterns)
    weight = 0.99 if start == "pattern" else 1.01 / size
    begin = torch.full((1, size), (1 - weight) / (size - 1), dtype=patterns.dtype)
    begin[0, 0] = weight
    pairs = (patterns @ patterns.T).fill_diagonal_(0.0)
    rows = []
    for beta in np.asarray(betas):
        # One batch of all κ: the inverse temperature stands in the patterns and the couplings.
        couplings = beta * torch.as_tensor(kappas)[:, None, None] * pairs
        weights, _ = solve(
            patterns.expand(len(couplings), -1, -1) * beta**0.5,
            queries=torch.zeros_like(patterns[:1]),
            couplings=couplings,
            start=begin,
            step_size=safe_step_size(couplings, beta=1.0),
            tolerance=1e-7,
            max_steps=max_steps,
        )
        rows.append(effective_entries(weights[:, 0]).numpy())
    return np.stack(rows, axis=1)
