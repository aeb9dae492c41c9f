"""Chapter 22: adaptive TAP for vector spins of any number of components, in units of `large_d`."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from bookmaker.tables import Rows, stored
from spinformer.core.anderson import anderson
from spinformer.core.checks import check_choice
from spinformer.core.implicit import implicit_root
from spinformer.core.solve import Solution
from spinformer.core.special import alignment_over_kappa
from spinformer.spins.exact_vectors import three_spins
from spinformer.spins.ising import pair_couplings as ising_couplings, solve_exact
from spinformer.spins.large_d import pair_couplings
from spinformer.spins.solvers import default_tolerance, solve_saddle_point

METHODS = ("naive", "tap", "adaptive")


def solve_adaptive_tap(
    couplings: Tensor, *, fields: Tensor, beta: Any, method: str = "adaptive", throw: bool = True
) -> Solution[Tensor]:
    """Mean-field equations of D components: m_i = A_D(βD|θ_i|) θ_i/|θ_i|, with

    θ_i = h_i + Σ_j B_ij m_j − V_i m_i, in the unit convention.

    The reaction V is 0 ("naive"), β Σ_j B_ij² (1−m_j²) ("tap"), or such that the theory's own
    response of a spin is its own variance ("adaptive"),

        [(diag Λ − βB)⁻¹]_ii = 1 − m_i²,   Λ_i = βV_i + 1/(1 − m_i²),

    found anew in every step by the search of `solve_saddle_point` for the unit diagonal. For D = 1
    the last is adaptive TAP [opper2001adaptive], for D → ∞ the saddle point. Anderson's mixing of
    the damped iteration from free spins; the mean spins m (..., N, D) are differentiable.
    """
    check_choice("method", method, METHODS)
    pair = pair_couplings(couplings)
    dim = fields.shape[-1]
    beta = torch.as_tensor(beta, dtype=fields.dtype)
    batch = torch.broadcast_shapes(pair.shape[:-2], fields.shape[:-2], beta.shape)
    fields = fields.expand(*batch, *fields.shape[-2:])
    beta = beta.expand(batch)

    def gain_at(theta: Tensor) -> Tensor:
        return alignment_gain(theta.square().sum(-1), beta=beta[..., None], dim=dim)

    def field(mean: Tensor) -> tuple[Tensor, Tensor]:
        held = reaction(mean, pair, beta, method)
        return fields + pair @ mean - held[..., None] * mean, held

    def step(mean: Tensor) -> Tensor:
        theta, _ = field(mean)
        return gain_at(theta)[..., None] * theta

    with torch.no_grad():
        start = gain_at(fields)[..., None] * fields
        tolerance = default_tolerance(fields)
        found = anderson(step, start, damping=0.5, tolerance=tolerance, max_steps=300)
        theta, held = field(found.value)
        a = 1 / gain_at(theta) + held
    if throw:
        found.require("the fixed point of adaptive TAP")
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (pair, fields, beta))):
        return found

    # m = (diag a − B)⁻¹ h with the 2N unknowns a = V + |θ|/|m| and V.
    def means(a: Tensor, pair: Tensor, fields: Tensor) -> Tensor:
        return torch.linalg.solve(torch.diag_embed(a) - pair, fields)

    def missing(both: Tensor, pair: Tensor, fields: Tensor, beta: Tensor) -> Tensor:
        a, held = both.chunk(2, -1)
        mean = means(a, pair, fields)
        length = a - held
        scale = beta[..., None]
        square = length.square() * mean.square().sum(-1)
        lack = alignment_gain(square, beta=scale, dim=dim) * length - 1
        if method != "adaptive":
            return torch.cat([lack, held - reaction(mean, pair, beta, method)], -1)
        width = _width(mean)
        stiffness = torch.diag_embed(scale * held + 1 / width) - scale[..., None] * pair
        variance = torch.linalg.inv(stiffness).diagonal(dim1=-2, dim2=-1)
        return torch.cat([lack, variance / width - 1], -1)

    both = implicit_root(missing, torch.cat([a, held], -1), pair, fields, beta)
    again = means(both.chunk(2, -1)[0], pair, fields)
    return replace(found, value=found.value + (again - again.detach()))


def _width(mean: Tensor) -> Tensor:
    """1 − m², kept above zero while the iteration is under way."""
    return (1 - mean.square().sum(-1)).clamp_min(1e-12)


def reaction(mean: Tensor, pair: Tensor, beta: Tensor, method: str) -> Tensor:
    """V (..., N) at given means."""
    width = _width(mean)
    if method == "naive":
        return torch.zeros_like(width)
    if method == "tap":
        return beta[..., None] * (pair.square() @ width[..., None])[..., 0]
    # t with [(diag t − S βB S)⁻¹]_ii = 1: a saddle point without fields, at β = ½.
    root = width.sqrt()
    scaled = root[..., None] * (beta[..., None, None] * pair) * root[..., None, :]
    t = solve_saddle_point(scaled, fields=torch.zeros_like(root)[..., None], beta=0.5).saddle.value
    return (t - 1) / (beta[..., None] * width)


def alignment_gain(square: Tensor, *, beta: Tensor, dim: int) -> Tensor:
    """A_D(βD|θ|)/|θ| as a function of θ², differentiable any number of times; β at θ = 0."""
    scale = beta * dim
    return scale * _Alignment.apply(scale * scale * square, dim)


class _Alignment(torch.autograd.Function):
    """A_D(κ)/κ as a function of κ²."""

    @staticmethod
    def forward(square: Tensor, dim: int) -> Tensor:
        kappa = square.detach().cpu().double().clamp_min(0.0).sqrt().numpy()
        return torch.from_numpy(np.asarray(alignment_over_kappa(kappa, dim=dim))).to(square)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        square, ctx.dim = inputs
        ctx.save_for_backward(square)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (square,) = ctx.saved_tensors
        # f = A_D/κ is a ratio of Bessel functions: d ln f_D/dκ = κ (f_{D+2} − f_D).
        here = _Alignment.apply(square, ctx.dim)
        beyond = _Alignment.apply(square, ctx.dim + 2)
        return grad * here * (beyond - here) / 2, None


def triple_errors(
    dim: int, *, strength: float, field: float, beta: float, draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Squared errors of the mean spins, by theory, of `draws` random triples in parallel fields.

    Couplings and fields are normal of the deviations `strength` and `field`, the same for every
    `dim`. Where a theory does not converge, its last point counts.
    """
    rng = np.random.default_rng(seed)
    wrong = []
    for _ in range(draws):
        couplings = strength * rng.standard_normal((3, 3))
        along = field * rng.standard_normal(3)
        fields = np.outer(along, np.eye(1, dim)[0])
        if dim == 1:
            exact = solve_exact(ising_couplings(couplings), fields=along, beta=beta)
            truth = exact.magnetization[:, None]
        else:
            known = three_spins(couplings, fields=fields * dim**0.5, beta=beta)
            truth = known.magnetization / dim**0.5
        j = torch.tensor(couplings)
        h = torch.tensor(fields)
        found = {
            name: solve_adaptive_tap(j, fields=h, beta=beta, method=name, throw=False).value
            for name in METHODS
        }
        for name, order in (("saddle", False), ("corrected", True)):
            large = solve_saddle_point(j, fields=h * dim**0.5, beta=beta, corrected=order)
            found[name] = large.magnetization / dim**0.5
        wrong.append([float(((mean.numpy() - truth) ** 2).sum()) for mean in found.values()])
    return dict(zip(found, np.array(wrong).T, strict=True))


@stored(
    "rivals",
    [
        {"strength": 0.3, "field": 1.0, "beta": 1.0},
        {"strength": 0.3, "field": 0.2, "beta": 2.0},
        {"strength": 0.6, "field": 1.0, "beta": 1.0},
        {"strength": 1.0, "field": 1.0, "beta": 1.0},
    ],
    seconds=8.0,
    rtol=1e-3,
)
def rivals(strength: float, field: float, beta: float) -> Rows:
    """ln of a rival's error over that of adaptive TAP, root mean squares of 12 triples.

    Against the best of naive theory, TAP and saddle point, and against the corrected saddle point;
    with the jackknife's interval.
    """
    rows = []
    for dim in (1, 2, 4, 8, 16):
        wrong = triple_errors(dim, strength=strength, field=field, beta=beta, draws=12, seed=11)
        best = min(("naive", "tap", "saddle"), key=lambda name: float(wrong[name].mean()))
        for rival, name in (("naive, TAP, saddle", best), ("corrected saddle", "corrected")):
            pair = np.stack([wrong[name], wrong["adaptive"]])
            total = pair.sum(1, keepdims=True)
            value, *each = 0.5 * np.log(np.divide(*np.concatenate([total, total - pair], 1)))
            error = (len(each) - 1) ** 0.5 * np.std(each)
            half = float(stdtrit(len(each) - 1, 0.975)) * error
            rows.append(
                {
                    "components": dim,
                    "rival": rival,
                    "value": value,
                    "low": value - half,
                    "high": value + half,
                    "runs": len(each),
                }
            )
    return rows
