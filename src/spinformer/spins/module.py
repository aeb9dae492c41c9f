"""Neural-network layers of vector spins: fields in, magnetizations out.

They are the layers of [bal2021transformers, Secs. 7 and 8]. Every head is a system of N spins σ_i
in R^D, ‖σ_i‖² = D = dim/heads, in the field of its channels, with couplings that depend on the
whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,

and the output is −dF/dH. With u = σ/√D and h = H/√D, the units of `large_d`,

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,    C_mn = ⟨u_m·u_n⟩,

which is Eq. (sigmaweird) divided by √D. The energy contains only B = J + Jᵀ without diagonal,
whereas the second term, the response of the couplings, takes J as it is. For softmax couplings this
response is itself attention, with weights G and Gᵀ and value maps A = W_Q W_Kᵀ:

    response = a (G h Aᵀ + Gᵀ h A),   G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g),   a = γ√D.

F is the free energy of `large_d` at the saddle point, or that of its mean-field equations.

The mean-field equations have one, physical solution if `β Σ_j |B_ij| ≤ κ < 1` for all spins. Then
β‖B‖ ≤ κ and the naive equations contract; `|C_ij| ≤ 1` to second order, since
m_i·m_j + κ(1−m_i²)(1−m_j²) ≤ ab + κ(1−ab)² ≤ 1 with `ab = |m_i||m_j|`; and the covariance
W(W⁻¹ + βB)W, W = diag(1−m²), is positive definite. Rows of softmax couplings sum to g, but columns
sum to anything up to g N. `coupling_limit` keeps to the bound by g(H) = κ s/(β n(H)) with a learned
s in (0, 1) and n the largest row sum of S + Sᵀ, J = g S. The saddle point needs no such bound.
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
    inverse_logdet,
    langevin_response,
    log_partition,
    mean_field,
    saddle_log_partition,
)
from spinformer.spins.solvers import (
    default_tolerance,
    fixed_point_of,
    saddle_of,
    solve_saddle_point,
)

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


def response_attention(
    couplings: Tensor, *, correlation: Tensor, coupling_strength: Any = 1.0
) -> Tensor:
    r"""Compute the attention weights G of the response of softmax couplings to the fields.

    G is the derivative of Σ J_mn C_mn by the score (m, k), and its rows sum to zero. Arguments are
    not checked.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Couplings J = g softmax, rows summing to g.
    correlation : Tensor, shape (..., N, N)
        Correlations C_mn = ⟨u_m·u_n⟩.
    coupling_strength : float or Tensor, default 1.0
        Coupling strength g > 0; a tensor broadcasts against the couplings.

    Returns
    -------
    Tensor, shape (..., N, N)
        The weights G.

    Notes
    -----
    The weights are

    .. math::

        G_{mk} = J_{mk} \Big(C_{mk} - \frac{1}{g} \sum_n J_{mn} C_{mn}\Big).

    Examples
    --------
    >>> half = torch.full((2, 2), 0.5)
    >>> response_attention(half, correlation=torch.eye(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    weighted = couplings * correlation
    return weighted - couplings * (weighted.sum(dim=-1, keepdim=True) / coupling_strength)


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
    """Choice of the equations of a spin module and of how they are solved.

    Parameters
    ----------
    kind : {"saddle", "fixed point"}, default "fixed point"
        The saddle point of the large-D free energy, which always exists and is unique, or the fixed
        point of the mean-field equations, accurate for weak couplings.
    steps : int, optional
        Number K ≥ 1 of plain iterations from the free spins, after which the fixed-point iteration
        is truncated; None iterates to convergence.
    order : {1, 2}, default 2
        Order of the mean-field equations: 1 is naive, 2 adds the Onsager term.
    tolerance : float, optional
        Largest residual, as in `solvers.solve_fixed_point`; None depends on the precision.
    max_steps : int, default 300
        Largest number of iterations.

    Raises
    ------
    ValueError
        If an argument is not one of its choices, or `steps` is given for the saddle point.

    Examples
    --------
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
        """Choose the tolerance, by default that of the precision of a tensor.

        Parameters
        ----------
        like : Tensor
            A tensor in single or double precision.

        Returns
        -------
        float
            The tolerance on the residual.
        """
        return default_tolerance(like) if self.tolerance is None else self.tolerance

    def solve(self, fields: Tensor, pair: Tensor, beta: Tensor) -> tuple[Solution[Tensor], _Saddle]:
        """Solve the spins of all heads in given fields, without checking arguments.

        Parameters
        ----------
        fields : Tensor, shape (batch, heads, N, D)
            External fields h = H/√D.
        pair : Tensor, shape (batch, heads, N, N)
            Pair couplings B = J + Jᵀ with zero diagonal.
        beta : Tensor, shape (heads, 1, 1)
            Inverse temperatures β.

        Returns
        -------
        found : Solution of Tensor
            Magnetizations ⟨u⟩ (batch, heads, N, D); residual and status are None after K steps.
        saddle : tuple of Tensor, or None
            The multipliers t*, V⁻¹ and ln det V at the saddle point; None for the fixed point.
        """
        if self.steps is not None:
            square = pair.square() if self.order == 2 else None
            mean = langevin_response(fields, beta)
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
    """Diagnostics of a forward pass: how accurate ⟨σ⟩ is, for each system (batch, heads).

    Values are NaN where the numbers overflowed.

    Attributes
    ----------
    converged : Tensor of bool, shape (batch, heads)
        Whether the equations were solved.
    distance : Tensor, shape (batch, heads)
        Relative distance ‖⟨σ⟩ − saddle‖/‖saddle‖ from the saddle point at the same couplings, which
        is solved again in double precision.
    correction : Tensor, shape (batch, heads)
        The next order in 1/D of the ⟨σ⟩ of the saddle point, relative to it; infinite for D = 1.
    largest : Tensor, shape (batch, heads)
        The largest absolute correlation C_ij of different spins, which cannot exceed one in a
        system of spins.
    lowest : Tensor, shape (batch, heads)
        The smallest eigenvalue of the covariance C − m mᵀ, which cannot be negative in a system of
        spins.
    """

    converged: Tensor
    distance: Tensor
    correction: Tensor
    largest: Tensor
    lowest: Tensor

    @property
    def physical(self) -> Tensor:
        """Whether spins of length one can have these correlations, shape (batch, heads).

        The largest correlation must not exceed one and the covariance must not have a negative
        eigenvalue, within single precision.
        """
        return (self.largest <= 1 + _ROUNDING) & (self.lowest >= -_ROUNDING)

    @property
    def expected_error(self) -> Tensor:
        """Expected relative error ‖⟨σ⟩ − exact‖/‖exact‖ at these couplings, shape (batch, heads).

        It is the sum of the distance from the saddle point and of its correction.
        """
        return self.distance + self.correction

    def trusted(self, tolerance: float = 0.2) -> Tensor:
        """Decide which systems are converged, physical, and accurate enough.

        Parameters
        ----------
        tolerance : float, default 0.2
            Largest expected relative error of ⟨σ⟩.

        Returns
        -------
        Tensor of bool, shape (batch, heads)
            True where all three conditions hold.
        """
        return self.converged & self.physical & (self.expected_error <= tolerance)


@record
class ModuleParts:
    """Intermediate results of a spin module: fields, couplings, solution and response.

    Attributes
    ----------
    solver : Solver
        The solver of the module.
    fields : Tensor, shape (batch, heads, N, D)
        External fields h = H/√D.
    couplings : Tensor, shape (batch, heads, N, N)
        Softmax couplings J.
    pair : Tensor, shape (batch, heads, N, N)
        Pair couplings B = J + Jᵀ without diagonal.
    beta : Tensor, shape (heads, 1, 1)
        Inverse temperatures β.
    found : Solution of Tensor
        Magnetizations ⟨u⟩ (batch, heads, N, D) as the solver returned them.
    saddle : tuple of Tensor, or None
        The multipliers t*, V⁻¹ and ln det V at the saddle point; None for the fixed point.
    response : Tensor, shape (batch, N, dim)
        The second term of Eq. (sigmaweird), in units of the output; zeros without it.
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
        """Mean spins ⟨σ⟩ of all heads, shape (batch, N, dim), without the response."""
        return _merged(self.found.value) * self.fields.shape[-1] ** 0.5

    @property
    def magnetization(self) -> Tensor:
        """Magnetizations −dF/dH, shape (batch, N, dim): mean spins plus response."""
        return self.spins + self.response

    @property
    def correlation(self) -> Tensor:
        """Correlations C, shape (batch, heads, N, N).

        They are −(1/D) ∂F/∂J of the free energy F of the solver.
        """
        return _correlation(self.found.value, self.pair, self.beta, self.solver.order, self.saddle)

    @property
    def solution(self) -> Solution[Tensor]:
        """Solution ⟨u⟩ of the spins with its residual and status, shape (batch, heads, N, D).

        The residual (batch, heads) is that of the mean-field equations, or max abs(C_ii − 1) at the
        saddle point. After K steps it is measured by one more step, and the status is CONVERGED
        where the residual is within the tolerance and STEP_LIMIT elsewhere.
        """
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
        """Measure how accurate the magnetizations of this forward pass are.

        No graph is recorded. The cost is about twenty factorisations per system.

        Returns
        -------
        Validity
            One value of each diagnostic per system.
        """
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
        solved = solve_saddle_point(pair / 2, fields=fields, **options)
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
        """Redraw W_Q and W_K, and return all other parameters to their initial values."""
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
        """The module itself, which `nn.TransformerEncoder` asks for the order of the axes."""
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
        """Compute the magnetizations of all heads for a batch of token sequences.

        Input that is not finite, or that overflows, gives NaN.

        Parameters
        ----------
        src : Tensor, shape (batch, N, dim) or (N, dim)
            Tokens, in the dtype of the parameters.
        src_mask : Tensor, shape (N, N) or (batch·heads, N, N), optional
            Attention mask. A boolean mask is True where J_ij is forbidden; a floating-point mask is
            added to the scores, and minus infinity forbids. In equilibrium a pair is free only
            where both directions are.
        src_key_padding_mask : Tensor, shape (batch, N), optional
            True, or minus infinity and else 0, at padded tokens. They are no spins, and their
            output is zero.
        is_causal : bool, default False
            Whether tokens must not depend on later ones; only a `DrivenSpinModule` without
            `symmetric` can be causal.
        return_parts : bool, default False
            Whether to return the intermediate results, too.

        Returns
        -------
        output : Tensor, shape of `src`
            The magnetizations.
        parts : ModuleParts or DrivenParts
            Intermediate results, taken before `map_out` and always with a batch axis; only with
            `return_parts`.

        Raises
        ------
        TypeError
            If `src` has another dtype than the parameters.
        ValueError
            If a shape does not fit, a mask holds NaN or plus infinity, or `is_causal` is True where
            spins depend on later ones.
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
        """Compute the external fields H that tokens impose: mapped by `map_in`, then normalized.

        Tokens whose squares overflow become NaN, because they would look like free spins otherwise.

        Parameters
        ----------
        inputs : Tensor, shape (batch, N, dim)
            Tokens.

        Returns
        -------
        Tensor, shape (batch, N, dim)
            Fields H, in at least single precision.
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
    r"""A transformer layer of vector spins in equilibrium, with softmax couplings.

    The `dim` channels are split into `heads` systems of spins of dimension D = dim/heads. Solved at
    the saddle point or at a fixed point, the output is exactly −dF/dH of the free energy F of the
    module, and it is differentiated implicitly, to any order; after K steps it is not exactly a
    gradient.

    The module is called as `torch.nn.TransformerEncoderLayer` with `batch_first` is, alone or in
    `nn.TransformerEncoder(module, 2, enable_nested_tensor=False)`, whose layers start as copies:
    `reset_parameters` draws one anew. Its trainable parameters are `query` and `key` (dim, dim),
    `log_beta` and `log_strength` (heads,), and with `channel_maps` also `map_in` and `map_out`.
    Half precision and autocast solve in single precision.

    Parameters
    ----------
    dim : int
        Number of channels, a multiple of `heads`.
    heads : int
        Number of heads, each one a system of spins.
    solver : Solver or str, default "saddle"
        A `Solver`, or "saddle" (a solution always exists) or "fixed point" (about as fast for tens
        of tokens and faster for hundreds, but a solution need not be found).
    beta : float, default 1.0
        Initial inverse temperature of every head, learned through its logarithm.
    coupling_strength : float, optional
        Initial coupling strength g of every head, learned through its logarithm; None is 0.5.
    gamma : float, default 1.0
        Factor of the scores, in addition to the 1/√D of the paper.
    coupling_limit : float, optional
        Upper bound κ of β max_i Σ_j B_ij. With it `log_strength` holds the logit of the fraction of
        the bound that g reaches, and `coupling_strength` must be None.
    response : bool, default True
        Whether to add the response of the couplings, the second term of Eq. (sigmaweird).
    normalize : bool, default True
        Whether to scale each input token to the norm √dim before it acts as a field.
    channel_maps : bool, default False
        Whether to learn linear maps in front of the fields and behind the magnetizations, which
        start at the identity.
    device : device, optional
        Device of the parameters.
    dtype : dtype, optional
        Floating-point type of the parameters.

    Raises
    ------
    TypeError
        If `dtype` is not a floating-point type or `solver` is neither a word nor a `Solver`.
    ValueError
        If `dim` is not a multiple of `heads`, or another argument is out of its range.

    Warns
    -----
    RuntimeWarning
        Once, if a system did not converge. There is no warning with `warned = True`, nor under
        `torch.vmap`, `torch.compile` and `torch.export`. The `validity()` of the parts measures how
        accurate a pass is.

    Notes
    -----
    With couplings that depend on the fields, the output is

    .. math::

        m_i = -\frac{\mathrm{d}F}{\mathrm{d}H_i} = \langle \sigma_i \rangle
            + \sum_{m,n} \langle \sigma_m \cdot \sigma_n \rangle
            \frac{\partial J_{mn}}{\partial H_i},
        \qquad J = g \operatorname{softmax}
            \Big(\frac{\gamma}{\sqrt{D}} (H W_Q)(H W_K)^\top\Big).

    References
    ----------
    [bal2021transformers, Eq. (sigmaweird)]

    Examples
    --------
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
        coupling_strength: float | None = None,
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
            if coupling_strength is not None:
                raise ValueError("coupling_strength must be None where coupling_limit is given")
        given = 0.5 if coupling_strength is None else coupling_strength
        g = check_real("coupling_strength", given, low=0.0, open_low=True)
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
        """Compute the free energy F(H) of all heads.

        It is evaluated at the magnetizations that the module computes for these fields. At a
        solution −dF/dH is the output of the module (before `map_out`).

        Parameters
        ----------
        fields : Tensor, shape (batch, N, dim)
            External fields H.

        Returns
        -------
        Tensor, shape (batch,)
            Free energy, summed over the heads.
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
                scores = response_attention(
                    couplings, correlation=correlation, coupling_strength=divisor
                )
                along, back = _merged(scores @ keys), _merged(scores.mT @ queries)
                query, key = (x.to(along.dtype) for x in (self.query, self.key))
                scale = self.gamma * queries.shape[-1] ** 0.5
                response = scale * (along @ query.mT + back @ key.mT)
        known: Any = {"fields": scaled, "couplings": couplings, "pair": pair, "beta": beta}
        known |= {"found": found, "saddle": saddle, "response": response}
        return ModuleParts(solver=self.solver, **known)


@record
class DrivenParts:
    """Intermediate results of a driven spin module.

    Attributes
    ----------
    couplings : Tensor, shape (batch, heads, N, N)
        Softmax couplings J.
    entropy_production : Tensor, shape (batch, heads)
        Entropy production in nats per step, spin and component, provided that the state is
        stationary.
    """

    couplings: Tensor
    entropy_production: Tensor


class DrivenSpinModule(_CoupledHeads):
    r"""A causal layer for sequences, made of driven vector spins out of equilibrium.

    Softmax couplings J_ij = g softmax reach over the past j < i only. Constant fields H drive the
    spins for K parallel steps from free spins, and the output is their mean ⟨σ(K)⟩. There is no
    free energy, hence no response term. Since J is strictly triangular, the state is stationary,
    exactly, after N − 1 steps from free spins and after N steps from any start; K steps leave out
    paths of more than K couplings.

    Parameters
    ----------
    dim : int
        Number of channels, a multiple of `heads`.
    heads : int
        Number of heads, each one a system of spins.
    steps : int, default 2
        Number K of parallel updates.
    theory : {"naive", "second order", "large D"}, default "second order"
        Mean-field theory of `large_d.driven_step`: "second order" corrects for the fluctuations of
        the fields, and "large D" is exact for D → ∞ and costs N³ per step.
    beta : float, default 1.0
        Initial inverse temperature of every head, learned through its logarithm.
    coupling_strength : float, default 0.5
        Initial coupling strength g of every head, learned through its logarithm.
    gamma : float, default 1.0
        Factor of the scores, in addition to the 1/√D of the paper.
    symmetric : bool, default False
        Whether to use (J + Jᵀ)/2, the part of J that an energy would contain; then the module is
        not causal, whatever the mask.
    channel_maps : bool, default False
        Whether to learn linear maps in front of the fields and behind the magnetizations, which
        start at the identity.
    device : device, optional
        Device of the parameters.
    dtype : dtype, optional
        Floating-point type of the parameters.

    Raises
    ------
    TypeError
        If `dtype` is not a floating-point type.
    ValueError
        If `dim` is not a multiple of `heads`, or another argument is out of its range.

    Notes
    -----
    The couplings are

    .. math::

        J_{ij} = g \operatorname{softmax}_{j<i}
            \Big(\frac{\gamma}{\sqrt{D}} (H W_Q)_i \cdot (H W_K)_j\Big),
        \qquad J_{ij} = 0 \text{ for } j \ge i.

    References
    ----------
    [bal2021transformers, footnote 10]

    [poclopez2024dynamical]

    Examples
    --------
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
        coupling_strength: float = 0.5,
        gamma: float = 1.0,
        symmetric: bool = False,
        channel_maps: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        g = check_real("coupling_strength", coupling_strength, low=0.0, open_low=True)
        start = math.log(g)
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
        mean = langevin_response(scaled, beta)
        covariance = torch.diag_embed(1 - mean.square().sum(dim=-1))
        given: Any = {"couplings": couplings, "fields": scaled, "beta": beta}
        for _ in range(self.steps):
            mean, covariance, delayed = driven_step(mean, covariance, **given, theory=self.theory)

        def parts() -> DrivenParts:
            rate = entropy_rate(delayed, couplings=couplings, beta=beta) / sites
            return DrivenParts(couplings=couplings, entropy_production=rate)

        return _merged(mean) * scaled.shape[-1] ** 0.5, parts
