"""Learning in the driven network: relaxed weights, three gradients, and the exact one.

The signs W of [poclopez2024dynamical, Eqs. (7), (8)] become numbers in [−1, 1], W = tanh θ in a
training. Of N bits every segment l has n = N/L; a token is its segment means x_l, and with
h = β Σ_a W^o_{a,l} A_a the next one is drawn as x_l = 2 Binomial(n, (1 + tanh h_l)/2)/n − 1, or is
tanh h_l itself in the limit N → ∞. The network has no position. The cost of a step is the
surprise of a target token ξ, −Σ_l log₂ P(bit of segment l = ξ_l) = Σ_l log₂(1 + e^{−2 ξ_l h_l}),
summed over the *visible* segments, the first V: for a byte written in eight segments it is in bits
per byte. Costs depend on drawn tokens through h, so that at finite N the loss is the mean cost over
the draws of all tokens. Gradients of it:

- `limit`: through the path of the limit, deterministic, off by a bias of order 1/N;
- `straight`: through a drawn path as if each token were its mean plus a constant;
- `score`: of log P(drawn tokens) times later costs (REINFORCE), unbiased;
- `exact_costs`: of the mean itself, summed over all windows, for a few bits.

Shapes: S networks side by side, B paths each, L segments, P features, T tokens in a window,
weights (S, 4, P, L), roles in the order o, v, q, k; time runs from old to new.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import binom
from torch import Tensor
from torch.nn.functional import logsigmoid

from bookmaker.tables import Rows, stored
from compendium.common.rows import grid, rows_of
from spinformer.core.random import torch_generator
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE


class Paths(NamedTuple):
    """Costs in bits and log-probabilities of the drawn bits, (S, B, steps), and the tokens,
    (S, B, T + steps, L), the window first."""

    costs: Tensor
    scores: Tensor
    tokens: Tensor


def rollout(
    weights: Tensor,
    *,
    window: Tensor,
    targets: Tensor,
    beta: float,
    gamma: float,
    size: int = 0,
    given: int = 0,
    cut: bool = False,
    straight: bool = True,
    seed: int = 0,
) -> Paths:
    """Paths of `steps` tokens and what the targets cost along them, differentiable.

    window: (S, B, T, L) entries in [−1, 1]; targets: (S, B, steps, V) signs of the visible
    segments. size: N, a multiple of L; 0 for the limit. given: 0 where the network writes
    alone; n if every n-th token is told it: its visible segments become those of the target, the
    others stay the network's own, and only these steps have a cost. cut: gradients pass through one
    step, whose window is a constant. straight:
    gradients pass through drawn tokens as if each were its mean plus a constant; otherwise drawn
    tokens are constants, as the score needs it.
    """
    context, (steps, visible) = window.shape[2], targets.shape[2:]
    bits, generator = size // weights.shape[-1], torch_generator(seed)
    tokens, costs, scores = list(window.unbind(2)), [], []
    for step in range(steps):
        if cut:
            tokens = [token.detach() for token in tokens]
        field = _field(weights, torch.stack(tokens[-context:], 2), beta=beta, gamma=gamma)
        target, told = targets[:, :, step], given > 0 and (step + 1) % given == 0
        cost = surprise(field[..., :visible], target=target)
        costs.append(cost if told or not given else torch.zeros_like(cost))
        token, score = torch.tanh(field), torch.zeros_like(cost)
        if bits:
            chance = 0.5 * (1.0 + token.detach())
            ups = torch.binomial(torch.full_like(token, bits), chance, generator=generator)
            drawn = 2.0 * ups / bits - 1.0
            token = token + (drawn - token).detach() if straight else drawn
            # Without the number of ways, which has no gradient, and without what is told.
            logs = ups * logsigmoid(2.0 * field) + (bits - ups) * logsigmoid(-2.0 * field)
            score = logs[..., visible if told else 0 :].sum(-1)
        if told:
            token = torch.cat([target, token[..., visible:]], -1)
        tokens.append(token)
        scores.append(score)
    return Paths(torch.stack(costs, -1), torch.stack(scores, -1), torch.stack(tokens, 2))


def surrogate(paths: Paths, *, kind: str, copies: int = 1) -> Tensor:
    """A number for each network (S,) whose gradient is the estimator `kind` of the mean cost.

    The mean is over paths and steps. "score" needs paths whose tokens carry no gradient
    (`straight=False`), their B axis being `copies` paths of each start, copy by copy: the baseline
    of a path is the mean of the later costs of its other copies, none for copies = 1.
    """
    networks, count, steps = paths.costs.shape
    mean = paths.costs.mean((1, 2))
    if kind != "score":
        return mean
    costs = paths.costs.detach()
    later = costs.flip(-1).cumsum(-1).flip(-1) - costs
    if copies > 1:
        grouped = later.reshape(networks, copies, -1, steps)
        # Less the mean of the others: copies/(copies − 1) times less the mean of all.
        grouped = (grouped - grouped.mean(1, keepdim=True)) * (copies / (copies - 1))
        later = grouped.reshape(networks, count, steps)
    reward = (paths.scores * later).sum(-1).mean(1) / steps
    return mean + reward - reward.detach()


def exact_costs(
    weights: Tensor, *, window: Tensor, targets: Tensor, beta: float, gamma: float, size: int
) -> Tensor:
    """Mean cost of every step (B, steps) of one network of N = `size` bits: a sum over all texts.

    weights: (4, P, L); window: (B, T, L), tokens that N bits can be; targets: (B, steps, V). The
    probability of every window is carried from step to step: K^(T+1) numbers a step for
    K = (N/L + 1)^L tokens. All tokens are the network's own (`given=0` of `rollout`).
    """
    segments, (count, context) = weights.shape[2], window.shape[:2]
    bits = size // segments
    ups = torch.cartesian_prod(*[torch.arange(bits + 1.0, dtype=weights.dtype)] * segments)
    kinds = len(ups)
    every = ups[torch.cartesian_prod(*[torch.arange(kinds)] * context)]
    windows = 2.0 * every / bits - 1.0
    field = _field(weights[None], windows[None], beta=beta, gamma=gamma)[0]
    ways = torch.as_tensor(binom(bits, ups.numpy())).log().sum(-1)
    up, down = logsigmoid(2.0 * field), logsigmoid(-2.0 * field)
    moves = torch.exp(up @ ups.T + down @ (bits - ups).T + ways).reshape(kinds, -1, kinds)
    law = (window[:, None] == windows).flatten(2).all(2).to(weights.dtype)
    result = []
    for step in range(targets.shape[1]):
        costs = surprise(field[None, :, : targets.shape[2]], target=targets[:, step, None])
        result.append((law * costs).sum(-1))
        law = torch.einsum("noj,ojk->njk", law.reshape(count, kinds, -1), moves).flatten(1)
    return torch.stack(result, -1)


def surprise(field: Tensor, *, target: Tensor) -> Tensor:
    """Σ_l −log₂ P(bit l = ξ_l) over the last axis, P = e^{ξh}/(2 cosh h), in bits."""
    return -logsigmoid(2.0 * target * field).sum(-1) / math.log(2.0)


def _field(weights: Tensor, window: Tensor, *, beta: float, gamma: float) -> Tensor:
    """h = β W^o A of the next token, (S, B, L), from windows (S, B, T, L)."""
    networks, count, context, segments = window.shape
    flat = window.reshape(networks, count * context, segments)

    def overlap(role: int) -> Tensor:
        return (flat @ weights[:, role].mT).reshape(networks, count, context, -1) / segments

    query = overlap(QUERY)[:, :, -1:]
    attention = torch.softmax(gamma * (query * overlap(KEY)).sum(-1), -1)
    mixed = (attention[..., None] * overlap(VALUE)).sum(2)
    return beta * (mixed @ weights[:, OUTPUT])


# ---- how good the gradients are, where the exact one is known

# A small network and a window of two tokens. Every update follows the eight starts of a cycle of
# the eight tokens of three signs, in eight copies.
SEGMENTS, FEATURES, CONTEXT = 3, 3, 2
PUSH: dict[str, Any] = {"beta": 1.5, "gamma": 5.0}
EXACT_SIZES = (3, 6, 9, 15)
SIZES = (*EXACT_SIZES, 99, 990, 9900, 99_000)
ESTIMATORS = ("limit", "straight", "score", "score, no baseline")
COPIES = 8


# Of a small network: θ (4, P, L), and of its cycle: windows (8, T, L), targets (8, 8, L).
Small = tuple[Tensor, Tensor, Tensor]


def draw_small(seed: int) -> Small:
    """The network and the cycle of a seed: normal θ, the eight tokens in random order."""
    generator = np.random.default_rng([seed, 30])
    theta = torch.as_tensor(generator.standard_normal((4, FEATURES, SEGMENTS)))
    numbers = generator.permutation(2**SEGMENTS)
    signs = 2.0 * ((numbers[:, None] >> np.arange(SEGMENTS)) & 1) - 1.0
    tokens = torch.as_tensor(signs[(np.arange(8)[:, None] + np.arange(CONTEXT + 8)) % 8])
    return theta, tokens[:, :CONTEXT], tokens[:, CONTEXT:]


def exact_gradient(small: Small, *, size: int) -> Tensor:
    """Gradient of the mean cost in θ, (4, P, L), of N = `size` bits."""
    theta, window, targets = small
    theta = theta.clone().requires_grad_()
    costs = exact_costs(torch.tanh(theta), window=window, targets=targets, size=size, **PUSH)
    return torch.autograd.grad(costs.mean(), theta)[0]


def estimates(
    small: Small, estimator: str, *, size: int, updates: int = 1, seed: int = 0
) -> Tensor:
    """Independent estimates of the gradient, (updates, 4, P, L), each from eight copies.

    estimator: one of ESTIMATORS; the limit has one estimate only.
    """
    kind = estimator.split(",")[0]
    updates, copies, size = (1, 1, 0) if kind == "limit" else (updates, COPIES, size)
    theta = small[0].expand(updates, -1, -1, -1).clone().requires_grad_()
    window, targets = (part.repeat(updates, copies, 1, 1) for part in small[1:])
    setting: dict[str, Any] = {"size": size, "straight": kind != "score", "seed": seed, **PUSH}
    paths = rollout(torch.tanh(theta), window=window, targets=targets, **setting)
    value = surrogate(paths, kind=kind, copies=copies if estimator == "score" else 1)
    return torch.autograd.grad(value.sum(), theta)[0]


def one_bit(strength: float) -> dict[str, tuple[float, float, float]]:
    """Slopes in a of the second cost of one bit, h₁ = a and h₂ = a x₁: after x₁ = 1, −1, and mean.

    Of the limit, straight-through and REINFORCE (without baseline); a = `strength`, the target
    is up. In the limit x₁ is its mean, whatever is drawn.
    """
    up = 1.0 / (1.0 + np.exp(-2.0 * strength))
    found = {}
    for kind in ("limit", "straight", "score"):
        a = torch.full((64, 1, 1, 1), strength, dtype=torch.float64, requires_grad=True)
        ones = torch.ones_like(a)
        start: dict[str, Any] = {"window": ones, "targets": ones.expand(-1, -1, 2, -1)}
        how: dict[str, Any] = {"size": int(kind != "limit"), "straight": kind != "score"}
        paths = rollout(torch.cat([a, ones, ones, ones], 1), **start, **how, beta=1.0, gamma=0.0)
        second, drawn = paths.costs[:, 0, 1], paths.tokens[:, 0, 1, 0].detach()
        value = second + second.detach() * paths.scores[:, 0, 0] * (kind == "score")
        slopes = torch.autograd.grad(value.sum(), a)[0].flatten()
        first, other = (
            float(slopes[0 if kind == "limit" else (drawn == x).nonzero()[0, 0]]) for x in (1, -1)
        )
        found[kind] = (first, other, float(up * first + (1.0 - up) * other))
    return found


@stored(
    Path(__file__).parent / "quality.csv",
    units=grid(seed=range(10), size=SIZES),
    seconds=2.0,
    rtol=1e-3,
)
def QUALITY(seed: int, *, size: int) -> Rows:
    """Bias over the norm of the reference, cosine of an update with it, variance of one path.

    The reference is the exact gradient up to 15 bits, the limit's for more. The square of the bias
    is that of the mean of all updates less the variance of this mean, at least zero; the variance
    is that of an update, times its copies, over the squared norm of the reference.
    """
    small = draw_small(seed)
    exact = size in EXACT_SIZES
    reference = exact_gradient(small, size=size) if exact else estimates(small, "limit", size=0)[0]
    norm = float(reference.norm())
    rows = []
    for estimator in ESTIMATORS:
        found = estimates(small, estimator, size=size, updates=128, seed=seed).flatten(1)
        count, target = len(found), reference.flatten()
        spread = float(found.var(0).sum()) if count > 1 else 0.0
        off = float((found.mean(0) - target).square().sum()) - spread / count
        rows += rows_of(
            estimator=estimator,
            bias=max(off, 0.0) ** 0.5 / norm,
            cosine=torch.nn.functional.cosine_similarity(found, target[None]).mean(),
            variance=COPIES * spread / norm**2,
        )
    return rows
