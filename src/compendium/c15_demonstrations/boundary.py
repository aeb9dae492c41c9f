"""Where the answer turns from A to B, and how counts move that point.

The query goes straight from one digit to another, x(t) = (x_A + x_B)/2 + t (x_A − x_B)/2, and
t* is where the two words are level. A demonstration with the field f counts as e^f copies, and
h = log(k_A/k_B).

In a memory of two patterns, A stored k_A times and B stored k_B times,
E(ξ) = ½ξ² − β⁻¹ log(k_A e^{β A·ξ} + k_B e^{β B·ξ}). With patterns of equal norm write
ξ = (A + B)/2 + m (A − B)/2 + (anything at right angles to A − B). A step, the gradient of E with
step size 1, gives m ← tanh(κ m + h/2), with κ = β|A − B|²/4: the mean field of a magnet with
coupling κ in the field h/2, m its magnetization, A all spins up, B all down. m = 1 and −1 are the
patterns; m falls short of them unless κ is large.

In a reader with one such step the weights of A and B have the log-ratio u(t) + h,
u = β(k_A − k_B)·q(t), so the boundary moves by −h/u'. A model with several attention steps moves by
−h/S if it is such a memory, S being the mean of the u' of the steps weighted by their influence on
the answer,

    S = (∂L/∂t through the query's attention weights) / (∂L/∂h at the query's scores),

L the difference of the two words' scores. S is measured with one copy of each.

An episode's way goes from its first demonstration of A to its first of B.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from compendium.c15_demonstrations.episodes import Counts, Episodes
from compendium.c15_demonstrations.model import Reading, Weights, read

REACH = 1.5
HALVINGS = 16


def boundary_position(log_ratio: float, *, strength: float) -> float:
    """Where on the line m one step turns the answer: m = −h/(2κ), −h/(β|A − B|) from the middle."""
    return -0.5 * log_ratio / strength


def edge_position(log_ratio: float, *, strength: float) -> float:
    """The edge of the basins on the line m, the unstable fixed point: −h/(2(κ − 1)) for small h.

    NaN where there is none: every query ends at one side.
    """
    if abs(log_ratio) >= spinodal(strength):
        return float("nan")
    top = np.sqrt(1.0 - 1.0 / strength)
    return float(brentq(lambda m: np.arctanh(m) - strength * m - 0.5 * log_ratio, -top, top))


def spinodal(strength: float) -> float:
    """The log-ratio at which the basin of the pattern with fewer copies vanishes; 0 for κ ≤ 1.

    Its minimum and the edge merge where κ(1 − m²) = 1: h = 2(κ m − artanh m), m = √(1 − 1/κ).
    """
    if strength <= 1.0:
        return 0.0
    edge = np.sqrt(1.0 - 1.0 / strength)
    return float(2.0 * (strength * edge - np.arctanh(edge)))


def lead(
    weights: Weights, lines: Episodes, *, position: Tensor, **options: Any
) -> tuple[Tensor, Reading]:
    """Score of A's word less that of B's at the positions t (S, B), and the whole reading.

    `options` are those of `read`.
    """
    demonstrations = lines.images[:, :, :-1]
    ends = [0, demonstrations.shape[2] // 2]
    first, second = demonstrations[:, :, ends].unbind(2)
    query = (first + second) / 2 + position.unsqueeze(-1) * (first - second) / 2
    images = torch.cat([demonstrations, query.unsqueeze(2)], 2)
    found = read(weights, images=images, words=lines.words, **options)
    picked = found.logits.gather(-1, lines.words[:, :, ends])
    return picked[..., 0] - picked[..., 1], found


def boundary(weights: Weights, lines: Episodes, **options: Any) -> np.ndarray:
    """The boundary t* (S, B) by halving [−1.5, 1.5]; ±inf where one word leads at both ends.

    inf: B leads everywhere, −inf: A does. `options` are those of `read`.
    """
    with torch.no_grad():
        low = torch.full(lines.target.shape, -REACH, dtype=torch.float64)
        high = -low
        first, last = (lead(weights, lines, position=t, **options)[0] for t in (low, high))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            ahead = lead(weights, lines, position=middle, **options)[0] > 0
            low, high = torch.where(ahead, low, middle), torch.where(ahead, middle, high)
        found = (low + high) / 2
        found = torch.where(first >= 0, -torch.inf, torch.where(last <= 0, torch.inf, found))
    return found.numpy()


def count_field(shown: Counts, *, lines: Episodes) -> Tensor:
    """Fields (S, B, 2k): log k_A on demonstrations of A, log k_B on those of B."""
    *shape, length = lines.words.shape
    logs = torch.log(torch.tensor(shown, dtype=torch.float64))
    return logs.repeat_interleave(length // 2).expand(*shape, length - 1)


def stiffness(
    weights: Weights, lines: Episodes, *, position: np.ndarray, kind: str = "softmax"
) -> dict[str, np.ndarray]:
    """Slopes (S, B) by automatic differentiation at `position`, with equal counts.

    "stiffness": S of the module's text. "first layer" and "second layer": the slopes u' of the
    layers' own scores. "past attention": share of ∂L/∂t that does not pass through attention
    weights. "in context": share of ∂L/∂h that acts where demonstrations read each other.
    """
    t = torch.as_tensor(position).requires_grad_()
    asked, told = (torch.zeros_like(t).requires_grad_() for _ in range(2))
    unit = count_field((math.exp(0.5), math.exp(-0.5)), lines=lines)
    fields = {"field": asked.unsqueeze(-1) * unit, "context_field": told.unsqueeze(-1) * unit}
    leads, found = lead(weights, lines, position=t, kind=kind, **fields)

    def slopes(value: Tensor, *places: Tensor) -> list[np.ndarray]:
        found = torch.autograd.grad(value.sum(), places, retain_graph=True)
        return [slope.numpy() for slope in found]

    whole, at_query, in_context = slopes(leads, t, asked, told)
    (past,) = slopes(lead(weights, lines, position=t, kind=kind, frozen=True)[0], t)
    copies = lines.words.shape[-1] // 2
    apart = (
        scores[..., :copies].logsumexp(-1) - scores[..., copies:-1].logsumexp(-1)
        for scores in found.scores
    )
    first, second = (slopes(scores, t)[0] for scores in apart)
    return {
        "stiffness": (whole - past) / at_query,
        "past attention": past / whole,
        "in context": in_context / (at_query + in_context),
        "first layer": first,
        "second layer": second,
    }


def shifts(
    weights: Weights, lines: Episodes, *, shown: Counts, kind: str = "softmax"
) -> np.ndarray:
    """How far (k_A, k_B) = `shown` copies move the boundary against (k_B, k_A), halved: (S, B).

    Positive where more copies of A widen its side; inf where a boundary leaves [−1.5, 1.5].
    """
    there, back = (
        boundary(weights, lines, field=count_field(counts, lines=lines), kind=kind)
        for counts in (shown, shown[::-1])
    )
    known = np.isfinite(there) & np.isfinite(back)
    return np.subtract(back, there, out=np.full(known.shape, np.inf), where=known) / 2
