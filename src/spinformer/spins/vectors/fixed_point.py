"""The fixed point of the mean-field equations of `tap`, as a differentiable layer.

Unit convention and shapes of `tap`: m = L(θ(m)) for spins of length one. The solution is found by
Anderson's mixing and differentiated by the implicit function theorem.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.implicit import implicit_root
from spinformer.core.records import record
from spinformer.core.solve import Solution, anderson, status_of
from spinformer.spins.vectors.tap import (
    Beta,
    checked_system,
    langevin_gain,
    local_field,
    onsager_gain,
)
from spinformer.spins.vectors.units import pair_couplings


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
    that has converged is frozen, so the result does not depend on its neighbours. The gradient is
    that of the implicit function theorem, iterated like the solution; where a graph of the
    gradient is asked for, so that it can be differentiated again, it comes from a dense Jacobian
    of N·D rows (`core.implicit`). Raises NotConverged where no solution was found, unless `throw`
    is false.

    >>> couplings, fields = torch.zeros(2, 2), torch.tensor([[2.0], [0.0]])
    >>> solve_fixed_point(couplings, fields=fields, beta=0.75).magnetization
    tensor([[0.7208],
            [0.0000]])
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
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
            return langevin_gain(theta, beta=beta) * theta

        found = anderson(
            step,
            langevin_gain(fields, beta=beta) * fields,
            damping=damping,
            tolerance=tolerance,
            max_steps=max_steps,
        )
    solved = found.value
    if torch.is_grad_enabled():
        theta = local_field(solved, fields=fields, pair=pair, beta=beta, order=order)
        attached = langevin_gain(theta, beta=beta) * theta
        if attached.requires_grad:
            known = (theta.detach(), solved, square)
            limits = (damping, tolerance, max_steps)
            solved = _Implicit.apply(attached, fields, pair, beta, order, known, limits)
    result = FixedPoint(
        value=solved, residual=found.residual, steps=found.steps, status=found.status
    )
    if throw:
        result.require("the fixed point of the mean-field equations")
    return result


def reached_by_iteration(
    magnetization: Tensor,
    *,
    pair: Tensor,
    fields: Tensor,
    beta: Beta,
    order: int,
    tolerance: float | None,
    steps: int,
) -> FixedPoint:
    """How far m after `steps` plain steps m ← L(θ(m)) is from a fixed point: one step more tells.

    Converged are systems whose residual is within the tolerance, by default that of
    `solve_fixed_point`; the others ran into the limit of `steps`. Without history.

    >>> fields, given = torch.zeros(1, 2), {"order": 1, "tolerance": None, "steps": 1}
    >>> m = torch.tensor([[0.0, 0.5]])
    >>> reached_by_iteration(m, pair=torch.zeros(1, 1), fields=fields, beta=1.0, **given).residual
    tensor(0.5000)
    """
    tolerance = default_tolerance(fields) if tolerance is None else tolerance
    with torch.no_grad():
        theta = local_field(magnetization, fields=fields, pair=pair, beta=beta, order=order)
        change = langevin_gain(theta, beta=beta) * theta - magnetization
        residual = change.square().sum(dim=(-2, -1)).sqrt() / change.shape[-2] ** 0.5
    return FixedPoint(
        value=magnetization,
        residual=residual,
        steps=torch.full_like(residual, steps, dtype=torch.int64),
        status=status_of(residual <= tolerance),
    )


def default_tolerance(values: Tensor) -> float:
    """1e-5 for single and 1e-12 for double precision.

    >>> default_tolerance(torch.zeros(1))
    1e-05
    """
    return 1e-12 if values.dtype == torch.float64 else 1e-5


class _Implicit(torch.autograd.Function):
    """Identity whose backward solves w = g + (∂f/∂m)ᵀ w before the last step is differentiated.

    Only if a graph of the gradient is asked for, the parameters get theirs from here, through
    the dense Jacobian, and the last step gets none.
    """

    @staticmethod
    def forward(
        ctx: Any,
        attached: Tensor,
        fields: Tensor,
        pair: Tensor,
        beta: Beta,
        order: int,
        known: tuple[Tensor, Tensor, Tensor | None],
        limits: tuple[float, float, int],
    ) -> Tensor:
        ctx.beta = None if isinstance(beta, Tensor) else beta
        ctx.save_for_backward(fields, pair, *((beta,) if isinstance(beta, Tensor) else ()))
        ctx.order, ctx.known, ctx.limits = order, known, limits
        return attached.clone()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _Implicit.twice(ctx, cotangent)
        _, pair, *given = ctx.saved_tensors
        beta = given[0] if given else ctx.beta
        (theta, m, pair_square), (damping, tolerance, max_steps) = ctx.known, ctx.limits
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

    @staticmethod
    def twice(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of fields, pair and beta with a graph of their own."""
        shape = cotangent.shape
        solved = ctx.known[1]

        def residual(flat: Tensor, fields: Tensor, pair: Tensor, *given: Tensor) -> Tensor:
            m = flat.reshape(shape)
            beta = given[0] if given else ctx.beta
            theta = local_field(m, fields=fields, pair=pair, beta=beta, order=ctx.order)
            return (m - langevin_gain(theta, beta=beta) * theta).flatten(-2)

        with torch.enable_grad():
            # Views keep these partial derivatives apart from what the parameters owe each other.
            parameters = [saved.view_as(saved) for saved in ctx.saved_tensors]
            root = implicit_root(residual, solved.flatten(-2), *parameters).reshape(shape)
            wanted = [parameter for parameter in parameters if parameter.requires_grad]
            found = iter(torch.autograd.grad(root, wanted, cotangent, create_graph=True))
        grads = [next(found) if parameter.requires_grad else None for parameter in parameters]
        return (None, *grads, *(None,) * (6 - len(grads)))
