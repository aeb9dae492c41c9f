"""Vector spins driven by a sequence: a causal module, out of equilibrium.

In equilibrium only J + Jᵀ acts and every token feels the future. Driven spins
[bal2021transformers, footnote 10; poclopez2024dynamical] have couplings of their own in each
direction: here J_ij = g softmax over the past j < i of γ (H W_Q)_i·(H W_K)_j/√D, and zero else. The
tokens drive the spins with constant fields H for K parallel steps, in the theories of
`vectors.kinetic`. There is no free energy, hence no response: the output is ⟨σ(K)⟩. Since J is
strictly triangular its N-th power vanishes: the state is stationary, exactly, after N − 1 steps
from free spins and after N from any start. What K steps leave out are paths of more than K
couplings.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.spins.modules.fused import scaled_attention
from spinformer.spins.modules.masks import read_masks
from spinformer.spins.modules.parts import merge, split
from spinformer.spins.modules.weights import CoupledHeads
from spinformer.spins.vectors.kinetic import THEORIES, driven_start, driven_step, entropy_rate


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


class DrivenSpinModule(CoupledHeads):
    """Driven vector spins with causal softmax couplings: a layer for sequences.

    `dim` channels are shared out to `heads` systems of dimension D = dim/heads, driven for `steps`
    K ≥ 1 steps from free spins. `theory`: "naive", "second order" with the lengthening of the
    fields by fluctuations, or "large D", exact for D → ∞ and of cost N³ a step. `beta` and
    `strength` (g) start every head and are learned through their logarithm; `gamma` multiplies the
    1/√D of the scores. Without `causal` a token also feels the later ones, each direction with its
    own coupling. `symmetric` spins feel (J + Jᵀ)/2, what an energy would keep of J: then the module
    is not causal, whatever the mask. `normalize` and `channel_maps` as in `SpinTransformerModule`.

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
        causal: bool = True,
        symmetric: bool = False,
        normalize: bool = True,
        channel_maps: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        strength = check_real("strength", strength, low=0.0, open_low=True)
        super().__init__(
            dim,
            heads=heads,
            beta=beta,
            log_strength=math.log(strength),
            gamma=gamma,
            normalize=normalize,
            channel_maps=channel_maps,
            device=device,
            dtype=dtype,
        )
        self.steps = check_integer("steps", steps, low=1)
        self.theory = check_choice("theory", theory, THEORIES)
        self.causal = check_flag("causal", causal)
        self.symmetric = check_flag("symmetric", symmetric)

    def extra_repr(self) -> str:
        """The options that are not parameters, for `print`."""
        return (
            f"dim={self.dim}, heads={self.heads}, steps={self.steps}, theory={self.theory!r}, "
            f"gamma={self.gamma}, causal={self.causal}, symmetric={self.symmetric}"
        )

    def forward(
        self,
        inputs: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        return_parts: bool = False,
    ) -> Tensor | tuple[Tensor, DrivenParts]:
        """⟨σ(K)⟩ for `inputs` (batch, N, dim) or (N, dim), same shape; masks as in `masks`.

        ValueError for another shape, TypeError for another dtype; what is not finite stays so.
        """
        check_flag("return_parts", return_parts)
        if not isinstance(inputs, Tensor) or inputs.dtype != self.query.dtype:
            raise TypeError(f"inputs must be a tensor of {self.query.dtype} like the parameters")
        if inputs.ndim not in (2, 3) or inputs.shape[-1] != self.dim or not inputs.shape[-2]:
            raise ValueError(
                f"inputs must have shape (batch, N, {self.dim}) or (N, {self.dim}), N >= 1, "
                f"got {tuple(inputs.shape)}"
            )
        tokens = inputs if inputs.ndim == 3 else inputs.unsqueeze(0)
        if key_padding_mask is not None and inputs.ndim == 2 and key_padding_mask.ndim == 1:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        masks = read_masks(
            tokens,
            heads=self.heads,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            is_causal=False,
        )
        if masks.padded is not None:
            tokens = tokens.masked_fill(masks.padded.unsqueeze(-1), 0.0)
        fields = self._fields(tokens)
        forbidden = masks.forbidden
        if self.causal:
            sites = fields.shape[-2]
            later = torch.ones(sites, sites, dtype=torch.bool, device=fields.device).triu()
            forbidden = later if forbidden is None else forbidden | later
        root = (self.dim // self.heads) ** 0.5
        beta = self.log_beta.exp()[:, None, None]
        couplings, pairs = scaled_attention(
            split(fields @ self.query, heads=self.heads) * (self.gamma / root),
            keys=split(fields @ self.key, heads=self.heads),
            strength=self.log_strength.exp()[:, None, None],
            mask_diagonal=True,
            forbidden=forbidden,
            bias=masks.bias,
        )
        if self.symmetric:
            couplings = 0.5 * pairs
        scaled = split(fields, heads=self.heads) / root
        state = driven_start(scaled, beta=beta)
        system: Any = {"couplings": couplings, "fields": scaled, "beta": beta}
        for _ in range(self.steps):
            before = state
            made = driven_step(before, **system, theory=self.theory)
            state = made.state
        answer = merge(state.mean) * root
        out = answer if self.map_out is None else answer @ self.map_out
        out = out if inputs.ndim == 3 else out[0]
        if not return_parts:
            return out
        rate = entropy_rate(made.delayed, couplings=couplings, beta=beta)
        change = (state.mean - before.mean).abs().amax(dim=(-2, -1))
        return out, DrivenParts(
            mean=state.mean,
            change=change,
            couplings=couplings,
            delayed=made.delayed,
            entropy_production=rate / couplings.shape[-1],
        )

    def _fields(self, tokens: Tensor) -> Tensor:
        if self.map_in is not None:
            tokens = tokens @ self.map_in
        if not self.normalize:
            return tokens
        size = tokens.square().mean(dim=-1, keepdim=True)
        return tokens * (size + torch.finfo(tokens.dtype).eps).rsqrt()
