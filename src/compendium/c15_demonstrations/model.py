"""A transformer of two layers that reads demonstrations as a set, many trainings at once.

A token is a digit with its word, x = W_E image + e_word; the query's word is "no word". Each of
the two layers is h ← h + W_O Σ_j a_j W_V n(h_j), then h ← h + W_2 relu(W_1 n(h)), with one
attention head, a = softmax(q·k_j/√D + f_j), queries and keys of n(h), and n the LayerNorm without
gain. Demonstrations see each other, the query sees all of them and itself, nobody sees the query;
there are no positions. At the end the words are scored, W_U n(h_query).

f_j is the field of a demonstration. k equal demonstrations are one with the field log k, in every
layer, exactly: they have equal states, and k terms e^z are e^(z + log k). So counts can be any
positive number.

Weights are tensors by name with a leading axis of S independent trainings; tokens are (S, B, T, D).

Trainings differ in their goal, in how demonstrations and query are drawn, never in the model:

* "balanced": k of each class, k = 0 … 8; the query is of either class alike;
* "matched": k_A and k_B on their own; the query is of A with probability k_A/(k_A + k_B), as if
  demonstrations and query came from one lopsided source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from compendium.c15_demonstrations.episodes import (
    WORDS,
    Episodes,
    Pool,
    draw_episodes,
    split_digits,
)
from compendium.common.copies import draw_copies, times_copies, update_copies
from spinformer.core.random import torch_generator
from spinformer.core.records import record

WIDTH, HIDDEN, LAYERS = 64, 128, 2
MOST = 8  # demonstrations of a class
BATCH = 32
Weights = Mapping[str, Tensor]


@record
class Reading:
    """What the model makes of a batch.

    logits: (S, B, WORDS), scores of the words for the query. scores: per layer, (S, B, T), the
    query's scores q·k_j/√D without fields. state: (S, B, D), the query's last hidden state.
    """

    logits: Tensor
    scores: list[Tensor]
    state: Tensor


def initial_weights(seeds: Sequence[int]) -> dict[str, Tensor]:
    """Random weights for each of the seeds, stacked on axis 0; variances mostly 1/fan-in."""
    sizes = {"image": (WIDTH, WIDTH), "word": (WORDS + 1, WIDTH), "out": (WIDTH, WORDS)}
    for layer in range(LAYERS):
        names = (f"{name}{layer}" for name in ("query", "key", "value", "mix"))
        sizes |= dict.fromkeys(names, (WIDTH, WIDTH))
        sizes |= {f"up{layer}": (WIDTH, HIDDEN), f"down{layer}": (HIDDEN, WIDTH)}
    scales = {"word": 1.0} | {f"down{layer}": 0.5 * HIDDEN**-0.5 for layer in range(LAYERS)}
    generators = [torch_generator(seed) for seed in seeds]
    return {
        name: scales.get(name, WIDTH**-0.5) * draw_copies(*size, generators=generators)
        for name, size in sizes.items()
    }


def read(
    weights: Weights,
    *,
    images: Tensor,
    words: Tensor,
    field: Tensor | None = None,
    context_field: Tensor | None = None,
    kick: Tensor | None = None,
    kind: str = "softmax",
    frozen: bool = False,
) -> Reading:
    """The model's answer to images (S, B, T, 64) with words (S, B, T), the query last.

    field: (S, B, T − 1), added to the scores of the demonstrations where the query looks, and,
    unless `context_field` replaces it there, where demonstrations look at each other. kick:
    (S, B, D), added to the query's embedding in units of its norm. kind: "softmax", or "linear":
    weights e^f q·k_j/√D over Σ e^f, without an exponential of the score. frozen: gradients do
    not pass through the attention weights.
    """
    trainings, _, length, _ = images.shape
    embedded = weights["word"][torch.arange(trainings)[:, None, None], words]
    hidden = times_copies(images, weights["image"]) + embedded
    if kick is not None:
        hidden[:, :, -1] += kick * hidden[:, :, -1].norm(dim=-1, keepdim=True)
    asked = hidden.new_zeros(*hidden.shape[:2], length - 1) if field is None else field
    told = asked if context_field is None else context_field
    # Demonstrations do not see the query, which sees itself.
    told = functional.pad(told, (0, 1), value=-math.inf).unsqueeze(2)
    asked = functional.pad(asked, (0, 1)).unsqueeze(2)
    first = torch.cat([told.expand(-1, -1, length - 1, -1), asked], 2)
    scores = []
    for layer, fields in enumerate((first, asked)):
        seen = _normalized(hidden)
        # Of the last layer only the query is read.
        readers = hidden if layer == 0 else hidden[:, :, -1:]
        asks = times_copies(_normalized(readers), weights[f"query{layer}"])
        keys, values = (times_copies(seen, weights[f"{name}{layer}"]) for name in ("key", "value"))
        found = asks @ keys.mT / math.sqrt(WIDTH)
        scores.append(found[:, :, -1])
        if kind == "softmax":
            attention = torch.softmax(found + fields, dim=-1)
        else:
            attention = torch.softmax(fields.expand_as(found), dim=-1) * found
        mixed = (attention.detach() if frozen else attention) @ values
        hidden = readers + times_copies(mixed, weights[f"mix{layer}"])
        inner = torch.relu(times_copies(_normalized(hidden), weights[f"up{layer}"]))
        hidden = hidden + times_copies(inner, weights[f"down{layer}"])
    logits = times_copies(_normalized(hidden), weights["out"])[:, :, 0]
    return Reading(logits=logits, scores=scores, state=hidden[:, :, 0])


def _normalized(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def train(
    seeds: Sequence[int],
    *,
    steps: int,
    goal: str = "balanced",
    kind: str = "softmax",
    labelings: int | None = None,
    rate: float = 2e-3,
) -> tuple[Weights, list[Pool]]:
    """Train on the cross-entropy of the query's word; weights in float64, and the splits.

    Weights, classes and episodes of a seed are its own; the sizes k of the demonstrations and the
    shuffles of a step are shared by the seeds that are trained together. The pixels of half of the
    batches are shuffled, all images of a batch alike: without that the model learns the features of
    its six classes and no others, as it may with a number of `labelings`, 0 for a new one in every
    episode.
    """
    pools = [split_digits(seed, labelings=labelings or 0) for seed in seeds]
    generators = [np.random.default_rng([seed, 3]) for seed in seeds]
    shared = np.random.default_rng([seeds[0], 4])
    weights = initial_weights(seeds)

    def losses() -> Tensor:
        first, second = shared.integers(MOST + 1, size=2).tolist()
        shown = (first, first) if goal == "balanced" else (first, second)
        share = shown[0] / sum(shown) if sum(shown) else 0.5
        episodes = draw_episodes(
            pools, part="train", count=BATCH, shown=shown, seeds=generators, share_a=share
        )
        images = episodes.images.float()
        if shared.random() < (0.5 if labelings is None else 0.0):
            images = images[..., torch.as_tensor(shared.permutation(WIDTH))]
        logits = read(weights, images=images, words=episodes.words, kind=kind).logits
        return functional.cross_entropy(logits.mT, episodes.target, reduction="none").mean(-1)

    kept = update_copies(
        weights, losses=losses, rate=rate, steps=steps, warm=50, betas=(0.9, 0.99)
    )[steps]
    return {name: weight.double() for name, weight in kept.items()}, pools


def accuracy(weights: Weights, episodes: Episodes, *, kind: str = "softmax") -> np.ndarray:
    """Share of the queries whose highest word is the right one, for each training (S,)."""
    with torch.no_grad():
        found = read(weights, images=episodes.images, words=episodes.words, kind=kind)
    return (found.logits.argmax(-1) == episodes.target).double().mean(1).numpy()
