"""Couplings that are matrices: J_ij W in the place of J_ij, as in the code of Bal's essays.

Unit spins u_i with the energy per channel −Σ_ij J_ij u_i·W u_j − Σ_i h_i·u_i. For many components
they are Gaussian with a multiplier t_i each [bal2021transformers, Sec. 7, for numbers]:

    ⟨u⟩ = ½ V⁻¹h,   V = diag(t) − ½(J ⊗ W + (J ⊗ W)ᵀ),   (1/2βD) tr [V⁻¹]_ii + ‖⟨u_i⟩‖² = 1,

the last for all i, the length of each spin.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockSpins:
    """Mean spins (N, D) of one system with block couplings, and two of their parts (N, D).

    `multipliers` t (N,). `residual` ½t⁻¹h. `echo`: what comes back to a token from its own field by
    way of one other token, ½ t_i⁻² Σ_j t_j⁻¹ B_ij B_ji h_i with B the symmetric blocks.
    """

    means: Tensor
    multipliers: Tensor
    residual: Tensor
    echo: Tensor


def symmetric_blocks(couplings: Tensor, matrix: Tensor) -> Tensor:
    """½(J ⊗ W + (J ⊗ W)ᵀ) as (N, D, N, D), from J (N, N) without its diagonal and W (D, D)."""
    others = couplings - torch.diag(couplings.diagonal())
    blocks = torch.einsum("ij,ab->iajb", others, matrix)
    return 0.5 * (blocks + blocks.permute(2, 3, 0, 1))


def block_spins(
    couplings: Tensor, matrix: Tensor, fields: Tensor, *, beta: float, steps: int = 100
) -> BlockSpins:
    """The saddle point for many components, by Newton's method on the multipliers.

    These minimize a convex function, Σ t − (1/2βD) ln det V + ¼ hᵀV⁻¹h, where V is positive.

    Raises
    ------
    ValueError
        If Newton's method does not end after so many `steps`.
    """
    sites, dim = fields.shape
    blocks = symmetric_blocks(couplings, matrix)
    flat = blocks.reshape(sites * dim, sites * dim)
    multipliers = torch.full((sites,), float(torch.linalg.eigvalsh(flat)[-1]), dtype=fields.dtype)
    multipliers = multipliers + 1 / (2 * beta) + fields.norm(dim=1)

    def lengths(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is missing to unit length, its derivative by the multipliers, and the means."""
        inverse = torch.linalg.inv(torch.diag(at.repeat_interleave(dim)) - flat)
        means = 0.5 * (inverse @ fields.flatten()).view(sites, dim)
        pieces = inverse.view(sites, dim, sites, dim)
        fluctuation = pieces.diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1).sum(-1)
        missing = 1 - fluctuation / (2 * beta * dim) - means.square().sum(1)
        squares = pieces.square().sum((1, 3)) / (2 * beta * dim)
        pulls = 2 * torch.einsum("ia,iajb,jb->ij", means, pieces, means)
        return missing, squares + pulls, means

    for _ in range(steps):
        missing, slope, means = lengths(multipliers)
        if float(missing.abs().max()) < 1e-12:
            break
        change = torch.linalg.solve(slope, missing)
        size = 1.0
        # Shorter steps where V would not stay positive.
        while True:
            tried = multipliers - size * change
            lowest = torch.linalg.eigvalsh(torch.diag(tried.repeat_interleave(dim)) - flat)[0]
            if lowest > 0:
                break
            size *= 0.5
        multipliers = tried
    else:
        raise ValueError(f"couplings must allow a saddle point, got none within {steps} steps")
    gain = 1 / multipliers
    residual = 0.5 * gain[:, None] * fields
    through = torch.einsum("iakc,k,kcib->iab", blocks, gain, blocks)
    echo = 0.5 * gain[:, None] ** 2 * torch.einsum("iab,ib->ia", through, fields)
    return BlockSpins(means, multipliers, residual, echo)


def off_direction(part: Tensor, *, directions: Tensor) -> Tensor:
    """Share (N,) of the squared norm of a token's part (N, D) that is not along its direction."""
    unit = directions / directions.norm(dim=1, keepdim=True)
    along = (part * unit).sum(1, keepdim=True) * unit
    return (part - along).square().sum(1) / part.square().sum(1)
