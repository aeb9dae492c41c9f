"""Spin modules of two chapters: many side by side, with a bound, and their spins by Monte Carlo."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinformer.core.checks import check_real
from spinformer.spins.masks import PairMasks
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.monte_carlo import sample_vector_spins


class LimitedSpinModule(SpinTransformerModule):
    """A spin module whose coupling strength stays below a bound, whatever is learned.

    The mean-field equations have one, physical solution if β Σ_j |B_ij| ≤ κ < 1 for all spins. Then
    β‖B‖ ≤ κ and the naive equations contract; `|C_ij| ≤ 1` to second order, since
    m_i·m_j + κ(1−m_i²)(1−m_j²) ≤ ab + κ(1−ab)² ≤ 1 with `ab = |m_i||m_j|`; and the covariance
    W(W⁻¹ + βB)W, W = diag(1−m²), is positive definite. Rows of softmax couplings sum to g, but
    columns sum to anything up to g N. So g(H) = κ s/(β n(H)), with n the largest row sum of S + Sᵀ,
    J = g S, and a learned s in (0, 1). Here `log_strength` holds the logit of s, not ln g.
    """

    def __init__(self, dim: int, *, coupling_limit: float, **options: Any) -> None:
        super().__init__(dim, **options)
        self.coupling_limit = check_real("coupling_limit", coupling_limit, low=0.0, open_low=True)
        self._first_log_strength = 0.0
        torch.nn.init.zeros_(self.log_strength)

    def _is_fused(self, masks: PairMasks) -> bool:
        return False

    def _strength(self, weights: Tensor, beta: Tensor) -> Tensor:
        share = self.log_strength.to(weights.dtype)[:, None, None].sigmoid()
        largest = (weights + weights.mT).sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True)
        return self.coupling_limit * share / (beta * torch.where(largest > 0, largest, 1.0))

    def _correlation_with_couplings(
        self, correlation: Tensor, couplings: Tensor, pair: Tensor
    ) -> Tensor:
        return limited_correlation(correlation, attention=couplings, pair=pair)


def limited_correlation(correlation: Tensor, *, attention: Tensor, pair: Tensor) -> Tensor:
    """C minus what a strength g = κ s/(β n) takes back, so that Σ C ∂J = g Σ C' ∂A.

    `attention` A (..., N, N), `pair` A + Aᵀ without diagonal. With n the largest row sum of that,
    C'_mn = C_mn − (e_m + e_n) Σ C A/n for m ≠ n, e the indicator of the row that n is the sum of.
    J and B may stand in their place: g drops out.
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


def stacked(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters of models of one shape by name, one behind the other, with history."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([own[name] for own in named]) for name in named[0]}


def sample_module(
    module: SpinTransformerModule, inputs: Tensor, *, sweeps: int = 1024, seed: int = 0
) -> dict[str, Tensor]:
    """Draw the spins of every head for `inputs` (batch, N, dim) by heat bath.

    `spins` ⟨σ⟩ and `output` −dF/dH, before `map_out`; `noise`: the Monte Carlo error of `spins`
    relative to their size. `off_spins`, `off_output`: how far the module is from both, relative to
    them. `expected`: what `validity()` says of ⟨σ⟩, the mean over heads. The response is the
    derivative of the couplings by reverse differentiation, contracted with the drawn ⟨u_i·u_j⟩.
    """
    plain = copy.deepcopy(module).double()
    fields = plain.fields(inputs.double()).detach().requires_grad_()
    plain.normalize = False
    plain.map_in = None
    plain.map_out = None
    returned, parts = plain(fields, return_parts=True)
    batch, heads, _, width = parts.fields.shape
    spins = torch.empty_like(parts.fields)
    errors = torch.empty_like(parts.fields)
    correlation = torch.empty_like(parts.correlation)
    with torch.no_grad():
        for sample, head in np.ndindex(batch, heads):
            drawn = sample_vector_spins(
                parts.couplings[sample, head].numpy(),
                fields=parts.fields[sample, head].numpy() * width**0.5,
                beta=float(parts.beta[head]),
                sweeps=sweeps,
                seed=seed + 97 * sample + head,
            )
            spins[sample, head] = torch.tensor(drawn.magnetization.value)
            errors[sample, head] = torch.tensor(drawn.magnetization.error)
            correlation[sample, head] = torch.tensor(drawn.correlations.value)
    (slope,) = torch.autograd.grad(parts.couplings, fields, width * correlation)
    spins = spins.transpose(1, 2).flatten(2)
    errors = errors.transpose(1, 2).flatten(2)
    output = spins + slope if plain.response else spins
    with torch.no_grad():
        return {
            "spins": spins,
            "output": output,
            "noise": _size(errors) / _size(spins),
            "off_spins": _size(parts.spins - spins) / _size(spins),
            "off_output": _size(returned - output) / _size(output),
            "expected": parts.validity().expected_error.mean(-1),
        }


def _size(values: Tensor) -> Tensor:
    return values.square().sum((-2, -1)).sqrt()
