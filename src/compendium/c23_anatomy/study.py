"""The magnetization of vector spins with softmax couplings taken apart, and measured.

[bal2021transformers, Sec. 8] in the unit convention of `spins.vectors`: u = σ/√D, scaled fields
h = H/√D, and

    m = −(1/D) dF/dh = ⟨u⟩ + response,    ⟨u⟩ = ½ V⁻¹ h,    V = diag(t) − J,

with the saddle point of `spins.large_d` at the softmax couplings J(h). The scores are
γ√D h A hᵀ: γ = 1 is the paper's H W_Q W_Kᵀ Hᵀ/√D. With τ = t − J_ii the mixing is the series
⟨u⟩ = ½τ⁻¹h + ½τ⁻¹Jτ⁻¹h + …, whose first term is proportional to the token's own field.
`options` below are those of `dissect`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bookmaker.tables import Rows, stored
from compendium.common.rows import grid, mean_rows
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.large_d import free_energy, vector_spins
from spinformer.spins.module import (
    SpinTransformerModule,
    attention_weights,
    response_attention,
)
from spinformer.spins.vectors import two_spins

Value = TypeVar("Value", float, np.ndarray, Tensor)


@dataclass(frozen=True)
class Anatomy:
    """The parts of m, each (..., N, D), summing to m; and what they were made with.

    `residual` ½τ⁻¹h, `first_step` ½τ⁻¹Jτ⁻¹h (one attention step), `higher_orders` the rest of
    ½V⁻¹h, `response` Σ C ∂J/∂h. `gain` (..., N) is 1/(2τ_i); `onsager` (..., N) the part of τ_i
    that a free spin of the same magnetization would not have, τ_i − 1/(2β(1−⟨u_i⟩²)).
    `couplings` J as the softmax gave them, `correlation` C. `free_energy` (...) is F.
    """

    residual: Tensor
    first_step: Tensor
    higher_orders: Tensor
    response: Tensor
    gain: Tensor
    onsager: Tensor
    couplings: Tensor
    correlation: Tensor
    free_energy: Tensor

    @property
    def spins(self) -> Tensor:
        """⟨u⟩: the first three parts."""
        return self.residual + self.first_step + self.higher_orders

    @property
    def magnetization(self) -> Tensor:
        """m: all four parts."""
        return self.spins + self.response

    def parts(self) -> dict[str, Tensor]:
        """The four parts by name."""
        names = ("residual", "first_step", "higher_orders", "response")
        return {name: getattr(self, name) for name in names}

    def shares(self) -> dict[str, Tensor]:
        """Σ part·m / Σ m·m of every system, (...): signed, summing to one; ValueError if m = 0."""
        total = self.magnetization
        size = total.square().sum(dim=(-2, -1))
        if bool((size == 0).any()):
            raise ValueError("the magnetization must not vanish, it does without a field")
        return {
            name: (part * total).sum(dim=(-2, -1)) / size for name, part in self.parts().items()
        }

    def sizes(self) -> dict[str, Tensor]:
        """Root mean square norm of a token's part, (...)."""
        return {
            name: part.square().sum(dim=-1).mean(dim=-1).sqrt()
            for name, part in self.parts().items()
        }


def softmax_couplings(
    fields: Tensor,
    *,
    bilinear: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
    mask_diagonal: bool = True,
) -> Tensor:
    """J = g softmax(a h A hᵀ), rows summing to g; (..., N, N), in general not symmetric."""
    queries = scale * (fields @ bilinear)
    return strength * attention_weights(queries, fields, diagonal=not mask_diagonal)


def softmax_response(
    fields: Tensor,
    *,
    bilinear: Tensor,
    couplings: Tensor,
    correlation: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
) -> Tensor:
    """Σ C_mn ∂J_mn/∂h in closed form, a (G h Aᵀ + Gᵀ h A): a site as a query, and as a key."""
    weights = response_attention(couplings, correlation=correlation, strength=strength)
    return scale * ((weights @ fields) @ bilinear.mT + (weights.mT @ fields) @ bilinear)


def dissect(
    fields: Tensor,
    *,
    bilinear: Tensor,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    couplings: Tensor | None = None,
) -> Anatomy:
    """Solve the spins at the couplings of these fields and take m apart.

    `fields` h (..., N, D); `bilinear` A (D, D); `strength` g; `couplings` replaces the softmax by
    fixed couplings (..., N, N), without response. Differentiable.
    """
    root = fields.shape[-1] ** 0.5
    options: dict[str, Any] = {"strength": strength, "mask_diagonal": mask_diagonal}

    def couplings_of(h: Tensor) -> Tensor:
        if couplings is not None:
            return couplings.expand(*h.shape[:-1], h.shape[-2])
        return softmax_couplings(h, bilinear=bilinear, scale=gamma * root, **options)

    coupled = couplings_of(fields)
    solved = vector_spins(coupled, fields=fields * root, beta=beta)
    symmetric = (coupled + coupled.mT) / 2
    diagonal = symmetric.diagonal(dim1=-2, dim2=-1)
    tau = solved.saddle.value - diagonal
    others = symmetric - torch.diag_embed(diagonal)
    spins = solved.magnetization / root
    residual = fields / (2 * tau.unsqueeze(-1))
    first = (others @ residual) / tau.unsqueeze(-1)
    return Anatomy(
        residual=residual,
        first_step=first,
        higher_orders=spins - residual - first,
        response=autograd_response(
            fields,
            couplings_of,
            correlation=solved.correlations,
            create_graph=fields.requires_grad or coupled.requires_grad,
        ),
        gain=1 / (2 * tau),
        onsager=tau - 1 / (2 * beta * (1 - spins.square().sum(dim=-1))),
        couplings=coupled,
        correlation=solved.correlations,
        free_energy=solved.free_energy,
    )


def autograd_response(
    fields: Tensor,
    couplings_of: Callable[[Tensor], Tensor],
    *,
    correlation: Tensor,
    create_graph: bool = False,
) -> Tensor:
    """Σ_{m,n} C_mn ∂J_mn/∂h_i for any couplings J = `couplings_of`(h).

    C is held fixed, as Eq. (sigmaweird) asks. With `create_graph` the result can be
    differentiated again; else it carries no history.
    """
    if not create_graph:
        fields, correlation = fields.detach(), correlation.detach()
    with torch.enable_grad():
        probe = fields if fields.requires_grad else fields.clone().requires_grad_()
        couplings = couplings_of(probe)
        if not couplings.requires_grad:
            return torch.zeros_like(fields)
        (response,) = torch.autograd.grad(couplings, probe, correlation, create_graph=create_graph)
    return response


def exponential_couplings(
    fields: Tensor, *, bilinear: Tensor, scale: float = 1.0, strength: float = 1.0
) -> Tensor:
    """J = g exp(a h A hᵀ) off the diagonal, 0 on it: softmax couplings without their denominator.

    The control that shows what the denominator is for: rows sum to something of order g N.
    """
    scores = scale * (fields @ bilinear) @ fields.mT
    eye = torch.eye(scores.shape[-1], dtype=torch.bool)
    return strength * scores.exp().masked_fill(eye, 0.0)


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
    """
    generator = torch_generator(seed)
    fields = torch.randn(batch, sites, dim, generator=generator, dtype=torch.float64)
    fields = nn.functional.normalize(fields, dim=-1)
    if prototypes is not None:
        which = torch.randint(len(prototypes), (batch, sites), generator=generator)
        fields = nn.functional.normalize(prototypes[which] + spread * fields, dim=-1)
    return fields


def draw_bilinear(dim: int, *, seed: TorchSeed, kind: str = "random") -> Tensor:
    """A = W_Q W_Kᵀ (D, D), float64: "random" entries N(0, 1/D), "tied" W_Q = W_K of such entries,
    "identity", or "none" (zero: couplings that do not see the field)."""
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
    """
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
    """The N × N matrix M with part = M h in least squares: the mixing alike on all channels."""
    return torch.linalg.lstsq(fields.mT, part.mT).solution.mT


def random_rotation(dim: int, *, seed: TorchSeed) -> Tensor:
    """A rotation or reflection of the channels, uniform (Haar) over the orthogonal group."""
    generator = torch_generator(seed)
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(matrix)
    return q * r.diagonal().sign()


def locality(fields: Tensor, *, bilinear: Tensor, frozen: bool = False, **options: Any) -> Tensor:
    """‖∂r_i/∂h_j‖² for all pairs, (N, N): which fields the response of token i listens to.

    One system, `fields` (N, D); `options` as in `dissect`. The derivative is total, through the
    couplings and the correlations; with `frozen` G and C are held and only the fields that G
    averages move.
    """

    def response(h: Tensor) -> Tensor:
        return dissect(h, bilinear=bilinear, **options).response

    if frozen:
        held = dissect(fields, bilinear=bilinear, **options)
        total = held.couplings.sum(dim=-1, keepdim=True)
        weights = response_attention(held.couplings, correlation=held.correlation, strength=total)
        # r = γ√D (G h Aᵀ + Gᵀ h A): the block (i, j) is G_ij A + G_ji Aᵀ.
        scale = options.get("gamma", 1.0) * fields.shape[-1] ** 0.5
        blocks = weights[:, :, None, None] * bilinear + weights.T[:, :, None, None] * bilinear.T
        return (scale * blocks).square().sum(dim=(-2, -1))
    jacobian = torch.autograd.functional.jacobian(response, fields)
    return jacobian.square().sum(dim=(1, 3))


def slope_at_zero(function: Callable[[float], Value], *, step: float) -> Value:
    """df/dx at x = 0 from f(±step) and f(±2 step): the error is of the order of step⁴.

    Whatever f returns: a number, an array, a tensor.
    """
    far_left, left, right, far_right = (function(k * step) for k in (-2.0, -1.0, 1.0, 2.0))
    return (far_left - 8 * left + 8 * right - far_right) / (12 * step)


@dataclass(frozen=True)
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
    """How far the parts of m are from the derivative of F; `push` (..., N, D) is the direction."""
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


@dataclass(frozen=True)
class PairComparison:
    """Two spins in the fields h (2, D): the large-D parts beside the exact ⟨u⟩ and response."""

    fields: Tensor
    large: Anatomy
    spins: Tensor
    response: Tensor


def exact_pair(dim: int, *, beta: float, gamma: float, strength: float) -> PairComparison:
    """The pair that can be solved in any D ≥ 2: fields in a plane, the same scores in every D.

    The diagonal of the couplings is kept: with a masked one a pair does not respond at all.
    """
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
    """Couplings (N, N) of row sum `strength` where all tokens attend to the first one."""
    couplings = torch.zeros(sites, sites, dtype=torch.float64)
    couplings[1:, 0] = strength
    couplings[0, 1] = strength
    return couplings


def distance_to_saddle(module: SpinTransformerModule, inputs: Tensor) -> tuple[float, bool]:
    """Relative distance of the module's ⟨σ⟩ from `large_d` at its own couplings; converged?"""
    size = module.dim // module.heads
    module.warned = True  # whether it converged is part of the answer
    with torch.no_grad():
        _, parts = module(inputs, return_parts=True)
        spins = parts.magnetization - parts.response
        fields = module.fields(inputs).unflatten(-1, (module.heads, size)).transpose(1, 2)
        beta = module.log_beta.exp()
        truth = vector_spins(parts.couplings, fields=fields, beta=beta).magnetization
        truth = truth.transpose(1, 2).flatten(2)
    return float((spins - truth).norm() / truth.norm()), bool(parts.converged.all())


@stored(
    Path(__file__).with_name("settings_B9.csv"),
    units=grid(
        strength=(0.1, 0.5, 1.0, 2.0),
        gamma=(0.3, 1.0, 3.0, 10.0),
        sites=(12, 48),
        scores=("random", "identity"),
    ),
    seconds=2.0,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)
def MOSTLY_RESIDUAL(strength: float, gamma: float, sites: int, scores: str) -> Rows:
    """Share of the residual in the magnetization, less one half; twelve systems of 32 channels."""
    fields = draw_tokens(12, sites=sites, dim=32, seed=sites)
    bilinear = draw_bilinear(32, seed=sites + 1, kind=scores)
    found = dissect(fields, bilinear=bilinear, beta=1.0, gamma=gamma, strength=strength)
    return mean_rows(found.shares()["residual"].numpy() - 0.5)
