"""Accuracy of layers that differ in the couplings of their mixer alone, parameters matched.

Two layers read labels off tokens, each x ← x + mix(norm(x)), x ← x + W₂ relu(W₁ norm(x)). The mixer
is M V x with a matrix M over tokens: attention with one head or its three steps with the same
weights, linear attention, a learned matrix, averaging, the Fourier transform, or no mixing. Where a
mixer has fewer parameters than attention, the number of channels grows until the network has as
many. Each network stands at the rate of its least median validation loss.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from bookmaker.tables import Rows, stored
from compendium.common.rows import array_of, parameter_product
from compendium.common.token_tasks import digit_task, recall_task
from compendium.common.token_training import WITHIN, final_scores

TASKS = {"digits": digit_task, "recall": recall_task}
KINDS = ("none", "Fourier", "uniform", "fixed", "linear", "rows", "three steps")
CHANNELS = 32
LAYERS = 2
UPDATES = 200
RATES = (0.0032, 0.01, 0.032)
SPLITS = range(20, 26)


class Mixer(nn.Module):
    """Tokens (batch, N, dim) to the same, by one of `KINDS`."""

    def __init__(self, kind: str, dim: int, *, tokens: int) -> None:
        super().__init__()
        self.kind = kind
        self.value = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)
        if kind in ("linear", "rows", "three steps"):
            self.query = nn.Linear(dim, dim, bias=False)
            self.key = nn.Linear(dim, dim, bias=False)
        if kind == "fixed":
            self.weights = nn.Parameter(torch.randn(tokens, tokens) / tokens**0.5)
        place = torch.arange(tokens)
        fourier = torch.cos(2.0 * torch.pi * place[:, None] * place / tokens) / tokens**0.5
        self.register_buffer("fourier", fourier)

    def mixing(self, tokens: Tensor) -> Tensor:
        """The matrix M over tokens, (N, N) or (batch, N, N)."""
        size = tokens.shape[-2]
        if self.kind == "fixed":
            return self.weights
        if self.kind == "Fourier":
            return self.get_buffer("fourier")
        if self.kind == "uniform":
            return torch.full((size, size), 1.0 / size)
        queries = self.query(tokens)
        keys = self.key(tokens)
        if self.kind == "linear":
            weights = (elu(queries) + 1.0) @ (elu(keys) + 1.0).mT
            return weights / weights.sum(-1, keepdim=True)
        return (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(-1)

    def forward(self, tokens: Tensor) -> Tensor:
        values = self.value(tokens)
        mixed = values
        if self.kind != "none":
            matrix = self.mixing(tokens)
            mixed = matrix @ values
            if self.kind == "three steps":
                for _ in range(2):
                    mixed = matrix @ (values + mixed)
        return self.output(mixed)


class MixerNetwork(nn.Module):
    """Embedding with learned positions, `LAYERS` layers, a linear read-out: logits (batch, 10).

    Of the "mean" or the "last" token, as `readout` says.
    """

    def __init__(
        self, kind: str, *, dim: int, tokens: int, features: int, classes: int, readout: str
    ) -> None:
        super().__init__()
        self.reading = readout
        self.embedding = nn.Linear(features, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        self.mixers = nn.ModuleList(Mixer(kind, dim, tokens=tokens) for _ in range(LAYERS))
        self.before = nn.ModuleList(nn.LayerNorm(dim) for _ in range(LAYERS))
        self.wide = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim)
            )
            for _ in range(LAYERS)
        )
        self.readout = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        state = self.embedding(tokens) + self.position
        for mixer, before, wide in zip(self.mixers, self.before, self.wide, strict=True):
            state = state + mixer(before(state))
            state = state + wide(state)
        return self.readout(state.mean(-2) if self.reading == "mean" else state[:, -1])


def parameter_count(network: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in network.parameters())


def build_network(kind: str, *, shape: dict[str, Any], seed: int = 0) -> MixerNetwork:
    """A network with about as many parameters as the one with attention."""
    dim = _channels(kind, tuple(shape.items()))
    return _drawn(kind, dim=dim, shape=shape, seed=seed)


def _drawn(kind: str, *, dim: int, shape: dict[str, Any], seed: int) -> MixerNetwork:
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MixerNetwork(kind, dim=dim, **shape)


@cache
def _channels(kind: str, shape: tuple[tuple[str, Any], ...]) -> int:
    """Channels whose parameters come closest to those of the network with attention."""

    def size(kind: str, dim: int) -> int:
        return parameter_count(_drawn(kind, dim=dim, shape=dict(shape), seed=0))

    goal = size("rows", CHANNELS)
    return min(range(CHANNELS, 2 * CHANNELS), key=lambda dim: abs(size(kind, dim) - goal))


@stored(
    "mixers",
    parameter_product(task=tuple(TASKS), kind=KINDS),
    small={"task": "digits", "kind": "uniform", "count": 1},
    seconds=8.0,
    rtol=0.05,
    # A network of one split, of which the least held-out loss is chosen among all rates.
    within=WITHIN | {"held": 0.03},
)
def mixers_table(task: str, kind: str, count: int | None = None) -> Rows:
    """A row for each rate and split: accuracy on the test set, loss on the validation set."""
    made = {split: TASKS[task](split) for split in SPLITS[:count]}
    cells = parameter_product(rate=RATES, split=tuple(made))
    networks = [
        build_network(kind, shape=made[cell["split"]].shape, seed=cell["split"]) for cell in cells
    ]
    return final_scores(networks, cells=cells, tasks=made, steps=UPDATES)


def accuracies(task: str, kind: str) -> np.ndarray:
    """Accuracies by split, at the network's own best rate."""
    table = mixers_table.read()
    held = array_of(table, "held", "rate", "split", task=task, kind=kind)
    rate = RATES[np.median(held, axis=1).argmin()]
    return array_of(table, "accuracy", "split", rate=rate, task=task, kind=kind)
