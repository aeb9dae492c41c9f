"""Where the answer turns from A to B, and how counts move that point.

The query goes straight from one digit to another, x(t) = (x_A + x_B)/2 + t (x_A − x_B)/2, and
t* is where the two words are level. A demonstration with the field f counts as e^f copies, and
h = log(k_A/k_B).

In a memory with one step the weights of A and B have the log-ratio u(t) + h, u = β(k_A − k_B)·q(t),
so the boundary moves by −h/u'. A model with several attention steps moves by −h/S if it is such
a memory, S being the mean of the u' of the steps weighted by their influence on the answer,

    S = (∂L/∂t through the query's attention weights) / (∂L/∂h at the query's scores),

L the difference of the two words' scores. S is measured with one copy of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compendium.c15_demonstrations.episodes import Pools, digit_inputs, draw_episodes
from compendium.c15_demonstrations.model import Reading, Weights, read
from spinformer.core.records import record

REACH = 1.5
HALVINGS = 16


@record
class Lines:
    """Demonstrations and the two ends of the query's way; A first, then B, then the query.

    demonstrations: (S, B, 2k, 64); ends: (S, B, 2, 64); words: (S, B, 2k + 1).
    """

    demonstrations: Tensor
    ends: Tensor
    words: Tensor


@record
class Stiffness:
    """Slopes at the boundary with equal counts, each (S, B).

    effective: S of the module's text. layers: (2, S, B), the slopes u' of the two layers' own
    scores. past: share of ∂L/∂t that does not pass through attention weights. context: share of
    ∂L/∂h that acts where demonstrations read each other.
    """

    effective: np.ndarray
    layers: np.ndarray
    past: np.ndarray
    context: np.ndarray


def draw_lines(
    pools: Sequence[Pools], *, part: str, count: int, copies: int = 1, seed: int
) -> Lines:
    """Lines from a digit of A to one of B, with `copies` different demonstrations of each class.

    The ends are the first demonstration of each class.
    """
    generators = [np.random.default_rng([seed, place]) for place in range(len(pools))]
    found = draw_episodes(pools, part=part, count=count, shown=(copies, copies), seeds=generators)
    images = digit_inputs()[found.rows]
    return Lines(
        demonstrations=images[:, :, :-1], ends=images[:, :, [0, copies]], words=found.words
    )


def lead(
    weights: Weights, lines: Lines, *, position: Tensor, **options: Any
) -> tuple[Tensor, Reading]:
    """Score of A's word less that of B's at the positions t (S, B), and the whole reading.

    `options` are those of `read`.
    """
    first, second = lines.ends[:, :, 0], lines.ends[:, :, 1]
    query = (first + second) / 2 + position.unsqueeze(-1) * (first - second) / 2
    images = torch.cat([lines.demonstrations, query.unsqueeze(2)], 2)
    found = read(weights, images=images, words=lines.words, **options)
    copies = lines.demonstrations.shape[2] // 2
    picked = found.logits.gather(-1, lines.words[:, :, [0, copies]])
    return picked[..., 0] - picked[..., 1], found


def boundary(
    weights: Weights, lines: Lines, *, field: Tensor | None = None, kind: str = "softmax"
) -> np.ndarray:
    """The boundary t* (S, B) by halving [−1.5, 1.5]; ±inf where one word leads at both ends.

    inf: B leads everywhere, −inf: A does. `field` (S, B, 2k) as in `read`.
    """
    with torch.no_grad():
        low = torch.full(lines.ends.shape[:2], -REACH, dtype=lines.ends.dtype)
        high = -low
        never = lead(weights, lines, position=high, field=field, kind=kind)[0] <= 0
        always = lead(weights, lines, position=low, field=field, kind=kind)[0] >= 0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            ahead = lead(weights, lines, position=middle, field=field, kind=kind)[0] > 0
            low, high = torch.where(ahead, low, middle), torch.where(ahead, middle, high)
        found = (low + high) / 2
        found = torch.where(always, -torch.inf, torch.where(never, torch.inf, found))
    return found.numpy()


def count_field(shown: tuple[float, float], *, lines: Lines) -> Tensor:
    """Fields (S, B, 2k): log k_A on demonstrations of A, log k_B on those of B."""
    trainings, count, length, _ = lines.demonstrations.shape
    logs = torch.log(torch.tensor(shown, dtype=lines.ends.dtype))
    return logs.repeat_interleave(length // 2).expand(trainings, count, length)


def stiffness(
    weights: Weights, lines: Lines, *, position: np.ndarray, kind: str = "softmax"
) -> Stiffness:
    """Slopes by automatic differentiation at `position` (S, B), with equal counts."""
    t = torch.as_tensor(position).requires_grad_()
    asked = torch.zeros(t.shape, dtype=t.dtype).requires_grad_()
    told = torch.zeros(t.shape, dtype=t.dtype).requires_grad_()
    unit = count_field((math.exp(0.5), math.exp(-0.5)), lines=lines)
    leads, found = lead(
        weights,
        lines,
        position=t,
        field=asked.unsqueeze(-1) * unit,
        context_field=told.unsqueeze(-1) * unit,
        kind=kind,
    )
    whole, at_query, in_context = torch.autograd.grad(
        leads.sum(), (t, asked, told), retain_graph=True
    )
    copies = lines.demonstrations.shape[2] // 2
    layers = []
    for scores in found.scores:
        apart = scores[..., :copies].logsumexp(-1) - scores[..., copies:-1].logsumexp(-1)
        layers.append(torch.autograd.grad(apart.sum(), t, retain_graph=True)[0])
    rest = lead(weights, lines, position=t, kind=kind, frozen=True)[0]
    past = torch.autograd.grad(rest.sum(), t)[0]
    return Stiffness(
        effective=((whole - past) / at_query).numpy(),
        layers=torch.stack(layers).numpy(),
        past=(past / whole).numpy(),
        context=(in_context / (at_query + in_context)).numpy(),
    )


def shifts(
    weights: Weights, lines: Lines, *, shown: tuple[float, float], kind: str = "softmax"
) -> np.ndarray:
    """How far (k_A, k_B) = `shown` copies move the boundary against (k_B, k_A), halved: (S, B).

    Positive where more copies of A widen its side; inf where a boundary leaves [−1.5, 1.5].
    """
    there = boundary(weights, lines, field=count_field(shown, lines=lines), kind=kind)
    back = boundary(weights, lines, field=count_field(shown[::-1], lines=lines), kind=kind)
    with np.errstate(invalid="ignore"):  # inf − inf
        moved = (back - there) / 2
    return np.where(np.isfinite(moved), moved, np.inf)
