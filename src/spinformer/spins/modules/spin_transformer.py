"""A collective of vector spins as a neural-network module: fields in, magnetisations out.

[bal2021transformers, Secs. 7 and 8], fields in and magnetisations out in the sigma convention of
`vectors.units`. Every head is a system of N spins σ_i in R^D, ‖σ_i‖² = D = dim/heads, in the
field of its channels, with couplings that depend on the whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ H_i·σ_i,

and the output is the magnetisation −dF/dH = ⟨σ⟩ + response of all heads, F the free energy of
`vectors.tap` (large D, first or second order). ⟨σ⟩ is iterated to the fixed point, where the output
is exactly −dF/dH, or for K steps. The response is the closed form of `couplings`, summed over
heads, so no second derivative is needed to train. The module maps (batch, N, dim) to the same shape
and can be stacked.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real, check_tensor
from spinformer.core.records import record
from spinformer.spins.modules.fused import covariance_attention, scaled_attention
from spinformer.spins.vectors.fixed_point import (
    FixedPoint,
    fixed_point_of_pairs,
    reached_by_iteration,
)
from spinformer.spins.vectors.tap import langevin_gain, local_field, log_partition, onsager_gain


@record
class ModuleParts:
    """What the magnetisation is made of; (batch, N, dim), in units of the output.

    `residual` + `mixing` + `onsager` = ⟨σ⟩ (the last step, or the fixed point), and with
    `response` the magnetisation. `gain` (batch, heads, N) is the normalisation: the factor
    between the local field and ⟨σ_i⟩/√D. `couplings` J and `correlation` C are
    (batch, heads, N, N). `fixed_point` holds ⟨u⟩ (batch, heads, N, D) and, as (batch, heads), how
    far it is from solving the mean-field equations: K steps are converged where the residual
    there is within the tolerance, else their status is STEP_LIMIT.
    """

    residual: Tensor
    mixing: Tensor
    onsager: Tensor
    response: Tensor
    gain: Tensor
    couplings: Tensor
    correlation: Tensor
    fixed_point: FixedPoint

    @property
    def magnetization(self) -> Tensor:
        """The sum of the four parts."""
        return self.residual + self.mixing + self.onsager + self.response

    @property
    def converged(self) -> Tensor:
        """(batch, heads) booleans: whether ⟨u⟩ solves the mean-field equations."""
        converged: Tensor = self.fixed_point.converged
        return converged


class SpinTransformerModule(nn.Module):
    """Vector spins with softmax couplings, in the place of a transformer layer.

    `dim` channels are shared out to `heads` systems of dimension D = dim/heads. `steps` K ≥ 1
    iterations of the mean-field equations from the free spins (K = 1: one attention step), or
    None for their fixed point, differentiated implicitly. `order` 1 is naive mean field, 2 adds
    the Onsager term. `beta` and `strength` (g) start every head and are learned through their
    logarithm, `gamma` multiplies the paper's 1/√D in the scores. `mask_diagonal`: no coupling
    of a spin with itself. `response`: add the second term of Eq. (sigmaweird). `normalize`: scale
    each input token to norm √dim before it acts as a field. `channel_maps`: learned linear maps
    in front of the fields and behind the magnetisations, started at the identity.

    Parameters: `query`, `key` (dim, dim), `log_beta`, `log_strength` (heads,), with
    `channel_maps` also `map_in`, `map_out`. `last_converged` tells after a forward pass whether
    every system reached `tolerance`; None where K steps were taken and nobody asked for the parts,
    since finding out costs a step.

    >>> module = SpinTransformerModule(8, heads=2)
    >>> module(torch.ones(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        steps: int | None = 1,
        order: int = 2,
        beta: float = 1.0,
        strength: float = 0.5,
        gamma: float = 1.0,
        mask_diagonal: bool = True,
        response: bool = True,
        normalize: bool = True,
        channel_maps: bool = False,
        damping: float = 1.0,
        tolerance: float | None = None,
        max_steps: int = 300,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, got {dtype}")
        self.dim = check_integer("dim", dim, low=1)
        self.heads = check_integer("heads", heads, low=1, high=dim)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads = {heads}, got {dim}")
        self.steps = steps if steps is None else check_integer("steps", steps, low=1)
        self.order = check_choice("order", order, (1, 2))
        beta = check_real("beta", beta, low=0.0, open_low=True)
        strength = check_real("strength", strength, low=0.0, open_low=True)
        self.gamma = check_real("gamma", gamma, low=0.0)
        self.mask_diagonal = check_flag("mask_diagonal", mask_diagonal)
        self.response = check_flag("response", response)
        self.normalize = check_flag("normalize", normalize)
        self.damping = check_real("damping", damping, low=0.0, high=1.0, open_low=True)
        self.tolerance = None if tolerance is None else check_real("tolerance", tolerance, low=0.0)
        self.max_steps = check_integer("max_steps", max_steps, low=1)
        self.last_converged: bool | None = None
        maps = check_flag("channel_maps", channel_maps)
        self.query = nn.Parameter(torch.randn(dim, dim, dtype=dtype) / dim**0.5)
        self.key = nn.Parameter(torch.randn(dim, dim, dtype=dtype) / dim**0.5)
        self.log_beta = nn.Parameter(torch.full((heads,), math.log(beta), dtype=dtype))
        self.log_strength = nn.Parameter(torch.full((heads,), math.log(strength), dtype=dtype))
        self.map_in = nn.Parameter(torch.eye(dim, dtype=dtype)) if maps else None
        self.map_out = nn.Parameter(torch.eye(dim, dtype=dtype)) if maps else None

    def extra_repr(self) -> str:
        """The options that are not parameters, for `print`."""
        return (
            f"dim={self.dim}, heads={self.heads}, steps={self.steps}, order={self.order}, "
            f"gamma={self.gamma}, mask_diagonal={self.mask_diagonal}, response={self.response}"
        )

    def forward(
        self, inputs: Tensor, *, return_parts: bool = False
    ) -> Tensor | tuple[Tensor, ModuleParts]:
        """Magnetisations (batch, N, dim) for `inputs` (batch, N, dim); with `return_parts`, both.

        The parts are taken before `map_out`. ValueError for another shape, non-finite input, or
        a single token while the diagonal is masked.
        """
        return_parts = check_flag("return_parts", return_parts)
        self._check("inputs", inputs)
        fields = self.fields(inputs)
        scaled = self._split(fields) / (self.dim // self.heads) ** 0.5
        beta, strength = self._scales()
        queries, keys = self._split(fields @ self.query), self._split(fields @ self.key)
        couplings, pair = self._couplings(queries, keys, strength)
        mean, origin, reached = self._solve(scaled, pair, beta)
        root = (self.dim // self.heads) ** 0.5
        spins = self._merge(mean) * root
        answer = spins
        response = torch.zeros_like(spins)
        if self.response:
            response = self._response(queries, keys, couplings, strength, mean, pair, beta)
            answer = spins + response
        out = answer if self.map_out is None else answer @ self.map_out
        self.last_converged = None if reached is None else bool(reached.converged.all())
        if not return_parts:
            return out
        if reached is None:
            reached = reached_by_iteration(
                mean,
                pair=pair,
                fields=scaled,
                beta=beta,
                order=self.order,
                tolerance=self.tolerance,
                steps=self.steps or 0,
            )
            self.last_converged = bool(reached.converged.all())
        theta = local_field(origin, fields=scaled, pair=pair, beta=beta, order=self.order)
        gain = langevin_gain(theta, beta=beta)
        onsager = torch.zeros_like(spins)
        if self.order == 2:
            onsager = (
                self._merge(-gain * onsager_gain(origin, pair=pair, beta=beta) * origin) * root
            )
        parts = ModuleParts(
            residual=self._merge(gain * scaled) * root,
            mixing=self._merge(gain * (pair @ origin)) * root,
            onsager=onsager,
            response=response,
            gain=gain.squeeze(-1),
            couplings=couplings,
            correlation=self._correlation(mean, pair, beta),
            fixed_point=reached,
        )
        return out, parts

    def fields(self, inputs: Tensor) -> Tensor:
        """The external fields H (batch, N, dim) that `inputs` impose: mapped, then normalised."""
        if self.map_in is not None:
            inputs = inputs @ self.map_in
        if not self.normalize:
            return inputs
        size = inputs.square().mean(dim=-1, keepdim=True)
        if not bool(torch.isfinite(size.detach()).all()):
            raise ValueError(
                "inputs must have finite squares, got entries up to "
                f"{float(inputs.detach().abs().max()):.3g}"
            )
        return inputs * (size + torch.finfo(inputs.dtype).eps).rsqrt()

    def free_energy(self, fields: Tensor) -> Tensor:
        """F(H) of all heads, (batch,), at the magnetisations the module computes for `fields`.

        At the fixed point −dF/dH is the module's output for these fields (before `map_out`).
        """
        self._check("fields", fields)
        beta, strength = self._scales()
        size = self.dim // self.heads
        scaled = self._split(fields) / size**0.5
        queries, keys = self._split(fields @ self.query), self._split(fields @ self.key)
        couplings, pair = self._couplings(queries, keys, strength)
        mean = self._solve(scaled, pair, beta)[0]
        log_z = log_partition(mean, couplings=couplings, fields=scaled, beta=beta, order=self.order)
        return -size * (log_z / beta[:, 0, 0]).sum(dim=-1)

    def _check(self, name: str, tokens: Tensor) -> None:
        check_tensor(name, tokens, shape=(None, None, self.dim), like=("query", self.query))
        least = 2 if self.mask_diagonal else 1
        if tokens.shape[1] < least:
            masked = " if mask_diagonal" if self.mask_diagonal else ""
            raise ValueError(
                f"{name} must hold at least {least} token(s){masked}, got {tokens.shape[1]}"
            )

    def _scales(self) -> tuple[Tensor, Tensor]:
        return self.log_beta.exp()[:, None, None], self.log_strength.exp()[:, None, None]

    def _split(self, channels: Tensor) -> Tensor:
        batch, sites, dim = channels.shape
        return channels.reshape(batch, sites, self.heads, dim // self.heads).transpose(1, 2)

    def _merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def _couplings(self, queries: Tensor, keys: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        scaled = queries * (self.gamma / queries.shape[-1] ** 0.5)
        if not self.normalize:
            # Fields of any size come in here: an upper bound of the scores must not overflow.
            largest = scaled.detach().norm(dim=-1).max() * keys.detach().norm(dim=-1).max()
            if not bool(torch.isfinite(largest)):
                raise ValueError("inputs must give finite scores, these overflow: use normalize")
        return scaled_attention(
            scaled, keys=keys, strength=strength, mask_diagonal=self.mask_diagonal
        )

    def _solve(
        self,
        scaled: Tensor,
        pair: Tensor,
        beta: Tensor,
    ) -> tuple[Tensor, Tensor, FixedPoint | None]:
        """⟨u⟩, the magnetisation its last step came from, and the solution if it was solved for."""
        if self.steps is None:
            solution = fixed_point_of_pairs(
                pair,
                fields=scaled,
                beta=beta,
                order=self.order,
                damping=self.damping,
                tolerance=self.tolerance,
                max_steps=self.max_steps,
                throw=False,
            )
            return solution.value, solution.value, solution
        mean = langevin_gain(scaled, beta=beta) * scaled
        for _ in range(self.steps):
            origin = mean
            theta = local_field(origin, fields=scaled, pair=pair, beta=beta, order=self.order)
            mean = langevin_gain(theta, beta=beta) * theta
        return mean, origin, None

    def _correlation(self, mean: Tensor, pair: Tensor, beta: Tensor) -> Tensor:
        """C = mmᵀ [+ β B (1−m_i²)(1−m_j²)] off the diagonal, 1 on it: what −∂F/∂J is."""
        correlation = mean @ mean.mT
        if self.order == 2:
            width = 1 - mean.square().sum(dim=-1, keepdim=True)
            correlation = correlation + pair * ((beta * width) @ width.mT)
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        return correlation + torch.diag_embed(1 - diagonal)

    def _response(
        self,
        queries: Tensor,
        keys: Tensor,
        couplings: Tensor,
        strength: Tensor,
        mean: Tensor,
        pair: Tensor,
        beta: Tensor,
    ) -> Tensor:
        second = self.order == 2
        along, back = covariance_attention(
            couplings,
            strength=strength,
            mean=mean,
            queries=queries,
            keys=keys,
            pair=pair if second else None,
            width=1 - mean.square().sum(dim=-1, keepdim=True) if second else None,
            beta=beta if second else None,
        )
        response = self._merge(along) @ self.query.mT + self._merge(back) @ self.key.mT
        return self.gamma * queries.shape[-1] ** 0.5 * response
