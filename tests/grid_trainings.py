"""The accuracies of a grid of trainings, read from its table line by line."""

import numpy as np

from compendium.common.rows import groupby


def at_best(table, *, arm, strength, updates=200):
    """Accuracies after the trainings of a cell by split, at the rate of the least median loss."""
    cells = dict(groupby(table.read(), "arm", "strength", "updates", "seen"))
    rates = groupby(cells[arm, strength, updates, updates], "rate")
    best = min((rows for _, rows in rates), key=lambda rows: np.median(rows["held"]))
    return dict(zip(best["split"], best["accuracy"], strict=True))
