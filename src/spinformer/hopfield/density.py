"""The continuous memory as a normalized probability model, p(ξ) = e^{−βE(ξ)}/Z.

E(ξ) = ½‖ξ‖² − β⁻¹ lse(β x_i·ξ) is `continuous.energy`. Because e^{−βE} = Σ_i exp(β x_i·ξ − ½β‖ξ‖²)
= Σ_i e^{β‖x_i‖²/2} exp(−½β‖ξ − x_i‖²),

    Z = (2π/β)^{d/2} Σ_i e^{β‖x_i‖²/2},     p(ξ) = Σ_i w_i N(ξ; x_i, 1/β),
    w = softmax(½β‖x_i‖²)        [bal2020energy, Eqs. (13), (16), (17), at β = 1].

The density is a mixture of N equal Gaussians whose weights are tied to the norms of the means. It
is fitted by the exact negative log-likelihood [bal2020energy, Eqs. (14), (18)]. Patterns, (N, d),
states, (…, d), and data, (M, d), are rows of floating-point torch tensors. Everything is
differentiable unless said otherwise.
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
    r"""Log mixture weights of the Gaussians that a continuous memory consists of.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.

    Returns
    -------
    Tensor, shape (N,)
        Natural logarithm of each weight. The weights sum to 1.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----

    .. math::

        \ln w_i = \log \operatorname{softmax}_i(\tfrac12 \beta \lVert x_i \rVert^2).

    References
    ----------
    [bal2020energy, Eq. (16)], where β is 1.

    Examples
    --------
    >>> log_weights(torch.eye(2)).exp()
    tensor([0.5000, 0.5000])
    """
    patterns = check_patterns(patterns)
    beta = check_beta(beta)
    exponents = 0.5 * beta * (patterns**2).sum(-1)
    return check_result("log weights", torch.log_softmax(exponents, -1))


def log_partition(patterns: Tensor, *, beta: float = 1.0) -> Tensor:
    r"""Log partition function of a continuous memory.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.

    Returns
    -------
    Tensor, shape ()
        The logarithm of Z.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----

    .. math::

        \log Z = \tfrac{d}{2} \log \frac{2\pi}{\beta} + \log \sum_i \exp(\tfrac12 \beta \lVert x_i
        \rVert^2).

    References
    ----------
    [bal2020energy, Eq. (17)], where β is 1.

    Examples
    --------
    >>> log_partition(torch.zeros(1, 2), beta=2 * math.pi)
    tensor(0.)
    """
    patterns = check_patterns(patterns)
    beta = check_beta(beta)
    constant = 0.5 * patterns.shape[1] * math.log(2 * math.pi / beta)
    exponents = 0.5 * beta * (patterns**2).sum(-1)
    return check_result("log partition", constant + torch.logsumexp(exponents, -1))


def log_prob(patterns: Tensor, *, states: Tensor, beta: float = 1.0) -> Tensor:
    r"""Log-likelihood of states under the density of a continuous memory.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    states : Tensor, shape (..., d)
        States, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.

    Returns
    -------
    Tensor, shape (...)
        Normalized log density of each state, in nats.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----

    .. math::

        \log p(\xi) = -\beta E(\xi) - \log Z.

    The density is a mixture of N Gaussians of variance 1/β whose means are the patterns.

    References
    ----------
    [bal2020energy, Eqs. (13), (16), (17)], where β is 1.

    Examples
    --------
    >>> f"{log_prob(torch.zeros(1, 2), states=torch.tensor([1.0, 0.0]), beta=2 * math.pi):.4f}"
    '-3.1416'
    """
    beta = check_beta(beta)
    energies = energy(patterns, states=states, beta=beta)
    return -beta * energies - log_partition(patterns, beta=beta)


@torch.no_grad()
def sample(patterns: Tensor, *, count: int, beta: float = 1.0, seed: TorchSeed = 0) -> Tensor:
    """Exact, independent samples from the density of a continuous memory.

    Each sample is a pattern that is drawn by its mixture weight, plus Gaussian noise of variance
    1/β. There is no gradient.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    count : int
        Number of samples, at least 1.
    beta : float, default 1.0
        Inverse temperature, positive.
    seed : int or torch.Generator, default 0
        Source of the random numbers.

    Returns
    -------
    Tensor, shape (count, d)
        The samples, one a row.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Examples
    --------
    >>> sample(torch.zeros(1, 2), count=3).shape
    torch.Size([3, 2])
    """
    patterns = check_patterns(patterns)
    beta = check_beta(beta)
    count = check_integer("count", count, low=1)
    generator = torch_generator(seed, device=patterns.device)
    weights = log_weights(patterns, beta=beta).exp()
    drawn = torch.multinomial(weights, count, replacement=True, generator=generator)
    means = patterns[drawn]
    noise = torch.empty_like(means).normal_(generator=generator)
    return check_result("sample", means + noise / math.sqrt(beta))


def _check_sample(patterns: Tensor, data: Tensor, beta: float) -> tuple[Tensor, Tensor, float]:
    patterns = check_patterns(patterns)
    shape = ("M", patterns.shape[1])
    data = check_tensor("data", data, like=("patterns", patterns), shape=shape)
    return patterns, data, check_beta(beta)


# -- learning the patterns -------------------------------------------------------------------


def loss(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    r"""Negative log-likelihood of data under the density of a continuous memory.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    data : Tensor, shape (M, d)
        Data, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.

    Returns
    -------
    Tensor, shape ()
        The mean of −log p over the data, in nats.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----

    .. math::

        L(X) = -\frac1M \sum_{\mu=1}^M \log p(\xi_\mu).

    References
    ----------
    [bal2020energy, Eqs. (14), (18)]

    Examples
    --------
    >>> f"{loss(torch.zeros(1, 2), data=torch.ones(3, 2), beta=2 * math.pi):.4f}"
    '6.2832'
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    return -log_prob(patterns, states=data, beta=beta).mean()


def loss_gradient(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    r"""Gradient of the negative log-likelihood with respect to the patterns, in closed form.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row.
    data : Tensor, shape (M, d)
        Data, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.

    Returns
    -------
    Tensor, shape (N, d)
        The gradient, one row for each pattern.

    Raises
    ------
    TypeError
        If an argument is not a floating-point tensor or a number, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the result overflows its dtype.

    Notes
    -----
    Row i is the difference of the model's and the data's force on pattern i,

    .. math::

        \frac{\partial L}{\partial x_i} = \beta\, (w_i x_i - s_i), \qquad s_i = \frac1M \sum_\mu
        \operatorname{softmax}_i(\beta X \xi_\mu)\, \xi_\mu.

    In the source's layout, with patterns as columns, this is −β E[ξ ⊗ softmax(βXᵀξ)] + β X
    diag(softmax(½β diag XᵀX)). The source prints the second term without the outer diag, which
    would be one vector of length d in place of a d × N matrix.

    References
    ----------
    [bal2020energy, Eq. (19)]

    Examples
    --------
    >>> loss_gradient(torch.zeros(1, 2), data=torch.ones(3, 2))
    tensor([[-1., -1.]])
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    weights = log_weights(patterns, beta=beta).exp()
    moments = _sufficient_statistics(patterns, data, beta)
    return check_result("gradient", beta * (weights[:, None] * patterns - moments))


@torch.no_grad()
def _em_update(patterns: Tensor, *, data: Tensor, beta: float = 1.0) -> Tensor:
    """One expectation–maximisation step under the tied weights, (N, d); never raises `loss`.

    With s_i = mean of softmax_i(βXξ) ξ held, the expected complete log-likelihood
    β Σ_i x_i·s_i − lse(½β‖x_i‖²) is concave in X. At its maximum w_i x_i = s_i, so x_i points
    along s_i and its length t_i solves t_i e^{βt_i²/2} = ‖s_i‖ S, S = Σ_j e^{βt_j²/2}: one monotone
    equation for S. A pattern with s_i = 0 goes to 0.
    """
    moments = _sufficient_statistics(patterns, data, beta)
    lengths = check_result("mean", moments.norm(dim=-1))
    target = _lengths(lengths.double().cpu().numpy(), beta)
    scale = torch.as_tensor(target, dtype=moments.dtype, device=moments.device)
    return moments * (scale / lengths.clamp_min(torch.finfo(moments.dtype).tiny))[:, None]


@record
class EMResult(Solution[Tensor]):
    """Result of the expectation–maximization (EM) fit of a continuous memory.

    Attributes
    ----------
    value : Tensor, shape (N, d)
        Patterns after the last step.
    residual : float
        Decrease of the loss in the last step, in nats.
    steps : int
        Number of EM steps.
    status : Status
        CONVERGED if the last decrease was smaller than the tolerance and the loss did not rise,
        otherwise STEP_LIMIT.
    losses : ndarray, shape (steps + 1,)
        Negative log-likelihood of the data before the first step and after every step, in nats.
    """

    losses: np.ndarray

    @property
    def patterns(self) -> Tensor:
        """Fitted patterns, shape (N, d)."""
        return self.value


def fit_em(
    patterns: Tensor,
    *,
    data: Tensor,
    beta: float = 1.0,
    max_steps: int = 500,
    tolerance: float = 1e-10,
) -> EMResult:
    r"""Maximum-likelihood patterns of a continuous memory, by expectation–maximization (EM).

    The iteration has no step size and never raises the loss. It stops when a step lowers the loss
    by less than `tolerance`. For gradient descent use `loss_gradient`.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Initial patterns, one a row.
    data : Tensor, shape (M, d)
        Data, one a row.
    beta : float, default 1.0
        Inverse temperature, positive.
    max_steps : int, default 500
        Largest number of EM steps, at least 1.
    tolerance : float, default 1e-10
        Decrease of the loss, in nats, below which the fit counts as converged. It is not negative.

    Returns
    -------
    EMResult
        Fitted patterns, and the loss after every step.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or β times the squared length of a pattern
        or datum exceeds 1e12.

    Notes
    -----
    With s_i the mean over the data of softmax_i(β X ξ) ξ, the new pattern points along s_i and its
    length solves

    .. math::

        \operatorname{softmax}_i(\tfrac12 \beta \lVert x \rVert^2)\; x_i = s_i.

    The lengths of all patterns follow from one monotone equation for their common normalization.

    References
    ----------
    [bal2020energy, Eqs. (18), (20)], where the likelihood is maximized by gradient descent.

    Examples
    --------
    >>> result = fit_em(torch.ones(1, 2), data=torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    >>> result.patterns, bool(result.converged)
    (tensor([[2., 0.]]), True)
    """
    patterns, data, beta = _check_sample(patterns, data, beta)
    max_steps = check_integer("max_steps", max_steps, low=1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    patterns = patterns.detach().clone()
    data = data.detach()
    squares = torch.cat([patterns, data]).double().square().sum(-1)
    largest = beta * float(squares.max())
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
        decrease = losses[-2] - losses[-1]
        if -rounding * (1.0 + abs(losses[-1])) <= decrease < tolerance:
            status = Status.CONVERGED
    return EMResult(
        value=patterns,
        residual=losses[-2] - losses[-1],
        steps=len(losses) - 1,
        status=status,
        losses=np.array(losses),
    )


def _sufficient_statistics(patterns: Tensor, data: Tensor, beta: float) -> Tensor:
    """s_i = mean over the data of softmax_i(β X ξ) ξ, shape (N, d)."""
    return torch.softmax(beta * data @ patterns.T, -1).T @ data / data.shape[0]


def _lengths(moments: np.ndarray, beta: float) -> np.ndarray:
    """t_i ≥ 0 with t_i softmax_i(½βt²) = `moments`_i; β is scaled away by t → √β t."""
    active = moments > 0
    result = np.zeros_like(moments)
    if not active.any():
        return result
    log_moments = np.log(math.sqrt(beta) * moments[active])

    def squares(log_z: float) -> np.ndarray:
        # t e^{t²/2} = sZ  ⇔  t² e^{t²} = (sZ)²  ⇔  t² = W₀((sZ)²) = ω(2 ln s + 2 ln Z).
        return wrightomega(2.0 * (log_moments + log_z))

    # Inactive patterns sit at t = 0 and contribute e⁰ each to Z.
    idle = np.count_nonzero(~active)

    def excess(log_z: float) -> float:
        # Σ e^{t²/2} + idle = Z, divided by Z; falls with Z, since e^{t²/2}/Z = s/t.
        total = np.exp(0.5 * squares(log_z) - log_z).sum() + idle * math.exp(-log_z)
        return float(total - 1.0)

    low = math.log(moments.size)
    high = low + 1.0
    while excess(high) > 0:
        high += high - low
    # Σ e^{t²/2} ≥ N: with Z = N, the smallest value there is, all lengths vanish.
    root = low if excess(low) <= 0 else brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16)
    result[active] = np.sqrt(squares(root) / beta)
    return result
