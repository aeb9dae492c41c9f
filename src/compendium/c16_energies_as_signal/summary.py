"""What the stored tables say: differences in pairs, with Student's intervals over seeds."""

from __future__ import annotations

import numpy as np

from compendium.c16_energies_as_signal.readouts import LABELS, POOLINGS
from compendium.c16_energies_as_signal.scores import (
    AGAIN_TABLE,
    LONGER,
    LONGER_TABLE,
    SCORE_TABLE,
    STEPS,
)
from spinformer.core.statistics import mean_interval

COLUMNS = tuple(f"{pooling} {using}" for pooling in POOLINGS for using in LABELS)
BARS = ("random", "pca")


def accuracies(source: str, *, column: str, block: int = 0, updates: int = STEPS) -> np.ndarray:
    """Test accuracies of a source in one read-out, in percent, in the order of the seeds.

    Block 0 is the full comparison, blocks 1 and 2 its repetitions with ten other seeds each;
    after LONGER `updates` there are "supervised", "raw" and "density local".
    """
    again = AGAIN_TABLE if block else SCORE_TABLE
    table = (LONGER_TABLE if updates == LONGER else again).read()
    chosen = (table["source"] == source) & (table["block"] == block)
    found: np.ndarray = 100 * table[column][chosen]
    return found[np.argsort(table["seed"][chosen])]


def margin(source: str, *, column: str, block: int = 0, updates: int = STEPS) -> float:
    """Points by which `source` is surely above both random features and PCA (below 0: not).

    The smaller of the two lower ends of Student's intervals of differences in pairs: positive
    exactly if both intervals lie above 0.
    """
    mine = accuracies(source, column=column, block=block, updates=updates)
    bars = [accuracies(bar, column=column, block=block) for bar in BARS]
    return min(mean_interval(mine - bar)[0] for bar in bars)
