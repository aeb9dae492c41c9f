"""Table of settings of A15: whether heads show each kind of fixed point, text by text.

value: the mean share over heads of the queries that end at a kind, less the share asked for.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.ends import ENDS
from compendium.common.rows import grid, mean_rows

KINDS = ("single", "metastable", "average")


@stored(
    Path(__file__).with_name("settings_A15.csv"),
    units=grid(
        loop=("keys", "readback"),
        source=dict.fromkeys(unit["source"] for unit in ENDS.units),
        asked=(0.02, 0.05),
    ),
    seconds=0.1,
)
def SETTINGS(loop: str, source: str, asked: float) -> Rows:
    """A row for each kind: heads iterated on one text, as memories of keys or in another loop."""
    table = ENDS.read()
    here = (table["loop"] == loop) & (table["source"] == source)
    return [{"kind": k} | row for k in KINDS for row in mean_rows(table[k][here] - asked)]
