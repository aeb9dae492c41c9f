"""Table of settings of B13b: what driven spins are ahead, on three splits of a text, in recall.

value: bits per character, or share of right answers, by which driven spins lead the null; the
median of five trainings on a split with their range, of ten in recall with the second and ninth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c25b_learning_under_a_drive.study import PAIRS
from compendium.c25b_learning_under_a_drive.tables import (
    COUNTS,
    RECALL,
    SHUFFLED,
    SPLITS,
    TEXT,
    THIRD,
)
from compendium.common.rows import median_rows


def setting_rows(task: str, null: str, place: str) -> Rows:
    """`place`: "split 0" of the text, or the number of "updates 400" of recall."""
    kind, number = place.split()
    table = (TEXT if kind == "split" else RECALL).read()
    here = table["split" if kind == "split" else "update"] == int(number)

    def column(arm: str, name: str) -> np.ndarray:
        rows = here & (table["arm"] == arm)
        return np.asarray(table[name][rows][np.argsort(table["seed"][rows])])

    if task == "recall":
        other = 1 / PAIRS if null == "chance" else column(null, "accuracy")
        return median_rows(column("driven", "accuracy") - other)
    counts = COUNTS.read()
    known = {"counted pairs": "bigram", "counted letters": "unigram"}
    other = (
        counts[known[null]][counts["split"] == int(number)]
        if null in known
        else column(null, "bits")
    )
    return median_rows(other - column("driven", "bits"))


SETTINGS = Table(
    path=Path(__file__).with_name("settings_B13b.csv"),
    units=[
        *(
            {"task": "text", "null": null, "place": f"split {split}"}
            for null in ("counted letters", "counted pairs", "uniform")
            for split in (*SPLITS, THIRD)
        ),
        *(
            {"task": "recall", "null": null, "place": f"updates {update}"}
            for null in ("chance", "uniform", SHUFFLED)
            for update in (200, 300, 400)
        ),
    ],
    rows=setting_rows,
    seconds=0.1,
)
