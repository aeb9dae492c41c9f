"""A memory whose stored patterns interact: energy, update, rest, and when it is a plain memory.

Conventions of `continuous`: patterns x_i are rows of X, shape (..., N, d). Beside the state ξ there
are the weights p of the patterns, non-negative with Σ_i p_i = 1, and patterns i and j interact with
strength J_ij = J_ji, shape (..., N, N):

    E(ξ, p) = ½ ξᵀξ − pᵀXξ − ½ pᵀJp + β⁻¹ Σ_i p_i log p_i .

Its minimum over ξ is ξ = Xᵀp. At rest in p, p = softmax(β(Xξ + Jp)): for J = 0 that is attention,
and E(ξ, p) is the energy of `continuous`. This is the interacting memory that
[bal2020energy, Sec. 5] asks for; the derivations stand in the chapter on interacting patterns.

A damped update of the weights keeps the share 1 − η of their logarithm,
log p' = (1 − η) log p + η β (Xξ + Jp) + const. It changes the energy at fixed ξ by exactly

    −(βη)⁻¹ [KL(p'|p) + KL(p|p')] + β⁻¹ KL(p'|p) − ½ (p' − p)ᵀJ(p' − p) ,

and as KL ≥ ‖p' − p‖², it never rises for η (2 + βλ) ≤ 4, where −λ ≤ 0 is the lowest
eigenvalue of J among directions of zero sum (λ = 0 if there is no negative one). Undamped, it also
contracts, to a single rest, for β‖J‖ < 2 (‖J‖ among the same directions): the slope of softmax is
at most ½. Both constants are reached by two patterns.
"""

from __future__ import annotations

import torch

from spinformer.core.solve import Solution, Status


def energy(
    patterns: torch.Tensor,
    *,
    states: torch.Tensor,
    weights: torch.Tensor,
    couplings: torch.Tensor,
    beta: float = 1.0,
) -> torch.Tensor:
    """E(ξ, p) = ½ ξᵀξ − pᵀXξ − ½ pᵀJp + β⁻¹ Σ_i p_i log p_i, shape (..., S)."""
    entropy = torch.special.entr(weights).sum(-1)
    held = (weights * (states @ patterns.mT + 0.5 * (weights @ couplings))).sum(-1)
    return 0.5 * states.square().sum(-1) - held - entropy / beta


def update(
    patterns: torch.Tensor,
    *,
    states: torch.Tensor,
    weights: torch.Tensor,
    couplings: torch.Tensor,
    beta: float = 1.0,
    step_size: float = 1.0,
) -> torch.Tensor:
    """One step of the weights at fixed ξ: p' ∝ p^(1−η) exp(ηβ(Xξ + Jp)), shape (..., S, N).

    η = `step_size` in (0, 1]; 1 is the softmax itself, and with J = 0 attention.
    """
    wanted = beta * (states @ patterns.mT + weights @ couplings)
    return _damped(wanted, weights.log(), step_size).exp()


def safe_step_size(couplings: torch.Tensor, *, beta: float) -> float:
    """The largest η ≤ 1 for which no step of the weights raises the energy, 4/(2 + βλ).

    λ is minus the lowest eigenvalue of the couplings (N, N) among directions of zero sum, or 0
    if none is negative (then no damping is needed at any temperature).
    """
    lowest = min(float(torch.linalg.eigvalsh(_centred(couplings.detach())).min()), 0.0)
    return min(1.0, 4.0 / (2.0 - beta * lowest))


@torch.no_grad()
def solve(
    patterns: torch.Tensor,
    *,
    queries: torch.Tensor,
    couplings: torch.Tensor,
    beta: float = 1.0,
    clamped: bool = False,
    start: torch.Tensor | None = None,
    step_size: float = 1.0,
    tolerance: float = 1e-10,
    max_steps: int = 10_000,
) -> Solution[torch.Tensor]:
    """Iterate the update until the weights rest, or take turns, for each of queries (..., S, d).

    `start`: weights to start from, (..., S, N); by default attention's, softmax(βXξ) of the query.
    Free (the default): ξ is Xᵀp of the weights, at the start and after every step; the query
    has chosen the start, no more. `clamped`: ξ stays at the query.

    Value: the weights p (..., S, N). Residual (..., S): ‖softmax(β(Xξ + Jp)) − p‖, undamped.
    Status (..., S): CONVERGED, CYCLE (two sets of weights take turns), else STEP_LIMIT. A cycle of
    two is the only other thing an undamped clamped iteration with symmetric J can end in (the
    function −pᵀJp' − (p + p')ᵀXξ + β⁻¹(Σ p log p + Σ p' log p') of successive weights falls).
    """
    logs = torch.log_softmax(beta * (queries @ patterns.mT), dim=-1)
    if start is not None:
        logs = start.log()
    weights = before = logs.exp()
    scores = (queries if clamped else weights @ patterns) @ patterns.mT
    pulls = weights @ couplings
    shape = torch.broadcast_shapes(scores.shape, pulls.shape)[:-1]
    logs = logs.expand(*shape, logs.shape[-1])
    residual = torch.full(shape, torch.inf, dtype=logs.dtype, device=logs.device)
    taken = torch.zeros(shape, dtype=torch.int64, device=logs.device)
    status = torch.full(shape, int(Status.STEP_LIMIT), device=logs.device)
    for _ in range(max_steps):
        active = status == Status.STEP_LIMIT
        wanted = beta * (scores + pulls)
        moved = _damped(wanted, logs, step_size)
        after = moved.exp()
        shift = torch.linalg.vector_norm(torch.softmax(wanted, dim=-1) - weights, dim=-1)
        away = torch.linalg.vector_norm(after - weights, dim=-1) > 1e3 * tolerance
        again = torch.linalg.vector_norm(after - before, dim=-1) <= tolerance
        residual = torch.where(active, shift, residual)
        arrived = active & (shift <= tolerance)
        # Back where it was two steps ago, although each of them moved it: it has no rest.
        turning = active & ~arrived & again & away & (taken > 0)
        status = torch.where(arrived, int(Status.CONVERGED), status)
        status = torch.where(turning, int(Status.CYCLE), status)
        taken = taken + active
        going = active.unsqueeze(-1)
        before = torch.where(going, weights, before)
        logs, weights = torch.where(going, moved, logs), torch.where(going, after, weights)
        if not clamped:
            scores = weights @ patterns @ patterns.mT
        pulls = weights @ couplings
        if bool((status != Status.STEP_LIMIT).all()):
            break
    return Solution(value=weights, residual=residual, steps=taken, status=status)


def equivalent_patterns(patterns: torch.Tensor, *, couplings: torch.Tensor) -> torch.Tensor:
    """Patterns y_i, shape (N, N), whose plain memory has the weights of this interacting one.

    With ξ = Xᵀp the weights follow p' = softmax(βMp), M = XXᵀ + J. If M has no negative direction
    of zero sum, then M + c = YYᵀ for a large enough constant c, which softmax does not see, and p'
    = softmax(βYYᵀp) are the steps of a memory that stores the rows of Y.
    """
    joint = patterns @ patterns.mT + couplings
    inside = _centred(joint)
    values, vectors = torch.linalg.eigh(inside)
    scale = float(joint.abs().max())
    # Eigenvalues this small are rounding: c would have to be of order 1/resolution.
    resolution = 1e3 * torch.finfo(joint.dtype).eps * len(joint) * scale
    if float(values[0]) < -resolution:
        raise ValueError(
            "couplings must leave XXᵀ + J without a negative direction of zero sum, "
            f"got an eigenvalue {float(values[0]):.3g}"
        )
    slope = joint.mean(1) - joint.mean()
    seen = vectors.mT @ slope
    used = values > resolution
    if bool((seen[~used].abs() > resolution**0.5 * max(scale, 1.0) ** 0.5).any()):
        raise ValueError("couplings must not add a field along a direction that M does not resist")
    # M = inside + slope 1ᵀ + 1 slopeᵀ + mean: (y_i + t)·(y_j + t) with Yt = slope, up to a
    # constant.
    embedded = vectors * values.clamp(min=0.0).sqrt()
    shift = torch.where(used, seen / values.clamp(min=resolution).sqrt(), torch.zeros_like(seen))
    return embedded + shift


def _centred(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix seen by vectors of zero sum: rows and columns of zero mean."""
    rows = matrix - matrix.mean(-1, keepdim=True)
    return rows - rows.mean(-2, keepdim=True)


def _damped(wanted: torch.Tensor, logs: torch.Tensor, step_size: float) -> torch.Tensor:
    """Logarithms of the weights after a step towards the softmax of `wanted`."""
    if step_size < 1.0:
        # A pattern of weight zero stays out: 0^(1−η) = 0.
        wanted = (1.0 - step_size) * logs + step_size * wanted
    return torch.log_softmax(wanted, dim=-1)
