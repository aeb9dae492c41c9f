"""The modern Hopfield network of continuous states: energy, gradient, update and retrieval.

Conventions. Stored patterns are the *rows* of `patterns`, shape (..., N, d), the transpose of X ∈
R^{d×N} in [bal2020energy], so that a pattern is a key and a batch of queries is a matrix of rows,
as in attention. States have shape (..., S, d), or (d,) for a single one beside patterns (N, d).
Leading axes broadcast as in `torch.matmul`. The inverse temperature β is inside the logarithm and
its inverse in front, E = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ). In [bal2020energy, Eqs. (7), (8)] β is
1. The energy of [ramsauer2020hopfield, Sec. 2] is larger by the constant β⁻¹ log N + ½M², with M
the largest norm, and [bal2021transformers, Eq. (2)] lacks the factor β⁻¹.

The index `alpha` chooses the separation of patterns. At 1 the weights are softmax, as above. From
1.01 to 2 log-sum-exp gives way to the convex conjugate Ω* of the Tsallis entropy, and softmax to
its gradient α-entmax [santos2024sparse], sparsemax at 2 (see `hopfield.separation`). As Ω* is
convex, too, a step of size below 2 still lowers the energy.

All functions work on floating-point torch tensors and are differentiable in every tensor argument.
Where a score β x_iᵀξ overflows, the result is not finite. This raises ValueError, except in
`retrieve`, where the status is DIVERGED.
"""

from typing import Any

import torch

from spinformer.core.checks import check_flag, check_integer, check_real, check_tensor
from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of
from spinformer.hopfield.inputs import check_alpha, check_beta, check_result, check_states
from spinformer.hopfield.separation import (
    conjugate_at,
    covariance_weights,
    separation_margin,
    unchecked_conjugate,
    unchecked_entmax,
)

_PATTERNS = (..., "N", "d")


@record
class ContinuousRetrieval(Solution[torch.Tensor]):
    """Result of an iterated retrieval from a continuous Hopfield network.

    The queries have shape (..., S, d), and T is the number of retrieval steps that were taken.

    Attributes
    ----------
    value : Tensor, shape (..., S, d)
        Final states, with the shape of the queries broadcast against the patterns.
    residual : Tensor, shape (..., S)
        Euclidean length of the last step of each query.
    steps : Tensor of int, shape (..., S)
        Number of steps that each query took.
    status : Tensor of int, shape (..., S)
        CONVERGED where the residual is at most the tolerance, DIVERGED where a state is no longer
        finite (steps longer than 2 do that), otherwise STEP_LIMIT.
    energies : Tensor, shape (T + 1, ..., S)
        Energy of each query before the first step and after every step.
    attention : Tensor, shape (..., S, N)
        Attention weights of the last step of each query. For a step size of 1, `states =
        attention @ patterns`.
    trajectory : Tensor, shape (T + 1, ..., S, d), or None
        All states in order, if they were asked for.
    """

    energies: torch.Tensor
    attention: torch.Tensor
    trajectory: torch.Tensor | None = None

    @property
    def states(self) -> torch.Tensor:
        """Final states of the queries, shape (..., S, d)."""
        return self.value


def energy(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, alpha: float = 1.0
) -> torch.Tensor:
    r"""Energy of the continuous (modern) Hopfield network.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., S, d) or (d,)
        States, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S)
        The energy of each state.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----
    The energy of a state ξ among the patterns x_i is

    .. math::

        E(\xi) = \tfrac12\, \xi^\top \xi - \beta^{-1} \log \sum_i \exp(\beta\, x_i^\top \xi).

    The first term keeps the state bounded, and the log-sum-exp rewards overlap with a pattern. With
    another index α the log-sum-exp gives way to the conjugate Ω* of the Tsallis entropy.

    References
    ----------
    [bal2020energy, Eqs. (7), (8)], where β is 1.

    [santos2024sparse], for other indices than 1.

    Examples
    --------
    >>> energy(torch.eye(2), states=torch.zeros(2))
    tensor(-0.6931)
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta)
    alpha = check_alpha(alpha)
    scores = _scores(patterns, states, beta)
    potential = unchecked_conjugate(scores, alpha) / beta
    return check_result("energy", 0.5 * states.square().sum(-1) - potential)


def attention_weights(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, alpha: float = 1.0
) -> torch.Tensor:
    r"""Attention weights of a retrieval step: softmax, sparsemax or α-entmax of the scores.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., S, d) or (d,)
        States, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S, N)
        Contribution of each pattern to the update of each state. Rows sum to 1.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----

    .. math::

        p_i(\xi) = \operatorname{softmax}_i(\beta\, x_i^\top \xi).

    References
    ----------
    [bal2020energy, Eq. (10)]

    Examples
    --------
    >>> attention_weights(torch.eye(2), states=torch.zeros(2))
    tensor([0.5000, 0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta)
    weights = _weights(patterns, states, beta, check_alpha(alpha))
    return check_result("attention weights", weights)


def gradient(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, alpha: float = 1.0
) -> torch.Tensor:
    r"""Gradient of the energy of the continuous Hopfield network.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., S, d) or (d,)
        States, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S, d)
        The gradient at each state. It vanishes at a fixed point of the update.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----
    With the attention weights p the gradient is the state minus the retrieved pattern,

    .. math::

        \nabla E(\xi) = \xi - \sum_i p_i\, x_i, \qquad p_i = \operatorname{softmax}_i(\beta\,
        x_i^\top \xi).

    References
    ----------
    [bal2020energy, Eq. (10)]

    Examples
    --------
    >>> gradient(torch.eye(2), states=torch.zeros(2))
    tensor([-0.5000, -0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    result = states - _weights(patterns, states, beta, check_alpha(alpha)) @ patterns
    return check_result("gradient", result, patterns=patterns, states=states)


def jacobian(
    patterns: torch.Tensor, *, states: torch.Tensor, beta: float = 1.0, alpha: float = 1.0
) -> torch.Tensor:
    r"""Jacobian of the retrieval step of the continuous Hopfield network.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., S, d) or (d,)
        States, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., S, d, d)
        Derivative of the updated state with respect to the state.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----
    The Jacobian of the update f(ξ) = Σ_i p_i x_i is the covariance of the patterns under the
    attention weights p (for sparse weights another distribution, see
    `hopfield.separation.covariance_weights`),

    .. math::

        \frac{\partial f}{\partial \xi} = \beta \operatorname{Cov}_p(x).

    It is therefore symmetric and positive semidefinite. The Hessian of the energy is the identity
    minus this Jacobian, and its eigenvalues are at most 1.

    Examples
    --------
    >>> jacobian(torch.eye(2), states=torch.zeros(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    alpha = check_alpha(alpha)
    weights = _weights(patterns, states, beta, alpha)
    weights, factor = covariance_weights(weights, alpha)
    each = patterns if states.ndim == 1 else patterns.unsqueeze(-3)
    centred = each - (weights @ patterns).unsqueeze(-2)
    covariance = beta * centred.mT @ (weights.unsqueeze(-1) * centred)
    result = covariance * factor[..., None, None]
    return check_result("jacobian", result, patterns=patterns, states=states)


def update(
    patterns: torch.Tensor,
    *,
    states: torch.Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    step_size: float = 1.0,
) -> torch.Tensor:
    r"""Retrieval step of the continuous Hopfield network.

    With a step size of 1 the update is attention with the patterns as keys and values.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., S, d) or (d,)
        States, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).
    step_size : float, default 1.0
        Step size γ of gradient descent on the energy, not negative.

    Returns
    -------
    Tensor, shape (..., S, d)
        The states after one step.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----
    A step moves the state down the gradient of the energy,

    .. math::

        \xi' = \xi - \gamma\, \nabla E(\xi) = (1 - \gamma)\, \xi + \gamma \sum_i
        \operatorname{softmax}_i(\beta\, x_i^\top \xi)\, x_i.

    The energy falls for every 0 < γ < 2. The eigenvalues of the Hessian are at most 1, so that a
    step changes E by at most −γ (1 − γ/2) ‖∇E‖².

    References
    ----------
    [bal2020energy, Eqs. (11), (12)]

    Examples
    --------
    >>> update(torch.eye(2), states=torch.zeros(2))
    tensor([0.5000, 0.5000])
    """
    patterns, states, beta = _check(patterns, states=states, beta=beta, finite=False)
    step_size = check_real("step_size", step_size, low=0.0)
    target = _weights(patterns, states, beta, check_alpha(alpha)) @ patterns
    result = _moved(states, target, step_size)
    return check_result("update", result, patterns=patterns, states=states)


def retrieve(
    patterns: torch.Tensor,
    *,
    queries: torch.Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    steps: int | None = None,
    step_size: float = 1.0,
    tolerance: float = 1e-10,
    max_steps: int = 10_000,
    keep_trajectory: bool = False,
) -> ContinuousRetrieval:
    """Modern Hopfield retrieval: iterate the retrieval step of the continuous Hopfield network.

    With `steps=n` every query takes n steps, and the result is differentiable. With `steps=None`
    each query stops at its own first step that moves it by at most `tolerance`, or after
    `max_steps`, independently of the other queries in the batch.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    queries : Tensor, shape (..., S, d) or (d,)
        Initial states, one a row. Leading axes broadcast against those of `patterns`.
    beta : float, default 1.0
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).
    steps : int or None, default None
        Number of steps, at least 1. None iterates until the tolerance is reached.
    step_size : float, default 1.0
        Step size γ, positive.
    tolerance : float, default 1e-10
        Euclidean length of a step at or below which a query counts as converged, not negative.
    max_steps : int, default 10000
        Largest number of steps where `steps` is None, at least 1.
    keep_trajectory : bool, default False
        Whether to return all intermediate states.

    Returns
    -------
    ContinuousRetrieval
        Final states, their energies and attention weights, and whether each query converged.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the dtypes differ.
    ValueError
        If a shape does not fit or a value is not allowed. A state that overflows raises no error,
        but its status is DIVERGED.

    Notes
    -----
    A step of size γ has γ times the length ‖ξ − f(ξ)‖ of the residual of the fixed-point equation
    before it.

    Examples
    --------
    >>> result = retrieve(4.0 * torch.eye(2), queries=torch.tensor([1.0, 0.0]), tolerance=1e-6)
    >>> bool(result.converged), f"{float(result.states[0]):.1f}"
    (True, '4.0')
    """
    patterns, query, beta = _check(patterns, states=queries, beta=beta, name="queries")
    alpha = check_alpha(alpha)
    step_size = check_real("step_size", step_size, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    limit = check_integer("max_steps", max_steps, low=1)
    check_flag("keep_trajectory", keep_trajectory)
    if steps is not None:
        limit = check_integer("steps", steps, low=1)

    # One product with the patterns a step: its scores give a state's energy and its weights.
    scores = _scores(patterns, query, beta)
    following = unchecked_entmax(scores, alpha)
    weights = following
    state = query.expand(*weights.shape[:-1], query.shape[-1])
    energies = [_energy_at(state, following, scores, beta, alpha)]
    trajectory = [state]
    moving = torch.ones(state.shape[:-1], dtype=torch.bool, device=state.device)
    taken = torch.zeros_like(moving, dtype=torch.int64)
    residual = torch.zeros_like(state[..., 0])
    for _ in range(limit):
        # A query that has arrived stays put, so that slower neighbours cannot change it.
        weights = torch.where(moving.unsqueeze(-1), following, weights)
        moved = _moved(state, weights @ patterns, step_size)
        shift = torch.linalg.vector_norm((moved - state).detach(), dim=-1)
        state = torch.where(moving.unsqueeze(-1), moved, state)
        residual = torch.where(moving, shift, residual)
        taken = taken + moving
        if steps is None:
            # What overflowed moves by NaN, which is not above anything.
            moving = moving & (shift > tolerance)
        scores = _scores(patterns, state, beta)
        following = unchecked_entmax(scores, alpha)
        energies.append(_energy_at(state, following, scores, beta, alpha))
        if keep_trajectory:
            trajectory.append(state)
        if not bool(moving.any()):
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


def exact_retrieval_beta(patterns: torch.Tensor, *, alpha: float) -> torch.Tensor:
    r"""Inverse temperature from which each pattern is retrieved exactly, by sparse weights.

    At this β and above, the pattern is a fixed point without any error, and a query whose overlaps
    keep the margin reaches it in one step.

    Parameters
    ----------
    patterns : Tensor, shape (..., N, d)
        Stored patterns, one a row.
    alpha : float
        Index of the separation by α-entmax, 1 or from 1.01 to 2 (see `hopfield.separation`).

    Returns
    -------
    Tensor, shape (..., N)
        The inverse temperature of each pattern. It is infinite for a pattern that another one
        overlaps with at least as much as it does with itself, and for softmax, which always mixes.

    Raises
    ------
    TypeError
        If the patterns are not a floating-point tensor or the index is not a number.
    ValueError
        If a shape does not fit, a value is not allowed, or an overlap overflows.

    Notes
    -----
    A weight of α-entmax is 1 if its score leads all others by 1/(α − 1). With the scores β x_j·ξ
    the retrieval of pattern i from ξ is therefore exact if

    .. math::

        \beta \Big( x_i \cdot \xi - \max_{j \neq i} x_j \cdot \xi \Big) \ge \frac{1}{\alpha - 1}.

    The value returned is that of the query ξ = x_i.

    References
    ----------
    [santos2024sparse]

    Examples
    --------
    >>> exact_retrieval_beta(2.0 * torch.eye(2), alpha=2.0)
    tensor([0.2500, 0.2500])
    """
    patterns = check_tensor("patterns", patterns, shape=_PATTERNS)
    margin = separation_margin(alpha)
    overlaps = check_result("overlaps", patterns @ patterns.mT)
    itself = torch.eye(patterns.shape[-2], dtype=torch.bool, device=patterns.device)
    others = overlaps.masked_fill(itself, -torch.inf).amax(-1)
    lead = overlaps.diagonal(dim1=-2, dim2=-1) - others
    return torch.where(lead > 0, margin / torch.where(lead > 0, lead, 1.0), torch.inf)


def _check(
    patterns: Any, *, states: Any, beta: Any, name: str = "states", finite: bool = True
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The arguments, checked; without `finite` all but whether patterns and states are.

    A caller may leave that to `check_result` if the result contains p @ patterns, p the weights
    of the scores. A state that is not finite has no finite score, and its weights are NaN; a
    pattern that is not has a score of NaN, +inf or −inf, and its weight is NaN or multiplies it by
    0.
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


def _weights(
    patterns: torch.Tensor, states: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    return unchecked_entmax(beta * (states @ patterns.mT), alpha)


def _energy_at(
    states: torch.Tensor, weights: torch.Tensor, scores: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    potential = conjugate_at(weights, scores=scores, alpha=alpha) / beta
    return 0.5 * states.square().sum(-1) - potential


def _moved(states: torch.Tensor, target: torch.Tensor, step_size: float) -> torch.Tensor:
    # γ = 1 lands on the weighted mean itself, free of the rounding of ξ − (ξ − f(ξ)).
    return target if step_size == 1.0 else states - step_size * (states - target)
