"""A small transformer of vanilla form, many copies of it side by side.

Tokens are embedded, get learned positions and a LayerNorm; a layer is attention, residual,
LayerNorm, a feed-forward network with GELU units, residual, LayerNorm, as in
[vaswani2017attention]. The LayerNorms have no gains and shifts, so that every state has the
norm √D: what the energies do to the states is then done by the weights alone.

All weights carry a first axis, C copies that know nothing of each other (seeds, learning rates):
one batched product serves them all. Shapes: tokens (C, B, N, pixels), states (C, B, N, D), queries
and keys (C, B, H, N, d) with d = D/H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.common.copies import draw_copies, times_copies
from spinformer.core.random import torch_generator
from spinformer.core.records import record

Weights = Mapping[str, Tensor]


@record
class Shape:
    """Sizes of the network."""

    tokens: int = 16
    pixels: int = 4
    width: int = 24
    heads: int = 4
    layers: int = 4
    inner: int = 48
    classes: int = 10

    @property
    def head_width(self) -> int:
        """Components d of a head's queries and keys."""
        return self.width // self.heads


@record
class Pass:
    """What a forward pass computed, layer by layer.

    `states` holds L + 1 tensors (C, B, N, D), the first before the first layer; `queries` and
    `keys` L tensors (C, B, H, N, d).
    """

    states: list[Tensor]
    queries: list[Tensor]
    keys: list[Tensor]


def initial_weights(shape: Shape, *, seeds: Sequence[int]) -> dict[str, Tensor]:
    """Fresh weights, a copy a seed, float32: matrices N(0, 1/rows), biases 0, positions N(0, 1)."""
    sizes: dict[str, tuple[int, int]] = {"embedding": (shape.pixels, shape.width)}
    for layer in range(shape.layers):
        for name in ("query", "key", "value", "output"):
            sizes[f"{layer}.{name}"] = (shape.width, shape.width)
        sizes[f"{layer}.up"] = (shape.width, shape.inner)
        sizes[f"{layer}.down"] = (shape.inner, shape.width)
    sizes["readout"] = (shape.width, shape.classes)
    generators = [torch_generator(seed) for seed in seeds]
    weights = {
        name: draw_copies(rows, columns, generators=generators) / rows**0.5
        for name, (rows, columns) in sizes.items()
    }
    weights["position"] = draw_copies(shape.tokens, shape.width, generators=generators)
    for layer in range(shape.layers):
        weights[f"{layer}.up bias"] = torch.zeros(len(seeds), 1, shape.inner)
        weights[f"{layer}.down bias"] = torch.zeros(len(seeds), 1, shape.width)
    weights["readout bias"] = torch.zeros(len(seeds), 1, shape.classes)
    return weights


def run(weights: Weights, shape: Shape, *, tokens: Tensor, local: bool = False) -> Pass:
    """All layers on tokens (C, B, N, pixels), every copy on its own.

    `local`: no gradient passes from a layer to the one before, so that a loss of a layer's queries
    and keys reaches the weights of that layer alone.
    """
    embedded = times_copies(tokens, weights["embedding"])
    state = _normalized(embedded + weights["position"].unsqueeze(1))
    states, all_queries, all_keys = [state], [], []
    for layer in range(shape.layers):
        if local:
            state = state.detach()
        queries, keys, values = (
            times_copies(state, weights[f"{layer}.{name}"])
            .unflatten(-1, (shape.heads, shape.head_width))
            .transpose(-2, -3)
            for name in ("query", "key", "value")
        )
        # Written out: the framework's kernel takes twice as long for heads this small.
        weight = torch.softmax(shape.head_width**-0.5 * queries @ keys.mT, dim=-1)
        heads = (weight @ values).transpose(-2, -3).flatten(-2)
        state = _normalized(state + times_copies(heads, weights[f"{layer}.output"]))
        inner = functional.gelu(
            times_copies(state, weights[f"{layer}.up"]) + weights[f"{layer}.up bias"].unsqueeze(1)
        )
        down = times_copies(inner, weights[f"{layer}.down"]) + weights[
            f"{layer}.down bias"
        ].unsqueeze(1)
        state = _normalized(state + down)
        states.append(state)
        all_queries.append(queries)
        all_keys.append(keys)
    return Pass(states=states, queries=all_queries, keys=all_keys)


def logits(weights: Weights, states: Tensor) -> Tensor:
    """The readout (C, B, classes) of the mean over the tokens of states (C, B, N, D)."""
    return states.mean(-2) @ weights["readout"] + weights["readout bias"]


def _normalized(states: Tensor) -> Tensor:
    return functional.layer_norm(states, states.shape[-1:])
