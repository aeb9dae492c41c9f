"""Mean-field equations of vector spins in many dimensions, as a differentiable fixed point.

Second-order Plefka expansion (Thouless, Anderson and Palmer 1977) of spins on the unit sphere in
R^D, D → ∞, E/D = −Σ_{i,j} J_ij u_i·u_j − Σ h_i·u_i over ordered pairs, J symmetric with zero
diagonal. With the pair coupling B = 2J and m_i = ⟨u_i⟩,

    ln Z/D = ½ Σ ln(1−m_i²) + β(½ Σ B_ij m_i·m_j + Σ h_i·m_i) [+ (β²/4) Σ B_ij² (1−m_i²)(1−m_j²)],
    m_i = L(θ_i),  θ_i = h_i + Σ_j B_ij m_j [− β m_i Σ_j B_ij² (1−m_j²)],
    L(θ) = 2βθ / (1 + √(1 + 4β²θ²)),

the brackets being the second order: order 1 is naive mean field, order 2 adds the Onsager term.
ln Z is normalised to free spins. Everything is batched over leading axes; β may be a tensor that
broadcasts against (..., N, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.spins.modules.fused import square_times

# Steps that Anderson's mixing remembers, and the growth of the residual that makes it forget.
_HISTORY = 6
_ASTRAY = 3.0
_RIDGE = 1e-12


@dataclass(frozen=True)
class FixedPoint:
    """Solution m (..., N, D) of the mean-field equations.

    `residual` (...) is ‖f(m) − m‖/√N of each system, `converged` (...) whether it is below the
    tolerance, `iterations` how many steps the slowest system took.
    """

    magnetization: torch.Tensor
    residual: torch.Tensor
    converged: torch.Tensor
    iterations: int


def langevin(theta: torch.Tensor, *, beta: torch.Tensor | float) -> torch.Tensor:
    """L(θ) = 2βθ/(1 + √(1 + 4β²θ²)): ⟨u⟩ of a free spin in the field θ, D → ∞."""
    return langevin_gain(theta, beta=beta) * theta


def langevin_gain(theta: torch.Tensor, *, beta: torch.Tensor | float) -> torch.Tensor:
    """L(θ)/θ, shape (..., N, 1): between 0 and β, falling with the norm of the field."""
    square = theta.square().sum(dim=-1, keepdim=True)
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def onsager_gain(
    magnetization: torch.Tensor,
    *,
    pair: torch.Tensor,
    beta: torch.Tensor | float,
    pair_square: torch.Tensor | None = None,
) -> torch.Tensor:
    """β Σ_j B_ij² (1 − m_j²), (..., N, 1): what multiplies −m_i in the Onsager term.

    `pair` is B; iterations that need no gradient may hand in B² as `pair_square`.
    """
    width = 1 - magnetization.square().sum(dim=-1, keepdim=True)
    if pair_square is not None:
        return beta * (pair_square @ width)
    return beta * square_times(pair, vector=width)


def local_field(
    magnetization: torch.Tensor,
    *,
    fields: torch.Tensor,
    pair: torch.Tensor,
    beta: torch.Tensor | float,
    order: int,
    pair_square: torch.Tensor | None = None,
) -> torch.Tensor:
    """θ_i of the module's header; `pair` is B, `pair_square` as in `onsager_gain`."""
    theta = fields + pair @ magnetization
    if order == 2:
        theta = (
            theta
            - onsager_gain(magnetization, pair=pair, beta=beta, pair_square=pair_square)
            * magnetization
        )
    return theta


def log_partition(
    magnetization: torch.Tensor,
    *,
    fields: torch.Tensor,
    couplings: torch.Tensor,
    beta: torch.Tensor | float,
    order: int = 2,
) -> torch.Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    `couplings` J (..., N, N) is symmetrised; its diagonal adds β Σ J_ii. `magnetization` and
    `fields` (..., N, D), |m_i| < 1.
    """
    check_choice("order", order, (1, 2))
    size = check_tensor("magnetization", magnetization).square().sum(dim=-1)
    if bool((size.detach() >= 1).any()):
        raise ValueError("magnetization must have rows of norm below 1")
    self_energy = couplings.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    pair = couplings + couplings.mT
    pair = pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1))
    free = torch.log1p(-size).sum(dim=-1) / 2
    linear = (fields + (pair @ magnetization) / 2) * magnetization
    beta = torch.as_tensor(beta, dtype=fields.dtype, device=fields.device)
    scale = beta.reshape(beta.shape[:-2]) if beta.ndim >= 2 else beta
    total = free + scale * (linear.sum(dim=(-2, -1)) + self_energy)
    if order == 2:
        width = (1 - size).unsqueeze(-1)
        second = (width.mT @ pair.square() @ width)[..., 0, 0]
        total = total + scale.square() / 4 * second
    return total


def solve_fixed_point(
    fields: torch.Tensor,
    *,
    couplings: torch.Tensor,
    beta: torch.Tensor | float,
    order: int = 2,
    damping: float = 1.0,
    tolerance: float | None = None,
    max_iterations: int = 500,
) -> FixedPoint:
    """Solve m = L(θ(m)) from the free spins, each system of the batch for itself.

    `fields` (..., N, D), `couplings` J (..., N, N), symmetrised, diagonal without effect; `beta`
    ≥ 0; `damping` in (0, 1] is the step of the damped iteration that Anderson's mixing (Walker and
    Ni 2011, the last 6 steps) accelerates; `tolerance` on ‖f(m) − m‖/√N, default 1e-5 in single
    and 1e-12 in double precision. A system that has converged is frozen, so the result does not
    depend on its neighbours. The gradient is that of the implicit function theorem, to first
    order.
    """
    check_tensor("fields", fields)
    check_tensor("couplings", couplings)
    if fields.ndim < 2 or couplings.shape[-2:] != (fields.shape[-2], fields.shape[-2]):
        raise ValueError(
            f"couplings must end with shape (N, N) for fields (..., N, D), got "
            f"{tuple(couplings.shape)} for {tuple(fields.shape)}"
        )
    check_choice("order", order, (1, 2))
    pair = couplings + couplings.mT
    pair = pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1))
    if isinstance(beta, torch.Tensor):
        check_tensor("beta", beta, low=0.0)
    else:
        check_real("beta", beta, low=0.0)
    return fixed_point_of_pairs(
        fields,
        pair=pair,
        beta=beta,
        order=order,
        damping=check_real("damping", damping, low=0.0, high=1.0, open_low=True),
        tolerance=tolerance,
        max_iterations=check_integer("max_iterations", max_iterations, low=1),
    )


def fixed_point_of_pairs(
    fields: torch.Tensor,
    *,
    pair: torch.Tensor,
    beta: torch.Tensor | float,
    order: int,
    damping: float,
    tolerance: float | None,
    max_iterations: int,
) -> FixedPoint:
    """`solve_fixed_point` without checks, for B = J + Jᵀ with zero diagonal."""
    if tolerance is None:
        tolerance = 1e-5 if fields.dtype == torch.float32 else 1e-12
    with torch.no_grad():
        square = pair.square() if order == 2 else None

        def step(m: torch.Tensor) -> torch.Tensor:
            theta = local_field(
                m, fields=fields, pair=pair, beta=beta, order=order, pair_square=square
            )
            return langevin(theta, beta=beta)

        start = langevin(fields, beta=beta)
        solved, residual, iterations = _anderson(step, start, damping, tolerance, max_iterations)
    if torch.is_grad_enabled():
        theta = local_field(solved, fields=fields, pair=pair, beta=beta, order=order)
        attached = langevin(theta, beta=beta)
        if attached.requires_grad:
            options = (damping, tolerance, max_iterations)
            beta_value = beta.detach() if isinstance(beta, torch.Tensor) else beta
            attached = _Implicit.apply(
                attached, theta.detach(), solved, pair.detach(), square, beta_value, options
            )
            solved = attached
    return FixedPoint(solved, residual, residual <= tolerance, iterations)


class _Implicit(torch.autograd.Function):
    """Identity whose backward solves w = g + (∂f/∂m)ᵀ w before the last step is differentiated."""

    @staticmethod
    def forward(ctx, attached, theta, solved, pair, pair_square, beta, options):
        ctx.problem = (theta, solved, pair, pair_square, beta, options)
        return attached.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent):
        theta, m, pair, pair_square, beta, (damping, tolerance, max_iterations) = ctx.problem
        root = (1 + 4 * beta * beta * theta.square().sum(dim=-1, keepdim=True)).sqrt()
        gain = 2 * beta / (1 + root)
        bend = -8 * beta**3 / (root * (1 + root) ** 2)
        onsager = (
            None
            if pair_square is None
            else onsager_gain(m, pair=pair, beta=beta, pair_square=pair_square)
        )

        def transposed(w: torch.Tensor) -> torch.Tensor:
            y = gain * w + bend * (theta * w).sum(dim=-1, keepdim=True) * theta
            pulled = pair @ y
            if onsager is not None:
                overlap = (m * y).sum(dim=-1, keepdim=True)
                pulled = pulled - onsager * y + 2 * beta * (pair_square @ overlap) * m
            return pulled

        # The tolerance is relative to the cotangent, whose size is the loss's business.
        scale = cotangent.square().sum(dim=(-2, -1), keepdim=True).sqrt()
        scale = (scale / cotangent.shape[-2] ** 0.5).clamp_min(torch.finfo(scale.dtype).tiny)
        unit = cotangent / scale
        solved, _, _ = _anderson(
            lambda w: unit + transposed(w), unit, damping, tolerance, max_iterations
        )
        return solved * scale, None, None, None, None, None, None


def _anderson(
    step: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    damping: float,
    tolerance: float,
    max_iterations: int,
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Anderson mixing of x = step(x), every leading index a system of its own.

    A system whose residual grows threefold over its best (near an unstable solution, say) forgets
    its history and goes on with a plain damped step from where it is.
    """
    shape, sites = start.shape, start.shape[-2]
    x = start.reshape(-1, shape[-2] * shape[-1])
    tiny = torch.finfo(x.dtype).tiny
    best, best_norm = x, torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device)
    # Rings of the last changes of the residual and of the point after a damped step; their order
    # does not matter. Only the new row of the Gram matrix is computed.
    changes = x.new_empty(len(x), _HISTORY, x.shape[1])
    moves = torch.empty_like(changes)
    gram = torch.zeros(len(x), _HISTORY, _HISTORY, dtype=torch.float64, device=x.device)
    eye = torch.eye(_HISTORY, dtype=torch.float64, device=x.device)
    previous = None
    for iteration in range(1, max_iterations + 1):
        residual = step(x.reshape(shape)).reshape(x.shape) - x
        norm = residual.norm(dim=-1) / sites**0.5
        astray = norm > _ASTRAY * best_norm
        better = norm < best_norm
        best = torch.where(better.unsqueeze(-1), x, best)
        best_norm = torch.where(better, norm, best_norm)
        active = best_norm > tolerance
        if not bool(active.any()) or iteration == max_iterations:
            break
        target = x + damping * residual
        if previous is not None:
            slot, used = (iteration - 2) % _HISTORY, min(iteration - 1, _HISTORY)
            change = residual - previous[0]
            changes[:, slot], moves[:, slot] = change, target - previous[1]
            pair = torch.stack([change, residual], dim=-2)
            products = (changes[:, :used] @ pair.mT).double()
            gram[:, slot, :used] = gram[:, :used, slot] = products[..., 0]
            known = gram[:, :used, :used]
            # Unit columns, else the ridge would silence the newest, smallest ones; in double
            # precision, because they become nearly parallel.
            scale = known.diagonal(dim1=-2, dim2=-1).clamp_min(tiny).rsqrt().unsqueeze(-1)
            matrix = known * scale * scale.mT + _RIDGE * eye[:used, :used]
            weights = scale * torch.linalg.solve(matrix, scale * products[..., 1:])
            mixed = target - (weights.to(x).mT @ moves[:, :used]).squeeze(-2)
            if bool(astray.any()):
                mixed = torch.where(astray.unsqueeze(-1), target, mixed)
                # Zero rows get zero weights from the ridge.
                moves[astray], changes[astray], gram[astray] = 0.0, 0.0, 0.0
        else:
            mixed = target
        previous = (residual, target)
        x = mixed if bool(active.all()) else torch.where(active.unsqueeze(-1), mixed, best)
    return best.reshape(shape), best_norm.reshape(shape[:-2]), iteration
