"""A stack of attention steps small enough to watch its implicit energies while it learns.

The model reads N random patterns x_j of length √D and a noisy copy ξ of one of them, x_c.
Every layer adds one attention step to the state, ξ ← ξ + W_O Σ_j a_j x_j with
a = softmax(β (W_K x_j)·(W_Q ξ)), β = 1/√D. At the end, by dot products with the state, a goal wants

* "recall": the largest ξ·x_j to be that of x_c;
* "translate": the largest ξ·(R x_j) to be that of x_c, R a fixed rotation;
* "avoid": the smallest ξ·x_j to be that of x_c.

Patterns have one length, so that the probability of j given ξ is softmax_j(ξ·x_j/σ²), σ the noise:
the loss of these probabilities is the least of any model, whatever the goal ("floor").

Shapes: E copies of the toy, one a seed; batches of B examples, patterns (E, B, N, D), states
(E, B, D); L layers, counted from 0; weights (L, E, D, D) by name ("query", "key", "output").
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from bookmaker.tables import Rows, Table, stored
from compendium.common.replicas import train_replicas
from compendium.common.rows import array_of, mean_rows, numbered, parameter_product, rows_of
from spinformer.core.random import torch_generator
from spinformer.language.heads import overlap_energy

GOALS = ("recall", "translate", "avoid")
NAMES = ("query", "key", "output")
WIDTH = 16
PATTERNS = 16
BATCH = 64
RATE = 0.01
NOISE = 1.0  # standard deviation of each component of the noise added to a pattern
Weights = Mapping[str, Tensor]
Examples = tuple[Tensor, Tensor, Tensor]


def streams(seeds: Sequence[int], shift: int) -> list[torch.Generator]:
    """One generator a copy, another set for another `shift`."""
    return [torch_generator(number + 1_000_003 * shift) for number in seeds]


def initial_weights(seeds: Sequence[int], *, layers: int = 3) -> dict[str, Tensor]:
    """W_Q, W_K, W_O of all layers and copies, (L, E, D, D), entries N(0, 1/(4D)), float64."""
    size = (len(NAMES), layers, WIDTH, WIDTH)
    drawn = torch.stack([_normal(stream, *size) for stream in streams(seeds, 0)], dim=2)
    return {name: drawn[k] / (2 * math.sqrt(WIDTH)) for k, name in enumerate(NAMES)}


def rotation(seeds: Sequence[int]) -> Tensor:
    """The fixed rotations R (E, D, D) of the task: Q of QR decompositions of Gaussian matrices."""
    drawn = [_normal(stream, WIDTH, WIDTH) for stream in streams(seeds, 3)]
    return torch.linalg.qr(torch.stack(drawn)).Q


def draw_examples(count: int, sources: Sequence[torch.Generator]) -> Examples:
    """Patterns (E, B, N, D), queries (E, B, D), which pattern each is of (E, B); B = `count`."""
    drawn = torch.stack([_normal(source, count, PATTERNS, WIDTH) for source in sources])
    patterns = math.sqrt(WIDTH) * normalize(drawn, dim=-1)
    target = torch.stack([torch.randint(PATTERNS, (count,), generator=one) for one in sources])
    noise = torch.stack([_normal(source, count, WIDTH) for source in sources])
    asked = target[..., None, None].expand(*target.shape, 1, WIDTH)
    return patterns, patterns.gather(2, asked).squeeze(2) + NOISE * noise, target


def toy_update(
    weights: Weights,
    layer: int,
    *,
    patterns: Tensor,
    states: Tensor,
    matched: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The attention output that a layer adds to the states (E, B, D).

    Of attention weights as they are, or as `matched` changes them.
    """
    # (W_K x)·(W_Q ξ) = x·(W_Kᵀ W_Q ξ): the keys need not be formed.
    asked = states @ weights["query"][layer].mT @ weights["key"][layer]
    attention = torch.softmax(_overlaps(patterns, asked), dim=-1)
    if matched is not None:
        attention = matched(attention)
    return (attention.unsqueeze(-2) @ patterns).squeeze(-2) @ weights["output"][layer].mT


def toy_loss(
    weights: Weights,
    goal: str,
    examples: Examples,
    *,
    turns: Tensor,
    matched: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Loss of each copy, (E,), after all layers; `turns` are R, `matched` as in `toy_update`."""
    patterns, states, target = examples
    for layer in range(len(weights["query"])):
        update = toy_update(weights, layer, patterns=patterns, states=states, matched=matched)
        states = states + update
    if goal == "translate":
        patterns = patterns @ turns.mT.unsqueeze(-3)
    scores = _overlaps(patterns, states)
    return _loss(-scores if goal == "avoid" else scores, target)


def measure_toy(
    weights: Weights, goal: str, *, seeds: Sequence[int], count: int = 2000
) -> dict[str, np.ndarray]:
    """What the layers do on `count` fresh examples.

    `cosine` (E, L), mean cosine of update and −gradient of the layer's overlap energy; `loss` (E,)
    and `floor` (E,), the loss of the exact probabilities on the same data.
    """
    examples = draw_examples(count, streams(seeds, 1))
    patterns, states, target = examples
    cosines = []
    for layer in range(len(weights["query"])):
        leaf = states.detach().requires_grad_(True)
        queries = (leaf @ weights["query"][layer].mT).unsqueeze(-2)
        keys = patterns @ weights["key"][layer].mT.unsqueeze(-3)
        energy = overlap_energy(queries, keys=keys, beta=WIDTH**-0.5)
        (gradient,) = torch.autograd.grad(energy.sum(), leaf)
        with torch.no_grad():
            update = toy_update(weights, layer, patterns=patterns, states=states)
            cosines.append(cosine_similarity(update, -gradient, dim=-1, eps=1e-30).mean(-1))
            states = states + update
    with torch.no_grad():
        loss = toy_loss(weights, goal, examples, turns=rotation(seeds))
        exact = math.sqrt(WIDTH) * _overlaps(patterns, examples[1]) / NOISE**2
    found = {"cosine": torch.stack(cosines, -1), "loss": loss, "floor": _loss(exact, target)}
    return {name: values.numpy() for name, values in found.items()}


def trained_weights(
    goal: str,
    *,
    seeds: Sequence[int],
    steps: int,
    keep: Collection[int] = (),
    layers: int = 3,
    rate: float = RATE,
) -> dict[int, dict[str, Tensor]]:
    """Weights of copies by the number of updates, those in `keep` and the last.

    By Adam with a falling rate; each copy is trained as it would be alone.
    """
    weights = initial_weights(seeds, layers=layers)
    sources = streams(seeds, 2)
    turns = rotation(seeds)
    return train_replicas(
        weights,
        losses=lambda: toy_loss(weights, goal, draw_examples(BATCH, sources), turns=turns),
        rate=rate,
        steps=steps,
        keep=keep,
    )


def train_toy(
    goal: str, *, seeds: Sequence[int], steps: int, record_every: int, layers: int = 3
) -> dict[str, np.ndarray]:
    """Train copies and measure on the way.

    "step" (T,), from 0, and arrays of `measure_toy` with T as first axis.
    """
    kept = trained_weights(
        goal, seeds=seeds, steps=steps, keep=range(0, steps, record_every), layers=layers
    )
    measured = [measure_toy(weights, goal, seeds=seeds) for weights in kept.values()]
    stacked = {name: np.stack([one[name] for one in measured]) for name in measured[0]}
    return {"step": np.array(list(kept))} | stacked


@stored(
    "toy",
    parameter_product(goal=GOALS),
    small={"goal": "recall", "steps": 80, "seeds": [0, 1]},
    seconds=2.0,
    within={"cosine": 1e-3, "loss": 1e-3},
)
def toy_table(goal: str, *, steps: int = 4000, seeds: Sequence[int] = range(12)) -> Rows:
    """The long trainings of twelve copies, a row a copy, layer and eighth of the training."""
    trained = train_toy(goal, seeds=seeds, steps=steps, record_every=steps // 8)
    step, copy, layer = np.indices(trained["cosine"].shape).reshape(3, -1)
    return rows_of(
        step=trained["step"][step],
        copy=copy,
        layer=layer,
        cosine=trained["cosine"].ravel(),
        loss=trained["loss"][step, copy],
        floor=trained["floor"][step, copy],
    )


@stored(
    "toy_longer",
    parameter_product(goal=GOALS),
    small={"goal": "avoid", "steps": 80},
    seconds=2.0,
    within={"cosine": 1e-3, "loss": 1e-3},
)
def longer_table(goal: str, *, steps: int = 40_000) -> Rows:
    """Five other copies, trained ten times as long."""
    return toy_table.rows(goal, steps=steps, seeds=range(200, 205))


def read_toy(kept: Table = toy_table) -> dict[str, dict[str, np.ndarray]]:
    """The stored trainings by goal: "step" (T,), and arrays as `train_toy` gives them."""
    table = kept.read()
    by_goal = {}
    for goal in GOALS:
        arrays = {
            name: array_of(table, name, "step", "copy", "layer", goal=goal)
            for name in ("cosine", "loss", "floor", "step")
        }
        by_goal[goal] = {
            "cosine": arrays["cosine"],
            "loss": arrays["loss"][..., 0],
            "floor": arrays["floor"][..., 0],
            "step": arrays["step"][:, 0, 0],
        }
    return by_goal


def moved_weights(attention: Tensor) -> Tensor:
    """Attention weights (..., N) of a null that matches nothing: each is the next pattern's."""
    return attention.roll(1, dims=-1)


@torch.no_grad()
def step_benefits(
    weights: Weights, goal: str, *, seeds: Sequence[int], count: int = 2000
) -> dict[str, np.ndarray]:
    """How much lower the loss of each copy, (E,), is for its attention steps, in nats.

    Than without them ("no steps"), and than for steps of the same weights to patterns that do not
    match the query ("moved weights"), in all layers.
    """
    examples = draw_examples(count, streams(seeds, 4))
    turns = rotation(seeds)
    own = toy_loss(weights, goal, examples, turns=turns)
    none = {name: matrix[:0] for name, matrix in weights.items()}
    without = toy_loss(none, goal, examples, turns=turns)
    moved = toy_loss(weights, goal, examples, turns=turns, matched=moved_weights)
    return {"no steps": (without - own).numpy(), "moved weights": (moved - own).numpy()}


@stored(
    "settings_A14c",
    numbered(parameter_product(goal=GOALS, layers=(1, 2, 3, 6), rate=(0.003, 0.01))),
    seconds=8.0,
    within=dict.fromkeys(("value", "low", "high"), 0.1),
)
def settings_A14c(data: int, goal: str, layers: int, rate: float, *, steps: int = 600) -> Rows:
    """Nats of the loss that five trained copies owe to their attention steps, by two nulls."""
    seeds = range(1000 + 10 * data, 1005 + 10 * data)
    weights = trained_weights(goal, seeds=seeds, steps=steps, layers=layers, rate=rate)[steps]
    benefits = step_benefits(weights, goal, seeds=seeds)
    return [{"null": null, **mean_rows(nats)[0]} for null, nats in benefits.items()]


def _normal(stream: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def _overlaps(patterns: Tensor, states: Tensor) -> Tensor:
    """x_j·ξ/√D of patterns (E, B, N, D) and states (E, B, D): (E, B, N)."""
    return (patterns @ states.unsqueeze(-1)).squeeze(-1) / math.sqrt(WIDTH)


def _loss(scores: Tensor, target: Tensor) -> Tensor:
    """Mean over the examples of scores (E, B, N): one number a copy."""
    return cross_entropy(scores.mT, target, reduction="none").mean(-1)
