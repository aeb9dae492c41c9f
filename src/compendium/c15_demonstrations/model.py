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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from compendium.c15_demonstrations.episodes import WORDS
from compendium.common.copies import draw_copies, times_copies
from spinformer.core.random import torch_generator
from spinformer.core.records import record

WIDTH = 64
HIDDEN = 128
LAYERS = 2
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


def initial_weights(seeds: Sequence[int]) -> Weights:
    """Random weights for each of the seeds, stacked on axis 0; variances 1/fan-in."""
    generators = [torch_generator(seed) for seed in seeds]

    def draw(rows: int, columns: int, *, scale: float) -> Tensor:
        return scale * draw_copies(rows, columns, generators=generators)

    weights = {
        "image": draw(WIDTH, WIDTH, scale=WIDTH**-0.5),
        "word": draw(WORDS + 1, WIDTH, scale=1.0),
        "out": draw(WIDTH, WORDS, scale=WIDTH**-0.5),
    }
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "mix"):
            weights[f"{name}{layer}"] = draw(WIDTH, WIDTH, scale=WIDTH**-0.5)
        weights[f"up{layer}"] = draw(WIDTH, HIDDEN, scale=WIDTH**-0.5)
        weights[f"down{layer}"] = draw(HIDDEN, WIDTH, scale=0.5 * HIDDEN**-0.5)
    return weights


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
    own = torch.arange(trainings)[:, None, None]
    hidden = times_copies(images, weights["image"]) + weights["word"][own, words]
    if kick is not None:
        query = hidden[:, :, -1]
        query = query + kick * query.norm(dim=-1, keepdim=True)
        hidden = torch.cat([hidden[:, :, :-1], query.unsqueeze(2)], 2)
    asked = _fields(hidden, field)
    told = asked if context_field is None else _fields(hidden, context_field)
    first = torch.cat([told.expand(-1, -1, length - 1, -1), asked], 2)
    unseen = torch.zeros(length, length, dtype=torch.bool)
    unseen[:-1, -1] = True
    scores = []
    for layer, fields in enumerate((first, asked)):
        seen = _normalized(hidden)
        # Of the last layer only the query is read.
        readers = hidden if layer == 0 else hidden[:, :, -1:]
        asks = times_copies(_normalized(readers), weights[f"query{layer}"])
        keys, values = (times_copies(seen, weights[f"{name}{layer}"]) for name in ("key", "value"))
        found = asks @ keys.mT / math.sqrt(WIDTH)
        scores.append(found[:, :, -1])
        added = fields.masked_fill(unseen[-asks.shape[2] :], -math.inf)
        if kind == "softmax":
            attention = torch.softmax(found + added, dim=-1)
        else:
            attention = torch.softmax(added.expand_as(found), dim=-1) * found
        mixed = (attention.detach() if frozen else attention) @ values
        hidden = readers + times_copies(mixed, weights[f"mix{layer}"])
        inner = torch.relu(times_copies(_normalized(hidden), weights[f"up{layer}"]))
        hidden = hidden + times_copies(inner, weights[f"down{layer}"])
    logits = times_copies(_normalized(hidden), weights["out"])[:, :, 0]
    return Reading(logits=logits, scores=scores, state=hidden[:, :, 0])


def _fields(hidden: Tensor, field: Tensor | None) -> Tensor:
    trainings, count, length, _ = hidden.shape
    if field is None:
        return hidden.new_zeros(trainings, count, 1, length)
    return torch.nn.functional.pad(field, (0, 1)).unsqueeze(2)


def _normalized(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
