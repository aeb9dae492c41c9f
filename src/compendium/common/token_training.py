"""Training of classifiers of tokens side by side, and what their layers do before and after."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from bookmaker.tables import Rows
from compendium.common.spin_modules import stacked
from compendium.common.token_classifiers import TokenClassifier, build_classifier
from compendium.common.token_tasks import Task
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.spins.module import SpinTransformerModule

# What trainings of an arm on two processors may differ by, beside a twentieth. Near zero a loss
# says how far beyond certainty a network went before its rate fell to zero, which rounding alone
# multiplies by several: 0.0001 and 0.0004 are the same training.
WITHIN = {
    "accuracy": 0.05,
    "residual": 0.05,
    "separation": 0.05,
    "loss": 0.01,
    "bits": 0.01,
    "held": 0.01,
    "distance": 1e-5,  # rounding alone, where a module solves the saddle itself
}


@torch.no_grad()
def probe_layers(
    model: TokenClassifier, tokens: Tensor, *, labels: Tensor
) -> list[dict[str, float]]:
    """The collective behaviour of every layer for these samples, first layer first.

    NaN in layers without spins: `correlation` <u_i . u_j> of different spins. `collective`: the
    largest eigenvalue of the covariance C - m mT over its mean diagonal, 1 for spins that fluctuate
    alone, N for one mode of all. `response`: its share of the output. `converged`, `physical`,
    `distance` as in `spins.module.Validity`. `undriven`: the correlation when every input token of
    this layer is taken from another sample, at its own place. Of any layer: `residual`, the
    distance of the tokens from their mean, relative to their size [dong2021attention];
    `separation`, the share of the variance of the mean output token that lies between the labels.
    """
    state = model.embed(tokens)
    probes = []
    for layer in model.layers:
        if isinstance(layer, SpinTransformerModule):
            order = torch.rand(state.shape[:2], generator=torch_generator(17)).argsort(0)
            mixed = state[order, torch.arange(state.shape[1])]
            undriven = _off_diagonal(layer(mixed, return_parts=True)[1].correlation)
            state, parts = layer(state, return_parts=True)
            mean = parts.solution.value
            whole = parts.magnetization
            meter = parts.validity()
            covariance = parts.correlation - mean @ mean.mT
            single = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
            share = (parts.response * whole).sum((-2, -1)) / whole.square().sum((-2, -1))
            probe = {
                "correlation": _off_diagonal(parts.correlation),
                "collective": float((torch.linalg.eigvalsh(covariance)[..., -1] / single).mean()),
                "response": float(share.mean()),
                "converged": float(meter.converged.double().mean()),
                "physical": float(meter.physical.double().mean()),
                "distance": float(meter.distance.median()),
            }
        else:
            state = layer(state)
            undriven = math.nan
            of_spins = "correlation collective response converged physical distance"
            probe = dict.fromkeys(of_spins.split(), math.nan)
        middle = state.mean(-2)
        apart = (state - middle[:, None]).norm(dim=(-2, -1)) / state.norm(dim=(-2, -1))
        separation = _separation(middle, labels)
        probe |= {"residual": float(apart.mean()), "separation": separation, "undriven": undriven}
        probes.append(probe)
    return probes


def _off_diagonal(matrix: Tensor) -> float:
    """Mean over pairs of different tokens of (..., N, N)."""
    sites = matrix.shape[-1]
    total = matrix.sum((-1, -2)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return float((total / (sites * (sites - 1))).mean())


def _separation(points: Tensor, labels: Tensor) -> float:
    centred = points - points.mean(0)
    members = nn.functional.one_hot(labels).to(points)
    between = (members.T @ centred).square().sum(1) / members.sum(0).clamp_min(1)
    return float(between.sum() / centred.square().sum())


class Look(NamedTuple):
    """A network after `step` updates: accuracy and loss on the test set, loss on the validation
    set (`held`), a probe of each layer."""

    step: int
    accuracy: float
    loss: float
    held: float
    layers: list[dict[str, float]]


@torch.no_grad()
def score(model: nn.Module, tokens: Tensor, labels: Tensor) -> tuple[float, float]:
    """Share of right labels and the cross-entropy (nats); labels below zero are not asked for."""
    asked = labels >= 0
    logits = model(tokens)[asked]
    labels = labels[asked]
    right = (logits.argmax(-1) == labels).double().mean()
    return float(right), float(cross_entropy(logits, labels))


def fit(
    models: Sequence[nn.Module],
    *,
    tasks: Sequence[Task],
    steps: int,
    rates: Sequence[float],
    seeds: Sequence[TorchSeed],
    looks: Sequence[int] = (),
    probed: int = 40,
) -> list[list[Look]]:
    """Adam on the cross-entropy, gradients cut at norm 1, the rate falling to zero along a cosine.

    `models` are networks of one arm and shape, each with its own task, rate and seed of its batches
    of 32; trained side by side they cost half of one by one and come out the same up to rounding.
    After each of the steps in `looks` (0: before training) every network is scored, and its layers
    are probed on the first `probed` samples of the test set, if any.
    """
    run = torch.vmap(partial(functional_call, models[0]))
    generators = [torch_generator(seed) for seed in seeds]
    owned = [[p for p in model.parameters() if p.requires_grad] for model in models]
    optimizer = torch.optim.Adam(
        [{"params": own, "lr": rate} for own, rate in zip(owned, rates, strict=True)]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    found: list[list[Look]] = [[] for _ in models]
    for step in range(steps + 1):
        if step in looks:
            for model, task, kept in zip(models, tasks, found, strict=True):
                accuracy, loss = score(model, *task.test)
                held = score(model, *task.validation)[1]
                tokens, labels = task.test
                layers = []
                if probed and isinstance(model, TokenClassifier):
                    layers = probe_layers(model, tokens[:probed], labels=labels[:probed])
                kept.append(Look(step, accuracy, loss, held, layers))
        if step == steps:
            break
        drawn = [task.sample(32, g) for task, g in zip(tasks, generators, strict=True)]
        # torch's fused attention has no rule for `vmap`: its plain operations have.
        with sdpa_kernel(SDPBackend.MATH):
            logits = run(stacked(models), torch.stack([tokens for tokens, _ in drawn]))
        labels = torch.stack([wanted for _, wanted in drawn])
        cost = len(models) * cross_entropy(logits.flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        cost.backward()
        for own in owned:
            # Left out if it is not finite: a single bad step would make every weight NaN.
            if not bool(torch.isfinite(nn.utils.clip_grad_norm_(own, 1.0))):
                for parameter in own:
                    parameter.grad = None
        optimizer.step()
        schedule.step()
    return found


def final_scores(
    models: Sequence[nn.Module],
    *,
    cells: Sequence[Mapping[str, Any]],
    tasks: Mapping[int, Task],
    steps: int,
) -> Rows:
    """Train one network for each cell and return the cells with what they reached.

    A cell has the `rate` and the `split`, which chooses the task among `tasks` and seeds the
    batches. Accuracy is on the test set, the loss `held` on the validation set.
    """
    looks = fit(
        models,
        tasks=[tasks[cell["split"]] for cell in cells],
        steps=steps,
        rates=[cell["rate"] for cell in cells],
        seeds=[cell["split"] for cell in cells],
        looks=(steps,),
        probed=0,
    )
    return [
        {**cell, **four_digits({"accuracy": end.accuracy, "held": end.held})}
        for cell, (end,) in zip(cells, looks, strict=True)
    ]


class Trained(NamedTuple):
    """A network trained in a cell (`rate`, `strength`, `split`), its task, and the looks."""

    cell: dict[str, Any]
    network: TokenClassifier
    task: Task
    looks: list[Look]


def train_arm(
    arm: str,
    task: Callable[[int], Task],
    cells: Rows,
    *,
    steps: int,
    depth: int = 1,
    looks: Sequence[int] = (),
    probed: int = 40,
) -> list[Trained]:
    """A fresh network for each of `cells` (`rate`, `strength`, `split`, maybe `start`), trained.

    For so many `steps`; `looks` and `probed` as in `fit`.
    """
    made = {split: task(split) for split in {cell["split"] for cell in cells}}
    tasks = [made[cell["split"]] for cell in cells]
    seeds = [1000 * cell["split"] + cell.get("start", 0) for cell in cells]
    models = [
        build_classifier(arm, seed=seed, depth=depth, strength=cell["strength"], **one.shape)
        for cell, seed, one in zip(cells, seeds, tasks, strict=True)
    ]
    seen = fit(
        models,
        tasks=tasks,
        steps=steps,
        rates=[cell["rate"] for cell in cells],
        seeds=seeds,
        looks=looks,
        probed=probed,
    )
    return [Trained(*one) for one in zip(cells, models, tasks, seen, strict=True)]


def four_digits(values: Mapping[str, float]) -> dict[str, float]:
    """The values as tables of trainings keep them."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}
