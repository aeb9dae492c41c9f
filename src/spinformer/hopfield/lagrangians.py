"""Convex functions of the scores, from which a continuous memory gets its energy and its weights.

A memory with stored patterns k_i scores a state by z_i = k_i·ξ. Choose a convex Λ(z); then

    E(ξ) = ½ ξ·ξ − β⁻¹ Λ(βz),   p = ∇Λ(βz),   ∇E = ξ − Σ_i p_i k_i,   ξ ← Σ_i p_i k_i.

Λ = log Σ exp is attention: p is the softmax [ramsauer2020hopfield]. In the words of
[krotov2020large] Λ is the Lagrangian of the hidden neurons and p their activity; in those of
[santos2024sparse] it is the conjugate of an entropy, p the transform that belongs to it.

Whatever convex Λ is chosen, a step lowers the energy by at least half the square of its length,

    E(ξ′) − E(ξ) ≤ −½ ‖ξ′ − ξ‖²,

because Λ lies above its tangent at ξ, and the step minimises ½ξ·ξ minus that tangent exactly.
Convexity is the only condition, and it is needed. Masked patterns have the score −inf.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spinformer.core.checks import check_instance, check_real
from spinformer.core.records import record

# Newton steps to the threshold of the entmax: log N to come near it, a handful more from there.
_NEWTON = 20


@record
class Lagrangian:
    """Λ, a convex function of the scores (..., N), and its gradient, the weights.

    value: Λ, (..., N) → (...). weights: ∇Λ, (..., N) → (..., N); None: automatic differentiation
    of `value`. Both are made of torch operations, treat leading axes separately, are the same
    under a permutation of patterns, and treat a score of −inf as a pattern that is not there. That
    Λ is convex is the user's promise. Raises TypeError for what is not a function.

    >>> hinge = Lagrangian(name="hinge", value=lambda z: z.clamp_min(0).square().sum(-1) / 2)
    >>> hinge.gradient(torch.tensor([-1.0, 2.0])).detach()
    tensor([0., 2.])
    """

    name: str
    value: Callable[[Tensor], Tensor]
    weights: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for what is not a function."""
        for name in ("value", "weights"):
            given = getattr(self, name)
            if not (callable(given) or (given is None and name == "weights")):
                raise TypeError(f"{name} must be a function, got {type(given).__name__}")

    def gradient(self, scores: Tensor) -> Tensor:
        """∇Λ at the scores (..., N), differentiable as often as `value` or `weights` is."""
        if self.weights is not None:
            return self.weights(scores)
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            point = scores if scores.requires_grad else scores.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.value(point).sum(), point, create_graph=recorded)
        return found

    def __str__(self) -> str:
        """The name."""
        return self.name


def check_lagrangian(lagrangian: object) -> Lagrangian:
    """`lagrangian`, if it is one; TypeError otherwise.

    >>> str(check_lagrangian(LOG_SUM_EXP))
    'log-sum-exp'
    """
    return check_instance("lagrangian", lagrangian, Lagrangian)


def entmax(alpha: float = 1.5) -> Lagrangian:
    """The conjugate of Tsallis' entropy, 1 < α ≤ 2: weights that can be exactly zero.

    Λ(z) = max_p p·z + Σ_i (p_i − p_i^α) / (α(α − 1)) over distributions p; its gradient is the
    maximiser p_i = [(α − 1) z_i − τ]₊^{1/(α−1)}, with τ such that Σ p = 1 [peters2019sparse]. α = 2
    is the sparsemax; α → 1 is log-sum-exp. A memory with these weights retrieves a well separated
    pattern exactly, after one step [santos2024sparse]. τ is found by Newton's method, whose last
    two steps carry the derivatives: first and second ones are right.

    >>> entmax(2.0).gradient(torch.tensor([1.0, 0.5, -3.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    alpha = check_real("alpha", alpha, low=1.0, high=2.0, open_low=True)
    rest = alpha - 1.0

    def power(excess: Tensor, exponent: float) -> Tensor:
        held = excess > 0
        return torch.where(held, torch.where(held, excess, 1.0) ** exponent, 0.0)

    def newton(scaled: Tensor, threshold: Tensor) -> Tensor:
        # Σ p is convex and falling in τ: steps from its left never pass the root.
        excess = scaled - threshold
        over = power(excess, 1.0 / rest).sum(-1, keepdim=True) - 1.0
        slope = power(excess, 1.0 / rest - 1.0).sum(-1, keepdim=True)
        return threshold + rest * over / slope

    def weights(scores: Tensor) -> Tensor:
        scaled = rest * scores
        with torch.no_grad():
            threshold = scaled.amax(-1, keepdim=True) - 1.0
            for _ in range(_NEWTON - 2):
                threshold = newton(scaled, threshold)
        for _ in range(2):
            threshold = newton(scaled, threshold)
        return power(scaled - threshold, 1.0 / rest)

    def value(scores: Tensor) -> Tensor:
        found = weights(scores)
        entropy = (found - found**alpha).sum(-1) / (alpha * rest)
        return torch.where(found > 0, found * scores, 0.0).sum(-1) + entropy

    return Lagrangian(name=f"entmax {alpha:g}", value=value, weights=weights)


def rectified_power(degree: float) -> Lagrangian:
    """Λ(z) = (Σ_i [z_i]₊ⁿ)^{1/n}, n = `degree` ≥ 2: the rectified powers of dense memories, normed.

    The weights are proportional to [z_i]₊ⁿ⁻¹, as in a dense memory of degree n
    [krotov2016dense], and have Σ_i p_i^{n/(n−1)} = 1. The bare sum Σ [z]₊ⁿ outgrows ½ξ·ξ for
    n > 2, and the energy has no minimum; its n-th root is convex and homogeneous: β drops out,
    n alone decides how sharply patterns are told apart. No positive score: all weights are zero.

    >>> rectified_power(3).gradient(torch.tensor([2.0, 0.0, -1.0]))
    tensor([1., 0., 0.])
    """
    degree = check_real("degree", degree, low=2.0)

    def relative(scores: Tensor) -> tuple[Tensor, Tensor]:
        # In units of the largest score nothing overflows; the norm is independent of the unit.
        positive = scores.clamp_min(0.0)
        top = positive.detach().amax(-1, keepdim=True)
        top = torch.where(top > 0, top, 1.0)
        return positive / top, top.squeeze(-1)

    def norm(shares: Tensor) -> Tensor:
        total = (shares**degree).sum(-1)
        return torch.where(total > 0, torch.where(total > 0, total, 1.0) ** (1.0 / degree), 0.0)

    def value(scores: Tensor) -> Tensor:
        shares, top = relative(scores)
        return norm(shares) * top

    def weights(scores: Tensor) -> Tensor:
        shares, _ = relative(scores)
        size = norm(shares).unsqueeze(-1)
        return (shares / torch.where(size > 0, size, 1.0)) ** (degree - 1.0)

    return Lagrangian(name=f"rectified power {degree:g}", value=value, weights=weights)


LOG_SUM_EXP = Lagrangian(
    name="log-sum-exp",
    value=lambda scores: torch.logsumexp(scores, dim=-1),
    weights=lambda scores: torch.softmax(scores, dim=-1),
)
