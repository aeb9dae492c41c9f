"""Families of random networks that chapters of Part III draw from."""

from __future__ import annotations

from functools import cache

from compendium.common.gauge import canonical_code
from spinformer.dmft.network import Network

# Seeds of one family.
_FAMILY = 100_000


@cache
def draw_networks(
    *, family: int, features: int, segments: int, context: int, epsilon: float, count: int
) -> dict[int, Network]:
    """The first `count` networks of a family that are not of one gauge, by their seeds.

    γ is 220/√P, and a window holds every position once, T = 2^K.
    """
    found: dict[int, Network] = {}
    codes: set[str] = set()
    seed = _FAMILY * family
    while len(found) < count:
        network = Network.segmented(
            seed,
            features=features,
            segments=segments,
            bits=context.bit_length() - 1,
            context=context,
            gamma=220.0 / features**0.5,
            epsilon=epsilon,
        )
        code = canonical_code(network)
        if code not in codes:
            found[seed] = network
            codes.add(code)
        seed += 1
    return found
