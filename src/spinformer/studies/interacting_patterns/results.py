"""The tables of this study and what the chapter reads from them: means, paired intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spinformer.studies.interacting_patterns import chains, completion, faces, readers
from spinformer.studies.tables import Rows, Table

SEEDS = 10
LINKS = (1, 2, 4)
RATES = (0.1, 0.3)


def recall_rows(seed: int) -> Rows:
    """One seed of the table `recall`: a row for each arm.

    >>> [row["arm"] for row in recall_rows(0)][:2]
    ['attention', 'interacting']
    """
    return [{"arm": arm, **found} for arm, found in faces.recall(seed).items()]


def completion_rows(data: str, seed: int) -> Rows:
    """One seed of the table `completion`: a row for each method.

    >>> len(completion_rows("faces", seed=0))
    8
    """
    found = completion.completion(seed, data=data)
    return [{"method": method, "error": error} for method, error in found.items()]


def hops_rows(arm: str, links: int, rate: float) -> Rows:
    """One arm, chain and rate of the table `hops`, all seeds trained at once: a row for each."""
    tuning, test = readers.train_readers(arm, links=links, seeds=range(SEEDS), rate=rate)
    return [
        {"seed": seed, "validation": float(tuning[seed]), "test": float(test[seed])}
        for seed in range(SEEDS)
    ]


HERE = Path(__file__).parent
RECALL = Table(path=HERE / "recall.csv", units=[{"seed": s} for s in range(SEEDS)], rows=recall_rows)
COMPLETION = Table(
    path=HERE / "completion.csv",
    units=[{"data": d, "seed": s} for d in ("digits", "faces") for s in range(SEEDS)],
    rows=completion_rows,
)
HOPS = Table(
    path=HERE / "hops.csv",
    units=[
        {"arm": arm, "links": links, "rate": rate}
        for arm in readers.ARMS
        for links in LINKS
        for rate in RATES
    ],
    rows=hops_rows,
)
