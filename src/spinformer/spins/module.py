"""Neural-network layer of vector spins in equilibrium: fields in, magnetizations out.

It is the layer of [bal2021transformers, Secs. 7 and 8]. Every head is a system of N spins σ_i
in R^D, ‖σ_i‖² = D = dim/heads, in the field of its channels, with couplings that depend on the
whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,

and the output is −dF/dH. With u = σ/√D and h = H/√D, the units of `large_d`,

    m_i = −(1/D) dF/dh_i = ⟨u_i⟩ + Σ_{m,n} C_mn ∂J_mn/∂h_i,    C_mn = ⟨u_m·u_n⟩,

which is Eq. (sigmaweird) divided by √D. The energy contains only B = J + Jᵀ without diagonal,
whereas the second term, the response of the couplings, takes J as it is. For softmax couplings this
response is itself attention, with weights G and Gᵀ and value maps A = W_Q W_Kᵀ:

    response = a (G h Aᵀ + Gᵀ h A),   G_mk = J_mk (C_mk − Σ_n J_mn C_mn / g),   a = γ√D.

F is the free energy of `large_d` at the saddle point, or that of its mean-field equations. These
have one, physical solution if β Σ_j |B_ij| < 1 for all spins; the saddle point always exists.

Training takes a backward pass by hand, in `fused`. What is here is the same in plain operations: it
gives the parts, and it serves second derivatives, transforms of `torch.func` and compilers.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.operators import is_forward_mode, is_traced
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.spins.fused import FusedSettings, solve_fused
from spinformer.spins.heads import CoupledHeads, HeadInputs, merge_heads, softmax_weights
from spinformer.spins.large_d import (
    field_source,
    inverse_logdet,
    langevin_response,
    log_partition,
    mean_field,
    saddle_log_partition,
)
from spinformer.spins.masks import PairMasks
from spinformer.spins.solvers import default_tolerance, fixed_point_of, saddle_of
from spinformer.spins.validity import Validity, measure_validity


class SaddleState(NamedTuple):
    """The saddle point of a batch of systems.

    Attributes
    ----------
    multipliers : Tensor, shape (..., N)
        Lagrange multipliers t*.
    inverse : Tensor, shape (..., N, N)
        Inverse V⁻¹ of V = diag(t*) − J.
    logdet : Tensor, shape (...)
        Logarithm ln det V.
    """

    multipliers: Tensor
    inverse: Tensor
    logdet: Tensor


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

    def solve(
        self, fields: Tensor, pair: Tensor, beta: Tensor
    ) -> tuple[Solution[Tensor], SaddleState | None]:
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
        saddle : SaddleState, or None
            The saddle point; None for the fixed point.
        """
        if self.steps is not None:
            square = pair.square() if self.order == 2 else None
            mean = langevin_response(fields, beta)
            for _ in range(self.steps):
                theta, gain = mean_field(mean, fields, pair, beta, square)
                mean = gain * theta
            return Solution(value=mean, residual=None, steps=self.steps, status=None), None
        tolerance = self.limit(fields)
        if self.kind == "fixed point":
            return fixed_point_of(pair, fields, beta, self.order, tolerance, self.max_steps), None
        batch = torch.broadcast_shapes(fields.shape[:-2], pair.shape[:-2], beta.shape[:-2])
        half = pair / 2
        source = field_source(fields)
        at = saddle_of(half, source, beta[..., 0, 0].expand(batch), tolerance, self.max_steps)
        inverse, logdet = inverse_logdet(torch.diag_embed(at.value) - half)
        mean = 0.5 * (inverse @ fields)
        return dataclasses.replace(at, value=mean), SaddleState(at.value, inverse, logdet)


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
    saddle : SaddleState, or None
        The saddle point; None for the fixed point.
    response : Tensor, shape (batch, N, dim)
        The second term of Eq. (sigmaweird), in units of the output; zeros without it.
    """

    solver: Solver
    fields: Tensor
    couplings: Tensor
    pair: Tensor
    beta: Tensor
    found: Solution[Tensor]
    saddle: SaddleState | None
    response: Tensor

    @property
    def spins(self) -> Tensor:
        """Mean spins ⟨σ⟩ of all heads, shape (batch, N, dim), without the response."""
        return merge_heads(self.found.value) * self.fields.shape[-1] ** 0.5

    @property
    def magnetization(self) -> Tensor:
        """Magnetizations −dF/dH, mean spins plus response, shape (batch, N, dim)."""
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
        return measure_validity(
            self.found.value,
            pair=self.pair,
            fields=self.fields,
            beta=self.beta,
            correlation=self.correlation,
            converged=self.solution.converged,
        )


def _correlation(
    mean: Tensor,
    pair: Tensor,
    beta: Tensor,
    order: int,
    saddle: SaddleState | None,
    *,
    diagonal: bool = True,
) -> Tensor:
    """m mᵀ + V⁻¹/(2β) at the saddle; else m mᵀ [+ β B∘(w wᵀ)], w = 1 − m², 1 on the diagonal."""
    correlation = mean @ mean.mT
    if saddle is not None:
        return correlation + saddle.inverse / (2 * beta)
    if order == 2:
        width = 1 - mean.square().sum(dim=-1, keepdim=True)
        correlation = correlation + pair * ((beta * width) @ width.mT)
    if not diagonal:
        return correlation
    eye = torch.eye(correlation.shape[-1], dtype=torch.bool, device=correlation.device)
    return correlation.masked_fill(eye, 1.0)


class _SolvedHeads(NamedTuple):
    """Couplings and spins of all heads, and the two averages of the response, Gk and Gᵀq."""

    couplings: Tensor
    pair: Tensor
    found: Solution[Tensor]
    saddle: SaddleState | None
    along: Tensor
    back: Tensor


class SpinTransformerModule(CoupledHeads):
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
        A `Solver`, or "saddle" (a solution always exists) or "fixed point" (slower, most so where
        couplings are strong, and a solution need not be found).
    beta : float, default 1.0
        Initial inverse temperature of every head, learned through its logarithm.
    coupling_strength : float, default 0.5
        Initial coupling strength g of every head, learned through its logarithm.
    gamma : float, default 1.0
        Factor of the scores, in addition to the 1/√D of the paper.
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
        coupling_strength: float = 0.5,
        gamma: float = 1.0,
        response: bool = True,
        normalize: bool = True,
        channel_maps: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        strength = check_real("coupling_strength", coupling_strength, low=0.0, open_low=True)
        super().__init__(
            dim,
            heads=heads,
            beta=beta,
            log_strength=math.log(strength),
            gamma=gamma,
            channel_maps=channel_maps,
            device=device,
            dtype=dtype,
        )
        if not isinstance(solver, str | Solver):
            raise TypeError(f"solver must be a word or a Solver, got {solver!r:.60}")
        self.solver = Solver(solver) if isinstance(solver, str) else solver
        self.response = check_flag("response", response)
        self.normalize = check_flag("normalize", normalize)
        self.warned = False

    def _answer(
        self, fields: Tensor, masks: PairMasks, return_parts: bool
    ) -> tuple[Tensor, Callable[[], ModuleParts]]:
        if return_parts or not self._is_fused(masks):
            parts = self._solve(fields, masks)
            self._warn_once(parts.found.status)
            return parts.magnetization, lambda: parts
        inputs = self._head_inputs(fields, masks)
        strength = self.log_strength.to(fields.dtype)[:, None, None].exp()
        with torch.autocast(fields.device.type, enabled=False):
            settings = FusedSettings(
                theory="saddle" if self.solver.kind == "saddle" else "mean field",
                scale=self.gamma / self._root,
                steps=self.solver.steps or 0,
                order=self.solver.order,
                response=self.response,
                tolerance=self.solver.limit(fields),
                max_steps=self.solver.max_steps,
                plain=self._plain_heads,
            )
            solved = solve_fused(inputs, strength, settings)
            output = merge_heads(solved.mean) * self._root
            if solved.along is not None and solved.back is not None:
                double = (2 * inputs.beta).flatten().repeat_interleave(self.dim // self.heads)
                output = output + self._response(solved.along, solved.back, divisor=double)
        self._warn_once(solved.status)
        return output, lambda: self._solve(fields, masks)

    def _is_fused(self, masks: PairMasks) -> bool:
        """Whether the backward pass by hand serves: eager, on a processor, with fixed masks."""
        if self.solver.kind == "fixed point" and self.solver.steps is None:
            return False
        learned = masks.bias is not None and masks.bias.requires_grad
        elsewhere = self.query.device.type != "cpu"
        return not (is_traced() or is_forward_mode() or learned or elsewhere)

    def _warn_once(self, status: Tensor | None) -> None:
        if is_traced() or self.warned or status is None:
            return
        lost = int((status != Status.CONVERGED).sum())
        if lost:
            self.warned = True
            warnings.warn(
                f"{lost} of {status.numel()} systems did not converge, solver "
                f"{self.solver.kind!r}: validity() of the parts says how far to trust them "
                "(this is said once)",
                RuntimeWarning,
                stacklevel=6,
            )

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
        tokens, masks = self._read(fields, None, None)
        parts = self._solve(tokens, masks)
        inner = parts.fields
        beta = parts.beta[..., 0, 0]
        if parts.saddle is None:
            log_z = log_partition(
                parts.found.value,
                couplings=parts.couplings,
                fields=inner,
                beta=beta,
                order=self.solver.order,
            )
        else:
            log_z = saddle_log_partition(*parts.saddle, field_source(inner), beta)
        return -inner.shape[-1] * (log_z / beta).sum(dim=-1)

    def _solve(self, fields: Tensor, masks: PairMasks) -> ModuleParts:
        """All parts of a pass, in plain operations."""
        inputs = self._head_inputs(fields, masks)
        with torch.autocast(fields.device.type, enabled=False):
            weights = softmax_weights(inputs, scale=self.gamma / self._root)
            heads = self._solve_heads(inputs, weights, self._strength(weights, inputs.beta))
            response = torch.zeros_like(fields)
            if self.response:
                response = self._response(heads.along, heads.back)
        return ModuleParts(
            solver=self.solver,
            fields=inputs.fields,
            couplings=heads.couplings,
            pair=heads.pair,
            beta=inputs.beta,
            found=heads.found,
            saddle=heads.saddle,
            response=response,
        )

    def _strength(self, weights: Tensor, beta: Tensor) -> Tensor:
        """The coupling strengths g, (heads, 1, 1) or (batch, heads, 1, 1)."""
        return self.log_strength.to(weights.dtype)[:, None, None].exp()

    def _correlation_with_couplings(
        self, correlation: Tensor, couplings: Tensor, pair: Tensor
    ) -> Tensor:
        """What multiplies ∂J in the response: C, as long as g depends on no field."""
        return correlation

    def _solve_heads(self, inputs: HeadInputs, weights: Tensor, strength: Tensor) -> _SolvedHeads:
        couplings = strength * weights
        pair = couplings + couplings.mT
        found, saddle = self.solver.solve(inputs.fields, pair, inputs.beta)
        along = inputs.fields
        back = inputs.fields
        if self.response:
            correlation = self._correlation_with_couplings(
                _correlation(
                    found.value, pair, inputs.beta, self.solver.order, saddle, diagonal=False
                ),
                couplings,
                pair,
            )
            # A strength that is too small for a number couples nothing, and divides nothing.
            divisor = strength.clamp_min(torch.finfo(strength.dtype).tiny)
            attention = response_attention(
                couplings, correlation=correlation, coupling_strength=divisor
            )
            along = attention @ inputs.keys
            back = attention.mT @ inputs.queries
        return _SolvedHeads(couplings, pair, found, saddle, along, back)

    def _plain_heads(self, inputs: HeadInputs, strength: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `solve_fused` computes, in plain operations: for second derivatives."""
        weights = softmax_weights(inputs, scale=self.gamma / self._root)
        heads = self._solve_heads(inputs, weights, strength)
        return heads.found.value, heads.along, heads.back

    def _response(self, along: Tensor, back: Tensor, divisor: Tensor | float = 1.0) -> Tensor:
        """a (G h Aᵀ + Gᵀ h A) in units of the output, (batch, N, dim).

        `divisor` (dim,) divides the averages, whose factors are cheaper at the weights.
        """
        factor = self.gamma * self._root / divisor
        query = self.query.to(along.dtype) * factor
        key = self.key.to(along.dtype) * factor
        return merge_heads(along) @ query.mT + merge_heads(back) @ key.mT
