"""Stored results, read as one number a training, and as differences in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compendium.common.rows import Columns, array_of
from spinformer.core.statistics import mean_interval


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it.
    """
    found = array_of(table, name, "step", "layer", "split", "start", arm=arm)
    return found[look, layer - 1 if layer > 0 else layer].ravel()


def difference(table: Columns, *, arm: str, other: str) -> tuple[float, float, float]:
    """Accuracy of `arm` less that of `other`, by split and start: mean, interval (Student)."""
    mine, theirs = (values_of(table, arm=one, name="accuracy") for one in (arm, other))
    return float((mine - theirs).mean()), *mean_interval(mine - theirs)


def four_digits(values: Mapping[str, float]) -> dict[str, float]:
    """The values as tables of trainings keep them."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}
