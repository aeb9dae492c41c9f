"""What the stored tables say: differences in pairs, with Student's intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spinformer.core.checks import check_choice
from spinformer.core.records import record
from spinformer.core.statistics import mean_interval
from spinformer.studies.energy_signals.readouts import LABELS, POOLINGS
from spinformer.studies.energy_signals.scores import MIXTURE_TABLE, SCORE_TABLE, SOURCES

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

    >>> bool((accuracies("pca", column="mean all") > 90).all())
    True
    """
    check_choice("source", source, SOURCES)
    check_choice("column", column, COLUMNS)
    table = SCORE_TABLE.read()
    chosen = (table["source"] == source) & (table["block"] == block)
    found: np.ndarray = 100 * table[column][chosen]
    return found[np.argsort(table["seed"][chosen])]


def above(source: str, *, bar: str, column: str, block: int = 0) -> Interval:
    """By how many points `source` beats `bar` (another source), pairs of the same seed.

    >>> above("pca", bar="random", column="mean few").low > 0
    True
    """
    return interval(
        accuracies(source, column=column, block=block) - accuracies(bar, column=column, block=block)
    )


def interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean of independent values and Student's interval for it.

    >>> found = interval([1.0, 2.0, 3.0])
    >>> found.mean, found.low < 1 < 3 < found.high
    (2.0, True)
    """
    low, high = mean_interval(np.asarray(values, dtype=float))
    return Interval(mean=float(np.mean(values)), low=low, high=high)


def margin(source: str, *, column: str, block: int = 0) -> float:
    """Points by which `source` is surely above both random features and PCA (below 0: not).

    The smaller of the two lower ends: positive exactly if both intervals lie above 0.

    >>> margin("random", column="mean all") <= 0
    True
    """
    return min(above(source, bar=bar, column=column, block=block).low for bar in BARS)


def mixture_gain(using: str) -> tuple[float, Interval]:
    """The strength that validation images prefer, and what it adds to labels alone on test images.

    Strengths above 0 only; in points of accuracy, pairs of the same seed, mean token.

    >>> strength, gain = mixture_gain("all")
    >>> strength > 0, gain.low <= gain.high
    (True, True)
    """
    check_choice("using", using, LABELS)
    table = MIXTURE_TABLE.read()
    mine = table["using"] == using
    strengths = np.unique(table["strength"][table["strength"] > 0])

    def column(strength: float, part: str) -> np.ndarray:
        chosen = mine & (table["strength"] == strength)
        found: np.ndarray = 100 * table[part][chosen]
        return found[np.argsort(table["seed"][chosen])]

    best = max(strengths, key=lambda strength: column(strength, "validation").mean())
    return float(best), interval(column(best, "test") - column(0.0, "test"))
