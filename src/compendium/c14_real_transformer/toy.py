"""A stack of attention steps small enough to watch its implicit energies while it learns.

The model reads N random patterns x_j of length √D and a noisy copy ξ of one of them, x_c.
Every layer adds one attention step to the state, ξ ← ξ + W_O Σ_j a_j x_j with
a = softmax(β (W_K x_j)·(W_Q ξ)), β = 1/√D, and at the end the state is scored against the
patterns by dot products. Three goals use the same data and the same layers differently:

* "recall": the largest ξ·x_j must be that of x_c (retrieve what was asked for);
* "translate": the largest ξ·(R x_j) must be that of x_c, R a fixed rotation (the values have
  to live in another frame than the keys);
* "avoid": the smallest ξ·x_j must be that of x_c (retrieve it in order to move away).

Patterns have one length, so that the probability of j given ξ is softmax_j(ξ·x_j/σ²), σ the noise:
no model can have a smaller loss than these probabilities have, whatever the goal ("floor").

Shapes: E copies of the toy, which differ in their seed and are computed at once; batches of B
examples, patterns (E, B, N, D), states (E, B, D); L layers, counted from 0; weights are float64
tensors (L, E, D, D) by name ("query", "key", "output"). Table `toy` holds the long trainings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bookmaker.tables import Rows, Table, stored
from compendium.common.rows import array_of, rows_of
from spinformer.core.random import torch_generator
from spinformer.core.records import record
from spinformer.language.heads import overlap_energy

GOALS = ("recall", "translate", "avoid")
Weights = Mapping[str, torch.Tensor]
NAMES = ("query", "key", "output")
Examples = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@record
class ToyTask:
    """Sizes and noise of the task, and the learning rate, batch and seeds of its training.

    width: D; patterns: N; layers: L; noise: standard deviation of each component of the noise added
    to a pattern; goal: one of GOALS; learning_rate: Adam's at the beginning; batch: examples a
    step; copies: E, trained from seeds `seed` to `seed` + E − 1, each as it would be alone.
    """

    width: int = 16
    patterns: int = 16
    layers: int = 3
    noise: float = 1.0
    goal: str = "recall"
    learning_rate: float = 0.01
    batch: int = 128
    copies: int = 1
    seed: int = 0

    def streams(self, shift: int) -> list[torch.Generator]:
        """One generator a copy, another set for another `shift`."""
        seeds = range(self.seed, self.seed + self.copies)
        return [torch_generator(number + 1_000_003 * shift) for number in seeds]


def initial_weights(task: ToyTask) -> dict[str, torch.Tensor]:
    """W_Q, W_K, W_O of all layers and copies, (L, E, D, D), entries N(0, 1/(4D)), float64."""
    drawn = [
        {name: _normal(stream, task.layers, task.width, task.width) for name in NAMES}
        for stream in task.streams(0)
    ]
    scale = 2 * math.sqrt(task.width)
    return {name: torch.stack([one[name] for one in drawn], dim=1) / scale for name in NAMES}


def rotation(task: ToyTask) -> torch.Tensor:
    """The fixed rotations R (E, D, D) of the task: Q of QR decompositions of Gaussian matrices."""
    drawn = [_normal(stream, task.width, task.width) for stream in task.streams(3)]
    return torch.linalg.qr(torch.stack(drawn)).Q


def draw_examples(task: ToyTask, count: int, *, streams: Sequence[torch.Generator]) -> Examples:
    """`count` examples a copy, drawn from one generator each.

    Returns patterns (E, B, N, D), queries (E, B, D), which pattern each is of (E, B).
    """
    drawn = [
        (
            _normal(stream, count, task.patterns, task.width),
            torch.randint(task.patterns, (count,), generator=stream),
            _normal(stream, count, task.width),
        )
        for stream in streams
    ]
    patterns, target, noise = (torch.stack(list(parts)) for parts in zip(*drawn, strict=True))
    patterns = math.sqrt(task.width) * functional.normalize(patterns, dim=-1)
    asked = target[..., None, None].expand(*target.shape, 1, task.width)
    return patterns, patterns.gather(2, asked).squeeze(2) + task.noise * noise, target


def toy_energy(
    weights: Weights, layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Overlap energy (see `overlap_energy`) of a layer's keys at the states (E, B, D): (E, B)."""
    queries = (states @ weights["query"][layer].mT).unsqueeze(-2)
    keys = patterns @ weights["key"][layer].mT.unsqueeze(-3)
    return overlap_energy(queries, keys=keys, beta=states.shape[-1] ** -0.5).squeeze(-1)


def toy_update(
    weights: Weights, layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """The attention output that layer `layer` adds to the states (E, B, D)."""
    # (W_K x)·(W_Q ξ) = x·(W_Kᵀ W_Q ξ): the keys need not be formed.
    asked = states @ weights["query"][layer].mT @ weights["key"][layer]
    logits = (patterns @ asked.unsqueeze(-1)).squeeze(-1) / math.sqrt(states.shape[-1])
    attention = torch.softmax(logits, dim=-1)
    mixed = (attention.unsqueeze(-2) @ patterns).squeeze(-2)
    return mixed @ weights["output"][layer].mT


def toy_logits(
    weights: Weights, task: ToyTask, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Scores (E, B, N) of the patterns after all layers, as the goal asks (see the module)."""
    for layer in range(task.layers):
        states = states + toy_update(weights, layer, patterns=patterns, states=states)
    if task.goal == "translate":
        patterns = patterns @ rotation(task).mT.unsqueeze(-3)
    sign = -1.0 if task.goal == "avoid" else 1.0
    return sign * (patterns @ states.unsqueeze(-1)).squeeze(-1) / math.sqrt(task.width)


def measure_toy(weights: Weights, task: ToyTask, *, count: int = 2000) -> dict[str, np.ndarray]:
    """What the layers do on `count` fresh examples: arrays (E, L) and (E,).

    Per copy and layer `fell`, the fraction of states whose overlap energy falls in the layer's
    update, its own keys held fixed, and `cosine`, the mean cosine between the update and −gradient;
    per copy `loss`, `accuracy` and `floor`, the loss of the exact probabilities on the same data.
    """
    patterns, start, target = draw_examples(task, count, streams=task.streams(1))
    rows: dict[str, list[torch.Tensor]] = {"fell": [], "cosine": []}
    states = start
    for layer in range(task.layers):
        leaf = states.detach().requires_grad_(True)
        before = toy_energy(weights, layer, patterns=patterns, states=leaf)
        (gradient,) = torch.autograd.grad(before.sum(), leaf)
        with torch.no_grad():
            update = toy_update(weights, layer, patterns=patterns, states=states)
            after = toy_energy(weights, layer, patterns=patterns, states=states + update)
            rows["fell"].append((after < before).double().mean(-1))
            cosine = functional.cosine_similarity(update, -gradient, dim=-1, eps=1e-30)
            rows["cosine"].append(cosine.mean(-1))
            states = states + update
    result = {name: torch.stack(values, dim=-1).numpy() for name, values in rows.items()}
    with torch.no_grad():
        logits = toy_logits(weights, task, patterns=patterns, states=start)
        exact = (patterns @ start.unsqueeze(-1)).squeeze(-1) / task.noise**2
        right = logits.argmax(-1) == target
    return result | {
        "loss": _cross_entropy(logits, target).numpy(),
        "accuracy": right.double().mean(-1).numpy(),
        "floor": _cross_entropy(exact, target).numpy(),
    }


def train_toy(task: ToyTask, *, steps: int = 300, record_every: int = 50) -> dict[str, np.ndarray]:
    """Train all copies by Adam on fresh batches and measure their inner energies on the way.

    The loss is the cross-entropy of the final scores alone; no energy enters it. The learning rate
    falls to zero along a quarter of a cosine's period squared, cos²(π t/2T). Measured before
    training, after every `record_every` steps and at the end: "step" (T,) and the entries of
    `measure_toy`, (T, E, L) or (T, E).

    >>> train_toy(ToyTask(layers=2, batch=8), steps=2, record_every=1)["step"]
    array([0, 1, 2])
    """
    weights = {name: w.requires_grad_(True) for name, w in initial_weights(task).items()}
    optimizer = torch.optim.Adam(list(weights.values()), lr=task.learning_rate)
    streams = task.streams(2)
    times, found = [0], [measure_toy(weights, task)]
    for step in range(1, steps + 1):
        rate = task.learning_rate * math.cos(0.5 * math.pi * (step - 1) / steps) ** 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        patterns, states, target = draw_examples(task, task.batch, streams=streams)
        logits = toy_logits(weights, task, patterns=patterns, states=states)
        optimizer.zero_grad()
        # A sum over copies: Adam's steps are those of each copy alone.
        _cross_entropy(logits, target).sum().backward()
        optimizer.step()
        if step % record_every == 0 or step == steps:
            times.append(step)
            found.append(measure_toy(weights, task))
    stacked = {name: np.stack([measured[name] for measured in found]) for name in found[0]}
    return {"step": np.array(times)} | stacked


def toy_rows(goal: str, *, steps: int, copies: int, seed: int = 0) -> Rows:
    """Rows of a stored table: one a copy, layer and eighth of the training.

    >>> len(toy_rows("recall", steps=8, copies=2))
    54
    """
    task = ToyTask(goal=goal, batch=64, copies=copies, seed=seed)
    found = train_toy(task, steps=steps, record_every=steps // 8)
    step, copy, layer = np.indices(found["cosine"].shape).reshape(3, -1)
    return rows_of(
        step=found["step"][step],
        copy=copy,
        layer=layer,
        **{name: found[name][step, copy, layer] for name in ("cosine", "fell")},
        **{name: found[name][step, copy] for name in ("loss", "floor", "accuracy")},
    )


@stored(Path(__file__).with_name("toy.csv"), units=[{"goal": goal} for goal in GOALS])
def TOY(goal: str) -> Rows:
    """The long trainings of twelve copies."""
    return toy_rows(goal, steps=4000, copies=12)


@stored(Path(__file__).with_name("toy_longer.csv"), units=[{"goal": goal} for goal in GOALS])
def LONGER(goal: str) -> Rows:
    """Five other copies, trained ten times as long."""
    return toy_rows(goal, steps=40_000, copies=5, seed=200)


def read_toy(kept: Table = TOY) -> dict[str, dict[str, np.ndarray]]:
    """The stored trainings by goal: "step" (T,), and and arrays as `train_toy` gives them."""
    table, axes = kept.read(), ("step", "copy", "layer")
    found = {}
    for goal in GOALS:
        arrays = {n: array_of(table, n, *axes, goal=goal) for n in ("cosine", "fell")}
        for name in ("loss", "floor", "accuracy"):
            arrays[name] = array_of(table, name, *axes, goal=goal)[..., 0]
        found[goal] = arrays | {"step": np.unique(table["step"][table["goal"] == goal])}
    return found


def _normal(stream: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over the examples of scores (E, B, N): one number a copy."""
    picked = torch.log_softmax(logits, dim=-1).gather(-1, target.unsqueeze(-1))
    return -picked.squeeze(-1).mean(-1)
