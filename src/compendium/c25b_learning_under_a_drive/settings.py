"""Table of settings of B13b: what driven spins are ahead, on three splits of a text, in recall.

value: bits per character, or share of right answers, by which driven spins lead the null; the
median of five trainings on a split with their range, of ten in recall with the second and ninth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c25b_learning_under_a_drive.study import PAIRS
from compendium.c25b_learning_under_a_drive.tables import (
    COUNTS,
    RECALL,
    SHUFFLED,
    SPLITS,
    TEXT,
    THIRD,
)
from compendium.common.rows import array_of, grid, median_rows


@stored(
    Path(__file__).with_name("settings_B13b.csv"),
    units=[
        *grid(
            task=("text",),
            null=("counted letters", "counted pairs", "uniform"),
            place=[f"split {split}" for split in (*SPLITS, THIRD)],
        ),
        *grid(
            task=("recall",),
            null=("chance", "uniform", SHUFFLED),
            place=[f"updates {update}" for update in (200, 300, 400)],
        ),
    ],
    seconds=0.1,
)
def SETTINGS(task: str, null: str, place: str) -> Rows:
    """`place`: "split 0" of the text, or the number of "updates 400" of recall."""
    kind, number = place.split()
    table = (TEXT if kind == "split" else RECALL).read()
    here = {"split" if kind == "split" else "update": int(number)}

    def column(arm: str, name: str) -> np.ndarray:
        return array_of(table, name, "seed", arm=arm, **here)

    if task == "recall":
        other = 1 / PAIRS if null == "chance" else column(null, "accuracy")
        return median_rows(column("driven", "accuracy") - other)
    counts, known = COUNTS.read(), {"counted pairs": "bigram", "counted letters": "unigram"}
    if null in known:
        other = counts[known[null]][counts["split"] == int(number)]
    else:
        other = column(null, "bits")
    return median_rows(other - column("driven", "bits"))
