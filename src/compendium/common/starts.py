"""Random contexts by different laws: which attractor is reached may depend on how one draws."""

import numpy as np

from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network

# Components of the attention vectors: uniform in [−1, 1], as in `random_contexts`; uniform in
# [−0.05, 0.05], about what random bits of a large network give; normal, with the variance of the
# first law, cut at what weights of ±1 allow.
START_LAWS = ("uniform", "narrow", "normal")
_NARROW = 0.05


def draw_starts(network: Network, law: str, *, count: int, seed: Seed) -> Context:
    """Contexts (count,) at position 0 by one of `START_LAWS`."""
    rng = numpy_generator(seed)
    starts = random_contexts(network, rng, count=count)
    if law == "uniform":
        return starts
    if law == "narrow":
        return Context(_NARROW * starts.attention, starts.position)
    if law == "normal":
        drawn = rng.standard_normal(starts.attention.shape) / np.sqrt(3.0)
        return Context(np.clip(drawn, -1.0, 1.0), starts.position)
    raise ValueError(f"law must be one of {', '.join(START_LAWS)}, got {law!r}")
