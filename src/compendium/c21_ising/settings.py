"""Table of settings of B7: each bound of its criterion, in thirds of the chapter's other seeds.

value: what is left to the bound, over the bound; the median of eight runs of the chapter.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, read_columns, stored
from compendium.common.rows import median_rows

_FOLDER = Path(__file__).parent
BOUNDS = {"tap": 0.015, "third": 0.015, "adaptive": 0.05}
CLAUSES = ("naive", *BOUNDS, "edge")


@stored(
    _FOLDER / "settings_B7.csv",
    units=[
        {"clause": clause, "seeds": f"{first} to {first + 7}"}
        for clause in CLAUSES
        for first in (0, 8, 16)
    ],
    seconds=0.1,
)
def SETTINGS(clause: str, seeds: str) -> Rows:
    """The naive error over five times that of TAP, other errors and the edge under their bounds."""
    table = read_columns(_FOLDER / "cheap.csv")
    first = int(seeds.split(" ")[0])
    runs = slice(first, first + 8)
    if clause == "naive":
        left = table["B7.naive"] / (5.0 * table["B7.tap"]) - 1.0
    elif clause == "edge":
        left = 1.0 - abs(table["B7.edge"] - 0.5) / 0.05
    else:
        left = 1.0 - table[f"B7.{clause}"] / BOUNDS[clause]
    return median_rows(left[runs])
