"""What the heads of a layer assign to their queries: energies, and the densities they stand for.

A head with keys k_1 … k_N at inverse temperature β = 1/√d gives a query q the energy
E(q) = ½ q·q − β⁻¹ lse_j(β k_j·q), `spinformer.hopfield.continuous.energy` with the keys as
patterns, and with its exact partition function a density of queries [bal2020energy, Eq. (17)].
Where the queries come from the same N tokens as the keys, a query is told apart from its own key:
left out are the term j = i of the energy and that of the partition function.

Shapes: queries and keys (..., N, d), float torch tensors; any batch axes, here copies of a network,
images and heads. Everything is differentiable.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spinformer.hopfield.continuous import energy


def head_energy(queries: Tensor, *, keys: Tensor) -> Tensor:
    """E(q_i) among all keys, (..., N) [bal2020energy, Eq. (7)] at β = 1/√d."""
    return energy(keys, states=queries, beta=keys.shape[-1] ** -0.5)


def leave_one_out_loss(queries: Tensor, *, keys: Tensor) -> Tensor:
    """−log p(q_i | k_j, j ≠ i) in nats, (..., N), at β = 1/√d.

    = βE_{−i}(q_i) + log Z_{−i}, E and Z those of the other N − 1 keys [bal2020energy, Eq. (17)]:
    a mixture of Gaussians of variance 1/β around them, with weights softmax(½β‖k_j‖²). Never
    below −(d/2) log(β/2π), the height of one such Gaussian.
    """
    sites, width = keys.shape[-2:]
    beta = width**-0.5
    own = torch.eye(sites, dtype=torch.bool, device=keys.device)
    scores = (beta * queries @ keys.mT).masked_fill(own, -math.inf)
    weights = (0.5 * beta * keys.square().sum(-1)).unsqueeze(-2).expand_as(scores)
    log_partition = 0.5 * width * math.log(2 * math.pi / beta) + torch.logsumexp(
        weights.masked_fill(own, -math.inf), -1
    )
    reach = 0.5 * beta * queries.square().sum(-1) - torch.logsumexp(scores, -1)
    return reach + log_partition
