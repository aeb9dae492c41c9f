"""Episodes of a few labelled digits and one more that asks for its label, and what reads them.

Of the ten classes of digits six are for training and four are kept for the test; which ones, a
seed decides. An episode takes two classes, A and B, gives each a word (one of WORDS), and shows
k_A digits of A and k_B of B, each with its word: the demonstrations. The query is one more digit.

A token is x = W_E image + e_word; the query's word is "no word". Each of the two layers is
h ← h + W_O Σ_j a_j W_V n(h_j), then h ← h + W_2 relu(W_1 n(h)), with one attention head,
a = softmax(q·k_j/√D + f_j), queries and keys of n(h), and n the LayerNorm without gain.
Demonstrations see each other, the query sees all of them and itself, nobody sees the query. At the
end the words are scored, W_U n(h_query). f_j is the field of a demonstration: k equal ones are one
with the field log k, exactly.

Weights are tensors by name with a leading axis of S independent trainings; tokens are (S, B, T, D).
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from compendium.common.images import digit_labels, digits
from compendium.common.replicas import draw_replicas, multiply_replicas, train_replicas
from spinformer.core.random import numpy_generator, torch_generator

WORDS = 8
WIDTH = 64
HIDDEN = 128
LAYERS = 2
MOST = 8  # demonstrations of a class
BATCH = 32
Weights = Mapping[str, Tensor]
# One seed's split: for each part the row numbers of its classes, an array a class; and "labelings",
# each the different words (6,) of the training classes.
Pool = dict[str, list[np.ndarray]]
Counts = tuple[float, float]


class Episodes(NamedTuple):
    """Row numbers of the images and the words beside them, (S, B, T): those of A, of B, the query.

    The query's word is WORDS, "no word"; `target` (S, B) the right one.
    """

    rows: Tensor
    words: Tensor
    target: Tensor

    @property
    def images(self) -> Tensor:
        """As inputs, (S, B, T, 64)."""
        return digit_inputs()[self.rows]


@cache
def digit_inputs() -> Tensor:
    """All digits as inputs (1797, 64), float64: each with mean 0 and norm 8 over its pixels."""
    return functional.layer_norm(torch.as_tensor(digits()), (WIDTH,), eps=0.0)


def split_digits(seed: int, *, labelings: int = 0) -> Pool:
    """A seed's classes and images; of six classes the last quarter of the images is "valid"."""
    generator = np.random.default_rng([seed, 1])
    labels = digit_labels()
    kinds = [generator.permutation(np.flatnonzero(labels == k)) for k in generator.permutation(10)]
    words = np.random.default_rng([seed, 5]).random((labelings, WORDS)).argsort(1)
    return {
        "train": [rows[: len(rows) * 3 // 4] for rows in kinds[:6]],
        "valid": [rows[len(rows) * 3 // 4 :] for rows in kinds[:6]],
        "test": kinds[6:],
        "labelings": list(words[:, :6]),
    }


def streams(pools: Sequence[Pool], seed: int) -> list[np.random.Generator]:
    """A generator for the episodes of each training."""
    return [np.random.default_rng([seed, place]) for place in range(len(pools))]


def draw_episodes(
    pools: Sequence[Pool],
    *,
    part: str,
    count: int,
    shown: tuple[int, int],
    seeds: Sequence[np.random.Generator | int],
    share_a: float = 0.5,
) -> Episodes:
    """`count` episodes for each seed, with `shown` = (k_A, k_B) demonstrations.

    The query is of class A with probability `share_a`. Words are two different ones at random, or
    those of one of the split's labelings, drawn for each episode, for the training classes.
    """
    drawn = []
    for pool, seed in zip(pools, seeds, strict=True):
        generator = numpy_generator(seed)
        rows = pool[part]
        classes = generator.random((count, len(rows))).argsort(1)[:, :2]
        if part == "test" or not pool["labelings"]:
            pair = generator.random((count, WORDS)).argsort(1)[:, :2]
        else:
            chosen = generator.integers(len(pool["labelings"]), size=(count, 1))
            pair = np.stack(pool["labelings"])[chosen, classes]
        side = np.where(generator.random((count, 1)) < share_a, 0, 1)
        which = np.repeat([0, 1], shown)
        kinds = np.concatenate([classes[:, which], np.take_along_axis(classes, side, 1)], 1)
        sizes = np.array([len(row) for row in rows])
        table = np.stack([np.resize(row, sizes.max()) for row in rows])
        chosen = (generator.random(kinds.shape) * sizes[kinds]).astype(int)
        words = np.concatenate([pair[:, which], np.full((count, 1), WORDS)], 1)
        target = np.take_along_axis(pair, side, 1)[:, 0]
        drawn.append((table[kinds, chosen], words, target))
    columns = zip(*drawn, strict=True)
    return Episodes(*(torch.as_tensor(np.stack(column)) for column in columns))


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
        name: scales.get(name, WIDTH**-0.5) * draw_replicas(*size, generators=generators)
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
) -> tuple[Tensor, Tensor]:
    """Scores of the words (S, B, WORDS) and the last hidden state (S, B, D) of the query.

    Of images (S, B, T, 64) with words (S, B, T), the query last. field: (S, B, T − 1), added to
    the scores of the demonstrations where the query looks, and, unless `context_field` replaces it
    there, where demonstrations look at each other. kick: (S, B, D), added to the query's embedding
    in units of its norm. kind: "softmax", or "linear": weights e^f q·k_j/√D over Σ e^f. frozen:
    gradients do not pass through the attention weights.
    """
    trainings, _, length, _ = images.shape
    embedded = weights["word"][torch.arange(trainings)[:, None, None], words]
    hidden = multiply_replicas(images, weights["image"]) + embedded
    if kick is not None:
        hidden[:, :, -1] += kick * hidden[:, :, -1].norm(dim=-1, keepdim=True)
    asked = hidden.new_zeros(*hidden.shape[:2], length - 1) if field is None else field
    in_context = asked if context_field is None else context_field
    # Demonstrations do not see the query, which sees itself.
    in_context = functional.pad(in_context, (0, 1), value=-math.inf).unsqueeze(2)
    asked = functional.pad(asked, (0, 1)).unsqueeze(2)
    first = torch.cat([in_context.expand(-1, -1, length - 1, -1), asked], 2)
    for layer, fields in enumerate((first, asked)):
        seen = _normalized(hidden)
        # Of the last layer only the query is read.
        readers = hidden if layer == 0 else hidden[:, :, -1:]
        asks = multiply_replicas(_normalized(readers), weights[f"query{layer}"])
        keys = multiply_replicas(seen, weights[f"key{layer}"])
        values = multiply_replicas(seen, weights[f"value{layer}"])
        scores = asks @ keys.mT / math.sqrt(WIDTH)
        if kind == "softmax":
            attention = torch.softmax(scores + fields, dim=-1)
        else:
            attention = torch.softmax(fields.expand_as(scores), dim=-1) * scores
        mixed = (attention.detach() if frozen else attention) @ values
        hidden = readers + multiply_replicas(mixed, weights[f"mix{layer}"])
        inner = torch.relu(multiply_replicas(_normalized(hidden), weights[f"up{layer}"]))
        hidden = hidden + multiply_replicas(inner, weights[f"down{layer}"])
    return multiply_replicas(_normalized(hidden), weights["out"])[:, :, 0], hidden[:, :, 0]


def _normalized(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


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

    goal: "balanced", k of each class, k = 0 … 8, and a query of either class alike, or "matched",
    k_A and k_B on their own and a query of A with probability k_A/(k_A + k_B). Sizes and shuffles
    of a step are shared by the seeds. The pixels of half of the batches are shuffled, all images of
    a batch alike, against learning the features of six classes and no others; not with `labelings`
    (0: a new one in every episode).
    """
    pools = [split_digits(seed, labelings=labelings or 0) for seed in seeds]
    generators = [np.random.default_rng([seed, 3]) for seed in seeds]
    shared = np.random.default_rng([seeds[0], 4])
    weights = initial_weights(seeds)

    def losses() -> Tensor:
        first, second = shared.integers(MOST + 1, size=2).tolist()
        shown = (first, first if goal == "balanced" else second)
        share = first / sum(shown) if any(shown) else 0.5
        episodes = draw_episodes(
            pools, part="train", count=BATCH, shown=shown, seeds=generators, share_a=share
        )
        images = episodes.images.float()
        if shared.random() < (0.5 if labelings is None else 0.0):
            images = images[..., torch.as_tensor(shared.permutation(WIDTH))]
        logits, _ = read(weights, images=images, words=episodes.words, kind=kind)
        return functional.cross_entropy(logits.mT, episodes.target, reduction="none").mean(-1)

    kept = train_replicas(
        weights, losses=losses, rate=rate, steps=steps, warmup=50, betas=(0.9, 0.99)
    )[steps]
    return {name: weight.double() for name, weight in kept.items()}, pools
