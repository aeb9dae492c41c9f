"""Vector spins of many components: free energy, saddle point and mean-field equations.

Sigma convention of `vectors` for the saddle point: ‖σ_i‖² = D, E = −Σ_{i,j} J_ij σ_i·σ_j −
Σ_i H_i·σ_i over ordered pairs, Z = ⟨exp(−βE)⟩ over free spins. A multiplier t_i for the length of
each spin makes the integral Gaussian, with V = diag(t) − J, J symmetrised, and S = H Hᵀ/D:

    φ(t) = β Σ_i t_i − ½ ln det V + (β/4) tr(S V⁻¹),
    ln Z/D = −(N/2)(1 + ln 2β) + φ(t*) − 1/(2D) ln det[φ''(t*)/(2β²)] + O(1/D²),

[bal2021transformers, Eqs. (vectorrandomising) and (partfun)], t* the minimum of φ, which is convex
where V is positive definite. With P = V⁻¹ S V⁻¹ the correlations C = V⁻¹/(2β) + P/4 have C_ii = 1
at t*: ∂φ/∂t_i = β(1 − C_ii), φ'' = ½ V⁻¹∘V⁻¹ + (β/2) V⁻¹∘P entry by entry, ⟨σ⟩ = ½ V⁻¹ H.

For weak couplings the same follows from mean-field equations, in the unit convention: spins u of
length one, m_i = ⟨u_i⟩, fields h = H/√D, pairs B = J + Jᵀ without diagonal. To second order
[thouless1977solution; plefka1982convergence]

    ln Z/D = ½ Σ ln(1−m_i²) + β(½ Σ B_ij m_i·m_j + Σ h_i·m_i) [+ (β²/4) Σ B_ij² (1−m_i²)(1−m_j²)],
    m_i = L(θ_i),  θ_i = h_i + Σ_j B_ij m_j [− β m_i Σ_j B_ij² (1−m_j²)],
    L(θ) = 2βθ / (1 + √(1 + 4β²θ²)),

the brackets being order 2, the Onsager term.

Arguments are torch tensors with any leading batch axes: couplings (..., N, N), fields (..., N, D),
beta a positive number or (...). Results are differentiable twice: unknowns, found by any iteration,
get the derivatives of the implicit function theorem. φ and the search for t* are in `saddle`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.anderson import anderson
from spinformer.core.checks import (
    check_broadcast,
    check_choice,
    check_flag,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.implicit import implicit_root
from spinformer.core.operators import iteration_operator
from spinformer.core.records import record
from spinformer.core.solve import Solution
from spinformer.spins.saddle import (
    exponent,
    field_source,
    inverse_logdet,
    like_solution,
    saddle_of,
    slopes,
    spread,
)


def check_system(couplings: Tensor, fields: Tensor, beta: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Validated (J, fields, β), broadcast to one batch shape."""
    couplings = check_tensor("couplings", couplings, square=True)
    if couplings.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"couplings must be torch.float32 or torch.float64, got {couplings.dtype}")
    fields = check_tensor("fields", fields, like=("couplings", couplings))
    sites = couplings.shape[-1]
    if fields.ndim < 2 or fields.shape[-2] != sites or fields.shape[-1] < 1:
        raise ValueError(
            f"fields must have shape (..., N, D) with N = {sites} like couplings, "
            f"got {tuple(fields.shape)}"
        )
    # Everything below divides by the square of β, which must not vanish.
    lowest = torch.finfo(couplings.dtype).tiny ** 0.5
    if isinstance(beta, Tensor):
        beta = check_tensor("beta", beta, low=lowest).to(couplings)
    else:
        beta = couplings.new_tensor(check_real("beta", beta, low=lowest))
    given = {"couplings": couplings.shape[:-2], "fields": fields.shape[:-2], "beta": beta.shape}
    batch = check_broadcast(**given)
    return (
        couplings.expand(*batch, sites, sites),
        fields.expand(*batch, *fields.shape[-2:]),
        beta.expand(batch),
    )


def check_range(couplings: Tensor, fields: Tensor, beta: Tensor) -> None:
    """ValueError where squares of βθ overflow: an aligned spin would look like a free one."""
    bound = fields.detach().abs() + 2 * couplings.detach().abs().sum((-2, -1), keepdim=True)
    scale = 2 * beta.detach()[..., None, None]
    if not bool(
        (scale * bound).square().sum(-1).isfinite().all() and scale.square().isfinite().all()
    ):
        raise ValueError("beta times fields and couplings must have a square that is in range")


def _limits(tolerance: float | None, max_steps: int, like: Tensor) -> tuple[float, int]:
    if tolerance is None:
        tolerance = default_tolerance(like)
    check_integer("max_steps", max_steps, low=1)
    return check_real("tolerance", tolerance, low=0.0), max_steps


def default_tolerance(like: Tensor) -> float:
    """1e-12 in double and 1e-5 in single precision."""
    return 1e-12 if like.dtype == torch.float64 else 1e-5


def find_saddle(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    tolerance: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[Tensor]:
    """The multipliers t* (..., N) that give every spin its mean square length, differentiable.

    `couplings` (..., N, N), of which only the symmetric part acts, `fields` (..., N, D), `beta` a
    positive number or (...). `tolerance` on max_i |C_ii − 1|, by default 1e-12 in double and
    1e-5 in single precision. Damped Newton with the exact Hessian, started above the spectrum
    of J; samples of a batch are damped and stopped one by one. residual: (...), the largest
    |C_ii − 1|. steps: (...), factorisations of V that the sample needed. status: (...); converged
    are samples whose residual is within the tolerance or, where V is so ill-conditioned that
    rounding allows no less, no longer falls at that level; diverged are those whose numbers
    overflow. Raises NotConverged where a saddle point was not found, unless `throw` is false.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> find_saddle(zero, fields=zero, beta=0.5).value
    tensor([1.], dtype=torch.float64)
    """
    couplings, fields, beta = check_system(couplings, fields, beta)
    limits = _limits(tolerance, max_steps, couplings)
    source = field_source(fields / math.sqrt(fields.shape[-1]))
    saddle = saddle_of((couplings + couplings.mT) / 2, source, beta, *limits)
    if check_flag("throw", throw):
        saddle.require("the saddle point t*")
    return saddle


@record
class VectorSpins:
    """Thermodynamics of a batch of vector-spin systems (conventions of the module).

    saddle: the multipliers, as of `find_saddle`. free_energy: (...), F = −ln Z/β, extensive in N
    and D. magnetization: (..., N, D), ⟨σ⟩ of the leading order. correlations: (..., N, N),
    ⟨σ_i·σ_j⟩/D of the leading order, magnetizations included, ones on the diagonal.
    """

    saddle: Solution[Tensor]
    free_energy: Tensor
    magnetization: Tensor
    correlations: Tensor


def vector_spins(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    corrected: bool = False,
    tolerance: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> VectorSpins:
    """Free energy, magnetization and correlations from one saddle point.

    `tolerance`, `max_steps` and `throw` are those of `find_saddle`. `corrected` adds the
    next order in 1/D to the free energy only: its error falls from O(1/D) to O(1/D²) of ln Z/D,
    and the corrected magnetization is `magnetization(..., corrected=True)`.

    >>> found = vector_spins(torch.zeros(2, 2), fields=torch.ones(2, 3), beta=1.0)
    >>> found.correlations.diagonal().round(decimals=3)
    tensor([1., 1.])
    """
    couplings, fields, beta = check_system(couplings, fields, beta)
    sites, dim = fields.shape[-2:]
    symmetric, source = (couplings + couplings.mT) / 2, field_source(fields / math.sqrt(dim))
    saddle = saddle_of(symmetric, source, beta, *_limits(tolerance, max_steps, couplings))
    if check_flag("throw", throw):
        saddle.require("the saddle point t*")
    inverse, logdet = inverse_logdet(torch.diag_embed(saddle.value) - symmetric)
    passed = spread(inverse, source)
    phi = exponent(saddle.value, inverse, logdet, source, beta)
    log_partition = dim * (phi - sites / 2 * (1 + (2 * beta).log()))
    if check_flag("corrected", corrected):
        scaled = slopes(inverse, passed, beta)[1] / (2 * beta.square())[..., None, None]
        log_partition = log_partition - 0.5 * inverse_logdet(scaled)[1]
    return VectorSpins(
        saddle=saddle,
        free_energy=-log_partition / beta,
        magnetization=0.5 * inverse @ fields,
        correlations=inverse / (2 * beta)[..., None, None] + passed / 4,
    )


def free_energy(couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False) -> Tensor:
    """F = −ln Z/β, shape (...), of the leading order in 1/D or with the next one.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> round(abs(float(free_energy(zero, fields=zero, beta=1.0))), 9)
    0.0
    """
    return vector_spins(couplings, fields=fields, beta=beta, corrected=corrected).free_energy


def magnetization(
    couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False
) -> Tensor:
    """−∂F/∂H at fixed couplings, shape (..., N, D): the mean spin
    [bal2021transformers, Eq. (sigma)].

    The leading order is ½ V⁻¹ H in closed form. `corrected` differentiates the corrected free
    energy through t*(H) and stays differentiable.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> f"{float(magnetization(0 * one, fields=one, beta=1.0)):.4f}"
    '0.6180'
    """
    if not check_flag("corrected", corrected):
        return vector_spins(couplings, fields=fields, beta=beta).magnetization
    # One copy of the fields for every system of the batch, else their derivatives would add up.
    _, fields, _ = check_system(couplings, fields, beta)
    create = torch.is_grad_enabled() and any(
        isinstance(x, Tensor) and x.requires_grad for x in (couplings, fields, beta)
    )
    with torch.enable_grad():
        probe = fields.view_as(fields) if create else fields.detach()
        if not probe.requires_grad:
            probe.requires_grad_()
        energy = free_energy(couplings, fields=probe, beta=beta, corrected=True)
        (gradient,) = torch.autograd.grad(energy.sum(), probe, create_graph=create)
    return -gradient


def correlations(couplings: Tensor, *, fields: Tensor, beta: Any) -> Tensor:
    """⟨σ_i·σ_j⟩/D of the leading order, shape (..., N, N), ones on the diagonal.

    −∂F/∂J_ij = D C_ij for ordered pairs.

    >>> correlations(torch.zeros(2, 2), fields=torch.zeros(2, 3), beta=1.0).round(decimals=3)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return vector_spins(couplings, fields=fields, beta=beta).correlations


def langevin_gain(theta: Tensor, beta: Tensor) -> Tensor:
    """L(θ)/θ, shape (..., N, 1): between 0 and β, falling with the norm of the field."""
    square = theta.square().sum(dim=-1, keepdim=True)
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def onsager_gain(mean: Tensor, square: Tensor, beta: Tensor) -> Tensor:
    """β Σ_j B_ij² (1 − m_j²), (..., N, 1): what multiplies −m_i; `square` is B∘B."""
    return beta * (square @ (1 - mean.square().sum(dim=-1, keepdim=True)))


def mean_field(
    mean: Tensor, fields: Tensor, pair: Tensor, beta: Tensor, square: Tensor | None
) -> tuple[Tensor, Tensor]:
    """θ (..., N, D) at m and the gain L(θ)/θ there; `square` is B∘B for order 2, None for order 1.

    A step of the iteration m ← L(θ): shapes of the module, β as (..., 1, 1); nothing is checked.
    """
    theta = fields + pair @ mean
    if square is not None:
        theta = torch.addcmul(theta, onsager_gain(mean, square, beta), mean, value=-1)
    return theta, langevin_gain(theta, beta)


def pair_couplings(couplings: Tensor) -> Tensor:
    """B = J + Jᵀ with zero diagonal, (..., N, N)."""
    pair = couplings + couplings.mT
    return pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1))


def log_partition(
    mean: Tensor, *, couplings: Tensor, fields: Tensor, beta: Tensor, order: int = 2
) -> Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    Unit convention: `fields` are h = H/√D. The diagonal of the couplings J adds β Σ J_ii; nothing
    is checked.
    """
    pair, width = pair_couplings(couplings), 1 - mean.square().sum(-1)
    linear = ((fields + pair @ mean / 2) * mean).sum((-2, -1))
    total = torch.log(width).sum(-1) / 2
    total = total + beta * (linear + couplings.diagonal(dim1=-2, dim2=-1).sum(-1))
    if order == 2:
        total = total + beta**2 / 4 * ((pair.square() @ width[..., None])[..., 0] * width).sum(-1)
    return total


def solve_fixed_point(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    order: int = 2,
    tolerance: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[Tensor]:
    """Solve m = L(θ(m)) from the free spins, each system of the batch for itself.

    Unit convention: `fields` are h = H/√D. The couplings J are symmetrised, their diagonal is
    without effect. The iteration is accelerated by `core.anderson.anderson` [walker2011anderson];
    `tolerance` on the residual ‖L(θ(m)) − m‖/√N, default 1e-5 in single and 1e-12 in double
    precision. A system that has converged is frozen, so the result does not depend on its
    neighbours. A fixed point always exists; it need not be found, be stable, or give correlations
    that spins can have. Raises NotConverged where none was found, unless `throw` is false.

    >>> couplings, fields = torch.zeros(2, 2), torch.tensor([[2.0], [0.0]])
    >>> solve_fixed_point(couplings, fields=fields, beta=0.75).value
    tensor([[0.7208],
            [0.0000]])
    """
    couplings, fields, beta = check_system(couplings, fields, beta)
    check_range(couplings, fields, beta)
    check_choice("order", order, (1, 2))
    limits = _limits(tolerance, max_steps, couplings)
    pair = pair_couplings(couplings)
    found = fixed_point_of(pair, fields, beta[..., None, None], order, *limits)
    if check_flag("throw", throw):
        found.require("the fixed point of the mean-field equations")
    return found


def fixed_point_of(
    pair: Tensor, fields: Tensor, beta: Tensor, order: int, tolerance: float, max_steps: int
) -> Solution[Tensor]:
    """`solve_fixed_point` for B, h and β (..., 1, 1) that need no check."""
    given = (fields, pair, beta)
    known = (x.detach() for x in given)
    mean, residual, steps, status = _iterate(*known, order, tolerance, max_steps)
    if torch.is_grad_enabled():
        mean = _attached(mean, *given, order)
    return Solution(value=mean, residual=residual, steps=steps, status=status)


@iteration_operator("mean_field_fixed_point", axes=(2, 2, 2))
def _iterate(
    fields: Tensor, pair: Tensor, beta: Tensor, order: int, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    square = pair.square() if order == 2 else None

    def step(mean: Tensor) -> Tensor:
        theta, gain = mean_field(mean, fields, pair, beta, square)
        return gain * theta

    start = langevin_gain(fields, beta) * fields
    found = anderson(step, start, tolerance=tolerance, max_steps=max_steps)
    return found.value.contiguous().clone(), found.residual, found.steps, found.status


@_iterate.register_fake
def _(fields: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return like_solution(fields.new_empty(fields.shape), fields.shape[:-2])


def _attached(mean: Tensor, fields: Tensor, pair: Tensor, beta: Tensor, order: int) -> Tensor:
    """m with its derivatives: m = (diag a − B)⁻¹ h, whose N unknowns a_i are |θ_i|/|m_i| plus what
    the Onsager term takes off."""

    def equations(a: Tensor, pair: Tensor, fields: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        response = torch.linalg.inv_ex(torch.diag_embed(a) - pair).inverse
        mean = response @ fields
        width = (1 - mean.square().sum(-1)).clamp_min(torch.finfo(mean.dtype).eps)
        # L(θ) = m where θ = m/(β(1 − m²)).
        own = 1 / (beta[..., 0] * width)
        # −∂m_i²/∂a_j, with the slope of what a_i equals on the left.
        slope = 2 * response * (mean @ mean.mT)
        missing, jacobian = a - own, (own / width)[..., None] * slope
        if order == 2:
            reaction = beta * pair.square()
            missing = missing - (reaction @ width[..., None])[..., 0]
            jacobian = jacobian - reaction @ slope
        return missing, jacobian + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)

    batch = mean.shape[:-2]
    pair, beta = (x.expand(*batch, *x.shape[-2:]) for x in (pair, beta))
    with torch.no_grad():
        square = pair.square() if order == 2 else None
        _, gain = mean_field(mean, fields, pair, beta, square)
        a = 1 / gain if square is None else 1 / gain + onsager_gain(mean, square, beta)
    a = implicit_root(equations, a[..., 0], pair, fields, beta, jacobian=True)
    again = torch.linalg.solve_ex(torch.diag_embed(a) - pair, fields).result
    # The value is what the iteration found; the graph adds its derivatives and nothing else, not
    # even where an iteration that did not arrive left a matrix without an inverse.
    return mean.detach() + (again - again.detach()).nan_to_num()
