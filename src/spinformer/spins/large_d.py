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
get the derivatives of the implicit function theorem from `_implicit_root`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from spinformer.core.operators import iteration_operator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status

# Newton's tries with the steps that suit poles, see `_search`.
_BENT_STEPS = 8


class _ImplicitRoot(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(root: Tensor, equations: Callable[..., Any], *parameters: Tensor) -> Tensor:
        return root.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.equations, *parameters = inputs
        # The root itself is saved: its own node supplies what second derivatives need.
        ctx.save_for_backward(output, *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        root, *parameters = ctx.saved_tensors
        found: Any = torch.func.vjp(
            lambda *given: ctx.equations(root, *given), *parameters, has_aux=True
        )
        _, pull, jacobian = found
        adjoint = torch.linalg.solve_ex(jacobian.mT, grad.unsqueeze(-1)).result.squeeze(-1)
        return None, None, *pull(-adjoint)


def _implicit_root(
    root: Tensor, equations: Callable[..., tuple[Tensor, Tensor]], *parameters: Tensor
) -> Tensor:
    """`root` (..., n) again, with the derivatives of the solution of g(x, parameters) = 0.

    `equations(x, *parameters)` returns g (..., n) and its Jacobian ∂g/∂x (..., n, n) in
    differentiable operations: dx = −(∂g/∂x)⁻¹ dg. Differentiable any number of times, under
    `torch.vmap`, and once under a compiler.

    >>> square = torch.tensor([4.0], requires_grad=True)
    >>> root = _implicit_root(torch.tensor([2.0]), lambda x, a: (x * x - a, 2 * x[None]), square)
    >>> root.backward()
    >>> float(square.grad)
    0.25
    """
    if torch.compiler.is_compiling():
        # One Newton step: it changes no value, and its first derivative is the right one.
        value, jacobian = equations(root.detach(), *parameters)
        step = torch.linalg.solve_ex(jacobian.detach(), value.unsqueeze(-1)).result.squeeze(-1)
        return root.detach() - (step - step.detach())
    return _ImplicitRoot.apply(root.detach(), equations, *parameters)


class _InverseLogdet(torch.autograd.Function):
    """(V⁻¹, ln det V) from one factorisation, with a backward pass of two products."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor, info = torch.linalg.cholesky_ex(matrix)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        inverse = torch.cholesky_inverse(factor)
        # A sample without a factor (never a converged one) must stay visible as NaN.
        lost = info != 0
        return inverse.masked_fill(lost[..., None, None], torch.nan), logdet.masked_fill(
            lost, torch.nan
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, grad_inverse: Tensor, grad_logdet: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return grad_logdet[..., None, None] * inverse - inverse @ grad_inverse @ inverse


def inverse_logdet(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(V⁻¹, ln det V) of positive-definite (..., N, N); NaN for any other."""
    inverse, logdet = _InverseLogdet.apply(matrix)
    return inverse, logdet


def field_source(fields: Tensor) -> Tensor:
    """What φ needs of the scaled fields h (..., N, D), the smaller of h and S = h hᵀ."""
    return fields if fields.shape[-1] < fields.shape[-2] else fields @ fields.mT


def _spread(inverse: Tensor, source: Tensor) -> Tensor:
    """P = V⁻¹ S V⁻¹; a square source is S."""
    half = inverse @ source
    return half @ (inverse if source.shape[-1] == source.shape[-2] else half.mT)


def exponent(t: Tensor, inverse: Tensor, logdet: Tensor, source: Tensor, beta: Tensor) -> Tensor:
    """φ (...) of t, and of V⁻¹ and ln det V that belong to it."""
    other = inverse if source.shape[-1] == source.shape[-2] else inverse @ source
    return beta * t.sum(-1) - 0.5 * logdet + beta / 4 * (source * other).sum((-1, -2))


def stationarity(
    t: Tensor, couplings: Tensor, source: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """∂φ/∂t (..., N) and φ'' (..., N, N), of symmetric J and a `field_source`."""
    inverse, _ = inverse_logdet(torch.diag_embed(t) - couplings)
    return _slopes(inverse, _spread(inverse, source), beta)


def _slopes(inverse: Tensor, spread: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    lengths = lengths + spread.diagonal(dim1=-2, dim2=-1) / 4
    curvature = 0.5 * inverse * (inverse + beta[..., None, None] * spread)
    return beta[..., None] * (1 - lengths), curvature


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


@record
class Saddle(Solution[Tensor]):
    """The multipliers t* (..., N) of a batch of systems, differentiable, as `value`.

    residual: (...), the largest |C_ii − 1|. steps: (...), factorisations of V that the sample
    needed. status: (...); converged are samples whose residual is within the tolerance or, where
    V is so ill-conditioned that rounding allows no less, no longer falls at that level; diverged
    are those whose numbers overflow.
    """

    @property
    def t(self) -> Tensor:
        """t*, (..., N)."""
        return self.value


def find_saddle(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    tolerance: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Saddle:
    """The multipliers t* that give every spin its mean square length.

    `couplings` (..., N, N), of which only the symmetric part acts, `fields` (..., N, D), `beta` a
    positive number or (...). `tolerance` on max_i |C_ii − 1|, by default 1e-12 in double and
    1e-5 in single precision. Damped Newton with the exact Hessian, started above the spectrum
    of J; samples of a batch are damped and stopped one by one. Raises NotConverged where a saddle
    point was not found, unless `throw` is false.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> find_saddle(zero, fields=zero, beta=0.5).t
    tensor([1.], dtype=torch.float64)
    """
    couplings, fields, beta = check_system(couplings, fields, beta)
    limits = _limits(tolerance, max_steps, couplings)
    source = field_source(fields / math.sqrt(fields.shape[-1]))
    saddle = saddle_of((couplings + couplings.mT) / 2, source, beta, *limits)
    if check_flag("throw", throw):
        saddle.require("the saddle point t*")
    return saddle


def saddle_of(
    couplings: Tensor, source: Tensor, beta: Tensor, tolerance: float, max_steps: int
) -> Saddle:
    """`find_saddle` for symmetric J (..., N, N), a `field_source` and β (...), of one batch shape,
    that need no check."""
    given = (couplings, source, beta)
    known = (x.detach() for x in given)
    t, residual, steps, status = _search(*known, tolerance, max_steps)
    t = _implicit_root(t, stationarity, *given)
    return Saddle(value=t, residual=residual, steps=steps, status=status)


def _starts(couplings: Tensor, squares: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A start where V is surely positive definite, and a guess that is better if it is.

    `squares` are those of the fields, h_i².
    """
    beta = beta[:, None]

    def alone(squares: Tensor) -> Tensor:  # t of a free spin
        return (0.5 + (0.25 + beta.square() * squares).sqrt()) / (2 * beta)

    # An upper bound of the largest |eigenvalue|: (tr J⁸)^(1/8), or the largest row sum. Scaled
    # first, so that the eighth power neither overflows nor underflows in single precision.
    rows = couplings.abs().sum(-1).amax(-1)
    scaled = couplings / rows.clamp_min(torch.finfo(couplings.dtype).tiny)[..., None, None]
    fourth = torch.linalg.matrix_power(scaled, 4)
    bound = rows * (fourth.square().sum((-1, -2)).pow(0.125) * (1 + 1e-5)).clamp_max(1.0)
    free, bound = alone(squares), bound[:, None]
    # One sweep of the equations for weak random couplings, (V⁻¹)_ii = 1/(t_i - sum J_ij^2
    # (V⁻¹)_jj), with the fields that neighbours pass on: exact to second order in J.
    square = couplings.square()
    passed = square @ (squares / free.square())[..., None]
    alone_in_all = alone(squares + passed[..., 0])
    guess = alone_in_all + (square @ alone_in_all.reciprocal()[..., None])[..., 0]
    guess = torch.minimum(guess, bound + free)
    # Close to the spectrum: Newton's step below is good there, and costly far above it.
    return torch.maximum(bound + 0.1 * free, guess), guess


@iteration_operator("saddle_point", axes=(2, 2, 0))
def _search(
    couplings: Tensor, source: Tensor, beta: Tensor, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(t*, residual, steps, status) by damped Newton; samples leave the batch as they finish.

    A step must keep V positive definite and lower φ (Armijo's rule, up to rounding, which
    near the minimum drowns differences of φ first); otherwise it is halved. Overshooting is
    not harmless here: beyond the minimum φ rises to its barrier within a small fraction of
    the step, and a rule on slopes alone can alternate between the two sides for ever. A step is
    also halved if it brings a mean square length above three, or half as high again as the
    highest before: from a point close to the barrier Newton only creeps along it.

    The steps themselves are Newton's for C_ii^(−1/2) = 1: near the barrier C_ii is a pole of t,
    simple by V⁻¹, double by the fields, and its inverse root is nearly straight. Where that does
    not descend, or has not arrived after eight tries, they are Newton's for C_ii = 1.
    """
    batch, beta = beta.shape, beta.reshape(-1)
    couplings, source = (x.reshape(-1, *x.shape[-2:]) for x in (couplings, source))
    eps, tiny = torch.finfo(couplings.dtype).eps, torch.finfo(couplings.dtype).tiny
    gram = source.shape[-1] == source.shape[-2]
    squares = source.diagonal(dim1=-2, dim2=-1) if gram else source.square().sum(-1)
    here, guess = _starts(couplings, squares, beta)
    step, scale, slope = guess - here, torch.ones_like(beta), torch.zeros_like(beta)
    lowest, limit, residual = (torch.full_like(beta, torch.inf) for _ in range(3))
    steps = torch.zeros_like(beta, dtype=torch.int64)
    status = torch.full_like(steps, int(Status.STEP_LIMIT))

    active = torch.arange(beta.numel(), device=beta.device)
    j, s = couplings, source
    for number in range(max_steps):
        at, own = active, s
        trial = here[at] + scale[at, None] * step[at]
        factor, info = torch.linalg.cholesky_ex(torch.diag_embed(trial) - j)
        steps[at] += 1
        # The first step is to the guess; where it is rejected, the next is at the start.
        scale[at] *= 0.5 if number else 0.0
        if number == 1 and bool(info.any()):
            # At the start V has a factor unless the numbers themselves have overflowed. A sample
            # that got past its guess has a residual.
            lost = (info != 0) & torch.isinf(residual[at])
            status[at[lost]] = int(Status.DIVERGED)
            active, j, s = _keep(~lost, active, j, s)
            info, at, trial, factor, own = _keep(~lost, info, at, trial, factor, own)
        at, trial, factor, own = _keep(info == 0, at, trial, factor, own)
        if active.numel() == 0:
            break
        if at.numel() == 0:
            continue

        b, inverse = beta[at], torch.cholesky_inverse(factor)
        spread = _spread(inverse, own)
        gradient, hessian = _slopes(inverse, spread, b)
        lengths = 1 - gradient / b[:, None]
        highest, off = lengths.amax(-1), (1 - lengths).abs().amax(-1)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        phi, level = exponent(trial, inverse, logdet, own, b), b * trial.sum(-1)
        if number == 0:
            accepted = highest <= 3
        else:
            # `scale` is already that of the next try, half the one of this step.
            target = lowest[at] + 2e-3 * scale[at] * slope[at] + 8 * eps * (level.abs() + phi.abs())
            lower = (phi <= target) & (highest <= limit[at])
            accepted = lower | (residual[at] < 10 * math.sqrt(eps))
        # Rounding floors the residual near eps times the condition number of V: a sample is
        # also done when it is down there and no longer improves.
        condition = trial.amax(-1) * torch.linalg.matrix_norm(inverse)
        floored = (off <= 4 * eps * condition) & (off >= 0.5 * residual[at])
        done = accepted & ((off <= tolerance) | floored)
        new = at[accepted]
        here[new], residual[new], lowest[new] = trial[accepted], off[accepted], phi[accepted]
        limit[new] = (1.5 * highest[accepted]).clamp_min(3)
        status[at[done]] = int(Status.CONVERGED)
        active, j, s = _keep(status[active] != int(Status.CONVERGED), active, j, s)
        if active.numel() == 0:
            break
        at, b, gradient, lengths, hessian = _keep(
            accepted & ~done, at, b, gradient, lengths, hessian
        )
        if at.numel() == 0:
            continue

        factor, info = torch.linalg.cholesky_ex(hessian)
        if bool(info.any()):
            # Where rounding leaves the Hessian without a factor, its diagonal still descends.
            rough = torch.diag_embed(hessian.diagonal(dim1=-2, dim2=-1).sqrt())
            factor = torch.where((info == 0)[:, None, None], factor, rough)
        # Far above the minimum C_ii falls like 1/t, and Newton's step is too long by 1/C_ii.
        bent = 2 * b[:, None] * (lengths - lengths**1.5)
        both = torch.cholesky_solve(torch.stack([gradient, bent], -1), factor).neg()
        gains = (gradient * both[..., 0]).neg()
        slopes = (gradient[..., None] * both).sum(-2)
        first = (gains.abs() * lengths).sum(-1) / gains.abs().sum(-1).clamp_min(tiny)
        use = (slopes[..., 1] < 0.1 * slopes[..., 0]) & (number < _BENT_STEPS)
        step[at] = torch.where(use[:, None], both[..., 1], both[..., 0])
        slope[at] = torch.where(use, slopes[..., 1], slopes[..., 0])
        scale[at] = torch.where(use, 1.0, first.clamp(0.0, 1.0))
    here = here.reshape((*batch, here.shape[-1]))
    return here, residual.reshape(batch), steps.reshape(batch), status.reshape(batch)


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The samples in `mask`; the tensors themselves, uncopied, if those are all."""
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


def _like_solution(value: Tensor, batch: Sequence[int]) -> tuple[Tensor, ...]:
    """What a compiler is told of the outputs of a search."""
    whole = value.new_empty(batch, dtype=torch.int64)
    return value, value.new_empty(batch), whole, torch.empty_like(whole)


@_search.register_fake
def _(couplings: Tensor, source: Tensor, beta: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = torch.broadcast_shapes(couplings.shape[:-2], source.shape[:-2], beta.shape)
    return _like_solution(couplings.new_empty(*batch, couplings.shape[-1]), batch)


@record
class VectorSpins:
    """Thermodynamics of a batch of vector-spin systems (conventions of the module).

    saddle: the multipliers. free_energy: (...), F = −ln Z/β, extensive in N and D.
    magnetization: (..., N, D), ⟨σ⟩ of the leading order. correlations: (..., N, N),
    ⟨σ_i·σ_j⟩/D of the leading order, magnetizations included, ones on the diagonal.
    """

    saddle: Saddle
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
    inverse, logdet = inverse_logdet(torch.diag_embed(saddle.t) - symmetric)
    spread = _spread(inverse, source)
    phi = exponent(saddle.t, inverse, logdet, source, beta)
    log_partition = dim * (phi - sites / 2 * (1 + (2 * beta).log()))
    if check_flag("corrected", corrected):
        scaled = _slopes(inverse, spread, beta)[1] / (2 * beta.square())[..., None, None]
        log_partition = log_partition - 0.5 * inverse_logdet(scaled)[1]
    return VectorSpins(
        saddle=saddle,
        free_energy=-log_partition / beta,
        magnetization=0.5 * inverse @ fields,
        correlations=inverse / (2 * beta)[..., None, None] + spread / 4,
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
    mean: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any, order: int = 2
) -> Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    The diagonal of the couplings J adds β Σ J_ii. Raises ValueError unless all |m_i| < 1.

    >>> zero = torch.zeros(2, 3)
    >>> float(log_partition(zero, couplings=torch.zeros(2, 2), fields=zero, beta=1.0))
    0.0
    """
    check_choice("order", order, (1, 2))
    couplings, fields, beta = check_system(couplings, fields, beta)
    check_range(couplings, fields, beta)
    mean = check_tensor("mean", mean, like=("fields", fields))
    if mean.shape[-2:] != fields.shape[-2:] or bool((mean.detach().square().sum(-1) >= 1).any()):
        raise ValueError("mean must have the shape of fields and rows of norm below 1")
    return log_partition_of(mean, couplings, fields, beta, order)


def log_partition_of(
    mean: Tensor, couplings: Tensor, fields: Tensor, beta: Tensor, order: int
) -> Tensor:
    """`log_partition` for arguments that need no check, β (...)."""
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

    The couplings J are symmetrised, their diagonal is without effect. The
    iteration is accelerated by `core.anderson.anderson` [walker2011anderson];
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
    return _like_solution(fields.new_empty(fields.shape), fields.shape[:-2])


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
    a = _implicit_root(a[..., 0], equations, pair, fields, beta)
    again = torch.linalg.solve_ex(torch.diag_embed(a) - pair, fields).result
    # The value is what the iteration found; the graph adds its derivatives and nothing else, not
    # even where an iteration that did not arrive left a matrix without an inverse.
    return mean.detach() + (again - again.detach()).nan_to_num()
