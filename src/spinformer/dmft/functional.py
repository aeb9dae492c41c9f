"""Sums over all tokens, windows and paths of a network of few bits: what the limit is a limit of.

The generating functional of token paths [poclopez2024dynamical, Eqs. (9) and (10)] is
`Z(g) = Σ_paths Π_t p(x_{t+1} | x_{≤t}) exp(Σ g^α_{a,t} Σ_i W^α_ia x_{i,t})`. Z(0) = 1, and the
derivative at g = 0 is N⟨m^α_{a,t}⟩. Bits of a segment are exchangeable, so a token of N bits is a
vector of counts, one of S = Π_l (n_l + 1), with binomial weights: for segments of one bit that is
the plain sum over 2^N states a token. A window is one of S^T states of a Markov chain: averages
over texts are sums over these, with no sampling and no expansion.

For N → ∞ the sum is dominated by a stationary point in the overlaps m and in conjugate fields m̂
[poclopez2024dynamical, App. A]; `saddle_point` finds it for finite g, too, where m̂ is not zero.

Two routes share no code: the sum over all paths (`PathSum`, differentiable by torch), and the
distribution of the window pushed forward step by step (`propagate`). Conventions of
`finite_size`: windows (T, L) of segment means run from old to new, `position` is that of the
newest token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize, root
from scipy.stats import binom

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.dmft.finite_size import attention_of_window, window_means
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

if TYPE_CHECKING:
    import torch

_LARGEST_SUM = 2**21  # tokens, paths or windows that still fit comfortably in memory
# Entries of the largest table, windows times tokens: a third of a gigabyte.
_LARGEST_TABLE = 40_000_000


def token_states(network: Network, size: int) -> np.ndarray:
    """Every distinguishable token of `size` bits as segment means, shape (S, L).

    `S = Π_l (n_l + 1)` for segments of n_l bits; the first segment varies slowest, each from −1
    to 1: for segments of one bit `core.states.spin_states`. Raises ValueError for more than 2²¹
    states.

    >>> token_states(Network.document(), 6)[[0, 1, 3, -1]]
    array([[-1., -1., -1.],
           [-1., -1.,  0.],
           [-1.,  0., -1.],
           [ 1.,  1.,  1.]])
    """
    counts = check_instance("network", network, Network).counts(size)
    shape = tuple(int(count) + 1 for count in counts)
    _bounded("size", _LARGEST_SUM, *shape)
    ups = np.indices(shape).reshape(len(counts), -1).T
    return 2.0 * ups / counts - 1.0


def _token_probabilities(
    network: Network, size: int, *, beta: float, attention: np.ndarray
) -> np.ndarray:
    """p(token | A), shape (..., S), for all S `token_states`, given A (..., P); sums to 1.

    [poclopez2024dynamical, Eq. (8)]. Raises ValueError for a negative β or another width.

    >>> table = _token_probabilities(Network.document(), 3, beta=1.0, attention=np.zeros(3))
    >>> table  # eight states of three fair bits
    array([0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125])
    """
    counts = check_instance("network", network, Network).counts(size)
    up = 0.5 * (1.0 + window_means(network, beta, attention=attention))
    table = np.ones((*up.shape[:-1], 1))
    for segment, bits in enumerate(counts):
        chance = binom.pmf(np.arange(bits + 1), bits, up[..., segment, None])
        table = (table[..., :, None] * chance[..., None, :]).reshape(*up.shape[:-1], -1)
    return table


def transition_probabilities(
    network: Network, size: int, *, beta: float, position: int
) -> np.ndarray:
    """Probability of every next token after every window, (S, …, S; S), oldest token first.

    `position` is that of the window's newest token. Raises ValueError where the table would be
    larger than 40 million entries.

    >>> signs, none = np.ones((4, 1, 1)), np.ones((4, 1, 0))
    >>> coin = Network(semantic=signs, position=none, context=1, gamma=1.0, epsilon=0.0)
    >>> transition_probabilities(coin, 1, beta=0.5, position=0).round(4)  # e^{±1/2} / 2 cosh(1/2)
    array([[0.7311, 0.2689],
           [0.2689, 0.7311]])
    """
    states = token_states(network, size)
    count, context = len(states), network.context
    _bounded("size", _LARGEST_TABLE, *(count,) * (context + 1))
    grid = np.indices((count,) * context).reshape(context, -1).T
    attention = attention_of_window(network, states[grid], position=position)
    table = _token_probabilities(network, size, beta=beta, attention=attention)
    return table.reshape(*(count,) * context, count)


@record
class PathSum:
    """All paths of `steps` tokens of `size` bits after a fixed window.

    probability: (S**steps,) of each path.
    features: (S**steps, steps, 4, P) values of `Σ_i W^α_ia x_i` (semantic part, no 1 − ε).

    >>> import torch
    >>> paths = enumerate_paths(
    ...     Network.document(), 3, beta=1.0, window=np.zeros((4, 3)), steps=2
    ... )
    >>> f"{float(paths.generating_functional(torch.zeros(2, 4, 3, dtype=torch.float64))):.9f}"
    '1.000000000'
    """

    size: int
    probability: torch.Tensor
    features: torch.Tensor

    def generating_functional(self, source: torch.Tensor) -> torch.Tensor:
        """Z(g), a scalar differentiable in `source` (float64) of shape (steps, 4, P)."""
        import torch

        check_tensor(
            "source", source, shape=self.features.shape[1:], like=("features", self.features)
        )
        exponent = torch.einsum("ptra,tra->p", self.features, source)
        return (self.probability * torch.exp(exponent)).sum()

    def mean_features(self) -> torch.Tensor:
        """N⟨m^α_{a,t}⟩ as a plain average over the paths, shape (steps, 4, P)."""
        import torch

        return torch.einsum("p,ptra->tra", self.probability, self.features)


def enumerate_paths(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    position: int | None = None,
) -> PathSum:
    """Probabilities and features of every path of `steps` tokens after `window` (T, L).

    Raises ValueError if there are more than 2²¹ paths.

    >>> paths = enumerate_paths(
    ...     Network.document(), 3, beta=1.0, window=np.zeros((4, 3)), steps=2
    ... )
    >>> len(paths.probability), f"{float(paths.probability.sum()):.9f}"
    (64, '1.000000000')
    """
    import torch

    window, position, beta = _start(network, beta, window, position)
    steps = check_integer("steps", steps, low=1)
    states = token_states(network, size)
    _bounded("steps", _LARGEST_SUM, *(len(states),) * steps)
    probability = np.ones(1)
    paths = np.empty((1, 0), dtype=np.int64)
    for step in range(steps):
        known = np.broadcast_to(window, (len(paths), *window.shape))
        recent = np.concatenate([known, states[paths]], axis=1)[:, -network.context :]
        attention = attention_of_window(network, recent, position=position + step)
        table = _token_probabilities(network, size, beta=beta, attention=attention)
        probability = (probability[:, None] * table).ravel()
        new = np.tile(np.arange(len(states)), len(paths))
        paths = np.column_stack([np.repeat(paths, len(states), axis=0), new])
    overlaps = size * network.overlaps(states)
    return PathSum(
        size=size,
        probability=torch.from_numpy(probability),
        features=torch.from_numpy(overlaps[paths]),
    )


def propagate(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    position: int | None = None,
) -> np.ndarray:
    """Exact distribution of each single token, shape (steps, S): no path is ever written out.

    The window of T tokens is a Markov chain; its distribution, an array of T axes of length S
    (at most 2²¹ entries; ValueError beyond), is pushed forward one token at a time from the
    given `window`.

    >>> chain = propagate(
    ...     Network.document(), 3, beta=0.0, window=np.zeros((4, 3)), steps=2
    ... )
    >>> chain.shape, bool(np.allclose(chain, 1 / 8))  # fair bits at β = 0
    ((2, 8), True)
    """
    window, position, beta = _start(network, beta, window, position)
    steps = check_integer("steps", steps, low=1)
    states = token_states(network, size)
    context, count = network.context, len(states)
    _bounded("size", _LARGEST_SUM, *(count,) * context)
    # Tokens of the initial window are known; an axis exists only for tokens drawn since.
    joint = np.ones(())
    marginals = np.empty((steps, count))
    for step in range(steps):
        known = window[min(step, context) :]
        drawn = states[np.indices(joint.shape).reshape(joint.ndim, joint.size).T]
        fixed = np.broadcast_to(known, (len(drawn), *known.shape))
        recent = np.concatenate([fixed, drawn], axis=1)
        attention = attention_of_window(network, recent, position=position + step)
        kernel = _token_probabilities(network, size, beta=beta, attention=attention)
        joint = joint[..., None] * kernel.reshape(*joint.shape, count)
        marginals[step] = joint.reshape(-1, count).sum(axis=0)
        if joint.ndim > context:
            joint = joint.sum(axis=0)
    return marginals


@record
class SaddlePoint(Solution[float]):
    """The stationary point that dominates Z(g) for N → ∞.

    value: the limit of (1/N) ln Z(g). overlaps: m (steps, 4, P), without 1 − ε. conjugate: m̂ of
    the same shape. residual: largest difference of a token's tilt and θ. steps: of the ascent.
    """

    overlaps: np.ndarray
    conjugate: np.ndarray


def saddle_point(
    network: Network,
    source: np.ndarray,
    *,
    beta: float,
    window: np.ndarray,
    position: int | None = None,
    max_steps: int = 1000,
    tolerance: float = 1e-12,
    throw: bool = True,
) -> SaddlePoint:
    """Solve for m and m̂ at `source` g (steps, 4, P), by climbing to the largest exponent.

    m_s = ⟨W tanh(H_s + θ_s)⟩ with H = β W^o A and θ = W (g + m̂), and
    m̂_s = ∂/∂m_s Σ_{s' > s} ⟨ln cosh(H_s' + θ_s') − ln cosh H_s'⟩. With g = 0 all m̂ vanish, and m
    is the mean field. For tokens of means μ the exponent is Σ_s ⟨(W g_s) μ_s − D(μ_s | tanh H_s)⟩,
    D the relative entropy of two bits; its largest value dominates Z. It is climbed to from the
    tokens that m̂ = 0 gives, in at most `max_steps` steps (0: these tokens themselves). Raises
    NotConverged (unless `throw` is False) where it does not settle, ValueError for bad input.

    >>> at_rest = saddle_point(
    ...     Network.document(), np.zeros((2, 4, 3)), beta=1.0, window=np.zeros((4, 3))
    ... )
    >>> abs(at_rest.value), bool(at_rest.conjugate.any())
    (0.0, False)
    """
    import torch

    window, position, beta = _start(network, beta, window, position)
    source = check_array("source", source, shape=(None, 4, network.features))
    max_steps = check_integer("max_steps", max_steps, low=0)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    steps, context = len(source), network.context
    weights = torch.tensor(network.semantic)
    fractions = torch.tensor(network.fractions)
    codes = (position + np.arange(1 - context, steps)) % network.positions
    place = torch.from_numpy(network.epsilon * network.position_overlaps()[codes])
    given = torch.from_numpy(network.overlaps(window))
    push = torch.einsum("tra,ral->tl", torch.from_numpy(source), weights)

    def field(past: torch.Tensor, step: int) -> torch.Tensor:
        """H (L,) of token `step`; past: the overlaps of the window and of all tokens before it."""
        known = past[step : step + context]
        m = (1.0 - network.epsilon) * known + place[step : step + context]
        weight = torch.softmax(network.gamma * (m[:, KEY] @ m[-1, QUERY]), dim=0)
        return beta * ((weight @ m[:, VALUE]) @ weights[OUTPUT])

    def overlaps_of(means: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ral,...l->...ra", weights * fractions, means)

    def log_cosh(x: torch.Tensor) -> torch.Tensor:
        return torch.logaddexp(x, -x) - math.log(2.0)

    def fields_of(overlaps: torch.Tensor) -> torch.Tensor:
        past = torch.cat([given, overlaps])
        return torch.stack([field(past, step) for step in range(steps)])

    def loss(x: torch.Tensor) -> torch.Tensor:
        """Minus the exponent at μ = tanh x."""
        x = x.reshape(steps, -1)
        fields = fields_of(overlaps_of(torch.tanh(x)))
        entropy = torch.tanh(x) * (x - fields) - log_cosh(x) + log_cosh(fields)
        return ((entropy - push * torch.tanh(x)) @ fractions).sum()

    def tilts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """m, m̂, and by how much x − H misses θ."""
        m = overlaps_of(torch.tanh(x)).requires_grad_()
        fields = fields_of(m)
        tilt = x - fields.detach()
        action = ((log_cosh(fields + tilt) - log_cosh(fields)) @ fractions).sum()
        (conjugate,) = torch.autograd.grad(action, m)
        off = push + torch.einsum("tra,ral->tl", conjugate, weights) - tilt
        return m.detach(), conjugate, off

    def slope(y: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(y, requires_grad=True)
        value = loss(x)
        return float(value.detach()), torch.autograd.grad(value, x)[0].numpy()

    past = given
    for step in range(steps):
        new = overlaps_of(torch.tanh(field(past, step) + push[step]))
        past = torch.cat([past, new[None]])
    x, count = fields_of(past[context:]) + push, 0
    if max_steps:
        # To the right hill; then to its top, whose last digits the exponent does not see.
        climbed = minimize(slope, x.numpy().ravel(), jac=True, options={"maxiter": max_steps})
        solved = root(
            lambda y: tilts(torch.from_numpy(y).reshape(x.shape))[2].numpy().ravel(),
            climbed.x,
            options={"xtol": 1e-15, "maxfev": max(1, max_steps - climbed.nit)},
        )
        x, count = torch.from_numpy(solved.x).reshape(x.shape), climbed.nit + solved.nfev
    overlaps, conjugate, off = tilts(x)
    residual = float(off.abs().max())
    found = SaddlePoint(
        value=-float(loss(x)),
        residual=residual,
        steps=count,
        status=Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT,
        overlaps=overlaps.numpy(),
        conjugate=conjugate.numpy(),
    )
    if check_flag("throw", throw):
        found.require("the saddle point of the generating functional")
    return found


def _start(
    network: Network, beta: float, window: np.ndarray, position: int | None
) -> tuple[np.ndarray, int, float]:
    check_instance("network", network, Network)
    window = check_array(
        "window", window, shape=(network.context, network.segments), low=-1.0, high=1.0
    )
    beta = check_real("beta", beta, low=0.0)
    position = network.context - 1 if position is None else check_integer("position", position)
    return window, position, beta


def _bounded(name: str, most: int, *axes: int) -> None:
    number = math.prod(map(float, axes))
    if number > most:
        raise ValueError(f"{name} must leave at most {most} terms of a sum, got {number:.3g}")
