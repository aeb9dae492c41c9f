"""Vector spins with many components: saddle point, mean field with Onsager term, driven dynamics.

N spins of D components, ‖σ_i‖² = D, have the energy E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over
ordered pairs with any real matrix J, so that a pair couples with J_ij + J_ji and a diagonal entry
adds the constant −D J_ii. The partition function Z = ⟨exp(−βE)⟩ is an average over free spins.
Everything here is in units in which nothing grows with D: spins u = σ/√D of length one, fields
h = H/√D, and E/D with the same J and β. There are three theories:

*Saddle point*, exact for D → ∞. A Lagrange multiplier t_i for the length of each spin makes the
integral Gaussian, with V = diag(t) − J, J symmetrised, and S = h hᵀ:

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

where the terms in brackets belong to order 2; the one in θ_i is the Onsager reaction term.

*Driven* spins, all redrawn at once in the field h + J u with any matrix J, have no energy. Their
mean is 2βθ_i/(1 + √(1 + 4β²(θ_i² + K_ii))) with θ = h + J m and K = J Q Jᵀ, where Q is the
covariance at the time before.

All arguments are torch tensors, couplings (..., N, N) and fields (..., N, D); β has the shape (...)
at the saddle point and in `log_partition`, and otherwise (..., 1, 1). Values are not checked.
"""

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice
from spinformer.core.operators import is_forward_mode

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
    """Compute the inverse and the log-determinant of positive definite matrices.

    One Cholesky factorisation serves both results, and the backward pass takes two matrix products.

    Parameters
    ----------
    matrix : Tensor, shape (..., N, N)
        Symmetric matrices V.

    Returns
    -------
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹; NaN where V is not positive definite or not finite.
    logdet : Tensor, shape (...)
        Logarithm of the determinant, ln det V; NaN in the same places.
    """
    if is_forward_mode():
        # Differentiable in either mode and to any order, at three times the cost.
        factor = torch.linalg.cholesky_ex(matrix).L
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return torch.linalg.inv_ex(matrix).inverse, logdet
    inverse, logdet = _InverseLogdet.apply(matrix)
    return inverse, logdet


def field_source(fields: Tensor) -> Tensor:
    """Reduce the fields to the smaller of h and its Gram matrix S = h hᵀ.

    The action φ depends on the fields through S alone.

    Parameters
    ----------
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.

    Returns
    -------
    Tensor, shape (..., N, D) or (..., N, N)
        The fields h if D < N, else the Gram matrix S.
    """
    return fields if fields.shape[-1] < fields.shape[-2] else fields @ fields.mT


def _is_square(source: Tensor) -> bool:
    return source.shape[-1] == source.shape[-2]


def field_correlation(inverse: Tensor, source: Tensor) -> Tensor:
    """Compute the field part of the correlations, P = V⁻¹ S V⁻¹.

    Parameters
    ----------
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹.
    source : Tensor, shape (..., N, D) or (..., N, N)
        Fields h or their Gram matrix, as `field_source` gives them.

    Returns
    -------
    Tensor, shape (..., N, N)
        The matrix P, four times ⟨u⟩⟨u⟩ᵀ.
    """
    half = inverse @ source
    return half @ (inverse if _is_square(source) else half.mT)


def effective_action(
    t: Tensor, inverse: Tensor, logdet: Tensor, source: Tensor, beta: Tensor
) -> Tensor:
    r"""Compute the effective action φ(t) of the Lagrange multipliers.

    Parameters
    ----------
    t : Tensor, shape (..., N)
        Lagrange multipliers.
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹ that belongs to t.
    logdet : Tensor, shape (...)
        Logarithm ln det V that belongs to t.
    source : Tensor, shape (..., N, D) or (..., N, N)
        Fields h or their Gram matrix, as `field_source` gives them.
    beta : Tensor, shape (...)
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (...)
        The action φ(t).

    Notes
    -----
    The saddle point is the minimum of

    .. math::

        \varphi(t) = \beta \sum_i t_i - \tfrac12 \ln\det V
            + \tfrac{\beta}{4} \operatorname{tr}(h h^\top V^{-1}),
        \qquad V = \operatorname{diag}(t) - J.

    References
    ----------
    [bal2021transformers, Eq. (partfun)]
    """
    other = inverse if _is_square(source) else inverse @ source
    return beta * t.sum(-1) - 0.5 * logdet + beta / 4 * (source * other).sum((-1, -2))


def action_gradient(inverse: Tensor, passed: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute gradient and Hessian of the effective action φ.

    Parameters
    ----------
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹.
    passed : Tensor, shape (..., N, N)
        The matrix P = V⁻¹ S V⁻¹, as `field_correlation` gives it.
    beta : Tensor, shape (...)
        Inverse temperature β.

    Returns
    -------
    gradient : Tensor, shape (..., N)
        Derivatives ∂φ/∂t_i = β(1 − C_ii).
    hessian : Tensor, shape (..., N, N)
        Second derivatives φ''.

    Notes
    -----
    With entrywise products,

    .. math::

        \frac{\partial \varphi}{\partial t_i} = \beta \Big(1 - \frac{(V^{-1})_{ii}}{2\beta}
            - \frac{P_{ii}}{4}\Big), \qquad
        \varphi'' = \tfrac12 V^{-1} \circ V^{-1} + \tfrac{\beta}{2} V^{-1} \circ P.
    """
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    lengths = lengths + passed.diagonal(dim1=-2, dim2=-1) / 4
    curvature = 0.5 * inverse * (inverse + beta[..., None, None] * passed)
    return beta[..., None] * (1 - lengths), curvature


def saddle_log_partition(
    t: Tensor, inverse: Tensor, logdet: Tensor, source: Tensor, beta: Tensor
) -> Tensor:
    """Compute ln Z/D to leading order in 1/D at the saddle point.

    Parameters
    ----------
    t : Tensor, shape (..., N)
        Lagrange multipliers t* at the saddle point.
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹ that belongs to t*.
    logdet : Tensor, shape (...)
        Logarithm ln det V that belongs to t*.
    source : Tensor, shape (..., N, D) or (..., N, N)
        Fields h or their Gram matrix, as `field_source` gives them.
    beta : Tensor, shape (...)
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (...)
        The leading order −(N/2)(1 + ln 2β) + φ(t*), in nats per component.
    """
    phi = effective_action(t, inverse, logdet, source, beta)
    return phi - t.shape[-1] / 2 * (1 + (2 * beta).log())


def langevin_gain(square: Tensor, beta: Tensor) -> Tensor:
    r"""Compute the gain L(θ)/θ of a free spin, the ratio of magnetization to field.

    Parameters
    ----------
    square : Tensor
        Squared field θ²; any shape that broadcasts against β.
    beta : Tensor
        Inverse temperature β.

    Returns
    -------
    Tensor
        The gain, between 0 and β, which decreases with the field.

    Notes
    -----
    The gain is that of the Langevin function for many components,

    .. math::

        \frac{L(\theta)}{\theta} = \frac{2\beta}{1 + \sqrt{1 + 4\beta^2\theta^2}}.
    """
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def langevin_response(fields: Tensor, beta: Tensor) -> Tensor:
    """Compute the magnetization L(h) of free spins, the large-D Langevin response.

    Parameters
    ----------
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (..., N, D)
        Mean spins ⟨u⟩ without couplings.
    """
    return langevin_gain(fields.square().sum(dim=-1, keepdim=True), beta) * fields


def onsager_gain(mean: Tensor, square: Tensor, beta: Tensor) -> Tensor:
    """Compute the factor of the Onsager reaction term, β Σ_j B_ij² (1 − m_j²).

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m.
    square : Tensor, shape (..., N, N)
        Entrywise square B∘B of the pair couplings.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (..., N, 1)
        The factor that multiplies −m_i in the field θ_i.
    """
    return beta * (square @ (1 - mean.square().sum(dim=-1, keepdim=True)))


def mean_field(
    mean: Tensor, fields: Tensor, pair: Tensor, beta: Tensor, square: Tensor | None
) -> tuple[Tensor, Tensor]:
    r"""Compute the local field θ(m) and the gain of the mean-field (TAP) equations of vector spins.

    One step of the fixed-point iteration is m ← L(θ), the product of the two results.

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    pair : Tensor, shape (..., N, N)
        Pair couplings B = J + Jᵀ with zero diagonal.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.
    square : Tensor, shape (..., N, N), or None
        Entrywise square B∘B for order 2, with the Onsager term; None for order 1.

    Returns
    -------
    theta : Tensor, shape (..., N, D)
        Local fields θ.
    gain : Tensor, shape (..., N, 1)
        The ratio L(θ)/θ.

    Notes
    -----
    The local field is

    .. math::

        \theta_i = h_i + \sum_j B_{ij} m_j - \beta m_i \sum_j B_{ij}^2 (1 - m_j^2).

    References
    ----------
    [thouless1977solution]

    [plefka1982convergence]
    """
    theta = fields + pair @ mean
    if square is not None:
        theta = torch.addcmul(theta, onsager_gain(mean, square, beta), mean, value=-1)
    return theta, langevin_gain(theta.square().sum(dim=-1, keepdim=True), beta)


def log_partition(
    mean: Tensor, *, couplings: Tensor, fields: Tensor, beta: Tensor, order: int = 2
) -> Tensor:
    r"""Compute the mean-field ln Z/D of vector spins at given magnetizations.

    The result is stationary in m at the fixed point of the mean-field equations of the same order.
    The diagonal of the couplings adds β Σ J_ii.

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m.
    couplings : Tensor, shape (..., N, N)
        Couplings J of ordered pairs.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : Tensor, shape (...)
        Inverse temperature β.
    order : {1, 2}, default 2
        Order in the couplings: 1 is naive mean field, 2 adds the Onsager term.

    Returns
    -------
    Tensor, shape (...)
        Approximation of ln Z/D, in nats per component.

    Notes
    -----
    To second order, with B = J + Jᵀ without diagonal,

    .. math::

        \frac{\ln Z}{D} = \tfrac12 \sum_i \ln(1 - m_i^2)
            + \beta \Big(\tfrac12 \sum_{ij} B_{ij}\, m_i \cdot m_j + \sum_i h_i \cdot m_i\Big)
            + \tfrac{\beta^2}{4} \sum_{ij} B_{ij}^2 (1 - m_i^2)(1 - m_j^2).
    """
    pair = pair_couplings(couplings)
    width = 1 - mean.square().sum(-1)
    linear = ((fields + pair @ mean / 2) * mean).sum((-2, -1))
    total = torch.log(width).sum(-1) / 2
    total = total + beta * (linear + couplings.diagonal(dim1=-2, dim2=-1).sum(-1))
    if order == 2:
        total = total + beta**2 / 4 * ((pair.square() @ width[..., None])[..., 0] * width).sum(-1)
    return total


def pair_couplings(couplings: Tensor) -> Tensor:
    """Compute the couplings of unordered pairs, B = J + Jᵀ with zero diagonal.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Couplings J of ordered pairs.

    Returns
    -------
    Tensor, shape (..., N, N)
        Pair couplings B.
    """
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
    r"""Advance the mean-field equations of driven vector spins by one parallel update.

    The means and covariances of the spins at one time give those at the next. Free spins start with
    the mean L(h) and the diagonal covariance 1 − m².

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m at time t.
    covariance : Tensor, shape (..., N, N)
        Covariance Q of the spins at time t, ⟨u_i·u_j⟩ − m_i·m_j.
    couplings : Tensor, shape (..., N, N)
        Couplings J into each spin, any real matrix.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.
    theory : {"naive", "second order", "large D"}
        Theory of the fluctuations: "naive" neglects K; "second order" uses the diagonal of Q alone,
        which is 1 − m²; "large D" uses the whole of Q, and only this theory returns more of Q than
        its diagonal.

    Returns
    -------
    mean : Tensor, shape (..., N, D)
        Magnetizations at time t + 1.
    covariance : Tensor, shape (..., N, N)
        Covariance at time t + 1.
    delayed : Tensor, shape (..., N, N)
        Time-delayed correlations ⟨u_i(t+1)·u_j(t)⟩.

    Raises
    ------
    ValueError
        If `theory` is not one of the three.

    Notes
    -----
    With θ = h + J m and K = J Q Jᵀ, the magnetization is

    .. math::

        m_i(t+1) = \frac{2\beta\theta_i}{1 + \sqrt{1 + 4\beta^2(\theta_i^2 + K_{ii})}}.

    Examples
    --------
    >>> one = torch.ones(1, 1)
    >>> system = {"couplings": 2 * one, "fields": one, "beta": one}
    >>> for theory in THEORIES:
    ...     print(driven_step(0 * one, one, **system, theory=theory)[0])
    tensor([[0.6180]])
    tensor([[0.3583]])
    tensor([[0.3583]])
    """
    check_choice("theory", theory, THEORIES)
    theta = fields + couplings @ mean
    carried = couplings @ covariance
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
    r"""Compute the entropy production per component of driven vector spins.

    It is that of a stationary state under constant fields, and zero for symmetric couplings.

    Parameters
    ----------
    delayed : Tensor, shape (..., N, N)
        Time-delayed correlations ⟨u_i(t+1)·u_j(t)⟩, as `driven_step` gives them.
    couplings : Tensor, shape (..., N, N)
        Couplings J into each spin.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (...)
        Entropy production in nats per step and component.

    Notes
    -----
    The rate is

    .. math::

        \frac{\sigma}{D} = \beta \sum_{ij} (J_{ij} - J_{ji}) \langle u_i(t+1) \cdot u_j(t) \rangle.

    Examples
    --------
    >>> turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> entropy_rate(0.5 * turn, couplings=turn, beta=torch.ones(1, 1))
    tensor(2.)
    """
    return (beta * (couplings - couplings.mT) * delayed).sum(dim=(-2, -1))
