"""The table of settings of C9b: many contexts just before and just after the jump into chaos.

The table `confirm_C9b` was drawn after the region of its row had been written down.
"""

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.mean_field import START_LAWS, poclopez2024_context, random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.settling import perturbed_replicas

# The last value of β before the jump; copies of the published context are moved apart by 1e-10.
_BEFORE = 1.265
_CONTEXTS = 128
_PUBLISHED = "published"


def jump_of_chaos(data: int, law: str, beta: float, wait: int) -> Rows:
    """Share of contexts in chaos at `beta` minus that at 1.265, minus one half; 128 contexts."""
    network = Network.poclopez2024()
    if law == _PUBLISHED:
        start = poclopez2024_context(network, steps=100_000, decimals=8)
        starts = perturbed_replicas(start, count=_CONTEXTS, seed=data)
    else:
        starts = random_contexts(network, data, count=_CONTEXTS, law=law)
    chaotic = []
    for value in (_BEFORE, beta):
        reached = find_attractors(network, starts, beta=value, transient=wait, bins=1, exponents=1)
        chaotic.append((reached.regime == Regime.CHAOTIC).astype(float))
    return mean_rows(chaotic[1] - chaotic[0] - 0.5)


_CLOSE = {"value": 0.1, "low": 0.1, "high": 0.1}

settings_c9b = stored(
    "settings_C9b",
    numbered(
        parameter_product(
            law=(_PUBLISHED, *START_LAWS), beta=(1.2656, 1.266), wait=(20_000, 60_000)
        ),
        first=0,
    ),
    seconds=0.5,
    within=_CLOSE,
)(jump_of_chaos)

confirm_c9b = stored(
    "confirm_C9b",
    numbered(
        parameter_product(
            law=[law for law in (_PUBLISHED, *START_LAWS) if law != "narrow"],
            beta=(1.2657, 1.2659, 1.2661),
            wait=(30_000, 50_000),
        ),
        first=1000,
    ),
    seconds=0.5,
    within=_CLOSE,
)(jump_of_chaos)
