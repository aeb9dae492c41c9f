"""Mean-field equations of vector spins in many dimensions, as a differentiable fixed point.

Unit convention of `units`: spins u on the unit sphere in R^D, D → ∞, fields h, ordered couplings
J with E/D = −Σ_{i,j} J_ij u_i·u_j − Σ_i h_i·u_i. The equations see the pairs B = J + Jᵀ, zero
on the diagonal. Second-order Plefka expansion [thouless1977solution; plefka1982convergence]: with
m_i = ⟨u_i⟩,

    ln Z/D = ½ Σ ln(1−m_i²) + β(½ Σ B_ij m_i·m_j + Σ h_i·m_i) [+ (β²/4) Σ B_ij² (1−m_i²)(1−m_j²)],
    m_i = L(θ_i),  θ_i = h_i + Σ_j B_ij m_j [− β m_i Σ_j B_ij² (1−m_j²)],
    L(θ) = 2βθ / (1 + √(1 + 4β²θ²)),

the brackets being the second order: order 1 is naive mean field, order 2 adds the Onsager term.
ln Z is normalised to free spins. Shapes: fields and m (..., N, D), couplings and pair (..., N, N),
over any leading batch axes; β is a number ≥ 0 or a tensor () or (..., 1, 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from spinformer.core.checks import (
    check_broadcast,
    check_choice,
    check_flag,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.records import record
from spinformer.core.solve import Solution, anderson
from spinformer.spins.vectors.units import pair_couplings

Beta = Tensor | float


@record
class FixedPoint(Solution[Tensor]):
    """Solution m (..., N, D) of the mean-field equations, as `value`.

    residual: (...), ‖f(m) − m‖/√N of each system, f the right-hand side L(θ(m)). steps: (...).
    status: (...), converged where the residual is within the tolerance.
    """

    @property
    def magnetization(self) -> Tensor:
        """m, (..., N, D)."""
        return self.value


def langevin(theta: Tensor, *, beta: Beta) -> Tensor:
    """L(θ) = 2βθ/(1 + √(1 + 4β²θ²)): ⟨u⟩ of a free spin in the field θ (..., N, D), D → ∞.

    >>> langevin(torch.tensor([[2.0, 0.0]]), beta=0.75)
    tensor([[0.7208, 0.0000]])
    """
    return langevin_gain(theta, beta=beta) * theta


def langevin_gain(theta: Tensor, *, beta: Beta) -> Tensor:
    """L(θ)/θ, shape (..., N, 1): between 0 and β, falling with the norm of the field.

    >>> langevin_gain(torch.zeros(1, 3), beta=0.75)
    tensor([[0.7500]])
    """
    square = theta.square().sum(dim=-1, keepdim=True)
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def onsager_gain(
    magnetization: Tensor, *, pair: Tensor, beta: Beta, pair_square: Tensor | None = None
) -> Tensor:
    """β Σ_j B_ij² (1 − m_j²), (..., N, 1): what multiplies −m_i in the Onsager term.

    Iterations that need no gradient may hand in B∘B as `pair_square`.

    >>> pair = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> onsager_gain(torch.zeros(2, 3), pair=pair, beta=0.5)
    tensor([[2.],
            [2.]])
    """
    width = 1 - magnetization.square().sum(dim=-1, keepdim=True)
    if pair_square is not None:
        return beta * (pair_square @ width)
    return beta * square_times(pair, vector=width)


def local_field(
    magnetization: Tensor,
    *,
    fields: Tensor,
    pair: Tensor,
    beta: Beta,
    order: int,
    pair_square: Tensor | None = None,
) -> Tensor:
    """θ (..., N, D) of the module's docstring; `pair_square` as in `onsager_gain`.

    >>> pair = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> m = torch.tensor([[0.5], [0.0]])
    >>> local_field(m, fields=torch.zeros(2, 1), pair=pair, beta=0.5, order=1)
    tensor([[0.],
            [1.]])
    """
    theta = fields + pair @ magnetization
    if order == 2:
        theta = (
            theta
            - onsager_gain(magnetization, pair=pair, beta=beta, pair_square=pair_square)
            * magnetization
        )
    return theta


def log_partition(
    magnetization: Tensor,
    *,
    couplings: Tensor,
    fields: Tensor,
    beta: Beta,
    order: int = 2,
) -> Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    The diagonal of the couplings J adds β Σ J_ii. Raises ValueError unless all |m_i| < 1.

    >>> zero = torch.zeros(2, 3)
    >>> float(log_partition(zero, couplings=torch.zeros(2, 2), fields=zero, beta=1.0))
    0.0
    """
    check_choice("order", order, (1, 2))
    couplings, fields, beta = _checked(couplings, fields, beta)
    magnetization = check_tensor("magnetization", magnetization, like=("fields", fields))
    if magnetization.shape[-2:] != fields.shape[-2:]:
        raise ValueError(
            f"magnetization must end with the shape {tuple(fields.shape[-2:])} of fields, "
            f"got {tuple(magnetization.shape)}"
        )
    size = magnetization.square().sum(dim=-1)
    if bool((size.detach() >= 1).any()):
        raise ValueError("magnetization must have rows of norm below 1")
    self_energy = couplings.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    pair = pair_couplings(couplings)
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
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Beta,
    order: int = 2,
    damping: float = 1.0,
    tolerance: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> FixedPoint:
    """Solve m = L(θ(m)) from the free spins, each system of the batch for itself.

    The couplings J are symmetrised, their diagonal is without effect. `damping` in (0, 1] is the
    step of the damped iteration that `core.solve.anderson` accelerates [walker2011anderson];
    `tolerance` on the residual, default 1e-5 in single and 1e-12 in double precision. A system
    that has converged is frozen, so the result does not depend on its neighbours. The gradient
    is that of the implicit function theorem, to first order. Raises NotConverged where no
    solution was found, unless `throw` is false.

    >>> couplings, fields = torch.zeros(2, 2), torch.tensor([[2.0], [0.0]])
    >>> solve_fixed_point(couplings, fields=fields, beta=0.75).magnetization
    tensor([[0.7208],
            [0.0000]])
    """
    couplings, fields, beta = _checked(couplings, fields, beta)
    return fixed_point_of_pairs(
        pair_couplings(couplings),
        fields=fields,
        beta=beta,
        order=check_choice("order", order, (1, 2)),
        damping=check_real("damping", damping, low=0.0, high=1.0, open_low=True),
        tolerance=None if tolerance is None else check_real("tolerance", tolerance, low=0.0),
        max_steps=check_integer("max_steps", max_steps, low=1),
        throw=check_flag("throw", throw),
    )


def fixed_point_of_pairs(
    pair: Tensor,
    *,
    fields: Tensor,
    beta: Beta,
    order: int,
    damping: float,
    tolerance: float | None,
    max_steps: int,
    throw: bool,
) -> FixedPoint:
    """`solve_fixed_point` without checks, for B = J + Jᵀ with zero diagonal.

    >>> limits = {"damping": 1.0, "tolerance": None, "max_steps": 9, "throw": True}
    >>> fields = torch.tensor([[2.0], [0.0]])
    >>> fixed_point_of_pairs(torch.zeros(2, 2), fields=fields, beta=0.75, order=1, **limits).value
    tensor([[0.7208],
            [0.0000]])
    """
    tolerance = default_tolerance(fields) if tolerance is None else tolerance
    with torch.no_grad():
        square = pair.square() if order == 2 else None

        def step(m: Tensor) -> Tensor:
            theta = local_field(
                m, fields=fields, pair=pair, beta=beta, order=order, pair_square=square
            )
            return langevin(theta, beta=beta)

        found = anderson(
            step,
            langevin(fields, beta=beta),
            damping=damping,
            tolerance=tolerance,
            max_steps=max_steps,
        )
    solved = found.value
    if torch.is_grad_enabled():
        theta = local_field(solved, fields=fields, pair=pair, beta=beta, order=order)
        attached = langevin(theta, beta=beta)
        if attached.requires_grad:
            options = (damping, tolerance, max_steps)
            beta_value = beta.detach() if isinstance(beta, Tensor) else beta
            solved = _Implicit.apply(
                attached, theta.detach(), solved, pair.detach(), square, beta_value, options
            )
    result = FixedPoint(
        value=solved, residual=found.residual, steps=found.steps, status=found.status
    )
    if throw:
        result.require("the fixed point of the mean-field equations")
    return result


def default_tolerance(values: Tensor) -> float:
    """1e-5 for single and 1e-12 for double precision.

    >>> default_tolerance(torch.zeros(1))
    1e-05
    """
    return 1e-12 if values.dtype == torch.float64 else 1e-5


def square_times(pair: Tensor, *, vector: Tensor) -> Tensor:
    """(B∘B) v for B (..., N, N) and v (..., N, 1), with a gradient, to first order, that reads
    B as few times as possible.

    >>> square_times(torch.tensor([[2.0, 3.0]]), vector=torch.ones(2, 1))
    tensor([[13.]])
    """
    return _SquareTimes.apply(pair, vector)


class _SquareTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(pair, vector)
        return (pair * pair) @ vector

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        pair, vector = ctx.saved_tensors
        scaled = pair * (2 * grad)
        # (B∘B)ᵀ g before the columns are scaled in place.
        grad_vector = torch.einsum("...ij,...ij->...j", scaled, pair).unsqueeze(-1) / 2
        return scaled.mul_(vector.mT), grad_vector


class _Implicit(torch.autograd.Function):
    """Identity whose backward solves w = g + (∂f/∂m)ᵀ w before the last step is differentiated."""

    @staticmethod
    def forward(
        ctx: Any,
        attached: Tensor,
        theta: Tensor,
        solved: Tensor,
        pair: Tensor,
        pair_square: Tensor | None,
        beta: Beta,
        options: tuple[float, float, int],
    ) -> Tensor:
        ctx.problem = (theta, solved, pair, pair_square, beta, options)
        return attached.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        theta, m, pair, pair_square, beta, (damping, tolerance, max_steps) = ctx.problem
        root = (1 + 4 * beta * beta * theta.square().sum(dim=-1, keepdim=True)).sqrt()
        gain = 2 * beta / (1 + root)
        bend = -8 * beta**3 / (root * (1 + root) ** 2)
        onsager = (
            None
            if pair_square is None
            else onsager_gain(m, pair=pair, beta=beta, pair_square=pair_square)
        )

        def transposed(w: Tensor) -> Tensor:
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
        solved = anderson(
            lambda w: unit + transposed(w),
            unit,
            damping=damping,
            tolerance=tolerance,
            max_steps=max_steps,
        ).value
        return solved * scale, None, None, None, None, None, None


def _checked(couplings: Tensor, fields: Tensor, beta: Beta) -> tuple[Tensor, Tensor, Beta]:
    """Validated J, h and β, the fields expanded to the batch shape of all three."""
    couplings = check_tensor("couplings", couplings, square=True)
    fields = check_tensor("fields", fields, like=("couplings", couplings))
    if fields.ndim < 2 or couplings.shape[-1] != fields.shape[-2] or fields.shape[-1] < 1:
        raise ValueError(
            f"couplings must end with shape (N, N) for fields (..., N, D), got "
            f"{tuple(couplings.shape)} for {tuple(fields.shape)}"
        )
    if isinstance(beta, Tensor):
        beta = check_tensor("beta", beta, low=0.0, like=("couplings", couplings))
        if beta.ndim and tuple(beta.shape[-2:]) != (1, 1):
            raise ValueError(f"beta must have shape () or (..., 1, 1), got {tuple(beta.shape)}")
    else:
        beta = check_real("beta", beta, low=0.0)
    batch = check_broadcast(
        couplings=couplings.shape[:-2],
        fields=fields.shape[:-2],
        beta=beta.shape[:-2] if isinstance(beta, Tensor) else (),
    )
    return couplings, fields.expand(*batch, *fields.shape[-2:]), beta
