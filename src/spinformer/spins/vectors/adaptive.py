"""Adaptive TAP for vector spins of any number of components, as a differentiable layer.

Unit convention of `units`: spins u on the unit sphere in R^D, fields h, ordered couplings J,
B = J + Jᵀ without diagonal, β. With A_D the alignment of a single spin (`core.special`),

    m_i = A_D(βD|θ_i|) θ_i/|θ_i|,   θ_i = h_i + Σ_j B_ij m_j − V_i m_i .

V_i, the reaction of the other spins, is 0 ("naive"), β Σ_j B_ij² (1−m_j²) ("tap"), or such that the
theory's own response of a spin is its own variance, averaged over the components ("adaptive"):

    [(diag Λ − βB)⁻¹]_ii = 1 − m_i²,   Λ_i = βV_i + 1/(1 − m_i²) .

For D = 1 this is adaptive TAP [opper2001adaptive], for D → ∞ the saddle point of `large_d`, and
"naive" and "tap" become those of `tap`. Deep implicit attention [bal2021transformers, Sec. 7]
takes such a fixed point for a layer. The equations make

    ln Z = Σ_i [ln G_D(βD|θ_i|) − βD θ_i·m_i] + βD(½ Σ B_ij m_i·m_j + Σ h_i·m_i + Σ J_ii) + D Φ

stationary, with Φ = 0, ¼ β² Σ B_ij² (1−m_i²)(1−m_j²), or with S_i² = 1 − m_i² and t_i = Λ_i S_i²
Φ = −½ ln det(diag t − S βB S) + ½ Σ (t_i − 1). So −∂F/∂(√D h_i) = √D m_i within each theory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.implicit import implicit_root
from spinformer.core.records import record
from spinformer.core.solve import Solution, anderson_unchecked
from spinformer.core.special import alignment_over_kappa, log_sphere_integral
from spinformer.spins.vectors.fixed_point import default_tolerance
from spinformer.spins.vectors.saddle import find_saddle
from spinformer.spins.vectors.tap import Beta, checked_system
from spinformer.spins.vectors.units import pair_couplings

METHODS = ("naive", "tap", "adaptive")
# Below this κ²/D the derivative of the alignment is taken from its series.
_SERIES = 1e-4
# 1 − m² is kept above this while the iteration is under way.
_WIDTH = 1e-12


@record
class AdaptiveTap(Solution[Tensor]):
    """The mean spins m (..., N, D), differentiable, as `value`, and what comes with them.

    reaction: V (..., N), differentiable. log_partition: (...), the approximate ln Z of D-component
    spins, counted from free ones, without a graph: its derivatives are known, βD m_i by h_i.
    residual: (...), ‖f(m) − m‖/√N, f the right-hand side. steps, status: (...).
    """

    reaction: Tensor
    log_partition: Tensor


def solve_adaptive_tap(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Beta,
    method: str = "adaptive",
    damping: float = 0.5,
    tolerance: float | None = None,
    max_steps: int = 300,
    throw: bool = True,
) -> AdaptiveTap:
    """Solve the equations of the module from free spins, each system of a batch for itself.

    `couplings` J (..., N, N), `fields` h (..., N, D), β as in `tap`. Anderson's mixing of the
    damped iteration; V of "adaptive" is found anew in every step, by the search of `find_saddle`
    for the unit diagonal, so it always exists. `tolerance` on the residual, default 1e-5 in single
    and 1e-12 in double precision. Where a graph is asked for, m and V have the derivatives of the
    implicit function theorem, any number of times, from a dense 2N × 2N matrix: up to some hundred
    spins. Raises NotConverged unless `throw` is false.

    >>> pair = torch.tensor([[0.0, 0.25], [0.25, 0.0]], dtype=torch.float64)
    >>> fields = torch.tensor([[0.8], [0.0]], dtype=torch.float64)
    >>> found = solve_adaptive_tap(pair, fields=fields, beta=1.0)
    >>> [f"{x:.3f}" for x in found.value[:, 0].tolist()]
    ['0.668', '0.290']
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    check_choice("method", method, METHODS)
    if method == "adaptive" and not bool((torch.as_tensor(beta) > 0).all()):
        raise ValueError("beta must be positive for the adaptive reaction, got 0")
    damping = check_real("damping", damping, low=0.0, high=1.0, open_low=True)
    tolerance = None if tolerance is None else check_real("tolerance", tolerance, low=0.0)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    pair = pair_couplings(couplings)
    given = torch.as_tensor(beta, dtype=fields.dtype, device=fields.device)
    given = given.reshape(1, 1) if not given.ndim else given
    batch = fields.shape[:-2]
    pair, given = pair.expand(*batch, *pair.shape[-2:]), given.expand(*batch, 1, 1)
    with torch.no_grad():

        def step(m: Tensor) -> Tensor:
            theta = fields + pair @ m - _reaction(m, pair, given, method).unsqueeze(-1) * m
            return (
                alignment_gain(theta.square().sum(dim=-1, keepdim=True), beta=given, dim=dim)
                * theta
            )

        dim = fields.shape[-1]
        start = (
            alignment_gain(fields.square().sum(dim=-1, keepdim=True), beta=given, dim=dim) * fields
        )
        limit = default_tolerance(fields) if tolerance is None else tolerance
        found = anderson_unchecked(
            step, start, damping=damping, tolerance=limit, max_steps=max_steps
        )
        m = found.value
        reaction = _reaction(m, pair, given, method)
        log_partition = _log_partition(m, reaction, pair, fields, given, method)
        self_energy = given[..., 0, 0] * dim * couplings.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (pair, fields, given)):
        m, reaction = _attached(m, reaction, pair, fields, given, method)
    result = AdaptiveTap(
        value=m,
        residual=found.residual,
        steps=found.steps,
        status=found.status,
        reaction=reaction,
        log_partition=log_partition + self_energy,
    )
    if throw:
        result.require("the fixed point of adaptive TAP")
    return result


def alignment_gain(square: Tensor, *, beta: Tensor, dim: int) -> Tensor:
    """A_D(βD|θ|)/|θ| as a function of θ², differentiable any number of times; β at θ = 0.

    >>> alignment_gain(torch.zeros(1), beta=torch.tensor(0.75), dim=3)
    tensor([0.7500])
    """
    scale = beta * dim
    return scale * _Alignment.apply(scale * scale * square, dim)


class _Alignment(torch.autograd.Function):
    """A_D(κ)/κ as a function of κ²."""

    @staticmethod
    def forward(ctx: Any, square: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(square)
        ctx.dim = dim
        kappa = square.detach().cpu().double().clamp_min(0.0).sqrt().numpy()
        return torch.from_numpy(np.asarray(alignment_over_kappa(kappa, dim=dim))).to(square)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (square,) = ctx.saved_tensors
        dim = ctx.dim
        # A' = 1 − A² − (D−1) A/κ, for f = A/κ: df/dκ² = (1 − κ²f² − D f)/(2κ²).
        small = square < _SERIES * dim
        away = torch.where(small, torch.ones_like(square), square)
        value = _Alignment.apply(away, dim)
        slope = (1 - away * value * value - dim * value) / (2 * away)
        series = -1 / (dim**2 * (dim + 2)) + 4 * square / (dim**3 * (dim + 2) * (dim + 4))
        return grad * torch.where(small, series, slope), None


def _reaction(m: Tensor, pair: Tensor, beta: Tensor, method: str) -> Tensor:
    """V (..., N) at given m."""
    width = (1 - m.square().sum(dim=-1)).clamp_min(_WIDTH)
    if method == "naive":
        return torch.zeros_like(width)
    if method == "tap":
        return ((beta * pair.square()) @ width.unsqueeze(-1)).squeeze(-1)
    t = _unit_diagonal(width, pair, beta)
    return (t - 1) / (beta.squeeze(-1) * width)


def _unit_diagonal(width: Tensor, pair: Tensor, beta: Tensor) -> Tensor:
    """t with [(diag t − S βB S)⁻¹]_ii = 1: a saddle point without fields, at β = ½."""
    root = width.sqrt()
    scaled = root.unsqueeze(-1) * (beta * pair) * root.unsqueeze(-2)
    half = scaled.new_full(scaled.shape[:-2], 0.5)
    return find_saddle(scaled, fields=torch.zeros_like(root).unsqueeze(-1), beta=half).t


def _attached(
    m: Tensor, reaction: Tensor, pair: Tensor, fields: Tensor, beta: Tensor, method: str
) -> tuple[Tensor, Tensor]:
    """m and V with a graph: a = V + |θ|/|m| and V are 2N unknowns, m = (diag a − B)⁻¹ h."""
    dim, sites = fields.shape[-1], fields.shape[-2]

    def means(a: Tensor, pair: Tensor, fields: Tensor) -> Tensor:
        return torch.linalg.solve(torch.diag_embed(a) - pair, fields)

    def residual(x: Tensor, pair: Tensor, fields: Tensor, beta: Tensor) -> Tensor:
        a, v = x[..., :sites], x[..., sites:]
        square = means(a, pair, fields).square().sum(dim=-1)
        width = 1 - square
        number = beta.squeeze(-1)
        own = alignment_gain((a - v).square() * square, beta=number, dim=dim) * (a - v) - 1
        if method == "naive":
            other = v
        elif method == "tap":
            other = v - ((beta * pair.square()) @ width.unsqueeze(-1)).squeeze(-1)
        else:
            response = torch.linalg.inv(torch.diag_embed(number * v + 1 / width) - beta * pair)
            other = response.diagonal(dim1=-2, dim2=-1) / width - 1
        return torch.cat([own, other], dim=-1)

    theta = fields + pair @ m - reaction.unsqueeze(-1) * m
    gain = alignment_gain(theta.square().sum(dim=-1), beta=beta.squeeze(-1), dim=dim)
    root = torch.cat([1 / gain + reaction, reaction], dim=-1).detach()
    x = implicit_root(residual, root, pair, fields, beta)
    again = means(x[..., :sites], pair, fields)
    # The value is what the iteration found; the graph adds its derivatives and nothing else.
    return m + (again - again.detach()), x[..., sites:]


def _log_partition(
    m: Tensor, reaction: Tensor, pair: Tensor, fields: Tensor, beta: Tensor, method: str
) -> Tensor:
    dim, number = m.shape[-1], beta[..., 0, 0]
    theta = fields + pair @ m - reaction.unsqueeze(-1) * m
    kappa = (dim * beta * theta.norm(dim=-1, keepdim=True))[..., 0]
    free = torch.from_numpy(log_sphere_integral(kappa.double().numpy(), dim=dim)).to(m).sum(dim=-1)
    energy = (m * (fields + pair @ m / 2 - theta)).sum(dim=(-2, -1))
    width = (1 - m.square().sum(dim=-1)).clamp_min(_WIDTH)
    echo = torch.zeros_like(number)
    if method == "tap":
        echo = (width * (pair.square() @ width.unsqueeze(-1)).squeeze(-1)).sum(dim=-1)
        echo = number.square() / 4 * echo
    elif method == "adaptive":
        t = _unit_diagonal(width, pair, beta)
        root = width.sqrt()
        matrix = torch.diag_embed(t) - root.unsqueeze(-1) * (beta * pair) * root.unsqueeze(-2)
        echo = (t - 1).sum(dim=-1) / 2 - torch.linalg.slogdet(matrix).logabsdet / 2
    return free + dim * (number * energy + echo)
