"""Learning the stored patterns: exact likelihood, its gradient, and what people do without.

The model is `density`, whose conventions hold here; data are rows, (M, d). The loss is the exact
negative log-likelihood [bal2020energy, Eqs. (14), (18)]; contrastive divergence stands beside it
for comparison [hinton2002training].
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import wrightomega
from torch import Tensor
from tqdm import tqdm

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.hopfield.density import gibbs, log_prob, log_weights
from spinformer.hopfield.inputs import check_result, check_sample

METHODS = ("em", "gradient", "cd")


def loss(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """The exact negative log-likelihood per datum, −mean log p(ξ), in nats.

    >>> f"{loss(torch.zeros(1, 2), data=torch.ones(3, 2), beta=2 * math.pi):.4f}"
    '6.2832'
    """
    patterns, data, beta = check_sample(patterns, data=data, beta=beta)
    return -log_prob(patterns, states=data, beta=beta).mean()


def loss_gradient(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """Gradient of `loss` by hand, shape (N, d).

    Row i is β(w_i x_i − s_i), s_i = mean over data of softmax_i(β X ξ) ξ. In the document's
    layout: −β E[ξ ⊗ softmax(βXᵀξ)] + β X diag(softmax(½β diag XᵀX)) [bal2020energy, Eq. (19)]; it
    prints the second term without the diag, which would be one d-vector in place of a d × N matrix.

    >>> loss_gradient(torch.zeros(1, 2), data=torch.ones(3, 2))
    tensor([[-1., -1.]])
    """
    patterns, data, beta = check_sample(patterns, data=data, beta=beta)
    weights = log_weights(patterns, beta=beta).exp()
    slope = beta * (weights[:, None] * patterns - _pull(patterns, data, beta))
    return check_result("gradient", slope)


def contrastive_gradient(
    patterns: Tensor,
    *,
    data: Tensor,
    beta: float = 1.0,
    steps: int = 1,
    seed: TorchSeed = 0,
) -> Tensor:
    """CD-k: the gradient with the model average replaced by k Gibbs steps from the data, (N, d).

    β(mean over negatives − mean over data of ξ ⊗ softmax(βXξ)) [hinton2002training].

    >>> contrastive_gradient(torch.zeros(1, 2), data=torch.ones(3, 2)).shape
    torch.Size([1, 2])
    """
    patterns, data, beta = check_sample(patterns, data=data, beta=beta)
    negatives = gibbs(patterns, states=data, steps=steps, beta=beta, seed=seed)
    slope = beta * (_pull(patterns, negatives, beta) - _pull(patterns, data, beta))
    return check_result("gradient", slope)


def em_update(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """One expectation–maximisation step under the tied weights, (N, d); never raises `loss`.

    With s_i = mean of softmax_i(βXξ) ξ held, the expected complete log-likelihood
    β Σ_i x_i·s_i − lse(½β‖x_i‖²) is concave in X. At its maximum w_i x_i = s_i, so x_i points
    along s_i and its length t_i solves t_i e^{βt_i²/2} = ‖s_i‖ S, S = Σ_j e^{βt_j²/2}. Given S
    that is Lambert's function, βt_i² = W₀(β‖s_i‖²S²); what is left is one monotone equation for
    S. A pattern with s_i = 0 goes to 0. No gradient.

    >>> em_update(torch.ones(1, 2), data=torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    tensor([[2., 0.]])
    """
    patterns, data, beta = check_sample(patterns, data=data, beta=beta)
    with torch.no_grad():
        pull = _pull(patterns, data, beta)
        lengths = check_result("mean", pull.norm(dim=-1))
        target = _lengths(lengths.double().cpu().numpy(), beta)
        scale = torch.as_tensor(target, dtype=pull.dtype, device=pull.device) / lengths.clamp_min(
            torch.finfo(pull.dtype).tiny
        )
        return pull * scale[:, None]


@record
class Fit(Solution[Tensor]):
    """What `fit` learned.

    value: (N, d), the last iterate. residual: what the last step lowered the loss by, in nats.
    steps: steps made. status: CONVERGED if that was less than the tolerance and no rise (never for
    "cd", whose steps are noisy), DIVERGED if the loss ended above its start or not finite, else
    STEP_LIMIT.
    losses: (steps + 1,), exact `loss` on the training data before the first and after every step.
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
    method: str = "em",
    max_steps: int = 500,
    rate: float = 0.1,
    tolerance: float = 1e-10,
    cd_steps: int = 1,
    seed: TorchSeed = 0,
    throw: bool = False,
    progress: bool = False,
) -> Fit:
    """Learn the stored patterns from `data`, (M, d), starting from `patterns`.

    method: "em" (exact maximum likelihood, no step size), "gradient" (exact gradient, steps
    X ← X − rate·∇L [bal2020energy, Eq. (20)]) or "cd" (the same with CD-`cd_steps` gradients).
    "em" and "gradient" stop when a step lowers the loss by less than `tolerance` nats. Learning
    is often stopped before that on purpose, so NotConverged is raised only if `throw`.

    >>> found = fit(torch.ones(1, 2), data=torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    >>> found.patterns, bool(found.converged)
    (tensor([[2., 0.]]), True)
    """
    patterns, data, beta = check_sample(patterns, data=data, beta=beta)
    check_choice("method", method, METHODS)
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    rate = check_real("rate", rate, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    cd_steps = check_integer("cd_steps", cd_steps, low=1)
    generator = torch_generator(seed, device=patterns.device)
    patterns = patterns.detach().clone()
    data = data.detach()
    losses = [float(loss(patterns, data=data, beta=beta))]
    status = Status.STEP_LIMIT
    largest = torch.finfo(patterns.dtype).max ** 0.25  # beyond, the loss is no number
    # Below this a change of the loss is rounding.
    rounding = 100.0 * torch.finfo(patterns.dtype).eps
    for _ in tqdm(range(max_steps), disable=not progress, desc=method):
        if method == "em":
            patterns = em_update(patterns, data=data, beta=beta)
        elif method == "gradient":
            patterns = patterns - rate * loss_gradient(patterns, data=data, beta=beta)
        else:
            patterns = patterns - rate * contrastive_gradient(
                patterns, data=data, beta=beta, steps=cd_steps, seed=generator
            )
        if not float(patterns.abs().max()) < largest:
            losses.append(math.nan)
            status = Status.DIVERGED
            break
        losses.append(float(loss(patterns, data=data, beta=beta)))
        if method == "cd":
            continue
        if -rounding * (1.0 + abs(losses[-1])) <= losses[-2] - losses[-1] < tolerance:
            status = Status.CONVERGED
            break
    if method != "cd" and status is Status.STEP_LIMIT and losses[-1] > losses[0]:
        status = Status.DIVERGED
    found = Fit(
        value=patterns,
        residual=losses[-2] - losses[-1],
        steps=len(losses) - 1,
        status=status,
        losses=np.array(losses),
    )
    if throw:
        found.require("the patterns of largest likelihood")
    return found


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
