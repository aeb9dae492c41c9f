"""A stack of attention steps small enough to watch its implicit energies while it learns.

The model reads N random patterns x_j of length √D and a noisy copy xi of one of them, x_c.
Every layer adds one attention step to the state, xi ← xi + W_O Σ_j a_j x_j with
a = softmax(β (W_K x_j)·(W_Q xi)), β = 1/√D, and at the end the state is scored against the
patterns by dot products. Three goals use the same data and the same layers differently:

* "recall": the largest xi·x_j must be that of x_c (retrieve what was asked for);
* "translate": the largest xi·(R x_j) must be that of x_c, R a fixed rotation (the values have
  to live in another frame than the keys);
* "avoid": the smallest xi·x_j must be that of x_c (retrieve it in order to move away).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from spinformer.core.checks import check_choice, check_integer, check_real

GOALS = ("recall", "translate", "avoid")


@dataclass(frozen=True)
class ToyTask:
    """Sizes and noise of the task, and the learning rate, batch and seed of its training."""

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


@dataclass(frozen=True)
class ToyRecord:
    """What was measured after each number of training steps in `steps` (T of them).

    On fixed fresh data, per layer: `change` (T, L) mean change of the overlap energy of
    the layer's own keys in the layer's update, `fell` (T, L) fraction of states for which
    it fell, `cosine` (T, L) mean cosine between the update and −gradient; and `loss`,
    `accuracy` (T,).
    """

    steps: tuple[int, ...]
    change: torch.Tensor
    fell: torch.Tensor
    cosine: torch.Tensor
    loss: torch.Tensor
    accuracy: torch.Tensor


def initial_weights(task: ToyTask) -> dict[str, torch.Tensor]:
    """Random W_Q, W_K, W_O of all layers, (L, D, D) each, entries N(0, 1/(4D)), float64."""
    generator = torch.Generator().manual_seed(task.seed)
    shape = (task.layers, task.width, task.width)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        / (2 * math.sqrt(task.width))
        for name in ("query", "key", "output")
    }


def rotation(task: ToyTask) -> torch.Tensor:
    """The fixed rotation R (D, D) of the task: Q of a QR decomposition of a Gaussian matrix."""
    generator = torch.Generator().manual_seed(task.seed + 3_000_003)
    gaussian = torch.randn(task.width, task.width, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(gaussian).Q


def draw(
    task: ToyTask, size: int, *, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`size` examples: patterns (B, N, D), queries (B, D), which pattern each is of (B,)."""
    patterns = torch.randn(
        size, task.patterns, task.width, generator=generator, dtype=torch.float64
    )
    patterns = math.sqrt(task.width) * functional.normalize(patterns, dim=-1)
    target = torch.randint(task.patterns, (size,), generator=generator)
    noise = torch.randn(size, task.width, generator=generator, dtype=torch.float64)
    return patterns, patterns[torch.arange(size), target] + task.noise * noise, target


def toy_energy(
    weights: dict[str, torch.Tensor], layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Overlap energy −β⁻¹[lse_j(β (k_j − k̄)·q) − log N] of states (B, D): (B,), β = 1/√D."""
    root = math.sqrt(states.shape[-1])
    logits = _logits(weights, layer, patterns, states)
    # Centring the logits of a query is centring the keys.
    logits = logits - logits.mean(-1, keepdim=True)
    return -root * (torch.logsumexp(logits, dim=-1) - math.log(patterns.shape[1]))


def toy_update(
    weights: dict[str, torch.Tensor], layer: int, *, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """The attention output that layer `layer` adds to the states (B, D)."""
    attention = torch.softmax(_logits(weights, layer, patterns, states), dim=-1)
    mixed = (attention.unsqueeze(1) @ patterns).squeeze(1)
    return mixed @ weights["output"][layer].mT


def _logits(
    weights: dict[str, torch.Tensor], layer: int, patterns: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    # (W_K x)·(W_Q xi) = x·(W_Kᵀ W_Q xi): the keys need not be formed.
    asked = states @ weights["query"][layer].mT @ weights["key"][layer]
    return (patterns @ asked.unsqueeze(-1)).squeeze(-1) / math.sqrt(states.shape[-1])


def toy_logits(
    weights: dict[str, torch.Tensor], task: ToyTask, patterns: torch.Tensor, *, states: torch.Tensor
) -> torch.Tensor:
    """Scores (B, N) of the patterns after all layers, as the goal asks (see the module)."""
    for layer in range(task.layers):
        states = states + toy_update(weights, layer, patterns=patterns, states=states)
    if task.goal == "translate":
        patterns = patterns @ rotation(task).mT
    sign = -1.0 if task.goal == "avoid" else 1.0
    return sign * (patterns @ states.unsqueeze(-1)).squeeze(-1) / math.sqrt(task.width)


def measure(
    weights: dict[str, torch.Tensor], task: ToyTask, size: int = 2000
) -> dict[str, torch.Tensor]:
    """Energies of every layer's update on `size` fresh examples (the entries of ToyRecord)."""
    generator = torch.Generator().manual_seed(task.seed + 1_000_003)
    patterns, start, target = draw(task, size, generator=generator)
    rows: dict[str, list[torch.Tensor]] = {"change": [], "fell": [], "cosine": []}
    states = start
    for layer in range(task.layers):
        leaf = states.detach().requires_grad_(True)
        before = toy_energy(weights, layer, patterns=patterns, states=leaf)
        (gradient,) = torch.autograd.grad(before.sum(), leaf)
        with torch.no_grad():
            update = toy_update(weights, layer, patterns=patterns, states=states)
            after = toy_energy(weights, layer, patterns=patterns, states=states + update)
            rows["change"].append((after - before).mean())
            rows["fell"].append((after < before).double().mean())
            rows["cosine"].append(
                functional.cosine_similarity(update, -gradient, dim=-1, eps=1e-30).mean()
            )
            states = states + update
    with torch.no_grad():
        logits = toy_logits(weights, task, patterns, states=start)
        result = {name: torch.stack(values).detach() for name, values in rows.items()}
        result["loss"] = functional.cross_entropy(logits, target)
        result["accuracy"] = (logits.argmax(-1) == target).double().mean()
    return result


def train(task: ToyTask, steps: int = 300, *, record_every: int = 50) -> ToyRecord:
    """Train the stack by Adam on fresh batches and measure its inner energies on the way.

    The loss is the cross-entropy of the final scores alone; no energy enters it.
    """
    steps = check_integer("steps", steps, low=1)
    record_every = check_integer("record_every", record_every, low=1)
    weights = {name: w.requires_grad_(True) for name, w in initial_weights(task).items()}
    optimiser = torch.optim.Adam(list(weights.values()), lr=task.learning_rate)
    generator = torch.Generator().manual_seed(task.seed + 2_000_003)
    times, records = [0], [measure(weights, task)]
    for step in range(1, steps + 1):
        patterns, states, target = draw(task, task.batch, generator=generator)
        loss = functional.cross_entropy(toy_logits(weights, task, patterns, states=states), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % record_every == 0 or step == steps:
            times.append(step)
            records.append(measure(weights, task))
    stacked = {name: torch.stack([record[name] for record in records]) for name in records[0]}
    return ToyRecord(steps=tuple(times), **stacked)
