"""Collectives of vector spins as neural-network modules: fields in, magnetizations out.

[bal2021transformers, Secs. 7 and 8]. Every head is a system of N spins σ_i in R^D, ‖σ_i‖² = D =
dim/heads, in the field of its channels, with couplings that depend on the whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,

and the output is −dF/dH. With u = σ/√D and h = H/√D, the units of `large_d`,

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,    C_mn = ⟨u_m·u_n⟩,

Eq. (sigmaweird) divided by √D. The energy contains only B = J + Jᵀ without diagonal; the second
term, the response, takes J as it is.
For softmax couplings it is itself attention, with weights G and Gᵀ and value maps A = W_Q W_Kᵀ:

    response = a (G h Aᵀ + Gᵀ h A),   G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g),   a = γ√D.

F is the free energy of `large_d` at the saddle point, or that of its mean-field equations.

Couplings stay where the mean-field equations have one, physical solution if β Σ_j |B_ij| ≤ κ < 1
for all spins: then β‖B‖ ≤ κ and the naive equations contract; |C_ij| ≤ 1 to second order, since
m_i·m_j + κ(1−m_i²)(1−m_j²) ≤ ab + κ(1−ab)² ≤ 1 with ab = |m_i||m_j|; and the covariance
W(W⁻¹ + βB)W, W = diag(1−m²), is positive definite. Rows of softmax couplings sum to g, but columns
to anything up to g N. `coupling_limit` keeps to the bound by g(H) = κ s/(β n(H)) with a learned s
in (0, 1) and n the largest row sum of S + Sᵀ, J = g S; the saddle point needs none.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.checks import check_choice, check_flag, check_integer, check_mask, check_real
from spinformer.core.operators import is_traced
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.spins.large_d import (
    THEORIES,
    driven_step,
    entropy_rate,
    field_source,
    free_spins,
    inverse_logdet,
    log_partition,
    mean_field,
    saddle_log_partition,
)
from spinformer.spins.solvers import default_tolerance, fixed_point_of, saddle_of, vector_spins

# t*, V⁻¹ and ln det V, of the saddle point alone.
_Saddle = tuple[Tensor, Tensor, Tensor] | None
# What rounding in single precision may do to a correlation.
_ROUNDING = 1e-3
_NOT_CAUSAL = (
    "is_causal must be False: in equilibrium, and for symmetric spins, the tokens i and j are "
    "coupled by B = J + J^T, so that every token feels the future, whatever the mask; a "
    "DrivenSpinModule can be causal"
)


def _softmax_couplings(scores: Tensor, forbidden: Tensor | None) -> Tensor:
    """Softmax of rows, zero on the diagonal, where `forbidden`, and in a row of nothing else."""
    eye = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    never = eye if forbidden is None else forbidden | eye
    # Not minus infinity: a row without any allowed entry would be 0/0.
    weights = scores.masked_fill(never, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights if never is eye and len(eye) > 1 else weights.masked_fill(never, 0.0)


def response_attention(couplings: Tensor, *, correlation: Tensor, strength: Any = 1.0) -> Tensor:
    """G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g): the derivative of Σ J_mn C_mn by the score (m, k).

    Rows sum to zero. `couplings` are J = g softmax with the `strength` g > 0.

    >>> half = torch.full((2, 2), 0.5)
    >>> response_attention(half, correlation=torch.eye(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    weighted = couplings * correlation
    return weighted - couplings * (weighted.sum(dim=-1, keepdim=True) / strength)


def _limited_correlation(correlation: Tensor, attention: Tensor, pair: Tensor) -> Tensor:
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


@dataclasses.dataclass(frozen=True)
class Solver:
    """How the spins of a module are solved.

    kind: "saddle", the saddle point of the large-D free energy, which always exists and is unique,
    or "fixed point", that of the mean-field equations, right for weak couplings. `steps` K ≥ 1 cuts
    the second short after K plain iterations from the free spins. `order` of the equations: 1 is
    naive, 2 adds the Onsager term. `tolerance` and `max_steps` as in `solvers.solve_fixed_point`.

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

    def limit(self, like: Tensor) -> float:
        """The tolerance, by default that of the precision of `like`."""
        return default_tolerance(like) if self.tolerance is None else self.tolerance

    def solve(self, fields: Tensor, pair: Tensor, beta: Tensor) -> tuple[Solution[Tensor], _Saddle]:
        """`found` and `saddle` of `ModuleParts`, for h, B and β (..., 1, 1)."""
        if self.steps is not None:
            square = pair.square() if self.order == 2 else None
            mean = free_spins(fields, beta)
            for _ in range(self.steps):
                theta, gain = mean_field(mean, fields, pair, beta, square)
                mean = gain * theta
            return Solution(value=mean, residual=None, steps=self.steps, status=None), None
        limits = self.limit(fields), self.max_steps
        if self.kind == "fixed point":
            return fixed_point_of(pair, fields, beta, self.order, *limits), None
        batch = torch.broadcast_shapes(fields.shape[:-2], pair.shape[:-2], beta.shape[:-2])
        half, inner = pair / 2, beta[..., 0, 0].expand(batch)
        at = saddle_of(half, field_source(fields), inner, *limits)
        inverse, logdet = inverse_logdet(torch.diag_embed(at.value) - half)
        found = dataclasses.replace(at, value=0.5 * (inverse @ fields))
        return found, (at.value, inverse, logdet)


@record
class Validity:
    """How far ⟨σ⟩ can be trusted: one number per system, (batch, heads), of one forward pass.

    `converged`: whether the equations were solved. `distance`: ‖⟨σ⟩ − saddle‖/‖saddle‖, the saddle
    point at the same couplings, solved afresh in double precision. `correction`: the next order in
    1/D of the saddle's ⟨σ⟩, relative to it, infinite for D = 1. `largest`: the largest |C_ij| of
    different spins, which cannot exceed one. `lowest`: the smallest eigenvalue of the covariance
    C − m mᵀ, which cannot be negative. NaN where the numbers overflowed.
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


@record
class ModuleParts:
    """How a module came to its output; `spins` and `response` (batch, N, dim) in units of it.

    `couplings` J, `pair` B = J + Jᵀ without diagonal and `correlation` C are (batch, heads, N, N),
    `fields` h and, in `solution`, ⟨u⟩ (batch, heads, N, D), `beta` (heads, 1, 1). The residual of
    `solution`, (batch, heads), is that of the mean-field equations, or max |C_ii − 1| at the
    saddle; K steps are converged where it is within the tolerance, else STEP_LIMIT. `found` is what
    the `solver` ended with, `saddle` t*, V⁻¹ and ln det V.
    """

    solver: Solver
    fields: Tensor
    couplings: Tensor
    pair: Tensor
    beta: Tensor
    found: Solution[Tensor]
    saddle: _Saddle
    response: Tensor

    @property
    def spins(self) -> Tensor:
        """⟨σ⟩."""
        return _merged(self.found.value) * self.fields.shape[-1] ** 0.5

    @property
    def magnetization(self) -> Tensor:
        """⟨σ⟩ and the response, −dF/dH."""
        return self.spins + self.response

    @property
    def correlation(self) -> Tensor:
        """C, what −∂F/∂J of the solver's free energy is, divided by D."""
        return _correlation(self.found.value, self.pair, self.beta, self.solver.order, self.saddle)

    @property
    def solution(self) -> Solution[Tensor]:
        """How the solver ended; how far K steps are from a solution, one step more tells."""
        if self.found.status is not None:
            return self.found
        mean = self.found.value
        with torch.no_grad():
            square = self.pair.square() if self.solver.order == 2 else None
            theta, gain = mean_field(mean, self.fields, self.pair, self.beta, square)
            left = (gain * theta - mean).square().sum(dim=(-2, -1)).sqrt() / mean.shape[-2] ** 0.5
        return Solution(
            value=mean,
            residual=left,
            steps=torch.full_like(left, self.found.steps, dtype=torch.int64),
            status=status_of(left <= self.solver.limit(mean)),
        )

    @torch.no_grad()
    def validity(self) -> Validity:
        """Measured without a graph, at some twenty factorisations a system."""
        mean, pair, fields, beta, correlation = (
            x.detach().double()
            for x in (self.found.value, self.pair, self.fields, self.beta, self.correlation)
        )
        root, batch = fields.shape[-1] ** 0.5, fields.shape[:-2]
        finite = (mean.sum((-2, -1)) + pair.sum((-2, -1)) + fields.sum((-2, -1))).isfinite()
        # Nor is anything known where the temperature is.
        finite = finite & (beta[..., 0, 0].expand(batch) > 1e-150)
        safe = finite[..., None, None]
        pair, fields = (torch.where(safe, x, 0.0) for x in (pair, fields * root))
        temperature = torch.where(finite, beta[..., 0, 0].expand(batch), 1.0)
        options: Any = {"beta": temperature, "corrected": True, "throw": False}
        solved = vector_spins(pair / 2, fields=fields, **options)
        t = solved.saddle.value
        saddle = torch.linalg.solve_ex(torch.diag_embed(t) - pair / 2, fields).result / 2
        eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
        covariance = torch.where(safe, correlation - mean @ mean.mT, 0.0)
        told = {
            "distance": _relative(mean * root - saddle, saddle),
            "correction": _relative(solved.magnetization - saddle, saddle),
            "largest": correlation.masked_fill(eye, 0.0).abs().amax((-2, -1)),
            "lowest": torch.linalg.eigvalsh(covariance)[..., 0],
        }
        if fields.shape[-1] == 1:
            told["correction"] = told["correction"] + torch.inf
        told = {name: torch.where(finite, value, torch.nan) for name, value in told.items()}
        return Validity(converged=self.solution.converged.expand(batch) & finite, **told)


def _correlation(
    mean: Tensor, pair: Tensor, beta: Tensor, order: int, saddle: _Saddle, *, diagonal: bool = True
) -> Tensor:
    """m mᵀ + V⁻¹/(2β) at the saddle; else m mᵀ [+ β B∘(w wᵀ)], w = 1 − m², 1 on the diagonal."""
    correlation = mean @ mean.mT
    if saddle is not None:
        return correlation + saddle[1] / (2 * beta)
    if order == 2:
        width = 1 - mean.square().sum(dim=-1, keepdim=True)
        correlation = correlation + pair * ((beta * width) @ width.mT)
    if not diagonal:
        return correlation
    eye = torch.eye(correlation.shape[-1], dtype=torch.bool, device=correlation.device)
    return correlation.masked_fill(eye, 1.0)


def _relative(difference: Tensor, whole: Tensor) -> Tensor:
    size, unit = (torch.linalg.vector_norm(x, dim=(-2, -1)) for x in (difference, whole))
    return size / torch.where(unit > 0, unit, 1.0)


class _CoupledHeads(nn.Module):
    """The parameters of `dim` channels that are shared out to `heads` systems, and their masks."""

    batch_first = normalize = True
    _causal = False

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

    @property
    def self_attn(self) -> nn.Module:
        """What `nn.TransformerEncoder` asks for the order of the axes: the module itself."""
        return self

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        return_parts: bool = False,
    ) -> Any:
        """Magnetizations for `src` (batch, N, dim) or (N, dim), same shape.

        `src_mask` (N, N) or (batch·heads, N, N): True where J_ij is forbidden, or added to the
        scores, where minus infinity forbids; in equilibrium a pair is free only where both
        directions are. `src_key_padding_mask` (batch, N): True (or minus infinity, and else 0) at
        padded tokens, which are no spins: their output is zero. `return_parts` gives the output
        and the `ModuleParts` or `DrivenParts`, taken before `map_out` and always with a batch.
        ValueError for another shape, and for `is_causal` where spins feel the future; TypeError for
        another dtype; input that is not finite, or overflows, comes out as NaN.
        """
        check_flag("return_parts", return_parts)
        if check_flag("is_causal", is_causal) and not self._causal:
            raise ValueError(_NOT_CAUSAL)
        tokens, forbidden, bias = self._read(src, src_mask, src_key_padding_mask)
        answer, parts = self._answer(self.fields(tokens), forbidden, bias)
        out = answer.to(src.dtype)
        out = out if self.map_out is None else out @ self.map_out
        out = out if src.ndim == 3 else out[0]
        return (out, parts()) if return_parts else out

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
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`src` with a batch, zero where `padded`; the pairs that may not couple; and what is added
        to the scores."""
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
            if forbidden.ndim == 3:
                forbidden = forbidden.unflatten(0, (batch, self.heads))
            if forbidden.is_floating_point():
                # In the precision of the scores, where −1e300 may be minus infinity.
                forbidden = forbidden.to(torch.promote_types(src.dtype, torch.float32))
                never = forbidden == -torch.inf
                forbidden, bias = never, forbidden.masked_fill(never, 0.0)
                if not is_traced() and not bool(bias.isfinite().all()):
                    raise ValueError(
                        "src_mask must be boolean, or finite and minus infinity, got NaN or inf"
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
        return tokens, forbidden, bias

    def _coupled(
        self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, ...]:
        """h, queries and keys (batch, heads, N, D), β and ln g (heads, 1, 1), and J/g."""
        root = (self.dim // self.heads) ** 0.5
        query, key = (x.to(fields.dtype) for x in (self.query, self.key))
        queries, keys = (self._split(fields @ x).to(fields.dtype) for x in (query, key))
        with torch.autocast(fields.device.type, enabled=False):
            scaled = queries * (self.gamma / root)
            scores = scaled @ keys.mT if bias is None else scaled @ keys.mT + bias
            weights = _softmax_couplings(scores, forbidden)
            logs = (x.to(fields.dtype)[:, None, None] for x in (self.log_beta, self.log_strength))
            beta, log_strength = logs
            return self._split(fields) / root, queries, keys, beta.exp(), log_strength, weights

    def _split(self, channels: Tensor) -> Tensor:
        return channels.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _answer(
        self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Callable[[], Any]]:
        """Magnetizations (batch, N, dim) in these fields, and what makes the parts of them."""
        raise NotImplementedError


def _merged(heads: Tensor) -> Tensor:
    return heads.transpose(-3, -2).flatten(-2)


class SpinTransformerModule(_CoupledHeads):
    """Vector spins with softmax couplings, in the place of a transformer layer.

    `dim` channels are shared out to `heads` systems of dimension D = dim/heads. `solver`: a
    `Solver`, or the word "saddle" (always there) or "fixed point" (about as fast for tens of
    tokens, and faster for hundreds, but not always there). Solved at either, the output is exactly
    −dF/dH of its free energy F, and differentiated implicitly, any number of times; after K steps
    it is not. `beta` and `strength` (g) start every
    head and are learned through their logarithm, `gamma` multiplies the paper's 1/√D in the scores.
    `coupling_limit` κ keeps β max_i Σ_j B_ij below κ; `log_strength` then holds the logit of g's
    share of its bound. `response`: add the second term of Eq. (sigmaweird). `normalize`: scale each
    input token to norm √dim before it acts as a field. `channel_maps`: learned linear maps in front
    of the fields and behind the magnetizations, started at the identity.

    Called as `torch.nn.TransformerEncoderLayer` with `batch_first` is, alone or in
    `nn.TransformerEncoder(module, 2, enable_nested_tensor=False)`, whose layers start as copies:
    `reset_parameters` draws one anew. Parameters: `query`, `key` (dim, dim), `log_beta`,
    `log_strength` (heads,), with `channel_maps` also `map_in`, `map_out`. Warns once where a system
    did not converge (with `warned = True` never, nor under `torch.vmap`, `torch.compile` and
    `torch.export`); `validity()` of the parts measures how far a pass can be trusted. Half
    precision and autocast solve in single precision.

    >>> module = SpinTransformerModule(8, heads=2)
    >>> output, parts = module(torch.ones(1, 3, 8), return_parts=True)
    >>> torch.allclose(parts.magnetization, output), bool(parts.validity().converged.all())
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
        if not isinstance(solver, str | Solver):
            raise TypeError(f"solver must be a word or a Solver, got {solver!r:.60}")
        self.solver = Solver(solver) if isinstance(solver, str) else solver
        self.response = check_flag("response", response)
        self.normalize = check_flag("normalize", normalize)
        self.warned = False

    def _answer(
        self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Callable[[], ModuleParts]]:
        parts = self._solve(fields, forbidden, bias)
        status = parts.found.status
        if not is_traced() and not self.warned and status is not None:
            lost = int((status != Status.CONVERGED).sum())
            self.warned = lost > 0
            if lost:
                warnings.warn(
                    f"{lost} of {status.numel()} systems did not converge, solver "
                    f"{self.solver.kind!r}: validity() of the parts says how far to trust them "
                    "(this is said once)",
                    RuntimeWarning,
                    stacklevel=5,
                )
        return parts.magnetization, lambda: parts

    def free_energy(self, fields: Tensor) -> Tensor:
        """F(H) of all heads, (batch,), at the magnetizations the module computes for `fields`.

        At a solution −dF/dH is the module's output for these fields (before `map_out`).
        """
        parts = self._solve(self._read(fields, None, None)[0], None, None)
        fields, beta = parts.fields, parts.beta[..., 0, 0]
        if parts.saddle is None:
            given: Any = {"couplings": parts.couplings, "fields": fields, "beta": beta}
            log_z = log_partition(parts.found.value, **given, order=self.solver.order)
        else:
            log_z = saddle_log_partition(*parts.saddle, field_source(fields), beta)
        return -fields.shape[-1] * (log_z / beta).sum(dim=-1)

    def _solve(self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None) -> ModuleParts:
        scaled, queries, keys, beta, raw, weights = self._coupled(fields, forbidden, bias)
        with torch.autocast(fields.device.type, enabled=False):
            if self.coupling_limit is None:
                strength = raw.exp()
                couplings = strength * weights
                pair = couplings + couplings.mT
            else:
                pair = weights + weights.mT
                largest = pair.sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True)
                largest = torch.where(largest > 0, largest, 1.0)
                strength = self.coupling_limit * raw.sigmoid() / (beta * largest)
                couplings, pair = strength * weights, strength * pair
            found, saddle = self.solver.solve(scaled, pair, beta)
            response = torch.zeros_like(fields)
            if self.response:
                order = self.solver.order
                correlation = _correlation(found.value, pair, beta, order, saddle, diagonal=False)
                if self.coupling_limit is not None:
                    # Of J and B in place of the weights and their sum: g drops out.
                    correlation = _limited_correlation(correlation, couplings, pair)
                # A strength that is too small for a number couples nothing, and divides nothing.
                divisor = strength.clamp_min(torch.finfo(strength.dtype).tiny)
                scores = response_attention(couplings, correlation=correlation, strength=divisor)
                along, back = _merged(scores @ keys), _merged(scores.mT @ queries)
                query, key = (x.to(along.dtype) for x in (self.query, self.key))
                scale = self.gamma * queries.shape[-1] ** 0.5
                response = scale * (along @ query.mT + back @ key.mT)
        known: Any = {"fields": scaled, "couplings": couplings, "pair": pair, "beta": beta}
        known |= {"found": found, "saddle": saddle, "response": response}
        return ModuleParts(solver=self.solver, **known)


@record
class DrivenParts:
    """How a driven module came to its output.

    `couplings` J (batch, heads, N, N). `entropy_production` (batch, heads): nats a step, per spin
    and component, if the state is stationary.
    """

    couplings: Tensor
    entropy_production: Tensor


class DrivenSpinModule(_CoupledHeads):
    """Driven vector spins with causal softmax couplings: a layer for sequences, out of equilibrium.

    Driven spins [bal2021transformers, footnote 10; poclopez2024dynamical]: J_ij = g softmax over
    the past j < i of γ (H W_Q)_i·(H W_K)_j/√D, and zero else. Constant fields H drive the spins for
    `steps` K parallel steps from free spins, in a `theory` of `large_d.driven_step`: "naive",
    "second order" with the lengthening of the fields by fluctuations, or "large D", exact for
    D → ∞ and of cost N³ a step. There is no free energy, hence no response: the output is ⟨σ(K)⟩.
    Since J is strictly triangular, the state is stationary, exactly, after N − 1 steps from free
    spins and N from any start. What K steps leave out are paths of more than K couplings.

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
        self._causal = not symmetric

    def _answer(
        self, fields: Tensor, forbidden: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Callable[[], DrivenParts]]:
        sites = fields.shape[-2]
        later = torch.ones(sites, sites, dtype=torch.bool, device=fields.device).triu()
        forbidden = later if forbidden is None else forbidden | later
        scaled, _, _, beta, log_strength, weights = self._coupled(fields, forbidden, bias)
        couplings = log_strength.exp() * weights
        if self.symmetric:
            couplings = 0.5 * (couplings + couplings.mT)
        mean = free_spins(scaled, beta)
        covariance = torch.diag_embed(1 - mean.square().sum(dim=-1))
        given: Any = {"couplings": couplings, "fields": scaled, "beta": beta}
        for _ in range(self.steps):
            mean, covariance, delayed = driven_step(mean, covariance, **given, theory=self.theory)

        def parts() -> DrivenParts:
            rate = entropy_rate(delayed, couplings=couplings, beta=beta) / sites
            return DrivenParts(couplings=couplings, entropy_production=rate)

        return _merged(mean) * scaled.shape[-1] ** 0.5, parts
