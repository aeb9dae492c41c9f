"""The training loop, the same for every arm, and looks at a network while it learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from compendium.c24_training.probes import LayerProbe, probe_layers
from compendium.common.classifiers import TokenClassifier
from compendium.common.token_tasks import Task
from spinformer.core.checks import check_integer, check_real
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record


@record
class Look:
    """A network after `step` updates: accuracy and loss on unseen data, a probe of each layer."""

    step: int
    accuracy: float
    loss: float
    layers: list[LayerProbe]


@torch.no_grad()
def score(model: nn.Module, tokens: Tensor, *, labels: Tensor) -> tuple[float, float]:
    """Share of the labels that are the largest logit, and the cross-entropy (nats) of a label.

    Labels below zero are not asked for.

    >>> score(nn.Identity(), torch.eye(2), labels=torch.tensor([0, 0]))[0]
    0.5
    """
    asked = labels >= 0
    logits, labels = model(tokens)[asked], labels[asked]
    right = (logits.argmax(-1) == labels).double().mean()
    return float(right), float(cross_entropy(logits, labels))


def fit(
    models: Sequence[TokenClassifier],
    *,
    tasks: Sequence[Task],
    steps: int,
    rates: Sequence[float],
    seeds: Sequence[TorchSeed],
    batch: int = 32,
    looks: Sequence[int] = (),
    validate: bool = False,
    probed: int = 40,
) -> list[list[Look]]:
    """Adam on the cross-entropy, gradients cut at norm 1, the rate falling to zero along a cosine.

    All `models` are networks of one arm and shape; each has its own task, rate and seed of its
    batches, and they are trained side by side (`torch.vmap`), which costs half of one by one and
    gives the same up to rounding; where a sample has several labels, as many are to be asked for
    (−100: not) in each. After each of the steps in `looks` (0: before training) every
    network is scored on the test set of its task, or with `validate` on the validation set, and its
    layers are probed on the first `probed` samples of it (none: not at all). A step whose gradient
    is not finite is left out. Returns the looks of each model.

    >>> from compendium.common.token_tasks import digit_task
    >>> models = [TokenClassifier("one step", tokens=8, features=8, dim=8)]
    >>> given = {"tasks": [digit_task(0)], "rates": [1e-3], "seeds": [0], "probed": 0}
    >>> [look.step for look in fit(models, **given, steps=2, looks=(0, 2))[0]]
    [0, 2]
    """
    steps = check_integer("steps", steps, low=1)
    check_integer("batch", batch, low=1)
    check_integer("probed", probed, low=0)
    for index, step in enumerate(looks):
        check_integer(f"looks[{index}]", step, low=0, high=steps)
    if not len(models) == len(tasks) == len(rates) == len(seeds) > 0:
        raise ValueError("models, tasks, rates and seeds must be as many, and at least one")
    run = _side_by_side(models[0])
    generators = [torch_generator(seed) for seed in seeds]
    owned = [[p for p in model.parameters() if p.requires_grad] for model in models]
    optimizer = torch.optim.Adam(
        [
            {"params": own, "lr": check_real("rates", rate, low=0.0, open_low=True)}
            for own, rate in zip(owned, rates, strict=True)
        ]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    found: list[list[Look]] = [[] for _ in models]
    for step in range(steps + 1):
        if step in looks:
            for model, task, kept in zip(models, tasks, found, strict=True):
                kept.append(_look(model, task.validation if validate else task.test, step, probed))
        if step == steps:
            break
        drawn = [task.sample(batch, g) for task, g in zip(tasks, generators, strict=True)]
        # torch's fused attention has no rule for `vmap`: its plain operations have.
        with sdpa_kernel(SDPBackend.MATH):
            logits = run(stacked(models), torch.stack([tokens for tokens, _ in drawn]))
        labels = torch.stack([wanted for _, wanted in drawn])
        cost = len(models) * cross_entropy(logits.flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        cost.backward()
        for own in owned:
            # Finite or left out: a single bad step would make every weight NaN.
            if not bool(torch.isfinite(nn.utils.clip_grad_norm_(own, 1.0))):
                for parameter in own:
                    parameter.grad = None
        optimizer.step()
        schedule.step()
    return found


def _look(model: TokenClassifier, held: tuple[Tensor, Tensor], step: int, probed: int) -> Look:
    tokens, labels = held
    accuracy, loss = score(model, tokens, labels=labels)
    layers = probe_layers(model, tokens[:probed], labels=labels[:probed]) if probed else []
    return Look(step=step, accuracy=accuracy, loss=loss, layers=layers)


def stacked(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters of models of one shape by name, one behind the other, with history.

    >>> stacked([nn.Linear(2, 3), nn.Linear(2, 3)])["weight"].shape
    torch.Size([2, 3, 2])
    """
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([own[name] for own in named]) for name in named[0]}


def _side_by_side(model: nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    def one(weights: dict[str, Tensor], tokens: Tensor) -> Any:
        return functional_call(model, weights, (tokens,))

    return torch.vmap(one)
