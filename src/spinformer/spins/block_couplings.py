"""Vector spins whose couplings are matrices: mean field and Onsager's reaction.

The energy is E = −Σ_{i,j} J_ij σ_i·W σ_j − Σ_i H_i·σ_i, with numbers J_ij and one matrix W of
channels for all pairs, so that a pair couples with the block K_ij = J_ij W + J_ji Wᵀ. In the units
of `large_d` the mean-field equations to second order are

    m_i = L(θ_i),   θ_i = h_i + Σ_j K_ij m_j − m_i β Σ_j (1 − m_j²) tr(K_ij K_ijᵀ)/D.

The reaction of its neighbours on spin i is a matrix, R_i = β Σ_j (1 − m_j²) K_ij K_ijᵀ, and R_i m_i
mixes channels wherever W Wᵀ is no multiple of one. A spin of *fixed length* does not feel it: what
R_i changes of its field, its anisotropy ½ uᵀ R_i u changes back, and the trace is left. A variable
with a Gaussian prior, as in Deep Implicit Attention, has no such anisotropy and feels all of R_i.
"""

import torch
from torch import Tensor

from spinformer.core.anderson import anderson
from spinformer.core.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.solve import Solution
from spinformer.spins.large_d import langevin_gain, langevin_response


def apply_blocks(mean: Tensor, *, couplings: Tensor, channels: Tensor) -> Tensor:
    """Compute the fields of all neighbours, Σ_j K_ij m_j. Arguments are not checked.

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m.
    couplings : Tensor, shape (..., N, N)
        Numbers J_ij; the diagonal has no effect.
    channels : Tensor, shape (D, D)
        The matrix W.

    Returns
    -------
    Tensor, shape (..., N, D)
        The fields.
    """
    inner = couplings - torch.diag_embed(couplings.diagonal(dim1=-2, dim2=-1))
    return inner @ mean @ channels.mT + inner.mT @ mean @ channels


def reaction_matrices(mean: Tensor, *, couplings: Tensor, channels: Tensor, beta: float) -> Tensor:
    r"""Compute the matrix of the Onsager reaction on every spin. Arguments are not checked.

    Parameters
    ----------
    mean : Tensor, shape (..., N, D)
        Magnetizations m.
    couplings : Tensor, shape (..., N, N)
        Numbers J_ij; the diagonal has no effect.
    channels : Tensor, shape (D, D)
        The matrix W.
    beta : float
        Inverse temperature β.

    Returns
    -------
    Tensor, shape (..., N, D, D)
        The matrices R_i.

    Notes
    -----
    With the blocks :math:`K_{ij} = J_{ij} W + J_{ji} W^\top`,

    .. math::

        R_i = \beta \sum_j (1 - m_j^2)\, K_{ij} K_{ij}^\top.

    Examples
    --------
    >>> turn = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> one_way = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> free = torch.zeros(2, 2)
    >>> reaction_matrices(free, couplings=one_way, channels=turn, beta=1.0)[0]
    tensor([[1., 0.],
            [0., 0.]])
    """
    inner = couplings - torch.diag_embed(couplings.diagonal(dim1=-2, dim2=-1))
    width = 1 - mean.square().sum(-1, keepdim=True)
    out = (inner.square() @ width)[..., None]
    back = (inner.mT.square() @ width)[..., None]
    both = ((inner * inner.mT) @ width)[..., None]
    mixed = channels @ channels + channels.mT @ channels.mT
    return beta * (out * (channels @ channels.mT) + both * mixed + back * (channels.mT @ channels))


def solve_block_fixed_point(
    couplings: Tensor,
    *,
    channels: Tensor,
    fields: Tensor,
    beta: float,
    order: int = 2,
    tolerance: float = 1e-10,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[Tensor]:
    """Solve the mean-field equations of vector spins of fixed length with matrix-valued couplings.

    With W = 1 they are those of `solvers.solve_fixed_point`.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Numbers J_ij of ordered pairs; the diagonal has no effect.
    channels : Tensor, shape (D, D)
        The matrix W that couples the components.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : float
        Inverse temperature, positive.
    order : {1, 2}, default 2
        Order in the couplings: 1 is naive mean field, 2 adds the Onsager term.
    tolerance : float, default 1e-10
        Largest residual ‖L(θ(m)) − m‖/√N.
    max_steps : int, default 500
        Largest number of iterations.
    throw : bool, default True
        Whether a system that did not converge raises an error.

    Returns
    -------
    Solution of Tensor
        Magnetizations m = ⟨u⟩ = ⟨σ⟩/√D (..., N, D), without derivatives.

    Raises
    ------
    NotConverged
        If a fixed point was not found and `throw` is True.
    TypeError
        If dtypes differ.
    ValueError
        If a shape does not fit, or another argument is out of its range.

    Examples
    --------
    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    >>> pair = torch.tensor([[0.0, 0.1], [0.1, 0.0]]).double()
    >>> field = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()
    >>> mean = solve_block_fixed_point(pair, channels=swap, fields=field, beta=1.0).value
    >>> bool(mean[1, 1] > 0.05), bool(mean[1, 0] == 0)
    (True, True)
    """
    couplings = check_tensor("couplings", couplings, square=True).detach()
    shape = (..., couplings.shape[-1], "D")
    fields = check_tensor("fields", fields, like=("couplings", couplings), shape=shape).detach()
    dim = fields.shape[-1]
    channels = check_tensor(
        "channels", channels, like=("couplings", couplings), shape=(dim, dim)
    ).detach()
    beta = check_real("beta", beta, low=0.0, open_low=True)
    order = check_choice("order", order, (1, 2))
    tolerance = check_real("tolerance", tolerance, low=0.0)
    max_steps = check_integer("max_steps", max_steps, low=1)
    throw = check_flag("throw", throw)
    inverse_temperature = couplings.new_tensor(beta)

    def step(mean: Tensor) -> Tensor:
        theta = fields + apply_blocks(mean, couplings=couplings, channels=channels)
        if order == 2:
            matrices = reaction_matrices(mean, couplings=couplings, channels=channels, beta=beta)
            trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) / dim
            theta = theta - trace * mean
        return langevin_gain(theta.square().sum(-1, keepdim=True), inverse_temperature) * theta

    start = langevin_response(fields, inverse_temperature)
    start = start.expand(*torch.broadcast_shapes(couplings.shape[:-2], start.shape[:-2]), -1, -1)
    solved = anderson(step, start.contiguous(), tolerance=tolerance, max_steps=max_steps)
    if throw:
        solved.require("the fixed point of the mean-field equations")
    return solved
