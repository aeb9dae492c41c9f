"""The generating functional of token paths, exact by enumeration.

[poclopez2024dynamical, Eqs. (9) and (10)]:
`Z(g) = Σ_paths Π_t p(x_{t+1} | x_{≤t}) exp(Σ g^α_{a,t} Σ_i W^α_ia x_{i,t})`. Z(0) = 1, and the
derivative at g = 0 is N⟨m^α_{a,t}⟩. Bits of a segment are exchangeable, so paths are enumerated
over the numbers of +1 bits in each segment, with binomial weights: for segments of one bit that
is the plain sum over 2^N states a token.

For N → ∞ the sum is dominated by a stationary point in the overlaps m and in conjugate fields m̂
[poclopez2024dynamical, App. A]; `saddle_point` finds it for finite g, too, where m̂ is not zero.

Two routes share no code: the sum over all paths (`PathSum`, differentiable by torch), and the
distribution of the window pushed forward step by step (`propagate`). Conventions of `tokens`:
windows (T, L) of segment means run from old to new, `position` is that of the newest token.
"""

from __future__ import annotations

import math

import numpy as np
import torch
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
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network
from spinformer.dmft.tokens import attention_of_window, window_means

_LARGEST_SUM = 2**21  # tokens, paths or windows that still fit comfortably in memory


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
    check_instance("network", network, Network)
    counts = network.counts(size)
    shape = tuple(int(count) + 1 for count in counts)
    number = float(np.prod(shape, dtype=float))
    if number > _LARGEST_SUM:
        raise ValueError(f"size must leave at most {_LARGEST_SUM} states, got {number:.3g}")
    ups = np.indices(shape).reshape(len(counts), -1).T
    return 2.0 * ups / counts - 1.0


def token_probabilities(
    network: Network, size: int, *, beta: float, attention: np.ndarray
) -> np.ndarray:
    """p(token | A), shape (..., S), for all S `token_states`, given A (..., P); sums to 1.

    [poclopez2024dynamical, Eq. (8)]. Raises ValueError for a negative β or another width.

    >>> table = token_probabilities(Network.document(), 3, beta=1.0, attention=np.zeros(3))
    >>> table  # eight states of three fair bits
    array([0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125])
    """
    check_instance("network", network, Network)
    counts = network.counts(size)
    states = token_states(network, size)
    chance = 0.5 * (1.0 + window_means(network, beta, attention=attention))[..., None, :]
    ups = np.rint(0.5 * (states + 1.0) * counts)
    return binom.pmf(ups, counts, chance).prod(axis=-1)


@record
class PathSum:
    """All paths of `steps` tokens of `size` bits after a fixed window.

    probability: (S**steps,) of each path.
    features: (S**steps, steps, 4, P) values of `Σ_i W^α_ia x_i` (semantic part, no 1 − ε).

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
        check_tensor(
            "source", source, shape=self.features.shape[1:], like=("features", self.features)
        )
        exponent = torch.einsum("ptra,tra->p", self.features, source)
        return (self.probability * torch.exp(exponent)).sum()

    def mean_features(self) -> torch.Tensor:
        """N⟨m^α_{a,t}⟩ as a plain average over the paths, shape (steps, 4, P)."""
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
    window, position, beta = _start(network, beta, window, position)
    steps = check_integer("steps", steps, low=1)
    states = token_states(network, size)
    if len(states) ** steps > _LARGEST_SUM:
        raise ValueError(
            f"steps must leave at most {_LARGEST_SUM} paths, got {len(states)}**{steps}"
        )
    probability = np.ones(1)
    paths = np.empty((1, 0), dtype=np.int64)
    for step in range(steps):
        known = np.broadcast_to(window, (len(paths), *window.shape))
        recent = np.concatenate([known, states[paths]], axis=1)[:, -network.context :]
        attention = attention_of_window(network, recent, position=position + step)
        table = token_probabilities(network, size, beta=beta, attention=attention)
        probability = (probability[:, None] * table).ravel()
        paths = np.concatenate(
            [
                np.repeat(paths, len(states), axis=0),
                np.tile(np.arange(len(states)), len(paths))[:, None],
            ],
            axis=1,
        )
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
    if count**context > _LARGEST_SUM:
        raise ValueError(f"size must leave at most {_LARGEST_SUM} windows, got {count}**{context}")
    # Tokens of the initial window are known; an axis exists only for tokens drawn since.
    joint = np.ones(())
    marginals = np.empty((steps, count))
    for step in range(steps):
        known = window[min(step, context) :]
        drawn = states[np.indices(joint.shape).reshape(joint.ndim, joint.size).T]
        fixed = np.broadcast_to(known, (len(drawn), *known.shape))
        recent = np.concatenate([fixed, drawn], axis=1)
        attention = attention_of_window(network, recent, position=position + step)
        kernel = token_probabilities(network, size, beta=beta, attention=attention)
        joint = joint[..., None] * kernel.reshape(*joint.shape, count)
        marginals[step] = joint.reshape(-1, count).sum(axis=0)
        if joint.ndim > context:
            joint = joint.sum(axis=0)
    return marginals


@record
class SaddlePoint(Solution[float]):
    """The stationary point that dominates Z(g) for N → ∞.

    value: the limit of (1/N) ln Z(g). overlaps: m (steps, 4, P), without 1 − ε. conjugate: m̂ of
    the same shape. residual: largest change of m̂ in the last step.
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
    """Solve for m and m̂ at `source` g (steps, 4, P): forward for m, backward for m̂, repeated.

    m_s = ⟨W tanh(H_s + θ_s)⟩ with H = β W^o A and θ = W (g + m̂), and
    m̂_s = ∂/∂m_s Σ_{s' > s} ⟨ln cosh(H_s' + θ_s') − ln cosh H_s'⟩. With g = 0 all m̂ vanish, and m
    is the mean field. Raises NotConverged (unless `throw` is False) where the iteration does not
    settle, ValueError for bad input.

    >>> at_rest = saddle_point(
    ...     Network.document(), np.zeros((2, 4, 3)), beta=1.0, window=np.zeros((4, 3))
    ... )
    >>> at_rest.value, bool(at_rest.conjugate.any())
    (0.0, False)
    """
    window, position, beta = _start(network, beta, window, position)
    source = check_array("source", source, shape=(None, 4, network.features))
    max_steps = check_integer("max_steps", max_steps, low=1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    steps, context = len(source), network.context
    weights = torch.tensor(network.semantic)
    fractions = torch.tensor(network.fractions)
    codes = (position + np.arange(1 - context, steps)) % network.positions
    place = torch.from_numpy(network.epsilon * network.position_overlaps()[codes])
    given = torch.from_numpy(network.overlaps(window))

    def field(past: torch.Tensor, step: int) -> torch.Tensor:
        """H (L,) of token `step`; past: the overlaps of the window and of all tokens before it."""
        known = past[step : step + context]
        m = (1.0 - network.epsilon) * known + place[step : step + context]
        weight = torch.softmax(network.gamma * (m[:, KEY] @ m[-1, QUERY]), dim=0)
        return beta * ((weight @ m[:, VALUE]) @ weights[OUTPUT])

    def log_cosh(x: torch.Tensor) -> torch.Tensor:
        return torch.logaddexp(x, -x) - math.log(2.0)

    def forward(tilt: torch.Tensor) -> torch.Tensor:
        past = given
        for step in range(steps):
            mean = torch.tanh(field(past, step) + tilt[step])
            new = torch.einsum("ral,l->ra", weights, fractions * mean)
            past = torch.cat([past, new[None]])
        return past[context:]

    sources = torch.tensor(source)
    conjugate = torch.zeros_like(sources)
    count, residual = 0, math.inf
    while residual > tolerance and count < max_steps:
        tilt = torch.einsum("tra,ral->tl", sources + conjugate, weights)
        overlaps = forward(tilt).requires_grad_()
        past = torch.cat([given, overlaps])
        fields = torch.stack([field(past, step) for step in range(steps)])
        action = ((log_cosh(fields + tilt) - log_cosh(fields)) @ fractions).sum()
        (following,) = torch.autograd.grad(action, overlaps)
        residual = float((following - conjugate).abs().max())
        conjugate, count = following, count + 1
    found = SaddlePoint(
        value=float(action.detach() - (conjugate * overlaps.detach()).sum()),
        residual=residual,
        steps=count,
        status=Status.CONVERGED if residual <= tolerance else Status.STEP_LIMIT,
        overlaps=overlaps.detach().numpy(),
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
