"""Driven vector spins of many components: what their parallel dynamics becomes for D → ∞.

Unit convention of `units`, any couplings J (row i holds those into spin i, symmetric or not), and
p(u_i(t+1) | u(t)) ∝ exp(βD u_i·θ_i), θ_i = h_i + Σ_j J_ij u_j(t), all spins at once. For D → ∞
inner products are sharp. The field has the mean θ̄ = h + J m and, across it, fluctuations of
square v_i = (J Q Jᵀ)_ii, Q_ij = ⟨u_i·u_j⟩ − m_i·m_j, so that

    m_i(t+1) = g_i θ̄_i,   g_i = 2β/(1 + √(1 + 4β²(θ̄_i² + v_i))),
    Q_ij(t+1) = g_i g_j (J Q Jᵀ)_ij for i ≠ j,   Q_ii = 1 − m_i²,

which is closed: the theory "large D". To second order in J (and to third, since neighbours
correlate as J²), v_i = Σ_j J_ij²(1 − m_j²): the Onsager term of the dynamics, an extra length of
the field and not a reaction on m, since nothing comes back within a step. Naive mean field has
v = 0.

The delayed correlation is ⟨u_i(t+1)·u_j(t)⟩ = m_i(t+1)·m_j(t) + g_i (J Q)_ij, and the entropy
production of a stationary state, a step and per component, β Σ_ij (J_ij − J_ji) of it, as for Ising
spins [poclopez2024dynamical]. Shapes (..., N, D) and (..., N, N), β broadcasting as (..., 1, 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_tensor
from spinformer.core.records import record

THEORIES = ("naive", "second order", "large D")


@record
class DrivenState:
    """m (..., N, D) and Q (..., N, N), of which the theories but "large D" know the diagonal."""

    mean: Tensor
    covariance: Tensor


@record
class DrivenStep:
    """The state after a step, and `delayed` ⟨u_i(t+1)·u_j(t)⟩ (..., N, N) between the two."""

    state: DrivenState
    delayed: Tensor


def driven_start(fields: Tensor, *, beta: Tensor) -> DrivenState:
    """Free spins in the fields h: m = 2βh/(1 + √(1 + 4β²h²)), without correlations.

    >>> driven_start(torch.zeros(2, 3), beta=torch.ones(1, 1)).covariance
    tensor([[1., 0.],
            [0., 1.]])
    """
    fields = check_tensor("fields", fields)
    square = fields.square().sum(dim=-1, keepdim=True)
    mean = 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt()) * fields
    return DrivenState(mean=mean, covariance=torch.diag_embed(_width(mean)))


def driven_step(
    state: DrivenState, *, couplings: Tensor, fields: Tensor, beta: Tensor, theory: str
) -> DrivenStep:
    """One parallel step of `theory`, differentiable.

    >>> one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    >>> start = DrivenState(mean=zero, covariance=one)
    >>> system = {"couplings": 2 * one, "fields": one, "beta": one}
    >>> for theory in THEORIES:
    ...     print(driven_step(start, **system, theory=theory).state.mean)
    tensor([[0.6180]])
    tensor([[0.3583]])
    tensor([[0.3583]])
    """
    check_choice("theory", theory, THEORIES)
    theta = fields + couplings @ state.mean
    square = theta.square().sum(dim=-1, keepdim=True)
    carried = couplings @ state.covariance
    spread = None
    if theory == "second order":
        width = state.covariance.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        square = square + couplings.square() @ width
    elif theory == "large D":
        spread = carried @ couplings.mT
        square = square + spread.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    gain = 2 * beta / (1 + (1 + 4 * beta * beta * square).sqrt())
    mean = gain * theta
    covariance = torch.diag_embed(_width(mean))
    if spread is not None:
        eye = torch.eye(spread.shape[-1], dtype=torch.bool, device=spread.device)
        covariance = covariance + (gain * spread * gain.mT).masked_fill(eye, 0.0)
    delayed = mean @ state.mean.mT + gain * carried
    return DrivenStep(state=DrivenState(mean=mean, covariance=covariance), delayed=delayed)


def entropy_rate(delayed: Tensor, *, couplings: Tensor, beta: Tensor) -> Tensor:
    """σ/D = β Σ_ij (J_ij − J_ji) ⟨u_i(t+1)·u_j(t)⟩, (...): nats a step and per component.

    That of a stationary state under constant fields; zero for symmetric couplings.

    >>> turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> entropy_rate(0.5 * turn, couplings=turn, beta=torch.ones(1, 1))
    tensor(2.)
    """
    check_tensor("delayed", delayed, square=True)
    return (beta * (couplings - couplings.mT) * delayed).sum(dim=(-2, -1))


def _width(mean: Tensor) -> Tensor:
    return 1 - mean.square().sum(dim=-1)
