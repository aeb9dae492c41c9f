"""What a network may be trained on: its labels, its own energies, a comparison.

A head with keys k_1 … k_N at inverse temperature β = 1/√d gives a query q the energy
E(q) = ½ q·q − β⁻¹ lse_j(β k_j·q), and with its exact partition function a density of queries
[bal2020energy, Eqs. (7) and (17)]. Where the queries come from the same N tokens as the keys, a
query is told apart from its own key: left out are the term j = i of the energy and that of the
partition function. Signals, all a loss per copy, averaged over images, tokens, heads and layers
unless said otherwise:

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

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.c16_energies_as_signal.network import HEADS, LAYERS, Pass, Weights, logits, run
from spinformer.hopfield.continuous import energy

ALONE = ("raw", "raw local", "density", "density local", "density held")
SIGNALS = ("supervised", *ALONE, "contrast")


def head_energy(queries: Tensor, *, keys: Tensor) -> Tensor:
    """E(q_i) among all keys, (..., N), of queries and keys (..., N, d), at β = 1/√d."""
    return energy(keys, states=queries, beta=keys.shape[-1] ** -0.5)


def leave_one_out_loss(queries: Tensor, *, keys: Tensor) -> Tensor:
    """−log p(q_i | k_j, j ≠ i) in nats, (..., N), of queries and keys (..., N, d), at β = 1/√d.

    A mixture of Gaussians of variance 1/β around the other keys, with weights softmax(½β‖k_j‖²).
    Never below −(d/2) log(β/2π), the height of one such Gaussian.
    """
    sites, width = keys.shape[-2:]
    beta = width**-0.5
    own = torch.eye(sites, dtype=torch.bool)
    scores = beta * queries @ keys.mT
    weights = (0.5 * beta * keys.square().sum(-1)).unsqueeze(-2).expand_as(scores)
    score, weight = (torch.logsumexp(x.masked_fill(own, -math.inf), -1) for x in (scores, weights))
    reach = 0.5 * beta * queries.square().sum(-1) - score
    return reach + (0.5 * width * math.log(2 * math.pi / beta) + weight)


def mean_energy(found: Pass, *, kind: str = "raw", held: bool = False) -> Tensor:
    """The mean over layers, heads and tokens of one energy, for every copy and image: (C, B).

    kind: "raw", the energy E, or "density", the leave-one-out −log p. `held`: no gradient through
    the queries.
    """
    loss = head_energy if kind == "raw" else leave_one_out_loss
    layers = [
        loss(queries.detach() if held else queries, keys=keys).mean((-1, -2))
        for queries, keys in zip(found.queries, found.keys, strict=True)
    ]
    return torch.stack(layers).mean(0)


def signal_loss(
    weights: Weights,
    signal: str,
    *,
    tokens: Tensor,
    labels: Tensor,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """The loss of every copy (C,) on its batch: tokens (C, B, N, pixels), labels (C, B).

    `generators`, one a copy, draw the shuffled patches.
    """
    found = run(weights, tokens, local=signal.endswith("local"))
    if signal in ALONE:
        kind = signal.split()[0]
        return mean_energy(found, kind=kind, held=signal.endswith("held")).mean(-1)
    if signal == "contrast":
        other = run(weights, shuffled_patches(tokens, generators=generators))
        gap = mean_energy(found) - mean_energy(other)
        return functional.softplus(LAYERS * HEADS * gap).mean(-1)
    scores = logits(weights, found.states[-1])
    return functional.cross_entropy(scores.mT, labels, reduction="none").mean(-1)


def shuffled_patches(tokens: Tensor, *, generators: Sequence[torch.Generator]) -> Tensor:
    """Tokens (C, B, N, pixels) whose images are exchanged at every place independently."""
    drawn = [torch.rand(tuple(tokens.shape[1:3]), generator=one) for one in generators]
    order = torch.stack(drawn).argsort(1)
    return torch.gather(tokens, 1, order.unsqueeze(-1).expand_as(tokens))
