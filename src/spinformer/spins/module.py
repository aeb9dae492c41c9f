"""Collectives of vector spins as neural-network modules: fields in, magnetizations out.

[bal2021transformers, Secs. 7 and 8]. Every head is a system of N spins σ_i in R^D, ‖σ_i‖² = D =
dim/heads, in the field of its channels, with couplings that depend on the whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,

and the output is −dF/dH. With u = σ/√D and h = H/√D, the unit convention of `vectors`,

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,    C_mn = ⟨u_m·u_n⟩,

Eq. (sigmaweird) divided by √D. The spins are solved with the symmetric part of J, which is all that
the energy contains, B = J + Jᵀ without diagonal; the second term, the response, takes J as it is.
For softmax couplings it is itself attention, with weights G and Gᵀ and value maps A = W_Q W_Kᵀ:

    response = a (G h Aᵀ + Gᵀ h A),   G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g),   a = γ√D.

F is the free energy of `large_d` at the saddle point, or that of its mean-field equations. In
equilibrium every token feels the future, whatever the mask; `DrivenSpinModule` can be causal.

Couplings stay where the mean-field equations have one, physical solution if β Σ_j |B_ij| ≤ κ < 1
for all spins: then β‖B‖ ≤ κ and the naive equations contract; |C_ij| ≤ 1 to second order, since
m_i·m_j + κ(1−m_i²)(1−m_j²) ≤ ab + κ(1−ab)² ≤ 1 with ab = |m_i||m_j|; and the covariance
W(W⁻¹ + βB)W, W = diag(1−m²), is positive definite. Rows of softmax couplings sum to g, but columns
to anything up to g N. Two ways to keep to the bound are `coupling_limit`, g(H) = κ s/(β n(H)) with
a learned s in (0, 1) and n the largest row sum of A + Aᵀ, J = g A; and a penalty on β n. The
saddle point needs neither.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_mask,
    check_real,
    check_tensor,
)
from spinformer.core.operators import is_traced
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.spins.large_d import (
    default_tolerance,
    fixed_point_of,
    langevin_gain,
    log_partition,
    mean_field,
    onsager_gain,
    vector_spins,
)
from spinformer.spins.saddle import exponent, field_source, inverse_logdet, saddle_of
from spinformer.spins.vectors import THEORIES, driven_start, driven_step, entropy_rate

# What rounding in single precision may do to a correlation.
_ROUNDING = 1e-3
_NOT_SHOWN = ("training", "warned", "map_in", "map_out")
_NOT_CAUSAL = (
    "is_causal must be False: in equilibrium, and for symmetric spins, the tokens i and j are "
    "coupled by B = J + J^T, so that every token feels the future, whatever the mask; a "
    "DrivenSpinModule can be causal"
)


def softmax_couplings(
    fields: Tensor,
    *,
    bilinear: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
    mask_diagonal: bool = True,
) -> Tensor:
    """J = g softmax(a h A hᵀ), rows summing to g; shape (..., N, N), in general not symmetric.

    `fields` h (..., N, D), `bilinear` A (..., D, D), the `scale` a ≥ 0 and the `strength` g ≥ 0
    numbers. With `mask_diagonal` a site has no score with itself, which needs N ≥ 2; without it
    J_ii u_i² is a constant of the spins, but one that still depends on the field.

    >>> softmax_couplings(torch.ones(3, 2), bilinear=torch.eye(2))
    tensor([[0.0000, 0.5000, 0.5000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    check_tensor("fields", fields)
    check_tensor("bilinear", bilinear, like=("fields", fields), square=True)
    if fields.ndim < 2 or bilinear.shape[-1] != fields.shape[-1]:
        raise ValueError(
            f"fields must have shape (..., N, D) with D of bilinear, {bilinear.shape[-1]}, "
            f"got {tuple(fields.shape)}"
        )
    if check_flag("mask_diagonal", mask_diagonal) and fields.shape[-2] < 2:
        raise ValueError("fields must have at least 2 sites if mask_diagonal, got 1")
    queries = check_real("scale", scale, low=0.0) * (fields @ bilinear)
    if not bool((queries @ fields.mT).detach().isfinite().all()):
        raise ValueError("fields, bilinear and scale must give finite scores, these overflow")
    g = fields.new_tensor(check_real("strength", strength, low=0.0))
    return _attention(queries, fields, g, diagonal=not mask_diagonal)


def symmetrize(couplings: Tensor) -> Tensor:
    """(J + Jᵀ)/2: the only part of J that the energy contains.

    >>> symmetrize(torch.tensor([[1.0, 4.0], [0.0, 1.0]]))
    tensor([[1., 2.],
            [2., 1.]])
    """
    couplings = check_tensor("couplings", couplings, square=True)
    return (couplings + couplings.mT) / 2


def response_attention(couplings: Tensor, *, correlation: Tensor, strength: Any = 1.0) -> Tensor:
    """G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g): the derivative of Σ J_mn C_mn by the score (m, k).

    C_mk minus its mean under the attention of row m, times that attention: rows sum to zero.
    `couplings` are J = g softmax with the `strength` g > 0.

    >>> half = torch.full((2, 2), 0.5)
    >>> response_attention(half, correlation=torch.eye(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    weighted = couplings * correlation
    return weighted - couplings * (weighted.sum(dim=-1, keepdim=True) / strength)


def softmax_response(
    fields: Tensor,
    *,
    bilinear: Tensor,
    couplings: Tensor,
    correlation: Tensor,
    scale: float = 1.0,
    strength: float = 1.0,
) -> Tensor:
    """Closed form of Σ C_mn ∂J_mn/∂h for softmax couplings: a (G h Aᵀ + Gᵀ h A), (..., N, D).

    Site i as a query, and site i as a key. Arguments as in `softmax_couplings` and
    `response_attention`; `couplings` are the unsymmetrised ones that these fields gave.

    >>> fields, one = torch.tensor([[1.0], [-1.0]]), torch.eye(1)
    >>> couplings = torch.full((2, 2), 0.5)
    >>> softmax_response(fields, bilinear=one, couplings=couplings, correlation=torch.eye(2))
    tensor([[ 1.],
            [-1.]])
    """
    weights = response_attention(couplings, correlation=correlation, strength=strength)
    as_query = (weights @ fields) @ bilinear.mT
    as_key = (weights.mT @ fields) @ bilinear
    return scale * (as_query + as_key)


def _attention(
    queries: Tensor,
    keys: Tensor,
    strength: Tensor,
    *,
    forbidden: Tensor | None = None,
    bias: Tensor | None = None,
    diagonal: bool = False,
) -> Tensor:
    """g softmax(q kᵀ + bias), zero on the diagonal unless `diagonal` and where `forbidden`; zero is
    a row without any allowed entry."""
    scores = queries @ keys.mT if bias is None else queries @ keys.mT + bias
    eye = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    if not diagonal:
        forbidden = eye if forbidden is None else forbidden | eye
    if forbidden is None:
        return strength * scores.softmax(dim=-1)
    # Not minus infinity: a row without any allowed entry would be 0/0.
    weights = scores.masked_fill(forbidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
    if forbidden is eye and len(eye) > 1:
        return strength * weights
    return strength * weights.masked_fill(forbidden, 0.0)


def largest_row_sum(pair: Tensor) -> Tensor:
    """n = max_i Σ_j B_ij of non-negative B (..., N, N), shape (..., 1, 1); at least ‖B‖."""
    return pair.sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True)


def _limited_correlation(correlation: Tensor, *, attention: Tensor, pair: Tensor) -> Tensor:
    """C less what a strength g = κ s/(β n) takes back, so that Σ C ∂J = g Σ C' ∂A.

    `attention` A (..., N, N), `pair` A + Aᵀ without diagonal. With n the largest row sum of that,
    C'_mn = C_mn − (e_m + e_n) Σ C A/n for m ≠ n, e the indicator of the row that n is the sum of.
    """
    rows = pair.sum(dim=-1, keepdim=True)
    largest = rows.amax(dim=-2, keepdim=True)
    # Rows that tie share the derivative, as torch's own does.
    which = (rows == largest).to(pair)
    which = which / which.sum(dim=-2, keepdim=True)
    share = (correlation * attention).sum(dim=(-2, -1), keepdim=True)
    share = share / torch.where(largest > 0, largest, 1.0)
    eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
    return correlation - (share * (which + which.mT)).masked_fill(eye, 0.0)


@record
class Validity:
    """How far ⟨σ⟩ can be trusted: one number per system, (batch, heads), of one forward pass.

    Compared is ⟨σ⟩ of each system with the saddle point at the same couplings, solved afresh in
    double precision; what that leaves out is of order 1/D, and the next order says how much.
    `converged`: whether the equations were solved. `distance`: ‖⟨σ⟩ − saddle‖/‖saddle‖.
    `correction`: the next order in 1/D of the saddle's ⟨σ⟩, relative to it. `largest`: the largest
    |C_ij| of different spins, which cannot exceed one. `lowest`: the smallest eigenvalue of the
    covariance C − m mᵀ, which cannot be negative. NaN where the numbers overflowed. Spins of one
    component are none of its business: their `correction` is infinite, and none is trusted.

    >>> one = torch.ones(1, 1)
    >>> kept = {"converged": one > 0, "correction": 0 * one, "largest": one, "lowest": 0 * one}
    >>> [bool(Validity(**kept, distance=x * one).trusted()) for x in (0.1, 0.3)]
    [True, False]
    """

    converged: Tensor
    distance: Tensor
    correction: Tensor
    largest: Tensor
    lowest: Tensor

    @property
    def physical(self) -> Tensor:
        """(batch, heads) booleans: correlations that spins of length one can have."""
        return (self.largest <= 1 + _ROUNDING) & (self.lowest >= -_ROUNDING)

    @property
    def expected_error(self) -> Tensor:
        """(batch, heads): what to expect for ‖⟨σ⟩ − exact‖/‖exact‖ at these couplings."""
        return self.distance + self.correction

    def trusted(self, tolerance: float = 0.2) -> Tensor:
        """(batch, heads) booleans: converged, physical, and off by less than `tolerance`."""
        return self.converged & self.physical & (self.expected_error <= tolerance)

    def summary(self) -> dict[str, float]:
        """Shares and medians over all systems, by name, for a log."""
        return {
            "converged": float(self.converged.double().mean()),
            "physical": float(self.physical.double().mean()),
            "distance": float(self.distance.median()),
            "correction": float(self.correction.median()),
            "trusted": float(self.trusted().double().mean()),
        }


@record
class _Heads:
    """The systems of a pass, (batch, heads, ...), and ⟨u⟩ `mean`, as far as it was solved for.

    h, queries and keys (..., N, D), J and B (..., N, N), β and g broadcasting as (..., 1, 1).
    `origin` is what the last step came from, `inverse` V⁻¹ at the saddle point t; None where
    another solver was asked.
    """

    fields: Tensor
    queries: Tensor
    keys: Tensor
    couplings: Tensor
    pair: Tensor
    beta: Tensor
    strength: Tensor
    mean: Tensor
    origin: Tensor
    residual: Tensor | None = None
    steps: Any = None
    status: Tensor | None = None
    t: Tensor | None = None
    inverse: Tensor | None = None
    logdet: Tensor | None = None

    def correlation(self, order: int, *, diagonal: bool = True) -> Tensor:
        """C: what −∂F/∂J of the solver's free energy is, divided by D.

        m mᵀ + V⁻¹/(2β) at the saddle; else m mᵀ [+ β B∘(w wᵀ)], w = 1 − m², and 1 on the diagonal,
        for which who couples nothing to itself need not ask.
        """
        correlation = self.mean @ self.mean.mT
        if self.inverse is not None:
            return correlation + self.inverse / (2 * self.beta)
        if order == 2:
            width = 1 - self.mean.square().sum(dim=-1, keepdim=True)
            correlation = correlation + self.pair * ((self.beta * width) @ width.mT)
        if not diagonal:
            return correlation
        eye = torch.eye(correlation.shape[-1], dtype=torch.bool, device=correlation.device)
        return correlation.masked_fill(eye, 1.0)

    def log_partition(self, order: int) -> Tensor:
        """ln Z/D (...) of the solver's theory, normalised to free spins."""
        beta = self.beta[..., 0, 0]
        if self.t is None or self.inverse is None or self.logdet is None:
            given: Any = {"couplings": self.couplings, "fields": self.fields, "beta": beta}
            return log_partition(self.mean, **given, order=order)
        source = field_source(self.fields)
        phi = exponent(self.t, self.inverse, self.logdet, source, beta)
        return phi - self.fields.shape[-2] / 2 * (1 + (2 * beta).log())


@record
class ModuleParts:
    """What the magnetization is made of; (batch, N, dim), in units of the output.

    `residual` + `mixing` + `onsager` = ⟨σ⟩, and with `response` the magnetization. `gain`
    (batch, heads, N) is the normalisation: the factor between the local field and ⟨σ_i⟩/√D.
    `couplings` J, `pair` B = J + Jᵀ without diagonal and `correlation` C are (batch, heads, N, N),
    `fields` h and, in `solution`, ⟨u⟩ (batch, heads, N, D), `beta` (heads, 1, 1). `solution`
    says how far each system, (batch, heads), is from solving its equations: the residual is that
    of the mean-field equations, or max |C_ii − 1| at the saddle; K steps are converged where it
    is within the tolerance, else their status is STEP_LIMIT.
    """

    residual: Tensor
    mixing: Tensor
    onsager: Tensor
    response: Tensor
    gain: Tensor
    couplings: Tensor
    pair: Tensor
    correlation: Tensor
    fields: Tensor
    beta: Tensor
    solution: Solution[Tensor]

    @property
    def spins(self) -> Tensor:
        """⟨σ⟩: the first three parts."""
        return self.residual + self.mixing + self.onsager

    @property
    def magnetization(self) -> Tensor:
        """The sum of the four parts."""
        return self.spins + self.response

    @property
    def converged(self) -> Tensor:
        """(batch, heads) booleans: whether ⟨u⟩ solves its equations."""
        converged: Tensor = self.solution.converged
        return converged

    def validity(self) -> Validity:
        """The meter of these systems: some twenty factorisations each, without a graph."""
        with torch.no_grad():
            mean, pair, fields, beta, correlation = (
                x.detach().double()
                for x in (self.solution.value, self.pair, self.fields, self.beta, self.correlation)
            )
            root, batch = fields.shape[-1] ** 0.5, fields.shape[:-2]
            finite = (mean.sum((-2, -1)) + pair.sum((-2, -1)) + fields.sum((-2, -1))).isfinite()
            safe = finite[..., None, None]
            given = torch.where(safe, pair, 0.0) / 2, torch.where(safe, fields * root, 0.0)
            temperature = torch.where(finite, beta[..., 0, 0].expand(batch), 1.0)
            with torch.enable_grad():
                probe = given[1].clone().requires_grad_()
                options: Any = {"fields": probe, "beta": temperature, "throw": False}
                solved = vector_spins(given[0], **options, corrected=True)
                (slope,) = torch.autograd.grad(solved.free_energy.sum(), probe)
            saddle = solved.magnetization.detach()
            eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
            covariance = torch.where(safe, correlation - mean @ mean.mT, 0.0)
            told = {
                "distance": _relative(mean * root - saddle, saddle),
                "correction": _relative(-slope - saddle, saddle),
                "largest": correlation.masked_fill(eye, 0.0).abs().amax((-2, -1)),
                "lowest": torch.linalg.eigvalsh(covariance)[..., 0],
            }
        if fields.shape[-1] == 1:
            told["correction"] = told["correction"] + torch.inf
        told = {name: torch.where(finite, value, torch.nan) for name, value in told.items()}
        return Validity(converged=self.converged.expand(batch) & finite, **told)


def _relative(difference: Tensor, whole: Tensor) -> Tensor:
    """‖difference‖/‖whole‖, or ‖difference‖ where there is nothing to compare it with."""
    size, unit = (torch.linalg.vector_norm(x, dim=(-2, -1)) for x in (difference, whole))
    return size / torch.where(unit > 0, unit, 1.0)


@dataclasses.dataclass(frozen=True)
class Solver:
    """How the spins of a module are solved.

    kind: "saddle", the saddle point of the large-D free energy, which always exists and is unique,
    or "fixed point", that of the mean-field equations, right for weak couplings. `steps`
    K ≥ 1 cuts the second short after K plain iterations from the free spins (K = 1: one attention
    step). `order` of the mean-field equations: 1 is naive, 2 adds the Onsager term.
    `tolerance` and `max_steps` are those of `large_d.solve_fixed_point`.

    >>> Solver("saddle", steps=1)
    Traceback (most recent call last):
    ValueError: steps must be None for the solver "saddle", which has no K steps
    """

    kind: str = "fixed point"
    steps: int | None = None
    order: int = 2
    tolerance: float | None = None
    max_steps: int = 300

    def __post_init__(self) -> None:
        check_choice("solver", self.kind, ("saddle", "fixed point"))
        check_choice("order", self.order, (1, 2))
        check_integer("max_steps", self.max_steps, low=1)
        if self.tolerance is not None:
            check_real("tolerance", self.tolerance, low=0.0)
        if self.steps is not None:
            check_integer("steps", self.steps, low=1)
            if self.kind == "saddle":
                raise ValueError('steps must be None for the solver "saddle", which has no K steps')

    def solve(self, fields: Tensor, pair: Tensor, beta: Tensor) -> dict[str, Any]:
        """⟨u⟩ `mean`, and what else `_Heads` holds of a solution."""
        tolerance = default_tolerance(fields) if self.tolerance is None else self.tolerance
        found: Solution[Tensor]
        if self.kind == "saddle":
            batch = torch.broadcast_shapes(fields.shape[:-2], pair.shape[:-2], beta.shape[:-2])
            half, inner = pair / 2, beta[..., 0, 0].expand(batch)
            found = saddle_of(half, field_source(fields), inner, tolerance, self.max_steps)
            inverse, logdet = inverse_logdet(torch.diag_embed(found.value) - half)
            mean = 0.5 * (inverse @ fields)
            made = {"mean": mean, "t": found.value, "inverse": inverse, "logdet": logdet}
        elif self.steps is None:
            found = fixed_point_of(pair, fields, beta, self.order, tolerance, self.max_steps)
            made = {"mean": found.value}
        else:
            square = pair.square() if self.order == 2 else None
            mean = langevin_gain(fields, beta) * fields
            for _ in range(self.steps):
                origin = mean
                theta, gain = mean_field(origin, fields, pair, beta, square)
                mean = gain * theta
            return {"mean": mean, "origin": origin, "steps": self.steps}
        ended = {"residual": found.residual, "steps": found.steps, "status": found.status}
        return made | ended | {"origin": made["mean"]}

    def decompose(self, heads: _Heads) -> tuple[Tensor, Tensor, Tensor, Tensor, Solution[Tensor]]:
        """⟨u⟩ as gain·h + gain·B m + Onsager term, the gain (..., N, 1), and how it ended.

        The gain is that of a free spin in the whole local field; at the saddle, where the field is
        2 t m = h + B m, it is the one of a free spin of the same ⟨u⟩, β(1 − m²). How far K steps
        are from a solution, one step more tells.
        """
        fields, pair, beta = heads.fields, heads.pair, heads.beta
        mean, origin = heads.mean, heads.origin
        square = pair.square() if self.order == 2 else None
        if heads.inverse is not None:
            gain = beta * (1 - mean.square().sum(dim=-1, keepdim=True))
            onsager = mean - gain * fields - gain * (pair @ mean)
        else:
            _, gain = mean_field(origin, fields, pair, beta, square)
            onsager = torch.zeros_like(origin)
            if square is not None:
                onsager = -gain * onsager_gain(origin, square, beta) * origin
        residual, steps, status = heads.residual, heads.steps, heads.status
        if residual is None or status is None:
            tolerance = default_tolerance(fields) if self.tolerance is None else self.tolerance
            with torch.no_grad():
                theta, next_gain = mean_field(mean, fields, pair, beta, square)
                left = (next_gain * theta - mean).square().sum(dim=(-2, -1)).sqrt()
            residual = left / mean.shape[-2] ** 0.5
            steps = torch.full_like(residual, steps, dtype=torch.int64)
            status = status_of(residual <= tolerance)
        solution = Solution(value=mean, residual=residual, steps=steps, status=status)
        return gain * fields, gain * (pair @ origin), onsager, gain, solution


class _CoupledHeads(nn.Module):
    """The parameters of `dim` channels that are shared out to `heads` systems, and their masks."""

    batch_first = True

    def __init__(
        self,
        dim: int,
        heads: int,
        beta: float,
        log_strength: float,
        gamma: float,
        channel_maps: bool,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, got {dtype}")
        self.dim = check_integer("dim", dim, low=1)
        self.heads = check_integer("heads", heads, low=1, high=dim)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads = {heads}, got {dim}")
        self._start = math.log(check_real("beta", beta, low=0.0, open_low=True)), log_strength
        self.gamma = check_real("gamma", gamma, low=0.0)
        self.normalize = True
        maps = 4 if check_flag("channel_maps", channel_maps) else 2
        shapes = [(dim, dim)] * maps + [(heads,)] * 2
        made = [nn.Parameter(torch.empty(x, device=device, dtype=dtype)) for x in shapes]
        self.query, self.key, *both, self.log_beta, self.log_strength = made
        self.map_in: nn.Parameter | None = both[0] if both else None
        self.map_out: nn.Parameter | None = both[1] if both else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W_Q and W_K anew, and put everything else back to where it started."""
        with torch.no_grad():
            for weight in (self.query, self.key):
                weight.copy_(torch.randn_like(weight) / self.dim**0.5)
            for weight, start in zip((self.log_beta, self.log_strength), self._start, strict=True):
                weight.fill_(start)
            for mapped in (self.map_in, self.map_out):
                if mapped is not None:
                    nn.init.eye_(mapped)

    def extra_repr(self) -> str:
        """The options that are not parameters, for `print`."""
        told = {k: v for k, v in vars(self).items() if k[0] != "_" and k not in _NOT_SHOWN}
        return ", ".join(f"{name}={value!r}" for name, value in told.items())

    @property
    def self_attn(self) -> _CoupledHeads:
        """What `nn.TransformerEncoder` asks for the order of the axes: the module itself."""
        return self

    def fields(self, inputs: Tensor) -> Tensor:
        """The external fields H that `inputs` (batch, N, dim) impose: mapped, then normalised.

        Tokens whose squares overflow become NaN, since they would look like free spins.
        """
        if self.map_in is not None:
            inputs = inputs @ self.map_in
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        size = inputs.square().mean(dim=-1, keepdim=True)
        if not self.normalize:
            return inputs + 0 * size
        return inputs * (size + torch.finfo(inputs.dtype).eps).rsqrt() + 0 * size

    def _read(
        self, src: Tensor, mask: Tensor | None, padded: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """`src` with a batch, zero where `padded`; `padded` (batch, N); the pairs that may not
        couple; and what is added to the scores."""
        if not isinstance(src, Tensor) or not src.is_floating_point():
            raise TypeError("src must be a floating-point torch tensor")
        if src.ndim not in (2, 3) or src.shape[-1] != self.dim or not src.shape[-2]:
            raise ValueError(
                f"src must have shape (batch, N, {self.dim}) or (N, {self.dim}), N >= 1, "
                f"got {tuple(src.shape)}"
            )
        if src.dtype != self.query.dtype and not torch.is_autocast_enabled(src.device.type):
            raise TypeError(f"src must be {self.query.dtype} like the parameters, got {src.dtype}")
        tokens = src if src.ndim == 3 else src.unsqueeze(0)
        batch, sites = tokens.shape[:2]
        forbidden, bias = None, None
        if mask is not None:
            allowed = [(sites, sites), (batch * self.heads, sites, sites)]
            forbidden = check_mask("src_mask", mask, allowed)
            if forbidden.is_floating_point():
                bias = forbidden.masked_fill(forbidden == -torch.inf, 0.0)
                forbidden = forbidden == -torch.inf
            if forbidden.ndim == 3:
                forbidden, bias = (
                    x if x is None else x.unflatten(0, (batch, self.heads))
                    for x in (forbidden, bias)
                )
        if padded is not None:
            allowed = [(batch, sites)] if src.ndim == 3 else [(sites,), (1, sites)]
            padded = check_mask("src_key_padding_mask", padded, allowed).reshape(batch, sites)
            if padded.is_floating_point():
                there = (padded == 0) | (padded == -torch.inf)
                if not is_traced() and not bool(there.all()):
                    raise ValueError(
                        "src_key_padding_mask must be boolean, or 0 and minus infinity: "
                        "a token is a spin or it is none"
                    )
                padded = padded == -torch.inf
            either = (padded[:, None, :] | padded[:, :, None])[:, None]
            forbidden = either if forbidden is None else forbidden | either
            tokens = tokens.masked_fill(padded.unsqueeze(-1), 0.0)
        return tokens, padded, forbidden, bias

    def _split(self, channels: Tensor) -> Tensor:
        """(batch, N, dim) as (batch, heads, N, dim/heads)."""
        return channels.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


def merge(heads: Tensor) -> Tensor:
    """(batch, heads, N, D) as (batch, N, heads·D)."""
    return heads.transpose(-3, -2).flatten(-2)


class SpinTransformerModule(_CoupledHeads):
    """Vector spins with softmax couplings, in the place of a transformer layer.

    `dim` channels are shared out to `heads` systems of dimension D = dim/heads. `solver`: a
    `Solver`, or the word "saddle" (always there, and faster at usual sizes) or "fixed point".
    Solved at either, the output is exactly −dF/dH of its free energy F, and differentiated
    implicitly, any number of times; after K steps it is not. `beta` and `strength` (g) start every
    head and are learned through their logarithm, `gamma` multiplies the paper's 1/√D in the scores.
    `coupling_limit` κ keeps β max_i Σ_j B_ij below κ; `log_strength` then holds the logit of g's
    share of its bound. `response`: add the second term of Eq. (sigmaweird). `normalize`: scale each
    input token to norm √dim before it acts as a field. `channel_maps`: learned linear maps in front
    of the fields and behind the magnetizations, started at the identity.

    Called as `torch.nn.TransformerEncoderLayer` with `batch_first` is, alone or in
    `nn.TransformerEncoder(module, 2, enable_nested_tensor=False)`, whose layers start as copies:
    `reset_parameters` draws one anew. Parameters: `query`, `key` (dim, dim), `log_beta`,
    `log_strength` (heads,), with `channel_maps` also `map_in`, `map_out`. Warns once where a system
    did not converge (with `warned = True` never). After a forward pass in training mode
    `validity()` measures how far it can be trusted; otherwise, and under `torch.vmap`,
    `torch.compile` and `torch.export`, a pass leaves nothing behind. Half precision and autocast
    solve in single precision.

    >>> module = SpinTransformerModule(8, heads=2)
    >>> output, parts = module(torch.ones(1, 3, 8), return_parts=True)
    >>> torch.allclose(parts.magnetization, output), bool(module.validity().converged.all())
    (True, True)
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        solver: Solver | str = "saddle",
        beta: float = 1.0,
        strength: float | None = None,
        gamma: float = 1.0,
        coupling_limit: float | None = None,
        response: bool = True,
        normalize: bool = True,
        channel_maps: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if coupling_limit is not None:
            check_real("coupling_limit", coupling_limit, low=0.0, open_low=True)
            if strength is not None:
                raise ValueError("strength must be None where coupling_limit is given")
        g = check_real("strength", 0.5 if strength is None else strength, low=0.0, open_low=True)
        start = math.log(g) if coupling_limit is None else 0.0
        super().__init__(dim, heads, beta, start, gamma, channel_maps, device, dtype)
        self.coupling_limit = coupling_limit
        self.solver = Solver(solver) if isinstance(solver, str) else solver
        self.response = check_flag("response", response)
        self.normalize = check_flag("normalize", normalize)
        self.warned = False
        self._seen: _Heads | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files hold the module, not its last input."""
        return {**self.__dict__, "_seen": None}

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        return_parts: bool = False,
    ) -> Any:
        """Magnetisations for `src` (batch, N, dim) or (N, dim), same shape.

        `src_mask` (N, N) or (batch·heads, N, N): True where J_ij is forbidden, or added to the
        scores, where minus infinity forbids; a pair is free only where both directions are.
        `src_key_padding_mask` (batch, N): True (or minus infinity, and else 0) at padded tokens,
        which are no spins: their output is zero. `return_parts` gives both the output and the
        `ModuleParts`, which are taken before `map_out` and always have a batch. ValueError for
        another shape, and for `is_causal`, which `nn.TransformerEncoder` sets with a causal mask;
        TypeError for another dtype; input that is not finite, or overflows, comes out as NaN.
        """
        check_flag("return_parts", return_parts)
        if check_flag("is_causal", is_causal):
            raise ValueError(_NOT_CAUSAL)
        tokens, padded, forbidden, bias = self._read(src, src_mask, src_key_padding_mask)
        fields = self.fields(tokens)
        if padded is not None:
            fields = fields.masked_fill(padded.unsqueeze(-1), 0.0)
        heads = self._solve(fields, forbidden, bias)
        with torch.autocast(src.device.type, enabled=False):
            answer = merge(heads.mean) * heads.fields.shape[-1] ** 0.5
            response = self._response(heads) if self.response else torch.zeros_like(answer)
            answer = answer + response
        if not is_traced():
            self._remember(heads)
        out = answer.to(tokens.dtype)
        if self.map_out is not None:
            out = out @ self.map_out
        out = out if src.ndim == 3 else out[0]
        return (out, self._parts(heads, response)) if return_parts else out

    def _remember(self, heads: _Heads) -> None:
        self._seen = None
        if self.training:
            values = {f.name: getattr(heads, f.name) for f in dataclasses.fields(heads)}
            bare = {k: v.detach() if isinstance(v, Tensor) else v for k, v in values.items()}
            self._seen = _Heads(**bare)
        if self.warned or heads.status is None:
            return
        lost = int((heads.status != Status.CONVERGED).sum())
        if lost:
            self.warned = True
            warnings.warn(
                f"{lost} of {heads.status.numel()} systems did not converge, solver "
                f"{self.solver.kind!r}: validity() says how far to trust them (this is said once)",
                RuntimeWarning,
                stacklevel=5,
            )

    def validity(self) -> Validity:
        """How far the last forward pass in training mode can be trusted, for each of its systems.

        Nothing is computed before this is called. RuntimeError if no such pass left a record;
        the parts of any pass have a `validity()` of their own.
        """
        if self._seen is None:
            raise RuntimeError(
                "validity needs a forward pass of this module in training mode, outside "
                "transforms; otherwise ask for return_parts"
            )
        with torch.no_grad():
            return self._parts(self._seen, self._seen.mean.new_zeros(())).validity()

    def free_energy(self, fields: Tensor) -> Tensor:
        """F(H) of all heads, (batch,), at the magnetizations the module computes for `fields`.

        At a solution −dF/dH is the module's output for these fields (before `map_out`).
        """
        tokens, _, forbidden, _ = self._read(fields, None, None)
        heads = self._solve(tokens, forbidden, None)
        log_z = heads.log_partition(self.solver.order) / heads.beta[..., 0, 0]
        return -heads.fields.shape[-1] * log_z.sum(dim=-1)

    def _solve(self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None) -> _Heads:
        root = (self.dim // self.heads) ** 0.5
        query, key = self.query.to(fields.dtype), self.key.to(fields.dtype)
        queries, keys = (self._split(fields @ x).to(fields.dtype) for x in (query, key))
        with torch.autocast(fields.device.type, enabled=False):
            beta = self.log_beta.to(fields.dtype).exp()[:, None, None]
            raw = self.log_strength.to(fields.dtype)[:, None, None]
            strength = raw.exp() if self.coupling_limit is None else torch.ones_like(raw)
            scaled = queries * (self.gamma / root)
            couplings = _attention(scaled, keys, strength, forbidden=forbidden, bias=bias)
            pair = couplings + couplings.mT
            if self.coupling_limit is not None:
                largest = largest_row_sum(pair)
                largest = torch.where(largest > 0, largest, 1.0)
                strength = self.coupling_limit * raw.sigmoid() / (beta * largest)
                couplings, pair = strength * couplings, strength * pair
            given = {"fields": self._split(fields) / root, "pair": pair, "beta": beta}
            found = self.solver.solve(**given)
        known = {"queries": queries, "keys": keys, "couplings": couplings, "strength": strength}
        return _Heads(**given, **known, **found)

    def _response(self, heads: _Heads) -> Tensor:
        couplings = heads.couplings
        correlation = heads.correlation(self.solver.order, diagonal=False)
        if self.coupling_limit is not None:
            correlation = _limited_correlation(correlation, attention=couplings, pair=heads.pair)
        weights = response_attention(couplings, correlation=correlation, strength=heads.strength)
        along, back = merge(weights @ heads.keys), merge(weights.mT @ heads.queries)
        query, key = self.query.to(along.dtype), self.key.to(along.dtype)
        scale = self.gamma * heads.queries.shape[-1] ** 0.5
        return scale * (along @ query.mT + back @ key.mT)

    def _parts(self, heads: _Heads, response: Tensor) -> ModuleParts:
        *parts, gain, solution = self.solver.decompose(heads)
        root = heads.fields.shape[-1] ** 0.5
        residual, mixing, onsager = (merge(part) * root for part in parts)
        return ModuleParts(
            residual=residual,
            mixing=mixing,
            onsager=onsager,
            response=response,
            gain=gain.squeeze(-1),
            couplings=heads.couplings,
            pair=heads.pair,
            correlation=heads.correlation(self.solver.order),
            fields=heads.fields,
            beta=heads.beta,
            solution=solution,
        )


@record
class DrivenParts:
    """How a driven module came to its output.

    `mean` ⟨u⟩ after the last step (batch, heads, N, D), `change` the largest |Δ⟨u⟩| of that step,
    (batch, heads): zero where the state was stationary before it. `couplings` J and `delayed`
    ⟨u_i(K)·u_j(K−1)⟩ are (batch, heads, N, N). `entropy_production` (batch, heads): nats a step,
    per spin and component, of the stationary state if `change` is zero.
    """

    mean: Tensor
    change: Tensor
    couplings: Tensor
    delayed: Tensor
    entropy_production: Tensor


class DrivenSpinModule(_CoupledHeads):
    """Driven vector spins with causal softmax couplings: a layer for sequences, out of equilibrium.

    Driven spins [bal2021transformers, footnote 10; poclopez2024dynamical] have couplings of their
    own in each direction: here J_ij = g softmax over the past j < i of γ (H W_Q)_i·(H W_K)_j/√D,
    and zero else. The tokens drive the spins with constant fields H for `steps` K parallel steps
    from free spins, in the theories of `vectors.driven_step`: "naive", "second order" with the
    lengthening of the fields by fluctuations, or "large D", exact for D → ∞ and of cost N³ a step.
    There is no free energy, hence no response: the output is ⟨σ(K)⟩. Since J is strictly triangular
    its N-th power vanishes: the state is stationary, exactly, after N − 1 steps from free spins and
    after N from any start. What K steps leave out are paths of more than K couplings.

    `symmetric` spins feel (J + Jᵀ)/2, what an energy would keep of J: then the module is not
    causal, whatever the mask. The other arguments are those of `SpinTransformerModule`.

    >>> module = DrivenSpinModule(8, heads=2)
    >>> module(torch.ones(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        steps: int = 2,
        theory: str = "second order",
        beta: float = 1.0,
        strength: float = 0.5,
        gamma: float = 1.0,
        symmetric: bool = False,
        channel_maps: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        start = math.log(check_real("strength", strength, low=0.0, open_low=True))
        super().__init__(dim, heads, beta, start, gamma, channel_maps, device, dtype)
        self.steps = check_integer("steps", steps, low=1)
        self.theory = check_choice("theory", theory, THEORIES)
        self.symmetric = check_flag("symmetric", symmetric)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        return_parts: bool = False,
    ) -> Any:
        """⟨σ(K)⟩ for `src` (batch, N, dim) or (N, dim), same shape; with `DrivenParts` if asked.

        Masks as in `SpinTransformerModule`; `is_causal` is true anyway, but of `symmetric` spins.
        ValueError for another shape, TypeError for another dtype; what is not finite stays so.
        """
        check_flag("return_parts", return_parts)
        if check_flag("is_causal", is_causal) and self.symmetric:
            raise ValueError(_NOT_CAUSAL)
        tokens, _, forbidden, bias = self._read(src, src_mask, src_key_padding_mask)
        fields = self.fields(tokens)
        sites = fields.shape[-2]
        later = torch.ones(sites, sites, dtype=torch.bool, device=fields.device).triu()
        forbidden = later if forbidden is None else forbidden | later
        root = (self.dim // self.heads) ** 0.5
        beta = self.log_beta.exp()[:, None, None]
        queries = self._split(fields @ self.query) * (self.gamma / root)
        keys, strength = self._split(fields @ self.key), self.log_strength.exp()[:, None, None]
        couplings = _attention(queries, keys, strength, forbidden=forbidden, bias=bias)
        if self.symmetric:
            couplings = 0.5 * (couplings + couplings.mT)
        scaled = self._split(fields) / root
        state = driven_start(scaled, beta=beta)
        for _ in range(self.steps):
            before = state
            made = driven_step(
                before, couplings=couplings, fields=scaled, beta=beta, theory=self.theory
            )
            state = made.state
        answer = merge(state.mean) * root
        out = answer if self.map_out is None else answer @ self.map_out
        out = out if src.ndim == 3 else out[0]
        if not return_parts:
            return out
        rate = entropy_rate(made.delayed, couplings=couplings, beta=beta)
        return out, DrivenParts(
            mean=state.mean,
            change=(state.mean - before.mean).abs().amax(dim=(-2, -1)),
            couplings=couplings,
            delayed=made.delayed,
            entropy_production=rate / couplings.shape[-1],
        )
