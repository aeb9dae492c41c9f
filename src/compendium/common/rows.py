"""Rows of a stored table from columns, and groups of rows back from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bookmaker.tables import Rows

Columns = Mapping[str, np.ndarray]


def rows_of(**columns: Any) -> Rows:
    """Rows from columns (n,): arrays, tensors or lists; a single value stands in every row.

    >>> rows_of(beta=0.5, size=[1.0, 2.0])
    [{'beta': 0.5, 'size': 1.0}, {'beta': 0.5, 'size': 2.0}]
    """
    arrays = np.broadcast_arrays(*map(np.atleast_1d, columns.values()))
    lists = (array.tolist() for array in arrays)
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def groups(table: Columns, *names: str) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """Rows of a table by the value of a column, or the values of several, as they first come.

    >>> table = {"T": np.array([4, 8, 4]), "beta": np.array([0.5, 0.5, 1.0])}
    >>> [(span, rows["beta"].tolist()) for span, rows in groups(table, "T")]
    [(4, [0.5, 1.0]), (8, [0.5])]
    """
    keys = list(zip(*(table[name].tolist() for name in names), strict=True))
    for key in dict.fromkeys(keys):
        chosen = np.array([one == key for one in keys])
        rows = {name: column[chosen] for name, column in table.items()}
        yield key if len(names) > 1 else key[0], rows
