"""Fixed points of the continuous Hopfield update: search, classification and stability.

A fixed point obeys ξ* = Σ_i p_i x_i with p = softmax(β X ξ*) (patterns are rows, see `continuous`,
whose conventions hold here). Fixed points are classified by the number of patterns that share the
weight p: an average over all patterns, a metastable state over a subset, or a single pattern
[ramsauer2020hopfield, Sec. 3; bal2020energy, Sec. 5].

`fixed_point` iterates the retrieval step ξ ← Σ_i p_i k_i with p = softmax(β k·ξ + b), with an
optional bias b of the scores (−inf excludes a pattern). The Jacobian of a step, J = β
Kᵀ(diag p − ppᵀ)K, is symmetric and positive semidefinite, and below 1 at a stable fixed point. The
derivative of a fixed point, dξ = (1 − J)⁻¹ ∂f, is found by conjugate gradients, which takes the
memory of one step however many were made. If `max_steps` is reached before the fixed point, the
derivative is inexact by as much as the residual.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinformer.core.attention import nan_factor
from spinformer.core.checks import check_real, check_tensor
from spinformer.core.implicit import implicit_root
from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of
from spinformer.hopfield.attention import masked_attention_weights, unchecked_retrieval_step
from spinformer.hopfield.continuous import attention_weights, energy, gradient, jacobian, retrieve
from spinformer.hopfield.inputs import (
    check_alpha,
    check_beta,
    check_patterns,
    check_result,
    check_states,
)
from spinformer.hopfield.separation import covariance_weights

KINDS = ("single pattern", "metastable", "global average")
_MERGED = 1e-5  # two end points nearer than this, in units of the largest norm, are one
# What rounding moves a state by at a fixed point, in units in the last place of the longest key.
_ROUNDING = 4.0


@record
class FixedPoints(Solution[Tensor]):
    """Distinct fixed points of the Hopfield update, ordered by energy, with their stability.

    K fixed points were found from S starts. The one with the lowest energy comes first.

    Attributes
    ----------
    value : Tensor, shape (K, d)
        The fixed points, one a row.
    residual : Tensor, shape (S,)
        Distance ‖ξ − f(ξ)‖ where each start ended.
    steps : Tensor of int, shape (S,)
        Number of updates from each start.
    status : Tensor of int, shape (S,)
        CONVERGED where a start reached a fixed point, if necessary by Newton's method.
    entries : Tensor of int, shape (K,)
        Smallest number of attention weights that sum to 0.9.
    kinds : tuple of str, length K
        Kind of each fixed point, one of `KINDS`.
    stable : Tensor of bool, shape (K,)
        Whether the largest eigenvalue of the update's Jacobian is below 1, so that the fixed point
        is a strict minimum of the energy.
    basin : Tensor of int, shape (K,)
        Number of starts in the basin of attraction of each fixed point.
    """

    entries: Tensor
    kinds: tuple[str, ...]
    stable: Tensor
    basin: Tensor

    @property
    def points(self) -> Tensor:
        """Fixed points, shape (K, d)."""
        return self.value


def effective_entries(weights: Tensor) -> Tensor:
    """Effective number of patterns in each row of attention weights.

    The effective number is the smallest number of weights that sum to at least 0.9.

    Parameters
    ----------
    weights : Tensor, shape (..., N)
        Attention weights, not negative, with rows that sum to 1 within 1e-4.

    Returns
    -------
    Tensor of int, shape (...)
        Effective number of patterns of each row.

    Raises
    ------
    TypeError
        If the weights are not a floating-point tensor.
    ValueError
        If a weight is negative or a row does not sum to 1.

    Notes
    -----
    A sum that falls short of 0.9 by a few rounding errors counts as reaching it, so that 9 of 10
    equal weights do sum to 0.9.

    References
    ----------
    [ramsauer2020hopfield, Sec. 3 and Fig. 2], where this number is called k.

    Examples
    --------
    >>> effective_entries(torch.tensor([[0.8, 0.15, 0.05], [0.95, 0.05, 0.0]]))
    tensor([2, 1])
    """
    weights = check_tensor("weights", weights, low=0.0, shape=(..., "N"))
    slack = 4.0 * weights.shape[-1] * torch.finfo(weights.dtype).eps
    weights = weights.detach().double()
    totals = weights.sum(-1, keepdim=True)
    if weights.numel() and float((totals - 1.0).abs().max()) > 1e-4:
        raise ValueError(
            "weights must sum to 1 along the last axis, got sums from "
            f"{float(totals.min()):.6g} to {float(totals.max()):.6g}"
        )
    # NumPy sorts numbers alone several times faster than torch sorts them with their places.
    ranked = np.sort((weights / totals).cpu().numpy(), axis=-1)[..., ::-1]
    short = (np.cumsum(ranked, axis=-1) < 0.9 - slack).sum(-1)
    entries = np.minimum(short + 1, weights.shape[-1])
    return torch.as_tensor(entries, dtype=torch.int64, device=weights.device)


def classify(weights: Tensor) -> tuple[str, ...]:
    """Classification of fixed points: single pattern, metastable state or global average.

    Parameters
    ----------
    weights : Tensor, shape (K, N)
        Attention weights at each fixed point. Rows sum to 1.

    Returns
    -------
    tuple of str, length K
        The kind of each row, one of `KINDS`.

    Raises
    ------
    TypeError
        If the weights are not a floating-point tensor.
    ValueError
        If the weights are not a matrix, a weight is negative, or a row does not sum to 1.

    Notes
    -----
    With k the effective number of patterns (see `effective_entries`), the kind is "single pattern"
    for k = 1, "global average" for k > N/2 (class I of the source), and "metastable" in between. A
    memory of one pattern counts as a single pattern.

    References
    ----------
    [ramsauer2020hopfield, Sec. 3]

    [bal2020energy, Sec. 5]

    Examples
    --------
    >>> classify(torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]))
    ('single pattern', 'metastable')
    """
    size = check_tensor("weights", weights, ndim=2).shape[-1]
    entries = effective_entries(weights).tolist()
    kinds = []
    for count in entries:
        if count == 1:
            kinds.append("single pattern")
        elif count > size / 2:
            kinds.append("global average")
        else:
            kinds.append("metastable")
    return tuple(kinds)


def _check_wide(patterns: Tensor) -> Tensor:
    patterns = check_patterns(patterns).detach()
    if patterns.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"patterns must be float32 or float64, got {patterns.dtype}")
    return patterns


def _largest_slope(patterns: Tensor, weights: Tensor, beta: float) -> float:
    """Largest eigenvalue of β Cov_p(x), the Jacobian of the update where p are its weights."""
    scaled = weights.sqrt().unsqueeze(-1) * (patterns - weights @ patterns)
    # The smaller of the two Gram matrices has the same largest eigenvalue.
    fewer_patterns = patterns.shape[0] <= patterns.shape[1]
    gram = scaled @ scaled.mT if fewer_patterns else scaled.mT @ scaled
    return beta * float(torch.linalg.eigvalsh(check_result("squared norms", gram))[-1])


def mean_critical_beta(patterns: Tensor, *, alpha: float = 1.0) -> float:
    r"""Critical inverse temperature at which the mean of the centred patterns loses stability.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row, in float32 or float64. They are centred first.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).

    Returns
    -------
    float
        The critical inverse temperature β_c. It is infinite if all patterns are identical.

    Raises
    ------
    TypeError
        If the patterns are not a float32 or float64 tensor.
    ValueError
        If the patterns are not a finite nonempty matrix, their squares overflow, or the index is
        out of range.

    Notes
    -----
    For patterns of zero mean, ξ = 0 is a fixed point at every β with uniform weights, and the
    Jacobian there is β N^{α − 1} times the covariance of the patterns (with 1/N). Its stability is
    lost at

    .. math::

        \beta_c = N^{1 - \alpha} / \lambda_{\max}(\operatorname{Cov}(x)).

    Patterns of nonzero mean c are centred first, because the scores βx_iᵀc act as a field, and
    with it the mean is in general no fixed point.

    Examples
    --------
    >>> f"{mean_critical_beta(torch.eye(2)):.3f}"
    '2.000'
    """
    patterns = _check_wide(patterns)
    alpha = check_alpha(alpha)
    uniform = torch.full_like(patterns[:, 0], 1.0 / len(patterns))
    # In units of the largest entry, so that squares of small ones do not vanish.
    unit = float(patterns.abs().max()) or 1.0
    largest = _largest_slope(patterns / unit, uniform, len(patterns) ** (alpha - 1.0))
    return 1.0 / largest / unit / unit if largest > 0.0 else float("inf")


def find_fixed_points(
    patterns: Tensor,
    *,
    beta: float,
    alpha: float = 1.0,
    starts: Tensor | None = None,
    tolerance: float = 1e-10,
    max_steps: int = 2_000,
) -> FixedPoints:
    r"""Fixed points of the continuous Hopfield update, with their basins of attraction.

    The update runs from every start until it converges. A start that is still moving after
    `max_steps`, as happens near a bifurcation, is finished with Newton's method on ξ − f(ξ) = 0,
    and kept only if Newton's method arrives within 0.1 of where the start was, in units of the
    largest pattern norm. End points closer than 1e-5 in the same unit count as one.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row, in float32 or float64.
    beta : float
        Inverse temperature, positive.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).
    starts : Tensor, shape (S, d), or None, default None
        Initial states. None takes the mean and every pattern.
    tolerance : float, default 1e-10
        Length of a step, in units of the largest pattern norm, at or below which a start counts as
        converged. It is positive.
    max_steps : int, default 2000
        Largest number of updates from each start, at least 1.

    Returns
    -------
    FixedPoints
        The distinct fixed points, lowest energy first, with kind, stability and basin size.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the squared norms overflow.

    Notes
    -----
    A fixed point obeys

    .. math::

        \xi^* = \sum_i \operatorname{softmax}_i(\beta\, x_i^\top \xi^*)\, x_i.

    References
    ----------
    [ramsauer2020hopfield, Sec. 3]

    [bal2020energy, Sec. 5]

    Examples
    --------
    >>> result = find_fixed_points(4.0 * torch.eye(2, dtype=torch.float64), beta=1.0)
    >>> result.kinds, result.basin.tolist(), result.stable.tolist()
    (('single pattern', 'single pattern', 'global average'), [1, 1, 1], [True, True, False])
    """
    patterns = _check_wide(patterns)
    memory = _Memory(patterns, beta=check_beta(beta), alpha=check_alpha(alpha))
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    if starts is None:
        starts = torch.cat([patterns.mean(0, keepdim=True), patterns])
    starts = check_tensor("starts", starts, shape=(None, patterns.shape[1])).detach()
    starts = check_states("starts", starts, patterns=patterns)
    scale = float(torch.linalg.vector_norm(patterns, dim=-1).max()) or 1.0
    if not scale < torch.finfo(patterns.dtype).max ** 0.5:
        raise ValueError(f"patterns must have squared norms within the range of {patterns.dtype}")
    ends = retrieve(
        patterns,
        queries=starts,
        beta=memory.beta,
        alpha=memory.alpha,
        tolerance=tolerance * scale,
        max_steps=max_steps,
    )
    states = ends.states.clone()
    arrived = ends.converged.clone()
    for index in torch.nonzero(~arrived).flatten().tolist():
        root = memory.newton(states[index], tolerance * scale)
        if root is not None and float((root - states[index]).norm()) < 0.1 * scale:
            states[index] = root
            arrived[index] = True

    order = torch.argsort(memory.energy(states), stable=True)
    points = states[:0]
    basin: list[int] = []
    for index in order[arrived[order]].tolist():
        near = (points - states[index]).norm(dim=-1) <= _MERGED * scale
        if bool(near.any()):
            basin[int(near.nonzero()[0])] += 1
        else:
            points = torch.cat([points, states[index : index + 1]])
            basin.append(1)
    weights = memory.weights(points)
    distributions, factors = covariance_weights(weights, memory.alpha)
    stable = [
        _largest_slope(patterns, distribution, memory.beta * float(factor)) < 1.0
        for distribution, factor in zip(distributions, factors, strict=True)
    ]
    return FixedPoints(
        value=points,
        residual=memory.gradient(states).norm(dim=-1),
        steps=ends.steps,
        status=status_of(arrived),
        entries=effective_entries(weights),
        kinds=classify(weights),
        stable=torch.tensor(stable, dtype=torch.bool, device=points.device),
        basin=torch.tensor(basin, dtype=torch.int64, device=points.device),
    )


class _Memory:
    """A continuous memory with its β and α, so that a search need not repeat them."""

    def __init__(self, patterns: Tensor, *, beta: float, alpha: float) -> None:
        self.patterns = patterns
        self.beta = beta
        self.alpha = alpha

    def energy(self, states: Tensor) -> Tensor:
        return energy(self.patterns, states=states, beta=self.beta, alpha=self.alpha)

    def weights(self, states: Tensor) -> Tensor:
        return attention_weights(self.patterns, states=states, beta=self.beta, alpha=self.alpha)

    def gradient(self, states: Tensor) -> Tensor:
        return gradient(self.patterns, states=states, beta=self.beta, alpha=self.alpha)

    def hessian(self, states: Tensor) -> Tensor:
        width = self.patterns.shape[1]
        identity = torch.eye(width, dtype=self.patterns.dtype, device=self.patterns.device)
        return identity - jacobian(self.patterns, states=states, beta=self.beta, alpha=self.alpha)

    def newton(self, state: Tensor, tolerance: float) -> Tensor | None:
        """Fixed point by Newton's method, None where 50 steps do not find it."""
        for _ in range(50):
            slope = self.gradient(state).unsqueeze(-1)
            step = torch.linalg.lstsq(self.hessian(state), slope).solution.squeeze(-1)
            state = state - step
            if not bool(torch.isfinite(state).all()):
                return None
            if float(step.norm()) <= tolerance:
                return state
        return None


# -- the derivative of a fixed point --------------------------------------------------------------


def fixed_point(
    start: Tensor,
    *,
    keys: Tensor,
    beta: Tensor,
    bias: Tensor | None = None,
    alpha: float = 1.0,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Fixed point of the retrieval step, with implicit derivatives.

    Every state is iterated until it moves by at most `tolerance`, independently of the others. A
    state that has arrived stays where it is. A tolerance below rounding counts as rounding (see
    `fixed_point_tolerance`). Where an input is not finite or a score may overflow, the state is
    NaN and so is its last move. Nothing else is checked.

    Parameters
    ----------
    start : Tensor, shape (..., S, d)
        Initial states, one a row.
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    beta : Tensor, broadcastable to the keys
        Inverse temperatures.
    bias : Tensor, shape (..., S, N), or None, default None
        Numbers added to the scores. The value −inf excludes a pattern.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).
    tolerance : float
        Euclidean length of a step at or below which a state counts as converged.
    max_steps : int
        Largest number of retrieval steps.

    Returns
    -------
    states : Tensor, shape (..., S, d)
        The fixed points.
    moved : Tensor, shape (..., S)
        Euclidean length of the last step of each state.
    steps : Tensor of int, shape (..., S)
        Number of retrieval steps of each state.

    Notes
    -----
    The fixed points carry the implicit derivative in `keys`, `beta` and `bias`,

    .. math::

        d\xi = (1 - J)^{-1}\, \partial f, \qquad J = \beta K^\top (\operatorname{diag} p - p
        p^\top) K,

    to any order, and none in `start`. (For sparse weights the Jacobian has the distribution of
    `hopfield.separation.covariance_weights` in place of p.) The linear system is solved by
    conjugate gradients, and from the second order on through a dense Jacobian, d products. Inside
    `torch.vmap` a whole batch is iterated together.

    Examples
    --------
    >>> state, moved, steps = fixed_point(torch.tensor([[1.0, 0.0]]), keys=4 * torch.eye(2),
    ...                           beta=torch.ones(()), tolerance=1e-6, max_steps=50)
    >>> f"{float(state[0, 0]):.3f}", bool((moved <= 1e-6).all())
    ('4.000', True)
    """
    solve: Any = _FixedPoint.apply
    if torch.compiler.is_compiling():
        # The loop stays outside of the graph. Saying so at the top would import torch's compiler.
        solve = torch.compiler.disable(_FixedPoint.apply)
    state, moved, steps = solve(tolerance, max_steps, alpha, start, keys, beta, bias)
    factor = nan_factor(start, keys=keys * beta, contents=(keys,), mask=bias, again=True)
    if factor is not None:
        state = state * factor
        moved = moved * factor.squeeze(-1)
    return state, moved, steps


def fixed_point_tolerance(keys: Tensor, tolerance: float) -> Tensor:
    """Smallest tolerance that rounding allows for the fixed point of a retrieval step.

    Nothing is checked.

    Parameters
    ----------
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    tolerance : float
        Tolerance that is asked for.

    Returns
    -------
    Tensor, shape (..., 1)
        The tolerance, or a few units in the last place of the longest key if that is larger.

    Examples
    --------
    >>> fixed_point_tolerance(torch.eye(2), 1e-3), fixed_point_tolerance(torch.eye(2), 0.0) < 1e-5
    (tensor([0.0010]), tensor([True]))
    """
    longest = torch.linalg.vector_norm(keys.detach(), dim=-1).amax(-1, keepdim=True)
    return (_ROUNDING * torch.finfo(keys.dtype).eps * longest).clamp_min(tolerance)


class _FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(
        tolerance: float,
        max_steps: int,
        alpha: float,
        start: Tensor,
        keys: Tensor,
        beta: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        scaled = keys * beta

        def step(state: Tensor) -> tuple[Tensor, Tensor]:
            following = unchecked_retrieval_step(
                state, scaled=scaled, content=keys, bias=bias, alpha=alpha
            )
            return following, torch.linalg.vector_norm(following - state, dim=-1)

        enough = fixed_point_tolerance(keys, tolerance)
        state, moved = step(start)
        steps = torch.ones_like(moved, dtype=torch.int64)
        for _ in range(max_steps - 1):
            # A state that is no longer finite moves by NaN, which is not above anything.
            moving = moved > enough
            if not bool(moving.any()):
                break
            following, shift = step(state)
            state = torch.where(moving.unsqueeze(-1), following, state)
            moved = torch.where(moving, shift, moved)
            steps = steps + moving
        return state, moved, steps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        tolerance, max_steps, alpha, _, keys, beta, bias = inputs
        ctx.tolerance = tolerance
        ctx.max_steps = max_steps
        ctx.alpha = alpha
        ctx.mark_non_differentiable(*output[1:])
        parameters = (keys, beta) if bias is None else (keys, beta, bias)
        ctx.save_for_backward(output[0], *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        alpha = ctx.alpha
        differentiated = torch.is_grad_enabled()
        saved = ctx.saved_tensors
        if differentiated:
            # Fresh views keep the partial derivatives of one step apart from the dependence of
            # the state on the parameters, which its own node supplies when this pass is
            # differentiated.
            state, *parameters = [tensor.view_as(tensor) for tensor in saved]
        else:
            state, *parameters = [tensor.detach() for tensor in saved]

        def residual(adjoint: Tensor, right: Tensor, *point: Tensor) -> Tensor:
            return adjoint - _jacobian_product(alpha, *point)(adjoint) - right

        with torch.no_grad():
            product = _jacobian_product(alpha, state, *parameters)
            adjoint = _conjugate_gradients(product, grad, ctx.tolerance, ctx.max_steps)
        with torch.enable_grad():
            if differentiated:
                adjoint = implicit_root(residual, adjoint, grad, state, *parameters)
            parameters = [x if x.requires_grad else x.requires_grad_() for x in parameters]
            keys, beta, *biases = parameters
            weights = masked_attention_weights(
                state, scaled=keys * beta, bias=biases[0] if biases else None, alpha=alpha
            )
            grads = torch.autograd.grad(
                weights @ keys, parameters, adjoint, create_graph=differentiated
            )
        grad_bias = grads[2] if biases else None
        return None, None, None, None, grads[0], grads[1], grad_bias

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        # Leading axes are systems already: the mapped one goes in front of them all.
        pairs = list(zip(inputs, in_dims, strict=True))
        rank = max(x.ndim - (dim is not None) for x, dim in pairs if isinstance(x, Tensor))
        moved = []
        for x, dim in pairs:
            if dim is not None:
                x = x.movedim(dim, 0)
                x = x.reshape(len(x), *[1] * (rank + 1 - x.ndim), *x.shape[1:])
            moved.append(x)
        return _FixedPoint.apply(*moved), (0, 0, 0)


def _jacobian_product(
    alpha: float, state: Tensor, keys: Tensor, beta: Tensor, bias: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """u → J u with the Jacobian J = β Kᵀ(diag p − ppᵀ)K of a retrieval step at `state`."""
    scaled = keys * beta
    weights = masked_attention_weights(state, scaled=scaled, bias=bias, alpha=alpha)
    if alpha != 1.0:
        # A state that may attend to nothing has no weights: the Jacobian is 0, not 0/0.
        blind = (weights == 0).all(-1, keepdim=True)
        weights, factor = covariance_weights(weights.masked_fill(blind, 1.0), alpha)
        scale = factor.unsqueeze(-1).masked_fill(blind, 0.0)
    mean = weights @ keys

    def product(u: Tensor) -> Tensor:
        scores = weights * (u @ scaled.mT)
        change = scores @ keys - scores.sum(-1, keepdim=True) * mean
        return change if alpha == 1.0 else scale * change

    return product


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Tensor, tolerance: float, limit: int
) -> Tensor:
    """u with u − `product`(u) = `right`, a system per state, to `tolerance` of its right-hand side.

    One that meets a direction in which 1 − J is not positive keeps what it has.
    """
    tolerance = max(tolerance, 8 * torch.finfo(right.dtype).eps)
    solution = torch.zeros_like(right)
    residual = right
    direction = right
    size = residual.square().sum(-1, keepdim=True)
    enough = tolerance**2 * size
    going = size > enough
    for _ in range(min(limit, 2 * right.shape[-1])):
        if not bool(going.any()):
            break
        image = direction - product(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        going = going & (curvature > 0)
        length = torch.where(going, size / torch.where(going, curvature, 1.0), 0.0)
        solution = solution + length * direction
        residual = residual - length * image
        new = residual.square().sum(-1, keepdim=True)
        direction = (
            residual + torch.where(going, new / torch.where(going, size, 1.0), 0.0) * direction
        )
        size = new
        going = going & (new > enough)
    return solution
