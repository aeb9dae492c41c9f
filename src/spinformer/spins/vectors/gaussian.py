"""φ(t), the exponent behind the large-D free energy, and its derivatives.

Sigma convention of `units`. A Lagrange multiplier t_i for the length of each spin makes the
integral over the spins Gaussian, with V = diag(t) − J (J symmetrised) and S = H Hᵀ/D:

    φ(t) = β Σ_i t_i − ½ ln det V + (β/4) tr(S V⁻¹),

the "steepest-descent" exponent of [bal2021transformers, Eq. (partfun)]. φ is convex where V is
positive definite. With P = V⁻¹ S V⁻¹ the mean square lengths are C_ii = (V⁻¹)_ii/(2β) + P_ii/4,
∂φ/∂t_i = β(1 − C_ii), and φ'' = ½ V⁻¹∘V⁻¹ + (β/2) V⁻¹∘P entry by entry.

Arguments are torch tensors with any leading batch axes: couplings (..., N, N), fields (..., N, D),
beta a number or (...), t (..., N); β must be positive, and not so small that its square
vanishes. Everything is differentiable twice.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_broadcast, check_real, check_tensor
from spinformer.core.records import record


class _InverseLogdet(torch.autograd.Function):
    """(V⁻¹, ln det V) of positive-definite V from one Cholesky factorisation.

    The backward pass is two products with V⁻¹, several times cheaper than going back through
    the factorisation, and is itself differentiable.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor, info = torch.linalg.cholesky_ex(matrix)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        # A sample without a factor (never a converged one) must stay visible as NaN.
        inverse = torch.where(
            (info == 0)[..., None, None], torch.cholesky_inverse(factor), torch.nan
        )
        return inverse, torch.where(info == 0, logdet, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, grad_inverse: Tensor, grad_logdet: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return grad_logdet[..., None, None] * inverse - inverse @ grad_inverse @ inverse


def inverse_logdet(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(V⁻¹, ln det V) of positive-definite (..., N, N); NaN for any other.

    >>> inverse, logdet = inverse_logdet(torch.tensor([[2.0]]))
    >>> f"{float(inverse):.4f}, {float(logdet):.4f}"
    '0.5000, 0.6931'
    """
    inverse, logdet = _InverseLogdet.apply(matrix)
    return inverse, logdet


def shifted(t: Tensor, *, couplings: Tensor) -> Tensor:
    """V = diag(t) − J, (..., N, N), for symmetric J.

    >>> shifted(torch.tensor([3.0]), couplings=torch.tensor([[1.0]]))
    tensor([[2.]])
    """
    return torch.diag_embed(t) - couplings


@record
class Source:
    """The fields as the cheaper of two things: h = H/√D, or S = h hᵀ where D > N.

    >>> Source(value=torch.full((1, 1), 4.0), is_gram=True).energy(torch.full((1, 1), 0.5))
    tensor(2.)
    """

    value: Tensor
    is_gram: bool

    def squares(self) -> Tensor:
        """The squares h_i², (..., N)."""
        if self.is_gram:
            return self.value.diagonal(dim1=-2, dim2=-1)
        return self.value.square().sum(-1)

    def spread(self, inverse: Tensor) -> Tensor:
        """P = V⁻¹ S V⁻¹, (..., N, N)."""
        half = inverse @ self.value
        return half @ inverse if self.is_gram else half @ half.mT

    def energy(self, inverse: Tensor) -> Tensor:
        """tr(S V⁻¹), (...)."""
        other = inverse if self.is_gram else inverse @ self.value
        return (self.value * other).sum((-1, -2))


def field_source(fields: Tensor) -> Source:
    """The `Source` of fields H (..., N, D).

    >>> field_source(torch.ones(1, 4)).squares()
    tensor([1.])
    """
    sites, dim = fields.shape[-2:]
    if dim > sites:
        return Source(value=fields @ fields.mT / dim, is_gram=True)
    return Source(value=fields / math.sqrt(dim), is_gram=False)


def square_lengths(inverse: Tensor, *, spread: Tensor, beta: Tensor) -> Tensor:
    """The mean square lengths C_ii, (..., N), of V⁻¹ and P.

    >>> one = torch.ones(1, 1)
    >>> square_lengths(one, spread=2 * one, beta=torch.tensor(1.0))
    tensor([1.])
    """
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[..., None])
    return lengths + spread.diagonal(dim1=-2, dim2=-1) / 4


def curvature(inverse: Tensor, *, spread: Tensor, beta: Tensor) -> Tensor:
    """φ'', (..., N, N), of V⁻¹ and P.

    >>> one = torch.ones(1, 1)
    >>> curvature(one, spread=one, beta=torch.tensor(3.0))
    tensor([[2.]])
    """
    return 0.5 * inverse * (inverse + beta[..., None, None] * spread)


def exponent(t: Tensor, *, inverse: Tensor, logdet: Tensor, source: Source, beta: Tensor) -> Tensor:
    """φ, (...), of t and of V⁻¹ and ln det V that belong to it.

    >>> t, one = torch.tensor([1.0]), torch.ones(1, 1)
    >>> source = field_source(torch.tensor([[2.0]]))
    >>> beta, zero = torch.tensor(1.0), torch.tensor(0.0)
    >>> exponent(t, inverse=one, logdet=zero, source=source, beta=beta)
    tensor(2.)
    """
    return beta * t.sum(-1) - 0.5 * logdet + beta / 4 * source.energy(inverse)


def checked_system(
    couplings: Tensor, *, fields: Tensor, beta: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Validated (J symmetrised, H, β), broadcast to one batch shape.

    Raises TypeError or ValueError naming the argument that is not as the module's docstring says.

    >>> couplings = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> checked_system(couplings, fields=torch.ones(5, 2, 3), beta=1.0)[0].shape
    torch.Size([5, 2, 2])
    """
    couplings = check_tensor("couplings", couplings, square=True)
    if couplings.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"couplings must be torch.float32 or torch.float64, got {couplings.dtype}")
    fields = check_tensor("fields", fields, like=("couplings", couplings))
    sites = couplings.shape[-1]
    if fields.ndim < 2 or fields.shape[-2] != sites or fields.shape[-1] < 1:
        raise ValueError(
            f"fields must have shape (..., N, D) with N = {sites} like couplings, "
            f"got {tuple(fields.shape)}"
        )
    # Everything below divides by the square of β, which must not vanish.
    lowest = torch.finfo(couplings.dtype).tiny ** 0.5
    if isinstance(beta, Tensor):
        beta = check_tensor("beta", beta, low=lowest).to(couplings)
    else:
        beta = couplings.new_tensor(check_real("beta", beta, low=lowest))
    batch = check_broadcast(
        couplings=couplings.shape[:-2], fields=fields.shape[:-2], beta=beta.shape
    )
    return (
        (0.5 * (couplings + couplings.mT)).expand(*batch, sites, sites),
        fields.expand(*batch, *fields.shape[-2:]),
        beta.expand(batch),
    )


def saddle_function(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """φ(t), shape (...); NaN where V is not positive definite.

    >>> zero = torch.zeros(1, 1)
    >>> saddle_function(torch.tensor([1.0]), couplings=zero, fields=zero, beta=0.5)
    tensor(0.5000)
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    t = _multipliers(t, couplings)
    inverse, logdet = inverse_logdet(shifted(t, couplings=couplings))
    return exponent(t, inverse=inverse, logdet=logdet, source=field_source(fields), beta=beta)


def saddle_function_reference(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """φ(t) written out with torch's own determinant and solver: slow, and shares no code.

    >>> zero = torch.zeros(1, 1)
    >>> saddle_function_reference(torch.tensor([1.0]), couplings=zero, fields=zero, beta=0.5)
    tensor(0.5000)
    """
    v = torch.diag_embed(t) - (couplings + couplings.mT) / 2
    h = fields / fields.shape[-1] ** 0.5
    work = (h * torch.linalg.solve(v, h)).sum((-1, -2))
    phi: Tensor = beta * t.sum(-1) - torch.logdet(v) / 2 + beta / 4 * work
    return phi


def saddle_gradient(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """∂φ/∂t = β(1 − C_ii), shape (..., N).

    >>> zero = torch.zeros(1, 1)
    >>> saddle_gradient(torch.tensor([1.0]), couplings=zero, fields=zero, beta=0.5)
    tensor([0.])
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    inverse, _ = inverse_logdet(shifted(_multipliers(t, couplings), couplings=couplings))
    spread = field_source(fields).spread(inverse)
    return beta[..., None] * (1 - square_lengths(inverse, spread=spread, beta=beta))


def saddle_hessian(t: Tensor, *, couplings: Tensor, fields: Tensor, beta: Any) -> Tensor:
    """∂²φ/∂t∂t = ½ V⁻¹∘V⁻¹ + (β/2) V⁻¹∘P, shape (..., N, N).

    >>> zero = torch.zeros(1, 1)
    >>> saddle_hessian(torch.tensor([1.0]), couplings=zero, fields=zero, beta=0.5)
    tensor([[0.5000]])
    """
    couplings, fields, beta = checked_system(couplings, fields=fields, beta=beta)
    inverse, _ = inverse_logdet(shifted(_multipliers(t, couplings), couplings=couplings))
    return curvature(inverse, spread=field_source(fields).spread(inverse), beta=beta)


def _multipliers(t: Tensor, couplings: Tensor) -> Tensor:
    t = check_tensor("t", t, like=("couplings", couplings))
    if t.ndim < 1 or t.shape[-1] != couplings.shape[-1]:
        raise ValueError(
            f"t must have shape (..., N) with N = {couplings.shape[-1]} like couplings, "
            f"got {tuple(t.shape)}"
        )
    check_broadcast(t=t.shape[:-1], couplings=couplings.shape[:-2])
    return t
