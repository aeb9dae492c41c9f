"""Shares of the regimes in ranges of β, and what many contexts settle on at six of them."""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import DIAGRAM_VALUES, DIAGRAMS
from spinformer.dmft.settling import perturbed_replicas

# Inverse temperatures of the six published portraits, and where contexts come from.
SIX = (1.255, 1.26451, 1.266, 1.27, 1.28, 1.4)
ORIGINS = ("random", "copies")


@stored(
    "shares",
    rows_of(
        diagram=["wide"] * 2 + ["zoom"] * 5,
        low=(0.0, 0.0, 1.24, 1.2405, 1.252, 1.268, 1.277),
        high=(3.0, 1.2, 1.28, 1.2425, 1.261, 1.272, 1.28),
    ),
    checked=3,
    seconds=9.0,
    within=dict.fromkeys((regime.label for regime in Regime), 0.02),
)
def shares_table(diagram: str, *, low: float, high: float, count: int = DIAGRAM_VALUES) -> Rows:
    """Share of each regime among the values of β in [low, high], of `count` in the diagram."""
    network = Network.poclopez2024()
    betas = np.linspace(*DIAGRAMS[diagram], count)
    chosen = betas[(betas >= low) & (betas <= high)]
    start = poclopez2024_context(network, steps=100_000, decimals=8)
    reached = find_attractors(network, start, beta=chosen, bins=1, exponents=1)
    shares = {regime.label: float(np.mean(reached.regime == regime)) for regime in Regime}
    return [{"values": len(chosen)} | shares]


@stored(
    "portraits",
    [*parameter_product(origin=ORIGINS[:1], beta=SIX), {"origin": ORIGINS[1], "beta": SIX[1]}],
    checked=4,
    seconds=0.5,
    within={"first": 0.05},
)
def portraits_table(origin: str, *, beta: float) -> Rows:
    """What 256 contexts settle on after 100,000 steps, one row each, the published one first."""
    network = Network.poclopez2024()
    start = poclopez2024_context(network, steps=100_000, decimals=8)
    pool = perturbed_replicas(start, count=256, seed=0)
    if origin == ORIGINS[0]:
        drawn = random_contexts(network, 0, count=255).attention
        pool = Context(np.concatenate([start.attention[None], drawn]), start.position)
    reached = find_attractors(network, pool, beta=beta, exponents=1, bins=1)
    rates = np.round(reached.exponents.value[:, 0], 6)
    return rows_of(regime=reached.regime, period=reached.period, first=rates)


# What the published captions call the motions, in ranges of β and at its six values.
_CYCLE = Regime.PERIODIC
_TORUS = Regime.QUASI_PERIODIC
_CHAOS = Regime.CHAOTIC
NAMED_RANGES = {
    (0.0, 1.2): _CYCLE,
    (1.2405, 1.2425): _CYCLE,
    (1.252, 1.261): _TORUS,
    (1.268, 1.272): _CYCLE,
    (1.277, 1.28): _CHAOS,
}
LABELS = dict(zip(SIX, (_TORUS, _TORUS, _CHAOS, _CYCLE, _CHAOS, _CHAOS), strict=True))
