"""Families of random networks that chapters of Part III draw from."""

import itertools
from functools import cache

from compendium.common.gauge import canonical_code
from spinformer.dmft.network import Network


@cache
def draw_networks(
    *, family: int, features: int, segments: int, context: int, epsilon: float, count: int
) -> dict[int, Network]:
    """The first `count` networks of a family that are not of one gauge, by their seeds.

    γ is 220/√P, and a window holds every position once, T = 2^K.
    """
    representatives: dict[str, tuple[int, Network]] = {}
    seeds = itertools.count(100_000 * family)
    while len(representatives) < count:
        seed = next(seeds)
        network = Network.segmented(
            seed,
            features=features,
            segments=segments,
            bits=context.bit_length() - 1,
            context=context,
            gamma=220.0 / features**0.5,
            epsilon=epsilon,
        )
        representatives.setdefault(canonical_code(network), (seed, network))
    return dict(representatives.values())
