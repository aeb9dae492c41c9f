"""Shares of the regimes in ranges of β."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.common.phase_transitions import protocol_start
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.network import Network

DIAGRAMS = {"wide": (0.0, 3.0), "zoom": (1.24, 1.28)}
COUNT = 4001
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
    """Share of each regime among the values of β in [low, high], of `count` in the diagram.

    >>> row, = share_row("zoom", low=1.2405, high=1.2425, count=21)
    >>> row["values"], row["periodic"]
    (1, 1.0)
    """
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
