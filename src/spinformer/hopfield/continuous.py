"""The continuous Hopfield network: energy, gradient, update and retrieval.

Conventions. Stored patterns are the *rows* of `patterns`, shape (..., N, d): the transpose of the
document's X ∈ R^{d×N}, so that a pattern is a key and a batch of queries is a matrix of rows, as in
attention. States have shape (..., S, d), or (d,) for a single one; leading axes broadcast as in
`torch.matmul`. The inverse temperature β stands inside the logarithm and its inverse in front,
E = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ): document 001, Eq. (energyfunc) is β = 1.

All functions work on floating-point torch tensors and are differentiable in every tensor argument.
Source: document 001, Section 3; Ramsauer et al. 2020, Section 2 (their energy differs from ours by
a constant only).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spinformer.core.checks import check_integer, check_real, check_tensor


@dataclass(frozen=True)
class Retrieval:
    """What `retrieve` found; queries have shape (..., S, d) and T is the number of steps taken.

    states: final states, the shape of the queries (broadcast against the patterns).
    energies: (T + 1, ..., S), the energy of the query and after each step.
    attention: (..., S, N), the softmax weights of the last step of each query; for step size 1
        `states = attention @ patterns`.
    converged: (..., S) booleans, whether the last step moved the state by at most the tolerance.
    steps: (..., S) integers, the steps each query took.
    trajectory: (T + 1, ..., S, d) if asked for, else None.
    """

    states: torch.Tensor
    energies: torch.Tensor
    attention: torch.Tensor
    converged: torch.Tensor
    steps: torch.Tensor
    trajectory: torch.Tensor | None


def energy(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """E(ξ) = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ), shape (..., S).

    Document 001, Eq. (energyfunc), with β; document 000, Eq. (logsumexp). `beta` > 0. Raises
    TypeError or ValueError on anything that is not finite floating-point data of matching width.
    """
    patterns, states, beta = _check(patterns, states, beta)
    return _energy(patterns, states, beta)


def attention_weights(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0
) -> torch.Tensor:
    """softmax_i(β x_iᵀξ), shape (..., S, N): how much each pattern contributes to the update."""
    patterns, states, beta = _check(patterns, states, beta)
    return _weights(patterns, states, beta)


def gradient(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """∇E = ξ − Σ_i softmax_i(β x_iᵀξ) x_i, the shape of the states (document 001, Section 3)."""
    patterns, states, beta = _check(patterns, states, beta)
    return states - _weights(patterns, states, beta) @ patterns


def jacobian(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """∂f/∂ξ of the update f(ξ) = Σ_i softmax_i(β x_iᵀξ) x_i, shape (..., S, d, d).

    It equals β Cov_p(x), the covariance of the patterns under the softmax weights p, and is
    therefore symmetric and positive semidefinite; the Hessian of the energy is 1 − ∂f/∂ξ ≤ 1.
    """
    patterns, states, beta = _check(patterns, states, beta)
    weights = _weights(patterns, states, beta)
    each = patterns if states.ndim == 1 else patterns.unsqueeze(-3)
    centred = each - (weights @ patterns).unsqueeze(-2)
    return beta * centred.mT @ (weights.unsqueeze(-1) * centred)


def update(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, step_size: float = 1.0
) -> torch.Tensor:
    """One gradient step ξ − γ ∇E(ξ), the shape of the states.

    γ = `step_size` ≥ 0. γ = 1 is attention with the patterns as keys and values. The energy falls
    for every 0 < γ < 2: the Hessian is at most 1, so a step changes E by at most
    −γ (1 − γ/2) ‖∇E‖². Document 001, Eq. (conthopfupdate).
    """
    patterns, states, beta = _check(patterns, states, beta)
    step_size = check_real("step_size", step_size, low=0.0)
    return _step(patterns, states, beta, step_size)[0]


def retrieve(
    patterns: torch.Tensor,
    *,
    query: torch.Tensor,
    beta: float = 1.0,
    steps: int | None = None,
    step_size: float = 1.0,
    tolerance: float = 1e-10,
    max_steps: int = 10_000,
    keep_trajectory: bool = False,
) -> Retrieval:
    """Iterate the update from `query`, exactly `steps` times or until it stops moving.

    With `steps=n` every query takes n steps (differentiable). With `steps=None` each query stops
    at its own first step that moves it by at most `tolerance` (Euclidean), or after `max_steps`:
    one that has not arrived is reported in `converged`, never silently. A query's result does not
    depend on which others are in the batch.
    """
    patterns, query, beta = _check(patterns, query, beta)
    if steps is not None:
        steps = check_integer("steps", steps, low=1)
    step_size = check_real("step_size", step_size, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    limit = check_integer("max_steps", max_steps, low=1) if steps is None else steps

    weights = _weights(patterns, query, beta)
    state = query.expand(*weights.shape[:-1], query.shape[-1])
    energies, trajectory = [_energy(patterns, state, beta)], [state]
    arrived = torch.zeros(state.shape[:-1], dtype=torch.bool, device=state.device)
    taken = torch.zeros(state.shape[:-1], dtype=torch.int64, device=state.device)
    for _ in range(limit):
        moved, used = _step(patterns, state, beta, step_size)
        shift = torch.linalg.vector_norm((moved - state).detach(), dim=-1)
        if steps is None:
            # A query that has arrived stays put, so that slower neighbours cannot change it.
            frozen = arrived.unsqueeze(-1)
            moved, used = torch.where(frozen, state, moved), torch.where(frozen, weights, used)
            taken = taken + (~arrived)
            arrived = arrived | (shift <= tolerance)
        else:
            taken, arrived = taken + 1, shift <= tolerance
        state, weights = moved, used
        energies.append(_energy(patterns, state, beta))
        if keep_trajectory:
            trajectory.append(state)
        if steps is None and bool(arrived.all()):
            break
    return Retrieval(
        states=state,
        energies=torch.stack(energies),
        attention=weights,
        converged=arrived,
        steps=taken,
        trajectory=torch.stack(trajectory) if keep_trajectory else None,
    )


def _check(
    patterns: torch.Tensor, states: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor, float]:
    patterns, states = check_tensor("patterns", patterns), check_tensor("states", states)
    if patterns.ndim < 2 or patterns.shape[-2] == 0:
        raise ValueError(
            f"patterns must have shape (..., N, d), N > 0, got {tuple(patterns.shape)}"
        )
    if states.ndim < 1 or states.shape[-1] != patterns.shape[-1]:
        raise ValueError(
            f"states must have as last axis the patterns' width {patterns.shape[-1]}, "
            f"got shape {tuple(states.shape)}"
        )
    if states.dtype != patterns.dtype:
        raise TypeError(
            f"states must have the patterns' dtype {patterns.dtype}, got {states.dtype}"
        )
    return patterns, states, check_real("beta", beta, low=0.0, open_low=True)


def _weights(patterns: torch.Tensor, states: torch.Tensor, beta: float) -> torch.Tensor:
    return torch.softmax(beta * (states @ patterns.mT), dim=-1)


def _energy(patterns: torch.Tensor, states: torch.Tensor, beta: float) -> torch.Tensor:
    scores = beta * (states @ patterns.mT)
    return 0.5 * states.square().sum(-1) - torch.logsumexp(scores, dim=-1) / beta


def _step(
    patterns: torch.Tensor, states: torch.Tensor, beta: float, step_size: float
) -> tuple[torch.Tensor, torch.Tensor]:
    weights = _weights(patterns, states, beta)
    target = weights @ patterns
    # γ = 1 lands on the weighted mean itself, free of the rounding of ξ − (ξ − f(ξ)).
    return (target if step_size == 1.0 else states - step_size * (states - target)), weights
