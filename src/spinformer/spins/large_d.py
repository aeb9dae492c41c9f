"""Vector spins of many components: free energy and mean-field equations, driven ones too.

N spins of D components, ‖σ_i‖² = D, E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over ordered pairs, J
any real matrix, so that a pair couples with J_ij + J_ji and a diagonal entry adds the constant
−D J_ii; Z = ⟨exp(−βE)⟩ over free spins. Everything here is in units in which nothing grows with D:
spins u = σ/√D of length one, fields h = H/√D, and E/D with the same J and β. Three theories:

*Saddle point*, exact for D → ∞. A multiplier t_i for the length of each spin makes the integral
Gaussian, with V = diag(t) − J, J symmetrised, and S = h hᵀ:

    φ(t) = β Σ_i t_i − ½ ln det V + (β/4) tr(S V⁻¹),
    ln Z/D = −(N/2)(1 + ln 2β) + φ(t*) − 1/(2D) ln det[φ''(t*)/(2β²)] + O(1/D²),

[bal2021transformers, Eqs. (vectorrandomising) and (partfun)], t* the minimum of φ, which is convex
where V is positive definite. With P = V⁻¹ S V⁻¹ the correlations C = V⁻¹/(2β) + P/4 have C_ii = 1
at t*: ∂φ/∂t_i = β(1 − C_ii), φ'' = ½ V⁻¹∘V⁻¹ + (β/2) V⁻¹∘P entry by entry, ⟨u⟩ = ½ V⁻¹ h.

*Mean field*, for weak couplings. With m_i = ⟨u_i⟩ and pairs B = J + Jᵀ without diagonal, to second
order [thouless1977solution; plefka1982convergence]

    ln Z/D = ½ Σ ln(1−m_i²) + β(½ Σ B_ij m_i·m_j + Σ h_i·m_i) [+ (β²/4) Σ B_ij² (1−m_i²)(1−m_j²)],
    m_i = L(θ_i),  θ_i = h_i + Σ_j B_ij m_j [− β m_i Σ_j B_ij² (1−m_j²)],
    L(θ) = 2βθ / (1 + √(1 + 4β²θ²)),

the brackets being order 2, the Onsager term.

*Driven* spins, all redrawn at once in h + J u, J any matrix: no energy. Their mean is 2βθ_i/(1 +
√(1 + 4β²(θ_i² + K_ii))), θ = h + J m and K = J Q Jᵀ with the covariance Q of the time before.

Torch tensors, couplings (..., N, N), fields (..., N, D); β is (...) at the saddle and in
`log_partition`, else (..., 1, 1). Numbers are not checked.
"""

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice

THEORIES = ("naive", "second order", "large D")


class _InverseLogdet(torch.autograd.Function):
    """One factorisation, with a backward pass of two products."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor, info = torch.linalg.cholesky_ex(matrix)
        # A sample without a factor (never a converged one) must stay visible as NaN, and one that
        # overflowed too: the inverse of infinity would look like a number.
        pivots = factor.diagonal(dim1=-2, dim2=-1)
        lost = (info != 0) | ~((pivots > 0) & pivots.isfinite()).all(-1)
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        factor = torch.where(lost[..., None, None], eye, factor)
        inverse = torch.cholesky_inverse(factor).masked_fill(lost[..., None, None], torch.nan)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inverse, logdet.masked_fill(lost, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, grad_inverse: Tensor, grad_logdet: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return grad_logdet[..., None, None] * inverse - inverse @ grad_inverse @ inverse


def inverse_logdet(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(V⁻¹, ln det V) of positive-definite, finite (..., N, N); NaN for any other."""
    inverse, logdet = _InverseLogdet.apply(matrix)
    return inverse, logdet


def field_source(fields: Tensor) -> Tensor:
    """What φ needs of the fields h (..., N, D), the smaller of h and S = h hᵀ."""
    return fields if fields.shape[-1] < fields.shape[-2] else fields @ fields.mT


def _is_square(source: Tensor) -> bool:
    return source.shape[-1] == source.shape[-2]


def spread(inverse: Tensor, source: Tensor) -> Tensor:
    """P = V⁻¹ S V⁻¹."""
    half = inverse @ source
    return half @ (inverse if _is_square(source) else half.mT)


def exponent(t: Tensor, inverse: Tensor, logdet: Tensor, source: Tensor, beta: Tensor) -> Tensor:
    """φ (...) of t, and of V⁻¹ and ln det V that belong to it."""
    other = inverse if _is_square(source) else inverse @ source
    return beta * t.sum(-1) - 0.5 * logdet + beta / 4 * (source * other).sum((-1, -2))


def slopes(inverse: Tensor, passed: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """∂φ/∂t (..., N) and φ'' (..., N, N) at V⁻¹ and P."""
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    lengths = lengths + passed.diagonal(dim1=-2, dim2=-1) / 4
    curvature = 0.5 * inverse * (inverse + beta[..., None, None] * passed)
    return beta[..., None] * (1 - lengths), curvature


def saddle_log_partition(
    t: Tensor, inverse: Tensor, logdet: Tensor, source: Tensor, beta: Tensor
) -> Tensor:
    """ln Z/D (...) of the leading order at t*, and V⁻¹ and ln det V that belong to it."""
    phi = exponent(t, inverse, logdet, source, beta)
    return phi - t.shape[-1] / 2 * (1 + (2 * beta).log())


def langevin_gain(square: Tensor, beta: Tensor) -> Tensor:
    """L(θ)/θ at θ²: between 0 and β, falling with the field."""
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def free_spins(fields: Tensor, beta: Tensor) -> Tensor:
    """L(h) (..., N, D)."""
    return langevin_gain(fields.square().sum(dim=-1, keepdim=True), beta) * fields


def onsager_gain(mean: Tensor, square: Tensor, beta: Tensor) -> Tensor:
    """β Σ_j B_ij² (1 − m_j²), (..., N, 1): what multiplies −m_i; `square` is B∘B."""
    return beta * (square @ (1 - mean.square().sum(dim=-1, keepdim=True)))


def mean_field(
    mean: Tensor, fields: Tensor, pair: Tensor, beta: Tensor, square: Tensor | None
) -> tuple[Tensor, Tensor]:
    """θ (..., N, D) at m and the gain L(θ)/θ there; `square` is B∘B for order 2, None for order 1.

    A step of the iteration is m ← L(θ).
    """
    theta = fields + pair @ mean
    if square is not None:
        theta = torch.addcmul(theta, onsager_gain(mean, square, beta), mean, value=-1)
    return theta, langevin_gain(theta.square().sum(dim=-1, keepdim=True), beta)


def log_partition(
    mean: Tensor, *, couplings: Tensor, fields: Tensor, beta: Tensor, order: int = 2
) -> Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    The diagonal of the couplings J adds β Σ J_ii.
    """
    pair, width = pair_couplings(couplings), 1 - mean.square().sum(-1)
    linear = ((fields + pair @ mean / 2) * mean).sum((-2, -1))
    total = torch.log(width).sum(-1) / 2
    total = total + beta * (linear + couplings.diagonal(dim1=-2, dim2=-1).sum(-1))
    if order == 2:
        total = total + beta**2 / 4 * ((pair.square() @ width[..., None])[..., 0] * width).sum(-1)
    return total


def pair_couplings(couplings: Tensor) -> Tensor:
    """B = J + Jᵀ with zero diagonal, (..., N, N)."""
    pair = couplings + couplings.mT
    return pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1))


def driven_step(
    mean: Tensor,
    covariance: Tensor,
    *,
    couplings: Tensor,
    fields: Tensor,
    beta: Tensor,
    theory: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """m (..., N, D), Q (..., N, N) and ⟨u_i(t+1)·u_j(t)⟩ (..., N, N) after one parallel step.

    "naive" leaves K out, "second order" takes the diagonal of Q alone, which is 1 − m²; only
    "large D" returns more of Q. Free spins start with L(h) and that diagonal.

    >>> one = torch.ones(1, 1)
    >>> system = {"couplings": 2 * one, "fields": one, "beta": one}
    >>> for theory in THEORIES:
    ...     print(driven_step(0 * one, one, **system, theory=theory)[0])
    tensor([[0.6180]])
    tensor([[0.3583]])
    tensor([[0.3583]])
    """
    check_choice("theory", theory, THEORIES)
    theta, carried = fields + couplings @ mean, couplings @ covariance
    square = theta.square().sum(dim=-1, keepdim=True)
    if theory == "second order":
        square = square + couplings.square() @ covariance.diagonal(dim1=-2, dim2=-1)[..., None]
    elif theory == "large D":
        passed = carried @ couplings.mT
        square = square + passed.diagonal(dim1=-2, dim2=-1)[..., None]
    gain = langevin_gain(square, beta)
    after = gain * theta
    width = torch.diag_embed(1 - after.square().sum(dim=-1))
    if theory == "large D":
        eye = torch.eye(passed.shape[-1], dtype=torch.bool, device=passed.device)
        width = width + (gain * passed * gain.mT).masked_fill(eye, 0.0)
    return after, width, after @ mean.mT + gain * carried


def entropy_rate(delayed: Tensor, *, couplings: Tensor, beta: Tensor) -> Tensor:
    """σ/D = β Σ_ij (J_ij − J_ji) ⟨u_i(t+1)·u_j(t)⟩, (...): nats a step and per component.

    That of a stationary state under constant fields; zero for symmetric couplings.

    >>> turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> entropy_rate(0.5 * turn, couplings=turn, beta=torch.ones(1, 1))
    tensor(2.)
    """
    return (beta * (couplings - couplings.mT) * delayed).sum(dim=(-2, -1))
