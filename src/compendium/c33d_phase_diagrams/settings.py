"""Tables of settings of C13 and C14: other contexts, laws of starts, pieces and cells.

The table `confirm_C14` was drawn after the region of its row had been written down.
"""

from collections import Counter

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c33d_phase_diagrams.study import agreement
from compendium.common.rows import numbered, parameter_product, share_rows
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.mean_field import START_LAWS, poclopez2024_context, random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.regimes import classify_regimes

_CONTEXTS = 256
# Pieces of the plane of β and ε about the published parameters: ends of both.
_PATCHES = {
    "near": ((1.22, 1.29), (0.0, 0.03)),
    "middle": ((1.2, 1.4), (0.0, 0.06)),
    "far": ((1.1, 1.7), (0.0, 0.12)),
}
_REGIMES = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)
_PUBLISHED = "published"


@stored(
    "settings_C13",
    numbered(
        parameter_product(beta=(1.27,), law=START_LAWS, wait=(40_000, 60_000, 80_000, 120_000)),
        first=0,
    ),
    seconds=0.5,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def settings_c13(data: int, beta: float, law: str, wait: int) -> Rows:
    """Share of 256 contexts on the second most common kind of attractor, minus 0.01.

    Kinds are told apart by regime and period, after `wait` steps.
    """
    network = Network.poclopez2024()
    starts = random_contexts(network, data, count=_CONTEXTS, law=law)
    reached = find_attractors(network, starts, beta=beta, transient=wait, bins=1, exponents=1)
    kinds = Counter(zip(reached.regime.tolist(), reached.period.tolist(), strict=True))
    ordered = kinds.most_common()
    second = ordered[1][1] if len(ordered) > 1 else 0
    return share_rows(second, trials=_CONTEXTS, bound=0.01)


def patch_scores(data: int, patch: str, law: str, cells: int) -> Rows:
    """Score minus one half of each regime in a piece of the plane, of cells × cells points.

    All cells begin at one context, which a law of starts draws, and drop 20,000 steps.
    """
    network = Network.poclopez2024()
    if law == _PUBLISHED:
        start = poclopez2024_context(network, steps=100_000, decimals=8)
    else:
        start = random_contexts(network, data, count=1, law=law).select(0)
    (low, high), (weak, strong) = _PATCHES[patch]
    betas = np.linspace(low, high, cells)
    epsilons = np.linspace(weak, strong, cells)
    reached = classify_regimes(
        network,
        start,
        beta=np.tile(betas, cells),
        epsilon=np.repeat(epsilons, cells),
        transient=20_000,
        kept=4000,
        exponent_steps=4000,
    )
    regime = reached.regime.reshape(cells, cells)
    scores = agreement(regime, blocks=5)
    rows = []
    for kind in _REGIMES:
        score = scores[kind]
        value = score.value - 0.5
        reach = 1.96 * score.error
        rows.append(
            {
                "regime": kind.label,
                "value": value,
                "low": value - reach,
                "high": value + reach,
                "runs": regime.size,
            }
        )
    return rows


settings_c14 = stored(
    "settings_C14",
    numbered(
        parameter_product(patch=_PATCHES, law=(_PUBLISHED, *START_LAWS), cells=(32, 64)), first=0
    ),
    seconds=1.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(patch_scores)

confirm_c14 = stored(
    "confirm_C14",
    numbered(
        parameter_product(patch=("near", "middle"), law=START_LAWS, cells=(40, 48, 56)), first=1000
    ),
    seconds=1.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(patch_scores)
