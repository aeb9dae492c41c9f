"""Spin modules with a backward pass by hand, which keeps few matrices.

What is kept for it are vectors of each spin, at the saddle point one inverse, and the couplings as
long as these matrices take no more room than a few such vectors. For more spins the backward pass
computes the softmax weights again from queries and keys, as in flash attention. Systems are taken
in tiles that fit into the cache of a processor, in work matrices that a thread uses again and
again; on accelerators the modules take the plain operations.

The equations depend on β through βh and βg alone. Everything here is at β = ½, where spins respond
to fields with m = θ/(1 + √(1 + θ²)). Notation: P are the softmax weights, J = gP, B = J + Jᵀ, and a
matrix E stands for the derivative of the loss by J. With the correlations C, the response weights
are

    G = J∘(C − ρ),   ρ_i = Σ_n P_in C_in,   and the answers  m,  G k,  Gᵀ q.

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
# Matrices of a system are kept for the backward pass up to this many vectors of its N spins.
_KEPT_VECTORS = 16
# Before Newton's steps at the saddle point: steps in the mean of all spins, then mean-field steps.
_UNIFORM_STEPS = 12
_SWEEPS = 2
# Newton's steps before the search takes over.
_NEWTON_STEPS = 8
# How well a Newton step is solved for, relative to it: the next one mends the rest.
_STEP_ACCURACY = 1e-4
# Steps of conjugate gradients before a direct solution is cheaper.
_GRADIENT_STEPS = 40


@dataclasses.dataclass(frozen=True)
class FusedSettings:
    """What the spins of a module solve.

    Parameters
    ----------
    theory : {"mean field", "saddle", "driven"}
        The equations.
    scale : float
        Factor of the scores, γ/√D.
    plain : callable
        The same function of `HeadInputs` and g in plain operations.
    steps : int, default 0
        Number K of mean-field steps from free spins, or of driven steps.
    order : {1, 2}, default 2
        Order of these equations; 2 has the squares of the couplings.
    response : bool, default False
        Whether the response of the couplings is wanted, G k and Gᵀ q.
    tolerance : float, default 0.0
        Largest residual at the saddle point.
    max_steps : int, default 1
        Largest number of steps of the search for the saddle point.
    """

    theory: str
    scale: float
    plain: Callable[[HeadInputs, Tensor], tuple[Tensor, ...]]
    steps: int = 0
    order: int = 2
    response: bool = False
    tolerance: float = 0.0
    max_steps: int = 1


class FusedSpins(NamedTuple):
    """What `solve_fused` returns.

    Attributes
    ----------
    mean : Tensor, shape (batch, heads, N, D)
        Magnetizations ⟨u⟩.
    along : Tensor, shape (batch, heads, N, D), or None
        The average 2β G k of the response; None without it.
    back : Tensor, shape (batch, heads, N, D), or None
        The average 2β Gᵀ q of the response; None without it.
    status : Tensor of int, shape (batch, heads), or None
        How the search for the saddle point ended, as values of `Status`.
    """

    mean: Tensor
    along: Tensor | None
    back: Tensor | None
    status: Tensor | None


class _Systems(NamedTuple):
    """Systems of all samples and heads one behind the other, (S, N, D) and g (S, 1, 1), at β = ½.

    Masks are (S, N, N), or (1, N, N) where all systems have the same.
    """

    fields: Tensor
    queries: Tensor
    keys: Tensor
    strength: Tensor
    forbidden: Tensor | None
    bias: Tensor | None

    @property
    def divisor(self) -> Tensor:
        """g, except where it is too small for a number: that couples nothing, divides nothing."""
        return self.strength.clamp_min(torch.finfo(self.strength.dtype).tiny)


def solve_fused(inputs: HeadInputs, strength: Tensor, settings: FusedSettings) -> FusedSpins:
    """Solve the spins of all heads, with a backward pass by hand.

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
    batch = inputs.fields.shape[:-2]
    sites = inputs.fields.shape[-2]

    def matrices(values: Tensor | None) -> Tensor | None:
        if values is None or values.ndim == 2:
            return values if values is None else values.unsqueeze(0)
        return values.expand(*batch, sites, sites).reshape(-1, sites, sites)

    double = 2 * inputs.beta
    systems = _Systems(
        fields=(double * inputs.fields).flatten(0, 1),
        queries=inputs.queries.flatten(0, 1),
        keys=inputs.keys.flatten(0, 1),
        strength=(double * strength).expand(*batch, 1, 1).reshape(-1, 1, 1),
        forbidden=matrices(inputs.masks.forbidden),
        bias=matrices(inputs.masks.bias),
    )
    keeps_couplings = _keeps_couplings(settings, systems)
    mean, along, back, status = _ByHand.apply(settings, keeps_couplings, *systems)
    return FusedSpins(
        mean=mean.unflatten(0, batch),
        along=None if along is None else along.unflatten(0, batch),
        back=None if back is None else back.unflatten(0, batch),
        status=None if status is None else status.reshape(batch),
    )


def _keeps_couplings(settings: FusedSettings, systems: _Systems) -> bool:
    """Whether J is kept for the backward pass: a matrix N × N, beside R at the saddle point."""
    differentiated = any(values.requires_grad for values in systems[:4])
    sites, width = systems.fields.shape[-2:]
    matrices = 2 if settings.theory == "saddle" else 1
    fits = matrices * sites <= _KEPT_VECTORS * width
    return torch.is_grad_enabled() and differentiated and fits


class _ByHand(torch.autograd.Function):
    """The kernels of a theory, and derivatives that have derivatives."""

    @staticmethod
    def forward(
        ctx: Any, settings: FusedSettings, keeps_couplings: bool, *tensors: Any
    ) -> tuple[Any, ...]:
        systems = _Systems(*tensors)
        couplings = None
        if keeps_couplings:
            fields = systems.fields
            couplings = fields.new_empty(*fields.shape[:-1], fields.shape[-2])
        kernel, _ = _KERNELS[settings.theory]
        mean, along, back, status, *kept = _in_tiles(kernel, settings, systems, couplings)
        ctx.settings = settings
        ctx.masks = systems[4:]
        ctx.save_for_backward(*systems[:4], couplings, *kept)
        if status is not None:
            ctx.mark_non_differentiable(status)
        return mean, along, back, status

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        systems = _Systems(*ctx.saved_tensors[:4], *ctx.masks)
        if torch.is_grad_enabled():
            return None, None, *_plain_gradients(ctx.settings, systems, grads[:3]), None, None
        _, kernel = _KERNELS[ctx.settings.theory]
        kept = ctx.saved_tensors[4:]
        return None, None, *_in_tiles(kernel, ctx.settings, systems, *kept, *grads[:3]), None, None


def _plain_gradients(
    settings: FusedSettings, systems: _Systems, grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients with a graph, of the same function in plain operations."""
    inputs = HeadInputs(
        fields=systems.fields,
        queries=systems.queries,
        keys=systems.keys,
        beta=torch.full_like(systems.strength, 0.5),
        masks=PairMasks(forbidden=systems.forbidden, bias=systems.bias),
    )
    outputs = settings.plain(inputs, systems.strength)
    pairs = [pair for pair in zip(outputs, grads, strict=False) if pair[1] is not None]
    needed = [value for value in systems[:4] if value.requires_grad]
    slopes = torch.autograd.grad(
        [output for output, _ in pairs],
        needed,
        [grad for _, grad in pairs],
        create_graph=True,
        allow_unused=True,
    )
    remaining = iter(slopes)
    return [next(remaining) if value.requires_grad else None for value in systems[:4]]


def _in_tiles(
    kernel: Callable[..., tuple[Tensor | None, ...]],
    settings: FusedSettings,
    systems: _Systems,
    *more: Tensor | None,
) -> list[Tensor | None]:
    """The results of `kernel` for all systems, some at a time."""
    count = len(systems.fields)
    tile = max(1, _TILE // systems.fields.shape[-2] ** 2)
    columns = []
    for values in (*systems, *more):
        if values is None or len(values) < count:
            columns.append([values] * math.ceil(count / tile))
        else:
            columns.append(values.split(tile))
    results = [kernel(settings, _Systems(*x[:6]), *x[6:]) for x in zip(*columns, strict=True)]
    if len(results) == 1:
        return list(results[0])
    return [None if x[0] is None else torch.cat(x) for x in zip(*results, strict=True)]


class _Workspace(threading.local):
    """Work matrices of a thread: what is allocated anew for each tile costs as much as the work."""

    def __init__(self) -> None:
        self.memory: dict[Any, Tensor] = {}

    def matrices(self, count: int, like: Tensor) -> Sequence[Tensor]:
        """`count` matrices (S, N, N) for `like` (S, N, D); what stood in them is lost."""
        shape = (count, len(like), like.shape[-2], like.shape[-2])
        size = math.prod(shape)
        memory = self.memory.get(like.dtype)
        if memory is None or memory.numel() < size:
            memory = torch.empty(size, dtype=like.dtype, device="cpu")
            if size <= 8 * _TILE:
                self.memory[like.dtype] = memory
        return memory[:size].view(shape).unbind(0)


_workspace = _Workspace()


def _diagonal(matrix: Tensor) -> Tensor:
    """The diagonal as (S, N, 1)."""
    return matrix.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)


def _times_vector(matrix: Tensor, vector: Tensor, work: Tensor) -> Tensor:
    """The product with a vector (S, N, 1), which the library's product is slow for."""
    return torch.mul(matrix, vector.mT, out=work).sum(-1, keepdim=True)


class _Langevin(NamedTuple):
    """The response of spins to fields θ: m = θ/(1 + r) with the root r = √(1 + θ² + K).

    K is what the fields fluctuate besides. Where they do not, the gain 1/(1 + r) is ½(1 − m²), too.
    """

    mean: Tensor
    gain: Tensor
    root: Tensor

    @staticmethod
    def of(theta: Tensor, fluctuation: Tensor | None = None) -> "_Langevin":
        root = (theta * theta).sum(-1, keepdim=True).add_(1)
        if fluctuation is not None:
            root += fluctuation
        root.sqrt_()
        gain = (root + 1).reciprocal_()
        return _Langevin(gain * theta, gain, root)

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative by θ of what has the derivative `grad` by m; and −2/gain times that by K."""
        along = (self.mean * grad).sum(-1, keepdim=True).div_(self.root)
        return torch.addcmul(self.gain * grad, along, self.mean, value=-1), along


def _couplings(settings: FusedSettings, systems: _Systems, out: Tensor) -> Tensor:
    """J, with the softmax weights that `heads.softmax_weights` computes.

    Driven spins are coupled to earlier ones alone. What is above their diagonal is overwritten, NaN
    included.
    """
    driven = settings.theory == "driven"
    torch.baddbmm(out, systems.queries, systems.keys.mT, beta=0, alpha=settings.scale, out=out)
    lowest = torch.finfo(out.dtype).min
    if systems.bias is not None:
        out += systems.bias
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, lowest)
    # A mask of N × N takes twenty times as long as a triangle, and a hundred times as the diagonal.
    if driven:
        out.tril_(-1)
        out += torch.full_like(out[0], lowest).triu_()
    else:
        out.diagonal(dim1=-2, dim2=-1).fill_(lowest)
    torch.softmax(out, dim=-1, out=out)
    out *= systems.strength
    # Rows without any allowed entry are uniform.
    if systems.forbidden is not None:
        out.masked_fill_(systems.forbidden, 0.0)
    if driven:
        return out.tril_(-1)
    if systems.forbidden is not None or out.shape[-1] == 1:
        out.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return out


def _couplings_backward(
    settings: FusedSettings,
    systems: _Systems,
    couplings: Tensor,
    weighted: Tensor,
    by_queries: Tensor,
    by_keys: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by queries, keys and g: to those given, what J∘E adds; `weighted` J∘E is lost."""
    rows = weighted.sum(-1, keepdim=True).div_(systems.divisor)
    weighted.addcmul_(couplings, rows, value=-1)
    return (
        torch.baddbmm(by_queries, weighted, systems.keys, alpha=settings.scale),
        torch.baddbmm(by_keys.mT, systems.queries.mT, weighted, alpha=settings.scale).mT,
        rows.sum(-2, keepdim=True),
    )


def _response(
    systems: _Systems, couplings: Tensor, correlation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """G k, Gᵀ q and ρ; `correlation` is lost."""
    correlation *= couplings
    rho = correlation.sum(-1, keepdim=True).div_(systems.divisor)
    attention = correlation.addcmul_(couplings, rho, value=-1)
    along = torch.bmm(attention, systems.keys)
    return along, torch.bmm(systems.queries.mT, attention).mT, rho


def _response_backward(
    systems: _Systems,
    couplings: Tensor,
    rho: Tensor,
    along: Tensor,
    back: Tensor,
    work: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """Backward pass of `_response` for the derivatives `along` and `back` by its results.

    Returns the derivatives by queries and keys. Of the work matrices the first holds C, and then
    Y = ∂C + ∂Cᵀ. The second holds J∘E afterwards, up to what is constant times J in a row.
    """
    correlation, weighted, slope = work
    # ∂G = along kᵀ + q backᵀ.
    left = torch.cat([along, systems.queries], -1)
    right = torch.cat([systems.keys, back], -1)
    torch.bmm(left, right.mT, out=slope)
    # ∂C = J∘(∂G − e) with e_i = Σ P ∂G, and J∘E = ∂C∘(C − ρ) − J e ρ. The last term is left out:
    # the softmax is independent of what is constant in a row, and g has just this part besides.
    slope *= couplings
    rows = slope.sum(-1, keepdim=True).div_(systems.divisor)
    slope.addcmul_(couplings, rows, value=-1)
    correlation -= rho
    torch.mul(slope, correlation, out=weighted)
    correlation *= couplings
    by_queries = torch.bmm(correlation, back)
    by_keys = torch.bmm(along.mT, correlation).mT
    torch.add(slope, slope.mT, out=correlation)
    return by_queries, by_keys


def _mean_field_correlation(spins: _Langevin, pair: Tensor, order: int, out: Tensor) -> Tensor:
    """m mᵀ [+ ½ B∘(w wᵀ)], w = 1 − m², right off the diagonal."""
    if order == 1:
        return torch.bmm(spins.mean, spins.mean.mT, out=out)
    torch.mul(pair, spins.gain, out=out).mul_(spins.gain.mT)
    return out.baddbmm_(spins.mean, spins.mean.mT, beta=2)


def _mean_field_forward(
    settings: FusedSettings, systems: _Systems, kept: Tensor | None
) -> tuple[Tensor | None, ...]:
    """m, G k, Gᵀ q, and for the backward pass the spins of all steps, m (S, N, (K+1) D), gains and
    roots (S, N, K+1), Onsager's factors (S, N, K) and ρ."""
    couplings, pair, square, work = _workspace.matrices(4, systems.fields)
    couplings = _couplings(settings, systems, couplings if kept is None else kept)
    torch.add(couplings, couplings.mT, out=pair)
    spins = _Langevin.of(systems.fields)
    steps = [spins]
    reactions = []
    if settings.order == 2:
        torch.mul(pair, pair, out=square)
    for _ in range(settings.steps):
        theta = torch.baddbmm(systems.fields, pair, spins.mean)
        if settings.order == 2:
            reactions.append(_times_vector(square, spins.gain, work))
            theta.addcmul_(reactions[-1], spins.mean, value=-1)
        spins = _Langevin.of(theta)
        steps.append(spins)
    for_backward: list[Tensor | None] = [torch.cat(x, -1) for x in zip(*steps, strict=True)]
    for_backward.append(torch.cat(reactions, -1) if reactions else None)
    if not settings.response:
        return spins.mean, None, None, None, *for_backward, None
    correlation = _mean_field_correlation(spins, pair, settings.order, square)
    along, back, rho = _response(systems, couplings, correlation)
    return spins.mean, along, back, None, *for_backward, rho


def _mean_field_backward(
    settings: FusedSettings,
    systems: _Systems,
    kept: Tensor | None,
    means: Tensor,
    gains: Tensor,
    roots: Tensor,
    reactions: Tensor,
    rho: Tensor,
    grad: Tensor,
    along: Tensor,
    back: Tensor,
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys and g."""
    couplings, pair, slope, weighted, work = _workspace.matrices(5, systems.fields)
    couplings = _couplings(settings, systems, couplings) if kept is None else kept
    torch.add(couplings, couplings.mT, out=pair)
    mean = means.split(systems.fields.shape[-1], -1)
    spins = list(map(_Langevin, mean, gains.split(1, -1), roots.split(1, -1)))
    if settings.response:
        last = spins[-1]
        _mean_field_correlation(last, pair, settings.order, slope)
        by_queries, by_keys = _response_backward(
            systems, couplings, rho, along, back, [slope, weighted, work]
        )
        # C = m mᵀ + 2 B∘(gain gainᵀ), and gain = ½(1 − m²).
        grad = torch.baddbmm(grad, slope, last.mean)
        if settings.order == 2:
            slope *= (2 * last.gain).mT
            by_gain = torch.mul(slope, pair, out=work).sum(-1, keepdim=True)
            grad.addcmul_(by_gain, last.mean, value=-1)
            slope *= last.gain
    else:
        weighted.zero_()
        by_queries = torch.zeros_like(grad)
        by_keys = torch.zeros_like(grad)
    if not settings.response or settings.order == 1:
        slope.zero_()

    lefts = []
    rights = []
    for step in range(settings.steps, 0, -1):
        before = spins[step - 1]
        by_theta, _ = spins[step].backward(grad)
        lefts.append(by_theta)
        rights.append(before.mean)
        # θ = h + B m − c m with c = Σ_j B_ij² gain_j.
        grad = torch.bmm(pair, by_theta)
        if settings.order == 2:
            grad.addcmul_(reactions[..., step - 1 : step], by_theta, value=-1)
            by_reaction = (by_theta * before.mean).sum(-1, keepdim=True)
            gain = -2 * before.gain
            torch.mul(pair, by_reaction.mT, out=work)
            slope.addcmul_(work, gain)
            by_gain = work.mul_(pair).sum(-1, keepdim=True)
            grad.addcmul_(by_gain, before.mean)
            torch.mul(pair, gain.mT, out=work)
            slope.addcmul_(work, by_reaction)
    slope.baddbmm_(torch.cat(lefts + rights, -1), torch.cat(rights + lefts, -1).mT)
    weighted.addcmul_(couplings, slope)
    by_fields = sum(lefts, spins[0].backward(grad)[0])
    return by_fields, *_couplings_backward(
        settings, systems, couplings, weighted, by_queries, by_keys
    )


def _solve_positive(
    matrix: Tensor, right: Tensor, work: Tensor, *, accuracy: float = 0.0
) -> Tensor:
    """x with matrix x = right (S, N, 1), by conjugate gradients scaled by the diagonal.

    The matrices are positive definite, and nearly diagonal where couplings are weak. Where they
    are not, a direct solution follows.
    """
    limits = torch.finfo(right.dtype)
    inverse_diagonal = _diagonal(matrix).reciprocal()
    allowed = max(accuracy, 4 * limits.eps) ** 2 * _inner(right, right)
    solution = torch.zeros_like(right)
    residual = right.clone()
    direction = inverse_diagonal * residual
    product = _inner(residual, direction)
    for _ in range(_GRADIENT_STEPS):
        image = _times_vector(matrix, direction, work)
        length = product / _inner(direction, image).clamp_min_(limits.tiny)
        solution.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        if bool((_inner(residual, residual) <= allowed).all()):
            return solution
        scaled = inverse_diagonal * residual
        after = _inner(residual, scaled)
        direction = torch.addcmul(scaled, after / product.clamp_min_(limits.tiny), direction)
        product = after
    return torch.linalg.solve_ex(matrix, right).result


def _inner(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(-2, keepdim=True)


class _SaddlePoint(NamedTuple):
    """R = (2V)⁻¹ and m at the saddle point, and the `Status` of each system."""

    inverse: Tensor
    mean: Tensor
    status: Tensor


def _length_slope(inverse: Tensor, mean: Tensor, out: Tensor) -> Tensor:
    """R∘(R + m mᵀ), −½ times the derivative of C_ii by a_j."""
    return torch.baddbmm(inverse, mean, mean.mT, out=out).mul_(inverse)


def _find_saddle(
    settings: FusedSettings, systems: _Systems, pair: Tensor, work: Sequence[Tensor]
) -> _SaddlePoint:
    """The saddle point: R = (diag a − B)⁻¹ with a = 2t, m = R h and C_ii = 2 R_ii + m_i² = 1.

    Newton's steps for C_ii^(−1/2) = 1, as in `solvers`, go out from the mean-field equations. Where
    they leave the matrices that are positive definite, or do not arrive, the search begins anew.
    """
    matrix, factor, inverse = work
    unknown = _mean_field_multipliers(systems.fields, pair, matrix, factor)
    info = torch.empty(len(pair), dtype=torch.int32, device=pair.device)
    for _ in range(_NEWTON_STEPS):
        torch.neg(pair, out=matrix)
        _diagonal(matrix).copy_(unknown)
        # Columns of the library are rows of the work matrices: lower of one is upper of the other.
        torch.linalg.cholesky_ex(matrix, out=(factor.mT, info))
        if bool(info.any()):
            break
        torch.cholesky_inverse(factor.mT, out=inverse.mT)
        mean = torch.bmm(inverse, systems.fields)
        lengths = (mean * mean).sum(-1, keepdim=True).add_(_diagonal(inverse), alpha=2)
        largest = float((lengths - 1).abs().max())
        if largest <= settings.tolerance:
            return _SaddlePoint(inverse, mean, torch.full_like(info, int(Status.CONVERGED)))
        if not math.isfinite(largest):
            break
        _length_slope(inverse, mean, matrix)
        missing = lengths.pow(1.5) - lengths
        unknown = unknown + _solve_positive(matrix, missing, factor, accuracy=_STEP_ACCURACY)
    half = 0.5 * pair
    beta = torch.full_like(systems.strength[:, 0, 0], 0.5)
    source = field_source(systems.fields)
    found = saddle_of(half, source, beta, settings.tolerance, settings.max_steps)
    inverse = 0.5 * inverse_logdet(torch.diag_embed(found.value) - half)[0]
    return _SaddlePoint(inverse, torch.bmm(inverse, systems.fields), found.status)


def _mean_field_multipliers(fields: Tensor, pair: Tensor, square: Tensor, work: Tensor) -> Tensor:
    """a (S, N, 1) by some steps of the mean-field equations: θ/m, and Onsager's factor.

    Softmax couplings are nearly those of a uniform ferromagnet, whose order grows slowly from step
    to step. The first steps therefore replace B_ij by b_i b_j/Σb, b being its row sums: there is a
    single mean field then, which costs vectors alone.
    """
    felt = pair.sum(-1, keepdim=True)
    share = felt / felt.sum(-2, keepdim=True).clamp_min_(torch.finfo(felt.dtype).tiny)
    spins = _Langevin.of(fields)
    for _ in range(_UNIFORM_STEPS):
        spins = _Langevin.of(torch.addcmul(fields, felt, torch.bmm(share.mT, spins.mean)))
    torch.mul(pair, pair, out=square)
    for _ in range(_SWEEPS):
        reaction = _times_vector(square, spins.gain, work)
        theta = torch.baddbmm(fields, pair, spins.mean)
        spins = _Langevin.of(theta.addcmul_(reaction, spins.mean, value=-1))
    return reaction.add_(spins.gain.reciprocal())


def _saddle_forward(
    settings: FusedSettings, systems: _Systems, kept: Tensor | None
) -> tuple[Tensor | None, ...]:
    """m, G k, Gᵀ q, status, and for the backward pass m, R and ρ."""
    couplings, pair, *work = _workspace.matrices(5, systems.fields)
    couplings = _couplings(settings, systems, couplings if kept is None else kept)
    torch.add(couplings, couplings.mT, out=pair)
    inverse, mean, status = _find_saddle(settings, systems, pair, work)
    inverse = inverse.clone()
    if not settings.response:
        return mean, None, None, status, mean, inverse, None
    correlation = torch.baddbmm(inverse, mean, mean.mT, beta=2, out=pair)
    along, back, rho = _response(systems, couplings, correlation)
    return mean, along, back, status, mean, inverse, rho


def _saddle_backward(
    settings: FusedSettings,
    systems: _Systems,
    kept: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    rho: Tensor,
    grad: Tensor,
    along: Tensor,
    back: Tensor,
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys and g.

    With m = R h and C = m mᵀ + 2R, let ∂m be the derivative by m, Y = ∂C + ∂Cᵀ and u = R ∂m. That
    by a is ∂a_i = −(R Y R)_ii − u_i·m_i. The condition C_ii = 1 adds μ_i m_i to ∂m_i and μ_i to
    Y_ii, where μ solves [R∘(R + m mᵀ)] μ = ∂a. Then ∂h = u and E = 2 R Y R + u mᵀ + m uᵀ.
    """
    couplings, slope, weighted, carried, matrix = _workspace.matrices(5, systems.fields)
    couplings = _couplings(settings, systems, couplings) if kept is None else kept
    if settings.response:
        torch.baddbmm(inverse, mean, mean.mT, beta=2, out=slope)
        by_queries, by_keys = _response_backward(
            systems, couplings, rho, along, back, [slope, weighted, carried]
        )
        grad = torch.baddbmm(grad, slope, mean)
        torch.bmm(inverse, slope, out=carried)
    else:
        weighted.zero_()
        carried.zero_()
        by_queries = torch.zeros_like(grad)
        by_keys = torch.zeros_like(grad)
    by_unknown = torch.mul(carried, inverse, out=slope).sum(-1, keepdim=True)
    by_unknown += (torch.bmm(inverse, grad) * mean).sum(-1, keepdim=True)
    _length_slope(inverse, mean, matrix)
    multiplier = _solve_positive(matrix, by_unknown.neg_(), slope)
    by_fields = torch.bmm(inverse, torch.addcmul(grad, multiplier, mean))
    carried.addcmul_(inverse, multiplier.mT)
    torch.bmm(carried, inverse, out=slope)
    left = torch.cat([by_fields, mean], -1)
    slope.baddbmm_(left, torch.cat([mean, by_fields], -1).mT, beta=2)
    weighted.addcmul_(couplings, slope)
    return by_fields, *_couplings_backward(
        settings, systems, couplings, weighted, by_queries, by_keys
    )


def _driven_forward(
    settings: FusedSettings, systems: _Systems, kept: Tensor | None
) -> tuple[Tensor | None, ...]:
    """m, and for the backward pass the means at all times (S, N, (K+1) D)."""
    couplings, square, work = _workspace.matrices(3, systems.fields)
    couplings = _couplings(settings, systems, couplings if kept is None else kept)
    if settings.order == 2:
        torch.mul(couplings, couplings, out=square)
    mean = _Langevin.of(systems.fields).mean
    means = [mean]
    for _ in range(settings.steps):
        mean = _driven_step(settings, systems, [couplings, square, work], mean).mean
        means.append(mean)
    return mean, None, None, None, torch.cat(means, -1)


def _driven_step(
    settings: FusedSettings, systems: _Systems, work: Sequence[Tensor], mean: Tensor
) -> _Langevin:
    """θ = h + J m, with the fluctuations K_i = Σ_j J_ij² (1 − m_j²) besides."""
    theta = torch.baddbmm(systems.fields, work[0], mean)
    if settings.order == 1:
        return _Langevin.of(theta)
    return _Langevin.of(theta, _times_vector(work[1], _width(mean), work[2]))


def _width(mean: Tensor) -> Tensor:
    """1 − m²."""
    return 1 - (mean * mean).sum(-1, keepdim=True)


def _driven_backward(
    settings: FusedSettings,
    systems: _Systems,
    kept: Tensor | None,
    means: Tensor,
    grad: Tensor,
    *_: None,
) -> tuple[Tensor, ...]:
    """Derivatives by fields, queries, keys and g."""
    couplings, square, work, slope = _workspace.matrices(4, systems.fields)
    couplings = _couplings(settings, systems, couplings) if kept is None else kept
    if settings.order == 2:
        torch.mul(couplings, couplings, out=square)
    mean = means.split(systems.fields.shape[-1], -1)
    lefts = []
    fluctuations = []
    for before in mean[-2::-1]:
        spins = _driven_step(settings, systems, [couplings, square, work], before)
        by_theta, along = spins.backward(grad)
        lefts.append(by_theta)
        grad = torch.bmm(by_theta.mT, couplings).mT
        if settings.order == 2:
            # The derivative by J_ij² is ½ left_i w_j, w = 1 − m².
            left = along.mul_(spins.gain).neg_()
            fluctuations.append((left, _width(before)))
            by_width = torch.mul(square, left, out=work).sum(-2, keepdim=True).mT
            grad = torch.addcmul(grad, by_width, before, value=-1)
    torch.bmm(torch.cat(lefts, -1), torch.cat(mean[-2::-1], -1).mT, out=slope)
    for left, width in fluctuations:
        slope.addcmul_(torch.mul(couplings, left, out=work), width.mT)
    slope *= couplings
    by_fields = sum(lefts, _Langevin.of(systems.fields).backward(grad)[0])
    none = torch.zeros_like(by_fields)
    return by_fields, *_couplings_backward(settings, systems, couplings, slope, none, none)


# What computes a theory: its forward and its backward pass.
_KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mean field": (_mean_field_forward, _mean_field_backward),
    "saddle": (_saddle_forward, _saddle_backward),
    "driven": (_driven_forward, _driven_backward),
}
