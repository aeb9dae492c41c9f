"""Shares of the regimes in ranges of β, and what many contexts settle on at six of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.common.phase_transitions import protocol_start
from compendium.common.windows import replicas
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network

DIAGRAMS = {"wide": (0.0, 3.0), "zoom": (1.24, 1.28)}
COUNT = 4001
# Inverse temperatures of the document's six portraits, and where contexts come from.
SIX = (1.255, 1.26451, 1.266, 1.27, 1.28, 1.4)
ORIGINS = ("random", "copies")
RANGES = (
    ("wide", 0.0, 3.0),
    ("wide", 0.0, 1.2),
    ("zoom", 1.24, 1.28),
    ("zoom", 1.2405, 1.2425),
    ("zoom", 1.252, 1.261),
    ("zoom", 1.268, 1.272),
    ("zoom", 1.277, 1.28),
)


def share_row(diagram: str, *, low: float, high: float, count: int = COUNT) -> Rows:
    """Share of each regime among the values of β in [low, high], of `count` in the diagram."""
    network = Network.document()
    betas = np.linspace(*DIAGRAMS[diagram], count)
    chosen = betas[(betas >= low) & (betas <= high)]
    start = protocol_start(network, steps=100_000)
    found = find_attractors(network, start, beta=chosen, bins=1, exponents=1)
    shares = {regime.label: float(np.mean(found.regime == regime)) for regime in Regime}
    return [{"values": len(chosen), **shares}]


SHARES = Table(
    path=Path(__file__).parent / "shares.csv",
    units=[{"diagram": diagram, "low": low, "high": high} for diagram, low, high in RANGES],
    rows=share_row,
)


def portrait_rows(origin: str, *, beta: float, count: int = 256) -> Rows:
    """What `count` contexts settle on after 100,000 steps, one row each, the document's first.

    origin: "random" contexts beside the document's own, or "copies" of it moved by 1e-10.
    """
    network = Network.document()
    start = protocol_start(network, steps=100_000)
    if origin == ORIGINS[0]:
        drawn = random_contexts(network, 0, count=count - 1).attention
        pool = Context(np.concatenate([start.attention[None], drawn]), start.position)
    else:
        pool = replicas(start, count=count, seed=0)
    found = find_attractors(network, pool, beta=beta, exponents=1, bins=1)
    return [
        {
            "regime": int(found.regime[n]),
            "period": int(found.period[n]),
            "first": float(round(found.exponents.value[n, 0], 6)),
        }
        for n in range(count)
    ]


PORTRAITS = Table(
    path=Path(__file__).parent / "portraits.csv",
    units=[
        *({"origin": ORIGINS[0], "beta": b} for b in SIX),
        {"origin": ORIGINS[1], "beta": SIX[1]},
    ],
    rows=portrait_rows,
    checked=4,
    seconds=2.0,
    within={"first": 0.05},
)
