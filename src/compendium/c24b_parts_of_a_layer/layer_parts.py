"""Which part of a transformer's layer matters: one part is removed at a time, parameters matched.

[bal2021transformers, Sec. 2], after MetaFormer [yu2022metaformer], states that the structure of the
layer is essential and the kind of mixer is not. Two layers read labels off tokens. Each is

    x ← x + mix(norm(x)),    x ← x + W₂ relu(W₁ norm(x)),

with attention or the mean of all tokens as mixer. Removed are the skips, the normalizations, the
feed-forward network, or the mixing, which leaves a linear map of each token. Where a removed part
had parameters, the number of channels grows until the network has as many as the complete one.

Each network stands at the rate of its least median validation loss.

Criterion of B1c, written before its table: parts are needed more when another one is missing if
the removal of a second part costs at least `COST` of accuracy beyond that of the worse of the two
alone, with the whole 95 % interval of two proportions, for each pair of parts, task and mixer.
Expected: it holds for the normalization without skips, and not for pairs with the mixing.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from bookmaker.tables import Rows, stored
from compendium.common.rows import array_of, parameter_product
from compendium.common.token_tasks import Task, digit_task, recall_task
from compendium.common.token_training import WITHIN, final_scores
from compendium.common.training_grids import difference_intervals

TASKS = {"digits": digit_task, "recall": recall_task}
MIXERS = ("attention", "averaging")
REMOVED = ("skip", "normalization", "feed-forward", "mixing")
# Without mixing it does not matter what mixed before.
NETWORKS = [
    *parameter_product(mixer=MIXERS, removed=("nothing", *REMOVED[:3])),
    {"mixer": "none", "removed": "mixing"},
]
HEADS = 2
CHANNELS = 32
LAYERS = 2
UPDATES = 200
RATES = (0.0032, 0.01, 0.032)
SPLITS = range(20, 26)


class Mixing(nn.Module):
    """Tokens (batch, N, dim) to the same: by attention, by their mean, or each token alone."""

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "attention":
            self.project = nn.Linear(dim, 3 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.kind == "attention":
            heads = self.project(tokens).unflatten(-1, (3, HEADS, -1)).movedim(-2, -4)
            mixed = scaled_dot_product_attention(*heads.unbind(-2))
            return self.output(mixed.movedim(-3, -2).flatten(-2))
        if self.kind == "averaging":
            tokens = tokens.mean(-2, keepdim=True).expand_as(tokens)
        return self.output(tokens)


class PartialLayer(nn.Module):
    """A layer with a `mixer`, without what is `removed`: "nothing", or parts, "skip, mixing"."""

    def __init__(self, dim: int, *, mixer: str, removed: str) -> None:
        super().__init__()
        self.skip = 0.0 if "skip" in removed else 1.0
        self.mixing = Mixing("none" if "mixing" in removed else mixer, dim)
        normalized = "normalization" not in removed
        self.before = nn.LayerNorm(dim) if normalized else nn.Identity()
        self.wide: nn.Module | None = None
        if "feed-forward" not in removed:
            self.between = nn.LayerNorm(dim) if normalized else nn.Identity()
            self.wide = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.skip * tokens + self.mixing(self.before(tokens))
        if self.wide is None:
            return tokens
        return self.skip * tokens + self.wide(self.between(tokens))


class PartialNetwork(nn.Module):
    """Embedding with learned positions, `LAYERS` layers, a linear read-out: logits (batch, 10).

    Of the "mean" or the "last" token, as `readout` says.
    """

    def __init__(
        self,
        *,
        mixer: str,
        removed: str,
        dim: int,
        tokens: int,
        features: int,
        classes: int,
        readout: str,
    ) -> None:
        super().__init__()
        self.reading = readout
        self.embedding = nn.Linear(features, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        layers = [PartialLayer(dim, mixer=mixer, removed=removed) for _ in range(LAYERS)]
        self.layers = nn.Sequential(*layers)
        self.readout = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        state = self.layers(self.embedding(tokens) + self.position)
        return self.readout(state.mean(-2) if self.reading == "mean" else state[:, -1])


def build_network(
    *, mixer: str, removed: str, shape: dict[str, Any], seed: int = 0
) -> PartialNetwork:
    """A network with about as many parameters as the complete one with attention."""
    dim = _channels(mixer, removed, tuple(shape.items()))
    return _drawn(mixer=mixer, removed=removed, dim=dim, shape=shape, seed=seed)


def parameter_count(network: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in network.parameters())


def _drawn(
    *, mixer: str, removed: str, dim: int, shape: dict[str, Any], seed: int
) -> PartialNetwork:
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PartialNetwork(mixer=mixer, removed=removed, dim=dim, **shape)


@cache
def _channels(mixer: str, removed: str, shape: tuple[tuple[str, Any], ...]) -> int:
    """Channels, a multiple of the heads, whose parameters come closest to the complete network."""

    def size(dim: int, *, kind: str, without: str) -> int:
        drawn = _drawn(mixer=kind, removed=without, dim=dim, shape=dict(shape), seed=0)
        return parameter_count(drawn)

    complete = size(CHANNELS, kind="attention", without="nothing")
    tried = range(CHANNELS, 4 * CHANNELS, HEADS)
    return min(tried, key=lambda dim: abs(size(dim, kind=mixer, without=removed) - complete))


def train_networks(
    task: str, *, mixer: str, removed: str, rates: Sequence[float], splits: Sequence[int]
) -> Rows:
    """A row for each rate and split: accuracy on the test set, loss on the validation set."""
    made: dict[int, Task] = {split: TASKS[task](split) for split in splits}
    cells = parameter_product(rate=rates, split=splits)
    networks = [
        build_network(
            mixer=mixer, removed=removed, shape=made[cell["split"]].shape, seed=cell["split"]
        )
        for cell in cells
    ]
    return final_scores(networks, cells=cells, tasks=made, steps=UPDATES)


@stored(
    "layer_parts",
    [{"task": task} | network for task in TASKS for network in NETWORKS],
    small={"task": "digits", "mixer": "averaging", "removed": "skip", "count": 1},
    seconds=5.0,
    rtol=0.05,
    within=WITHIN,
)
def layer_parts(task: str, mixer: str, removed: str, count: int | None = None) -> Rows:
    """A row for each rate and split, of all or the first `count` splits."""
    return train_networks(task, mixer=mixer, removed=removed, rates=RATES, splits=SPLITS[:count])


# A part that is essential costs at least so much accuracy when it is removed.
COST = 0.03
ANSWERS = 500


def chosen_rate(task: str, *, mixer: str, removed: str) -> float:
    """The rate of the least median validation loss in `layer_parts`."""
    table = layer_parts.read()
    network: dict[str, Any] = {"task": task, "mixer": mixer, "removed": removed}
    held = array_of(table, "held", "rate", "split", **network)
    return RATES[np.median(held, axis=1).argmin()]


def accuracies(task: str, *, mixer: str, removed: str) -> np.ndarray:
    """Accuracies of `layer_parts` by split, at the network's own best rate."""
    network: dict[str, Any] = {"task": task, "mixer": mixer, "removed": removed}
    rate = chosen_rate(**network)
    return array_of(layer_parts.read(), "accuracy", "split", rate=rate, **network)


@stored(
    "settings_B1b",
    parameter_product(task=tuple(TASKS), mixer=MIXERS),
    seconds=30.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def settings_b1b(task: str, mixer: str) -> Rows:
    """What is lost without normalization, less what an essential part costs: on new splits.

    The part that `layer_parts` had shown to cost nothing, at the rates that were chosen there.
    """
    splits = range(30, 36)
    found = []
    for removed in ("nothing", "normalization"):
        network: dict[str, Any] = {"mixer": mixer, "removed": removed}
        rate = chosen_rate(task, **network)
        rows = train_networks(task, rates=[rate], splits=splits, **network)
        found.append(np.array([row["accuracy"] for row in rows]))
    lost = found[0] - found[1]
    ends = difference_intervals(*found, asked=ANSWERS)
    return [
        {
            "data": f"{task} {mixer} split {split}",
            "value": loss - COST,
            "low": low - COST,
            "high": high - COST,
            "runs": 2,
        }
        for split, loss, (low, high) in zip(splits, lost, ends, strict=True)
    ]


def _mixer(removed: str, mixer: str) -> str:
    return "none" if "mixing" in removed else mixer


# Without mixing it does not matter what mixed before.
PAIRS = [
    {"task": task, "mixer": mixer, "removed": ", ".join(pair)}
    for task in TASKS
    for pair in combinations(REMOVED, 2)
    for mixer in dict.fromkeys(_mixer(", ".join(pair), one) for one in MIXERS)
]


@stored(
    "settings_B1c",
    PAIRS,
    seconds=20.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1, "accuracy": 0.1, "alone": 0.1},
)
def settings_b1c(task: str, mixer: str, removed: str) -> Rows:
    """Accuracy without the worse of two parts minus that without both, less `COST`, by split.

    On the first three splits of `layer_parts`, at the rate of the least median validation loss.
    Of a single part beside the mixing, the network mixes by attention.
    """
    splits = SPLITS[:3]
    rows = train_networks(task, mixer=mixer, removed=removed, rates=RATES, splits=splits)
    held = np.array([row["held"] for row in rows]).reshape(len(RATES), len(splits))
    accuracy = np.array([row["accuracy"] for row in rows]).reshape(held.shape)
    both = accuracy[np.median(held, axis=1).argmin()]
    singles = []
    for part in removed.split(", "):
        one = _mixer(part, "attention" if mixer == "none" else mixer)
        singles.append(accuracies(task, mixer=one, removed=part)[: len(splits)])
    alone = min(singles, key=lambda values: float(values.mean()))
    ends = difference_intervals(alone, both, asked=ANSWERS)
    return [
        {
            "data": f"{task} {mixer} without {removed}, split {split}",
            "value": alone[place] - both[place] - COST,
            "low": ends[place][0] - COST,
            "high": ends[place][1] - COST,
            "runs": 2,
            "accuracy": both[place],
            "alone": alone[place],
        }
        for place, split in enumerate(splits)
    ]
