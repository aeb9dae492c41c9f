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
weights (S, 4, P, L), roles in the order of `network.ROLES`; time runs from old to new.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE


@record
class Paths:
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
    size: int | None = None,
    given: int = 0,
    keep: int | None = None,
    straight: bool = True,
    seed: TorchSeed = 0,
) -> Paths:
    """Paths of `steps` tokens and what the targets cost along them, differentiable.

    window: (S, B, T, L) entries in [−1, 1]; targets: (S, B, steps, V) signs of the visible
    segments. size: N, a multiple of L; None for the limit. given: 0 where the network writes
    alone; n if every n-th token is told it: its visible segments become those of the target, the
    others stay the network's own, and only these steps have a cost. keep: gradients pass through
    at most so many steps: before every keep-th step the window is taken as constant. straight:
    gradients pass through drawn tokens as if each were its mean plus a constant; otherwise drawn
    tokens are constants, as the score needs it.
    """
    context, (steps, visible) = window.shape[2], targets.shape[2:]
    bits = 0 if size is None else size // weights.shape[-1]
    generator = torch_generator(seed)
    tokens = list(window.unbind(2))
    costs, scores = [], []
    for step in range(steps):
        if step and keep and step % keep == 0:
            tokens = [token.detach() for token in tokens]
        field = _field(weights, torch.stack(tokens[-context:], 2), beta=beta, gamma=gamma)
        target = targets[:, :, step]
        told = given > 0 and (step + 1) % given == 0
        cost = surprise(field[..., :visible], target=target)
        costs.append(cost if told or not given else torch.zeros_like(cost))
        token, score = torch.tanh(field), torch.zeros_like(cost)
        if bits:
            chance = 0.5 * (1.0 + token.detach())
            ups = torch.binomial(torch.full_like(token, bits), chance, generator=generator)
            drawn = 2.0 * ups / bits - 1.0
            token = token + (drawn - token).detach() if straight else drawn
            own = slice(visible if told else 0, None)
            # Without the number of ways, which has no gradient.
            score = _log_chances(field[..., own], ups[..., own], bits - ups[..., own]).sum(-1)
        if told:
            token = torch.cat([target, token[..., visible:]], -1)
        tokens.append(token)
        scores.append(score)
    return Paths(
        costs=torch.stack(costs, -1), scores=torch.stack(scores, -1), tokens=torch.stack(tokens, 2)
    )


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
    segments = weights.shape[2]
    count, context = window.shape[:2]
    bits = size // segments
    kinds = (bits + 1) ** segments
    digits = torch.cartesian_prod(*[torch.arange(bits + 1.0, dtype=weights.dtype)] * segments)
    ups = digits.reshape(kinds, segments)
    places = (bits + 1.0) ** torch.arange(segments - 1, -1, -1, dtype=weights.dtype)
    numbers = ((0.5 * (window + 1.0) * bits).round() @ places).long()
    index = torch.zeros(count, dtype=torch.long)
    for age in range(context):
        index = index * kinds + numbers[:, age]
    every = torch.cartesian_prod(*[torch.arange(kinds)] * context).reshape(-1, context)
    windows = 2.0 * ups[every] / bits - 1.0
    field = _field(weights[None], windows[None], beta=beta, gamma=gamma)[0]
    ways = torch.lgamma(weights.new_tensor(bits + 1.0)) - torch.lgamma(ups + 1.0)
    ways = (ways - torch.lgamma(bits - ups + 1.0)).sum(-1)
    up, down = functional.logsigmoid(2.0 * field), functional.logsigmoid(-2.0 * field)
    moves = torch.exp(up @ ups.T + down @ (bits - ups).T + ways).reshape(kinds, -1, kinds)
    law = functional.one_hot(index, len(every)).to(weights.dtype)
    result = []
    for step in range(targets.shape[1]):
        costs = surprise(field[None, :, : targets.shape[2]], target=targets[:, step, None])
        result.append((law * costs).sum(-1))
        law = torch.einsum("noj,ojk->njk", law.reshape(count, kinds, -1), moves).flatten(1)
    return torch.stack(result, -1)


def surprise(field: Tensor, *, target: Tensor) -> Tensor:
    """Σ_l −log₂ P(bit l = ξ_l) over the last axis, P = e^{ξh}/(2 cosh h), in bits."""
    return -functional.logsigmoid(2.0 * target * field).sum(-1) / math.log(2.0)


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


def _log_chances(field: Tensor, ups: Tensor, downs: Tensor) -> Tensor:
    """ln of the chance of one order of `ups` bits up and `downs` bits down, by segment."""
    return ups * functional.logsigmoid(2.0 * field) + downs * functional.logsigmoid(-2.0 * field)
