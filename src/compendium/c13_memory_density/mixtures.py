"""Densities and data beside the memory's own: what chapter 13 holds learning against."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.hopfield.continuous import attention_weights
from spinformer.hopfield.density import gibbs, sample


def free_mixture(means: Tensor, *, logits: Tensor, beta: float) -> MixtureSameFamily:
    """The library's mixture of Gaussians N(x_i, 1/β), rows of `means` (N, d), weights by `logits`.

    With logits ½β‖x_i‖² it is the density of the memory; other weights the memory cannot have.
    """
    noise = torch.full_like(means, beta**-0.5)
    return MixtureSameFamily(Categorical(logits=logits), Independent(Normal(means, noise), 1))


def attention_chain(
    patterns: Tensor, *, chains: int, sweeps: int, beta: float = 1.0, seed: TorchSeed = 0
) -> np.ndarray:
    """Attention to the first pattern along Gibbs chains of the memory, (chains, sweeps).

    Each chain starts from an exact sample, so that no sweep is lost to finding its way. For two
    patterns the autocorrelation after k sweeps is λ^k, λ from `pair_mixing`: each entry is the
    conditional mean of the hidden unit, on either side of the k sweeps between.
    """
    generator = torch_generator(seed)
    states = sample(patterns, count=chains, beta=beta, seed=generator)
    found = np.empty((chains, sweeps))
    for column in found.T:
        states = gibbs(patterns, states=states, steps=1, beta=beta, seed=generator)
        column[:] = attention_weights(patterns, states=states, beta=beta)[:, 0].numpy()
    return found


@record
class Clusters:
    """Two clusters of equal shares: means (2, 2), data (count, 2) to learn from and as many held
    out, and the loss of the true density on the latter, in nats per datum."""

    means: Tensor
    train: Tensor
    held_out: Tensor
    true_loss: float


def two_clusters(half: float, *, shift: float, count: int, seed: TorchSeed = 0) -> Clusters:
    """Unit Gaussians at shift ± half on the first axis, at β = 1; data alternate between them."""
    means = torch.tensor([[shift + half, 0.0], [shift - half, 0.0]], dtype=torch.float64)
    noise = torch.randn(2 * count, 2, dtype=torch.float64, generator=torch_generator(seed))
    data = means[torch.arange(2 * count) % 2] + noise
    truth = free_mixture(means, logits=torch.zeros(2), beta=1.0)
    return Clusters(
        means=means,
        train=data[:count],
        held_out=data[count:],
        true_loss=-float(truth.log_prob(data[count:]).mean()),
    )
