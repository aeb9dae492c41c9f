"""Table of settings of B7: each bound of its criterion, in thirds of the chapter's other seeds.

value: what is left to the bound, over the bound; the median of eight runs of the chapter and the
two that hold it with 93 %.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table, read_columns

_FOLDER = Path(__file__).parent
BOUNDS = {"tap": 0.015, "third": 0.015, "adaptive": 0.05}
CLAUSES = ("naive", *BOUNDS, "edge")


def setting_rows(clause: str, seeds: str) -> Rows:
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
    ordered = np.sort(left[runs])
    told = {"value": np.median(ordered), "low": ordered[1], "high": ordered[-2]}
    return [{**told, "runs": len(ordered)}]


SETTINGS = Table(
    path=_FOLDER / "settings_B7.csv",
    units=[
        {"clause": clause, "seeds": f"{first} to {first + 7}"}
        for clause in CLAUSES
        for first in (0, 8, 16)
    ],
    rows=setting_rows,
    seconds=0.1,
)
