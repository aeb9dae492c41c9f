"""Sums over all tokens, windows and paths of a network of few bits: what the limit is a limit of.

Z(g) is the generating functional of token paths, with sources g^α_{a,t} of Σ_i W^α_ia x_{i,t}
[poclopez2024dynamical, Eqs. (9) and (10)]. Bits of a segment are exchangeable, so a token of N bits
is one of S = Π_l (n_l + 1) vectors of counts.

Windows (T, L) of segment means run from old to new; the newest has the position T − 1, or
`position`.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from scipy.optimize import minimize, root
from scipy.stats import binom

from spinformer.core.checks import check_array
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.core.states import spin_states
from spinformer.dmft.finite_size import attention_of_window, token_probabilities, token_states
from spinformer.dmft.mean_field import token_overlaps
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Context, Network

_FOUND = 1e-12  # largest slope of the exponent at its top
_MOST_TERMS = 2**21  # paths or windows that still fit comfortably in memory


def _check_terms(name: str, states: np.ndarray, tokens: int) -> None:
    number = float(len(states)) ** tokens
    if number > _MOST_TERMS:
        raise ValueError(f"{name} must leave at most {_MOST_TERMS} terms, got {number:.3g}")


def _texts(joint: np.ndarray, states: np.ndarray) -> np.ndarray:
    """The tokens (S**n, n, L) that a joint distribution (S, ..., S) of n tokens is of, in order."""
    return states[np.indices(joint.shape).reshape(joint.ndim, joint.size).T]


def _one_more(
    joint: np.ndarray, network: Network, size: int, *, beta: float, window: np.ndarray, at: int
) -> np.ndarray:
    """A joint distribution (S, ..., S) with one token more, after the position `at`."""
    drawn = _texts(joint, token_states(network, size))
    fixed = np.broadcast_to(window, (len(drawn), *window.shape))
    recent = np.concatenate([fixed, drawn], axis=1)[:, -network.context :]
    attention = attention_of_window(network, recent, position=at)
    kernel = token_probabilities(network, size, beta=beta, attention=attention)
    return joint[..., None] * kernel.reshape(*joint.shape, -1)


@record
class PathSum:
    """All paths after a fixed window: their probability (S**steps,), and Σ_i W^α_ia x_i of each.

    features: (S**steps, steps, 4, P), the semantic part without 1 − ε.
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
    network: Network, size: int, *, beta: float, window: np.ndarray, steps: int
) -> PathSum:
    """Probabilities and features of every path of `steps` tokens after `window` (T, L)."""
    states = token_states(network, size)
    joint = np.ones(())
    position = network.context - 1
    _check_terms("steps", states, steps)
    for step in range(steps):
        joint = _one_more(joint, network, size, beta=beta, window=window, at=position + step)
    return PathSum(
        probability=torch.from_numpy(joint.ravel()),
        features=torch.from_numpy(size * network.overlaps(_texts(joint, states))),
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

    The window is a Markov chain; its distribution is an array of T axes of length S. With
    `draw_window` it holds means that its tokens are drawn from, and their distributions come first.
    """
    position = network.context - 1 if position is None else position
    _check_terms("size", token_states(network, size), network.context)
    joint: np.ndarray = np.ones(())
    marginals = []
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
        joint = _one_more(joint, network, size, beta=beta, window=window, at=position + step)
        marginals.append(joint.reshape(-1, joint.shape[-1]).sum(axis=0))
        if joint.ndim > network.context:
            joint = joint.sum(axis=0)
    return np.array(marginals)


@record
class SaddlePoint:
    """value: the limit of (1/N) ln Z(g) for N → ∞; bare: the exponent without conjugate fields.

    overlaps: m (steps, 4, P), without 1 − ε; conjugate: m̂.
    """

    value: float
    bare: float
    overlaps: np.ndarray
    conjugate: np.ndarray


def saddle_point(
    network: Network, source: np.ndarray, *, beta: float, window: np.ndarray
) -> SaddlePoint:
    """Solve for m and m̂ [poclopez2024dynamical, App. A] at `source` g (steps, 4, P).

    For tokens of means μ = tanh x and fields H = β W^o A the exponent is Σ_s ⟨(W g_s) μ_s −
    D(μ_s | tanh H_s)⟩, D the relative entropy of two bits. It is climbed to its top from the tokens
    that m̂ = 0 gives. NotConverged where its slope stays above 1e-12.
    """
    context = network.context
    share = network.epsilon
    weights = torch.tensor(network.semantic)
    fractions = torch.tensor(network.fractions)
    codes = np.arange(context + len(source) - 1) % network.positions
    place = torch.from_numpy(share * network.position_overlaps()[codes])
    given = torch.from_numpy(network.overlaps(window))
    push = torch.einsum("tra,ral->tl", torch.from_numpy(source), weights)

    def overlaps_of(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ral,tl->tra", weights * fractions, torch.tanh(x))

    def fields_of(overlaps: torch.Tensor) -> torch.Tensor:
        """H (steps, L) of tokens with these overlaps."""
        past = (1.0 - share) * torch.cat([given, overlaps[:-1]]) + place
        recent = past.unfold(0, context, 1)
        score = torch.einsum("sbt,sb->st", recent[:, KEY], recent[:, QUERY, :, -1])
        weight = torch.softmax(network.gamma * score, dim=1)
        return beta * torch.einsum("st,sat->sa", weight, recent[:, VALUE]) @ weights[OUTPUT]

    def log_cosh(x: torch.Tensor) -> torch.Tensor:
        return torch.logaddexp(x, -x) - math.log(2.0)

    def loss(y: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the exponent at x, and its slope."""
        x = torch.tensor(y.reshape(push.shape), requires_grad=True)
        fields = fields_of(overlaps_of(x))
        entropy = torch.tanh(x) * (x - fields) - log_cosh(x) + log_cosh(fields)
        value = ((entropy - push * torch.tanh(x)) @ fractions).sum()
        return float(value.detach()), torch.autograd.grad(value, x)[0].numpy().ravel()

    x = push
    for _ in source:  # each makes one token more what the earlier ones say
        x = fields_of(overlaps_of(x)) + push
    start = x.numpy().ravel()
    # To the right hill; then to its top, whose last digits the exponent does not see.
    climbed = minimize(loss, start, jac=True, options={"maxiter": 1000}).x
    top = root(lambda y: loss(y)[1], climbed, options={"xtol": 1e-15, "maxfev": 1000}).x
    value, slope = loss(top)
    if not np.abs(slope).max() <= _FOUND:
        raise NotConverged("the saddle point of the generating functional was not found")
    x = torch.from_numpy(top.reshape(push.shape))
    m = overlaps_of(x).requires_grad_()
    fields = fields_of(m)
    action = ((log_cosh(fields + (x - fields.detach())) - log_cosh(fields)) @ fractions).sum()
    conjugate = torch.autograd.grad(action, m)[0].numpy()
    overlaps = m.detach().numpy()
    bare = -loss(start)[0]
    return SaddlePoint(value=-value, bare=bare, overlaps=overlaps, conjugate=conjugate)


def odd_correlations(network: Network) -> dict[tuple[int, ...], np.ndarray]:
    """C^α_{S,a} = ⟨Π_{b∈S} W^o_b · W^α_a⟩ over the bits, (4, P), for every odd set S of features.

    ValueError for output features that are not signs.
    """
    output = check_array("semantic[OUTPUT]", network.semantic[OUTPUT], values=(-1.0, 1.0))
    weighted = network.semantic * network.fractions
    return {
        subset: weighted @ output[list(subset)].prod(axis=0)
        for size in range(1, network.features + 1, 2)
        for subset in combinations(range(network.features), size)
    }


def overlaps_correlations(
    correlations: Mapping[tuple[int, ...], np.ndarray], attention: np.ndarray, *, beta: float
) -> np.ndarray:
    """Overlaps from `odd_correlations` alone, for any P [poclopez2024dynamical, Eq. (29)].

    2^{−P} Σ_{σ∈{±1}^P} [Σ_{S odd} (Π_{b∈S} σ_b) C^α_{S,a}] tanh(β Σ_b σ_b A_b); tanh is odd, so the
    half with σ_1 = 1 counts twice.
    """
    features = attention.shape[-1]
    rest = spin_states(features - 1)[::-1]
    signs = np.column_stack([np.ones(len(rest)), rest])
    parity = np.array([signs[:, list(subset)].prod(axis=1) for subset in correlations])
    moments = np.array(list(correlations.values()))
    readout = np.einsum("sra,sn->ran", moments, parity) / 2 ** (features - 1)
    return np.einsum("ran,...n->...ra", readout, np.tanh(beta * (attention @ signs.T)))


def step_operations(network: Network, context: Context, *, beta: float) -> tuple[np.ndarray, int]:
    """One step of the mean field in plain loops, counted: the new attention (P,), operations.

    What older tokens project onto is known; β and the fractions are in the weights beforehand.
    """
    output = beta * network.semantic[OUTPUT].T  # (L, P)
    weights = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()[context.position]
    count = 0

    def dot(left: Sequence[float], right: Sequence[float]) -> float:
        nonlocal count
        count += 2 * len(left) - 1
        return sum(a * b for a, b in zip(left, right, strict=True))

    bits = [math.tanh(dot(row, context.attention[0])) for row in output]
    count += len(bits)
    known = token_overlaps(network, context, beta)
    for role in (VALUE, QUERY, KEY):
        known[0, role] = [dot(row, bits) for row in weights[role]] + place[role]
        count += network.features
    query = network.gamma * known[0, QUERY]
    count += network.features
    scores = [dot(key, query) for key in known[:, KEY]]
    powers = [math.exp(score - max(scores)) for score in scores]
    total = sum(powers)
    count += 3 * len(scores) - 1
    attention = [dot(powers, column) / total for column in known[:, VALUE].T]
    return np.array(attention), count + network.features
