"""How far a forward pass of a spin module can be trusted."""

import torch
from torch import Tensor

from spinformer.core.records import record
from spinformer.spins.solvers import solve_saddle_point

# What rounding in single precision may do to a correlation.
_ROUNDING = 1e-3


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


@torch.no_grad()
def measure_validity(
    mean: Tensor,
    *,
    pair: Tensor,
    fields: Tensor,
    beta: Tensor,
    correlation: Tensor,
    converged: Tensor,
) -> Validity:
    """Measure how accurate the mean spins of many systems are, and whether they are physical.

    Everything is compared with the saddle point at the same couplings, solved in double precision.

    Parameters
    ----------
    mean : Tensor, shape (batch, heads, N, D)
        Magnetizations ⟨u⟩ = ⟨σ⟩/√D.
    pair : Tensor, shape (batch, heads, N, N)
        Pair couplings B = J + Jᵀ with zero diagonal.
    fields : Tensor, shape (batch, heads, N, D)
        External fields h = H/√D.
    beta : Tensor, shape (heads, 1, 1)
        Inverse temperatures β.
    correlation : Tensor, shape (batch, heads, N, N)
        Correlations C of the same theory as `mean`.
    converged : Tensor of bool, shape (batch, heads)
        Whether the equations were solved.

    Returns
    -------
    Validity
        One value of each diagnostic per system.
    """
    mean = mean.detach().double()
    pair = pair.detach().double()
    fields = fields.detach().double()
    correlation = correlation.detach().double()
    batch = fields.shape[:-2]
    temperature = beta.detach().double()[..., 0, 0].expand(batch)
    root = fields.shape[-1] ** 0.5
    finite = (mean.sum((-2, -1)) + pair.sum((-2, -1)) + fields.sum((-2, -1))).isfinite()
    # Nor is anything known where the temperature is not.
    finite = finite & (temperature > 1e-150)
    safe = finite[..., None, None]
    pair = torch.where(safe, pair, 0.0)
    fields = torch.where(safe, fields * root, 0.0)
    temperature = torch.where(finite, temperature, 1.0)
    solved = solve_saddle_point(
        pair / 2, fields=fields, beta=temperature, corrected=True, throw=False
    )
    t = solved.saddle.value
    saddle = torch.linalg.solve_ex(torch.diag_embed(t) - pair / 2, fields).result / 2
    correction = _relative(solved.magnetization - saddle, saddle)
    if fields.shape[-1] == 1:
        correction = correction + torch.inf
    eye = torch.eye(pair.shape[-1], dtype=torch.bool, device=pair.device)
    covariance = torch.where(safe, correlation - mean @ mean.mT, 0.0)

    def where_finite(values: Tensor) -> Tensor:
        return torch.where(finite, values, torch.nan)

    return Validity(
        converged=converged.expand(batch) & finite,
        distance=where_finite(_relative(mean * root - saddle, saddle)),
        correction=where_finite(correction),
        largest=where_finite(correlation.masked_fill(eye, 0.0).abs().amax((-2, -1))),
        lowest=where_finite(torch.linalg.eigvalsh(covariance)[..., 0]),
    )


def _relative(difference: Tensor, whole: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(difference, dim=(-2, -1))
    unit = torch.linalg.vector_norm(whole, dim=(-2, -1))
    return size / torch.where(unit > 0, unit, 1.0)
