"""The measurements of the chapter on the anatomy of a transformer module.

Random tokens and score matrices; how large the parts of the magnetisation are that
`spins.modules.dissection` takes apart, which of them mix channels, how local they are, and how far
the module's iterations are from the saddle point. Unit convention of `spins.vectors.units`:
scaled fields h of norm one; `options` are those of `dissect`. What a network can learn of the
response is in `response_learning`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real, check_tensor
from spinformer.core.differences import slope_at_zero
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.modules.couplings import softmax_couplings, softmax_response
from spinformer.spins.modules.dissection import Anatomy, dissect
from spinformer.spins.modules.spin_transformer import SpinTransformerModule
from spinformer.spins.vectors.exact import two_spins
from spinformer.spins.vectors.large_d import free_energy, vector_spins


def draw_tokens(
    batch: int,
    *,
    sites: int,
    dim: int,
    seed: TorchSeed,
    prototypes: Tensor | None = None,
    spread: float = 0.5,
) -> Tensor:
    """Scaled fields h (batch, N, D) of norm one, in random directions, float64.

    With `prototypes` (clusters, D) each direction is one of them, at random, plus `spread` times
    a random direction: tokens that have something to say to each other.

    >>> draw_tokens(2, sites=3, dim=4, seed=0).norm(dim=-1).round(decimals=6).unique()
    tensor([1.], dtype=torch.float64)
    """
    for name, value in {"batch": batch, "sites": sites, "dim": dim}.items():
        check_integer(name, value, low=1)
    spread = check_real("spread", spread, low=0.0)
    generator = torch_generator(seed)
    fields = torch.randn(batch, sites, dim, generator=generator, dtype=torch.float64)
    fields = nn.functional.normalize(fields, dim=-1)
    if prototypes is not None:
        prototypes = check_tensor("prototypes", prototypes, shape=(None, dim))
        check_integer("the number of prototypes", len(prototypes), low=1)
        which = torch.randint(len(prototypes), (batch, sites), generator=generator)
        fields = nn.functional.normalize(prototypes[which] + spread * fields, dim=-1)
    return fields


def draw_bilinear(dim: int, *, seed: TorchSeed, kind: str = "random") -> Tensor:
    """A = W_Q W_Kᵀ (D, D), float64: "random" entries N(0, 1/D), "tied" W_Q = W_K of such entries,
    "identity", or "none" (zero: couplings that do not see the field).

    >>> draw_bilinear(2, seed=0, kind="identity").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    dim = check_integer("dim", dim, low=1)
    check_choice("kind", kind, ("random", "tied", "identity", "none"))
    generator = torch_generator(seed)
    if kind == "identity":
        return torch.eye(dim, dtype=torch.float64)
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5
    if kind == "tied":
        return matrix @ matrix.T
    return matrix if kind == "random" else 0 * matrix


def outside_span(part: Tensor, *, fields: Tensor) -> Tensor:
    """Share of ‖part‖² outside the span of all the system's fields, (...), in [0, 1].

    Zero for anything that only adds tokens up with numbers, one number per pair of tokens; asks
    for N < D, else ValueError.

    >>> h = torch.tensor([[1.0, 0.0]])
    >>> f"{float(outside_span(torch.tensor([[3.0, 4.0]]), fields=h)):.4f}"
    '0.6400'
    """
    part, fields = _part_and_fields(part, fields)
    sites, dim = fields.shape[-2:]
    if sites >= dim:
        raise ValueError(f"fields must have fewer sites than channels, got {sites} and {dim}")
    basis = torch.linalg.svd(fields, full_matrices=False).Vh
    inside = (part @ basis.mT) @ basis
    whole = part.square().sum(dim=(-2, -1))
    # What vanishes lies in every span.
    outside = (part - inside).square().sum(dim=(-2, -1))
    return outside / whole.clamp_min(torch.finfo(whole.dtype).tiny)


def best_pair_weights(part: Tensor, *, fields: Tensor) -> Tensor:
    """The N × N matrix M with part = M h in least squares: the mixing alike on all channels.

    >>> weights = best_pair_weights(torch.tensor([[6.0, 9.0]]), fields=torch.tensor([[2.0, 3.0]]))
    >>> f"{float(weights):.4f}"
    '3.0000'
    """
    part, fields = _part_and_fields(part, fields)
    return torch.linalg.lstsq(fields.mT, part.mT).solution.mT


def _part_and_fields(part: Tensor, fields: Tensor) -> tuple[Tensor, Tensor]:
    fields = check_tensor("fields", fields)
    part = check_tensor("part", part, like=("fields", fields))
    if fields.ndim < 2 or part.shape != fields.shape:
        raise ValueError(
            f"part must have the shape (..., N, D) of fields, {tuple(fields.shape)}, "
            f"got {tuple(part.shape)}"
        )
    return part, fields


def random_rotation(dim: int, *, seed: TorchSeed) -> Tensor:
    """A rotation or reflection of the channels, uniform (Haar) over the orthogonal group.

    >>> turn = random_rotation(3, seed=0)
    >>> bool(torch.allclose(turn @ turn.T, torch.eye(3, dtype=torch.float64)))
    True
    """
    dim = check_integer("dim", dim, low=1)
    generator = torch_generator(seed)
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(matrix)
    return q * r.diagonal().sign()


def locality(fields: Tensor, *, bilinear: Tensor, frozen: bool = False, **options: Any) -> Tensor:
    """‖∂r_i/∂h_j‖² for all pairs, (N, N): which fields the response of token i listens to.

    One system, `fields` (N, D); `options` as in `dissect`. The derivative is total, through the
    couplings and the correlations; with `frozen` G and C are held and only the fields that G
    averages move.

    >>> h = draw_tokens(1, sites=3, dim=2, seed=0)[0]
    >>> locality(h, bilinear=draw_bilinear(2, seed=1), beta=1.0).shape
    torch.Size([3, 3])
    """
    check_tensor("fields", fields, ndim=2)
    frozen = check_flag("frozen", frozen)

    def response(h: Tensor) -> Tensor:
        return dissect(h, bilinear=bilinear, **options).response

    if frozen:
        held = dissect(fields, bilinear=bilinear, **options)
        weighted = held.couplings * held.correlation
        total = held.couplings.sum(dim=-1, keepdim=True)
        weights = weighted - held.couplings * weighted.sum(dim=-1, keepdim=True) / total
        # r = γ√D (G h Aᵀ + Gᵀ h A): the block (i, j) is G_ij A + G_ji Aᵀ.
        scale = options.get("gamma", 1.0) * fields.shape[-1] ** 0.5
        blocks = weights[:, :, None, None] * bilinear + weights.T[:, :, None, None] * bilinear.T
        return (scale * blocks).square().sum(dim=(-2, -1))
    jacobian = torch.autograd.functional.jacobian(response, fields)
    return jacobian.square().sum(dim=(1, 3))


@record
class DerivativeErrors:
    """Largest deviations of the parts from derivatives that know nothing of them.

    `by_autograd`: m from −(1/D) dF/dh through couplings and saddle point together. `by_formula`:
    the response from its closed form. `by_difference`: m along a direction from finite differences
    of F with the saddle point solved again.
    """

    by_autograd: float
    by_formula: float
    by_difference: float


def derivative_errors(
    fields: Tensor,
    *,
    bilinear: Tensor,
    push: Tensor,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
) -> DerivativeErrors:
    """How far the parts of m are from the derivative of F; `push` (..., N, D) is the direction.

    >>> h, push = draw_tokens(2, sites=3, dim=4, seed=0)
    >>> errors = derivative_errors(h, bilinear=draw_bilinear(4, seed=1), push=push, beta=1.0)
    >>> errors.by_autograd < 1e-9
    True
    """
    dim = fields.shape[-1]
    options: dict[str, Any] = {"strength": strength, "mask_diagonal": mask_diagonal}

    def anatomy_at(h: Tensor) -> Anatomy:
        return dissect(h, bilinear=bilinear, beta=beta, gamma=gamma, **options)

    anatomy = anatomy_at(fields)
    probe = fields.clone().requires_grad_()
    couplings = softmax_couplings(probe, bilinear=bilinear, scale=gamma * dim**0.5, **options)
    energy = free_energy(couplings, fields=probe * dim**0.5, beta=beta).sum() / dim
    (slope,) = torch.autograd.grad(-energy, probe)
    closed = softmax_response(
        fields,
        bilinear=bilinear,
        couplings=anatomy.couplings,
        correlation=anatomy.correlation,
        scale=gamma * dim**0.5,
        strength=strength,
    )
    along = -slope_at_zero(lambda x: anatomy_at(fields + x * push).free_energy, step=1e-3) / dim
    want = (anatomy.magnetization * push).sum((-2, -1))
    return DerivativeErrors(
        by_autograd=float((anatomy.magnetization - slope).abs().max()),
        by_formula=float((anatomy.response - closed).abs().max()),
        by_difference=float((along - want).abs().max()),
    )


def share_sweep(
    fields: Tensor, *, bilinear: Tensor, name: str, values: np.ndarray, **options: Any
) -> Estimate:
    """Shares of the four parts, (values, parts), averaged over the systems of `fields`.

    `name` is the option of `dissect` that takes the `values`, the others are held; at least two
    systems.

    >>> h, a = draw_tokens(4, sites=3, dim=4, seed=0), draw_bilinear(4, seed=1)
    >>> share_sweep(h, bilinear=a, name="gamma", values=np.ones(2), beta=1.0).value.shape
    (2, 4)
    """
    rows = []
    for value in values:
        chosen = {**options, name: float(value)}
        shares = dissect(fields, bilinear=bilinear, **chosen).shares()
        rows.append(mean_estimate(torch.stack(list(shares.values()), dim=-1).numpy()))
    return Estimate(
        value=np.array([row.value for row in rows]),
        error=np.array([row.error for row in rows]),
        samples=rows[0].samples,
    )


@record
class PairComparison:
    """Two spins in the fields h (2, D): the large-D parts beside the exact ⟨u⟩ and response."""

    fields: Tensor
    large: Anatomy
    spins: Tensor
    response: Tensor


def exact_pair(dim: int, *, beta: float, gamma: float, strength: float) -> PairComparison:
    """The pair that can be solved in any D ≥ 2: fields in a plane, the same scores in every D.

    The diagonal of the couplings is kept: with a masked one a pair does not respond at all.

    >>> pair = exact_pair(256, beta=1.0, gamma=1.0, strength=0.5)
    >>> bool((pair.spins - pair.large.spins).norm() < 0.01)
    True
    """
    dim = check_integer("dim", dim, low=2)
    h = torch.zeros(2, dim, dtype=torch.float64)
    h[0, 0], h[1, 0], h[1, 1] = 1.0, 0.6, 0.8
    a = torch.zeros(dim, dim, dtype=torch.float64)
    # The same scores in every D: the factor √D of the couplings is taken out again.
    a[:2, :2] = torch.tensor([[1.0, -0.5], [0.3, 0.7]]) * 3 / dim**0.5
    large = dissect(h, bilinear=a, beta=beta, gamma=gamma, strength=strength, mask_diagonal=False)
    exact = two_spins(large.couplings.numpy(), fields=(h * dim**0.5).numpy(), beta=beta)
    response = softmax_response(
        h,
        bilinear=a,
        couplings=large.couplings,
        correlation=torch.from_numpy(exact.correlation),
        scale=gamma * dim**0.5,
        strength=strength,
    )
    return PairComparison(
        fields=h,
        large=large,
        spins=torch.from_numpy(exact.magnetization) / dim**0.5,
        response=response,
    )


def hub_couplings(sites: int, *, strength: float) -> Tensor:
    """Couplings (N, N) of row sum `strength` where all tokens attend to the first one.

    >>> hub_couplings(3, strength=0.5)[:, 0]
    tensor([0.0000, 0.5000, 0.5000], dtype=torch.float64)
    """
    strength = check_real("strength", strength)
    couplings = torch.zeros(*(check_integer("sites", sites, low=2),) * 2, dtype=torch.float64)
    couplings[1:, 0] = strength
    couplings[0, 1] = strength
    return couplings


@record
class ModuleDistance:
    """Relative distance of a module's ⟨σ⟩ from the saddle point at its own couplings."""

    distance: float
    converged: bool


def distance_to_saddle(module: SpinTransformerModule, inputs: Tensor) -> ModuleDistance:
    """How far ⟨σ⟩ of the module is from `large_d` for `inputs` (batch, N, dim).

    >>> module = SpinTransformerModule(8, heads=2, steps=None, strength=0.01, dtype=torch.float64)
    >>> inputs = torch.ones(1, 3, 8, dtype=torch.float64)
    >>> distance_to_saddle(module, inputs).distance < 1e-3
    True
    """
    size = module.dim // module.heads
    with torch.no_grad():
        _, parts = module(inputs, return_parts=True)
        spins = parts.magnetization - parts.response
        fields = module.fields(inputs).unflatten(-1, (module.heads, size)).transpose(1, 2)
        beta = module.log_beta.exp()
        truth = vector_spins(parts.couplings, fields=fields, beta=beta).magnetization
        truth = truth.transpose(1, 2).flatten(2)
    return ModuleDistance(
        distance=float((spins - truth).norm() / truth.norm()),
        converged=bool(parts.converged.all()),
    )
