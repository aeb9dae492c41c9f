"""Taking the magnetisation of vector spins with softmax couplings apart.

[bal2021transformers, Sec. 8] in the unit convention of `vectors.units`: u = σ/√D, scaled fields
h = H/√D, and

    m = −(1/D) dF/dh = ⟨u⟩ + response,    ⟨u⟩ = ½ V⁻¹ h,    V = diag(t) − J,

with the saddle point of `vectors.large_d` at the softmax couplings J(h). The scores are
γ√D h A hᵀ: γ = 1 is the paper's H W_Q W_Kᵀ Hᵀ/√D. With τ = t − J_ii the mixing is the series
⟨u⟩ = ½τ⁻¹h + ½τ⁻¹Jτ⁻¹h + …, whose first term is proportional to the token's own field.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spinformer.core.checks import check_real, check_tensor
from spinformer.core.records import record
from spinformer.spins.modules.couplings import autograd_response, softmax_couplings
from spinformer.spins.vectors.large_d import vector_spins


@record
class Anatomy:
    """The parts of m, each (..., N, D), summing to m; and what they were made with.

    `residual` ½τ⁻¹h, `first_step` ½τ⁻¹Jτ⁻¹h (one attention step), `higher_orders` the rest of
    ½V⁻¹h, `response` Σ C ∂J/∂h. `gain` (..., N) is 1/(2τ_i); `onsager` (..., N) the part of τ_i
    that a free spin of the same magnetisation would not have, τ_i − 1/(2β(1−⟨u_i⟩²)).
    `couplings` J as the softmax gave them, `correlation` C. `free_energy` (...) is F.

    >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> parts = dissect(h, bilinear=0 * h, beta=1.0)
    >>> bool(torch.equal(parts.spins + parts.response, parts.magnetization))
    True
    """

    residual: Tensor
    first_step: Tensor
    higher_orders: Tensor
    response: Tensor
    gain: Tensor
    onsager: Tensor
    couplings: Tensor
    correlation: Tensor
    free_energy: Tensor

    @property
    def spins(self) -> Tensor:
        """⟨u⟩: the first three parts."""
        return self.residual + self.first_step + self.higher_orders

    @property
    def magnetization(self) -> Tensor:
        """m: all four parts."""
        return self.spins + self.response

    def parts(self) -> dict[str, Tensor]:
        """The four parts by name."""
        names = ("residual", "first_step", "higher_orders", "response")
        return {name: getattr(self, name) for name in names}

    def shares(self) -> dict[str, Tensor]:
        """Σ part·m / Σ m·m of every system, (...): signed, summing to one.

        Raises ValueError where m vanishes, as it does without a field: nothing has a share in it.
        """
        total = self.magnetization
        size = total.square().sum(dim=(-2, -1))
        if bool((size == 0).any()):
            raise ValueError("the magnetisation must not vanish, it does without a field")
        return {
            name: (part * total).sum(dim=(-2, -1)) / size for name, part in self.parts().items()
        }

    def sizes(self) -> dict[str, Tensor]:
        """Root mean square norm of a token's part, (...)."""
        return {
            name: part.square().sum(dim=-1).mean(dim=-1).sqrt()
            for name, part in self.parts().items()
        }


def dissect(
    fields: Tensor,
    *,
    bilinear: Tensor,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    couplings: Tensor | None = None,
) -> Anatomy:
    """Solve the spins at the couplings of these fields and take m apart.

    `fields` h (..., N, D); `bilinear` A (D, D); `strength` g; `couplings` replaces the softmax by
    fixed couplings (..., N, N), without response. Differentiable. Raises NotConverged where the
    saddle point was not found.

    >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> parts = dissect(h, bilinear=0 * h, beta=1.0).shares()
    >>> f"{sum(float(share) for share in parts.values()):.6f}", float(parts["response"])
    ('1.000000', 0.0)
    """
    fields = check_tensor("fields", fields)
    beta = check_real("beta", beta, low=0.0, open_low=True)
    root = fields.shape[-1] ** 0.5
    scale = check_real("gamma", gamma, low=0.0) * root

    if couplings is not None:
        couplings = check_tensor("couplings", couplings, square=True, like=("fields", fields))
        if fields.ndim < 2 or couplings.shape[-1] != fields.shape[-2]:
            raise ValueError(
                f"couplings must have shape (..., N, N) with N of fields, {tuple(fields.shape)}, "
                f"got {tuple(couplings.shape)}"
            )

    def couplings_of(h: Tensor) -> Tensor:
        if couplings is not None:
            return couplings.expand(*h.shape[:-1], h.shape[-2])
        return softmax_couplings(
            h, bilinear=bilinear, scale=scale, strength=strength, mask_diagonal=mask_diagonal
        )

    coupled = couplings_of(fields)
    solved = vector_spins(coupled, fields=fields * root, beta=beta)
    symmetric = (coupled + coupled.mT) / 2
    diagonal = symmetric.diagonal(dim1=-2, dim2=-1)
    tau = solved.saddle.t - diagonal
    others = symmetric - torch.diag_embed(diagonal)
    spins = solved.magnetization / root
    residual = fields / (2 * tau.unsqueeze(-1))
    first = (others @ residual) / tau.unsqueeze(-1)
    response = autograd_response(
        fields,
        couplings_of,
        correlation=solved.correlations,
        create_graph=fields.requires_grad or coupled.requires_grad,
    )
    free = 1 / (2 * beta * (1 - spins.square().sum(dim=-1)))
    return Anatomy(
        residual=residual,
        first_step=first,
        higher_orders=spins - residual - first,
        response=response,
        gain=1 / (2 * tau),
        onsager=tau - free,
        couplings=coupled,
        correlation=solved.correlations,
        free_energy=solved.free_energy,
    )
