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
from spinformer.core.operators import iteration_operator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.spins.vectors.gaussian import (
    Source,
    checked_system,
    curvature,
    field_source,
    shifted,
    square_lengths,
)

# Tries with the steps that suit poles, see `_newton`.
_BENT_STEPS = 8


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
    limits = checked_limits(tolerance, max_steps=max_steps, throw=throw)
    return saddle_of(couplings, source=field_source(fields), beta=beta, **limits).saddle


def checked_limits(tolerance: float | None, *, max_steps: int, throw: bool) -> dict[str, Any]:
    """The last three arguments of `find_saddle`, validated.

    >>> checked_limits(None, max_steps=9, throw=True)
    {'tolerance': None, 'max_steps': 9, 'throw': True}
    """
    return {
        "tolerance": None if tolerance is None else check_real("tolerance", tolerance, low=0.0),
        "max_steps": check_integer("max_steps", max_steps, low=1),
        "throw": check_flag("throw", throw),
    }


@record
class SaddleState:
    """V⁻¹ (..., N, N) and ln det V (...) at the saddle point, differentiable like it."""

    saddle: Saddle
    inverse: Tensor
    logdet: Tensor


def saddle_of(
    couplings: Tensor,
    *,
    source: Source,
    beta: Tensor,
    tolerance: float | None,
    max_steps: int,
    throw: bool,
) -> SaddleState:
    """`find_saddle` for a `gaussian.checked_system` whose `gaussian.field_source` is at hand.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> limits = {"tolerance": None, "max_steps": 9, "throw": True}
    >>> beta = torch.tensor(0.5, dtype=torch.float64)
    >>> saddle_of(zero, source=field_source(zero), beta=beta, **limits).saddle.t
    tensor([1.], dtype=torch.float64)
    """
    if tolerance is None:
        tolerance = 1e-12 if couplings.dtype == torch.float64 else 1e-5
    t, inverse, logdet, residual, steps, status = _SaddlePoint.apply(
        couplings, source.value, beta, source.is_gram, tolerance, max_steps
    )
    saddle = Saddle(value=t, residual=residual, steps=steps, status=status)
    if throw:
        saddle.require("the saddle point t*")
    return SaddleState(saddle=saddle, inverse=inverse, logdet=logdet)


def _spectral_bound(couplings: Tensor) -> Tensor:
    """An upper bound of the largest |eigenvalue|: (tr J⁸)^(1/8), or the largest row sum."""
    rows = couplings.abs().sum(-1).amax(-1)
    # Scaled first, so that the eighth power neither overflows nor underflows in single precision.
    scaled = couplings / rows.clamp_min(torch.finfo(couplings.dtype).tiny)[..., None, None]
    square = scaled @ scaled
    fourth = square @ square
    return rows * (fourth.square().sum((-1, -2)).pow(0.125) * (1 + 1e-5)).clamp_max(1.0)


def _starts(couplings: Tensor, squares: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A start where V is surely positive definite, and a guess that is better if it is.

    `squares` are those of the fields, h_i².
    """
    beta = beta[:, None]

    def alone(squares: Tensor) -> Tensor:  # t of a free spin
        return (0.5 + (0.25 + beta.square() * squares).sqrt()) / (2 * beta)

    free, bound = alone(squares), _spectral_bound(couplings)[:, None]
    # One sweep of the equations for weak random couplings, (V⁻¹)_ii = 1/(t_i - sum J_ij^2
    # (V⁻¹)_jj), with the fields that neighbours pass on: exact to second order in J.
    square = couplings.square()
    passed = square @ (squares / free.square())[..., None]
    alone_in_all = alone(squares + passed[..., 0])
    guess = alone_in_all + (square @ alone_in_all.reciprocal()[..., None])[..., 0]
    guess = torch.minimum(guess, bound + free)
    # Close to the spectrum: Newton's step below is good there, and costly far above it.
    return torch.maximum(bound + 0.1 * free, guess), guess


def _newton(
    couplings: Tensor,
    source: Source,
    beta: Tensor,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, ...]:
    """Damped Newton for a flat batch; samples leave the batch as they finish.

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
    eps, tiny = torch.finfo(couplings.dtype).eps, torch.finfo(couplings.dtype).tiny
    here, guess = _starts(couplings, source.squares(), beta)
    inverses, logdets = torch.full_like(couplings, torch.nan), torch.full_like(beta, torch.nan)
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
        at, trial, inverse, logdet, spread, lengths, highest, off, phi = _keep(
            accepted, at, trial, inverse, logdet, spread, lengths, highest, off, phi
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
            inverses[at[done]], logdets[at[done]] = inverse[done], logdet[done]
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
        # Far above the minimum C_ii falls like 1/t, and Newton's step is too long by 1/C_ii.
        bent = 2 * b[:, None] * (lengths - lengths**1.5)
        both = torch.cholesky_solve(torch.stack([gradient, bent], -1), factor).neg()
        newton = both[..., 0]
        gains = (gradient * newton).neg()
        slopes = (gradient[..., None] * both).sum(-2)
        first = (gains.abs() * lengths).sum(-1) / gains.abs().sum(-1).clamp_min(tiny)
        use = (slopes[..., 1] < 0.1 * slopes[..., 0]) & (number < _BENT_STEPS)
        step[at] = torch.where(use[:, None], both[..., 1], newton)
        slope[at] = torch.where(use, slopes[..., 1], slopes[..., 0])
        scale[at] = torch.where(use, 1.0, first.clamp(0.0, 1.0))
    left = status != int(Status.CONVERGED)
    if bool(left.any()):
        # A sample without a factor must stay visible as NaN.
        factor, info = torch.linalg.cholesky_ex(shifted(here[left], couplings=couplings[left]))
        found = torch.cholesky_inverse(factor)
        inverses[left] = torch.where((info == 0)[:, None, None], found, torch.nan)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        logdets[left] = torch.where(info == 0, logdet, torch.nan)
    return here, inverses, logdets, residual, steps, status


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The samples in `mask`; the tensors themselves, uncopied, if those are all."""
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


@iteration_operator("saddle_point", axes=(2, 2, 0))
def _search(
    couplings: Tensor,
    source: Tensor,
    beta: Tensor,
    is_gram: bool,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch = torch.broadcast_shapes(couplings.shape[:-2], source.shape[:-2], beta.shape)
    flat = (
        couplings.expand(*batch, *couplings.shape[-2:]).reshape(-1, *couplings.shape[-2:]),
        Source(
            value=source.expand(*batch, *source.shape[-2:]).reshape(-1, *source.shape[-2:]),
            is_gram=is_gram,
        ),
        beta.expand(batch).reshape(-1),
    )
    found = _newton(*flat, tolerance, max_steps)
    t, inverse, logdet, residual, steps, status = (
        part.reshape((*batch, *part.shape[1:])) for part in found
    )
    return t, inverse, logdet, residual, steps, status


@_search.register_fake
def _(couplings: Tensor, source: Tensor, beta: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = torch.broadcast_shapes(couplings.shape[:-2], source.shape[:-2], beta.shape)
    number, whole = beta.new_empty(batch), beta.new_empty(batch, dtype=torch.int64)
    shape = couplings.shape[-2:]
    return (
        *(couplings.new_empty(*batch, *own) for own in (shape[:1], shape)),
        number,
        torch.empty_like(number),
        whole,
        torch.empty_like(whole),
    )


class _SaddlePoint(torch.autograd.Function):
    """(t*, V⁻¹, ln det V) of (J, S or h, β), J symmetric, differentiated implicitly.

    The incoming gradients make M = −V⁻¹ G V⁻¹ + g V⁻¹ the gradient in V at fixed t. With
    w = φ''⁻¹ (g_t + diag M), W = diag(w) and x = V⁻¹ h the gradients are −M + ½ V⁻¹ W V⁻¹ +
    (β/2) P W V⁻¹ in J, (β/2) V⁻¹ W x in h, (β/4) V⁻¹ W V⁻¹ in S and −w·(1 − P_ii/4) in β: two
    products of matrices, in plain operations, so that they can be differentiated again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(couplings: Tensor, source: Tensor, beta: Tensor, *limits: Any) -> Any:
        return _search(couplings, source, beta, *limits)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, source, beta, ctx.is_gram, *_ = inputs
        ctx.save_for_backward(output[1], source, beta)
        ctx.mark_non_differentiable(*output[3:])

    @staticmethod
    def backward(ctx: Any, grad_t: Tensor, grad: Tensor, grad_logdet: Tensor, *_: Any) -> Any:
        inverse, value, beta = ctx.saved_tensors
        half = beta[..., None, None] / 2
        x = inverse @ value
        spread = x @ inverse if ctx.is_gram else x @ x.mT
        left = inverse @ grad
        explicit = grad_t - (left * inverse).sum(-1)
        explicit = explicit + grad_logdet[..., None] * inverse.diagonal(dim1=-2, dim2=-1)
        hessian = 0.5 * inverse * (inverse + 2 * half * spread)
        factor = torch.linalg.cholesky_ex(hessian).L
        w = torch.cholesky_solve(explicit[..., None], factor)
        columns = w.mT
        left = left + (0.5 * inverse + half * spread) * columns
        # Only the symmetric part counts, since `couplings` was symmetrised on the way in.
        grad_couplings = left @ inverse - grad_logdet[..., None, None] * inverse
        if ctx.is_gram:
            grad_source = 0.5 * half * ((inverse * columns) @ inverse)
        else:
            grad_source = half * (inverse @ (w * x))
        slope = 1 - spread.diagonal(dim1=-2, dim2=-1) / 4
        grad_beta = -(w[..., 0] * slope).sum(-1)
        return grad_couplings, grad_source, grad_beta, None, None, None
