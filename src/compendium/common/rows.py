"""Rows of a stored table from columns, groups of rows back from it, lines of tables of settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import binom

from bookmaker.tables import Rows
from spinformer.core.statistics import Estimate, student_interval, wilson_interval

Columns = Mapping[str, np.ndarray]


def parameter_product(**choices: Iterable[Any]) -> Rows:
    """The units of a table that has every combination of choices, the last changing fastest."""
    return [dict(zip(choices, unit, strict=True)) for unit in product(*choices.values())]


def numbered(units: Iterable[dict[str, Any]], *, first: int = 1, step: int = 1) -> Rows:
    """Units of a robustness table each of which has raw runs of its own, which `data` counts.

    >>> numbered([{"size": 500}, {"size": 1000}], first=7)
    [{'data': 7, 'size': 500}, {'data': 8, 'size': 1000}]
    """
    return [{"data": first + step * place, **unit} for place, unit in enumerate(units)]


def rows_of(table: Mapping[str, Any] | None = None, /, **columns: Any) -> Rows:
    """Rows from columns (n,): arrays, tensors or lists; a single value stands in every row.

    Columns come by name, those of a `table` first.

    An estimate makes two columns, the second its error: "name" and "name_error".
    """
    by_name: dict[str, Any] = {}
    for name, column in (dict(table or {}) | columns).items():
        both = isinstance(column, Estimate)
        by_name |= {name: column.value, f"{name}_error": column.error} if both else {name: column}
    arrays = np.broadcast_arrays(*map(np.atleast_1d, by_name.values()))
    lists = (array.tolist() for array in arrays)
    return [dict(zip(by_name, row, strict=True)) for row in zip(*lists, strict=True)]


def groupby(table: Columns, *names: str) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
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
    shape = []
    places = []
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
    ends = np.array(wilson_interval(hits, trials=max(trials, 1)))
    low, high = np.sort(sign * (ends - bound))
    return _line(sign * (share - bound), low, high, trials)


def estimate_rows(estimate: Estimate, *, bound: float = 0.0) -> Rows:
    """The line of a table of settings for an estimate less a bound, two of its errors each way."""
    value = estimate.value - bound
    wide = 2.0 * estimate.error
    return _line(value, value - wide, value + wide, estimate.samples)


def near_rows(measured: Sequence[float], *, aim: float, within: float, runs: int) -> Rows:
    """The line for a value and its interval: `within` less their distance from `aim`.

    >>> near_rows((0.75, 0.5, 1.5), aim=1.0, within=1.0, runs=5)
    [{'value': 0.75, 'low': 0.5, 'high': 1.0, 'runs': 5}]
    """
    value, low, high = measured
    nearest = 0.0 if low < aim < high else min(abs(low - aim), abs(high - aim))
    farthest = max(abs(low - aim), abs(high - aim))
    return _line(within - abs(value - aim), within - farthest, within - nearest, runs)
