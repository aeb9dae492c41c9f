"""Table of settings of C16: how often a network shows all three regimes, counted in other ways.

value: the share of networks less the share asked for, with Wilson's interval.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
from compendium.c33e_census.study import DOCUMENT_SIZE, select
from compendium.common.rows import share_rows


@stored(
    Path(__file__).with_name("settings_C16.csv"),
    units=[
        {"family": family, "chaotic": chaotic, "quasi": quasi, "asked": asked}
        for asked in (0.05, 0.5)
        for family in (0, 1)
        for chaotic in (1, 2, 4)
        for quasi in (1, 2, 4)
    ],
    seconds=0.5,
)
def SETTINGS(family: int, chaotic: int, quasi: int, asked: float) -> Rows:
    """At least so many of the 64 values of β must be `chaotic`, and so many `quasi`-periodic."""
    table = select(DOCUMENT_SIZE.read(), family=family, epsilon=0.02)
    shows = (table["seen_chaos"] >= chaotic) & (table["seen_quasi"] >= quasi)
    return share_rows(int(shows.sum()), trials=len(shows), bound=asked)
