"""A small transformer of vanilla form [vaswani2017attention], many copies of it side by side.

A layer is attention, residual, LayerNorm, a feed-forward network with GELU units, residual,
LayerNorm; LayerNorms have no gains and shifts: every state has the norm √D. Weights have a first
axis of C independent copies. Shapes: tokens (C, B, N, pixels), states (C, B, N, D), queries and
keys (C, B, H, N, d) with d = D/H.

A head with keys k_1 … k_N at inverse temperature β = 1/√d gives a query q the energy
E(q) = ½ q·q − β⁻¹ lse_j(β k_j·q), and with its exact partition function a density of queries
[bal2020energy, Eqs. (7) and (17)], from which the query's own key is left out. Signals, averaged
over images, tokens, heads and layers unless said otherwise:

* "supervised": cross-entropy of the readout;
* "raw": the energies E of all heads; "raw local": the same, each layer's for that layer alone;
* "density": −log p(query | the other keys); "density local": for each layer alone; "density held":
  with queries that the loss does not move;
* "contrast": softplus(ΣE(image) − ΣE(shuffled)), ΣE over layers and heads, and a shuffled image has
  each patch from another image at the same place.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.common.patches import digit_patches
from compendium.common.replicas import draw_replicas, multiply_replicas, train_replicas
from spinformer.core.random import torch_generator
from spinformer.hopfield.continuous import energy

TOKENS = 16
PIXELS = 4  # of a token
WIDTH = 24
HEADS = 4
LAYERS = 4
INNER = 48  # width inside of a feed-forward network
CLASSES = 10
HEAD_WIDTH = WIDTH // HEADS
ALONE = ("raw", "raw local", "density", "density local", "density held")
SIGNALS = ("supervised", *ALONE, "contrast")
Weights = Mapping[str, Tensor]


def initial_weights(seeds: Sequence[int]) -> dict[str, Tensor]:
    """Fresh weights, a copy a seed, float32: matrices N(0, 1/rows), biases 0, positions N(0, 1)."""
    sizes = {"embedding": (PIXELS, WIDTH)}
    for layer in range(LAYERS):
        names = (f"{layer}.{name}" for name in ("query", "key", "value", "output"))
        sizes |= dict.fromkeys(names, (WIDTH, WIDTH))
        sizes |= {f"{layer}.up": (WIDTH, INNER), f"{layer}.down": (INNER, WIDTH)}
    sizes["readout"] = (WIDTH, CLASSES)
    generators = [torch_generator(seed) for seed in seeds]
    biased = [name for name in sizes if name.endswith(("up", "down", "readout"))]
    weights = draw_maps(sizes, biased=biased, generators=generators)
    return weights | {"position": draw_replicas(TOKENS, WIDTH, generators=generators)}


def draw_maps(
    sizes: Mapping[str, tuple[int, int]],
    *,
    biased: Iterable[str],
    generators: Sequence[torch.Generator],
) -> dict[str, Tensor]:
    """Matrices (C, rows, columns), N(0, 1/rows), by name, and "NAME bias" of zeros for some."""
    weights = {
        name: draw_replicas(*size, generators=generators) / size[0] ** 0.5
        for name, size in sizes.items()
    }
    return weights | {f"{name} bias": torch.zeros_like(weights[name][:, :1]) for name in biased}


def affine(weights: Weights, name: str, states: Tensor) -> Tensor:
    """States (C, B, N, D) through the matrix and bias of that name."""
    return multiply_replicas(states, weights[name]) + weights[f"{name} bias"].unsqueeze(1)


def run(
    weights: Weights, tokens: Tensor, *, local: bool = False
) -> tuple[list[Tensor], Tensor, Tensor]:
    """L + 1 states of tokens (C, B, N, pixels), before and after each layer; queries, keys (L, …).

    `local`: no gradient passes from a layer to the one before.
    """
    embedded = multiply_replicas(tokens, weights["embedding"])
    state = _normalized(embedded + weights["position"].unsqueeze(1))
    states = [state]
    asked = []
    held = []

    def heads_of(name: str) -> Tensor:
        projected = multiply_replicas(state, weights[name])
        return projected.unflatten(-1, (HEADS, HEAD_WIDTH)).transpose(-2, -3)

    for layer in range(LAYERS):
        if local:
            state = state.detach()
        queries = heads_of(f"{layer}.query")
        keys = heads_of(f"{layer}.key")
        values = heads_of(f"{layer}.value")
        # Written out: the framework's kernel takes twice as long for heads this small.
        weight = torch.softmax(HEAD_WIDTH**-0.5 * queries @ keys.mT, dim=-1)
        heads = (weight @ values).transpose(-2, -3).flatten(-2)
        state = _normalized(state + multiply_replicas(heads, weights[f"{layer}.output"]))
        inner = functional.gelu(affine(weights, f"{layer}.up", state))
        state = _normalized(state + affine(weights, f"{layer}.down", inner))
        states.append(state)
        asked.append(queries)
        held.append(keys)
    return states, torch.stack(asked), torch.stack(held)


def logits(weights: Weights, states: Tensor) -> Tensor:
    """The readout (C, B, classes) of the mean over the tokens of states (C, B, N, D)."""
    return affine(weights, "readout", states.mean(-2, keepdim=True)).squeeze(-2)


def _normalized(states: Tensor) -> Tensor:
    return functional.layer_norm(states, states.shape[-1:])


def head_energy(queries: Tensor, *, keys: Tensor) -> Tensor:
    """E(q_i) among all keys, (..., N), of queries and keys (..., N, d), at β = 1/√d."""
    return energy(keys, states=queries, beta=keys.shape[-1] ** -0.5)


def leave_one_out_loss(queries: Tensor, *, keys: Tensor) -> Tensor:
    """−log p(q_i | k_j, j ≠ i) in nats, (..., N), of queries and keys (..., N, d), at β = 1/√d.

    A mixture of Gaussians of variance 1/β around the other keys, with weights softmax(½β‖k_j‖²).
    """
    sites, width = keys.shape[-2:]
    beta = width**-0.5
    own = torch.eye(sites, dtype=torch.bool)
    scores = beta * queries @ keys.mT
    weights = (0.5 * beta * keys.square().sum(-1)).unsqueeze(-2).expand_as(scores)
    score = torch.logsumexp(scores.masked_fill(own, -math.inf), -1)
    weight = torch.logsumexp(weights.masked_fill(own, -math.inf), -1)
    reach = 0.5 * beta * queries.square().sum(-1) - score
    return reach + (0.5 * width * math.log(2 * math.pi / beta) + weight)


@torch.no_grad()
def condition(weights: Weights, tokens: Tensor) -> tuple[float, float, float]:
    """Length of a key, cosine between an image's tokens after the last layer, −log p: means."""
    states, queries, keys = run(weights, tokens)
    unit = functional.normalize(states[-1], dim=-1)
    pairs = TOKENS * (TOKENS - 1)
    alike = ((unit @ unit.mT).sum((-1, -2)).mean() - TOKENS) / pairs
    density = leave_one_out_loss(queries, keys=keys).mean()
    return float(keys.norm(dim=-1).mean()), float(alike), float(density)


def signal_loss(
    weights: Weights,
    signal: str,
    *,
    tokens: Tensor,
    labels: Tensor,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """The loss of every copy (C,); `generators`, one a copy, draw the shuffled patches."""
    states, queries, keys = run(weights, tokens, local=signal.endswith("local"))
    if signal in ALONE:
        loss = head_energy if signal.startswith("raw") else leave_one_out_loss
        asked = queries.detach() if signal.endswith("held") else queries
        return loss(asked, keys=keys).mean((0, 2, 3, 4))
    if signal == "contrast":
        _, asked, held = run(weights, shuffled_patches(tokens, generators=generators))
        gap = head_energy(queries, keys=keys) - head_energy(asked, keys=held)
        return functional.softplus(LAYERS * HEADS * gap.mean((0, 3, 4))).mean(-1)
    scores = logits(weights, states[-1])
    return functional.cross_entropy(scores.mT, labels, reduction="none").mean(-1)


def shuffled_patches(tokens: Tensor, *, generators: Sequence[torch.Generator]) -> Tensor:
    """Tokens (C, B, N, pixels) whose images are exchanged at every place independently."""
    drawn = [torch.rand(tuple(tokens.shape[1:3]), generator=one) for one in generators]
    order = torch.stack(drawn).argsort(1)
    return torch.gather(tokens, 1, order.unsqueeze(-1).expand_as(tokens))


SPLIT = {"test": 599, "validation": 298, "train": 900}  # validation chooses rates and the like
BATCH = 32

# By part of the split: tokens (C, n, 16, 4) and labels (C, n).
Digits = dict[str, tuple[Tensor, Tensor]]


def split_digits(seeds: Sequence[int]) -> Digits:
    """The digits as 16 patches of 2 x 2 pixels, divided as SPLIT says anew for every seed.

    Mean and deviation of all that are not for the test are 0 and 1.
    """
    patches, digits = digit_patches(2, 2)
    orders = [torch.randperm(len(digits), generator=torch_generator(seed)) for seed in seeds]
    tokens = []
    for order in orders:
        known = patches[order[SPLIT["test"] :]]
        tokens.append((patches[order] - known.mean()) / known.std())
    both = (torch.stack(tokens), digits[torch.stack(orders)])
    parts = zip(*(values.split(list(SPLIT.values()), 1) for values in both), strict=True)
    return dict(zip(SPLIT, parts, strict=True))


def draw_batch(data: Digits, *, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """BATCH images and labels to train on for every copy, drawn by its own generator."""
    tokens, labels = data["train"]
    drawn = [torch.randint(SPLIT["train"], (BATCH,), generator=one) for one in generators]
    places = torch.arange(len(labels)).unsqueeze(-1), torch.stack(drawn)
    return tokens[places], labels[places]


def train_copies(
    signal: str,
    *,
    seeds: Sequence[int],
    rate: float,
    data: Digits,
    steps: int,
    keep: Collection[int] = (),
) -> dict[int, dict[str, Tensor]]:
    """Weights by the number of updates, those in `keep` and the last; a seed and split a copy."""
    # Batches come from another stream than the first weights.
    generators = [torch_generator(seed + 1_000_003) for seed in seeds]
    weights = initial_weights(seeds)

    def losses() -> Tensor:
        tokens, labels = draw_batch(data, generators=generators)
        return signal_loss(weights, signal, tokens=tokens, labels=labels, generators=generators)

    return train_replicas(weights, losses=losses, rate=rate, steps=steps, keep=keep)
