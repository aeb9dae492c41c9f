"""What the tables say: predictors and how they are judged, on networks as the unit."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

Columns = dict[str, np.ndarray]


def select(table: Columns, **values: float) -> Columns:
    """The rows of a table whose columns have these values.

    >>> select({"x": np.array([1, 2, 1]), "y": np.array([3, 4, 5])}, x=1)["y"]
    array([3, 5])
    """
    keep = np.ones(len(next(iter(table.values()))), dtype=bool)
    for name, value in values.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


def entropy_of_labels(table: Columns) -> np.ndarray:
    """Entropy in bits of each network's labels over even β and contexts, (n,).

    Labels: driven cycle, other cycles, quasi-periodic, chaotic, transient chaos, undecided.

    >>> kinds = ("driven", "periodic", "quasi", "chaotic", "transient", "undecided")
    >>> entropy_of_labels({kind: np.array([float(kind in kinds[:2]) / 2]) for kind in kinds})
    array([1.])
    """
    kinds = ("driven", "periodic", "quasi", "chaotic", "transient", "undecided")
    shares = np.stack([table[kind] for kind in kinds])
    logs = np.log2(shares, where=shares > 0, out=np.zeros_like(shares))
    return np.asarray(-(shares * logs).sum(axis=0) + 0.0)


def scores(table: Columns) -> dict[str, np.ndarray]:
    """The predictors of chaos of each network, (n,), larger where chaos is expected.

    "onset": β_top/β_c. "rotation": 1 where the eigenvalue that turns unstable first is complex.
    "both": their product, the predictor named beforehand. "segments": L, a trivial one.

    >>> columns = {"segments": [3, 3], "features": [3, 3], "predicted": [1.5, 6], "angle": [0.3, 1]}
    >>> scores({name: np.array(column) for name, column in columns.items()})["both"]
    array([2., 0.])
    """
    top = 3.0 * np.sqrt(table["segments"] / table["features"])
    reach = top / table["predicted"]
    turns = (table["angle"] > 1e-9) & (table["angle"] < 1.0 - 1e-9)
    return {
        "both": reach * turns,
        "onset": reach,
        "rotation": turns.astype(float),
        "segments": table["segments"].astype(float),
    }


def area_under_curve(score: np.ndarray, *, label: np.ndarray) -> float:
    """Chance that a network with the label scores higher than one without, ties as one half.

    NaN where all have the label, or none.

    >>> area_under_curve(np.array([0.0, 1.0, 1.0]), label=np.array([False, True, False]))
    0.75
    """
    score = check_array("score", score, ndim=1)
    label = np.asarray(label, dtype=bool)
    return float(_areas(rankdata(score), labels=label))


def _areas(ranks: np.ndarray, *, labels: np.ndarray) -> np.ndarray:
    """Areas from ranks and labels, each (..., n); NaN as above."""
    positive = labels.sum(axis=-1)
    excess = (ranks * labels).sum(axis=-1) - positive * (positive + 1) / 2.0
    # Without one of the two kinds both are zero.
    with np.errstate(invalid="ignore"):
        return np.asarray(excess / (positive * (labels.shape[-1] - positive)))


def area_interval(
    score: np.ndarray, *, label: np.ndarray, draws: int = 2000, seed: Seed = 0
) -> tuple[float, float]:
    """95 % bootstrap interval of the area under the curve, networks drawn with replacement.

    >>> low, high = area_interval(np.arange(40.0), label=np.arange(40) > 20, draws=100)
    >>> low == high == 1.0
    True
    """
    rng = numpy_generator(seed)
    draws = check_integer("draws", draws, low=10)
    label = np.asarray(label, dtype=bool)
    picks = rng.integers(len(label), size=(draws, len(label)))
    areas = _areas(rankdata(score[picks], axis=1), labels=label[picks])
    low, high = np.nanpercentile(areas, [2.5, 97.5])
    return float(low), float(high)


@record
class Judged:
    """A predictor on networks held out: threshold set on the others, confusion matrix, area.

    confusion: (2, 2) counts, rows the truth (without, with the label), columns the prediction.
    area: under the curve, with the ends low and high of its bootstrap interval.
    permuted: (2.5, 97.5) percentiles of the area with labels permuted.
    """

    threshold: float
    confusion: np.ndarray
    area: float
    low: float
    high: float
    permuted: tuple[float, float]


def judge(score: np.ndarray, *, label: np.ndarray, draws: int = 2000, seed: Seed = 0) -> Judged:
    """Threshold on the networks of even number, judgment on those of odd number.

    The threshold is the value of the score that maximizes the sum of the two rates of success.

    >>> found = judge(np.arange(40.0), label=np.arange(40) >= 20, draws=100)
    >>> found.threshold, found.confusion.tolist()
    (20.0, [[10, 0], [0, 10]])
    """
    label = np.asarray(label, dtype=bool)
    train, test = slice(0, None, 2), slice(1, None, 2)
    rng = numpy_generator(seed)
    options = np.unique(score[train])
    gains = [
        (score[train][label[train]] >= option).mean()
        + (score[train][~label[train]] < option).mean()
        for option in options
    ]
    threshold = float(options[int(np.argmax(gains))])
    called = score[test] >= threshold
    confusion = np.array(
        [[int(((label[test] == truth) & (called == call)).sum()) for call in (False, True)]
         for truth in (False, True)]
    )  # fmt: skip
    low, high = area_interval(score[test], label=label[test], draws=draws, seed=rng)
    shuffled = np.stack([rng.permutation(label[test]) for _ in range(draws)])
    null = _areas(rankdata(score[test]), labels=shuffled)
    return Judged(
        threshold=threshold,
        confusion=confusion,
        area=area_under_curve(score[test], label=label[test]),
        low=low,
        high=high,
        permuted=(float(np.percentile(null, 2.5)), float(np.percentile(null, 97.5))),
    )
