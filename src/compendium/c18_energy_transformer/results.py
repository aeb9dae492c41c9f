"""The stored tables: tuning on images of no test set, then ten seeds on two splits, for each task.

The classes for a short and a long training; hidden patches for a short one.
`tuning_classes`, `tuning_patches`: score on validation images of each learning rate and step size,
one seed. `classes`, `patches`: a row a trained network, with the setting that tuning chose for its
arm and length. `references`: what simple methods reach on the same images.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from bookmaker.tables import Rows, Table
from compendium.c18_energy_transformer.measures import align, follow
from compendium.c18_energy_transformer.networks import ARMS, TASKS, Network, core_parameters
from compendium.c18_energy_transformer.training import (
    Start,
    hidden_patches,
    score,
    split_data,
    train_stack,
    tuning_data,
)
from spinformer.core.checks import check_choice

FOLDER = Path(__file__).parent
SPLITS = (0, 1)
SEEDS = tuple(range(10))
RATES = (0.003, 0.01, 0.03)
STEP_SIZES = (0.3, 1.0, 3.0)
EPOCHS = {"classes": (12, 36), "patches": (12,)}
# Epochs after which the direction of the steps is looked at, and times of the long runs.
KEPT = (0, 1, 4, 12, 36)
TIMES = (0, 1, 2, 4, 6, 8, 12, 16)


def tuning_rows(arm: str, *, task: str, epochs: int) -> Rows:
    """Validation scores of all learning rates and step sizes for one arm."""
    data = tuning_data(SPLITS)
    settings = list(product(RATES, STEP_SIZES))
    starts = [
        # Not one of the seeds of the results.
        Start(seed=100, rate=rate, step_size=size)
        for rate, size in settings
    ]
    found = train_stack(arm, task=task, data=data, starts=starts, epochs=epochs)
    hidden = test_masks(task=task, count=len(data.test_labels))
    return [
        {
            "rate": rate,
            "step_size": size,
            "score": score(
                _answers(network, data.test_tokens, hidden),
                patches=data.test_tokens,
                labels=data.test_labels,
                hidden=hidden,
            ),
        }
        for (rate, size), network in zip(settings, found.networks, strict=True)
    ]


def chosen_setting(arm: str, *, task: str, epochs: int) -> tuple[float, float]:
    """Learning rate and step size with the best validation score."""
    table = TUNING[check_choice("task", task, TASKS)].read()
    here = np.flatnonzero((table["arm"] == arm) & (table["epochs"] == epochs))
    scores = table["score"][here] * (1 if task == "classes" else -1)
    # A diverged training has no score.
    best = here[np.nanargmax(scores)]
    return float(table["rate"][best]), float(table["step_size"][best])


def network_rows(
    arm: str,
    *,
    task: str,
    split: int,
    epochs: int,
    seeds: tuple[int, ...] = SEEDS,
) -> Rows:
    """One row a seed: scores, the path of long runs, alignments along the training.

    The path is that of the first 200 test images, the alignment of the first 50.
    """
    data = split_data(split)
    rate, size = chosen_setting(arm, task=task, epochs=epochs)
    starts = [Start(seed=seed, rate=rate, step_size=size) for seed in seeds]
    kept = [epoch for epoch in KEPT if epoch <= epochs]
    found = train_stack(arm, task=task, data=data, starts=starts, epochs=epochs, keep=kept)
    test, labels = data.test_tokens, data.test_labels
    hidden = test_masks(task=task, count=len(labels))
    rows: Rows = []
    for index, seed in enumerate(seeds):
        network = found.networks[index]
        seen = hidden_patches(len(data.train_labels), task=task, seed=5)
        row = {
            "seed": seed,
            "parameters": core_parameters(network),
            "rate": rate,
            "step_size": size,
            "test": score(
                _answers(network, test, hidden), patches=test, labels=labels, hidden=hidden
            ),
            "train": score(
                _answers(network, data.train_tokens, seen),
                patches=data.train_tokens,
                labels=data.train_labels,
                hidden=seen,
            ),
        }
        for epoch in KEPT:
            names = ("query", "joint", "null", "deviation")
            values = dict.fromkeys(names, float("nan"))
            if epoch in found.snapshots:
                one = align(
                    found.snapshots[epoch][index],
                    test[:50],
                    hidden=hidden[:50],
                    turns=8,
                    seed=seed,
                )
                values = {name: getattr(one, name) for name in names}
            row |= {f"{name}_{epoch}": values[name] for name in names}
        row |= _path_columns(network, test[:200], labels=labels[:200], hidden=hidden[:200])
        rows.append(row)
    return rows


def reference_rows(split: int) -> Rows:
    """Logistic regression of the pixels, and the best linear completion, tuned on validation.

    The linear completion is the conditional mean of a Gaussian with the covariance of the training
    images plus a ridge: hidden pixels from visible ones, a system of its own for every image.
    """
    scores: dict[tuple[str, float], dict[bool, float]] = {}
    for validate in (True, False):
        data = tuning_data(SPLITS) if validate else split_data(split)
        train, test = data.train_tokens.flatten(1).double(), data.test_tokens.double()
        hidden = test_masks(task="patches", count=len(test))
        for ridge in (0.01, 0.03, 0.1, 0.3, 1.0):
            filled = _linear_completion(train, test, hidden, ridge)
            value = score(filled, patches=test, labels=data.test_labels, hidden=hidden)
            scores.setdefault(("patches", ridge), {})[validate] = value
        for strength in (0.003, 0.01, 0.03, 0.1, 0.3):
            model = LogisticRegression(C=strength, max_iter=2000)
            model.fit(train.numpy(), data.train_labels.numpy())
            value = model.score(test.flatten(1).numpy(), data.test_labels.numpy())
            scores.setdefault(("classes", strength), {})[validate] = value
    rows: Rows = []
    for task, sign in (("classes", 1), ("patches", -1)):
        options = [key for key in scores if key[0] == task]
        best = max(options, key=lambda key: sign * scores[key][True])
        rows.append({"task": task, "strength": best[1], "test": scores[best][False]})
    return rows


def test_masks(*, task: str, count: int) -> Tensor:
    """Which patches of the images of a test are hidden: the same for every network."""
    return hidden_patches(count, task=task, seed=77)


@torch.no_grad()
def _answers(network: Network, patches: Tensor, hidden: Tensor) -> Tensor:
    answer: Tensor = network(patches, hidden)
    return answer


def _path_columns(
    network: Network, test: Tensor, *, labels: Tensor, hidden: Tensor
) -> dict[str, float]:
    """The long run of a network with tied steps, NaN for an untied one."""
    trained, last = network.sizes.steps, TIMES[-1]
    if network.arm == "untied":
        found = None
    else:
        found = follow(network, test, labels=labels, hidden=hidden, steps=last)
    row = {}
    for name in ("score", "energy", "size", "move"):
        for time in TIMES[name == "move" :]:
            series = getattr(found, name, None)
            index = time - (name == "move")
            row[f"{name}_{time}"] = float("nan") if series is None else float(series[index])
    rise = np.full(last, np.nan) if found is None else found.rise
    row["rise_within"] = float(rise[:trained].mean())
    row["rise_beyond"] = float(rise[trained:].mean())
    safe = float("nan")
    if network.energy is not None and network.energy.key_side:
        start = network.embed(test.double(), hidden)
        safe = float(network.energy.safe_step(start).median())
    row["safe_step"] = safe
    return row


def _linear_completion(train: Tensor, test: Tensor, hidden: Tensor, ridge: float) -> Tensor:
    size = train.shape[1]
    covariance = train.mT @ train / len(train) + ridge * torch.eye(size, dtype=train.dtype)
    unknown = hidden.unsqueeze(-1).expand(test.shape).flatten(1)
    rows = test.flatten(1)
    filled = torch.zeros_like(rows)
    for index, missing in enumerate(unknown):
        known = ~missing
        inner = covariance[known][:, known]
        answer = torch.linalg.solve(inner, rows[index, known])
        filled[index, missing] = covariance[missing][:, known] @ answer
    return filled.view_as(test)


def _units(task: str) -> list[dict[str, str | int]]:
    return [
        {"arm": arm, "split": split, "epochs": epochs}
        for epochs in EPOCHS[task]
        for split in SPLITS
        for arm in ARMS
    ]


TUNING = {
    task: Table(
        path=FOLDER / f"tuning_{task}.csv",
        units=[{"arm": arm, "epochs": epochs} for epochs in EPOCHS[task] for arm in ARMS],
        rows=partial(tuning_rows, task=task),
    )
    for task in TASKS
}
RESULTS = {
    task: Table(
        path=FOLDER / f"{task}.csv", units=_units(task), rows=partial(network_rows, task=task)
    )
    for task in TASKS
}
REFERENCES = Table(
    path=FOLDER / "references.csv",
    units=[{"split": split} for split in SPLITS],
    rows=reference_rows,
)
