"""Table of settings of A9b: how few queries may end elsewhere, from which start, at which ratio.

value: the share that is allowed less the share of queries that end elsewhere than in attention.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
from compendium.c12_continuous_memory.hidden_neurons import ENDS


@stored(
    Path(__file__).with_name("settings_A9b.csv"),
    units=[
        {**unit, "allowed": allowed}
        for unit in ENDS.units
        if unit["start"] != "unit steps"
        for allowed in (0.1, 0.2)
    ],
    seconds=0.1,
)
def SETTINGS(start: str, ratio: float, allowed: float) -> Rows:
    """One start of the hidden neurons, one ratio of times, one share that is allowed."""
    table = ENDS.read()
    (here,) = ((table["start"] == start) & (table["ratio"] == ratio)).nonzero()[0]
    count, tried, low, high = (table[k][here] for k in ("count", "tried", "low", "high"))
    told = {"value": allowed - count / tried, "low": allowed - high, "high": allowed - low}
    return [{**told, "runs": int(tried)}]
