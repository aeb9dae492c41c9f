"""Random patterns and states, and the memory as a mixture built by torch.distributions."""

import math

import numpy as np
import torch
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

# Seed, patterns, their width, and the inverse temperature.
SETTINGS = st.tuples(
    st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.floats(0.3, 4.0)
)


def draw(*shape, seed=0, scale=1.0):
    """Normal numbers of NumPy's stream."""
    return scale * torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def normal(seed, *shape):
    """Normal numbers of torch's stream."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mixture(patterns, beta):
    """Equal Gaussians at the patterns, their weights from the norms."""
    logits = 0.5 * beta * patterns.square().sum(1)
    noise = torch.full_like(patterns, 1 / math.sqrt(beta))
    return MixtureSameFamily(Categorical(logits=logits), Independent(Normal(patterns, noise), 1))
