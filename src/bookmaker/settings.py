"""Tables of settings: whether the choices behind a verdict could turn it.

A row of the claims whose verdict depends on choices (a rate, a start, a threshold, a window, a
null) names a stored table below `src/compendium`. Every line of it is one combination: a column
for each choice, then `value` with its interval `low`, `high` (95 %), arranged so that a value
above zero speaks for the statement, and `runs`, the trainings, starts or systems behind it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bookmaker.conditions import is_met
from bookmaker.tables import read_columns

# Where the names of tables begin.
TABLES = "src/compendium"
FIGURES = ("value", "low", "high", "runs")
# Fewer combinations than this say little about the choices that were not made.
FEWEST = 12
# The sign that every value has under a verdict, in the region of one with a condition.
SIGNS = {"holds": 1, "holds if": 1, "fails": -1}


def settings_faults(path: Path, verdict: str, region: str = "") -> Iterator[str]:
    """What is wrong with a table of settings, and with a verdict that it does not bear out.

    *Holds* and *fails* need the whole interval on one side of zero in every line; *holds if* in
    every line of `region`, a condition on the columns (see `conditions`; "" for all lines). What
    is *open* needs nothing.
    """
    table = read_columns(path)
    value, low, high = (table[name] for name in FIGURES[:3])
    if len(value) < FEWEST:
        yield f"the table of settings {path.name} has {len(value)} lines, at least {FEWEST} needed"
    if not np.all((low <= value) & (value <= high)):
        yield f"the table of settings {path.name} has a value outside its interval"
    if sign := SIGNS.get(verdict):
        inside = settings_region(table, region)
        turned = inside & (sign * value <= 0)
        unsure = inside & ~turned & (np.minimum(sign * low, sign * high) <= 0)
        lines = f"{inside.sum()} settings" + (f" with {region}" if region else "")
        if not inside.any():
            yield f"no line of the table of settings {path.name} has {region}"
        if turned.any():
            yield f"verdict {verdict!r}, but {turned.sum()} of {lines} say otherwise"
        if unsure.any():
            yield f"verdict {verdict!r}, but intervals of {unsure.sum()} of {lines} include zero"


def settings_region(table: Mapping[str, np.ndarray], region: str) -> np.ndarray:
    """Which lines of a table of settings lie in a region; all if it is ""."""
    lines = zip(*(column.tolist() for column in table.values()), strict=True)
    return np.array(
        [is_met(region or "True", dict(zip(table, line, strict=True))) for line in lines]
    )


def settings_words(path: Path, region: str = "") -> str:
    """The choices that were tried and what they gave, in one sentence for the claims page."""
    table = read_columns(path)
    value, runs = table["value"], table["runs"]
    choices = []
    for name in [name for name in table if name not in FIGURES]:
        tried = np.unique(table[name])
        numbers = tried.dtype.kind in "if"
        words = [f"{x:g}" if numbers else str(x) for x in tried]
        told = f"{words[0]} to {words[-1]}" if len(words) > 6 and numbers else ", ".join(words)
        choices.append(f"{name.replace('_', ' ')} {told}")
    each = f"{runs.min()}" if runs.min() == runs.max() else f"{runs.min()} to {runs.max()}"
    where = f"; all {settings_region(table, region).sum()} with `{region}` do" if region else ""
    return (
        f"{np.count_nonzero(value > 0)} of {len(value)} settings speak for the statement "
        f"({'; '.join(choices)}; {each} runs each): {value.min():.2g} to {value.max():.2g}, "
        f"{np.count_nonzero(table['low'] > 0)} with the whole interval above zero, "
        f"{np.count_nonzero(table['high'] < 0)} below{where}"
    )
