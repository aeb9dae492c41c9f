"""Vector spins at large dimension: saddle point, free energy, magnetisation, correlations.

`N` spins are vectors sigma_i of `D` components and squared length D, with the energy of
document 000, Eq. (vectorrandomising), whose sum runs over ordered pairs (a pair couples with
J_ij + J_ji; a diagonal entry only shifts the energy):

    E = - sum_{i,j} J_ij sigma_i . sigma_j - sum_i H_i . sigma_i,    Z = <exp(-beta E)>_free.

`<.>_free` is the average over free spins, so ln Z = 0 at J = 0, H = 0. A Lagrange multiplier
t_i for each length makes the integral Gaussian; with V = diag(t) - J (J symmetrised) and
S = H H^T / D the integral over the multipliers is taken by steepest descent in 1/D:

    phi(t) = beta sum_i t_i - 1/2 ln det V + beta/4 tr(S V^-1),
    ln Z / D = -N/2 (1 + ln 2 beta) + phi(t*) - 1/(2D) ln det[phi''(t*) / (2 beta^2)] + O(1/D^2).

t* is the minimum of phi, which is convex where V is positive definite. There every spin has
the right mean square length: C_ii = 1 for the correlations C = V^-1 / (2 beta) + V^-1 S V^-1 / 4.

Arguments are torch tensors with any leading batch axes, on any device; results are
differentiable twice in `couplings`, `fields` and `beta`. The derivative of t* is that of the
implicit function theorem: no graph of the iteration is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_integer, check_real, check_tensor


@dataclass(frozen=True)
class Saddle:
    """The multipliers of a batch of systems, and how well they were found.

    t: (..., N), differentiable. residual: (...), the largest |C_ii - 1| of the sample.
    evaluations: (...), factorisations of V the sample needed. converged: (...), whether the
    residual reached the tolerance, or what rounding allows for so ill-conditioned a V.
    """

    t: Tensor
    residual: Tensor
    evaluations: Tensor
    converged: Tensor


@dataclass(frozen=True)
class VectorSpins:
    """Thermodynamics of a batch of vector-spin systems (conventions of the module).

    saddle: the multipliers. free_energy: (...), F = -ln Z / beta, extensive in N and D.
    magnetization: (..., N, D), <sigma> of the leading order. correlations: (..., N, N),
    <sigma_i . sigma_j> / D of the leading order, magnetisations included, ones on the diagonal.
    """

    saddle: Saddle
    free_energy: Tensor
    magnetization: Tensor
    correlations: Tensor


class _InverseLogdet(torch.autograd.Function):
    """(V^-1, ln det V) of positive-definite V from one Cholesky factorisation.

    The backward pass is two products with V^-1, several times cheaper than going back through
    the factorisation, and is itself differentiable.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor, info = torch.linalg.cholesky_ex(matrix)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        # A sample without a factor (never a converged one) must stay visible as NaN.
        logdet = torch.where(info == 0, logdet, torch.nan)
        inverse = torch.cholesky_inverse(factor)
        ctx.save_for_backward(inverse)
        return inverse, logdet

    @staticmethod
    def backward(ctx: Any, grad_inverse: Tensor, grad_logdet: Tensor) -> Tensor:  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        return grad_logdet[..., None, None] * inverse - inverse @ grad_inverse @ inverse


def _symmetric_part(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def _shifted(t: Tensor, couplings: Tensor) -> Tensor:
    return torch.diag_embed(t) - couplings


@dataclass(frozen=True)
class _Source:
    """The fields as the cheaper of two things: h = H/sqrt(D), or S = h h^T where D > N."""

    value: Tensor
    is_gram: bool

    def strength(self) -> Tensor:
        if self.is_gram:
            return self.value.diagonal(dim1=-2, dim2=-1)
        return self.value.square().sum(-1)

    def spread(self, inverse: Tensor) -> Tensor:
        """P = V^-1 S V^-1."""
        half = inverse @ self.value
        return half @ inverse if self.is_gram else half @ half.mT

    def energy(self, inverse: Tensor) -> Tensor:
        """tr(S V^-1)."""
        other = inverse if self.is_gram else inverse @ self.value
        return (self.value * other).sum((-1, -2))


def _source(fields: Tensor) -> _Source:
    sites, dimension = fields.shape[-2:]
    if dimension > sites:
        return _Source(fields @ fields.mT / dimension, True)
    return _Source(fields / math.sqrt(dimension), False)


def _lengths(inverse: Tensor, spread: Tensor, beta: Tensor) -> Tensor:
    """The mean square lengths C_ii."""
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    return lengths + spread.diagonal(dim1=-2, dim2=-1) / 4


def _hessian(inverse: Tensor, spread: Tensor, beta: Tensor) -> Tensor:
    return 0.5 * inverse * (inverse + beta[..., None, None] * spread)


def _spectral_bound(couplings: Tensor) -> Tensor:
    """An upper bound of the largest |eigenvalue|: (tr J^8)^(1/8), or the largest row sum."""
    rows = couplings.abs().sum(-1).amax(-1)
    # Scaled first, so that the eighth power neither overflows nor underflows in single precision.
    scaled = couplings / rows.clamp_min(torch.finfo(couplings.dtype).tiny)[..., None, None]
    square = scaled @ scaled
    fourth = square @ square
    return rows * (fourth.square().sum((-1, -2)).pow(0.125) * (1 + 1e-5)).clamp_max(1.0)


def _starts(couplings: Tensor, strength: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A start where V is surely positive definite, and a guess that is better if it is."""
    beta = beta[:, None]

    def alone(strength: Tensor) -> Tensor:  # t of a free spin in a field of square `strength`
        return (0.5 + (0.25 + beta.square() * strength).sqrt()) / (2 * beta)

    safe = _spectral_bound(couplings)[:, None] + alone(strength)
    # One sweep of the equations for weak random couplings, (V^-1)_ii = 1/(t_i - sum J_ij^2
    # (V^-1)_jj), with the fields that neighbours pass on: exact to second order in J.
    square = couplings.square()
    passed = square @ (strength / alone(strength).square())[..., None]
    alone_in_all = alone(strength + passed[..., 0])
    guess = alone_in_all + (square @ alone_in_all.reciprocal()[..., None])[..., 0]
    return safe, torch.minimum(guess, safe)


def _newton(
    couplings: Tensor,
    source: _Source,
    beta: Tensor,
    tolerance: float,
    max_evaluations: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Damped Newton for a flat batch; samples leave the batch as they finish.

    A step must keep V positive definite and lower phi (Armijo's rule, up to rounding, which
    near the minimum drowns differences of phi first); otherwise it is halved. Overshooting is
    not harmless here: beyond the minimum phi rises to its barrier within a small fraction of
    the step, and a rule on slopes alone can alternate between the two sides for ever. A step is
    also halved if it brings a mean square length above three, or half as high again as the
    highest before: from a point close to the barrier Newton only creeps along it.
    """
    eps, tiny = torch.finfo(couplings.dtype).eps, torch.finfo(couplings.dtype).tiny
    here, guess = _starts(couplings, source.strength(), beta)
    step, scale = guess - here, torch.ones_like(beta)
    slope = torch.zeros_like(beta)
    lowest, limit, residual = (torch.full_like(beta, torch.inf) for _ in range(3))
    evaluations = torch.zeros_like(beta, dtype=torch.int64)
    converged = torch.zeros_like(beta, dtype=torch.bool)

    active = torch.arange(beta.numel(), device=beta.device)
    j, s = couplings, source.value
    for evaluation in range(max_evaluations):
        at, value = active, s
        trial = here[at] + scale[at, None] * step[at]
        factor, info = torch.linalg.cholesky_ex(_shifted(trial, j))
        evaluations[at] += 1
        # The first evaluation is at the guess; where it is rejected, the next is at the start.
        scale[at] *= 0.5 if evaluation else 0.0
        at, trial, factor, value = _keep(info == 0, at, trial, factor, value)
        if at.numel() == 0:
            continue

        b, fields = beta[at], _Source(value, source.is_gram)
        inverse = torch.cholesky_inverse(factor)
        spread = fields.spread(inverse)
        lengths = _lengths(inverse, spread, b)
        highest, off = lengths.amax(-1), (1 - lengths).abs().amax(-1)
        level = b * trial.sum(-1)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        phi = level - 0.5 * logdet + b / 4 * fields.energy(inverse)
        if evaluation == 0:
            accepted = highest <= 3
        else:
            # `scale` is already that of the next try, half the one of this step.
            target = lowest[at] + 2e-3 * scale[at] * slope[at] + 8 * eps * (level.abs() + phi.abs())
            lower = (phi <= target) & (highest <= limit[at])
            accepted = lower | (residual[at] < 10 * math.sqrt(eps))
        at, trial, inverse, spread, lengths, highest, off, phi = _keep(
            accepted, at, trial, inverse, spread, lengths, highest, off, phi
        )

        # Rounding floors the residual near eps times the condition number of V: a sample is
        # also done when it is down there and no longer improves.
        condition = trial.amax(-1) * torch.linalg.matrix_norm(inverse)
        floored = (off <= 4 * eps * condition) & (off >= 0.5 * residual[at])
        done = (off <= tolerance) | floored
        here[at], residual[at], lowest[at] = trial, off, phi
        limit[at], converged[at] = (1.5 * highest).clamp_min(3), done
        if bool(done.any()):
            active, j, s = _keep(~converged[active], active, j, s)
            if active.numel() == 0:
                break
        at, inverse, spread, lengths = _keep(~done, at, inverse, spread, lengths)
        if at.numel() == 0:
            continue

        b = beta[at]
        gradient = b[:, None] * (1 - lengths)
        hessian = _hessian(inverse, spread, b)
        factor, info = torch.linalg.cholesky_ex(hessian)
        if bool(info.any()):
            # Where rounding leaves the Hessian without a factor, its diagonal still descends.
            rough = torch.diag_embed(hessian.diagonal(dim1=-2, dim2=-1).sqrt())
            factor = torch.where((info == 0)[:, None, None], factor, rough)
        newton = torch.cholesky_solve(gradient[..., None], factor)[..., 0].neg()
        gains = (gradient * newton).neg()
        # Far above the minimum C_ii falls like 1/t, and Newton's step is too long by 1/C_ii.
        first = (gains.abs() * lengths).sum(-1) / gains.abs().sum(-1).clamp_min(tiny)
        step[at], slope[at], scale[at] = newton, -gains.sum(-1), first.clamp(0.0, 1.0)
    return here, residual, evaluations, converged


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The samples in `mask`; the tensors themselves, uncopied, if those are all."""
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


class _SaddlePoint(torch.autograd.Function):
    """t*(J, S, beta) for a flat batch, differentiated implicitly.

    With w = phi''^-1 g for an incoming gradient g and K = V^-1 diag(w) V^-1, the gradients are
    K/2 + (beta/2) V^-1 S K in J (of which the symmetric part counts), (beta/4) K in S,
    (beta/2) K h in h and -w . (1 - P_ii/4) in beta.
    """

    @staticmethod
    def forward(
        ctx: Any,
        couplings: Tensor,
        source: Tensor,
        is_gram: bool,
        beta: Tensor,
        tolerance: float,
        max_evaluations: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        t, residual, evaluations, converged = _newton(
            couplings, _Source(source, is_gram), beta, tolerance, max_evaluations
        )
        ctx.save_for_backward(t, couplings, source, beta)
        ctx.is_gram = is_gram
        ctx.mark_non_differentiable(residual, evaluations, converged)
        ctx.set_materialize_grads(False)
        return t, residual, evaluations, converged

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if grad is None:
            return (None,) * 6
        t, couplings, value, beta = ctx.saved_tensors
        source = _Source(value, ctx.is_gram)
        inverse, _ = _InverseLogdet.apply(_shifted(t, couplings))
        spread = source.spread(inverse)
        factor = torch.linalg.cholesky_ex(_hessian(inverse, spread, beta)).L
        weights = torch.cholesky_solve(grad[..., None], factor)
        kernel = inverse @ (weights * inverse)
        quarter = beta[..., None, None] / 4
        moved = kernel @ value
        if ctx.is_gram:
            mixed, grad_source = moved @ inverse, quarter * kernel
        else:
            mixed, grad_source = moved @ (inverse @ value).mT, 2 * quarter * moved
        # Only the symmetric part counts, since `couplings` was symmetrised on the way in.
        grad_couplings = 0.5 * kernel + 2 * quarter * mixed
        slope = 1 - spread.diagonal(dim1=-2, dim2=-1) / 4
        grad_beta = -(weights[..., 0] * slope).sum(-1)
        return grad_couplings, grad_source, None, grad_beta, None, None


def _prepare(couplings: Any, fields: Any, beta: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Validated (J symmetrised, H, beta), broadcast to one batch shape."""
    couplings = check_tensor("couplings", couplings)
    fields = check_tensor("fields", fields)
    if couplings.ndim < 2 or couplings.shape[-1] != couplings.shape[-2]:
        raise ValueError(f"couplings must have shape (..., N, N), got {tuple(couplings.shape)}")
    sites = couplings.shape[-1]
    if fields.ndim < 2 or fields.shape[-2] != sites or fields.shape[-1] < 1 or sites < 1:
        raise ValueError(
            f"fields must have shape (..., N, D) with N = {sites} like couplings, "
            f"got {tuple(fields.shape)}"
        )
    if fields.dtype != couplings.dtype or fields.device != couplings.device:
        raise ValueError(
            "fields must have the dtype and device of couplings, got "
            f"{fields.dtype} on {fields.device} and {couplings.dtype} on {couplings.device}"
        )
    if isinstance(beta, Tensor):
        beta = check_tensor("beta", beta).to(couplings)
        if bool((beta.detach() <= 0).any()):
            raise ValueError(f"beta must be positive, got a smallest value of {float(beta.min())}")
    else:
        beta = couplings.new_tensor(check_real("beta", beta, low=0.0, open_low=True))
    try:
        batch = torch.broadcast_shapes(couplings.shape[:-2], fields.shape[:-2], beta.shape)
    except RuntimeError:
        raise ValueError(
            "couplings, fields and beta must have batch shapes that broadcast, got "
            f"{tuple(couplings.shape[:-2])}, {tuple(fields.shape[:-2])} and {tuple(beta.shape)}"
        ) from None
    return (
        _symmetric_part(couplings).expand(*batch, sites, sites),
        fields.expand(*batch, *fields.shape[-2:]),
        beta.expand(batch),
    )


def _solve(
    couplings: Tensor, fields: Tensor, beta: Tensor, tolerance: Any, max_evaluations: Any
) -> tuple[Saddle, _Source]:
    if tolerance is None:
        tolerance = 1e-12 if couplings.dtype == torch.float64 else 1e-5
    tolerance = check_real("tolerance", tolerance, low=0.0)
    max_evaluations = check_integer("max_evaluations", max_evaluations, low=1)
    batch, sites = beta.shape, couplings.shape[-1]
    source = _source(fields)
    t, residual, evaluations, converged = _SaddlePoint.apply(
        couplings.reshape(-1, sites, sites),
        source.value.reshape(-1, *source.value.shape[-2:]),
        source.is_gram,
        beta.reshape(-1),
        tolerance,
        max_evaluations,
    )
    saddle = Saddle(
        t.reshape(*batch, sites),
        residual.reshape(batch),
        evaluations.reshape(batch),
        converged.reshape(batch),
    )
    return saddle, source


def _require(saddle: Saddle) -> None:
    if not bool(saddle.converged.all()):
        raise RuntimeError(
            f"the saddle point of {int((~saddle.converged).sum())} sample(s) was not found; the "
            f"largest residual is {float(saddle.residual.max()):.3g}. Raise max_evaluations or "
            "tolerance."
        )


def saddle_function(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """phi(t) of the module's head, shape (...); NaN where V is not positive definite."""
    couplings, fields, beta = _prepare(couplings, fields, beta)
    t = check_tensor("t", t)
    inverse, logdet = _InverseLogdet.apply(_shifted(t, couplings))
    return _phi(t, inverse, logdet, _source(fields), beta)


def saddle_gradient(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """d phi / d t = beta (1 - C_ii), shape (..., N)."""
    couplings, fields, beta = _prepare(couplings, fields, beta)
    inverse, _ = _InverseLogdet.apply(_shifted(check_tensor("t", t), couplings))
    return beta[..., None] * (1 - _lengths(inverse, _source(fields).spread(inverse), beta))


def saddle_hessian(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """d^2 phi / dt dt = V^-1 o V^-1 / 2 + (beta/2) V^-1 o P, entrywise, shape (..., N, N)."""
    couplings, fields, beta = _prepare(couplings, fields, beta)
    inverse, _ = _InverseLogdet.apply(_shifted(check_tensor("t", t), couplings))
    return _hessian(inverse, _source(fields).spread(inverse), beta)


def _phi(t: Tensor, inverse: Tensor, logdet: Tensor, source: _Source, beta: Tensor) -> Tensor:
    return beta * t.sum(-1) - 0.5 * logdet + beta / 4 * source.energy(inverse)


def find_saddle(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    tolerance: float | None = None,
    max_evaluations: int = 200,
) -> Saddle:
    """The multipliers t* that give every spin its mean square length.

    couplings: (..., N, N); only the symmetric part acts. fields: (..., N, D), H of the module's
    head. beta: positive number or tensor (...). tolerance: on max_i |C_ii - 1|; by default 1e-12
    in double and 1e-5 in single precision. Damped Newton with the exact Hessian, started above
    the spectrum of J. Samples of a batch are damped and stopped one by one. Never raises for
    slow convergence: read `converged`.
    """
    saddle, _ = _solve(*_prepare(couplings, fields, beta), tolerance, max_evaluations)
    return saddle


def vector_spins(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    corrected: bool = False,
    tolerance: float | None = None,
    max_evaluations: int = 200,
) -> VectorSpins:
    """Free energy, magnetisation and correlations from one saddle point.

    Arguments as in `find_saddle`. `corrected` adds the next order in 1/D to the free energy
    only: its error falls from O(1/D) to O(1/D^2) of ln Z / D, and the corrected magnetisation
    is `magnetization(..., corrected=True)`. A sample that did not converge says so in
    `saddle.converged`.
    """
    couplings, fields, beta = _prepare(couplings, fields, beta)
    saddle, source = _solve(couplings, fields, beta, tolerance, max_evaluations)
    sites, dimension = fields.shape[-2:]
    inverse, logdet = _InverseLogdet.apply(_shifted(saddle.t, couplings))
    spread = source.spread(inverse)
    # phi is stationary at t*, so its derivatives need no derivative of t*; detaching t here
    # would spare little and cost the second derivatives.
    density = _phi(saddle.t, inverse, logdet, source, beta) - sites / 2 * (1 + (2 * beta).log())
    log_partition = dimension * density
    if corrected:
        scaled = _hessian(inverse, spread, beta) / (2 * beta.square())[..., None, None]
        log_partition = log_partition - 0.5 * _InverseLogdet.apply(scaled)[1]
    return VectorSpins(
        saddle=saddle,
        free_energy=-log_partition / beta,
        magnetization=0.5 * inverse @ fields,
        correlations=inverse / (2 * beta)[..., None, None] + spread / 4,
    )


def free_energy(couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False) -> Tensor:
    """F = -ln Z / beta, shape (...), of the leading order in 1/D or with the next one.

    Raises RuntimeError if a saddle point was not found.
    """
    result = vector_spins(couplings, fields=fields, beta=beta, corrected=corrected)
    _require(result.saddle)
    return result.free_energy


def magnetization(
    couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False
) -> Tensor:
    """-dF/dH at fixed couplings, shape (..., N, D): the mean spin.

    The leading order is V^-1 H / 2 in closed form. `corrected` differentiates the corrected free
    energy through t*(H) and stays differentiable. Raises RuntimeError if a saddle point was not
    found.
    """
    if not corrected:
        result = vector_spins(couplings, fields=fields, beta=beta)
        _require(result.saddle)
        return result.magnetization
    fields = check_tensor("fields", fields)
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
    """<sigma_i . sigma_j> / D of the leading order, shape (..., N, N), ones on the diagonal.

    -dF/dJ_ij = D C_ij for ordered pairs. Raises RuntimeError if a saddle point was not found.
    """
    result = vector_spins(couplings, fields=fields, beta=beta)
    _require(result.saddle)
    return result.correlations
