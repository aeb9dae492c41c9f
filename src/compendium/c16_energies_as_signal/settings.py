"""Table of settings of A17: what signals lack to beat random features and components of pixels.

value: how far a signal is behind the better of the two bars, in points of accuracy, with Student's
interval over ten splits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c16_energies_as_signal.signals import ALONE
from compendium.c16_energies_as_signal.summary import BARS, COLUMNS, accuracies
from compendium.common.rows import mean_rows

SPLITS = ("first ten", "other ten", "third ten")


def setting_rows(signal: str, updates: int, splits: str, readout: str) -> Rows:
    """One signal, read out in one way, over the first, another or a third ten splits."""
    block = SPLITS.index(splits)
    mine = accuracies(signal, column=readout, block=block, updates=updates)
    bars = [accuracies(bar, column=readout, block=block) - mine for bar in BARS]
    return mean_rows(max(bars, key=np.mean))


NEAREST = ("raw", "density local")
SETTINGS = Table(
    path=Path(__file__).with_name("settings_A17.csv"),
    units=[
        {"signal": signal, "updates": updates, "splits": splits, "readout": readout}
        for updates, splits, signals in (
            (150, "first ten", (*ALONE, "supervised")),
            (150, "other ten", NEAREST),
            (150, "third ten", NEAREST),
            *((600, splits, (*NEAREST, "supervised")) for splits in SPLITS),
        )
        for signal in signals
        for readout in COLUMNS
    ],
    rows=setting_rows,
    seconds=0.1,
)
