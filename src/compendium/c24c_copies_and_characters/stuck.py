"""Why some trainings of recall get stuck: what such networks do, what prevents it, what frees them.

Trainings of the saddle on splits 0 to 9, 400 updates, had been looked at: of three below 0.6 one
was late, the other two give the value that most pairs have (a crowd's answer, right in 0.35 at the
best), their couplings are sharp and aim anywhere, and the keys make up less than 0.1 of the
variance of their fields. Set going again they stay; with fresh W_Q and W_K as well, and not if all
but these is fresh. The explanation: while the crowd's answer is learned, keys are noise to it, and
the maps in front of the fields drop them; without keys in the fields there is nothing that
couplings could match, and no gradient that brings them back.

Predictions for splits 10 to 19, which had not been looked at. On splits 0 to 9 half the rate and
fixed fields had let all twenty learn; of restarts at the full rate for 200 updates, three of eight
had learned with fresh embedding and map, none with fresh couplings. (1) Networks below 0.5 give the
crowd's answer in more than 0.95 of the cases, with less than 0.1 of keys in the fields of both
heads; networks above 0.9 have more than 0.2 in one. (2) With half the rate, and with fields that
stay as they were drawn, at most one of twenty is below 0.5. (3) Fresh fields free more than half of
the stuck, fresh couplings none, a fresh read-out none.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from bookmaker.tables import Rows, Table
from compendium.c24_training.study import fit, score
from compendium.c24_training.tables import EXPERIMENTS, SPLITS, STARTS, choice, networks
from compendium.common.classifiers import COUPLINGS, TokenClassifier, build_classifier
from compendium.common.token_tasks import KEYS, PAIRS, VALUES, recall_task

STEPS, STUCK_BELOW = 400, 0.5
RECIPES = ("as before", "half the rate", "fixed fields")
FIELDS, ANSWERS = ("embedding", "position", "map_in"), ("map_out", "readout")
PARTS = {
    "nothing": (),
    "couplings": COUPLINGS,
    "fields": FIELDS,
    "answers": ANSWERS,
    "all but couplings": FIELDS + ANSWERS,
}
# Of restarts: half of the rate that got them stuck.
RESTARTS = 2
_HERE = Path(__file__).parent


def belongs(name: str, *, part: Sequence[str]) -> bool:
    """Whether the parameter `name` of a network is one of `part`."""
    return any(piece in part for piece in name.split("."))


def trained(first: int, *, recipe: str, steps: int = STEPS) -> list[TokenClassifier]:
    """Saddles of splits `first` to `first` + 4, two starts each, as in the table LONGER."""
    rate, strength = choice("recall", arm="saddle")
    runs = list(itertools.product(range(first, first + SPLITS), range(STARTS)))
    models, tasks, seeds = networks(
        EXPERIMENTS["recall"], arm="saddle", runs=runs, strength=strength
    )
    if recipe == "fixed fields":
        for model in models:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(not belongs(name, part=FIELDS))
    rates = [rate / 2 if recipe == "half the rate" else rate] * len(runs)
    fit(models, tasks=tasks, steps=steps, rates=rates, seeds=seeds, probed=0)
    return models


@torch.no_grad()
def reading(model: TokenClassifier, tokens: Tensor) -> dict[str, float]:
    """What a network of recall reads.

    `crowd`: share of its answers that no value of a pair is more frequent than. `keys`: share of
    the variance of the pairs' fields that lies between keys, in the head with more of it. `focus`:
    share of the question's couplings on its own pair, in the head with more.
    """
    keys, values = tokens[..., :KEYS], tokens[:, :PAIRS, KEYS : KEYS + VALUES]
    counts, rows = (values > 0).sum(1), torch.arange(len(tokens))
    said = model(tokens).argmax(-1)
    _, parts = model.layers[0](model.embed(tokens), return_parts=True)
    looks = parts.couplings[:, :, -1]
    asked = (keys[:, :PAIRS] * keys[:, -1:]).sum(-1).argmax(-1)
    fields = parts.fields[:, :, :PAIRS].transpose(1, 2).flatten(0, 1)
    which = keys[:, :PAIRS].argmax(-1).flatten()
    centred = fields - fields.mean(0)
    between = sum(
        (which == key).sum() * centred[which == key].mean(0).square().sum(-1)
        for key in which.unique()
    )
    return {
        "crowd": float((counts[rows, said] == counts.amax(-1)).double().mean()),
        "keys": float((between / centred.square().sum((0, -1))).max()),
        "focus": float((looks[rows, :, asked] / looks.sum(-1)).mean(0).max()),
    }


def stuck_rows(*, recipe: str, first: int) -> Rows:
    """Accuracy and `reading` of ten trainings."""
    rows = []
    runs = itertools.product(range(first, first + SPLITS), range(STARTS))
    for (split, start), model in zip(runs, trained(first, recipe=recipe), strict=True):
        tokens, labels = recall_task(split).test
        accuracy = score(model, tokens, labels=labels)[0]
        told = {name: float(f"{value:.4g}") for name, value in reading(model, tokens).items()}
        rows.append({"split": split, "start": start, "accuracy": accuracy, **told})
    return rows


STUCK = Table(
    path=_HERE / "stuck.csv",
    units=[{"recipe": recipe, "first": first} for first in (10, 15) for recipe in RECIPES],
    rows=stuck_rows,
)


def with_fresh(model: TokenClassifier, *, part: Sequence[str], seed: int) -> TokenClassifier:
    """A copy of a saddle for recall with this `part` of its weights drawn anew from `seed`."""
    strength = choice("recall", arm="saddle")[1]
    fresh = build_classifier(
        "saddle", seed=seed, depth=1, strength=strength, **recall_task(0).shape
    )
    kept = {
        name: value for name, value in model.state_dict().items() if not belongs(name, part=part)
    }
    fresh.load_state_dict({**fresh.state_dict(), **kept})
    return fresh


def freed_rows(*, first: int) -> Rows:
    """Stuck networks of `trained`, with a part of them drawn anew, trained for as long again.

    At half the rate, two restarts with batches of their own. `accuracy` is that at the end.
    """
    rate = choice("recall", arm="saddle")[0]
    runs = list(itertools.product(range(first, first + SPLITS), range(STARTS)))
    cases: Rows = []
    models = []
    for (split, start), model in zip(runs, trained(first, recipe="as before"), strict=True):
        tokens, labels = recall_task(split).test
        if score(model, tokens, labels=labels)[0] >= STUCK_BELOW:
            continue
        for renewed, again in itertools.product(PARTS, range(RESTARTS)):
            seed = 70_000 + 1000 * split + 10 * start + again
            models.append(with_fresh(model, part=PARTS[renewed], seed=seed))
            cases.append({"split": split, "start": start, "renewed": renewed, "again": again})
    if not cases:
        return []
    found = fit(
        models,
        tasks=[recall_task(case["split"]) for case in cases],
        steps=STEPS,
        rates=[rate / 2] * len(cases),
        seeds=[5_000_000 + 100 * case["split"] + case["again"] for case in cases],
        looks=(STEPS,),
        probed=0,
    )
    return [
        {**case, "accuracy": looks[0].accuracy} for case, looks in zip(cases, found, strict=True)
    ]


FREED = Table(
    path=_HERE / "freed.csv",
    units=[{"first": first} for first in (0, 5, 10, 15)],
    rows=freed_rows,
)
