"""Shares of the regimes in ranges of β, and families of attractors followed in β."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c33_phase_transitions.continued import Continuation, continue_attractors
from compendium.common.phase_transitions import protocol_start
from spinformer.core.records import record
from spinformer.dmft.attractors import Attractors, Regime, find_attractors
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


@record
class Families:
    """Attractors of different periods at β = `middle`, followed up and down from there.

    periods: what each family has at `middle`. up, down: from `middle` outwards. back_down,
    back_up: from the ends of these back to `middle`.
    """

    periods: list[int]
    up: Continuation
    down: Continuation
    back_down: Continuation
    back_up: Continuation

    @property
    def betas(self) -> np.ndarray:
        """All values of β visited outwards, ascending."""
        return np.concatenate([self.down.betas[::-1], self.up.betas[1:]])

    def period(self, family: int) -> np.ndarray:
        """Period of one family at `betas`, 0 where there is none."""
        return np.concatenate([self.down.period[::-1, family], self.up.period[1:, family]])

    def exponent(self, family: int) -> np.ndarray:
        """Leading exponent of one family at `betas`."""
        up, down = self.up.exponent.value, self.down.exponent.value
        return np.concatenate([down[::-1, family], up[1:, family]])


def follow_families(
    network: Network, found: Attractors, *, low: float, middle: float, high: float, count: int
) -> Families:  # fmt: skip
    """Follow one attractor of each period in `found`, a batch (B,) at β = `middle`.

    Each leg has `count` values of β, from `middle` to `low` or `high`; each starts where the one
    before ended (`continue_attractors`).
    """
    periods, first = np.unique(found.period, return_index=True)
    start = found.context.select(first)
    above, below = np.linspace(middle, high, count), np.linspace(middle, low, count)
    up = continue_attractors(network, start, above)
    down = continue_attractors(network, start, below)
    return Families(
        periods=periods.tolist(),
        up=up,
        down=down,
        back_down=continue_attractors(network, up.context, above[::-1]),
        back_up=continue_attractors(network, down.context, below[::-1]),
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
