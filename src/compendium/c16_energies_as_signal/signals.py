"""What a network may be trained on: its labels, its own energies, a comparison.

Names and meanings, all as a loss per copy, averaged over images, tokens, heads and layers unless
said otherwise:

* "supervised": cross-entropy of the readout;
* "raw": the energies E of all heads; "raw local": the same, each layer's for that layer alone;
* "density": −log p(query | the other keys); "density local": for each layer alone; "density held":
  with queries that the loss does not move, the likelihood of data that do not follow the model;
* "contrast": softplus(ΣE(image) − ΣE(shuffled)), ΣE over layers and heads, and a shuffled image has
  each patch from another image at the same place: marginals are kept, what patches say about each
  other is lost.

"raw" and "density", with their variants, are energies alone: nothing enters them but E and its
exact normalization.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.c16_energies_as_signal.energies import head_energy, leave_one_out_loss
from compendium.c16_energies_as_signal.network import Pass, Shape, Weights, logits, run

ALONE = ("raw", "raw local", "density", "density local", "density held")
SIGNALS = ("supervised", *ALONE, "contrast")


def mean_energy(found: Pass, *, kind: str = "raw", held: bool = False) -> Tensor:
    """The mean over layers, heads and tokens of one energy, for every copy and image: (C, B).

    kind: "raw", the energy E, or "density", the leave-one-out −log p. `held`: no gradient through
    the queries.
    """
    energy = head_energy if kind == "raw" else leave_one_out_loss
    layers = [
        energy(queries.detach() if held else queries, keys=keys).mean((-1, -2))
        for queries, keys in zip(found.queries, found.keys, strict=True)
    ]
    return torch.stack(layers).mean(0)


def signal_loss(
    weights: Weights,
    shape: Shape,
    *,
    signal: str,
    tokens: Tensor,
    labels: Tensor,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """The loss of every copy (C,) on its batch: tokens (C, B, N, pixels), labels (C, B).

    `generators`, one a copy, draw the shuffled patches.
    """
    found = run(weights, shape, tokens=tokens, local=signal.endswith("local"))
    if signal in ALONE:
        kind = signal.split()[0]
        return mean_energy(found, kind=kind, held=signal.endswith("held")).mean(-1)
    if signal == "contrast":
        other = run(weights, shape, tokens=shuffled_patches(tokens, generators=generators))
        gap = mean_energy(found) - mean_energy(other)
        return functional.softplus(shape.layers * shape.heads * gap).mean(-1)
    scores = logits(weights, found.states[-1])
    return functional.cross_entropy(scores.mT, labels, reduction="none").mean(-1)


def shuffled_patches(tokens: Tensor, *, generators: Sequence[torch.Generator]) -> Tensor:
    """Tokens (C, B, N, pixels) whose images are exchanged at every place independently."""
    drawn = [torch.rand(tuple(tokens.shape[1:3]), generator=one) for one in generators]
    order = torch.stack(drawn).argsort(1)
    return torch.gather(tokens, 1, order.unsqueeze(-1).expand_as(tokens))
