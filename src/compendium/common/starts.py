"""Random contexts by different laws: which attractor is reached may depend on how one draws."""

from spinformer.core.random import Seed
from spinformer.dmft.mean_field import START_LAWS as START_LAWS, random_contexts
from spinformer.dmft.network import Context, Network


def draw_starts(network: Network, law: str, *, count: int, seed: Seed) -> Context:
    """Contexts (count,) at position 0 by one of `START_LAWS`."""
    return random_contexts(network, seed, count=count, law=law)
