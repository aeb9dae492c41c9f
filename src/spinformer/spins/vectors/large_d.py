"""Vector spins of many components: free energy, magnetisation, correlations.

Sigma convention of `units`: ‖σ_i‖² = D, E = −Σ_{i,j} J_ij σ_i·σ_j − Σ_i H_i·σ_i over ordered
pairs, and Z = ⟨exp(−βE)⟩ averaged over free spins, so that ln Z = 0 at J = 0, H = 0. Steepest
descent in 1/D about the saddle point t* of the φ of `gaussian`
[bal2021transformers, Eqs. (vectorrandomising) and (partfun)] gives

    ln Z/D = −(N/2)(1 + ln 2β) + φ(t*) − 1/(2D) ln det[φ''(t*)/(2β²)] + O(1/D²),

the last term being the correction that `corrected` asks for. At t* the correlations
C = V⁻¹/(2β) + V⁻¹ S V⁻¹/4 have C_ii = 1.

Arguments are torch tensors with any leading batch axes, on any device: couplings (..., N, N), of
which only the symmetric part acts, fields (..., N, D), beta a positive number or (...). Results
are differentiable twice in all three. Every function raises ValueError or TypeError for input
that does not fit and NotConverged where a saddle point was not found.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_flag
from spinformer.core.records import record
from spinformer.spins.vectors.gaussian import (
    checked_system,
    curvature,
    exponent,
    field_source,
    inverse_logdet,
)
from spinformer.spins.vectors.saddle import Saddle, checked_limits, saddle_of


@record
class VectorSpins:
    """Thermodynamics of a batch of vector-spin systems (conventions of the module).

    saddle: the multipliers. free_energy: (...), F = −ln Z/β, extensive in N and D.
    magnetization: (..., N, D), ⟨σ⟩ of the leading order. correlations: (..., N, N),
    ⟨σ_i·σ_j⟩/D of the leading order, magnetisations included, ones on the diagonal.
    """

    saddle: Saddle
    free_energy: Tensor
    magnetization: Tensor
    correlations: Tensor


def vector_spins(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    corrected: bool = False,
    tolerance: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> VectorSpins:
    """Free energy, magnetisation and correlations from one saddle point.

    `tolerance`, `max_steps` and `throw` are those of `saddle.find_saddle`. `corrected` adds the
    next order in 1/D to the free energy only: its error falls from O(1/D) to O(1/D²) of ln Z/D,
    and the corrected magnetisation is `magnetization(..., corrected=True)`.

    >>> found = vector_spins(torch.zeros(2, 2), fields=torch.ones(2, 3), beta=1.0)
    >>> found.correlations.diagonal().round(decimals=3)
    tensor([1., 1.])
    """
    corrected = check_flag("corrected", corrected)
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    source = field_source(fields)
    state = saddle_of(
        couplings,
        source=source,
        beta=beta,
        **checked_limits(tolerance, max_steps=max_steps, throw=throw),
    )
    saddle, inverse = state.saddle, state.inverse
    sites, dim = fields.shape[-2:]
    spread = source.spread(inverse)
    phi = exponent(saddle.t, inverse=inverse, logdet=state.logdet, source=source, beta=beta)
    density = phi - sites / 2 * (1 + (2 * beta).log())
    log_partition = dim * density
    if corrected:
        hessian = curvature(inverse, spread=spread, beta=beta)
        scaled = hessian / (2 * beta.square())[..., None, None]
        log_partition = log_partition - 0.5 * inverse_logdet(scaled)[1]
    return VectorSpins(
        saddle=saddle,
        free_energy=-log_partition / beta,
        magnetization=0.5 * inverse @ fields,
        correlations=inverse / (2 * beta)[..., None, None] + spread / 4,
    )


def free_energy(couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False) -> Tensor:
    """F = −ln Z/β, shape (...), of the leading order in 1/D or with the next one.

    >>> zero = torch.zeros(1, 1, dtype=torch.float64)
    >>> round(abs(float(free_energy(zero, fields=zero, beta=1.0))), 9)
    0.0
    """
    return vector_spins(couplings, fields=fields, beta=beta, corrected=corrected).free_energy


def magnetization(
    couplings: Tensor, *, fields: Tensor, beta: Any, corrected: bool = False
) -> Tensor:
    """−∂F/∂H at fixed couplings, shape (..., N, D): the mean spin
    [bal2021transformers, Eq. (sigma)].

    The leading order is ½ V⁻¹ H in closed form. `corrected` differentiates the corrected free
    energy through t*(H) and stays differentiable.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> f"{float(magnetization(0 * one, fields=one, beta=1.0)):.4f}"
    '0.6180'
    """
    if not check_flag("corrected", corrected):
        return vector_spins(couplings, fields=fields, beta=beta).magnetization
    # One copy of the fields for every system of the batch, else their derivatives would add up.
    _, fields, _ = checked_system(couplings, fields=fields, beta=beta)
    create = torch.is_grad_enabled() and any(
        isinstance(x, Tensor) and x.requires_grad for x in (couplings, fields, beta)
    )
    with torch.enable_grad():
        probe = fields.view_as(fields) if create else fields.detach()
        if not probe.requires_grad:
            probe.requires_grad_()
        energy = free_energy(couplings, fields=probe, beta=beta, corrected=True)
        (gradient,) = torch.autograd.grad(energy.sum(), probe, create_graph=create)
    return -gradient


def correlations(couplings: Tensor, *, fields: Tensor, beta: Any) -> Tensor:
    """⟨σ_i·σ_j⟩/D of the leading order, shape (..., N, N), ones on the diagonal.

    −∂F/∂J_ij = D C_ij for ordered pairs.

    >>> correlations(torch.zeros(2, 2), fields=torch.zeros(2, 3), beta=1.0).round(decimals=3)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return vector_spins(couplings, fields=fields, beta=beta).correlations
