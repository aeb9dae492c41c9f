"""Rows of a stored table from columns, groups of rows back from it, lines of tables of settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import binom

from bookmaker.tables import Rows
from spinformer.core.statistics import Estimate, student_interval, wilson_interval

Columns = Mapping[str, np.ndarray]


def grid(**choices: Iterable[Any]) -> Rows:
    """The units of a table that has every combination of choices, the last changing fastest."""
    return [dict(zip(choices, unit, strict=True)) for unit in product(*choices.values())]


def numbered(units: Iterable[dict[str, Any]], *, first: int = 1, step: int = 1) -> Rows:
    """Units of a robustness table each of which has raw runs of its own, which `data` counts.

    >>> numbered([{"size": 500}, {"size": 1000}], first=7)
    [{'data': 7, 'size': 500}, {'data': 8, 'size': 1000}]
    """
    return [{"data": first + step * place} | unit for place, unit in enumerate(units)]


def rows_of(**columns: Any) -> Rows:
    """Rows from columns (n,): arrays, tensors or lists; a single value stands in every row.

    An estimate makes two columns, the second its error: "name" and "name_error".
    """
    told: dict[str, Any] = {}
    for name, column in columns.items():
        both = isinstance(column, Estimate)
        told |= {name: column.value, f"{name}_error": column.error} if both else {name: column}
    arrays = np.broadcast_arrays(*map(np.atleast_1d, told.values()))
    lists = (array.tolist() for array in arrays)
    return [dict(zip(told, row, strict=True)) for row in zip(*lists, strict=True)]


def groups(table: Columns, *names: str) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """Rows of a table by the value of a column, or the values of several, as they first come."""
    keys = list(zip(*(table[name].tolist() for name in names), strict=True))
    for key in dict.fromkeys(keys):
        chosen = np.array([one == key for one in keys])
        rows = {name: column[chosen] for name, column in table.items()}
        yield key if len(names) > 1 else key[0], rows


def array_of(table: Columns, name: str, *axes: str, **chosen: Any) -> np.ndarray:
    """A column as an array with axes, values as they first come, of the rows that are `chosen`."""
    here = np.full(len(table[name]), True)
    for column, value in chosen.items():
        here &= table[column] == value
    shape, places = [], []
    for axis in axes:
        _, first, place = np.unique(table[axis][here], return_index=True, return_inverse=True)
        shape.append(len(first))
        places.append(first.argsort().argsort()[place])
    return table[name][here][np.lexsort(places[::-1])].reshape(shape)


def median_interval(samples: np.ndarray) -> tuple[float, float, float]:
    """Median of n samples and two of them that hold its true value with 95 %; ∞ is allowed."""
    ordered = np.sort(samples)
    place = max(int(binom.ppf(0.025, len(ordered), 0.5)), 1)
    return float(np.median(ordered)), float(ordered[place - 1]), float(ordered[-place])


def _line(value: float, low: float, high: float, runs: int) -> Rows:
    return [{"value": float(value), "low": float(low), "high": float(high), "runs": runs}]


def median_rows(samples: np.ndarray) -> Rows:
    """The line of a table of settings that samples give by their median."""
    return _line(*median_interval(samples), len(samples))


def mean_rows(samples: np.ndarray) -> Rows:
    """The line of a table of settings that samples give by their mean, with Student's interval."""
    return _line(np.mean(samples), *student_interval(samples), len(samples))


def share_rows(hits: int, *, trials: int, bound: float, sign: int = 1) -> Rows:
    """The line for a share less a bound, with Wilson's interval; with `sign` −1 the reverse."""
    share = hits / trials if trials else 0.0
    ends = wilson_interval(hits, trials=max(trials, 1))
    value, *both = (sign * (one - bound) for one in (share, *ends))
    return _line(value, min(both), max(both), trials)


def estimate_rows(found: Estimate, *, bound: float = 0.0) -> Rows:
    """The line of a table of settings for an estimate less a bound, two of its errors each way."""
    value, wide = found.value - bound, 2.0 * found.error
    return _line(value, value - wide, value + wide, found.samples)


def near_rows(found: Sequence[float], *, aim: float, within: float, runs: int) -> Rows:
    """The line for a value and its interval: `within` less their distance from `aim`.

    >>> near_rows((0.75, 0.5, 1.5), aim=1.0, within=1.0, runs=5)
    [{'value': 0.75, 'low': 0.5, 'high': 1.0, 'runs': 5}]
    """
    off, *ends = (abs(one - aim) for one in found)
    least = 0.0 if found[1] < aim < found[2] else min(ends)
    return _line(within - off, within - max(ends), within - least, runs)
