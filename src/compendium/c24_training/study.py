"""Training of stacks, and looks inside: order, correlations, response, how far each can be trusted.

One training loop for every arm. Some probes need spins and are NaN for layers without; the others
are the same for every layer. What the spins of a module really do, Monte Carlo of its couplings
tells. Stored results are read as one number a training, and as differences in pairs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from compendium.common.classifiers import TokenClassifier, build_classifier
from compendium.common.rows import Columns, array_of
from compendium.common.token_tasks import Task
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.statistics import mean_interval
from spinformer.spins.module import ModuleParts, SpinTransformerModule
from spinformer.spins.vectors import sample_vector_spins

# What `probe_layers` knows of spins alone.
_OF_SPINS = (
    *("polarization", "correlation", "connected", "collective", "response"),
    *("converged", "physical", "trusted", "distance", "correction"),
)


@torch.no_grad()
def probe_layers(
    model: TokenClassifier, tokens: Tensor, *, labels: Tensor
) -> list[dict[str, float]]:
    """The collective behaviour of every layer for these samples, first layer first.

    Averages over samples, tokens and heads; NaN in layers without spins: `polarization` |<u_i>|,
    0 free to 1 frozen. `correlation` <u_i . u_j> over pairs of different spins, `connected` the
    same less <u_i> . <u_j>. `collective`: the largest eigenvalue of the covariance C - m mT over
    its mean diagonal, 1 for spins that fluctuate alone, N for one mode of all. `response`: the
    response's share of the output, response . m / m . m. `converged`, `physical`, `trusted`:
    shares of the systems, `distance` and `correction` medians, all as in `spins.module.Validity`.

    Of any layer: `similarity`, cosine of different tokens in the output; `residual`, the distance
    of the tokens from their mean, relative to their size [dong2021attention]; `separation`, the
    share of the variance of the mean output token that lies between the labels. `undriven` is the
    correlation of the spins, or the similarity of tokens without spins, when every input token of
    this layer is taken from another sample.
    """
    state, probes = model.embed(tokens), []
    for layer in model.layers:
        mixed, spins = _shuffled(state), dict.fromkeys(_OF_SPINS, float("nan"))
        if isinstance(layer, SpinTransformerModule):
            undriven = off_diagonal(layer(mixed, return_parts=True)[1].correlation)
            state, parts = layer(state, return_parts=True)
            spins |= _probe_spins(parts)
        else:
            undriven, state = _similarity(layer(mixed)), layer(state)
        mean = state.mean(-2, keepdim=True)
        apart = (state - mean).norm(dim=(-2, -1)) / state.norm(dim=(-2, -1))
        probes.append(
            {
                **spins,
                "similarity": _similarity(state),
                "residual": float(apart.mean()),
                "separation": between_classes(mean.squeeze(-2), labels=labels),
                "undriven": undriven,
            }
        )
    return probes


def _probe_spins(parts: ModuleParts) -> dict[str, float]:
    mean = parts.solution.value
    covariance = parts.correlation - mean @ mean.mT
    single = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    whole = parts.magnetization
    share = (parts.response * whole).sum((-2, -1)) / whole.square().sum((-2, -1))
    return {
        "polarization": float(mean.norm(dim=-1).mean()),
        "correlation": off_diagonal(parts.correlation),
        "connected": off_diagonal(covariance),
        "collective": float((torch.linalg.eigvalsh(covariance)[..., -1] / single).mean()),
        "response": float(share.mean()),
        **parts.validity().summary(),
    }


def off_diagonal(matrix: Tensor) -> float:
    """Mean over pairs of different tokens of (..., N, N)."""
    sites = matrix.shape[-1]
    total = matrix.sum((-1, -2)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return float((total / (sites * (sites - 1))).mean())


def between_classes(points: Tensor, *, labels: Tensor) -> float:
    """Share of the variance of `points` (samples, channels) that lies between the labels."""
    centred = points - points.mean(0)
    between = torch.zeros((), dtype=points.dtype)
    for label in labels.unique():
        members = centred[labels == label]
        between = between + len(members) * members.mean(0).square().sum()
    return float(between / centred.square().sum())


def _similarity(state: Tensor) -> float:
    unit = nn.functional.normalize(state, dim=-1)
    return off_diagonal(unit @ unit.mT)


def _shuffled(state: Tensor) -> Tensor:
    """Every token from another sample, at its own place."""
    samples, sites = state.shape[:2]
    order = torch.rand(samples, sites, generator=torch_generator(17)).argsort(0)
    return state[order, torch.arange(sites)]


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()


def difference(table: Columns, *, arm: str, other: str) -> tuple[float, float, float]:
    """Accuracy of `arm` less that of `other`, by split and start: mean, interval (Student)."""
    mine, theirs = (values_of(table, arm=one, name="accuracy") for one in (arm, other))
    gap = mine - theirs
    return float(gap.mean()), *mean_interval(gap)


def four_digits(values: Mapping[str, float]) -> dict[str, float]:
    """The values as tables of trainings keep them."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}


@record
class Look:
    """A network after `step` updates: accuracy and loss on unseen data, a probe of each layer.

    `held`: the loss on the validation set.
    """

    step: int
    accuracy: float
    loss: float
    held: float
    layers: list[dict[str, float]]


@torch.no_grad()
def score(model: nn.Module, tokens: Tensor, *, labels: Tensor) -> tuple[float, float]:
    """Share of the labels that are the largest logit, and the cross-entropy (nats) of a label.

    Labels below zero are not asked for.
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
                kept.append(_look(model, task, validate, step, probed))
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


def train_arm(
    arm: str,
    task: Callable[[int], Task],
    *,
    runs: Sequence[tuple[int, int, float, float]],
    depth: int,
    steps: int,
    **options: Any,
) -> tuple[list[TokenClassifier], list[Task], list[list[Look]]]:
    """Fresh networks of an arm, one for each (split, start, rate, strength) in `runs`, trained.

    Returns the networks, their tasks and their looks; `options` are those of `fit`.
    """
    made = {split: task(split) for split in dict.fromkeys(split for split, *_ in runs)}
    tasks = [made[split] for split, *_ in runs]
    seeds = [1000 * split + start for split, start, *_ in runs]
    models = [
        build_classifier(arm, seed=seed, depth=depth, strength=strength, **one.shape)
        for seed, one, (*_, strength) in zip(seeds, tasks, runs, strict=True)
    ]
    rates = [rate for _, _, rate, _ in runs]
    return models, tasks, fit(models, tasks=tasks, steps=steps, rates=rates, seeds=seeds, **options)


def _look(model: TokenClassifier, task: Task, validate: bool, step: int, probed: int) -> Look:
    tokens, labels = task.validation if validate else task.test
    accuracy, loss = score(model, tokens, labels=labels)
    held = loss if validate else score(model, task.validation[0], labels=task.validation[1])[1]
    layers = probe_layers(model, tokens[:probed], labels=labels[:probed]) if probed else []
    return Look(step=step, accuracy=accuracy, loss=loss, held=held, layers=layers)


def stacked(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters of models of one shape by name, one behind the other, with history."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([own[name] for own in named]) for name in named[0]}


@record
class SampledModule:
    """Spins of a module drawn at its couplings, for each sample.

    `spins` ⟨σ⟩ and `output` −dF/dH = ⟨σ⟩ + response with the drawn correlations, (batch, N, dim),
    before `map_out`; `noise` (batch,): the Monte Carlo error of `spins` relative to their size.
    `off_spins`, `off_output` (batch,): how far the module is from both, relative to them.
    `expected` (batch,): what `validity()` says of ⟨σ⟩, the mean over heads.
    """

    spins: Tensor
    output: Tensor
    noise: Tensor
    off_spins: Tensor
    off_output: Tensor
    expected: Tensor


def sample_module(
    module: SpinTransformerModule, inputs: Tensor, *, sweeps: int = 1024, seed: int = 0
) -> SampledModule:
    """Draw the spins of every head for `inputs` (batch, N, dim) by heat bath.

    The response is the derivative of the couplings by reverse differentiation, contracted with
    the drawn ⟨u_i·u_j⟩: nothing of the module's solver or of its closed form takes part.
    """
    plain = copy.deepcopy(module).double()
    fields = plain.fields(inputs.double()).detach().requires_grad_()
    plain.normalize, plain.map_in, plain.map_out = False, None, None
    returned, parts = plain(fields, return_parts=True)
    size = parts.fields.shape[-1]
    spins, errors = torch.empty_like(parts.fields), torch.empty_like(parts.fields)
    correlation = torch.empty_like(parts.correlation)
    batch, heads = correlation.shape[:2]
    for sample in range(batch):
        for head in range(heads):
            drawn = sample_vector_spins(
                parts.couplings[sample, head].detach().numpy(),
                fields=parts.fields[sample, head].detach().numpy() * size**0.5,
                beta=float(parts.beta[head].detach()),
                sweeps=sweeps,
                seed=seed + 97 * sample + head,
            )
            spins[sample, head] = torch.from_numpy(np.array(drawn.magnetization.value))
            errors[sample, head] = torch.from_numpy(np.array(drawn.magnetization.error))
            correlation[sample, head] = torch.from_numpy(np.array(drawn.correlations.value))
    (slope,) = torch.autograd.grad(parts.couplings, fields, size * correlation)
    spins, errors = (x.detach().transpose(1, 2).flatten(-2) for x in (spins, errors))
    output = spins + slope if plain.response else spins
    with torch.no_grad():
        expected = parts.validity().expected_error.mean(-1)
    return SampledModule(
        spins=spins,
        output=output,
        noise=_size(errors) / _size(spins),
        off_spins=_size(parts.spins.detach() - spins) / _size(spins),
        off_output=_size(returned.detach() - output) / _size(output),
        expected=expected,
    )


def _size(values: Tensor) -> Tensor:
    return values.square().sum((-2, -1)).sqrt()
