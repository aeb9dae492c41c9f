r"""Separation by sparse softmax: α-entmax, of which softmax and sparsemax are the ends.

The Hopfield–Fenchel–Young networks of [santos2024sparse] replace log-sum-exp in the energy of the
continuous memory by the convex conjugate Ω*(z) = max_p (p·z − Ω(p)) of a negative entropy, and
softmax by its gradient, the maximizer p. (Their energy differs from this one by a constant.) Here Ω
is the negative Tsallis entropy of index α on the probability simplex [peters2019sparse],

    Ω(p) = (Σ_i p_i^α − 1) / (α(α − 1)),    Ω(p) = Σ_i p_i ln p_i at α = 1.

At α = 1 the maximizer is softmax and Ω* is log-sum-exp, at α = 2 it is sparsemax, the Euclidean
projection onto the simplex. In between, p_i = [(α − 1) z_i − τ]₊^{1/(α − 1)} with τ such that the
weights sum to 1. Weights are exactly 0 for every score that is low enough, and a score that exceeds
all others by the margin 1/(α − 1) has the weight 1. The index ends at 2, because beyond it the
weights change infinitely fast where one becomes 0.
"""

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_tensor
from spinformer.core.operators import is_traced, iteration_operator
from spinformer.hopfield.inputs import check_alpha

# Newton's method needs about ln N steps and then a few. In theory it could drop one term a step.
_EXTRA_STEPS = 100


def entmax(scores: Tensor, *, alpha: float) -> Tensor:
    r"""Sparse attention weights by α-entmax: softmax at α = 1, sparsemax at α = 2.

    Parameters
    ----------
    scores : Tensor, shape (..., N)
        Scores, with the inverse temperature in them. The value −inf excludes an entry.
    alpha : float
        Index of the Tsallis entropy, 1 or from 1.01 to 2.

    Returns
    -------
    Tensor, shape (..., N)
        Weights, not negative, whose rows sum to 1. They are differentiable any number of times,
        but not where a weight is just becoming 0.

    Raises
    ------
    TypeError
        If the scores are not a floating-point tensor or the index is not a number.
    ValueError
        If there is no score, a row has no finite score or one that is NaN or +inf, or the index is
        out of range.

    Notes
    -----
    The weights maximize the mean score plus the Tsallis entropy,

    .. math::

        p = \operatorname*{arg\,max}_{p \in \Delta} \Big( p \cdot z - \frac{\sum_i p_i^\alpha -
        1}{\alpha (\alpha - 1)} \Big), \qquad p_i = [(\alpha - 1) z_i - \tau]_+^{1/(\alpha - 1)}.

    The threshold τ is found by Newton's method, which for these α approaches it from one side. With
    s_i = p_i^{2 − α} where p_i > 0, and 0 elsewhere, the Jacobian is diag(s) − s sᵀ / Σ_i s_i.

    References
    ----------
    [peters2019sparse]

    [santos2024sparse]

    Examples
    --------
    >>> entmax(torch.tensor([1.0, 0.8, -1.0]), alpha=2.0)
    tensor([0.6000, 0.4000, 0.0000])
    >>> entmax(torch.tensor([2.0, 0.8, -1.0]), alpha=2.0)
    tensor([1., 0., 0.])
    """
    scores = check_scores(scores)
    alpha = check_alpha(alpha)
    return unchecked_entmax(scores, alpha)


def entmax_conjugate(scores: Tensor, *, alpha: float) -> Tensor:
    r"""Convex conjugate of the negative Tsallis entropy: log-sum-exp at α = 1.

    Parameters
    ----------
    scores : Tensor, shape (..., N)
        Scores. The value −inf excludes an entry.
    alpha : float
        Index of the Tsallis entropy, 1 or from 1.01 to 2.

    Returns
    -------
    Tensor, shape (...)
        The conjugate Ω*, whose gradient is `entmax`.

    Raises
    ------
    TypeError
        If the scores are not a floating-point tensor or the index is not a number.
    ValueError
        If there is no score, a row has no finite score or one that is NaN or +inf, or the index is
        out of range.

    Notes
    -----

    .. math::

        \Omega^*(z) = \max_{p \in \Delta} \Big( p \cdot z - \frac{\sum_i p_i^\alpha - 1}{\alpha
        (\alpha - 1)} \Big).

    It lies between the largest score and that plus the largest entropy, (1 − N^{1 − α}) / (α(α −
    1)).

    References
    ----------
    [santos2024sparse]

    Examples
    --------
    >>> entmax_conjugate(torch.zeros(2), alpha=2.0), entmax_conjugate(torch.zeros(2), alpha=1.0)
    (tensor(0.2500), tensor(0.6931))
    """
    scores = check_scores(scores)
    alpha = check_alpha(alpha)
    return unchecked_conjugate(scores, alpha)


def separation_margin(alpha: float) -> float:
    r"""Lead of one score over all others from which its weight is exactly 1.

    Parameters
    ----------
    alpha : float
        Index of the Tsallis entropy, 1 or from 1.01 to 2.

    Returns
    -------
    float
        The margin 1/(α − 1), infinite at α = 1: softmax never gives a weight of exactly 1.

    Raises
    ------
    TypeError
        If the index is not a number.
    ValueError
        If it is out of range.

    References
    ----------
    [santos2024sparse]

    Examples
    --------
    >>> separation_margin(2.0), separation_margin(1.5), separation_margin(1.0)
    (1.0, 2.0, inf)
    """
    alpha = check_alpha(alpha)
    return math.inf if alpha == 1.0 else 1.0 / (alpha - 1.0)


def check_scores(scores: Tensor) -> Tensor:
    """Check scores, some of which may be −inf.

    Parameters
    ----------
    scores : Tensor, shape (..., N)
        Scores with N at least 1.

    Returns
    -------
    Tensor, shape (..., N)
        The same tensor.

    Raises
    ------
    TypeError
        If they are not a floating-point tensor.
    ValueError
        If there is none, or a row has no finite score or one that is NaN or +inf.
    """
    scores = check_tensor("scores", scores, finite=False, shape=(..., "N"))
    largest = scores.detach().amax(-1)
    if not is_traced() and not bool(torch.isfinite(largest).all()):
        raise ValueError(
            "scores must have a finite maximum in every row, got NaN, +inf or no score"
        )
    return scores


# -- without checks ------------------------------------------------------------------------------


def unchecked_entmax(scores: Tensor, alpha: float) -> Tensor:
    """Weights of `entmax`, with nothing checked. A score of NaN or +inf makes its row NaN.

    Parameters
    ----------
    scores : Tensor, shape (..., N)
        Scores, at least one of each row above −inf.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    Tensor, shape (..., N)
        The weights.
    """
    if alpha == 1.0:
        return torch.softmax(scores, dim=-1)
    function = _Entmax if torch.compiler.is_compiling() else _EntmaxForward
    return function.apply(scores, alpha)


def unchecked_conjugate(scores: Tensor, alpha: float) -> Tensor:
    """Values of `entmax_conjugate`, with nothing checked.

    Parameters
    ----------
    scores : Tensor, shape (..., N)
        Scores, at least one of each row above −inf.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    Tensor, shape (...)
        The conjugate.
    """
    if alpha == 1.0:
        return torch.logsumexp(scores, dim=-1)
    return conjugate_at(unchecked_entmax(scores, alpha), scores=scores, alpha=alpha)


def conjugate_at(weights: Tensor, *, scores: Tensor, alpha: float) -> Tensor:
    """Values of `entmax_conjugate` where the weights are known. Nothing is checked.

    Parameters
    ----------
    weights : Tensor, shape (..., N)
        Weights of the scores, by `entmax`.
    scores : Tensor, shape (..., N)
        The scores.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    Tensor, shape (...)
        The conjugate. Log-sum-exp, at α = 1, reads the scores alone.
    """
    if alpha == 1.0:
        return torch.logsumexp(scores, dim=-1)
    # 0 · −inf is NaN: what has no weight adds nothing.
    mean_score = (weights * torch.where(weights > 0, scores, 0.0)).sum(-1)
    negative_entropy = (_power(weights, alpha).sum(-1) - 1.0) / (alpha * (alpha - 1.0))
    return mean_score - negative_entropy


def _power(weights: Tensor, exponent: float) -> Tensor:
    """Power where a weight is positive, and 0 elsewhere, in all derivatives, too."""
    support = weights > 0
    # Derivatives of a power may be infinite at 0, so that 0 must not enter it.
    return torch.where(support, torch.where(support, weights, 1.0).pow(exponent), 0.0)


def entmax_jacobian_product(weights: Tensor, direction: Tensor, alpha: float) -> Tensor:
    """Product of the symmetric Jacobian of `entmax` with a direction. Nothing is checked.

    Parameters
    ----------
    weights : Tensor, shape (..., N)
        Weights p of `entmax`.
    direction : Tensor, shape (..., N)
        Change of the scores.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    Tensor, shape (..., N)
        Change of the weights.
    """
    curvature = entmax_curvature(weights, alpha)
    mean = (curvature * direction).sum(-1, keepdim=True) / curvature.sum(-1, keepdim=True)
    return curvature * (direction - mean)


def entmax_curvature(weights: Tensor, alpha: float) -> Tensor:
    """Diagonal s of the Jacobian diag(s) − s sᵀ / Σs of `entmax`. Nothing is checked.

    Parameters
    ----------
    weights : Tensor, shape (..., N)
        Weights p of `entmax`.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    Tensor, shape (..., N)
        The powers p^{2 − α} where p > 0, and 0 elsewhere. For softmax these are the weights.
    """
    if alpha == 1.0:
        return weights
    return _power(weights, 2.0 - alpha)


def covariance_weights(weights: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Jacobian of `entmax` as the covariance of a distribution. Nothing is checked.

    Parameters
    ----------
    weights : Tensor, shape (..., N)
        Weights p of `entmax`, not all 0.
    alpha : float
        Index of the Tsallis entropy.

    Returns
    -------
    distribution : Tensor, shape (..., N)
        A distribution q. For softmax it is p, for sparsemax uniform where p > 0.
    factor : Tensor, shape (...)
        A factor S, 1 for softmax, with which the Jacobian is S (diag q − q qᵀ).
    """
    if alpha == 1.0:
        return weights, torch.ones_like(weights[..., 0])
    curvature = entmax_curvature(weights, alpha)
    factor = curvature.sum(-1)
    return curvature / factor.unsqueeze(-1), factor


@iteration_operator("entmax", axes=(1,))
def _entmax_operator(scores: Tensor, alpha: float) -> Tensor:
    """Newton's method for t = (α − 1) max z − τ, in which the weights are [t + d]₊^{1/(α − 1)}.

    The differences d = (α − 1)(z − max z) are at most 0, so that t is in (0, 1]. The sum of the
    weights is convex in t and at least 1 at t = 1: Newton's method comes down to the root.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    differences = (alpha - 1.0) * (wide - wide.amax(-1, keepdim=True))
    exponent = 1.0 / (alpha - 1.0)
    top = torch.ones_like(differences[..., :1])
    for _ in range(scores.shape[-1] + _EXTRA_STEPS):
        base = (top + differences).clamp_min_(0.0)
        weights, rates = _power_and_rate(base, exponent)
        total = weights.sum(-1, keepdim=True)
        lower = top - (total - 1.0) / (exponent * rates.sum(-1, keepdim=True))
        falling = lower < top
        if not bool(falling.any()):
            break
        top = torch.where(falling, lower, top)
    return (weights / total).to(scores.dtype)


def _power_and_rate(base: Tensor, exponent: float) -> tuple[Tensor, Tensor]:
    """The power of a base that is not negative, and that of one less, which is 0 at 0."""
    # The two indices in common use need no logarithm, which takes most of the time.
    if exponent == 1.0:
        return base, (base > 0).to(base.dtype)
    if exponent == 2.0:
        return base.square(), base
    rate = base.pow(exponent - 1.0)
    return rate * base, rate


@_entmax_operator.register_fake
def _(scores: Tensor, alpha: float) -> Tensor:
    return torch.empty_like(scores)


class _Entmax(torch.autograd.Function):
    """The weights with their derivatives, which the operator has not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, alpha: float) -> Tensor:
        return _entmax_operator(scores, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        # The weights themselves are saved: their own node supplies what second derivatives need.
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return entmax_jacobian_product(weights, grad, ctx.alpha), None


class _EntmaxForward(_Entmax):
    """The same with derivatives in forward mode, which torch's compiler refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (weights,) = ctx.saved_tensors
        return entmax_jacobian_product(weights, tangent, ctx.alpha)
