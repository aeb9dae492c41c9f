"""Causal neural-network layer of driven vector spins, out of equilibrium.

Training takes a backward pass by hand, in `fused`, except for the theory "large D" and for
symmetric couplings. The plain operations are those of `large_d.driven_step`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.operators import is_forward_mode, is_traced
from spinformer.core.records import record
from spinformer.spins.fused import FusedSettings, solve_fused
from spinformer.spins.heads import CoupledHeads, HeadInputs, merge_heads, softmax_weights
from spinformer.spins.large_d import (
    THEORIES,
    driven_step,
    entropy_rate,
    langevin_gain,
    langevin_response,
)
from spinformer.spins.masks import PairMasks


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


class DrivenSpinModule(CoupledHeads):
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
        self.steps = check_integer("steps", steps, low=1)
        self.theory = check_choice("theory", theory, THEORIES)
        self.symmetric = check_flag("symmetric", symmetric)
        self._causal = not symmetric

    def _answer(
        self, fields: Tensor, masks: PairMasks, return_parts: bool
    ) -> tuple[Tensor, Callable[[], DrivenParts]]:
        sites = fields.shape[-2]
        inputs = self._head_inputs(fields, masks)
        strength = self.log_strength.to(fields.dtype)[:, None, None].exp()

        def parts() -> DrivenParts:
            couplings = self._couplings(inputs, strength)
            delayed = self._run(inputs, couplings)[1]
            rate = entropy_rate(delayed, couplings=couplings, beta=inputs.beta) / sites
            return DrivenParts(couplings=couplings, entropy_production=rate)

        with torch.autocast(fields.device.type, enabled=False):
            if self._is_fused(masks):
                settings = FusedSettings(
                    theory="driven",
                    scale=self.gamma / self._root,
                    steps=self.steps,
                    order=1 if self.theory == "naive" else 2,
                    plain=self._plain_mean,
                )
                mean = solve_fused(inputs, strength, settings).mean
            else:
                mean = self._plain_mean(inputs, strength)[0]
        return merge_heads(mean) * self._root, parts

    def _is_fused(self, masks: PairMasks) -> bool:
        """Whether the backward pass by hand serves: eager, on a processor, with fixed masks."""
        learned = masks.bias is not None and masks.bias.requires_grad
        elsewhere = self.query.device.type != "cpu"
        plain = is_traced() or is_forward_mode() or learned or elsewhere
        return not (plain or self.symmetric or self.theory == "large D")

    def _couplings(self, inputs: HeadInputs, strength: Tensor) -> Tensor:
        sites = inputs.fields.shape[-2]
        forbidden = torch.ones(sites, sites, dtype=torch.bool, device=inputs.fields.device).triu()
        if inputs.masks.forbidden is not None:
            forbidden = inputs.masks.forbidden | forbidden
        masks = PairMasks(forbidden=forbidden, bias=inputs.masks.bias)
        past = dataclasses.replace(inputs, masks=masks)
        couplings = strength * softmax_weights(past, scale=self.gamma / self._root)
        return 0.5 * (couplings + couplings.mT) if self.symmetric else couplings

    def _run(self, inputs: HeadInputs, couplings: Tensor) -> tuple[Tensor, Tensor]:
        """Means and delayed correlations after K steps, by `driven_step`."""
        mean = langevin_response(inputs.fields, inputs.beta)
        covariance = torch.diag_embed(1 - mean.square().sum(dim=-1))
        for _ in range(self.steps):
            mean, covariance, delayed = driven_step(
                mean,
                covariance,
                couplings=couplings,
                fields=inputs.fields,
                beta=inputs.beta,
                theory=self.theory,
            )
        return mean, delayed

    def _plain_mean(self, inputs: HeadInputs, strength: Tensor) -> tuple[Tensor]:
        """Means after K steps; without the covariance, where a theory needs its diagonal alone."""
        couplings = self._couplings(inputs, strength)
        if self.theory == "large D":
            return (self._run(inputs, couplings)[0],)
        mean = langevin_response(inputs.fields, inputs.beta)
        for _ in range(self.steps):
            theta = inputs.fields + couplings @ mean
            square = theta.square().sum(dim=-1, keepdim=True)
            if self.theory == "second order":
                square = square + couplings.square() @ (1 - mean.square().sum(-1, keepdim=True))
            mean = langevin_gain(square, inputs.beta) * theta
        return (mean,)
