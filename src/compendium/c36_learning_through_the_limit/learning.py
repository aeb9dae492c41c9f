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

from spinformer.core.checks import (
    check_choice,
    check_flag,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE

GRADIENTS = ("limit", "straight", "score")


@record
class Paths:
    """What a rollout gives: costs in bits, log-probabilities of the drawn bits, and tokens.

    costs, scores: (S, B, steps). tokens: (S, B, T + steps, L), the window first.
    """

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
    tokens are constants, as the score needs it. Raises ValueError or TypeError naming the argument.

    >>> paths = rollout(
    ...     torch.zeros(1, 4, 2, 3, dtype=torch.float64), window=torch.zeros(1, 5, 2, 3).double(),
    ...     targets=torch.ones(1, 5, 7, 3).double(), beta=1.0, gamma=1.0,
    ... )
    >>> paths.costs.shape, f"{float(paths.costs.mean()):.6f}"
    (torch.Size([1, 5, 7]), '3.000000')
    """
    weights = check_tensor("weights", weights, shape=(None, 4, None, None))
    networks, _, _, segments = weights.shape
    window = check_tensor("window", window, shape=(networks, None, None, segments))
    count, context = window.shape[1:3]
    targets = check_tensor("targets", targets, shape=(networks, count, None, None))
    steps, visible = targets.shape[2:]
    check_integer("visible segments (axis 3 of targets)", visible, low=1, high=segments)
    beta = check_real("beta", beta, low=0.0)
    gamma = check_real("gamma", gamma, low=0.0)
    given = check_integer("given", given, low=0)
    check_flag("straight", straight)
    bits = 0 if size is None else bits_of_segment(size, segments=segments)
    keep = steps if keep is None else check_integer("keep", keep, low=1)
    generator = torch_generator(seed)
    tokens = list(window.unbind(2))
    costs, scores = [], []
    for step in range(steps):
        if step and step % keep == 0:
            tokens = [token.detach() for token in tokens]
        recent = torch.stack(tokens[-context:], 2)
        field = _field(weights, recent, beta=beta, gamma=gamma)
        target = targets[:, :, step]
        told = given > 0 and (step + 1) % given == 0
        cost = surprise(field[..., :visible], target=target)
        costs.append(cost if told or not given else torch.zeros_like(cost))
        mean = torch.tanh(field)
        token, score = mean, torch.zeros_like(costs[-1])
        if bits:
            ups = torch.binomial(
                torch.full_like(mean, bits), 0.5 * (1.0 + mean.detach()), generator=generator
            )
            drawn = 2.0 * ups / bits - 1.0
            token = mean + (drawn - mean).detach() if straight else drawn
            own = slice(visible if told else 0, None)
            score = _log_probability(field[..., own], ups=ups[..., own], bits=bits)
        if told:
            token = torch.cat([target, token[..., visible:]], -1)
        tokens.append(token)
        scores.append(score)
    return Paths(
        costs=torch.stack(costs, -1), scores=torch.stack(scores, -1), tokens=torch.stack(tokens, 2)
    )


def surrogate(paths: Paths, *, kind: str, copies: int = 1) -> Tensor:
    """A number for each network (S,) whose gradient is the estimator `kind` of the mean cost.

    The mean is over paths and steps. kind: one of GRADIENTS; "score" needs paths whose tokens
    carry no gradient (`straight=False`), their B axis being `copies` paths of each start, copy by
    copy: the baseline of a path is the mean of the later costs of its other copies, none for
    copies = 1. Raises ValueError for another kind or a B that is no multiple of copies.

    >>> zeros = torch.zeros(1, 6, 2)
    >>> surrogate(Paths(costs=zeros + 1.0, scores=zeros, tokens=zeros), kind="score", copies=2)
    tensor([1.])
    """
    check_instance("paths", paths, Paths)
    check_choice("kind", kind, GRADIENTS)
    networks, count, steps = paths.costs.shape
    copies = check_integer("copies", copies, low=1)
    if count % copies:
        raise ValueError(f"copies must divide the {count} paths of a network, got {copies}")
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
    weights: Tensor,
    *,
    window: Tensor,
    targets: Tensor,
    beta: float,
    gamma: float,
    size: int,
) -> Tensor:
    """Mean cost of every step (B, steps) of one network of N = `size` bits: a sum over all texts.

    weights: (4, P, L); window: (B, T, L), tokens that N bits can be; targets: (B, steps, V). The
    probability of every window is carried from step to step, so that the work grows with the steps
    only linearly: K^(T+1) for K = (N/L + 1)^L tokens, at most 2·10⁷. All tokens are the network's
    own (`given=0` of `rollout`). Differentiable. Raises ValueError for more, or for a window
    that N bits cannot be.

    >>> flat = torch.zeros(4, 2, 3, dtype=torch.float64)
    >>> start, ones = torch.ones(1, 2, 3).double(), torch.ones(1, 4, 3).double()
    >>> costs = exact_costs(flat, window=start, targets=ones, beta=1.0, gamma=1.0, size=3)
    >>> costs.shape, f"{float(costs.mean()):.6f}"
    (torch.Size([1, 4]), '3.000000')
    """
    weights = check_tensor("weights", weights, shape=(4, None, None))
    segments = weights.shape[2]
    window = check_tensor("window", window, shape=(None, None, segments), low=-1.0, high=1.0)
    count, context = window.shape[:2]
    targets = check_tensor("targets", targets, shape=(count, None, None))
    visible = targets.shape[2]
    beta, gamma = check_real("beta", beta, low=0.0), check_real("gamma", gamma, low=0.0)
    bits = bits_of_segment(size, segments=segments)
    kinds = (bits + 1) ** segments
    if kinds ** (context + 1) > 2e7:
        raise ValueError(f"size must leave at most 2e7 steps from a window, got {size}")
    digits = torch.cartesian_prod(*[torch.arange(bits + 1.0, dtype=weights.dtype)] * segments)
    ups = digits.reshape(kinds, segments)
    places = (bits + 1.0) ** torch.arange(segments - 1, -1, -1, dtype=weights.dtype)
    start = 0.5 * (window + 1.0) * bits
    if bool((start - start.round()).abs().max() > 1e-9):
        raise ValueError(f"window must hold tokens that {bits} bits a segment can be")
    numbers = (start.round() @ places).long()
    index = torch.zeros(count, dtype=torch.long)
    for age in range(context):
        index = index * kinds + numbers[:, age]
    every = torch.cartesian_prod(*[torch.arange(kinds)] * context).reshape(-1, context)
    windows = 2.0 * ups[every] / bits - 1.0
    field = _field(weights[None], windows[None], beta=beta, gamma=gamma)[0]
    ways = torch.lgamma(weights.new_tensor(bits + 1.0)) - torch.lgamma(ups + 1.0)
    ways = (ways - torch.lgamma(bits - ups + 1.0)).sum(-1)
    up, down = functional.logsigmoid(2.0 * field), functional.logsigmoid(-2.0 * field)
    moves = torch.exp(up @ ups.T + down @ (bits - ups).T + ways)
    moves = moves.reshape(kinds, -1, kinds)
    law = functional.one_hot(index, len(every)).to(weights.dtype)
    result = []
    for step in range(targets.shape[1]):
        costs = surprise(field[None, :, :visible], target=targets[:, step, None])
        result.append((law * costs).sum(-1))
        law = torch.einsum("noj,ojk->njk", law.reshape(count, kinds, -1), moves).flatten(1)
    return torch.stack(result, -1)


def surprise(field: Tensor, *, target: Tensor) -> Tensor:
    """Σ_l −log₂ P(bit l = ξ_l) over the last axis, P = e^{ξh}/(2 cosh h), in bits.

    >>> surprise(torch.zeros(8), target=torch.ones(8))
    tensor(8.)
    """
    return -functional.logsigmoid(2.0 * target * field).sum(-1) / math.log(2.0)


def bits_of_segment(size: int, *, segments: int) -> int:
    """n = N/L; ValueError unless it is a whole number.

    >>> bits_of_segment(99, segments=11)
    9
    """
    size = check_integer("size", size, low=1)
    segments = check_integer("segments", segments, low=1)
    if size % segments:
        raise ValueError(f"size must be a multiple of the {segments} segments, got {size}")
    return size // segments


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


def _log_probability(field: Tensor, *, ups: Tensor, bits: int) -> Tensor:
    """Of `ups` bits up and the others down, without the number of ways, which has no gradient."""
    up, down = functional.logsigmoid(2.0 * field), functional.logsigmoid(-2.0 * field)
    return (ups * up + (bits - ups) * down).sum(-1)
