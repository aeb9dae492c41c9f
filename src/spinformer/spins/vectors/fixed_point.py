"""The fixed point of the mean-field equations of `tap`, as a differentiable layer.

Unit convention and shapes of `tap`: m = L(θ(m)) for spins of length one. The solution is found by
Anderson's mixing and differentiated by the implicit function theorem, any number of times: with
A = ∂f/∂m at the solution, w = g + Aᵀ w is solved in the same way, and the derivative of that by
v = g + A v. A continuous map of a product of balls into itself has a fixed point, so one always
exists; it need not be found, be stable, or give correlations that spins can have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.operators import iteration_operator
from spinformer.core.records import record
from spinformer.core.solve import Solution, anderson_unchecked, status_of
from spinformer.spins.vectors.tap import (
    Beta,
    checked_system,
    langevin_gain,
    local_field,
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
    that of the implicit function theorem, iterated like the solution. Raises NotConverged where
    no solution was found, unless `throw` is false.

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
    if not isinstance(beta, Tensor):
        beta = fields.new_tensor(beta)
    if not beta.ndim:
        beta = beta.reshape(1, 1)
    batch = torch.broadcast_shapes(fields.shape[:-2], pair.shape[:-2], beta.shape[:-2])
    value, residual, steps, status = _FixedPoint.apply(
        fields.expand(*batch, *fields.shape[-2:]),
        pair,
        beta,
        order,
        damping,
        default_tolerance(fields) if tolerance is None else tolerance,
        max_steps,
    )
    result = FixedPoint(value=value, residual=residual, steps=steps, status=status)
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


@iteration_operator("mean_field_fixed_point", axes=(2, 2, 2))
def _iterate(
    fields: Tensor,
    pair: Tensor,
    beta: Tensor,
    order: int,
    damping: float,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    square = pair.square() if order == 2 else None

    def step(m: Tensor) -> Tensor:
        theta = local_field(m, fields=fields, pair=pair, beta=beta, order=order, pair_square=square)
        return langevin_gain(theta, beta=beta) * theta

    start = langevin_gain(fields, beta=beta) * fields
    found = anderson_unchecked(
        step, start, damping=damping, tolerance=tolerance, max_steps=max_steps
    )
    return found.value.contiguous().clone(), found.residual, found.steps, found.status


@_iterate.register_fake
def _(fields: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = fields.shape[:-2]
    whole = fields.new_empty(batch, dtype=torch.int64)
    return fields.new_empty(fields.shape), fields.new_empty(batch), whole, torch.empty_like(whole)


@iteration_operator("mean_field_linear", axes=(2, 2, 2, 2, 2, 2))
def _iterate_linear(
    known: Tensor,
    m: Tensor,
    fields: Tensor,
    pair: Tensor,
    square: Tensor,
    beta: Tensor,
    order: int,
    transposed: bool,
    damping: float,
    tolerance: float,
    max_steps: int,
) -> Tensor:
    """w = known + A w, or with Aᵀ, for A = ∂f/∂m at m; `square` is B∘B, without use in order 1."""
    tangent = _Tangent(m, fields, pair, square, beta, order)
    # The tolerance is relative to what is known, whose size is the loss's business.
    scale = known.square().sum(dim=(-2, -1), keepdim=True).sqrt()
    scale = (scale / known.shape[-2] ** 0.5).clamp_min(torch.finfo(scale.dtype).tiny)
    unit = known / scale
    apply = tangent.transposed if transposed else tangent.direct
    found = anderson_unchecked(
        lambda w: unit + apply(w),
        unit,
        damping=damping,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    return (found.value * scale).contiguous()


@_iterate_linear.register_fake
def _(known: Tensor, *_: Any) -> Tensor:
    return known.new_empty(known.shape)


class _Tangent:
    """A = ∂f/∂m of the mean-field map f at m, and the derivatives of f by what else it contains."""

    def __init__(
        self,
        m: Tensor,
        fields: Tensor,
        pair: Tensor,
        square: Tensor,
        beta: Tensor,
        order: int,
    ) -> None:
        self.m, self.pair, self.beta = m, pair, beta
        self.square = square if order == 2 else None
        self.theta = fields + pair @ m
        if self.square is not None:
            self.width = 1 - m.square().sum(dim=-1, keepdim=True)
            self.onsager = beta * (self.square @ self.width)
            self.theta = self.theta - self.onsager * m
        strength = self.theta.square().sum(dim=-1, keepdim=True)
        self.root = (1 + 4 * beta * beta * strength).sqrt()
        self.gain = 2 * beta / (1 + self.root)
        self.bend = -8 * beta**3 / (self.root * (1 + self.root) ** 2)

    def through_field(self, w: Tensor) -> Tensor:
        """∂L/∂θ, a symmetric matrix, times w."""
        overlap = (self.theta * w).sum(dim=-1, keepdim=True)
        return torch.addcmul(self.gain * w, self.bend * overlap, self.theta)

    def transposed(self, w: Tensor) -> Tensor:
        """Aᵀ w."""
        y = self.through_field(w)
        return self.reacted(self.pair @ y, y)

    def reacted(self, moved: Tensor, vector: Tensor) -> Tensor:
        """`moved` B `vector` and what the Onsager term adds, a symmetric map of `vector`."""
        if self.square is None:
            return moved
        overlap = (self.m * vector).sum(dim=-1, keepdim=True)
        moved = torch.addcmul(moved, self.onsager, vector, value=-1)
        return torch.addcmul(moved, 2 * self.beta * (self.square @ overlap), self.m)

    def direct(self, v: Tensor) -> Tensor:
        """A v."""
        return self.through_field(self.reacted(self.pair @ v, v))

    def pulled_back(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What w, a cotangent of f, gives to fields, pair and beta at fixed m."""
        y = self.through_field(w)
        along = (w * self.theta).sum(dim=-1, keepdim=True)
        slope = (2 / ((1 + self.root) * self.root) * along).sum(dim=-2, keepdim=True)
        grad_pair = y @ self.m.mT
        if self.square is not None:
            overlap = (self.m * y).sum(dim=-1, keepdim=True)
            grad_pair = grad_pair - self.pair * ((2 * self.beta * overlap) @ self.width.mT)
            slope = slope - (self.square @ self.width * overlap).sum(dim=-2, keepdim=True)
        return y, grad_pair, slope


class _FixedPoint(torch.autograd.Function):
    """The solution, differentiated by the implicit function theorem in plain operations."""

    generate_vmap_rule = True

    @staticmethod
    def forward(fields: Tensor, pair: Tensor, beta: Tensor, *limits: Any) -> Any:
        return _iterate(fields, pair, beta, *limits)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0], *inputs[:3])
        ctx.limits = inputs[3:]
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        m, fields, pair, beta = ctx.saved_tensors
        order, *limits = ctx.limits
        # A compiler, which refuses second derivatives itself, cannot nest functions.
        linear = _iterate_linear if torch.compiler.is_compiling() else _Linear.apply
        square = pair * pair if order == 2 else pair
        w = linear(grad, m, fields, pair, square, beta, order, True, *limits)
        grads = _Tangent(m, fields, pair, square, beta, order).pulled_back(w)
        fitted = [
            given.sum_to_size(like.shape) if given.shape != like.shape else given
            for given, like in zip(grads, (fields, pair, beta), strict=True)
        ]
        return (*fitted, None, None, None, None)


class _Linear(torch.autograd.Function):
    """w = known + A w (or Aᵀ): its own derivative needs the other of the two."""

    generate_vmap_rule = True

    @staticmethod
    def forward(known: Tensor, *arguments: Any) -> Any:
        return _iterate_linear(known, *arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output, *inputs[1:6])
        ctx.limits = inputs[6:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        w, *others = ctx.saved_tensors
        order, transposed, *limits = ctx.limits
        v = _Linear.apply(grad, *others, order, not transposed, *limits)

        def pairing(m: Tensor, h: Tensor, pair: Tensor, square: Tensor, beta: Tensor) -> Tensor:
            tangent = _Tangent(m, h, pair, square, beta, order)
            moved = tangent.transposed(w) if transposed else tangent.direct(w)
            return (v * moved).sum()

        pull: Any = torch.func.vjp(pairing, *others)[1]
        return (v, *pull(v.new_ones(())), *(None,) * 5)
