"""Where the answer turns from A to B, and how counts move that point.

The query goes straight from one digit to another, x(t) = (x_A + x_B)/2 + t (x_A − x_B)/2, from an
episode's first demonstration of A to its first of B, and t* is where the two words are level. A
demonstration with the field f counts as e^f copies, and h = log(k_A/k_B).

In a memory of two patterns of equal norm, ξ = (A + B)/2 + m (A − B)/2 + (anything at right angles),
a step is m ← tanh(κ m + h/2), κ = β|A − B|²/4 being the `strength`.

The table `boundary` has one line a seed, a measure and its arguments `x` and `y` (k_A and k_B of a
shift, copies, kick); `part` are the images ("valid": held-out ones of the training classes, "test":
held-out classes). Shifts are medians over episodes, inf where the boundary of half of them leaves
the line. A training amplifies rounding: rows computed again on another processor agree within the
scatter over seeds.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.nn.functional import normalize

from bookmaker.tables import Rows, stored
from compendium.c15_demonstrations import model
from compendium.c15_demonstrations.model import (
    Counts,
    Episodes,
    Pool,
    Weights,
    draw_episodes,
    streams,
)
from compendium.common.curves import crossing
from compendium.common.rows import mean_rows, numbered, parameter_product, rows_of

REACH = 1.5
HALVINGS = 16
CONTROLS = ("none", "shuffled words", "other classes")
KICKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
COUNTS = ((2, 1), (4, 2), (8, 4), (4, 1), (8, 2), (8, 1))
COPIES = (1, 2, 4, 8)
EPISODES = 100  # of each training, for a measure
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


class Reading(NamedTuple):
    """How a query is read; entries are arguments of `model.read`."""

    field: Tensor | None = None
    context_field: Tensor | None = None
    kind: str = "softmax"
    frozen: bool = False


PLAIN = Reading()


def lead(
    weights: Weights, lines: Episodes, *, position: Tensor, reading: Reading = PLAIN
) -> Tensor:
    """Score of A's word minus that of B's at positions t (S, B)."""
    demonstrations = lines.images[:, :, :-1]
    ends = [0, demonstrations.shape[2] // 2]
    first, second = demonstrations[:, :, ends].unbind(2)
    query = (first + second) / 2 + position.unsqueeze(-1) * (first - second) / 2
    images = torch.cat([demonstrations, query.unsqueeze(2)], 2)
    logits, _ = model.read(
        weights,
        images=images,
        words=lines.words,
        field=reading.field,
        context_field=reading.context_field,
        kind=reading.kind,
        frozen=reading.frozen,
    )
    picked = logits.gather(-1, lines.words[:, :, ends])
    return picked[..., 0] - picked[..., 1]


def boundary(weights: Weights, lines: Episodes, reading: Reading = PLAIN) -> np.ndarray:
    """The boundary t* (S, B) in [−1.5, 1.5]; inf where B leads at both ends, −inf where A does."""
    high = torch.full(lines.target.shape, REACH, dtype=torch.float64)
    low = -high
    with torch.no_grad():
        first = lead(weights, lines, position=low, reading=reading)
        last = lead(weights, lines, position=high, reading=reading)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            ahead = lead(weights, lines, position=middle, reading=reading) > 0
            low = torch.where(ahead, low, middle)
            high = torch.where(ahead, middle, high)
    inside = torch.where(last <= 0, torch.inf, (low + high) / 2)
    return torch.where(first >= 0, -torch.inf, inside).numpy()


def count_field(shown: Counts, *, lines: Episodes) -> Tensor:
    """Fields (S, B, 2k): log k_A on demonstrations of A, log k_B on those of B."""
    *shape, length = lines.words.shape
    logs = torch.log(torch.tensor(shown, dtype=torch.float64))
    return logs.repeat_interleave(length // 2).expand(*shape, length - 1)


def stiffness(
    weights: Weights, lines: Episodes, *, position: np.ndarray, kind: str = "softmax"
) -> dict[str, np.ndarray]:
    """Slopes (S, B) of L, the `lead`, at `position`, with equal counts.

    "stiffness": (∂L/∂t through attention weights) / (∂L/∂h at the query's scores); "past
    attention": share of ∂L/∂t that does not pass through attention weights; "in context": share of
    ∂L/∂h that acts where demonstrations read each other.
    """
    t = torch.as_tensor(position).requires_grad_()
    asked = torch.zeros_like(t).requires_grad_()
    shown = torch.zeros_like(t).requires_grad_()
    unit = count_field((math.exp(0.5), math.exp(-0.5)), lines=lines)
    counted = Reading(
        field=asked.unsqueeze(-1) * unit, context_field=shown.unsqueeze(-1) * unit, kind=kind
    )
    leads = lead(weights, lines, position=t, reading=counted)
    whole, at_query, in_context = torch.autograd.grad(leads.sum(), (t, asked, shown))
    frozen = lead(weights, lines, position=t, reading=Reading(kind=kind, frozen=True))
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

    def moved_to(counts: Counts) -> np.ndarray:
        return boundary(weights, lines, Reading(field=count_field(counts, lines=lines), kind=kind))

    there = moved_to(shown)
    back = moved_to((shown[1], shown[0]))
    known = np.isfinite(there) & np.isfinite(back)
    return np.subtract(back, there, out=np.full(known.shape, np.inf), where=known) / 2


def draw_queries(
    pools: Sequence[Pool], *, count: int, copies: int, control: str = "none", seed: int
) -> Episodes:
    """Episodes of unseen classes, `copies` demonstrations of each, for one of the CONTROLS."""
    generators = streams(pools, seed)
    drawn = draw_episodes(pools, part="test", count=count, shown=(copies, copies), seeds=generators)
    for place, generator in enumerate(generators):
        rows = drawn.rows[place, :, :-1]
        words = drawn.words[place, :, :-1]
        if control == "shuffled words":
            order = torch.as_tensor(generator.random(words.shape).argsort(1))
            words[:] = words.gather(1, order)
        if control == "other classes":
            for row in rows:
                others = (one for one in pools[place]["test"] if not np.isin(row, one).any())
                chosen = [generator.choice(next(others), size=copies) for _ in range(2)]
                row[:] = torch.as_tensor(np.concatenate(chosen))
    return drawn


def return_shares(
    weights: Weights, episodes: Episodes, *, copies: float = 1.0, own_only: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Share of queries whose answer outlives each kick (S, KICKS), and how far the kick gets.

    The query's embedding is moved in a random direction by KICKS times its norm; how far: mean
    distance of the last hidden state from the unmoved one, over that state's norm. Each
    demonstration counts `copies` times; with `own_only` only those with the unmoved query's word.
    """
    shape = (*episodes.target.shape, model.WIDTH)
    drawn = torch.as_tensor(np.random.default_rng([4, 7]).standard_normal(shape))
    direction = normalize(drawn, dim=-1)
    images = episodes.images
    words = episodes.words
    field = torch.full(words[:, :, :-1].shape, float(np.log(copies)), dtype=torch.float64)
    shares = []
    distances = []
    with torch.no_grad():
        if own_only:
            plain = model.read(weights, images=images, words=words)[0].argmax(-1)
            field = field * (words[:, :, :-1] == plain.unsqueeze(-1))
        answer, start = model.read(weights, images=images, words=words, field=field)
        for size in KICKS:
            logits, moved = model.read(
                weights, images=images, words=words, field=field, kick=size * direction
            )
            shares.append((logits.argmax(-1) == answer.argmax(-1)).double().mean(1))
            distances.append(((moved - start).norm(dim=-1) / start.norm(dim=-1)).mean(1))
    return torch.stack(shares, 1).numpy(), torch.stack(distances, 1).numpy()


def radius(shares: np.ndarray) -> np.ndarray:
    """The kick, linear between KICKS, at which the share that returns (S, KICKS) falls to 0.75."""
    places = np.array([0.0, *KICKS])
    # At no kick none is lost.
    lost = np.pad(1.0 - shares, ((0, 0), (1, 0)))
    radii = [crossing(places, values=row, past=row > 0.25, level=0.25) for row in lost]
    return np.nan_to_num(radii, nan=KICKS[-1])


def conflict_shares(weights: Weights, pools: Sequence[Pool], *, count: int) -> np.ndarray:
    """Share of trials (S, NUMBERS) in which demonstrations beat the remembered word.

    A digit of A is shown with a word that the labeling gives neither to it nor to the B beside it,
    and counts as often as NUMBERS says; the query is another digit of A, never trained on. Without
    labelings the word "remembered" is any other one.
    """
    drawn = streams(pools, 1)
    lines = draw_episodes(pools, part="valid", count=count, shown=(1, 1), seeds=drawn, share_a=1.0)
    draws = torch.as_tensor(np.stack([one.random((count, model.WORDS)) for one in drawn]))
    words = lines.words.clone()
    words[:, :, 0] = draws.scatter(-1, words[:, :, :2], -1.0).argmax(-1)
    asked = torch.stack([words[:, :, 0], lines.target], -1)
    shares = []
    with torch.no_grad():
        for number in NUMBERS:
            field = count_field((number, 1.0), lines=lines)
            logits, _ = model.read(weights, images=lines.images, words=words, field=field)
            shown, remembered = logits.gather(-1, asked).unbind(-1)
            shares.append((shown > remembered).double().mean(1))
    return torch.stack(shares, 1).numpy()


# Name, part, x, y and the values of all seeds.
Measures = Iterable[tuple[str, str, float, float, np.ndarray]]


@stored(
    "boundary",
    parameter_product(training=("balanced", "linear", "matched"), first_seed=(0,))
    + parameter_product(training=("balanced",), first_seed=(10,)),
    small={"training": "balanced", "first_seed": 0, "count": 2, "steps": 300},
    seconds=5.0,
    within={"value": 0.1},  # one of the EPISODES that a radius is read from moves it by half that
)
def boundary_table(training: str, first_seed: int, *, count: int = 10, steps: int = 700) -> Rows:
    """Train `count` seeds, then measure the boundary law and, with softmax attention, kicks."""
    seeds = range(first_seed, first_seed + count)
    kind, goal = ("linear", "balanced") if training == "linear" else ("softmax", training)
    weights, pools = model.train(seeds, steps=steps, goal=goal, kind=kind)
    measures = [*_law(weights, pools, "valid", kind), *_law(weights, pools, "test", kind)]
    if kind == "softmax":
        measures += _kicks(weights, pools)
    return [
        row
        for name, part, x, y, values in measures
        for row in rows_of(seed=seeds, measure=name, part=part, x=x, y=y, value=values)
    ]


def _law(weights: Weights, pools: Sequence[Pool], part: str, kind: str) -> Measures:
    drawn = streams(pools, 5)
    lines = draw_episodes(pools, part=part, count=EPISODES, shown=(1, 1), seeds=drawn)
    start = boundary(weights, lines, Reading(kind=kind))
    there = np.isfinite(start)
    slopes = stiffness(weights, lines, position=np.where(there, start, 0.0), kind=kind)

    def median(values: np.ndarray) -> np.ndarray:
        kept = (row[keep] for row, keep in zip(values, there, strict=True))
        return np.array([np.median(row) if row.size else np.inf for row in kept])

    for name in ("past attention", "in context"):
        yield name, part, 0, 0, median(slopes[name])
    for shown in COUNTS:
        moved = shifts(weights, lines, shown=shown, kind=kind)
        yield "shift", part, *shown, median(moved)
        scaled = np.where(np.isinf(moved), np.inf, moved * slopes["stiffness"])
        yield "scaled shift", part, *shown, median(scaled)


def _kicks(weights: Weights, pools: list[Pool]) -> Measures:
    for control, copies in product(CONTROLS, COPIES):
        drawn = draw_queries(pools, count=EPISODES, copies=copies, control=control, seed=3)
        shares, moved = return_shares(weights, drawn)
        yield f"radius, {control}", "test", copies, 0, radius(shares)
        if control == "none" and copies in (1, 8):
            for kick, distance in zip(KICKS, moved.T, strict=True):
                yield f"moved, copies {copies}", "test", kick, 0, distance
    drawn = draw_queries(pools, count=EPISODES, copies=1, seed=3)
    sides = ((False, "copies of both"), (True, "copies of one side"))
    for copies, (own, name) in product(COPIES, sides):
        shares, _ = return_shares(weights, drawn, copies=copies, own_only=own)
        yield f"radius, {name}", "test", copies, 0, radius(shares)


@stored(
    "labelings",
    parameter_product(labelings=(1, 4, 16, 64, 0)),
    small={"labelings": 4, "seeds": 2, "steps": 100},
    seconds=1.5,
    within={"wins": 0.03},
)
def labelings_table(labelings: int, *, seeds: int = 10, steps: int = 1000) -> Rows:
    """Train on so many labelings (0: a new one in every episode), then the conflict trials."""
    weights, pools = model.train(range(seeds), steps=steps, labelings=labelings)
    wins = conflict_shares(weights, pools, count=EPISODES).T.ravel()
    return rows_of(
        number=np.repeat(NUMBERS, seeds), seed=np.tile(range(seeds), len(NUMBERS)), wins=wins
    )


def column(table: dict[str, np.ndarray], measure: str, **choice: Any) -> np.ndarray:
    """Values (x, seeds) of a measure for a `choice` of the other columns, axes in rising order."""
    choice["measure"] = measure
    kept = np.all([table[name] == value for name, value in choice.items()], axis=0)
    order = np.lexsort((table["seed"][kept], table["y"][kept], table["x"][kept]))
    return table["value"][kept][order].reshape(-1, len(np.unique(table["seed"][kept])))


def law_slopes(table: dict[str, np.ndarray], *, most: float, **choice: Any) -> np.ndarray:
    """Slope of shift times stiffness against log(k_A/k_B) up to log `most`, for each seed (S,)."""
    ratios = np.array([x / y for x, y in sorted(COUNTS)])
    h = np.log(ratios[ratios <= most])
    return np.asarray(h @ column(table, "scaled shift", **choice)[ratios <= most] / (h @ h))


def saturation(table: dict[str, np.ndarray], *, most: float = 8.0, **choice: Any) -> np.ndarray:
    """Shift at `most` : 1 over shift at 2 : 1 (S,), of the seeds whose boundary is on the line."""
    far = column(table, "shift", x=most, y=1.0, **choice)[0]
    near = column(table, "shift", x=2.0, y=1.0, **choice)[0]
    known = np.isfinite(far) & np.isfinite(near)
    return np.asarray(far[known] / near[known])


STORED = {
    "balanced": {"training": "balanced", "first_seed": 0},
    "other splits": {"training": "balanced", "first_seed": 10},
    "matched": {"training": "matched", "first_seed": 0},
}
FAST = "rate 0.006"


def laws(most: float) -> tuple[float, float]:
    """Shift at `most` : 1 over shift at 2 : 1 of a memory and of a step of linear regression."""
    return float(np.log2(most)), 3 * (most - 1) / (most + 1)


def boundary_saturation(
    weights: Weights, pools: Sequence[Pool], *, part: str, ratio: int
) -> np.ndarray:
    """Shift of the boundary at `ratio` : 1 over that at 2 : 1, of the trainings that have both."""
    lines = draw_episodes(pools, part=part, count=EPISODES, shown=(1, 1), seeds=streams(pools, 5))
    far = np.median(shifts(weights, lines, shown=(ratio, 1)), axis=1)
    near = np.median(shifts(weights, lines, shown=(2, 1)), axis=1)
    known = np.isfinite(far) & np.isfinite(near)
    return np.asarray(far[known] / near[known])


@stored(
    "settings_A16b",
    numbered(3 * parameter_product(goal=("balanced", "matched"), rate=(2e-3, 3e-3))),
    seconds=15.0,
    within=dict.fromkeys(("value", "low", "high"), 0.3),
)
def settings_A16b(data: int, goal: str, rate: float) -> Rows:
    """Place of the boundary's shift at 8 : 1 between regression, −½, and a memory, ½.

    Six trainings, on held-out images of the training classes and on classes not seen.
    """
    seeds = range(1000 + 10 * data, 1006 + 10 * data)
    weights, pools = model.train(seeds, steps=700, goal=goal, rate=rate)
    memory, regression = laws(8)
    rows = []
    for images, part in (("training classes", "valid"), ("unseen classes", "test")):
        ratios = boundary_saturation(weights, pools, part=part, ratio=8)
        place = (ratios - regression) / (memory - regression) - 0.5
        rows.append({"images": images, **mean_rows(place)[0]})
    return rows


_fast = cache(lambda: model.train(range(300, 306), steps=700, rate=6e-3))


@stored(
    "settings_A16",
    parameter_product(data=(*STORED, FAST), demonstrations=(1, 8), kick=(0.5, 2.0)),
    seconds=0.1,
)
def settings_A16(data: str, demonstrations: int, kick: float) -> Rows:
    """One half minus what is left of a kick to the query, unseen classes; `data` are trainings."""
    if data == FAST:
        weights, pools = _fast()
        drawn = draw_queries(pools, count=EPISODES, copies=demonstrations, seed=3)
        moved = return_shares(weights, drawn)[1].T
    else:
        name = f"moved, copies {demonstrations}"
        moved = column(boundary_table.read(), name, part="test", **STORED[data])
    return mean_rows(0.5 - moved[KICKS.index(kick)] / kick)
