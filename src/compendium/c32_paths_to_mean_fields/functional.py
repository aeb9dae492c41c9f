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
distribution of the window pushed forward step by step (`propagate`). Conventions of `finite_size`:
windows (T, L) of segment means run from old to new, `position` is that of the newest token.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize, root
from scipy.stats import binom

from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.dmft.finite_size import attention_of_window, token_probabilities, token_states
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

# By how much the tilt of a token may miss θ.
_FOUND = 1e-12
# Paths or windows that still fit comfortably in memory.
_MOST_TERMS = 2**21


def _check_terms(name: str, states: int, tokens: int) -> None:
    """ValueError where a sum over all `states` of each of so many tokens has too many terms."""
    number = float(states) ** tokens
    if number > _MOST_TERMS:
        raise ValueError(f"{name} must leave at most {_MOST_TERMS} terms, got {number:.3g}")


@record
class PathSum:
    """All paths of `steps` tokens of `size` bits after a fixed window.

    probability: (S**steps,) of each path.
    features: (S**steps, steps, 4, P) values of `Σ_i W^α_ia x_i` (semantic part, no 1 − ε).
    """

    probability: torch.Tensor
    features: torch.Tensor

    def generating_functional(self, source: torch.Tensor) -> torch.Tensor:
        """Z(g), a scalar differentiable in `source` (float64) of shape (steps, 4, P)."""
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
    """Probabilities and features of every path of `steps` tokens after `window` (T, L)."""
    position = network.context - 1 if position is None else position
    states = token_states(network, size)
    _check_terms("steps", len(states), steps)
    probability = np.ones(1)
    paths = np.empty((1, 0), dtype=np.int64)
    for step in range(steps):
        known = np.broadcast_to(window, (len(paths), *window.shape))
        recent = np.concatenate([known, states[paths]], axis=1)[:, -network.context :]
        attention = attention_of_window(network, recent, position=position + step)
        table = token_probabilities(network, size, beta=beta, attention=attention)
        probability = (probability[:, None] * table).ravel()
        new = np.tile(np.arange(len(states)), len(paths))
        paths = np.column_stack([np.repeat(paths, len(states), axis=0), new])
    overlaps = size * network.overlaps(states)
    return PathSum(
        probability=torch.from_numpy(probability), features=torch.from_numpy(overlaps[paths])
    )


def propagate(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    position: int | None = None,
    draw_window: bool = False,
) -> np.ndarray:
    """Exact distribution of each single token, shape (steps, S): no path is ever written out.

    The window of T tokens is a Markov chain; its distribution is an array of T axes of length S,
    at most 2²¹ entries. With `draw_window` the window holds means that its tokens are drawn from,
    and their distributions come first: (T + steps, S).
    """
    position = network.context - 1 if position is None else position
    states = token_states(network, size)
    context, count = network.context, len(states)
    _check_terms("size", count, context)
    joint, marginals = np.ones(()), []
    if draw_window:
        for token in window:
            chance = np.ones(1)
            for mean, bits in zip(token, network.counts(size), strict=True):
                ups = binom.pmf(np.arange(bits + 1), bits, 0.5 * (1.0 + mean))
                chance = np.outer(chance, ups).ravel()
            marginals.append(chance)
            joint = joint[..., None] * chance
    for step in range(steps):
        # Of a window that is known there is an axis only for tokens drawn since.
        known = window[joint.ndim :]
        drawn = states[np.indices(joint.shape).reshape(joint.ndim, joint.size).T]
        fixed = np.broadcast_to(known, (len(drawn), *known.shape))
        recent = np.concatenate([fixed, drawn], axis=1)
        attention = attention_of_window(network, recent, position=position + step)
        kernel = token_probabilities(network, size, beta=beta, attention=attention)
        joint = joint[..., None] * kernel.reshape(*joint.shape, count)
        marginals.append(joint.reshape(-1, count).sum(axis=0))
        if joint.ndim > context:
            joint = joint.sum(axis=0)
    return np.array(marginals)


@record
class SaddlePoint:
    """The stationary point that dominates Z(g) for N → ∞.

    value: the limit of (1/N) ln Z(g). overlaps: m (steps, 4, P), without 1 − ε. conjugate: m̂ of
    the same shape.
    """

    value: float
    overlaps: np.ndarray
    conjugate: np.ndarray


def saddle_point(
    network: Network,
    source: np.ndarray,
    *,
    beta: float,
    window: np.ndarray,
    position: int | None = None,
    climb: bool = True,
) -> SaddlePoint:
    """Solve for m and m̂ at `source` g (steps, 4, P), by climbing to the largest exponent.

    m_s = ⟨W tanh(H_s + θ_s)⟩ with H = β W^o A and θ = W (g + m̂), and m̂_s = ∂/∂m_s Σ_{s' > s} ⟨ln
    cosh(H_s' + θ_s') − ln cosh H_s'⟩. With g = 0 all m̂ vanish, and m is the mean field. For tokens
    of means μ the exponent is Σ_s ⟨(W g_s) μ_s − D(μ_s | tanh H_s)⟩, D the relative entropy of two
    bits; its largest value dominates Z. It is climbed to from the tokens that m̂ = 0 gives; without
    `climb` these are returned. NotConverged where the tilt of a token misses θ by above 1e-12.
    """
    position = network.context - 1 if position is None else position
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
    x = fields_of(past[context:]) + push
    if climb:
        # To the right hill; then to its top, whose last digits the exponent does not see.
        climbed = minimize(slope, x.numpy().ravel(), jac=True, options={"maxiter": 1000})
        solved = root(
            lambda y: tilts(torch.from_numpy(y).reshape(x.shape))[2].numpy().ravel(),
            climbed.x,
            options={"xtol": 1e-15, "maxfev": 1000},
        )
        x = torch.from_numpy(solved.x).reshape(x.shape)
    overlaps, conjugate, off = tilts(x)
    if climb and not off.abs().max() <= _FOUND:
        raise NotConverged("the saddle point of the generating functional was not found")
    return SaddlePoint(
        value=-float(loss(x)), overlaps=overlaps.numpy(), conjugate=conjugate.numpy()
    )
