"""Where the answer turns from A to B, and how counts move that point.

The query goes straight from one digit to another, x(t) = (x_A + x_B)/2 + t (x_A − x_B)/2, and
t* is where the two words are level. A demonstration with the field f counts as e^f copies, and
h = log(k_A/k_B).

In a memory of two patterns of equal norm, ξ = (A + B)/2 + m (A − B)/2 + (anything at right angles),
a step is m ← tanh(κ m + h/2), κ = β|A − B|²/4 being the `strength`. In a trained model the boundary
moves by −h/S if it is such a memory,

    S = (∂L/∂t through the query's attention weights) / (∂L/∂h at the query's scores),

L the difference of the two words' scores, measured with one copy of each. An episode's way goes
from its first demonstration of A to its first of B.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.nn.functional import normalize

from compendium.c15_demonstrations.model import (
    WIDTH,
    WORDS,
    Counts,
    Episodes,
    Pool,
    Weights,
    draw_episodes,
    read,
    streams,
)
from compendium.common.curves import crossing

REACH, HALVINGS = 1.5, 16
CONTROLS = ("none", "shuffled words", "other classes")
KICKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Copies of the contradicting demonstration; fractions are fields below zero.
NUMBERS = tuple(float(2**power) for power in range(-8, 9, 2))


def boundary_position(log_ratio: float, *, strength: float) -> float:
    """Where on the line m one step turns the answer: m = −h/(2κ), −h/(β|A − B|) from the middle."""
    return -0.5 * log_ratio / strength


def edge_position(log_ratio: float, *, strength: float) -> float:
    """The edge of the basins on the line m, the unstable fixed point; NaN where there is none."""
    if abs(log_ratio) >= spinodal(strength):
        return float("nan")
    top = np.sqrt(1.0 - 1.0 / strength)
    return float(brentq(lambda m: np.arctanh(m) - strength * m - 0.5 * log_ratio, -top, top))


def spinodal(strength: float) -> float:
    """The log-ratio at which the smaller basin and the edge merge, κ(1 − m²) = 1; 0 for κ ≤ 1."""
    if strength <= 1.0:
        return 0.0
    edge = np.sqrt(1.0 - 1.0 / strength)
    return float(2.0 * (strength * edge - np.arctanh(edge)))


def lead(weights: Weights, lines: Episodes, *, position: Tensor, **options: Any) -> Tensor:
    """Score of A's word less that of B's at positions t (S, B); `options` are those of `read`."""
    demonstrations = lines.images[:, :, :-1]
    ends = [0, demonstrations.shape[2] // 2]
    first, second = demonstrations[:, :, ends].unbind(2)
    query = (first + second) / 2 + position.unsqueeze(-1) * (first - second) / 2
    images = torch.cat([demonstrations, query.unsqueeze(2)], 2)
    logits, _ = read(weights, images=images, words=lines.words, **options)
    picked = logits.gather(-1, lines.words[:, :, ends])
    return picked[..., 0] - picked[..., 1]


def boundary(weights: Weights, lines: Episodes, **options: Any) -> np.ndarray:
    """The boundary t* (S, B) in [−1.5, 1.5]; inf where B leads at both ends, −inf where A does."""
    high = torch.full(lines.target.shape, REACH, dtype=torch.float64)
    low = -high
    with torch.no_grad():
        first, last = (lead(weights, lines, position=t, **options) for t in (low, high))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            ahead = lead(weights, lines, position=middle, **options) > 0
            low, high = torch.where(ahead, low, middle), torch.where(ahead, middle, high)
    found = torch.where(last <= 0, torch.inf, (low + high) / 2)
    return torch.where(first >= 0, -torch.inf, found).numpy()


def count_field(shown: Counts, *, lines: Episodes) -> Tensor:
    """Fields (S, B, 2k): log k_A on demonstrations of A, log k_B on those of B."""
    *shape, length = lines.words.shape
    logs = torch.log(torch.tensor(shown, dtype=torch.float64))
    return logs.repeat_interleave(length // 2).expand(*shape, length - 1)


def stiffness(
    weights: Weights, lines: Episodes, *, position: np.ndarray, kind: str = "softmax"
) -> dict[str, np.ndarray]:
    """Slopes (S, B) by automatic differentiation at `position`, with equal counts.

    "stiffness": S above. "past attention": share of ∂L/∂t that does not pass through attention
    weights. "in context": share of ∂L/∂h that acts where demonstrations read each other.
    """
    t = torch.as_tensor(position).requires_grad_()
    asked, told = (torch.zeros_like(t).requires_grad_() for _ in range(2))
    unit = count_field((math.exp(0.5), math.exp(-0.5)), lines=lines)
    fields = {"field": asked.unsqueeze(-1) * unit, "context_field": told.unsqueeze(-1) * unit}
    leads = lead(weights, lines, position=t, kind=kind, **fields)
    whole, at_query, in_context = torch.autograd.grad(leads.sum(), (t, asked, told))
    frozen = lead(weights, lines, position=t, kind=kind, frozen=True)
    (past,) = torch.autograd.grad(frozen.sum(), t)
    return {
        "stiffness": ((whole - past) / at_query).numpy(),
        "past attention": (past / whole).numpy(),
        "in context": (in_context / (at_query + in_context)).numpy(),
    }


def shifts(
    weights: Weights, lines: Episodes, *, shown: Counts, kind: str = "softmax"
) -> np.ndarray:
    """How far `shown` copies move the boundary, against these swapped and halved (S, B); or inf."""
    there, back = (
        boundary(weights, lines, field=count_field(counts, lines=lines), kind=kind)
        for counts in (shown, shown[::-1])
    )
    known = np.isfinite(there) & np.isfinite(back)
    return np.subtract(back, there, out=np.full(known.shape, np.inf), where=known) / 2


def draw_queries(
    pools: Sequence[Pool], *, count: int, copies: int, control: str = "none", seed: int
) -> Episodes:
    """Episodes of unseen classes, `copies` demonstrations of each, for one of the CONTROLS."""
    generators = streams(pools, seed)
    found = draw_episodes(pools, part="test", count=count, shown=(copies, copies), seeds=generators)
    for place, generator in enumerate(generators):
        rows, words = found.rows[place, :, :-1], found.words[place, :, :-1]
        if control == "shuffled words":
            order = torch.as_tensor(generator.random(words.shape).argsort(1))
            words[:] = words.gather(1, order)
        if control == "other classes":
            for row, shown in zip(rows, found.classes[place].tolist(), strict=True):
                others = [one for k, one in enumerate(pools[place]["test"]) if k not in shown][:2]
                drawn = [generator.choice(images, size=copies) for images in others]
                row[:] = torch.as_tensor(np.concatenate(drawn))
    return found


def return_shares(
    weights: Weights, episodes: Episodes, *, copies: float = 1.0, own_only: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Share of queries whose answer outlives each kick (S, KICKS), and how far the kick gets.

    The query's embedding is moved in a random direction by KICKS times its norm; how far: mean
    distance of the last hidden state from the unmoved one, over that state's norm. Each
    demonstration counts `copies` times; with `own_only` only those with the unmoved query's word.
    """
    shape = (*episodes.target.shape, WIDTH)
    drawn = torch.as_tensor(np.random.default_rng([4, 7]).standard_normal(shape))
    direction = normalize(drawn, dim=-1)
    images, words = episodes.images, episodes.words
    field = torch.full(words[:, :, :-1].shape, float(np.log(copies)), dtype=torch.float64)
    shares, distances = [], []
    with torch.no_grad():
        if own_only:
            plain = read(weights, images=images, words=words)[0].argmax(-1)
            field = field * (words[:, :, :-1] == plain.unsqueeze(-1))
        given: dict[str, Any] = {"images": images, "words": words, "field": field}
        told, start = read(weights, **given)
        for size in KICKS:
            logits, moved = read(weights, **given, kick=size * direction)
            shares.append((logits.argmax(-1) == told.argmax(-1)).double().mean(1))
            distances.append(((moved - start).norm(dim=-1) / start.norm(dim=-1)).mean(1))
    return torch.stack(shares, 1).numpy(), torch.stack(distances, 1).numpy()


def radius(shares: np.ndarray) -> np.ndarray:
    """The kick, linear between KICKS, at which the share that returns (S, KICKS) falls to 0.75."""
    places, lost = np.array([0.0, *KICKS]), np.pad(1.0 - shares, ((0, 0), (1, 0)))
    found = [crossing(places, values=row, past=row > 0.25, level=0.25) for row in lost]
    return np.nan_to_num(found, nan=KICKS[-1])


def conflict_shares(weights: Weights, pools: Sequence[Pool], *, count: int) -> np.ndarray:
    """Share of trials (S, NUMBERS) in which demonstrations beat the remembered word.

    A digit of A is shown with a word that the labeling gives neither to it nor to the B beside it,
    and counts as often as NUMBERS says; the query is another digit of A, never trained on. Without
    labelings the word "remembered" is any other one.
    """
    drawn = streams(pools, 1)
    lines = draw_episodes(pools, part="valid", count=count, shown=(1, 1), seeds=drawn, share_a=1.0)
    draws = torch.as_tensor(np.stack([one.random((count, WORDS)) for one in drawn]))
    words, shares = lines.words.clone(), []
    words[:, :, 0] = draws.scatter(-1, lines.pair, -1.0).argmax(-1)
    asked = torch.stack([words[:, :, 0], lines.target], -1)
    with torch.no_grad():
        for number in NUMBERS:
            field = count_field((number, 1.0), lines=lines)
            logits, _ = read(weights, images=lines.images, words=words, field=field)
            told, kept = logits.gather(-1, asked).unbind(-1)
            shares.append((told > kept).double().mean(1))
    return torch.stack(shares, 1).numpy()
