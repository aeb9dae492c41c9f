"""The continuous memory as a probability model: p(ξ) = e^{−βE(ξ)}/Z, normalized exactly.

E(ξ) = ½‖ξ‖² − β⁻¹ lse(β x_i·ξ) is `continuous.energy`. Because
e^{−βE} = Σ_i exp(β x_i·ξ − ½β‖ξ‖²) = Σ_i e^{β‖x_i‖²/2} exp(−½β‖ξ − x_i‖²),

    Z = (2π/β)^{d/2} Σ_i e^{β‖x_i‖²/2},     p(ξ) = Σ_i w_i N(ξ; x_i, 1/β),
    w = softmax(½β‖x_i‖²)        [bal2020energy, Eqs. (13), (16), (17), at β = 1]:

a mixture of N equal Gaussians whose weights are tied to the norms of the means, learned by the
exact negative log-likelihood [bal2020energy, Eqs. (14), (18)]. Patterns, (N, d), states, (…, d),
and data, (M, d), are rows of float torch tensors; everything is differentiable unless said
otherwise.
"""

import math

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import wrightomega
from torch import Tensor

from spinformer.core.checks import check_integer, check_real, check_tensor
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.hopfield.continuous import energy
from spinformer.hopfield.inputs import check_beta, check_patterns, check_result

# Beyond this the logarithms of weights, of that size, have no digits behind the point to spare.
_MOST = 1e12


def log_weights(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """ln w_i = log softmax(½β‖x_i‖²), shape (N,).

    >>> log_weights(torch.eye(2)).exp()
    tensor([0.5000, 0.5000])
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    return check_result("log weights", torch.log_softmax(0.5 * beta * (patterns**2).sum(-1), -1))


def log_partition(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    """log Z = (d/2) log(2π/β) + lse(½β‖x_i‖²), a scalar [bal2020energy, Eq. (17)].

    >>> log_partition(torch.zeros(1, 2), beta=2 * math.pi)
    tensor(0.)
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    constant = 0.5 * patterns.shape[1] * math.log(2 * math.pi / beta)
    return check_result(
        "log partition", constant + torch.logsumexp(0.5 * beta * (patterns**2).sum(-1), -1)
    )


def log_prob(patterns: Tensor, *, states: Tensor, beta: float = 1.0) -> Tensor:
    """log p(ξ) = −βE(ξ) − log Z, shape (…), in nats.

    >>> f"{log_prob(torch.zeros(1, 2), states=torch.tensor([1.0, 0.0]), beta=2 * math.pi):.4f}"
    '-3.1416'
    """
    beta = check_beta(beta)
    return -beta * energy(patterns, states=states, beta=beta) - log_partition(patterns, beta=beta)


@torch.no_grad()
def sample(patterns: Tensor, *, count: int, beta: float = 1.0, seed: TorchSeed = 0) -> Tensor:
    """`count` independent exact samples of p, shape (count, d): a pattern by its weight, then
    Gaussian noise of variance 1/β. No gradient.

    >>> sample(torch.zeros(1, 2), count=3).shape
    torch.Size([3, 2])
    """
    patterns, beta = check_patterns(patterns), check_beta(beta)
    count = check_integer("count", count, low=1)
    generator = torch_generator(seed, device=patterns.device)
    weights = log_weights(patterns, beta=beta).exp()
    means = patterns[torch.multinomial(weights, count, replacement=True, generator=generator)]
    noise = torch.empty_like(means).normal_(generator=generator)
    return check_result("sample", means + noise / math.sqrt(beta))


def _check_sample(patterns: Tensor, data: Tensor, beta: float) -> tuple[Tensor, Tensor, float]:
    patterns = check_patterns(patterns)
    shape = ("M", patterns.shape[1])
    data = check_tensor("data", data, like=("patterns", patterns), shape=shape)
    return patterns, data, check_beta(beta)


# -- learning the patterns -------------------------------------------------------------------


def loss(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """The exact negative log-likelihood per datum, −mean log p(ξ), in nats.

    >>> f"{loss(torch.zeros(1, 2), data=torch.ones(3, 2), beta=2 * math.pi):.4f}"
    '6.2832'
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    return -log_prob(patterns, states=data, beta=beta).mean()


def loss_gradient(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """Gradient of `loss` by hand, shape (N, d).

    Row i is β(w_i x_i − s_i), s_i = mean over data of softmax_i(β X ξ) ξ. In the document's
    layout: −β E[ξ ⊗ softmax(βXᵀξ)] + β X diag(softmax(½β diag XᵀX)) [bal2020energy, Eq. (19)]; it
    prints the second term without the diag, which would be one d-vector in place of a d × N matrix.

    >>> loss_gradient(torch.zeros(1, 2), data=torch.ones(3, 2))
    tensor([[-1., -1.]])
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    weights = log_weights(patterns, beta=beta).exp()
    slope = beta * (weights[:, None] * patterns - _pull(patterns, data, beta))
    return check_result("gradient", slope)


@torch.no_grad()
def _em_update(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """One expectation–maximisation step under the tied weights, (N, d); never raises `loss`.

    With s_i = mean of softmax_i(βXξ) ξ held, the expected complete log-likelihood
    β Σ_i x_i·s_i − lse(½β‖x_i‖²) is concave in X. At its maximum w_i x_i = s_i, so x_i points
    along s_i and its length t_i solves t_i e^{βt_i²/2} = ‖s_i‖ S, S = Σ_j e^{βt_j²/2}: one monotone
    equation for S. A pattern with s_i = 0 goes to 0.
    """
    pull = _pull(patterns, data, beta)
    lengths = check_result("mean", pull.norm(dim=-1))
    target = _lengths(lengths.double().cpu().numpy(), beta)
    scale = torch.as_tensor(target, dtype=pull.dtype, device=pull.device)
    return pull * (scale / lengths.clamp_min(torch.finfo(pull.dtype).tiny))[:, None]


@record
class Fit(Solution[Tensor]):
    """What `fit` learned.

    value: (N, d), the last iterate. residual: what the last step lowered the loss by, in nats.
    steps: steps made. status: CONVERGED if that was less than the tolerance and no rise, else
    STEP_LIMIT.
    losses: (steps + 1,), exact `loss` on the data before the first and after every step.
    """

    losses: np.ndarray

    @property
    def patterns(self) -> Tensor:
        """(N, d): the patterns learned."""
        return self.value


def fit(
    patterns: Tensor,
    *,
    data: Tensor,
    beta: float = 1.0,
    max_steps: int = 500,
    tolerance: float = 1e-10,
) -> Fit:
    """The stored patterns of maximum likelihood, from `data`, (M, d), starting from `patterns`.

    Expectation–maximisation, which has no step size, until a step lowers the loss by less than
    `tolerance` nats. (Descent, X ← X − rate·∇L [bal2020energy, Eq. (20)], takes `loss_gradient`.)
    ValueError where β times a squared length exceeds 1e12.

    >>> found = fit(torch.ones(1, 2), data=torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    >>> found.patterns, bool(found.converged)
    (tensor([[2., 0.]]), True)
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    max_steps = check_integer("max_steps", max_steps, low=1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    patterns, data = patterns.detach().clone(), data.detach()
    largest = beta * max(float(x.double().square().sum(-1).max()) for x in (patterns, data))
    if largest > _MOST:
        raise ValueError(
            f"beta times the squared length of patterns and data must be at most {_MOST:.0g}, got "
            f"{largest:.3g}: weights of patterns would be rounding"
        )
    losses = [float(loss(patterns, data=data, beta=beta))]
    # Below this a change of the loss is rounding.
    rounding = 100.0 * torch.finfo(patterns.dtype).eps
    status = Status.STEP_LIMIT
    while status == Status.STEP_LIMIT and len(losses) <= max_steps:
        patterns = _em_update(patterns, data=data, beta=beta)
        losses.append(float(loss(patterns, data=data, beta=beta)))
        fallen = losses[-2] - losses[-1]
        if -rounding * (1.0 + abs(losses[-1])) <= fallen < tolerance:
            status = Status.CONVERGED
    return Fit(
        value=patterns,
        residual=losses[-2] - losses[-1],
        steps=len(losses) - 1,
        status=status,
        losses=np.array(losses),
    )


def _pull(patterns: Tensor, data: Tensor, beta: float) -> Tensor:
    """s_i = mean over the data of softmax_i(β X ξ) ξ, shape (N, d)."""
    return torch.softmax(beta * data @ patterns.T, -1).T @ data / data.shape[0]


def _lengths(pull: np.ndarray, beta: float) -> np.ndarray:
    """t_i ≥ 0 with t_i softmax_i(½βt²) = `pull`_i; β is scaled away by t → √β t."""
    active = pull > 0
    result = np.zeros_like(pull)
    if not active.any():
        return result
    log_pull = np.log(math.sqrt(beta) * pull[active])

    def squares(log_z: float) -> np.ndarray:
        # t e^{t²/2} = sZ  ⇔  t² e^{t²} = (sZ)²  ⇔  t² = W₀((sZ)²) = ω(2 ln s + 2 ln Z).
        return wrightomega(2.0 * (log_pull + log_z))

    # Inactive patterns sit at t = 0 and contribute e⁰ each to Z.
    idle = np.count_nonzero(~active)

    def excess(log_z: float) -> float:
        # Σ e^{t²/2} + idle = Z, divided by Z; falls with Z, since e^{t²/2}/Z = s/t.
        return float(np.exp(0.5 * squares(log_z) - log_z).sum() + idle * math.exp(-log_z) - 1.0)

    low, high = math.log(pull.size), math.log(pull.size) + 1.0
    while excess(high) > 0:
        high += high - low
    # Σ e^{t²/2} ≥ N: with Z = N, the smallest value there is, all lengths vanish.
    root = low if excess(low) <= 0 else brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16)
    result[active] = np.sqrt(squares(root) / beta)
    return result
