"""Mean-field equations of vector spins in many dimensions: naive, and with the Onsager term.

Unit convention of `units`: spins u on the unit sphere in R^D, D → ∞, fields h, ordered couplings
J with E/D = −Σ_{i,j} J_ij u_i·u_j − Σ_i h_i·u_i. The equations see the pairs B = J + Jᵀ, zero
on the diagonal. Second-order Plefka expansion [thouless1977solution; plefka1982convergence]: with
m_i = ⟨u_i⟩,

    ln Z/D = ½ Σ ln(1−m_i²) + β(½ Σ B_ij m_i·m_j + Σ h_i·m_i) [+ (β²/4) Σ B_ij² (1−m_i²)(1−m_j²)],
    m_i = L(θ_i),  θ_i = h_i + Σ_j B_ij m_j [− β m_i Σ_j B_ij² (1−m_j²)],
    L(θ) = 2βθ / (1 + √(1 + 4β²θ²)),

the brackets being the second order: order 1 is naive mean field, order 2 adds the Onsager term.
ln Z is normalised to free spins. Shapes: fields and m (..., N, D), couplings and pair (..., N, N),
over any leading batch axes; β is a number ≥ 0 or a tensor () or (..., 1, 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_broadcast, check_choice, check_real, check_tensor
from spinformer.core.operators import is_traced
from spinformer.spins.vectors.units import pair_couplings

Beta = Tensor | float


def langevin(theta: Tensor, *, beta: Beta) -> Tensor:
    """L(θ) = 2βθ/(1 + √(1 + 4β²θ²)): ⟨u⟩ of a free spin in the field θ (..., N, D), D → ∞.

    >>> langevin(torch.tensor([[2.0, 0.0]]), beta=0.75)
    tensor([[0.7208, 0.0000]])
    """
    theta = check_tensor("theta", theta)
    if theta.ndim < 2:
        raise ValueError(f"theta must have shape (..., N, D), got {tuple(theta.shape)}")
    beta = _checked_beta(beta, theta)
    _check_overflow(theta, beta)
    return langevin_gain(theta, beta=beta) * theta


def langevin_gain(theta: Tensor, *, beta: Beta) -> Tensor:
    """L(θ)/θ, shape (..., N, 1): between 0 and β, falling with the norm of the field.

    A piece of an iteration, as the next two functions: its arguments are not checked.

    >>> langevin_gain(torch.zeros(1, 3), beta=0.75)
    tensor([[0.7500]])
    """
    square = theta.square().sum(dim=-1, keepdim=True)
    return 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())


def onsager_gain(
    magnetization: Tensor, *, pair: Tensor, beta: Beta, pair_square: Tensor | None = None
) -> Tensor:
    """β Σ_j B_ij² (1 − m_j²), (..., N, 1): what multiplies −m_i in the Onsager term.

    Iterations that need no gradient may hand in B∘B as `pair_square`.

    >>> pair = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> onsager_gain(torch.zeros(2, 3), pair=pair, beta=0.5)
    tensor([[2.],
            [2.]])
    """
    width = 1 - magnetization.square().sum(dim=-1, keepdim=True)
    if pair_square is not None:
        return beta * (pair_square @ width)
    return beta * square_times(pair, vector=width)


def local_field(
    magnetization: Tensor,
    *,
    fields: Tensor,
    pair: Tensor,
    beta: Beta,
    order: int,
    pair_square: Tensor | None = None,
) -> Tensor:
    """θ (..., N, D) of the module's docstring; `pair_square` as in `onsager_gain`.

    >>> pair = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> m = torch.tensor([[0.5], [0.0]])
    >>> local_field(m, fields=torch.zeros(2, 1), pair=pair, beta=0.5, order=1)
    tensor([[0.],
            [1.]])
    """
    theta = fields + pair @ magnetization
    if order == 2:
        onsager = onsager_gain(magnetization, pair=pair, beta=beta, pair_square=pair_square)
        theta = torch.addcmul(theta, onsager, magnetization, value=-1)
    return theta


def log_partition(
    magnetization: Tensor,
    *,
    couplings: Tensor,
    fields: Tensor,
    beta: Beta,
    order: int = 2,
) -> Tensor:
    """ln Z/D of order 1 or 2 at given m, shape (...); stationary in m at the fixed point.

    The diagonal of the couplings J adds β Σ J_ii. Raises ValueError unless all |m_i| < 1.

    >>> zero = torch.zeros(2, 3)
    >>> float(log_partition(zero, couplings=torch.zeros(2, 2), fields=zero, beta=1.0))
    0.0
    """
    check_choice("order", order, (1, 2))
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    magnetization = check_tensor("magnetization", magnetization, like=("fields", fields))
    if magnetization.shape[-2:] != fields.shape[-2:]:
        raise ValueError(
            f"magnetization must end with the shape {tuple(fields.shape[-2:])} of fields, "
            f"got {tuple(magnetization.shape)}"
        )
    size = magnetization.square().sum(dim=-1)
    if bool((size.detach() >= 1).any()):
        raise ValueError("magnetization must have rows of norm below 1")
    self_energy = couplings.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    pair = pair_couplings(couplings)
    free = torch.log1p(-size).sum(dim=-1) / 2
    linear = (fields + (pair @ magnetization) / 2) * magnetization
    beta = torch.as_tensor(beta, dtype=fields.dtype, device=fields.device)
    scale = beta.reshape(beta.shape[:-2]) if beta.ndim >= 2 else beta
    total = free + scale * (linear.sum(dim=(-2, -1)) + self_energy)
    if order == 2:
        width = (1 - size).unsqueeze(-1)
        second = (width.mT @ pair.square() @ width)[..., 0, 0]
        total = total + scale.square() / 4 * second
    return total


def square_times(pair: Tensor, *, vector: Tensor) -> Tensor:
    """(B∘B) v for B (..., N, N) and v (..., N, 1), with a gradient that reads B as few times as
    possible.

    >>> square_times(torch.tensor([[2.0, 3.0]]), vector=torch.ones(2, 1))
    tensor([[13.]])
    """
    return (pair * pair) @ vector if is_traced() else _SquareTimes.apply(pair, vector)


class _SquareTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(pair, vector)
        return (pair * pair) @ vector

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        pair, vector = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Plain operations, for whoever wants the gradient's own gradient.
            return 2 * pair * (grad @ vector.mT), (pair * pair).mT @ grad
        scaled = pair * (2 * grad)
        # (B∘B)ᵀ g before the columns are scaled in place.
        grad_vector = torch.einsum("...ij,...ij->...j", scaled, pair).unsqueeze(-1) / 2
        return scaled.mul_(vector.mT), grad_vector


def checked_system(couplings: Tensor, *, fields: Tensor, beta: Beta) -> tuple[Tensor, Tensor, Beta]:
    """Validated J, h and β, the fields expanded to the batch shape of all three.

    >>> checked_system(torch.zeros(5, 2, 2), fields=torch.zeros(2, 3), beta=1.0)[1].shape
    torch.Size([5, 2, 3])
    """
    couplings = check_tensor("couplings", couplings, square=True)
    fields = check_tensor("fields", fields, like=("couplings", couplings))
    if fields.ndim < 2 or couplings.shape[-1] != fields.shape[-2] or fields.shape[-1] < 1:
        raise ValueError(
            f"couplings must end with shape (N, N) for fields (..., N, D), got "
            f"{tuple(couplings.shape)} for {tuple(fields.shape)}"
        )
    beta = _checked_beta(beta, couplings)
    batch = check_broadcast(
        couplings=couplings.shape[:-2],
        fields=fields.shape[:-2],
        beta=beta.shape[:-2] if isinstance(beta, Tensor) else (),
    )
    fields = fields.expand(*batch, *fields.shape[-2:])
    if couplings.numel() and fields.numel():
        # With |m| ≤ 1 the sum over the pairs is at most twice as large as all of J.
        bound = fields.detach().abs() + 2 * couplings.detach().abs().sum()
        _check_overflow(bound, beta)
    return couplings, fields, beta


def _checked_beta(beta: Beta, like: Tensor) -> Beta:
    if not isinstance(beta, Tensor):
        return check_real("beta", beta, low=0.0)
    beta = check_tensor("beta", beta, low=0.0, like=("the other arguments", like))
    if beta.ndim and tuple(beta.shape[-2:]) != (1, 1):
        raise ValueError(f"beta must have shape () or (..., 1, 1), got {tuple(beta.shape)}")
    return beta


def _check_overflow(theta: Tensor, beta: Beta) -> None:
    """Beyond the range of squares (βθ)² = ∞ would turn an aligned spin into a free one."""
    square = (2 * beta * theta.detach()).square().sum(dim=-1)
    scale = beta.detach().square() if isinstance(beta, Tensor) else theta.new_tensor(beta).square()
    if not bool(torch.isfinite(square).all() and torch.isfinite(scale).all()):
        raise ValueError("beta times fields and couplings must have a square that is in range")
