"""Spin modules with a backward pass by hand, which keeps no matrix of couplings.

As in flash attention, the backward pass computes the softmax weights again from queries and keys.
What is kept for it are vectors of each spin, and at the saddle point the matrix V⁻¹. Systems are
taken in tiles that fit into the cache of a processor, in work matrices that a thread uses again and
again; on accelerators the modules take the plain operations.

Notation: P are the softmax weights, J = gP, B = J + Jᵀ, w = 1 − m², and a matrix E stands for the
derivative of the loss by J. With the correlations C, the response weights are

    G = g P∘(C − ρ),   ρ_i = Σ_n P_in C_in,   and the answers  m,  G k,  Gᵀ q.

Derivatives are once differentiable: where a graph is wanted of them, the same function in plain
operations, `FusedSettings.plain`, is differentiated instead. Tests hold both to each other.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spinformer.core.solve import Status
from spinformer.spins.heads import HeadInputs
from spinformer.spins.large_d import field_source, inverse_logdet
from spinformer.spins.masks import PairMasks
from spinformer.spins.solvers import saddle_of

# Entries of a work matrix: a few of them fit into the second and third cache together.
_TILE = 1 << 18
# Sites from which one matrix after the other is transposed faster than all at once.
_FAST_TRANSPOSE = 128
# Newton's steps at the saddle point before the search takes over, and mean-field sweeps before.
_NEWTON_STEPS = 6
_SWEEPS = 6
# How well a Newton step is solved for, relative to it: the next one, or the last, mends the rest.
_STEP_ACCURACY = 1e-4
# Steps of conjugate gradients before a direct solution is cheaper.
_GRADIENT_STEPS = 40


@dataclasses.dataclass(frozen=True)
class FusedSettings:
    """What the spins of a module solve.

    Parameters
    ----------
    scale : float
        Factor of the scores, γ/√D.
    steps : int, optional
        Number K of mean-field steps from free spins; None is the saddle point.
    order : {1, 2}
        Order of the mean-field equations; 2 has the squares of the couplings.
    plain : callable
        The same function of `HeadInputs` and g in plain operations.
    response : bool, default False
        Whether the response of the couplings is wanted, G k and Gᵀ q.
    tolerance : float, default 0.0
        Largest residual at the saddle point.
    max_steps : int, default 1
        Largest number of steps of the search for the saddle point.
    """

    scale: float
    steps: int | None
    order: int
    plain: Callable[[HeadInputs, Tensor], tuple[Tensor, ...]]
    response: bool = False
    tolerance: float = 0.0
    max_steps: int = 1


class FusedSpins(NamedTuple):
    """What `solve_fused` returns.

    Attributes
    ----------
    mean : Tensor, shape (batch, heads, N, D)
        Magnetizations ⟨u⟩.
    along : Tensor, shape (batch, heads, N, D)
        The average G k of the response; empty without it.
    back : Tensor, shape (batch, heads, N, D)
        The average Gᵀ q of the response; empty without it.
    status : Tensor of int, shape (batch, heads), or None
        How the search for the saddle point ended, as values of `Status`.
    """

    mean: Tensor
    along: Tensor
    back: Tensor
    status: Tensor | None


class _Systems(NamedTuple):
    """Systems of all samples and heads one behind the other, (S, N, D) and (S, 1, 1)."""

    fields: Tensor
    queries: Tensor
    keys: Tensor
    beta: Tensor
    strength: Tensor
    # (S, N, N), or (1, N, N) where all systems have the same.
    forbidden: Tensor | None
    bias: Tensor | None


def solve_fused(inputs: HeadInputs, strength: Tensor, settings: FusedSettings) -> FusedSpins:
    """Solve the spins in equilibrium of all heads, with a backward pass by hand.

    Parameters
    ----------
    inputs : HeadInputs
        What the spins depend on; masks need no gradient.
    strength : Tensor, shape (heads, 1, 1)
        Coupling strengths g.
    settings : FusedSettings
        What is solved.

    Returns
    -------
    FusedSpins
        Magnetizations and the averages of the response.
    """
    systems, batch = _flatten(inputs, strength)
    function = _MeanField if settings.steps is not None else _Saddle
    mean, along, back, status = function.apply(settings, *systems)
    return FusedSpins(
        mean=mean.unflatten(0, batch),
        along=along.unflatten(0, batch),
        back=back.unflatten(0, batch),
        status=None if status is None else status.reshape(batch),
    )


def solve_fused_driven(inputs: HeadInputs, strength: Tensor, settings: FusedSettings) -> Tensor:
    """Advance the driven spins of all heads by K steps, with a backward pass by hand.

    Parameters
    ----------
    inputs : HeadInputs
        What the spins depend on; masks need no gradient.
    strength : Tensor, shape (heads, 1, 1)
        Coupling strengths g.
    settings : FusedSettings
        Number of steps, and the order: 2 for the theory "second order", 1 for "naive".

    Returns
    -------
    Tensor, shape (batch, heads, N, D)
        Magnetizations ⟨u(K)⟩.
    """
    systems, batch = _flatten(inputs, strength)
    return _Driven.apply(settings, *systems).unflatten(0, batch)


def _flatten(inputs: HeadInputs, strength: Tensor) -> tuple[_Systems, tuple[int, ...]]:
    batch = tuple(inputs.fields.shape[:-2])
    sites = inputs.fields.shape[-2]

    def of_each(values: Tensor) -> Tensor:
        return values.expand(*batch, 1, 1).reshape(-1, 1, 1)

    def matrices(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        if values.ndim == 2:
            return values.unsqueeze(0)
        return values.expand(*batch, sites, sites).reshape(-1, sites, sites)

    systems = _Systems(
        fields=inputs.fields.flatten(0, 1),
        queries=inputs.queries.flatten(0, 1),
        keys=inputs.keys.flatten(0, 1),
        beta=of_each(inputs.beta),
        strength=of_each(strength),
        forbidden=matrices(inputs.masks.forbidden),
        bias=matrices(inputs.masks.bias),
    )
    return systems, batch


class _Workspace(threading.local):
    """Work matrices of a thread: what is allocated anew for each tile costs as much as the work."""

    def __init__(self) -> None:
        self.memory: dict[Any, Tensor] = {}

    def matrices(self, count: int, like: Tensor) -> Sequence[Tensor]:
        """`count` matrices (S, N, N) for `like` (S, N, D); what stood in them is lost."""
        shape = (count, len(like), like.shape[-2], like.shape[-2])
        size = count * len(like) * like.shape[-2] ** 2
        memory = self.memory.get(like.dtype)
        if memory is None or memory.numel() < size:
            memory = torch.empty(size, dtype=like.dtype, device="cpu")
            if size <= 8 * _TILE:
                self.memory[like.dtype] = memory
        return memory[:size].view(shape).unbind(0)


_workspace = _Workspace()


def _in_tiles(
    kernel: Callable[..., tuple[Tensor, ...]],
    settings: FusedSettings,
    systems: _Systems,
    *more: Tensor | None,
) -> list[Tensor]:
    """The results of `kernel` for all systems, some at a time."""
    count = len(systems.fields)
    tile = max(1, _TILE // systems.fields.shape[-2] ** 2)
    results = []
    for first in range(0, count, tile):

        def part(values: Tensor | None, first: int = first) -> Tensor | None:
            if values is None or len(values) < count:
                return values
            return values[first : first + tile]

        own = _Systems(*[part(values) for values in systems])  # type: ignore[arg-type]
        results.append(kernel(settings, own, *[part(values) for values in more]))
    return [torch.cat(parts) for parts in zip(*results, strict=True)]


class _ByHand(torch.autograd.Function):
    """Common part of the functions below: what is kept, and derivatives that have derivatives."""

    @staticmethod
    def keep(ctx: Any, settings: FusedSettings, systems: _Systems, *more: Tensor) -> None:
        ctx.settings = settings
        ctx.masks = (systems.forbidden, systems.bias)
        ctx.save_for_backward(*systems[:5], *more)

    @staticmethod
    def kept(ctx: Any) -> tuple[_Systems, list[Tensor]]:
        saved = ctx.saved_tensors
        return _Systems(*saved[:5], *ctx.masks), list(saved[5:])

    @staticmethod
    def through_plain(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Gradients with a graph, of the same function in plain operations."""
        systems, _ = _ByHand.kept(ctx)
        wanted = list(systems[:5])
        inputs = HeadInputs(
            fields=systems.fields,
            queries=systems.queries,
            keys=systems.keys,
            beta=systems.beta,
            masks=PairMasks(forbidden=systems.forbidden, bias=systems.bias),
        )
        outputs = ctx.settings.plain(inputs, systems.strength)
        known = [(o, g) for o, g in zip(outputs, grads, strict=False) if g is not None]
        needed = [value for value in wanted if value.requires_grad]
        slopes = torch.autograd.grad(
            [output for output, _ in known],
            needed,
            [grad for _, grad in known],
            create_graph=True,
            allow_unused=True,
        )
        found = iter(slopes)
        return (None, *[next(found) if x.requires_grad else None for x in wanted], None, None)


def _weights(settings: FusedSettings, systems: _Systems, out: Tensor) -> Tensor:
    """P, as `heads.softmax_weights` computes it."""
    torch.bmm(systems.queries * settings.scale, systems.keys.mT, out=out)
    lowest = torch.finfo(out.dtype).min
    if systems.bias is not None:
        out += systems.bias
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, lowest)
    # The view of the diagonal: a mask of N × N takes a hundred times as long.
    out.diagonal(dim1=-2, dim2=-1).fill_(lowest)
    torch.softmax(out, dim=-1, out=out)
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, 0.0)
    if systems.forbidden is not None or out.shape[-1] == 1:
        out.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return out


def _past_weights(settings: FusedSettings, systems: _Systems, out: Tensor) -> Tensor:
    """P of earlier tokens only: zero on and above the diagonal."""
    torch.bmm(systems.queries * settings.scale, systems.keys.mT, out=out)
    lowest = torch.finfo(out.dtype).min
    if systems.bias is not None:
        out += systems.bias
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, lowest)
    # Twenty times as fast as a mask. What stood above the diagonal is gone, NaN included.
    out.tril_(-1)
    out += torch.full_like(out[0], lowest).triu_()
    torch.softmax(out, dim=-1, out=out)
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, 0.0)
    return out.tril_(-1)


def _softmax_backward(
    settings: FusedSettings, systems: _Systems, weights: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by queries, keys and g of what has the derivative `slope` by J; `slope` is lost.

    J = gP, P = softmax(s q kᵀ).
    """
    slope *= weights
    rows = slope.sum(-1, keepdim=True)
    slope.addcmul_(weights, rows, value=-1)
    factor = settings.scale * systems.strength
    return (
        factor * torch.bmm(slope, systems.keys),
        factor * torch.bmm(systems.queries.mT, slope).mT,
        rows.sum((-2, -1), keepdim=True),
    )


def _width(mean: Tensor) -> Tensor:
    """1 − m², (S, N, 1)."""
    return 1 - mean.square().sum(-1, keepdim=True)


def _square(theta: Tensor) -> Tensor:
    return theta.square().sum(-1, keepdim=True)


def _times_vector(matrix: Tensor, vector: Tensor, work: Tensor) -> Tensor:
    """The product with a vector (S, N, 1), which the library's product is slow for."""
    return torch.mul(matrix, vector.mT, out=work).sum(-1, keepdim=True)


class _Langevin(NamedTuple):
    """m = L θ/θ: the gain 2β/(1 + r) with r = √(1 + 4β² s), s = θ² and what fluctuates."""

    gain: Tensor
    root: Tensor

    @staticmethod
    def of(square: Tensor, beta: Tensor) -> "_Langevin":
        root = (1 + (4 * beta * beta) * square).sqrt()
        return _Langevin(2 * beta / (1 + root), root)

    def backward(self, grad: Tensor, theta: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Derivatives by θ, by s alone, and by β (S, 1, 1), of what has `grad` by m."""
        along = (theta * grad).sum(-1, keepdim=True)
        by_square = along * (-beta * self.gain.square() / self.root)
        by_theta = torch.addcmul(self.gain * grad, by_square, theta, value=2)
        by_beta = (along * self.gain / self.root).sum((-2, -1), keepdim=True) / beta
        return by_theta, by_square, by_beta


def _plus_transposed(matrix: Tensor, out: Tensor) -> Tensor:
    """matrix + matrixᵀ."""
    if matrix.shape[-1] < _FAST_TRANSPOSE:
        return torch.add(matrix, matrix.mT, out=out)
    # The library copies one transposed matrix block by block, and many of them row by row.
    for one, other in zip(matrix, out, strict=True):
        other.copy_(one.T)
    out += matrix
    return out


def _response(
    systems: _Systems, weights: Tensor, correlation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """G k, Gᵀ q and ρ; `correlation` is lost."""
    correlation *= weights
    rho = correlation.sum(-1, keepdim=True)
    attention = correlation.addcmul_(weights, rho, value=-1)
    along = systems.strength * torch.bmm(attention, systems.keys)
    back = systems.strength * torch.bmm(systems.queries.mT, attention).mT
    return along, back, rho


def _response_backward(
    systems: _Systems,
    weights: Tensor,
    correlation: Tensor,
    rho: Tensor,
    slope: Tensor,
    work: Tensor,
    along: Tensor,
    back: Tensor,
) -> tuple[Tensor, Tensor]:
    """Backward pass of `_response` for the derivatives `along`, `back` by its results.

    Returns the derivatives by queries and keys, writes E, up to what is constant in a row, into
    `slope`, and Y/g, with Y = ∂C + ∂Cᵀ, into `correlation`.
    """
    # ∂G = along kᵀ + q backᵀ.
    left = torch.cat([along, systems.queries], -1)
    right = torch.cat([systems.keys, back], -1)
    torch.bmm(left, right.mT, out=slope)
    correlation -= rho
    torch.mul(weights, correlation, out=work)
    by_queries = systems.strength * torch.bmm(work, back)
    by_keys = systems.strength * torch.bmm(along.mT, work).mT
    # With e_i = Σ P ∂G: ∂C = g P∘(∂G − e) and E = (∂G − e)∘(C − ρ) − e ρ. The last term is left
    # out: the softmax does not feel what is constant in a row, and g has just this part besides.
    slope -= torch.mul(weights, slope, out=work).sum(-1, keepdim=True)
    torch.mul(weights, slope, out=work)
    slope *= correlation
    _plus_transposed(work, correlation)
    return by_queries, by_keys


def _mean_field_correlation(
    systems: _Systems, mean: Tensor, pair: Tensor, order: int, out: Tensor
) -> Tensor:
    """m mᵀ [+ βg B∘(w wᵀ)] for `pair` B/g, right off the diagonal."""
    if order == 1:
        return torch.bmm(mean, mean.mT, out=out)
    width = _width(mean)
    torch.mul(pair, width, out=out).mul_((systems.beta * systems.strength * width).mT)
    return out.baddbmm_(mean, mean.mT)


def _mean_field_forward(settings: FusedSettings, systems: _Systems) -> tuple[Tensor, ...]:
    """m, G k, Gᵀ q, and what the backward pass wants: θ of all steps (S, N, (K+1) D), Onsager's
    factors over β (S, N, K), and ρ."""
    beta = systems.beta
    strength = systems.strength
    weights, pair, work = _workspace.matrices(3, systems.fields)
    # The pair couplings without g, which is cheaper to have in vectors.
    _plus_transposed(_weights(settings, systems, weights), pair)
    thetas = [systems.fields]
    reactions = []
    mean = _Langevin.of(_square(systems.fields), beta).gain * systems.fields
    for _ in range(settings.steps or 0):
        theta = torch.baddbmm(systems.fields, pair, strength * mean)
        if settings.order == 2:
            torch.mul(pair, pair, out=work)
            reaction = _times_vector(work, strength.square() * _width(mean), work)
            theta.addcmul_(beta * reaction, mean, value=-1)
            reactions.append(reaction)
        mean = _Langevin.of(_square(theta), beta).gain * theta
        thetas.append(theta)
    kept = torch.cat(thetas, -1)
    reaction = torch.cat(reactions, -1) if reactions else mean[..., :0]
    if not settings.response:
        none = mean[..., :0]
        return mean, none, none, kept, reaction, none
    correlation = _mean_field_correlation(systems, mean, pair, settings.order, pair)
    along, back, rho = _response(systems, weights, correlation)
    return mean, along, back, kept, reaction, rho


def _mean_field_backward(
    settings: FusedSettings,
    systems: _Systems,
    thetas: Tensor,
    reactions: Tensor,
    rho: Tensor,
    grad: Tensor,
    along: Tensor,
    back: Tensor,
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys, β and g."""
    beta = systems.beta
    strength = systems.strength
    scaled = beta * strength
    weights, pair, slope, correlation, work = _workspace.matrices(5, systems.fields)
    _plus_transposed(_weights(settings, systems, weights), pair)
    theta_of = thetas.split(systems.fields.shape[-1], -1)
    langevin = [_Langevin.of(_square(theta), beta) for theta in theta_of]
    means = [response.gain * theta for response, theta in zip(langevin, theta_of, strict=True)]
    by_beta = torch.zeros_like(beta)
    by_queries: Any = 0.0
    by_keys: Any = 0.0
    if settings.response:
        mean = means[-1]
        _mean_field_correlation(systems, mean, pair, settings.order, correlation)
        by_queries, by_keys = _response_backward(
            systems, weights, correlation, rho, slope, work, along, back
        )
        # C = m mᵀ + β B∘(w wᵀ).
        grad = torch.baddbmm(grad, correlation, strength * mean)
        if settings.order == 2:
            width = _width(mean)
            correlation *= (scaled * width).mT
            slope.addcmul_(correlation, width)
            by_width = torch.mul(correlation, pair, out=work).sum(-1, keepdim=True) * strength
            by_beta = by_beta + (width * by_width).sum((-2, -1), keepdim=True) / (2 * beta)
            grad.addcmul_(by_width, mean, value=-2)
    else:
        slope.zero_()

    by_fields: Any = 0.0
    lefts = []
    rights = []
    for step in range(settings.steps or 0, 0, -1):
        before = means[step - 1]
        by_theta, _, more = langevin[step].backward(grad, theta_of[step], beta)
        by_beta = by_beta + more
        by_fields = by_fields + by_theta
        lefts.append(by_theta)
        rights.append(before)
        # θ = h + B m − c m with c = β Σ_j B_ij² w_j.
        grad = torch.bmm(pair, strength * by_theta)
        if settings.order == 2:
            reaction = reactions[..., step - 1 : step]
            width = _width(before)
            by_reaction = (by_theta * before).sum(-1, keepdim=True).neg_()
            by_beta = by_beta + (by_reaction * reaction).sum((-2, -1), keepdim=True)
            grad.addcmul_(beta * reaction, by_theta, value=-1)
            torch.mul(pair, by_reaction.mT, out=work)
            slope.addcmul_(work, 2 * scaled * width)
            work *= pair
            by_width = (scaled * strength) * work.sum(-1, keepdim=True)
            grad.addcmul_(by_width, before, value=-2)
            torch.mul(pair, (2 * scaled * width).mT, out=work)
            slope.addcmul_(work, by_reaction)
    by_theta, _, more = langevin[0].backward(grad, systems.fields, beta)
    slope.baddbmm_(torch.cat(lefts + rights, -1), torch.cat(rights + lefts, -1).mT)
    queries, keys, by_strength = _softmax_backward(settings, systems, weights, slope)
    return (
        by_fields + by_theta,
        by_queries + queries,
        by_keys + keys,
        by_beta + more,
        by_strength,
    )


class _MeanField(_ByHand):
    """K steps of the mean-field equations, and the response of the couplings."""

    @staticmethod
    def forward(ctx: Any, settings: FusedSettings, *tensors: Any) -> tuple[Any, ...]:
        systems = _Systems(*tensors)
        mean, along, back, *kept = _in_tiles(_mean_field_forward, settings, systems)
        _ByHand.keep(ctx, settings, systems, *kept)
        return mean, along, back, None

    @staticmethod
    def backward(ctx: Any, grad: Tensor, along: Tensor, back: Tensor, _: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return _ByHand.through_plain(ctx, _wanted(ctx.settings, grad, along, back))
        systems, kept = _ByHand.kept(ctx)
        slopes = _in_tiles(_mean_field_backward, ctx.settings, systems, *kept, grad, along, back)
        return (None, *slopes, None, None)


def _wanted(settings: FusedSettings, *grads: Tensor) -> list[Tensor | None]:
    return [grads[0], *(grads[1:] if settings.response else [None, None])]


def _solve_positive(
    matrix: Tensor, right: Tensor, work: Tensor, *, accuracy: float = 0.0
) -> Tensor:
    """x with matrix x = right (S, N, 1), by conjugate gradients scaled by the diagonal.

    The matrices are positive definite, and nearly diagonal where couplings are weak. Where they
    are not, a direct solution follows.
    """
    inverse_diagonal = _diagonal(matrix).reciprocal()
    accuracy = max(accuracy, 4 * torch.finfo(right.dtype).eps)
    limit = accuracy**2 * right.square().sum(-2, keepdim=True)
    solution = torch.zeros_like(right)
    residual = right.clone()
    scaled = inverse_diagonal * residual
    direction = scaled
    product = (residual * scaled).sum(-2, keepdim=True)
    tiny = torch.finfo(right.dtype).tiny
    for _ in range(_GRADIENT_STEPS):
        image = _times_vector(matrix, direction, work)
        length = product / (direction * image).sum(-2, keepdim=True).clamp_min(tiny)
        solution.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        if bool((residual.square().sum(-2, keepdim=True) <= limit).all()):
            return solution
        scaled = inverse_diagonal * residual
        after = (residual * scaled).sum(-2, keepdim=True)
        direction = torch.addcmul(scaled, after / product.clamp_min(tiny), direction)
        product = after
    return torch.linalg.solve_ex(matrix, right).result


def _hessian(systems: _Systems, inverse: Tensor, mean: Tensor, out: Tensor) -> Tensor:
    """φ'' = V⁻¹∘(½ V⁻¹ + 2β m mᵀ), as `large_d.action_gradient` has it."""
    torch.bmm((2 * systems.beta) * mean, mean.mT, out=out)
    return out.add_(inverse, alpha=0.5).mul_(inverse)


class _SaddlePoint(NamedTuple):
    """V⁻¹ at the saddle point, and the `Status` of each system."""

    inverse: Tensor
    status: Tensor


def _find_saddle(
    settings: FusedSettings, systems: _Systems, pair: Tensor, work: Sequence[Tensor]
) -> _SaddlePoint:
    """The saddle point by Newton's method from a few mean-field sweeps, or else by the search.

    `pair` is B/g. Where couplings are weak one factorisation is enough: the last two of Newton's
    steps take V⁻¹ by its expansion, which is wrong by the third power of the step.
    """
    trial, factor, inverse, hessian, scratch = work
    half = 0.5 * systems.strength
    multipliers = _mean_field_multipliers(systems, pair, trial, scratch)
    info = torch.empty(len(pair), dtype=torch.int32, device=pair.device)
    for _ in range(_NEWTON_STEPS):
        torch.mul(pair, -half, out=trial)
        trial.diagonal(dim1=-2, dim2=-1).copy_(multipliers[..., 0])
        # Columns of the library are rows of the work matrices: lower of one is upper of the other.
        torch.linalg.cholesky_ex(trial, out=(factor.mT, info))
        if bool(info.any()):
            break
        torch.cholesky_inverse(factor.mT, out=inverse.mT)
        own = _diagonal(inverse)
        mean = 0.5 * torch.bmm(inverse, systems.fields)
        missing = _missing_length(systems, own, mean)
        largest = float(missing.abs().max())
        if largest <= settings.tolerance:
            return _SaddlePoint(inverse, _converged(systems))
        if not math.isfinite(largest):
            break
        _hessian(systems, inverse, mean, hessian)
        scaled = systems.beta * missing
        step = _solve_positive(hessian, scaled, scratch, accuracy=_STEP_ACCURACY).neg_()
        relative = float((step * own).abs().max())
        if relative**3 <= 0.3 * settings.tolerance and _expand(
            systems, mean, step, relative, [trial, factor, inverse, hessian, scratch]
        ):
            return _SaddlePoint(inverse, _converged(systems))
        multipliers = multipliers + step
    half_pair = pair * half
    found = saddle_of(
        half_pair,
        field_source(systems.fields),
        systems.beta[:, 0, 0],
        settings.tolerance,
        settings.max_steps,
    )
    inverse, _ = inverse_logdet(torch.diag_embed(found.value) - half_pair)
    return _SaddlePoint(inverse, found.status)


def _expand(
    systems: _Systems, mean: Tensor, step: Tensor, relative: float, work: Sequence[Tensor]
) -> bool:
    """Move V⁻¹ by the step s, and by a second one s' that the lengths there ask for.

    (V + s + s')⁻¹ = A − A s A + (A s A s − A s') A + …, with A = V⁻¹ and s' of the order s². False
    if it is not, and then V⁻¹ stays.
    """
    first, second, inverse, hessian, scratch = work
    torch.bmm(torch.mul(inverse, step.mT, out=scratch), inverse, out=first)
    torch.mul(first, step.mT, out=second)
    own = _diagonal(inverse) - _diagonal(first)
    # The matrices are symmetric, so that rows serve as columns.
    own += torch.mul(second, inverse, out=scratch).sum(-1, keepdim=True)
    moved = mean - 0.5 * torch.bmm(first, systems.fields) + torch.bmm(second, mean)
    missing = systems.beta * _missing_length(systems, own, moved)
    # The Hessian is that of the first step, good enough for the second.
    more = _solve_positive(hessian, missing, scratch, accuracy=_STEP_ACCURACY).neg_()
    if float((more * own).abs().max()) > 3 * relative**2:
        return False
    second.addcmul_(inverse, more.mT, value=-1)
    torch.bmm(second, inverse, out=scratch)
    inverse.sub_(first).add_(scratch)
    return True


def _diagonal(matrix: Tensor) -> Tensor:
    """The diagonal as (S, N, 1)."""
    return matrix.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)


def _converged(systems: _Systems) -> Tensor:
    count = len(systems.fields)
    return torch.full((count,), int(Status.CONVERGED), device=systems.fields.device)


def _missing_length(systems: _Systems, own: Tensor, mean: Tensor) -> Tensor:
    """1 − C_ii, (S, N, 1), from the diagonal of V⁻¹."""
    return _width(mean).addcdiv_(own, 2 * systems.beta, value=-1)


def _mean_field_multipliers(
    systems: _Systems, pair: Tensor, square: Tensor, work: Tensor
) -> Tensor:
    """t (S, N, 1) after some sweeps of the mean-field equations: 2 t = θ/m + Onsager's factor."""
    beta = systems.beta
    strength = systems.strength
    gain = _Langevin.of(_square(systems.fields), beta).gain
    mean = gain * systems.fields
    torch.mul(pair, pair, out=square)
    for _ in range(_SWEEPS):
        reaction = (beta * strength) * _times_vector(square, strength * _width(mean), work)
        theta = torch.baddbmm(systems.fields, pair, strength * mean)
        theta.addcmul_(reaction, mean, value=-1)
        gain = _Langevin.of(_square(theta), beta).gain
        mean = gain * theta
    return 0.5 * (gain.reciprocal() + reaction)


def _saddle_correlation(systems: _Systems, inverse: Tensor, mean: Tensor, out: Tensor) -> Tensor:
    """C = m mᵀ + V⁻¹/(2β)."""
    torch.bmm(mean, mean.mT, out=out)
    return out.addcdiv_(inverse, 2 * systems.beta)


def _saddle_forward(settings: FusedSettings, systems: _Systems) -> tuple[Tensor, ...]:
    """m, G k, Gᵀ q, status, and for the backward pass V⁻¹ and ρ."""
    weights, pair, *work = _workspace.matrices(7, systems.fields)
    _plus_transposed(_weights(settings, systems, weights), pair)
    inverse, status = _find_saddle(settings, systems, pair, work)
    mean = 0.5 * torch.bmm(inverse, systems.fields)
    if not settings.response:
        none = mean[..., :0]
        return mean, none, none, status, inverse.clone(), none
    correlation = _saddle_correlation(systems, inverse, mean, pair)
    along, back, rho = _response(systems, weights, correlation)
    return mean, along, back, status, inverse.clone(), rho


def _saddle_backward(
    settings: FusedSettings,
    systems: _Systems,
    mean: Tensor,
    inverse: Tensor,
    rho: Tensor,
    grad: Tensor,
    along: Tensor,
    back: Tensor,
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys, β and g.

    With A = V⁻¹, m = ½ A h and C = m mᵀ + A/(2β), let ∂m be the derivative by m and Y = ∂C + ∂Cᵀ.
    The condition C_ii = 1 adds −2λ_i m_i to ∂m_i and −2λ_i to Y_ii, where λ = −β φ''⁻¹ ∂t and
    ∂t_i = −(A Y A)_ii/(4β) − (A ∂m)_i·m_i. Then ∂h = ½ A ∂m and, with u = A ∂m,
    ∂J = A Y A/(4β) + ½ (u mᵀ + m uᵀ).
    """
    beta = systems.beta
    weights, slope, correlation, work, other = _workspace.matrices(5, systems.fields)
    _weights(settings, systems, weights)
    by_queries: Any = 0.0
    by_keys: Any = 0.0
    own = _diagonal(inverse)
    by_inverse: Any = 0.0
    if settings.response:
        _saddle_correlation(systems, inverse, mean, correlation)
        by_queries, by_keys = _response_backward(
            systems, weights, correlation, rho, slope, work, along, back
        )
        correlation *= systems.strength
        grad = torch.baddbmm(grad, correlation, mean)
        by_inverse = torch.mul(correlation, inverse, out=work).sum((-2, -1), keepdim=True)
        torch.bmm(inverse, correlation, out=other)
    else:
        slope.zero_()
        other.zero_()
    carried = torch.bmm(inverse, grad)
    by_multiplier = torch.mul(other, inverse, out=work).sum(-1, keepdim=True) / (-4 * beta)
    by_multiplier -= (carried * mean).sum(-1, keepdim=True)
    _hessian(systems, inverse, mean, correlation)
    multiplier = _solve_positive(correlation, by_multiplier, work) * -beta
    carried -= torch.bmm(inverse, 2 * multiplier * mean)
    other.addcmul_(inverse, multiplier.mT, value=-2)
    by_inverse = by_inverse - 2 * (multiplier * own).sum((-2, -1), keepdim=True)
    torch.bmm(other, inverse, out=work)
    slope.addcdiv_(work, 4 * beta)
    left = torch.cat([0.5 * carried, mean], -1)
    slope.baddbmm_(left, torch.cat([mean, 0.5 * carried], -1).mT)
    queries, keys, by_strength = _softmax_backward(settings, systems, weights, slope)
    by_beta = by_inverse / (-4 * beta.square())
    return 0.5 * carried, by_queries + queries, by_keys + keys, by_beta, by_strength


class _Saddle(_ByHand):
    """The saddle point and the response of the couplings."""

    @staticmethod
    def forward(ctx: Any, settings: FusedSettings, *tensors: Any) -> tuple[Any, ...]:
        systems = _Systems(*tensors)
        mean, along, back, status, inverse, rho = _in_tiles(_saddle_forward, settings, systems)
        _ByHand.keep(ctx, settings, systems, mean, inverse, rho)
        ctx.mark_non_differentiable(status)
        return mean, along, back, status

    @staticmethod
    def backward(ctx: Any, grad: Tensor, along: Tensor, back: Tensor, _: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return _ByHand.through_plain(ctx, _wanted(ctx.settings, grad, along, back))
        systems, kept = _ByHand.kept(ctx)
        slopes = _in_tiles(_saddle_backward, ctx.settings, systems, *kept, grad, along, back)
        return (None, *slopes, None, None)


def _driven_forward(settings: FusedSettings, systems: _Systems) -> tuple[Tensor, ...]:
    """The means at all times, (S, N, (K+1) D)."""
    couplings, square, work = _workspace.matrices(3, systems.fields)
    _past_weights(settings, systems, couplings).mul_(systems.strength)
    if settings.order == 2:
        torch.mul(couplings, couplings, out=square)
    length = systems.fields.square().sum(-1, keepdim=True)
    mean = _Langevin.of(length, systems.beta).gain * systems.fields
    means = [mean]
    for _ in range(settings.steps or 0):
        theta = torch.baddbmm(systems.fields, couplings, mean)
        length = theta.square().sum(-1, keepdim=True)
        if settings.order == 2:
            length = length + _times_vector(square, _width(mean), work)
        mean = _Langevin.of(length, systems.beta).gain * theta
        means.append(mean)
    return mean, torch.cat(means, -1)


def _driven_backward(
    settings: FusedSettings, systems: _Systems, kept: Tensor, grad: Tensor
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys, β and g."""
    beta = systems.beta
    weights, couplings, square, slope, work = _workspace.matrices(5, systems.fields)
    _past_weights(settings, systems, weights)
    torch.mul(weights, systems.strength, out=couplings)
    if settings.order == 2:
        torch.mul(couplings, couplings, out=square)
    means = kept.split(systems.fields.shape[-1], -1)
    by_beta = torch.zeros_like(beta)
    by_fields: Any = 0.0
    lefts = []
    rights = []
    lengths = []
    widths = []
    for step in range(settings.steps or 0, 0, -1):
        before = means[step - 1]
        theta = torch.baddbmm(systems.fields, couplings, before)
        length = theta.square().sum(-1, keepdim=True)
        width = _width(before)
        if settings.order == 2:
            length = length + _times_vector(square, width, work)
        by_theta, by_square, more = _Langevin.of(length, beta).backward(grad, theta, beta)
        by_beta = by_beta + more
        by_fields = by_fields + by_theta
        lefts.append(by_theta)
        rights.append(before)
        grad = torch.bmm(by_theta.mT, couplings).mT
        if settings.order == 2:
            lengths.append(by_square)
            widths.append(width)
            by_width = torch.mul(square, by_square, out=work).sum(-2, keepdim=True).mT
            grad = torch.addcmul(grad, by_width, before, value=-2)
    first = _Langevin.of(systems.fields.square().sum(-1, keepdim=True), beta)
    by_theta, _, more = first.backward(grad, systems.fields, beta)
    torch.bmm(torch.cat(lefts, -1), torch.cat(rights, -1).mT, out=slope)
    for by_square, width in zip(lengths, widths, strict=True):
        slope.addcmul_(torch.mul(couplings, 2 * by_square, out=work), width.mT)
    queries, keys, by_strength = _softmax_backward(settings, systems, weights, slope)
    return by_fields + by_theta, queries, keys, by_beta + more, by_strength


class _Driven(_ByHand):
    """K parallel steps of driven spins."""

    @staticmethod
    def forward(ctx: Any, settings: FusedSettings, *tensors: Any) -> Any:
        systems = _Systems(*tensors)
        mean, means = _in_tiles(_driven_forward, settings, systems)
        _ByHand.keep(ctx, settings, systems, means)
        return mean

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return _ByHand.through_plain(ctx, [grad])
        systems, (means,) = _ByHand.kept(ctx)
        slopes = _in_tiles(_driven_backward, ctx.settings, systems, means, grad)
        return (None, *slopes, None, None)
