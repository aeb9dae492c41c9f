"""The continuous Hopfield network: energy, gradient, update and retrieval.

Conventions. Stored patterns are the *rows* of `patterns`, shape (..., N, d): the transpose of the
document's X ∈ R^{d×N}, so that a pattern is a key and a batch of queries is a matrix of rows, as in
attention. States have shape (..., S, d), or (d,) for a single one; leading axes broadcast as in
`torch.matmul`. The inverse temperature β stands inside the logarithm and its inverse in front,
E = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ): [bal2020energy, Eqs. (7), (8)] is β = 1; the energy of
[ramsauer2020hopfield, Sec. 2] is larger by the constant β⁻¹ log N + ½M², M the largest norm, and
[bal2021transformers, Eq. (2)] lacks the factor β⁻¹.

All functions work on floating-point torch tensors and are differentiable in every tensor argument.
Where a score β x_iᵀξ overflows, the result is not finite: ValueError, but `retrieve` says DIVERGED.
"""

from typing import Any

import torch

from spinformer.core.checks import check_flag, check_integer, check_real, check_tensor
from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of
from spinformer.hopfield.inputs import check_beta, check_result, check_states

_PATTERNS = (..., "N", "d")


@record
class ContinuousRetrieval(Solution[torch.Tensor]):
    """What `retrieve` found; queries have shape (..., S, d) and T is the number of steps taken.

    value: final states, the shape of the queries (broadcast against the patterns). residual:
    (..., S), how far the last step of each moved it. steps: (..., S), the steps each took. status:
    (..., S), CONVERGED where the residual is at most the tolerance, DIVERGED where a state is
    no longer finite (steps beyond 2 do that), else STEP_LIMIT.
    energies: (T + 1, ..., S), the energy of the query and after each step.
    attention: (..., S, N), the softmax weights of the last step of each query; for step size 1
        `states = attention @ patterns`.
    trajectory: (T + 1, ..., S, d) if asked for, else None.
    """

    energies: torch.Tensor
    attention: torch.Tensor
    trajectory: torch.Tensor | None = None

    @property
    def states(self) -> torch.Tensor:
        """(..., S, d): where each query ended."""
        return self.value


def energy(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """E(ξ) = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ), shape (..., S).

    [bal2020energy, Eqs. (7), (8)] with β.

    >>> energy(torch.eye(2), states=torch.zeros(2))
    tensor(-0.6931)
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta)
    return check_result("energy", _energy_of(states, _scores(patterns, states, beta), beta))


def attention_weights(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0
) -> torch.Tensor:
    """softmax_i(β x_iᵀξ), shape (..., S, N): how much each pattern contributes to the update.

    >>> attention_weights(torch.eye(2), states=torch.zeros(2))
    tensor([0.5000, 0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta)
    return check_result("attention weights", _weights(patterns, states, beta))


def gradient(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """∇E = ξ − Σ_i softmax_i(β x_iᵀξ) x_i, the shape of the states [bal2020energy, Eq. (10)].

    >>> gradient(torch.eye(2), states=torch.zeros(2))
    tensor([-0.5000, -0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    result = states - _weights(patterns, states, beta) @ patterns
    return check_result("gradient", result, patterns=patterns, states=states)


def jacobian(patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """∂f/∂ξ of the update f(ξ) = Σ_i softmax_i(β x_iᵀξ) x_i, shape (..., S, d, d).

    It equals β Cov_p(x), the covariance of the patterns under the softmax weights p, and is
    therefore symmetric and positive semidefinite; the Hessian of the energy is 1 − ∂f/∂ξ ≤ 1.

    >>> jacobian(torch.eye(2), states=torch.zeros(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    weights = _weights(patterns, states, beta)
    each = patterns if states.ndim == 1 else patterns.unsqueeze(-3)
    centred = each - (weights @ patterns).unsqueeze(-2)
    result = beta * centred.mT @ (weights.unsqueeze(-1) * centred)
    return check_result("jacobian", result, patterns=patterns, states=states)


def update(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, step_size: float = 1.0
) -> torch.Tensor:
    """One step ξ − γ ∇E(ξ) = (1 − γ) ξ + γ Σ_i softmax_i(β x_iᵀξ) x_i, the shape of the states.

    γ = `step_size` ≥ 0. γ = 1 is attention with the patterns as keys and values. The energy falls
    for every 0 < γ < 2: the Hessian is at most 1, so a step changes E by at most
    −γ (1 − γ/2) ‖∇E‖² [bal2020energy, Eqs. (11), (12)].

    >>> update(torch.eye(2), states=torch.zeros(2))
    tensor([0.5000, 0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    step_size = check_real("step_size", step_size, low=0.0)
    target = _weights(patterns, states, beta) @ patterns
    result = _moved(states, target, step_size)
    return check_result("update", result, patterns=patterns, states=states)


def retrieve(
    patterns: torch.Tensor,
    *,
    queries: torch.Tensor,
    beta: float = 1.0,
    steps: int | None = None,
    step_size: float = 1.0,
    tolerance: float = 1e-10,
    max_steps: int = 10_000,
    keep_trajectory: bool = False,
) -> ContinuousRetrieval:
    """Iterate the update from `queries`, exactly `steps` times or until it stops moving.

    With `steps=n` every query takes n steps (differentiable). With `steps=None` each query stops
    at its own first step that moves it by at most `tolerance` (Euclidean), or after `max_steps`,
    whatever the others in the batch do. A step of size γ is γ times the residual ‖ξ − f(ξ)‖ of the
    fixed-point equation, before it.

    >>> found = retrieve(4.0 * torch.eye(2), queries=torch.tensor([1.0, 0.0]), tolerance=1e-6)
    >>> bool(found.converged), f"{float(found.states[0]):.1f}"
    (True, '4.0')
    """
    patterns, query, beta = _check(patterns, states=queries, beta=beta, name="queries")
    step_size = check_real("step_size", step_size, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    limit = check_integer("max_steps", max_steps, low=1)
    check_flag("keep_trajectory", keep_trajectory)
    if steps is not None:
        limit = check_integer("steps", steps, low=1)

    # One product with the patterns a step: its scores give a state's energy and its weights.
    scores = _scores(patterns, query, beta)
    weights = torch.softmax(scores, dim=-1)
    state = query.expand(*weights.shape[:-1], query.shape[-1])
    energies, trajectory = [_energy_of(state, scores, beta)], [state]
    going = torch.ones(state.shape[:-1], dtype=torch.bool, device=state.device)
    taken = torch.zeros_like(going, dtype=torch.int64)
    residual = torch.zeros_like(state[..., 0])
    for _ in range(limit):
        # A query that has arrived stays put, so that slower neighbours cannot change it.
        weights = torch.where(going.unsqueeze(-1), torch.softmax(scores, dim=-1), weights)
        moved = _moved(state, weights @ patterns, step_size)
        shift = torch.linalg.vector_norm((moved - state).detach(), dim=-1)
        state = torch.where(going.unsqueeze(-1), moved, state)
        residual, taken = torch.where(going, shift, residual), taken + going
        if steps is None:
            # What overflowed moves by NaN, which is not above anything.
            going = going & (shift > tolerance)
        scores = _scores(patterns, state, beta)
        energies.append(_energy_of(state, scores, beta))
        if keep_trajectory:
            trajectory.append(state)
        if not bool(going.any()):
            break
    finite = torch.isfinite(state.detach()).all(-1)
    return ContinuousRetrieval(
        value=state,
        residual=residual,
        steps=taken,
        status=status_of(residual <= tolerance, finite=finite),
        energies=torch.stack(energies),
        attention=weights,
        trajectory=torch.stack(trajectory) if keep_trajectory else None,
    )


def _check(
    patterns: Any, *, states: Any, beta: Any, name: str = "states", finite: bool = True
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The arguments, checked; without `finite` all but whether patterns and states are.

    A caller may leave that to `check_result` if the result contains p @ patterns, p the softmax of
    the scores. A state that is not finite has no finite score, and its softmax is NaN; a pattern
    that is not has a score of NaN, +inf or −inf, and the softmax is NaN or multiplies it by 0.
    """
    patterns = check_tensor("patterns", patterns, finite=finite, shape=_PATTERNS)
    try:
        states = check_states(name, states, patterns=patterns, finite=finite)
    except (TypeError, ValueError):
        # Of two arguments at fault the first is named.
        check_tensor("patterns", patterns)
        raise
    return patterns, states, check_beta(beta)


def _scores(patterns: torch.Tensor, states: torch.Tensor, beta: float) -> torch.Tensor:
    return beta * (states @ patterns.mT)


def _weights(patterns: torch.Tensor, states: torch.Tensor, beta: float) -> torch.Tensor:
    return torch.softmax(_scores(patterns, states, beta), dim=-1)


def _energy_of(states: torch.Tensor, scores: torch.Tensor, beta: float) -> torch.Tensor:
    return 0.5 * states.square().sum(-1) - torch.logsumexp(scores, dim=-1) / beta


def _moved(states: torch.Tensor, target: torch.Tensor, step_size: float) -> torch.Tensor:
    # γ = 1 lands on the weighted mean itself, free of the rounding of ξ − (ξ − f(ξ)).
    return target if step_size == 1.0 else states - step_size * (states - target)
