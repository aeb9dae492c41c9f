"""⟨u⟩ and the correlations of a batch of heads at given couplings, by one of three solvers.

Unit convention of `vectors.units`: fields h (..., N, D), pairs B = J + Jᵀ with zero diagonal
(..., N, N), β broadcasting as (..., 1, 1). Nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.records import record
from spinformer.core.solve import Solution
from spinformer.spins.modules.fused import pair_correlation
from spinformer.spins.vectors.fixed_point import fixed_point_of_pairs, reached_by_iteration
from spinformer.spins.vectors.gaussian import Source, exponent
from spinformer.spins.vectors.saddle import SaddleState, saddle_of
from spinformer.spins.vectors.tap import langevin_gain, local_field, log_partition, onsager_gain

SOLVERS = ("saddle", "fixed point")


@record
class Scheme:
    """How heads are solved: the module's options of these names, already validated."""

    solver: str
    steps: int | None
    order: int
    damping: float
    tolerance: float | None
    max_steps: int


@record
class SolvedHeads:
    """⟨u⟩ `mean` (..., N, D), the `origin` its last step came from (itself unless K steps), and,
    where they were solved for, the `solution` and the `state` of the saddle."""

    mean: Tensor
    origin: Tensor
    solution: Solution[Tensor] | None
    state: SaddleState | None


def solve_heads(fields: Tensor, *, pair: Tensor, beta: Tensor, scheme: Scheme) -> SolvedHeads:
    """Solve all heads as `scheme` says; differentiable.

    >>> given = {"steps": None, "order": 2, "damping": 1.0, "tolerance": None, "max_steps": 99}
    >>> h, zero, one = torch.ones(1, 4) / 2, torch.zeros(1, 1), torch.ones(1, 1)
    >>> for solver in SOLVERS:
    ...     scheme = Scheme(solver=solver, **given)
    ...     print(solve_heads(h, pair=zero, beta=one, scheme=scheme).mean[0, 0])
    tensor(0.3090)
    tensor(0.3090)
    """
    limits: Any = {"tolerance": scheme.tolerance, "max_steps": scheme.max_steps, "throw": False}
    if scheme.solver == "saddle":
        gram = fields.shape[-1] > fields.shape[-2]
        batch = torch.broadcast_shapes(fields.shape[:-2], pair.shape[:-2], beta.shape[:-2])
        source = Source(value=fields @ fields.mT if gram else fields, is_gram=gram)
        state = saddle_of(pair / 2, source=source, beta=beta[..., 0, 0].expand(batch), **limits)
        mean = 0.5 * (state.inverse @ fields)
        found = state.saddle
        solution = Solution(
            value=mean, residual=found.residual, steps=found.steps, status=found.status
        )
        return SolvedHeads(mean=mean, origin=mean, solution=solution, state=state)
    if scheme.steps is None:
        fixed = fixed_point_of_pairs(
            pair, fields=fields, beta=beta, order=scheme.order, damping=scheme.damping, **limits
        )
        return SolvedHeads(mean=fixed.value, origin=fixed.value, solution=fixed, state=None)
    mean = langevin_gain(fields, beta=beta) * fields
    for _ in range(scheme.steps):
        origin = mean
        theta = local_field(origin, fields=fields, pair=pair, beta=beta, order=scheme.order)
        mean = langevin_gain(theta, beta=beta) * theta
    return SolvedHeads(mean=mean, origin=origin, solution=None, state=None)


def reached(
    heads: SolvedHeads, *, fields: Tensor, pair: Tensor, beta: Tensor, scheme: Scheme
) -> Solution[Tensor]:
    """The solution of `heads`; for K steps, which asked for none, what one step more tells.

    >>> scheme = Scheme(
    ...     solver="fixed point", steps=1, order=1, damping=1.0, tolerance=None, max_steps=9
    ... )
    >>> system = {"pair": torch.zeros(1, 1), "beta": torch.ones(1, 1), "scheme": scheme}
    >>> h = torch.ones(1, 4)
    >>> bool(reached(solve_heads(h, **system), fields=h, **system).converged)
    True
    """
    if heads.solution is not None:
        return heads.solution
    return reached_by_iteration(
        heads.mean,
        pair=pair,
        fields=fields,
        beta=beta,
        order=scheme.order,
        tolerance=scheme.tolerance,
        steps=scheme.steps or 0,
    )


def correlation_of(heads: SolvedHeads, *, pair: Tensor, beta: Tensor, order: int) -> Tensor:
    """C (..., N, N): what −∂F/∂J of the solver's free energy is, divided by D.

    m mᵀ + V⁻¹/(2β) at the saddle; else m mᵀ [+ β B∘(w wᵀ)], w = 1 − m², and 1 on the diagonal.

    >>> mean, one = torch.zeros(2, 3), torch.ones(1, 1)
    >>> heads = SolvedHeads(mean=mean, origin=mean, solution=None, state=None)
    >>> correlation_of(heads, pair=torch.zeros(2, 2), beta=one, order=2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    mean = heads.mean
    if heads.state is not None:
        return mean @ mean.mT + heads.state.inverse / (2 * beta)
    if order == 1:
        return pair_correlation(mean, pair=None, width=None, beta=None)
    width = 1 - mean.square().sum(dim=-1, keepdim=True)
    return pair_correlation(mean, pair=pair, width=width, beta=beta)


def decompose(
    heads: SolvedHeads, *, fields: Tensor, pair: Tensor, beta: Tensor, order: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """⟨u⟩ as gain·h + gain·B m + Onsager term, and the gain (..., N, 1).

    The gain is that of a free spin in the whole local field; at the saddle, where the field is
    2 t m = h + B m, it is the one of a free spin of the same ⟨u⟩, β(1 − m²).

    >>> h, zero = torch.ones(1, 4) / 2, torch.zeros(1, 1)
    >>> heads = SolvedHeads(mean=0.618 * h, origin=0.618 * h, solution=None, state=None)
    >>> decompose(heads, fields=h, pair=zero, beta=torch.ones(1, 1), order=2)[3].round(decimals=3)
    tensor([[0.6180]])
    """
    if heads.state is not None:
        gain = beta * (1 - heads.mean.square().sum(dim=-1, keepdim=True))
        residual, mixing = gain * fields, gain * (pair @ heads.mean)
        return residual, mixing, heads.mean - residual - mixing, gain
    origin = heads.origin
    theta = local_field(origin, fields=fields, pair=pair, beta=beta, order=order)
    gain = langevin_gain(theta, beta=beta)
    onsager = torch.zeros_like(origin)
    if order == 2:
        onsager = -gain * onsager_gain(origin, pair=pair, beta=beta) * origin
    return gain * fields, gain * (pair @ origin), onsager, gain


def log_partition_of(
    heads: SolvedHeads, *, fields: Tensor, couplings: Tensor, beta: Tensor, order: int
) -> Tensor:
    """ln Z/D (...) of the solver's theory at `heads`, normalised to free spins.

    >>> scheme = Scheme(
    ...     solver="saddle", steps=None, order=2, damping=1.0, tolerance=None, max_steps=99
    ... )
    >>> h, zero, one = torch.zeros(1, 4), torch.zeros(1, 1), torch.ones(1, 1)
    >>> heads = solve_heads(h, pair=zero, beta=one, scheme=scheme)
    >>> log_z = log_partition_of(heads, fields=h, couplings=zero, beta=one, order=2)
    >>> bool(log_z.abs() < 1e-6)
    True
    """
    if heads.state is None:
        return log_partition(heads.mean, couplings=couplings, fields=fields, beta=beta, order=order)
    state, inner = heads.state, beta[..., 0, 0]
    phi = exponent(
        state.saddle.t,
        inverse=state.inverse,
        logdet=state.logdet,
        source=Source(value=fields, is_gram=False),
        beta=inner,
    )
    own = couplings.diagonal(dim1=-2, dim2=-1).sum(-1)
    return phi - fields.shape[-2] / 2 * (1 + (2 * inner).log()) + inner * own
