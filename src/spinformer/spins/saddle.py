"""The exponent φ of many-component vector spins, its derivatives, and the search for its minimum.

`large_d` states φ(t) and what follows from its minimum t*; names and conventions are those of that
module. Couplings here are symmetric, and all of one batch shape with `source` and β (...).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spinformer.core.implicit import implicit_root
from spinformer.core.operators import iteration_operator
from spinformer.core.solve import Solution, Status

# Newton's tries with the steps that suit poles, see `_search`.
_BENT_STEPS = 8


class _InverseLogdet(torch.autograd.Function):
    """One factorisation, with a backward pass of two products."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor, info = torch.linalg.cholesky_ex(matrix)
        # A sample without a factor (never a converged one) must stay visible as NaN.
        lost = info != 0
        inverse = torch.cholesky_inverse(factor).masked_fill(lost[..., None, None], torch.nan)
        return inverse, _logdet(factor).masked_fill(lost, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, grad_inverse: Tensor, grad_logdet: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return grad_logdet[..., None, None] * inverse - inverse @ grad_inverse @ inverse


def _logdet(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def inverse_logdet(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(V⁻¹, ln det V) of positive-definite (..., N, N); NaN for any other."""
    inverse, logdet = _InverseLogdet.apply(matrix)
    return inverse, logdet


def field_source(fields: Tensor) -> Tensor:
    """What φ needs of the scaled fields h (..., N, D), the smaller of h and S = h hᵀ."""
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


def slopes(inverse: Tensor, spread: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """∂φ/∂t (..., N) and φ'' (..., N, N) at V⁻¹ and P."""
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    lengths = lengths + spread.diagonal(dim1=-2, dim2=-1) / 4
    curvature = 0.5 * inverse * (inverse + beta[..., None, None] * spread)
    return beta[..., None] * (1 - lengths), curvature


def stationarity(
    t: Tensor, couplings: Tensor, source: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """∂φ/∂t (..., N) and φ'' (..., N, N) at any t."""
    inverse, _ = inverse_logdet(torch.diag_embed(t) - couplings)
    return slopes(inverse, spread(inverse, source), beta)


def saddle_of(
    couplings: Tensor, source: Tensor, beta: Tensor, tolerance: float, max_steps: int
) -> Solution[Tensor]:
    """t* (..., N), differentiable any number of times; nothing is checked."""
    given = (couplings, source, beta)
    known = (x.detach() for x in given)
    t, residual, steps, status = _search(*known, tolerance, max_steps)
    t = implicit_root(stationarity, t, *given, jacobian=True)
    return Solution(value=t, residual=residual, steps=steps, status=status)


def _starts(couplings: Tensor, source: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A start where V is surely positive definite, and a guess that is better if it is."""
    beta = beta[:, None]

    def alone(squares: Tensor) -> Tensor:  # t of a free spin in a field of that square
        return (0.5 + (0.25 + beta.square() * squares).sqrt()) / (2 * beta)

    gram = _is_square(source)
    squares = source.diagonal(dim1=-2, dim2=-1) if gram else source.square().sum(-1)
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
    j, s = (x.reshape(-1, *x.shape[-2:]) for x in (couplings, source))
    eps, tiny = torch.finfo(j.dtype).eps, torch.finfo(j.dtype).tiny
    here, guess = _starts(j, s, beta)
    step, scale, slope = guess - here, torch.ones_like(beta), torch.zeros_like(beta)
    lowest, limit, residual = (torch.full_like(beta, torch.inf) for _ in range(3))
    steps = torch.zeros_like(beta, dtype=torch.int64)
    status = torch.full_like(steps, int(Status.STEP_LIMIT))

    active = torch.arange(len(beta), device=beta.device)
    for number in range(max_steps):
        if active.numel() == 0:
            break
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
        at, trial, factor, own = _keep(info == 0, at, trial, factor, own)

        b, inverse = beta[at], torch.cholesky_inverse(factor)
        passed = spread(inverse, own)
        gradient, hessian = slopes(inverse, passed, b)
        lengths = 1 - gradient / b[:, None]
        highest, off = lengths.amax(-1), (1 - lengths).abs().amax(-1)
        phi, level = exponent(trial, inverse, _logdet(factor), own, b), b * trial.sum(-1)
        # `scale` is already that of the next try, half the one of this step.
        target = lowest[at] + 2e-3 * scale[at] * slope[at] + 8 * eps * (level.abs() + phi.abs())
        lower = (phi <= target) & (highest <= limit[at])
        accepted = lower | (residual[at] < 10 * math.sqrt(eps)) if number else highest <= 3
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
        falls = (gradient[..., None] * both).sum(-2)
        first = (gains.abs() * lengths).sum(-1) / gains.abs().sum(-1).clamp_min(tiny)
        use = (falls[..., 1] < 0.1 * falls[..., 0]) & (number < _BENT_STEPS)
        step[at] = torch.where(use[:, None], both[..., 1], both[..., 0])
        slope[at] = torch.where(use, falls[..., 1], falls[..., 0])
        scale[at] = torch.where(use, 1.0, first.clamp(0.0, 1.0))
    here = here.reshape((*batch, here.shape[-1]))
    return here, residual.reshape(batch), steps.reshape(batch), status.reshape(batch)


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The samples in `mask`; the tensors themselves, uncopied, if those are all."""
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


def like_solution(value: Tensor, batch: Sequence[int]) -> tuple[Tensor, ...]:
    """What a compiler is told of the outputs of a search."""
    whole = value.new_empty(batch, dtype=torch.int64)
    return value, value.new_empty(batch), whole, torch.empty_like(whole)


@_search.register_fake
def _(couplings: Tensor, source: Tensor, beta: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = torch.broadcast_shapes(couplings.shape[:-2], source.shape[:-2], beta.shape)
    return like_solution(couplings.new_empty(*batch, couplings.shape[-1]), batch)
