"""What the stored tables say: differences in pairs, with Student's intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compendium.c16_energies_as_signal.readouts import LABELS, POOLINGS
from compendium.c16_energies_as_signal.scores import (
    AGAIN_TABLE,
    LONGER_TABLE,
    SCORE_TABLE,
)
from spinformer.core.records import record
from spinformer.core.statistics import mean_interval

COLUMNS = tuple(f"{pooling} {using}" for pooling in POOLINGS for using in LABELS)
BARS = ("random", "pca")


@record
class Interval:
    """A mean over seeds and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def accuracies(source: str, *, column: str, block: int = 0) -> np.ndarray:
    """Test accuracies of a source in one read-out, in percent, in the order of the seeds.

    Block 0 is the full comparison, blocks 1 and 2 its repetitions with ten other seeds each.
    """
    table = (AGAIN_TABLE if block else SCORE_TABLE).read()
    chosen = (table["source"] == source) & (table["block"] == block)
    found: np.ndarray = 100 * table[column][chosen]
    return found[np.argsort(table["seed"][chosen])]


def above(source: str, *, bar: str, column: str, block: int = 0) -> Interval:
    """By how many points `source` beats `bar` (another source), pairs of the same seed."""
    return interval(
        accuracies(source, column=column, block=block) - accuracies(bar, column=column, block=block)
    )


def interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean of independent values and Student's interval for it."""
    low, high = mean_interval(np.asarray(values, dtype=float))
    return Interval(mean=float(np.mean(values)), low=low, high=high)


def longer_margin(source: str, *, column: str, block: int = 0) -> float:
    """The margin with four times as many updates: "supervised", "raw" or "density local"."""
    table = LONGER_TABLE.read()
    chosen = (table["source"] == source) & (table["block"] == block)
    mine = 100 * table[column][chosen][np.argsort(table["seed"][chosen])]
    bars = [accuracies(bar, column=column, block=block) for bar in BARS]
    return min(interval(mine - bar).low for bar in bars)


def margin(source: str, *, column: str, block: int = 0) -> float:
    """Points by which `source` is surely above both random features and PCA (below 0: not).

    The smaller of the two lower ends: positive exactly if both intervals lie above 0.
    """
    return min(above(source, bar=bar, column=column, block=block).low for bar in BARS)
