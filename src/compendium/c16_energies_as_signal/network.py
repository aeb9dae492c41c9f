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

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.common.copies import draw_copies, times_copies
from spinformer.core.random import torch_generator
from spinformer.core.records import record

TOKENS, PIXELS, WIDTH, HEADS, LAYERS, INNER, CLASSES = 16, 4, 24, 4, 4, 48, 10
HEAD_WIDTH = WIDTH // HEADS
Weights = Mapping[str, Tensor]


@record
class Pass:
    """What a forward pass computed, layer by layer.

    `states` holds L + 1 tensors (C, B, N, D), the first before the first layer; `queries` and
    `keys` L tensors (C, B, H, N, d).
    """

    states: list[Tensor]
    queries: list[Tensor]
    keys: list[Tensor]


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
    return weights | {"position": draw_copies(TOKENS, WIDTH, generators=generators)}


def draw_maps(
    sizes: Mapping[str, tuple[int, int]],
    *,
    biased: Iterable[str],
    generators: Sequence[torch.Generator],
) -> dict[str, Tensor]:
    """Matrices (C, rows, columns), N(0, 1/rows), by name, and "NAME bias" of zeros for some."""
    weights = {
        name: draw_copies(*size, generators=generators) / size[0] ** 0.5
        for name, size in sizes.items()
    }
    return weights | {f"{name} bias": torch.zeros_like(weights[name][:, :1]) for name in biased}


def affine(weights: Weights, name: str, states: Tensor) -> Tensor:
    """States (C, B, N, D) through the matrix and bias of that name."""
    return times_copies(states, weights[name]) + weights[f"{name} bias"].unsqueeze(1)


def run(weights: Weights, tokens: Tensor, *, local: bool = False) -> Pass:
    """All layers on tokens (C, B, N, pixels), every copy on its own.

    `local`: no gradient passes from a layer to the one before, so that a loss of a layer's queries
    and keys reaches the weights of that layer alone.
    """
    embedded = times_copies(tokens, weights["embedding"])
    state = _normalized(embedded + weights["position"].unsqueeze(1))
    found = Pass(states=[state], queries=[], keys=[])
    for layer in range(LAYERS):
        if local:
            state = state.detach()
        queries, keys, values = (
            times_copies(state, weights[f"{layer}.{name}"])
            .unflatten(-1, (HEADS, HEAD_WIDTH))
            .transpose(-2, -3)
            for name in ("query", "key", "value")
        )
        # Written out: the framework's kernel takes twice as long for heads this small.
        weight = torch.softmax(HEAD_WIDTH**-0.5 * queries @ keys.mT, dim=-1)
        heads = (weight @ values).transpose(-2, -3).flatten(-2)
        state = _normalized(state + times_copies(heads, weights[f"{layer}.output"]))
        inner = functional.gelu(affine(weights, f"{layer}.up", state))
        state = _normalized(state + affine(weights, f"{layer}.down", inner))
        found.states.append(state)
        found.queries.append(queries)
        found.keys.append(keys)
    return found


def logits(weights: Weights, states: Tensor) -> Tensor:
    """The readout (C, B, classes) of the mean over the tokens of states (C, B, N, D)."""
    return affine(weights, "readout", states.mean(-2, keepdim=True)).squeeze(-2)


def _normalized(states: Tensor) -> Tensor:
    return functional.layer_norm(states, states.shape[-1:])
