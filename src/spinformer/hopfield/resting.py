"""Where the states of a memory come to rest: hops until nothing moves, and their derivative.

A hop is ξ ← Σ_i p_i k_i with p = ∇Λ(β k·ξ + b), (..., S, d) states and (..., N, d) keys, b an
optional bias of the scores (−inf: no such pattern). It is the gradient of a function of ξ, so its
Jacobian J = β Kᵀ∇²Λ K is symmetric and, Λ being convex, positive semidefinite; at a stable rest
its eigenvalues lie below 1.

The rest does not depend on the way there. Its derivative follows from the implicit function
theorem, dξ = (1 − J)⁻¹ ∂f, by conjugate gradients on the symmetric positive 1 − J: memory of one
hop however many were made, and fewer products with J than hops. Outside a rest, with `max_steps`
used up, it is the derivative of a point that is not there, wrong by as much as the residual tells.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.implicit import implicit_root
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.hopfield.lagrangians import LOG_SUM_EXP, Lagrangian

# How still a state must be to count as at rest, where nobody says it.
TOLERANCE = 1e-3


@record
class LayerRetrieval(Solution[Tensor]):
    """Where the states of a `HopfieldLayer` went, and how far that is to be trusted.

    value: (B, heads, S, head_width), the states that read the values. residual: (B, heads, S), how
    far the last hop moved each (`tolerance`), or one more would (`steps`, which may not hop at
    all). steps: (B, heads, S), hops made. status: CONVERGED where the residual is within the
    tolerance, DIVERGED where a state is not finite, else STEP_LIMIT: there the implicit
    derivative is as inexact as the state. start: the projected queries, as `value`.
    """

    start: Tensor

    @property
    def converged_share(self) -> Tensor:
        """(heads,): share of the states that are at rest."""
        return self.converged.double().mean((0, 2))


def judge(
    states: Tensor, *, start: Tensor, moved: Tensor, hops: Tensor, tolerance: float | None
) -> LayerRetrieval:
    """The record of states that last moved by `moved`; tolerance None: 1e-3.

    >>> one = torch.ones(1, 1, 1)
    >>> judge(one[None], start=one[None], moved=0 * one, hops=one, tolerance=None).converged_share
    tensor([1.], dtype=torch.float64)
    """
    status = status_of(moved <= (TOLERANCE if tolerance is None else tolerance))
    finite = torch.isfinite(states.detach()).all(-1)
    return LayerRetrieval(
        value=states,
        residual=moved,
        steps=hops,
        status=torch.where(finite, status, int(Status.DIVERGED)),
        start=start,
    )


_apply: Any = None  # `_Rest.apply` outside of compiled graphs, made by the first `rest`


def hop(
    states: Tensor,
    *,
    scaled: Tensor,
    content: Tensor,
    bias: Tensor | None = None,
    lagrangian: Lagrangian = LOG_SUM_EXP,
    dropout: float = 0.0,
) -> Tensor:
    """Σ_i p_i c_i with p = ∇Λ(scaled·ξ + bias), (..., S, d'), content (..., N, d').

    `scaled` are the keys times β; `dropout` is the probability that a weight is dropped. The
    default Lagrangian runs in the framework's fused kernel, where `bias` may be boolean, too.

    >>> hop(torch.zeros(1, 2), scaled=torch.eye(2), content=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    if lagrangian is LOG_SUM_EXP:
        return functional.scaled_dot_product_attention(
            states, scaled, content, attn_mask=bias, dropout_p=dropout, scale=1.0
        )
    weights = explicit_weights(states, scaled=scaled, bias=bias, lagrangian=lagrangian)
    return functional.dropout(weights, dropout) @ content


def explicit_weights(
    states: Tensor,
    *,
    scaled: Tensor,
    bias: Tensor | None = None,
    lagrangian: Lagrangian = LOG_SUM_EXP,
) -> Tensor:
    """p = ∇Λ(scaled·ξ + bias), (..., S, N), made explicitly.

    >>> explicit_weights(torch.zeros(1, 2), scaled=torch.eye(2))
    tensor([[0.5000, 0.5000]])
    """
    scores = states @ scaled.mT
    return lagrangian.gradient(scores if bias is None else scores + bias)


def rest(
    start: Tensor,
    *,
    keys: Tensor,
    beta: Tensor,
    bias: Tensor | None = None,
    lagrangian: Lagrangian = LOG_SUM_EXP,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hop from `start` until every state moves by at most `tolerance`, for itself.

    start: (..., S, d). keys: (..., N, d). beta: broadcasts with the keys. bias: (..., S, N).
    Returns the states (..., S, d), how far the last hop of each moved it, and its hops (integers),
    both (..., S). A state that has arrived stays put: none depends on its neighbours. One look
    at the device's numbers a hop decides whether to go on.

    The states carry the implicit derivative in `keys`, `beta` and `bias` to any order (from the
    second on through a dense Jacobian, d products), and none in `start`: a rest does not
    feel where it was reached from. Inside `torch.vmap` a whole batch hops together.

    >>> state, moved, hops = rest(torch.tensor([[1.0, 0.0]]), keys=4 * torch.eye(2),
    ...                           beta=torch.ones(()), tolerance=1e-6, max_steps=50)
    >>> f"{float(state[0, 0]):.3f}", bool((moved <= 1e-6).all())
    ('4.000', True)
    """
    global _apply
    if _apply is None:
        # A compiler must stop here. To say so imports it, a second that most programs can save.
        _apply = torch.compiler.disable(_Rest.apply)
    states: tuple[Tensor, Tensor, Tensor] = _apply(
        lagrangian, tolerance, max_steps, start, keys, beta, bias
    )
    return states


class _Rest(torch.autograd.Function):
    @staticmethod
    def forward(
        lagrangian: Lagrangian,
        tolerance: float,
        max_steps: int,
        start: Tensor,
        keys: Tensor,
        beta: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        scaled = keys * beta

        def step(state: Tensor) -> tuple[Tensor, Tensor]:
            landed = hop(state, scaled=scaled, content=keys, bias=bias, lagrangian=lagrangian)
            return landed, torch.linalg.vector_norm(landed - state, dim=-1)

        state, moved = step(start)
        hops = torch.ones_like(moved, dtype=torch.int64)
        for _ in range(max_steps - 1):
            # A state that is no longer finite moves by NaN, which is not above anything.
            going = moved > tolerance
            if not bool(going.any()):
                break
            landed, shift = step(state)
            state = torch.where(going.unsqueeze(-1), landed, state)
            moved = torch.where(going, shift, moved)
            hops = hops + going
        return state, moved, hops

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.lagrangian, ctx.tolerance, ctx.max_steps, _, *parts = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(output[0], *(part for part in parts if part is not None))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        # Fresh views keep the partial derivatives of one hop apart from the dependence of the
        # state on the parameters, which its own node supplies when this pass is differentiated.
        fresh = (lambda x: x.view_as(x)) if again else (lambda x: x.detach())

        def land(xi: Tensor, keys: Tensor, beta: Tensor, bias: Tensor | None = None) -> Tensor:
            scaled = keys * beta
            weights = explicit_weights(xi, scaled=scaled, bias=bias, lagrangian=ctx.lagrangian)
            return weights @ keys

        with torch.enable_grad():
            state, *parts = (
                x if x.requires_grad else x.requires_grad_()
                for x in (fresh(saved) for saved in ctx.saved_tensors)
            )
            point = state.detach().requires_grad_()
            there = land(point, *(part.detach() for part in parts))
            with torch.no_grad():
                adjoint = _conjugate_gradients(
                    there, point, grad.detach(), ctx.tolerance, ctx.max_steps
                )
            if again:

                def lack(u: Tensor, given: Tensor, xi: Tensor, *parts: Tensor) -> Tensor:
                    with torch.enable_grad():
                        turn = xi if xi.requires_grad else xi.detach().requires_grad_()
                        (turned,) = torch.autograd.grad(
                            land(turn, *parts), turn, u, create_graph=True
                        )
                    return u - turned - given

                adjoint = implicit_root(lack, adjoint, grad, state, *parts)
            grads = torch.autograd.grad(land(state, *parts), parts, adjoint, create_graph=again)
        return (None, None, None, None, *grads, *[None] * (3 - len(parts)))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        # Leading axes are systems already: the mapped one goes in front of them all.
        rank = max(
            x.ndim - (dim is not None)
            for x, dim in zip(inputs, in_dims, strict=True)
            if isinstance(x, Tensor)
        )
        moved = []
        for x, dim in zip(inputs, in_dims, strict=True):
            if dim is not None:
                x = x.movedim(dim, 0)
                x = x.reshape(len(x), *[1] * (rank + 1 - x.ndim), *x.shape[1:])
            moved.append(x)
        found = _Rest.apply(*moved)
        # What was mapped may not have met the states: then the result has no axis for it.
        found = tuple(
            x if x.ndim > inner else x.expand(info.batch_size, *x.shape)
            for x, inner in zip(found, (rank, rank - 1, rank - 1), strict=True)
        )
        return found, (0, 0, 0)


def _conjugate_gradients(
    there: Tensor, point: Tensor, right: Tensor, tolerance: float, limit: int
) -> Tensor:
    """u with (1 − J) u = `right`, a system per state; J the Jacobian of `there` at `point`.

    Systems go on until each lacks at most `tolerance` of its right-hand side. One that meets a
    direction in which 1 − J is not positive, no rest or no stable one, keeps what it has.
    """
    tolerance = max(tolerance, 8 * torch.finfo(right.dtype).eps)
    solution, lack, direction = torch.zeros_like(right), right, right
    size = lack.square().sum(-1, keepdim=True)
    enough = tolerance**2 * size
    going = size > enough
    for _ in range(min(limit, 2 * right.shape[-1])):
        if not bool(going.any()):
            break
        (turned,) = torch.autograd.grad(there, point, direction, retain_graph=True)
        image = direction - turned
        curvature = (direction * image).sum(-1, keepdim=True)
        going = going & (curvature > 0)
        length = torch.where(going, size / torch.where(going, curvature, 1.0), 0.0)
        solution = solution + length * direction
        lack = lack - length * image
        new = lack.square().sum(-1, keepdim=True)
        direction = lack + torch.where(going, new / torch.where(going, size, 1.0), 0.0) * direction
        size, going = new, going & (new > enough)
    return solution
