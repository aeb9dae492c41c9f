"""Training of stacks, looks inside (order, correlations, response, how far to trust each), and the
results at one rate and starting strength an arm: five splits, two starts each, on test data."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from bookmaker.tables import Rows, Table, stored
from compendium.c24_training.classifiers import ARMS, TokenClassifier, build_classifier
from compendium.c24_training.token_tasks import Task, copy_task, digit_rows, digit_task, recall_task
from compendium.common.images import digit_labels, digits
from compendium.common.rows import Columns, array_of, parameter_product
from compendium.common.spin_modules import sample_module, stacked
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.spins.module import SpinTransformerModule


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


PENALTIES = (0.001, 0.01, 0.1, 1.0)
RATES = (3e-3, 1e-2, 3e-2)
STRENGTHS = (0.3, 0.6, 2.0)
SPLITS = 5
STARTS = 2
# Of the trainings that choices are made with; no result is theirs.
TUNING_SPLITS = (90, 91)


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


@stored("references", [{"split": split} for split in range(SPLITS)], seconds=1.0)
def references_table(split: int) -> Rows:
    """Test accuracies on the split of `digit_task`; the penalty is tuned on its validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    pixels = digits()
    labels = digit_labels()
    train, held, test = digit_rows(split)
    regressions = [
        LogisticRegression(C=c, max_iter=2000).fit(pixels[train], labels[train]) for c in PENALTIES
    ]
    best = max(regressions, key=lambda model: float(model.score(pixels[held], labels[held])))
    nearest = KNeighborsClassifier(1).fit(pixels[train], labels[train])
    return [
        {"method": name, "accuracy": round(model.score(pixels[test], labels[test]), 4)}
        for name, model in (("logistic regression", best), ("nearest neighbour", nearest))
    ]


class Setting(NamedTuple):
    """The learning rate of an arm and the strength from which its couplings start."""

    rate: float
    strength: float = 0.6


class Experiment(NamedTuple):
    """A task, the depth of stacks and the updates of a training; the `arms` that take part, with
    the setting of its least mean loss in `tuning_table`."""

    task: Callable[[int], Task]
    depth: int
    updates: int
    arms: dict[str, Setting]


EXPERIMENTS = {
    "digits": Experiment(
        digit_task,
        depth=2,
        updates=200,
        arms={
            "saddle": Setting(0.01),
            "one step": Setting(0.01, strength=2.0),
            "couplings only": Setting(0.01, strength=2.0),
            "read-out only": Setting(0.03, strength=2.0),
            "frozen couplings": Setting(0.01),
            "no response": Setting(0.01),
            "attention": Setting(0.01),
            "transformer": Setting(0.01),
            "free spins": Setting(0.03),
            "limited": Setting(0.01),
        },
    ),
    "recall": Experiment(
        recall_task,
        depth=1,
        updates=200,
        arms={
            "saddle": Setting(0.01),
            "one step": Setting(0.01, strength=2.0),
            "frozen couplings": Setting(0.01),
            "free spins": Setting(0.003),
            "attention": Setting(0.01),
            "transformer": Setting(0.01),
        },
    ),
    "depth": Experiment(
        digit_task,
        depth=4,
        updates=120,
        arms={
            "saddle": Setting(0.003),
            "attention": Setting(0.003),
            "attention with skip": Setting(0.01),
            "transformer": Setting(0.01),
        },
    ),
    "copies": Experiment(
        copy_task,
        depth=1,
        updates=400,
        arms={
            "saddle": Setting(0.01, strength=2.0),
            "one step": Setting(0.01, strength=2.0),
            "frozen couplings": Setting(0.03, strength=2.0),
            "positions": Setting(0.01, strength=2.0),
            "free spins": Setting(0.01),
            "attention": Setting(0.03),
            "transformer": Setting(0.03),
        },
    ),
}
TUNED = [
    {"experiment": name, "arm": arm}
    for name in ("digits", "recall", "depth")
    for arm in EXPERIMENTS[name].arms
]


@stored(
    "tuning",
    TUNED,
    checked=TUNED.index({"experiment": "recall", "arm": "attention"}),
    seconds=2.0,
    rtol=0.05,
    within=WITHIN,
)
def tuning_table(experiment: str, arm: str) -> Rows:
    """Validation loss of both trainings at each rate and, if an arm has them, starting strength."""
    chosen = EXPERIMENTS[experiment]

    def held(split: int) -> Task:
        return chosen.task(split)._replace(test=chosen.task(split).validation)

    fixed = {"coupling_strength", "coupling_limit"} & {*ARMS[arm].options}
    strengths = STRENGTHS if ARMS[arm].kind == "spins" and not fixed else (0.6,)
    cells = parameter_product(rate=RATES, strength=strengths, split=TUNING_SPLITS)
    found = train_arm(
        arm,
        held,
        cells,
        depth=chosen.depth,
        steps=chosen.updates,
        looks=(chosen.updates,),
        probed=0,
    )
    return [one.cell | {"loss": np.nan_to_num(one.looks[0].loss, nan=math.inf)} for one in found]


def result_rows(
    *, experiment: str, arm: str, splits: int = SPLITS, updates: int | None = None
) -> Rows:
    """A row for each split, start, look and layer; of copies only the accuracies in the end.

    After the `updates` of the experiment, or so many.

    `off_spins`, `off_output` and `noise` compare the trained module with Monte Carlo on two test
    samples, `expected` is what its meter says of the first.
    """
    chosen = EXPERIMENTS[experiment]
    steps = chosen.updates if updates is None else updates
    rate, strength = chosen.arms[arm]
    inside = experiment != "copies"
    found = train_arm(
        arm,
        chosen.task,
        parameter_product(
            split=range(splits), start=range(STARTS), rate=[rate], strength=[strength]
        ),
        depth=chosen.depth,
        steps=steps,
        looks=(0, steps // 4, steps) if inside else (steps,),
        probed=40 if inside else 0,
    )
    rows = []
    for cell, model, own, looks in found:
        run = {name: cell[name] for name in ("split", "start")}
        if not inside:
            rows.append(run | four_digits({"accuracy": looks[0].accuracy}))
            continue
        for look, (layer, module) in product(looks, enumerate(model.layers)):
            drawn = dict.fromkeys(("noise", "off_spins", "off_output", "expected"), math.nan)
            if look.step == steps and isinstance(module, SpinTransformerModule):
                below = nn.Sequential(*model.layers[:layer])
                with torch.no_grad():
                    state = below(model.embed(own.test[0][:2]))
                sampled = sample_module(module, state)
                drawn = {name: float(sampled[name].mean()) for name in drawn}
            place = {"step": look.step, "layer": layer + 1, "accuracy": look.accuracy}
            rows.append(run | place | four_digits(look.layers[layer] | drawn))
    return rows


def _results(name: str, **settings: Any) -> Table:
    return Table(
        path=Path(__file__).with_name(f"{name}.csv"),
        units=[{"experiment": name, "arm": arm} for arm in EXPERIMENTS[name].arms],
        rows=result_rows,
        rtol=0.05,
        within=WITHIN,
        **settings,
    )


# A whole arm where its trainings take seconds, elsewhere the first updates of one with spins.
_SHORT: dict[str, Any] = {"arm": "saddle", "splits": 1, "updates": 8}
DIGITS = _results("digits", small={"experiment": "digits"} | _SHORT, seconds=5.0)
RECALL = _results(
    "recall", checked=list(EXPERIMENTS["recall"].arms).index("attention"), seconds=2.0
)
DEPTH = _results("depth", small={"experiment": "depth"} | _SHORT, seconds=3.0)
COPIES = _results(
    "copies", checked=list(EXPERIMENTS["copies"].arms).index("attention"), seconds=6.0
)


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()
