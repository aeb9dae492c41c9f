"""Table of settings of C5: measured over predicted errors, motion by motion, from 1,000 bits on.

value: what the ratio may be off (a tenth for a single text, a quarter for the average) less what
it is off, with two errors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c32b_finite_size.study import LAWS
from compendium.common.rows import grid

ALLOWED = {"single": 0.1, "average": 0.25}


def setting_rows(text: str, regime: str, decade: int) -> Rows:
    """The law of a "single" text or of the "average" one, in a motion, at 10^`decade` bits."""
    table = LAWS.read()
    sizes = np.where(table["regime"] == regime, np.log10(table["bits"].astype(float)), np.inf)
    here = int(np.argmin(abs(sizes - decade)))
    off, wide = abs(table[text][here] - 1.0), 2.0 * table[f"{text}_error"][here]
    told = {"value": -off, "low": -off - wide, "high": -max(off - wide, 0.0)}
    return [{**{key: ALLOWED[text] + one for key, one in told.items()}, "runs": RUNS}]


# Texts of a size, as `law_rows` draws them.
RUNS = 2000
SETTINGS = Table(
    path=Path(__file__).with_name("settings_C5.csv"),
    units=grid(
        text=ALLOWED,
        regime=dict.fromkeys(unit["regime"] for unit in LAWS.units),
        decade=range(3, 10),
    ),
    rows=setting_rows,
    seconds=0.1,
)
