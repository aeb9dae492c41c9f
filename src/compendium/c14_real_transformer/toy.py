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
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from bookmaker.tables import Rows, Table, stored
from compendium.c14_real_transformer.steps import LENGTHS, query_energy, traces_of
from compendium.common.replicas import train_replicas
from compendium.common.rows import array_of, grid, mean_rows, rows_of
from spinformer.core.random import torch_generator
from spinformer.language.heads import overlap_energy
from spinformer.language.text import TEXTS

GOALS = ("recall", "translate", "avoid")
NAMES = ("query", "key", "output")
WIDTH, PATTERNS, BATCH, RATE = 16, 16, 64, 0.01
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


def toy_update(weights: Weights, layer: int, *, patterns: Tensor, states: Tensor) -> Tensor:
    """The attention output that a layer adds to the states (E, B, D)."""
    # (W_K x)·(W_Q ξ) = x·(W_Kᵀ W_Q ξ): the keys need not be formed.
    asked = states @ weights["query"][layer].mT @ weights["key"][layer]
    attention = torch.softmax(_overlaps(patterns, asked), dim=-1)
    return (attention.unsqueeze(-2) @ patterns).squeeze(-2) @ weights["output"][layer].mT


def toy_loss(weights: Weights, goal: str, examples: Examples, *, turns: Tensor) -> Tensor:
    """Loss of each copy, (E,), after all layers; `turns` are R."""
    patterns, states, target = examples
    for layer in range(len(weights["query"])):
        states = states + toy_update(weights, layer, patterns=patterns, states=states)
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


def train_toy(
    goal: str, *, seeds: Sequence[int], steps: int, record_every: int, layers: int = 3
) -> dict[str, np.ndarray]:
    """Train copies, each as it would be alone, by Adam with a falling rate, and measure on the way.

    "step" (T,), from 0, and arrays of `measure_toy` with T as first axis.
    """
    weights = initial_weights(seeds, layers=layers)
    sources, turns = streams(seeds, 2), rotation(seeds)
    kept = train_replicas(
        weights,
        losses=lambda: toy_loss(weights, goal, draw_examples(BATCH, sources), turns=turns),
        rate=RATE,
        steps=steps,
        keep=range(0, steps, record_every),
    )
    found = [measure_toy(one, goal, seeds=seeds) for one in kept.values()]
    stacked = {name: np.stack([measured[name] for measured in found]) for name in found[0]}
    return {"step": np.array(list(kept))} | stacked


@stored(
    "toy",
    grid(goal=GOALS),
    small={"goal": "recall", "steps": 80, "seeds": [0, 1]},
    seconds=2.0,
    within={"cosine": 1e-3, "loss": 1e-3},
)
def TOY(goal: str, *, steps: int = 4000, seeds: Sequence[int] = range(12)) -> Rows:
    """The long trainings of twelve copies, a row a copy, layer and eighth of the training."""
    found = train_toy(goal, seeds=seeds, steps=steps, record_every=steps // 8)
    step, copy, layer = np.indices(found["cosine"].shape).reshape(3, -1)
    columns = {name: found[name][step, copy] for name in ("loss", "floor")}
    place = {"step": found["step"][step], "copy": copy, "layer": layer}
    return rows_of(**place, cosine=found["cosine"].ravel(), **columns)


@stored(
    "toy_longer",
    grid(goal=GOALS),
    small={"goal": "avoid", "steps": 80},
    seconds=2.0,
    within={"cosine": 1e-3, "loss": 1e-3},
)
def LONGER(goal: str, *, steps: int = 40_000) -> Rows:
    """Five other copies, trained ten times as long."""
    return TOY.rows(goal, steps=steps, seeds=range(200, 205))


def read_toy(kept: Table = TOY) -> dict[str, dict[str, np.ndarray]]:
    """The stored trainings by goal: "step" (T,), and arrays as `train_toy` gives them."""
    table, found = kept.read(), {}
    for goal in GOALS:
        names = ("cosine", "loss", "floor", "step")
        arrays = {n: array_of(table, n, "step", "copy", "layer", goal=goal) for n in names}
        arrays |= {name: arrays[name][..., 0] for name in ("loss", "floor")}
        found[goal] = arrays | {"step": arrays["step"][:, 0, 0]}
    return found


@stored(
    "settings_A14c",
    [
        *grid(goal=GOALS, layers=(3, 2, 6), window=(0,)),
        *grid(goal=[f"depth in {name}" for name in TEXTS], layers=(6,), window=LENGTHS),
    ],
    checked=1,
    seconds=1.0,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)
def SETTINGS(goal: str, layers: int, window: int) -> Rows:
    """Toy: change by training of the mean cosine over layers, in the direction of the goal.

    Three layers: the long trainings, after each eighth; two and six: short ones of their own.
    Model (`window` tokens of a text): ln of how much deeper its overlap energy is than for queries
    in ten turns, in the layer where that is least.
    """
    if window:
        ratios = []
        for trace in traces_of([goal.removeprefix("depth in ")], window):
            draws = [query_energy(trace, turned=seed).mean() for seed in range(10)]
            ratios.append(np.log(query_energy(trace).mean() / np.array(draws)))
        return [{"steps": 0, **mean_rows(min(ratios, key=np.mean))[0]}]
    if layers == 3:
        trained = [read_toy(table)[goal] for table in (TOY, LONGER)]
    else:
        seeds = range(100, 105)
        trained = [train_toy(goal, seeds=seeds, steps=120, record_every=120, layers=layers)]
    sign = 1 if goal == "recall" else -1
    return [
        {"steps": int(step)} | mean_rows(sign * (values - one["cosine"][0]).mean(-1))[0]
        for one in trained
        for step, values in zip(one["step"][1:], one["cosine"][1:], strict=True)
    ]


def _normal(stream: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def _overlaps(patterns: Tensor, states: Tensor) -> Tensor:
    """x_j·ξ/√D of patterns (E, B, N, D) and states (E, B, D): (E, B, N)."""
    return (patterns @ states.unsqueeze(-1)).squeeze(-1) / math.sqrt(WIDTH)


def _loss(scores: Tensor, target: Tensor) -> Tensor:
    """Mean over the examples of scores (E, B, N): one number a copy."""
    return cross_entropy(scores.mT, target, reduction="none").mean(-1)
