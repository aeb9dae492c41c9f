"""How far a spin module's answer can be trusted: measured, not assumed.

Compared is ⟨σ⟩ of each system (a head on a sample) with the saddle point of the large-D free
energy at the same couplings, solved afresh in double precision. The saddle always exists and is
unique; what it leaves out is of order 1/D, and the next order of `vectors.large_d` says how much.
The sum of both is what the module should be off from the exact spins, relative to ⟨σ⟩.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_real
from spinformer.core.records import record
from spinformer.spins.vectors.large_d import vector_spins

# What rounding in single precision may do to a correlation.
_ROUNDING = 1e-3


@record
class Validity:
    """One number per system, (batch, heads), of one forward pass.

    `converged`: whether the equations were solved. `distance`: ‖⟨σ⟩ − saddle‖/‖saddle‖.
    `correction`: the next order in 1/D of the saddle's ⟨σ⟩, relative to it. `largest`: the largest
    |C_ij| of different spins, which cannot exceed one. `lowest`: the smallest eigenvalue of the
    covariance C − m mᵀ, which cannot be negative. NaN where the numbers overflowed.

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
        tolerance = check_real("tolerance", tolerance, low=0.0)
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


def validity_of(
    mean: Tensor,
    *,
    pair: Tensor,
    fields: Tensor,
    beta: Tensor,
    correlation: Tensor,
    converged: Tensor,
) -> Validity:
    """The meter, for ⟨u⟩ = `mean` and `fields` h (..., N, D), `pair` B and C (..., N, N), β.

    `beta` broadcasts as (..., 1, 1), `converged` is (...). Cost: some twenty factorisations of an
    N × N matrix for each system, in double precision, without a graph.

    >>> h, zero = torch.ones(2, 3) / 3**0.5, torch.zeros(2, 2)
    >>> free = {"pair": zero, "fields": h, "beta": torch.ones(1, 1), "correlation": zero}
    >>> validity = validity_of(0.618034 * h, **free, converged=torch.tensor(True))
    >>> bool(validity.distance < 1e-6), bool(validity.correction > 0.01)
    (True, True)
    """
    with torch.no_grad():
        mean, pair, fields, beta, correlation = (
            x.detach().double() for x in (mean, pair, fields, beta, correlation)
        )
        root = fields.shape[-1] ** 0.5
        batch = fields.shape[:-2]
        finite = _finite(mean) & _finite(pair) & _finite(fields) & _finite(beta + 0 * mean)
        safe = finite[..., None, None]
        system = (torch.where(safe, pair, 0.0) / 2, torch.where(safe, fields * root, 0.0))
        temperature = torch.where(finite, beta[..., 0, 0].expand(batch), 1.0)
        saddle, correction = _saddle_and_correction(*system, temperature)
        truth = saddle / root
        eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
        covariance = correlation - mean @ mean.mT
        others = correlation.masked_fill(eye, 0.0).abs().amax((-2, -1))
        lowest = torch.linalg.eigvalsh(torch.where(safe, covariance, 0.0))[..., 0]

    def told(values: Tensor) -> Tensor:
        return torch.where(finite, values, torch.nan)

    return Validity(
        converged=converged.expand(batch) & finite,
        distance=told(_relative(mean - truth, truth)),
        correction=told(_relative(correction, saddle)),
        largest=told(others),
        lowest=told(lowest),
    )


def _saddle_and_correction(
    couplings: Tensor, fields: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """⟨σ⟩ of the leading order and what the next one adds to it."""
    with torch.enable_grad():
        probe = fields.clone().requires_grad_()
        given: Any = {"fields": probe, "beta": beta, "throw": False}
        solved = vector_spins(couplings, **given, corrected=True)
        (slope,) = torch.autograd.grad(solved.free_energy.sum(), probe)
    leading = solved.magnetization.detach()
    return leading, -slope - leading


def _relative(difference: Tensor, whole: Tensor) -> Tensor:
    """‖difference‖/‖whole‖, or ‖difference‖ where there is nothing to compare it with."""
    size, unit = (
        torch.linalg.vector_norm(vectors, dim=(-2, -1)) for vectors in (difference, whole)
    )
    return size / torch.where(unit > 0, unit, 1.0)


def _finite(values: Tensor) -> Tensor:
    return torch.isfinite(values).all(-1).all(-1)
