"""The saddle point t* of vector spins: damped Newton for batches, differentiated implicitly.

t* is the minimum of the φ of `gaussian`, where every spin has its mean square length, C_ii = 1;
conventions and shapes are those of that module. φ is convex and its minimum unique, for any
couplings and any temperature; what makes the search hard is the barrier near which V loses
its positive definiteness. The derivative of t* is that of the implicit function theorem: no graph
of the iteration is kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.spins.vectors.gaussian import (
    Source,
    checked_system,
    curvature,
    field_source,
    inverse_logdet,
    shifted,
    square_lengths,
)


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
    of J; samples of a batch are damped and stopped one by one. Differentiable twice. Raises
    NotConverged where a saddle point was not found, unless `throw` is false.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> find_saddle(zero, fields=zero, beta=0.5).t
    tensor([1.], dtype=torch.float64)
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    return saddle_of(
        couplings,
        source=field_source(fields),
        beta=beta,
        tolerance=tolerance,
        max_steps=max_steps,
        throw=throw,
    )


def saddle_of(
    couplings: Tensor,
    *,
    source: Source,
    beta: Tensor,
    tolerance: float | None,
    max_steps: int,
    throw: bool,
) -> Saddle:
    """`find_saddle` for a `gaussian.checked_system` whose `gaussian.field_source` is at hand.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> limits = {"tolerance": None, "max_steps": 9, "throw": True}
    >>> beta = torch.tensor(0.5, dtype=torch.float64)
    >>> saddle_of(zero, source=field_source(zero), beta=beta, **limits).t
    tensor([1.], dtype=torch.float64)
    """
    if tolerance is None:
        tolerance = 1e-12 if couplings.dtype == torch.float64 else 1e-5
    tolerance = check_real("tolerance", tolerance, low=0.0)
    max_steps = check_integer("max_steps", max_steps, low=1)
    throw = check_flag("throw", throw)
    batch, sites = beta.shape, couplings.shape[-1]
    t, residual, steps, status = _SaddlePoint.apply(
        couplings.reshape(-1, sites, sites),
        source.value.reshape(-1, *source.value.shape[-2:]),
        source.is_gram,
        beta.reshape(-1),
        tolerance,
        max_steps,
    )
    saddle = Saddle(
        value=t.reshape(*batch, sites),
        residual=residual.reshape(batch),
        steps=steps.reshape(batch),
        status=status.reshape(batch),
    )
    if throw:
        saddle.require("the saddle point t*")
    return saddle


def _spectral_bound(couplings: Tensor) -> Tensor:
    """An upper bound of the largest |eigenvalue|: (tr J⁸)^(1/8), or the largest row sum."""
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
    # One sweep of the equations for weak random couplings, (V⁻¹)_ii = 1/(t_i - sum J_ij^2
    # (V⁻¹)_jj), with the fields that neighbours pass on: exact to second order in J.
    square = couplings.square()
    passed = square @ (strength / alone(strength).square())[..., None]
    alone_in_all = alone(strength + passed[..., 0])
    guess = alone_in_all + (square @ alone_in_all.reciprocal()[..., None])[..., 0]
    return safe, torch.minimum(guess, safe)


def _newton(
    couplings: Tensor,
    source: Source,
    beta: Tensor,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Damped Newton for a flat batch; samples leave the batch as they finish.

    A step must keep V positive definite and lower φ (Armijo's rule, up to rounding, which
    near the minimum drowns differences of φ first); otherwise it is halved. Overshooting is
    not harmless here: beyond the minimum φ rises to its barrier within a small fraction of
    the step, and a rule on slopes alone can alternate between the two sides for ever. A step is
    also halved if it brings a mean square length above three, or half as high again as the
    highest before: from a point close to the barrier Newton only creeps along it.
    """
    eps, tiny = torch.finfo(couplings.dtype).eps, torch.finfo(couplings.dtype).tiny
    here, guess = _starts(couplings, source.strength(), beta)
    step, scale = guess - here, torch.ones_like(beta)
    slope = torch.zeros_like(beta)
    lowest, limit, residual = (torch.full_like(beta, torch.inf) for _ in range(3))
    steps = torch.zeros_like(beta, dtype=torch.int64)
    status = torch.full_like(steps, int(Status.STEP_LIMIT))

    active = torch.arange(beta.numel(), device=beta.device)
    j, s = couplings, source.value
    for number in range(max_steps):
        at, value = active, s
        trial = here[at] + scale[at, None] * step[at]
        factor, info = torch.linalg.cholesky_ex(shifted(trial, couplings=j))
        steps[at] += 1
        # The first step is to the guess; where it is rejected, the next is at the start.
        scale[at] *= 0.5 if number else 0.0
        if number == 1 and bool(info.any()):
            # At the start V has a factor unless the numbers themselves have overflowed. A sample
            # that got past its guess has a residual.
            lost = (info != 0) & torch.isinf(residual[at])
            status[at[lost]] = int(Status.DIVERGED)
            active, j, s = _keep(~lost, active, j, s)
            info, at, trial, factor, value = _keep(~lost, info, at, trial, factor, value)
        at, trial, factor, value = _keep(info == 0, at, trial, factor, value)
        if at.numel() == 0:
            if active.numel() == 0:
                break
            continue

        b, fields = beta[at], Source(value=value, is_gram=source.is_gram)
        inverse = torch.cholesky_inverse(factor)
        spread = fields.spread(inverse)
        lengths = square_lengths(inverse, spread=spread, beta=b)
        highest, off = lengths.amax(-1), (1 - lengths).abs().amax(-1)
        level = b * trial.sum(-1)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        phi = level - 0.5 * logdet + b / 4 * fields.energy(inverse)
        if number == 0:
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
        limit[at] = (1.5 * highest).clamp_min(3)
        if bool(done.any()):
            status[at[done]] = int(Status.CONVERGED)
            active, j, s = _keep(status[active] != int(Status.CONVERGED), active, j, s)
            if active.numel() == 0:
                break
        at, inverse, spread, lengths = _keep(~done, at, inverse, spread, lengths)
        if at.numel() == 0:
            continue

        b = beta[at]
        gradient = b[:, None] * (1 - lengths)
        hessian = curvature(inverse, spread=spread, beta=b)
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
    return here, residual, steps, status


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The samples in `mask`; the tensors themselves, uncopied, if those are all."""
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


class _SaddlePoint(torch.autograd.Function):
    """t*(J, S, β) for a flat batch, differentiated implicitly.

    With w = φ''⁻¹ g for an incoming gradient g and K = V⁻¹ diag(w) V⁻¹, the gradients are
    K/2 + (β/2) V⁻¹ S K in J (of which the symmetric part counts), (β/4) K in S,
    (β/2) K h in h and -w·(1 − P_ii/4) in β.
    """

    @staticmethod
    def forward(
        ctx: Any,
        couplings: Tensor,
        source: Tensor,
        is_gram: bool,
        beta: Tensor,
        tolerance: float,
        max_steps: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        t, residual, steps, status = _newton(
            couplings, Source(value=source, is_gram=is_gram), beta, tolerance, max_steps
        )
        ctx.save_for_backward(t, couplings, source, beta)
        ctx.is_gram = is_gram
        ctx.mark_non_differentiable(residual, steps, status)
        ctx.set_materialize_grads(False)
        return t, residual, steps, status

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        if grad is None:
            return (None,) * 6
        t, couplings, value, beta = ctx.saved_tensors
        source = Source(value=value, is_gram=ctx.is_gram)
        inverse = inverse_logdet(shifted(t, couplings=couplings))[0]
        spread = source.spread(inverse)
        factor = torch.linalg.cholesky_ex(curvature(inverse, spread=spread, beta=beta)).L
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
