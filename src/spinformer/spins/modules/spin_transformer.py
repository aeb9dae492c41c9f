"""A collective of vector spins as a neural-network module: fields in, magnetisations out.

[bal2021transformers, Secs. 7 and 8], fields in and magnetisations out in the sigma convention of
`vectors.units`. Every head is a system of N spins σ_i in R^D, ‖σ_i‖² = D = dim/heads, in the
field of its channels, with couplings that depend on the whole input H,

    J = g softmax(γ (H W_Q)(H W_K)ᵀ/√D),    E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i,

and the output is the magnetisation −dF/dH = ⟨σ⟩ + response of all heads: F is the free energy of
`vectors.large_d`, to leading order in 1/D, or that of `vectors.tap`, to first or second order in
the couplings. Solved at the saddle, or at the fixed point, the output is exactly −dF/dH of its F;
after K steps it is not. The response is the closed form of `couplings`, summed over heads, so no
second derivative is needed to train. Tokens are a set, and a system in equilibrium is not causal.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.operators import is_traced
from spinformer.spins.modules.fused import (
    covariance_attention,
    response_weights,
    scaled_attention,
)
from spinformer.spins.modules.heads import (
    SOLVERS,
    Scheme,
    SolvedHeads,
    correlation_of,
    log_partition_of,
    solve_heads,
)
from spinformer.spins.modules.masks import Masks, read_masks
from spinformer.spins.modules.parts import (
    ModuleParts,
    Systems,
    detached,
    merge,
    parts_of,
    split,
)
from spinformer.spins.modules.stability import largest_row_sum, limited_correlation
from spinformer.spins.modules.validity import Validity
from spinformer.spins.modules.weights import CoupledHeads


class SpinTransformerModule(CoupledHeads):
    """Vector spins with softmax couplings, in the place of a transformer layer.

    `dim` channels are shared out to `heads` systems of dimension D = dim/heads. `solver`: "saddle",
    the saddle point of the large-D free energy, which always exists and is unique; "fixed point",
    that of the mean-field equations, cheaper, right for weak couplings. Both are differentiated
    implicitly, any number of times. `steps` K ≥ 1 cuts the second short after K plain iterations
    from the free spins (K = 1: one attention step). `order` of the mean-field equations: 1 is
    naive, 2 adds the Onsager term.

    `beta` and `strength` (g) start every head and are learned through their logarithm, `gamma`
    multiplies the paper's 1/√D in the scores. `coupling_limit` κ replaces g by the
    parametrisation of `stability`, which keeps β max_i Σ_j B_ij below κ; `log_strength` then holds
    the logit of g's share of its bound. `mask_diagonal`: no coupling of a spin with itself.
    `response`: add the second term of Eq. (sigmaweird). `normalize`: scale each input token to norm
    √dim before it acts as a field. `channel_maps`: learned linear maps in front of the fields and
    behind the magnetisations, started at the identity.

    Parameters: `query`, `key` (dim, dim), `log_beta`, `log_strength` (heads,), with
    `channel_maps` also `map_in`, `map_out`. After a forward pass `validity()` measures how far it
    can be trusted. Half precision and autocast solve in single precision. Under `torch.vmap`,
    `torch.compile` and `torch.export` a pass leaves no record for `validity()`.

    >>> module = SpinTransformerModule(8, heads=2, solver="saddle")
    >>> module(torch.ones(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    >>> bool(module.validity().converged.all())
    True
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        solver: str = "fixed point",
        steps: int | None = None,
        order: int = 2,
        beta: float = 1.0,
        strength: float | None = None,
        gamma: float = 1.0,
        coupling_limit: float | None = None,
        mask_diagonal: bool = True,
        response: bool = True,
        normalize: bool = True,
        channel_maps: bool = False,
        damping: float = 1.0,
        tolerance: float | None = None,
        max_steps: int = 300,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        limit = coupling_limit
        if limit is not None:
            limit = check_real("coupling_limit", limit, low=0.0, open_low=True)
            if strength is not None:
                raise ValueError("strength must be None where coupling_limit is given")
        strength = 0.5 if strength is None else strength
        strength = check_real("strength", strength, low=0.0, open_low=True)
        super().__init__(
            dim,
            heads=heads,
            beta=beta,
            log_strength=0.0 if limit is not None else math.log(strength),
            gamma=gamma,
            normalize=normalize,
            channel_maps=channel_maps,
            device=device,
            dtype=dtype,
        )
        self.coupling_limit = limit
        self.solver = check_choice("solver", solver, SOLVERS)
        self.steps = steps if steps is None else check_integer("steps", steps, low=1)
        if solver == "saddle" and steps is not None:
            raise ValueError('steps must be None for the solver "saddle", which has no K steps')
        self.order = check_choice("order", order, (1, 2))
        self.mask_diagonal = check_flag("mask_diagonal", mask_diagonal)
        self.response = check_flag("response", response)
        self.damping = check_real("damping", damping, low=0.0, high=1.0, open_low=True)
        self.tolerance = None if tolerance is None else check_real("tolerance", tolerance, low=0.0)
        self.max_steps = check_integer("max_steps", max_steps, low=1)
        self._seen: tuple[Systems, SolvedHeads] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files hold the module, not its last input."""
        return {**self.__dict__, "_seen": None}

    def extra_repr(self) -> str:
        """The options that are not parameters, for `print`."""
        return (
            f"dim={self.dim}, heads={self.heads}, solver={self.solver!r}, steps={self.steps}, "
            f"order={self.order}, gamma={self.gamma}, coupling_limit={self.coupling_limit}, "
            f"mask_diagonal={self.mask_diagonal}, response={self.response}"
        )

    def forward(
        self,
        inputs: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        return_parts: bool = False,
    ) -> Tensor | tuple[Tensor, ModuleParts]:
        """Magnetisations for `inputs` (batch, N, dim) or (N, dim), same shape.

        Masks as in `masks.read_masks`: padded tokens, whose output is zero, and pairs that may not
        couple. `return_parts` gives both the output and the parts, which are taken before `map_out`
        and always have a batch. ValueError for another shape and for `is_causal`, TypeError for
        another dtype; input that is not finite, or overflows, comes out as NaN.
        """
        check_flag("return_parts", return_parts)
        tokens, masks = self._read(inputs, key_padding_mask, attn_mask, is_causal)
        fields = self.fields(tokens)
        if masks.padded is not None:
            fields = fields.masked_fill(masks.padded.unsqueeze(-1), 0.0)
        systems = self._systems(fields, masks)
        with torch.autocast(inputs.device.type, enabled=False):
            solved = self._solve(systems)
            root = systems.fields.shape[-1] ** 0.5
            answer = spins = merge(solved.mean) * root
            response = torch.zeros_like(spins)
            if self.response:
                response = self._response(systems, solved)
                answer = spins + response
        if not is_traced():
            self._seen = (detached(systems), detached(solved))
        out = answer.to(tokens.dtype)
        if self.map_out is not None:
            out = out @ self.map_out
        out = out if inputs.ndim == 3 else out[0]
        return (out, self._parts(systems, solved, response)) if return_parts else out

    def validity(self) -> Validity:
        """How far the last forward pass can be trusted, for each of its systems.

        Nothing is computed, and no device waited for, before this is called. RuntimeError if no
        forward pass left a record.
        """
        if self._seen is None:
            raise RuntimeError("validity needs a forward pass of this module, outside transforms")
        with torch.no_grad():
            systems, solved = self._seen
            zero = torch.zeros((), dtype=solved.mean.dtype, device=solved.mean.device)
            return self._parts(systems, solved, zero).validity()

    def fields(self, inputs: Tensor) -> Tensor:
        """The external fields H that `inputs` (batch, N, dim) impose: mapped, then normalised.

        Tokens whose squares overflow become NaN, since they would look like free spins.
        """
        if self.map_in is not None:
            inputs = inputs @ self.map_in
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        if not self.normalize:
            return inputs + 0 * inputs.square().sum(dim=-1, keepdim=True)
        size = inputs.square().mean(dim=-1, keepdim=True)
        scaled = inputs * (size + torch.finfo(inputs.dtype).eps).rsqrt()
        return scaled + 0 * size

    def free_energy(self, fields: Tensor) -> Tensor:
        """F(H) of all heads, (batch,), at the magnetisations the module computes for `fields`.

        At a solution −dF/dH is the module's output for these fields (before `map_out`).
        """
        tokens, masks = self._read(fields, None, None, False)
        systems = self._systems(tokens, masks)
        solved = self._solve(systems)
        log_z = log_partition_of(
            solved,
            fields=systems.fields,
            couplings=systems.couplings,
            beta=systems.beta,
            order=self.order,
        )
        size = systems.fields.shape[-1]
        return -size * (log_z / systems.beta[..., 0, 0]).sum(dim=-1)

    def _read(
        self,
        inputs: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> tuple[Tensor, Masks]:
        """`inputs` with a batch, zero where padded, and the masks; all but values checked."""
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            raise TypeError("inputs must be a floating-point torch tensor")
        if inputs.ndim not in (2, 3) or inputs.shape[-1] != self.dim or not inputs.shape[-2]:
            raise ValueError(
                f"inputs must have shape (batch, N, {self.dim}) or (N, {self.dim}), N >= 1, "
                f"got {tuple(inputs.shape)}"
            )
        casting = torch.is_autocast_enabled(inputs.device.type)
        if inputs.dtype != self.query.dtype and not casting:
            raise TypeError(
                f"inputs must be {self.query.dtype} like the parameters, got {inputs.dtype}"
            )
        if inputs.ndim == 2:
            inputs = inputs.unsqueeze(0)
            if key_padding_mask is not None and key_padding_mask.ndim == 1:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        masks = read_masks(
            inputs,
            heads=self.heads,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            is_causal=is_causal,
        )
        if masks.padded is not None:
            inputs = inputs.masked_fill(masks.padded.unsqueeze(-1), 0.0)
        return inputs, masks

    def _systems(self, fields: Tensor, masks: Masks) -> Systems:
        root = (self.dim // self.heads) ** 0.5
        query, key = self.query.to(fields.dtype), self.key.to(fields.dtype)
        queries, keys = (
            split(fields @ query, heads=self.heads),
            split(fields @ key, heads=self.heads),
        )
        queries, keys = queries.to(fields.dtype), keys.to(fields.dtype)
        with torch.autocast(fields.device.type, enabled=False):
            beta = self.log_beta.to(fields.dtype).exp()[:, None, None]
            raw = self.log_strength.to(fields.dtype)[:, None, None]
            strength = raw.exp() if self.coupling_limit is None else torch.ones_like(raw)
            couplings, pair = scaled_attention(
                queries * (self.gamma / root),
                keys=keys,
                strength=strength,
                mask_diagonal=self.mask_diagonal,
                forbidden=masks.forbidden,
                bias=masks.bias,
            )
            if self.coupling_limit is not None:
                largest = largest_row_sum(pair)
                largest = torch.where(largest > 0, largest, 1.0)
                strength = self.coupling_limit * raw.sigmoid() / (beta * largest)
                couplings, pair = strength * couplings, strength * pair
        return Systems(
            fields=split(fields, heads=self.heads) / root,
            queries=queries,
            keys=keys,
            couplings=couplings,
            pair=pair,
            beta=beta,
            strength=strength,
        )

    def _scheme(self) -> Scheme:
        return Scheme(
            solver=self.solver,
            steps=self.steps,
            order=self.order,
            damping=self.damping,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )

    def _solve(self, systems: Systems) -> SolvedHeads:
        return solve_heads(
            systems.fields, pair=systems.pair, beta=systems.beta, scheme=self._scheme()
        )

    def _response(self, systems: Systems, solved: SolvedHeads) -> Tensor:
        scaled = systems.queries * (self.gamma / systems.queries.shape[-1] ** 0.5)
        couplings, strength, mean = systems.couplings, systems.strength, solved.mean
        if solved.state is None and self.coupling_limit is None:
            second = self.order == 2
            along, back = covariance_attention(
                couplings,
                strength=strength,
                mean=mean,
                queries=systems.queries,
                keys=systems.keys,
                pair=systems.pair if second else None,
                width=1 - mean.square().sum(dim=-1, keepdim=True) if second else None,
                beta=systems.beta if second else None,
            )
        else:
            correlation = correlation_of(
                solved, pair=systems.pair, beta=systems.beta, order=self.order
            )
            if self.coupling_limit is not None:
                correlation = limited_correlation(
                    correlation, attention=couplings, pair=systems.pair
                )
            weights = response_weights(couplings, correlation=correlation, strength=strength)
            along, back = weights @ systems.keys, weights.mT @ systems.queries
        query, key = self.query.to(scaled.dtype), self.key.to(scaled.dtype)
        response = merge(along) @ query.mT + merge(back) @ key.mT
        return self.gamma * systems.queries.shape[-1] ** 0.5 * response

    def _parts(self, systems: Systems, solved: SolvedHeads, response: Tensor) -> ModuleParts:
        return parts_of(systems, solved, response=response, scheme=self._scheme())
