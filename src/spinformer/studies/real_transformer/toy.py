"""A stack of attention steps small enough to watch its implicit energies while it learns.

The model reads N random patterns x_j of length √D and a noisy copy ξ of one of them, x_c.
Every layer adds one attention step to the state, ξ ← ξ + W_O Σ_j a_j x_j with
a = softmax(β (W_K x_j)·(W_Q ξ)), β = 1/√D, and at the end the state is scored against the
patterns by dot products. Three goals use the same data and the same layers differently:

* "recall": the largest ξ·x_j must be that of x_c (retrieve what was asked for);
* "translate": the largest ξ·(R x_j) must be that of x_c, R a fixed rotation (the values have
  to live in another frame than the keys);
* "avoid": the smallest ξ·x_j must be that of x_c (retrieve it in order to move away).

Shapes: batches of B examples, patterns (B, N, D), states (B, D); L layers, counted from 0; weights
are float64 tensors (L, D, D) by name ("query", "key", "output").
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch.nn import functional

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.studies.real_transformer.energies import alignment, overlap_energy

GOALS = ("recall", "translate", "avoid")
Weights = Mapping[str, torch.Tensor]


@record
class ToyTask:
    """Sizes and noise of the task, and the learning rate, batch and seed of its training.

    width: D; patterns: N; layers: L; noise: standard deviation of each component of the noise
    added to a pattern; goal: one of GOALS; learning_rate: Adam's; batch: examples a step. Raises
    TypeError or ValueError for a field out of range.

    >>> ToyTask(goal="avoid").layers
    3
    """

    width: int = 16
    patterns: int = 16
    layers: int = 3
    noise: float = 1.0
    goal: str = "recall"
    learning_rate: float = 0.01
    batch: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate every field."""
        for name in ("width", "patterns", "layers", "batch"):
            check_integer(name, getattr(self, name), low=1)
        check_real("noise", self.noise, low=0.0)
        check_choice("goal", self.goal, GOALS)
        check_real("learning_rate", self.learning_rate, low=0.0, open_low=True)
        check_integer("seed", self.seed, low=0)


@record
class ToyRecord:
    """What was measured after each number of training steps in `steps` (T of them).

    On fixed fresh data, per layer: `change` (T, L) mean change of the overlap energy of
    the layer's own keys in the layer's update, `fell` (T, L) fraction of states for which
    it fell, `cosine` (T, L) mean cosine between the update and −gradient; and `loss`,
    `accuracy` (T,).

    >>> train_toy(ToyTask(layers=2, batch=8), steps=2, record_every=1).steps
    (0, 1, 2)
    """

    steps: tuple[int, ...]
    change: np.ndarray
    fell: np.ndarray
    cosine: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray


def initial_weights(task: ToyTask) -> dict[str, torch.Tensor]:
    """Random W_Q, W_K, W_O of all layers, (L, D, D) each, entries N(0, 1/(4D)), float64.

    >>> tuple(initial_weights(ToyTask(width=4))["query"].shape)
    (3, 4, 4)
    """
    generator = torch_generator(task.seed)
    shape = (task.layers, task.width, task.width)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        / (2 * math.sqrt(task.width))
        for name in ("query", "key", "output")
    }


def rotation(task: ToyTask) -> torch.Tensor:
    """The fixed rotation R (D, D) of the task: Q of a QR decomposition of a Gaussian matrix.

    >>> turn = rotation(ToyTask(width=3))
    >>> torch.allclose(turn @ turn.mT, torch.eye(3, dtype=torch.float64))
    True
    """
    generator = torch_generator(task.seed + 3_000_003)
    gaussian = torch.randn(task.width, task.width, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(gaussian).Q


def draw_examples(
    task: ToyTask, count: int, *, seed: TorchSeed
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`count` examples: patterns (B, N, D), queries (B, D), which pattern each is of (B,).

    Raises ValueError for a count below one.

    >>> patterns, states, target = draw_examples(ToyTask(noise=0.0), 2, seed=0)
    >>> torch.equal(states, patterns[torch.arange(2), target])
    True
    """
    count = check_integer("count", count, low=1)
    generator = torch_generator(seed)
    patterns = torch.randn(
        count, task.patterns, task.width, generator=generator, dtype=torch.float64
    )
    patterns = math.sqrt(task.width) * functional.normalize(patterns, dim=-1)
    target = torch.randint(task.patterns, (count,), generator=generator)
    noise = torch.randn(count, task.width, generator=generator, dtype=torch.float64)
    return patterns, patterns[torch.arange(count), target] + task.noise * noise, target


def toy_energy(
    weights: Weights, layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Overlap energy (see `overlap_energy`) of a layer's keys at the states (B, D): (B,).

    Raises ValueError for shapes that do not fit or a layer that is not there.

    >>> task = ToyTask()
    >>> patterns, states, _ = draw_examples(task, 5, seed=0)
    >>> bool((toy_energy(initial_weights(task), 0, patterns=patterns, states=states) < 0).all())
    True
    """
    layer = _check(weights, layer, patterns, states)
    queries = (states @ weights["query"][layer].mT).unsqueeze(-2)
    keys = patterns @ weights["key"][layer].mT
    return overlap_energy(queries, keys=keys, beta=states.shape[-1] ** -0.5).squeeze(-1)


def toy_update(
    weights: Weights, layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """The attention output that layer `layer` adds to the states (B, D).

    Raises ValueError for shapes that do not fit or a layer that is not there.

    >>> task = ToyTask()
    >>> patterns, states, _ = draw_examples(task, 5, seed=0)
    >>> tuple(toy_update(initial_weights(task), 0, patterns=patterns, states=states).shape)
    (5, 16)
    """
    layer = _check(weights, layer, patterns, states)
    # (W_K x)·(W_Q ξ) = x·(W_Kᵀ W_Q ξ): the keys need not be formed.
    asked = states @ weights["query"][layer].mT @ weights["key"][layer]
    logits = (patterns @ asked.unsqueeze(-1)).squeeze(-1) / math.sqrt(states.shape[-1])
    attention = torch.softmax(logits, dim=-1)
    mixed = (attention.unsqueeze(1) @ patterns).squeeze(1)
    return mixed @ weights["output"][layer].mT


def toy_logits(
    weights: Weights, task: ToyTask, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Scores (B, N) of the patterns after all layers, as the goal asks (see the module).

    >>> task = ToyTask()
    >>> patterns, states, _ = draw_examples(task, 5, seed=0)
    >>> tuple(toy_logits(initial_weights(task), task, patterns=patterns, states=states).shape)
    (5, 16)
    """
    for layer in range(task.layers):
        states = states + toy_update(weights, layer, patterns=patterns, states=states)
    if task.goal == "translate":
        patterns = patterns @ rotation(task).mT
    sign = -1.0 if task.goal == "avoid" else 1.0
    return sign * (patterns @ states.unsqueeze(-1)).squeeze(-1) / math.sqrt(task.width)


def measure_toy(weights: Weights, task: ToyTask, *, count: int = 2000) -> dict[str, np.ndarray]:
    """Energies of every layer's update on `count` fresh examples (the entries of ToyRecord).

    >>> task = ToyTask()
    >>> sorted(measure_toy(initial_weights(task), task, count=20))
    ['accuracy', 'change', 'cosine', 'fell', 'loss']
    """
    patterns, start, target = draw_examples(task, count, seed=task.seed + 1_000_003)
    rows: dict[str, list[float]] = {"change": [], "fell": [], "cosine": []}
    states = start
    for layer in range(task.layers):
        leaf = states.detach().requires_grad_(True)
        before = toy_energy(weights, layer, patterns=patterns, states=leaf)
        (gradient,) = torch.autograd.grad(before.sum(), leaf)
        with torch.no_grad():
            update = toy_update(weights, layer, patterns=patterns, states=states)
            after = toy_energy(weights, layer, patterns=patterns, states=states + update)
            rows["change"].append(float((after - before).mean()))
            rows["fell"].append(float((after < before).double().mean()))
            rows["cosine"].append(float(alignment(update, gradient=gradient).mean()))
            states = states + update
    with torch.no_grad():
        logits = toy_logits(weights, task, patterns=patterns, states=start)
        loss = functional.cross_entropy(logits, target)
        accuracy = (logits.argmax(-1) == target).double().mean()
    result = {name: np.array(values) for name, values in rows.items()}
    return result | {"loss": loss.numpy(), "accuracy": accuracy.numpy()}


def train_toy(task: ToyTask, *, steps: int = 300, record_every: int = 50) -> ToyRecord:
    """Train the stack by Adam on fresh batches and measure its inner energies on the way.

    The loss is the cross-entropy of the final scores alone; no energy enters it. Measured before
    training, after every `record_every` steps and at the end. Raises ValueError for numbers below
    one.

    >>> train_toy(ToyTask(layers=2, batch=8), steps=3, record_every=2).cosine.shape
    (3, 2)
    """
    steps = check_integer("steps", steps, low=1)
    record_every = check_integer("record_every", record_every, low=1)
    weights = {name: w.requires_grad_(True) for name, w in initial_weights(task).items()}
    optimizer = torch.optim.Adam(list(weights.values()), lr=task.learning_rate)
    generator = torch_generator(task.seed + 2_000_003)
    times, found = [0], [measure_toy(weights, task)]
    for step in range(1, steps + 1):
        patterns, states, target = draw_examples(task, task.batch, seed=generator)
        logits = toy_logits(weights, task, patterns=patterns, states=states)
        loss = functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % record_every == 0 or step == steps:
            times.append(step)
            found.append(measure_toy(weights, task))
    stacked = {name: np.stack([measured[name] for measured in found]) for name in found[0]}
    return ToyRecord(steps=tuple(times), **stacked)


def _check(weights: Weights, layer: int, patterns: torch.Tensor, states: torch.Tensor) -> int:
    layers, width, _ = weights["query"].shape
    check_tensor("states", states, shape=(None, width))
    check_tensor("patterns", patterns, shape=(len(states), None, width))
    return check_integer("layer", layer, low=0, high=layers - 1)
