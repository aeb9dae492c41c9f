"""Table of settings of C5: measured over predicted errors, motion by motion, from 1,000 bits on.

value: what the ratio may be off (a tenth for a single text, a quarter for the average) less what
it is off, with two errors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c32b_finite_size.study import LAWS
from compendium.common.rows import grid, near_rows

ALLOWED = {"single": 0.1, "average": 0.25}
# Texts of a size, as `law_rows` draws them.
RUNS = 2000


@stored(
    Path(__file__).with_name("settings_C5.csv"),
    units=grid(
        text=ALLOWED,
        regime=dict.fromkeys(unit["regime"] for unit in LAWS.units),
        decade=range(3, 10),
    ),
    seconds=0.1,
)
def SETTINGS(text: str, regime: str, decade: int) -> Rows:
    """The law of a "single" text or of the "average" one, in a motion, at 10^`decade` bits."""
    table = LAWS.read()
    sizes = np.where(table["regime"] == regime, np.log10(table["bits"].astype(float)), np.inf)
    here = int(np.argmin(abs(sizes - decade)))
    ratio, wide = table[text][here], 2.0 * table[f"{text}_error"][here]
    found = (ratio, ratio - wide, ratio + wide)
    return near_rows(found, aim=1.0, within=ALLOWED[text], runs=RUNS)
