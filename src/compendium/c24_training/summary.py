"""Reading the stored results: one number a training, and differences in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spinformer.core.statistics import mean_interval

Columns = Mapping[str, np.ndarray]


def values_of(
    table: Columns, *, arm: str, name: str, layer: int = -1, look: int = -1
) -> np.ndarray:
    """Column `name` of all trainings of `arm`, in the order of splits and starts.

    `layer` 1 is the first, -1 the last; `look` 0 is before training, -1 after it. ValueError for an
    arm that is not there.

    >>> rows = {"arm": ["a", "a"], "layer": [1, 1], "step": [0, 9], "accuracy": [0.1, 0.9]}
    >>> values_of({k: np.array(v) for k, v in rows.items()}, arm="a", name="accuracy")
    array([0.9])
    """
    here = table["arm"] == arm
    if not here.any():
        raise ValueError(f"arm must be one of {sorted(set(table['arm']))}, got {arm!r}")
    depth = table["layer"][here].max()
    steps = np.unique(table["step"][here])
    rows = here & (table["layer"] == (depth if layer == -1 else layer))
    return np.asarray(table[name][rows & (table["step"] == steps[look])])


def difference(
    table: Columns, *, arm: str, other: str, name: str = "accuracy", look: int = -1
) -> tuple[float, float, float]:
    """`name` of `arm` less that of `other`, paired by split and start: mean, interval (Student).

    >>> rows = {"arm": ["a", "a", "b", "b"], "layer": [1] * 4, "step": [9] * 4,
    ...         "accuracy": [0.5, 0.7, 0.4, 0.5]}
    >>> found = difference({k: np.array(v) for k, v in rows.items()}, arm="a", other="b")
    >>> [f"{value:.2f}" for value in found]
    ['0.15', '-0.49', '0.79']
    """
    gap = values_of(table, arm=arm, name=name, look=look) - values_of(
        table, arm=other, name=name, look=look
    )
    return float(gap.mean()), *mean_interval(gap)
