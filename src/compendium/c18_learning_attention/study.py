"""An attention layer that learns to retrieve, at many scales of its scores and numbers of heads.

The task. An episode holds N pairs of an address x_j, a Gaussian vector with m components, and a
label y_j, one of eight. The query is G x_j of one of the pairs, where the rotation G is hidden and
the same in all episodes of a run. The layer has to return the label of that pair, so it has to
learn W_QᵀW_K ∝ G. Its scores are β q·k with β = c/√d, where d is the width of a head and c the
*scale*, 1 in a transformer. All runs of a call are trained at once, as one batch.

The inverse temperature that a training ends with is the one of queries and keys with components of
unit variance, in units of 1/√d: c |q||k| / d, with the mean lengths.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bookmaker.tables import Rows, stored
from compendium.common.rows import array_of, mean_rows, numbered
from spinformer.core.checks import check_integer

ADDRESS = 16  # components of an address
LABELS = 8
BATCH = 16  # episodes of an update
TESTS = 64  # episodes by which a layer is judged
LEARNED = 0.9  # accuracy from which on a layer has learned
NORMS = (
    "none",
    "inputs",
    "inputs with gains",
    "queries and keys",
    "queries and keys with gains",
)
RUNS = 12


class Retrieval(NamedTuple):
    """What trainings end with, (scales, runs) each."""

    steps: np.ndarray  # updates until the layer has learned, at most those of the training
    beta: np.ndarray  # inverse temperature at the end, in units of 1/√d
    accuracy: np.ndarray  # at the end


class _Layer:
    """Attention layers of all runs, R = scales × runs of them, scales changing slowest."""

    def __init__(
        self,
        scales: np.ndarray,
        runs: int,
        *,
        norm: str,
        width: int,
        heads: int,
        generator: torch.Generator,
    ):
        self.norm = norm
        self.copies = len(scales)
        self.split = (heads, width // heads)

        def start(*shape: int, scale: float) -> Tensor:
            # A run has the same start at every scale.
            weights = scale * torch.randn(runs, *shape, generator=generator)
            return self.repeated(weights).clone().requires_grad_()

        self.query = start(ADDRESS, width, scale=ADDRESS**-0.5)
        self.key = start(ADDRESS, width, scale=ADDRESS**-0.5)
        self.value = start(LABELS, width, scale=1.0)
        self.output = start(width, LABELS, scale=width**-0.5)
        total = len(scales) * runs
        self.gains: list[Tensor] = []
        if norm == "inputs with gains":
            self.gains = [torch.ones(total, 1, ADDRESS, requires_grad=True) for _ in range(2)]
        if norm == "queries and keys with gains":
            self.gains = [torch.ones(total, 1, *self.split, requires_grad=True) for _ in range(2)]
        betas = torch.from_numpy(scales).float() / math.sqrt(self.split[1])
        self.beta = betas.repeat_interleave(runs)

    def repeated(self, batch: Tensor) -> Tensor:
        """The same tensor (runs, ...) for every scale, (R, ...)."""
        return batch.repeat(self.copies, *[1] * (batch.ndim - 1))

    def parameters(self) -> list[Tensor]:
        return [self.query, self.key, self.value, self.output, *self.gains]

    def project(self, inputs: Tensor, which: int) -> Tensor:
        """Queries (which 0) or keys (1) of inputs (R, n, m), by head (R, n, H, d)."""
        if self.norm.startswith("inputs"):
            inputs = _normalized(inputs)
        if self.norm == "inputs with gains":
            inputs = inputs * self.gains[which]
        outputs = (inputs @ (self.query, self.key)[which]).unflatten(-1, self.split)
        if self.norm.startswith("queries"):
            outputs = _normalized(outputs)
        if self.norm == "queries and keys with gains":
            outputs = outputs * self.gains[which]
        return outputs

    def __call__(self, episodes: "_Episodes") -> tuple[Tensor, Tensor]:
        """Logits (R, B, labels), and the inverse temperature of each run (R,)."""
        pairs = episodes.addresses.shape[2]
        queries = self.project(self.repeated(episodes.queries), 0)
        keys = self.project(self.repeated(episodes.addresses.flatten(1, 2)), 1)
        lengths = queries.norm(dim=-1).mean((1, 2)) * keys.norm(dim=-1).mean((1, 2))
        scores = torch.einsum("rbhd,rbnhd->rbhn", queries, keys.unflatten(1, (-1, pairs)))
        weights = (self.beta[:, None, None, None] * scores).softmax(-1)
        labels = self.repeated(functional.one_hot(episodes.labels, LABELS).float())
        read = (weights @ labels).transpose(1, 2)  # (R, H, B, labels)
        values = self.value.unflatten(-1, self.split).transpose(1, 2)  # (R, H, labels, d)
        outputs = (read @ values).transpose(1, 2).flatten(2)
        return outputs @ self.output, self.beta * lengths / math.sqrt(self.split[1])


class _Episodes(NamedTuple):
    """Episodes of every run: addresses (runs, B, N, m), labels (runs, B, N), queries (runs, B, m).

    The query asks for the first pair: attention does not know the order.
    """

    addresses: Tensor
    labels: Tensor
    queries: Tensor


def _episodes(
    rotations: Tensor, count: int, *, pairs: int, generator: torch.Generator
) -> _Episodes:
    runs = len(rotations)
    addresses = torch.randn(runs, count, pairs, ADDRESS, generator=generator)
    labels = torch.randint(LABELS, (runs, count, pairs), generator=generator)
    return _Episodes(addresses, labels, addresses[:, :, 0] @ rotations)


def _normalized(inputs: Tensor) -> Tensor:
    """Layer normalization without gain: mean zero and variance one over the last axis."""
    return functional.layer_norm(inputs, inputs.shape[-1:])


def train_retrieval(
    scales: np.ndarray,
    *,
    seed: int,
    norm: str = "none",
    width: int = 16,
    heads: int = 1,
    pairs: int = 8,
    optimizer: str = "Adam",
    rate: float = 0.01,
    runs: int = RUNS,
    steps: int = 400,
    every: int = 5,
) -> Retrieval:
    """Train `runs` attention layers on the retrieval task at each scale (n,) of the scores.

    A run has the same start and sees the same episodes at every scale, with every `norm`. `norm`
    names the layer normalization: of the inputs before they are mapped, of queries and keys after
    it, or of these with learned gains. `width` is that of all heads together.
    """
    check_integer("steps", steps, low=1)
    generator = torch.Generator().manual_seed(seed)
    rotations = torch.linalg.qr(torch.randn(runs, ADDRESS, ADDRESS, generator=generator))[0]
    test = _episodes(rotations, TESTS, pairs=pairs, generator=generator)
    layer = _Layer(scales, runs, norm=norm, width=width, heads=heads, generator=generator)
    kind = {"Adam": torch.optim.Adam, "SGD": torch.optim.SGD}[optimizer]
    updates = kind(layer.parameters(), lr=rate)
    learned = torch.full((len(scales) * runs,), float(steps))
    for step in range(1, steps + 1):
        episodes = _episodes(rotations, BATCH, pairs=pairs, generator=generator)
        logits, _ = layer(episodes)
        wanted = layer.repeated(episodes.labels[:, :, 0])
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
        updates.zero_grad()
        (loss / BATCH).backward()
        updates.step()
        if step % every == 0 or step == steps:
            with torch.no_grad():
                logits, beta = layer(test)
            right = logits.argmax(-1) == layer.repeated(test.labels[:, :, 0])
            accuracy = right.float().mean(1)
            learned = torch.where(accuracy > LEARNED, learned.clamp(max=step), learned)
    shape = (len(scales), runs)
    return Retrieval(*(one.view(shape).double().numpy() for one in (learned, beta, accuracy)))


def scales_of(width: int) -> np.ndarray:
    """Five scales of the scores; the fourth is √d, so that β = 1."""
    return np.array([1 / 16, 1 / 4, 1.0, math.sqrt(width), 16.0])


# What a reasonable person could have chosen otherwise, with raw runs of its own each.
_METHODS = (("Adam", 0.003), ("Adam", 0.01), ("SGD", 0.3))
_SETTINGS = numbered(
    [
        {"width": width, "pairs": pairs, "optimizer": optimizer, "rate": rate}
        for width in (16, 64)
        for pairs in (4, 16)
        for optimizer, rate in _METHODS
    ],
    first=1800,
)
_LOOSE = {"value": 0.3, "low": 0.5, "high": 0.5}


@stored(
    "trainings",
    [{**setting, "norm": norm} for setting in _SETTINGS for norm in NORMS],
    seconds=4,
    within={"steps": 60, "beta": 5.0, "accuracy": 0.2},
    rtol=0.3,
)
def trainings_table(
    data: int, width: int, pairs: int, optimizer: str, rate: float, norm: str
) -> Rows:
    """Twelve trainings at five scales of the scores."""
    scales = scales_of(width)
    result = train_retrieval(
        scales, seed=data, norm=norm, width=width, pairs=pairs, optimizer=optimizer, rate=rate
    )
    return [
        {
            "scale": scale,
            "run": run,
            "steps": int(result.steps[place, run]),
            "beta": result.beta[place, run],
            "accuracy": result.accuracy[place, run],
        }
        for place, scale in enumerate(scales)
        for run in range(RUNS)
    ]


def _trainings(name: str, data: int, norm: str) -> np.ndarray:
    """A column of the stored trainings of a setting, (scales, runs)."""
    return array_of(trainings_table.read(), name, "scale", "run", data=data, norm=norm)


@stored(
    "settings_A25",
    [{**setting, "norm": norm} for setting in _SETTINGS for norm in NORMS],
    seconds=0.1,
    within=_LOOSE,
)
def settings_a25(data: int, width: int, pairs: int, optimizer: str, rate: float, norm: str) -> Rows:
    """Updates to learn at β = 1 beside those at 1/√d, logarithm of their ratio to base two."""
    steps = _trainings("steps", data, norm)
    return mean_rows(np.log2(steps[3] / steps[2]))


def temperature_change(scales: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Root mean square of ln(β at the end / β as set) over the scales, (runs,)."""
    return np.sqrt((np.log(beta / scales[:, None]) ** 2).mean(0))


@stored(
    "settings_A25b",
    [{**setting, "norm": norm} for setting in _SETTINGS for norm in NORMS[1:3]],
    seconds=0.1,
    within=_LOOSE,
)
def settings_a25b(
    data: int, width: int, pairs: int, optimizer: str, rate: float, norm: str
) -> Rows:
    """How much more training changes the inverse temperature where inputs are normalized."""
    scales = scales_of(width)
    changes = [
        temperature_change(scales, _trainings("beta", data, kind)) for kind in (norm, "none")
    ]
    return mean_rows(changes[0] - changes[1])


def _fresh(methods: Sequence[tuple[str, float]], *, first: int) -> Rows:
    """Settings whose widths, pairs and rates lie between and outside of those above."""
    settings = [
        {"width": width, "pairs": pairs, "optimizer": optimizer, "rate": rate}
        for width in (24, 96)
        for pairs in (2, 32)
        for optimizer, rate in methods
    ]
    return numbered(settings, first=first)


@stored(
    "confirm_A25",
    [
        {**setting, "norm": norm}
        for setting in _fresh((("Adam", 0.002), ("Adam", 0.005), ("Adam", 0.02)), first=1900)
        for norm in ("none", "queries and keys")
    ],
    seconds=2,
    within=_LOOSE,
)
def confirm_a25(data: int, width: int, pairs: int, optimizer: str, rate: float, norm: str) -> Rows:
    """Lines as those of `settings_a25`, of trainings at two scales."""
    steps = train_retrieval(
        scales_of(width)[2:4],
        seed=data,
        norm=norm,
        width=width,
        pairs=pairs,
        optimizer=optimizer,
        rate=rate,
    ).steps
    return mean_rows(np.log2(steps[1] / steps[0]))


@stored(
    "confirm_A25b",
    [
        {**setting, "norm": NORMS[2]}
        for setting in _fresh((("Adam", 0.005), ("Adam", 0.02), ("SGD", 0.2)), first=1950)
    ],
    seconds=4,
    within=_LOOSE,
)
def confirm_a25b(data: int, width: int, pairs: int, optimizer: str, rate: float, norm: str) -> Rows:
    """Lines as those of `settings_a25b`, of six trainings each."""
    scales = scales_of(width)
    changes = [
        temperature_change(
            scales,
            train_retrieval(
                scales,
                seed=data,
                norm=kind,
                width=width,
                pairs=pairs,
                optimizer=optimizer,
                rate=rate,
                runs=6,
                steps=300,
            ).beta,
        )
        for kind in (norm, "none")
    ]
    return mean_rows(changes[0] - changes[1])


@stored(
    "settings_A20",
    numbered(
        [
            {"width": width, "pairs": pairs, "optimizer": optimizer, "rate": rate}
            for width in (16, 32)
            for pairs in (4, 16)
            for optimizer, rate in _METHODS
        ],
        first=1850,
    ),
    seconds=12,
    within=_LOOSE,
)
def settings_a20(data: int, width: int, pairs: int, optimizer: str, rate: float) -> Rows:
    """Updates to learn with one head beside those with H, logarithm of their ratio to base two.

    With H heads either all of them together are as wide as the one head, or each is.
    """
    scales = np.array([1.0, 16.0])

    def updates(heads: int, total: int) -> np.ndarray:
        return train_retrieval(
            scales,
            seed=data,
            width=total,
            heads=heads,
            pairs=pairs,
            optimizer=optimizer,
            rate=rate,
        ).steps

    one = updates(1, width)
    rows = []
    for heads in (2, 4):
        for kept, total in (("all heads", width), ("each head", heads * width)):
            gain = np.log2(one / updates(heads, total))
            for place, scale in enumerate(scales):
                choices = {"heads": heads, "kept": kept, "scale": scale}
                rows += [{**choices, **line} for line in mean_rows(gain[place])]
    return rows
