"""Robustness tables (specification curves): what they say of a verdict, and what is wrong with one.

A line of such a table is one combination of choices that a reasonable person could make (data,
split, family of seeds, law of the starts, null, gauge, size, time, rate): `data`, the id of the raw
runs behind the line, a column for each choice, then `value` with its interval `low`, `high` (95 %),
arranged so that a value above zero speaks for the statement, and `runs`, the trainings, starts or
systems behind it. Columns behind `runs` are further results of the line, and no choices. Lines that
read the same runs share their `data`, so that runs are counted and not readings of them. A line
stands if its interval is above zero, it is against if its interval is below, and else it is
undecided.

A region is a condition on the columns. It is written first; then the command `table` makes the
confirming table `confirm_ID.csv` from fresh runs, and its first line records the region.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bookmaker.figures import written
from bookmaker.parameters import condition_names, is_met
from bookmaker.tables import DATA, OUTCOME, choices, read_columns, recorded_region

Columns = Mapping[str, np.ndarray]

# Of as many sets of raw runs a verdict needs lines: fewer say little about what was not tried.
FEWEST = 12
# Of a confirming table at most so many lines may be against, and at least so many must stand.
MOST_AGAINST = 1 / 20
LEAST_STANDING = 1 / 2
# A column whose name has one of these words, in the plural too, says which random draw a line is
# from. Nobody who repeats the work can choose it, so no region may name it.
DRAWS = frozenset(
    [
        "context",
        "data",
        "draw",
        "group",
        "network",
        "place",
        "run",
        "seed",
        "split",
        "system",
        "text",
        "training",
        "trial",
    ]
)


@dataclass(frozen=True)
class Tally:
    """How many lines of a table stand, are undecided and are against; `data` are distinct runs."""

    lines: int
    data: int
    standing: int
    undecided: int
    against: int

    def __str__(self) -> str:
        """Return the counts in words."""
        from_runs = f" from {self.data} sets of runs" if self.data else ""
        return (
            f"{self.lines} settings{from_runs}: {self.standing} for the statement, "
            f"{self.undecided} undecided, {self.against} against it"
        )


def tally(table: Columns, region: str = "") -> Tally:
    """Return the counts of the lines in a region, of all if it is ""."""
    inside = in_region(table, region)
    standing = int(np.count_nonzero(table["low"][inside] > 0))
    against = int(np.count_nonzero(table["high"][inside] < 0))
    lines = int(np.count_nonzero(inside))
    return Tally(
        lines=lines,
        data=len(set(table[DATA][inside].tolist())) if DATA in table else 0,
        standing=standing,
        undecided=lines - standing - against,
        against=against,
    )


OUTCOMES = ("stands", "undecided", "against")


def read_trials(path: Path) -> dict[tuple[str, str], Tally]:
    """Return the counts of each trial by row and label, none if there is no file.

    A trial is a set of settings that somebody else tried after the tables of a row were made. The
    file has a line for each setting: `row`, `trial`, `setting`, `outcome`, one of `OUTCOMES`.
    """
    if not path.is_file():
        return {}
    table = read_columns(path)
    if wrong := sorted(set(table["outcome"].tolist()) - set(OUTCOMES)):
        raise ValueError(f"outcome must be one of {' | '.join(OUTCOMES)}, got {wrong[0]!r}")
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row, trial, outcome in zip(table["row"], table["trial"], table["outcome"], strict=True):
        counts.setdefault((str(row), str(trial)), Counter())[str(outcome)] += 1
    return {
        name: Tally(
            lines=tried.total(),
            data=0,
            standing=tried["stands"],
            undecided=tried["undecided"],
            against=tried["against"],
        )
        for name, tried in counts.items()
    }


def in_region(table: Columns, region: str) -> np.ndarray:
    """Return which lines (n,) of a table a region holds, all if it is ""; ValueError if it cannot.

    >>> in_region({"rate": np.array([0.1, 0.2])}, "rate < 0.15")
    array([ True, False])
    """
    columns = [column.tolist() for column in table.values()]
    lines = [dict(zip(table, line, strict=True)) for line in zip(*columns, strict=True)]
    return np.array([is_met(region or "True", line) for line in lines], dtype=bool)


def is_draw(column: str) -> bool:
    """Return whether a column says which random draw a line is from, by the words of its name.

    >>> is_draw("first_seed"), is_draw("splits"), is_draw("start_law")
    (True, True, False)
    """
    words = column.split("_")
    return any(word in DRAWS or word.removesuffix("s") in DRAWS for word in words)


def threshold_axes(table: Columns) -> list[str]:
    """Return the choices that do nothing but move a threshold.

    Between two of their values every line is shifted by one and the same constant, its interval
    too. Such a threshold stands once, in the criterion of the row.
    """
    names = [DATA, *choices(table)]
    outcomes = np.column_stack([table[name] for name in OUTCOME[:3]]).astype(float)
    # Tables hold six significant digits.
    rounding = 1e-5 * np.abs(outcomes).max()
    moved = []
    for axis in choices(table):
        others = zip(*(table[name].tolist() for name in names if name != axis), strict=True)
        levels = table[axis].tolist()
        lines = dict(zip(zip(levels, others, strict=True), outcomes, strict=True))
        first = levels[0]
        shifts: dict[object, list[np.ndarray]] = {}
        for (level, other), outcome in lines.items():
            if level != first and (first, other) in lines:
                shifts.setdefault(level, []).append(outcome - lines[first, other])
        constant = [
            len(of_level) > 1 and np.ptp(of_level) < rounding and np.abs(of_level).max() > rounding
            for of_level in shifts.values()
        ]
        if constant and all(constant):
            moved.append(axis)
    return moved


def table_faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with a robustness table by itself."""
    table = read_columns(path)
    if missing := [name for name in (DATA, *OUTCOME) if name not in table]:
        yield f"{path.name} has no column {', '.join(missing)}"
        return
    if not np.all((table["low"] <= table["value"]) & (table["value"] <= table["high"])):
        yield f"{path.name} has a value outside its interval"
    if moved := threshold_axes(table):
        yield (
            f"the column {', '.join(moved)} of {path.name} only moves a threshold, which is no "
            "choice: it goes, and the threshold stands in the criterion"
        )


def verdict_faults(path: Path, verdict: str, *, sign: int, region: str) -> Iterator[str]:
    """Yield what in a robustness table does not bear out a verdict.

    `sign` is what every value must have, whether or not its interval includes zero, where there
    is no `region`. With one, the region names no draw and covers at least half of the lines;
    where it was found afterwards (`held in`), its lines must meet what a confirming table must.
    """
    table = read_columns(path)
    counts = tally(table)
    if sign and verdict != "held in" and counts.data < FEWEST:
        yield (
            f"{path.name} is made from {counts.data} sets of runs (its column {DATA}): the verdict "
            f"{verdict!r} needs at least {FEWEST}"
        )
    if not region:
        if turned := int(np.count_nonzero(sign * table["value"] <= 0)) if sign else 0:
            yield f"verdict {verdict!r}, but {turned} of {counts.lines} settings say otherwise"
        return
    results = set(table) - set(choices(table))
    if drawn := [name for name in condition_names(region) if is_draw(name)]:
        yield f"the region `{region}` names {', '.join(drawn)}, which is a draw and no choice"
    elif found := sorted(set(condition_names(region)) & results):
        yield f"the region `{region}` names {', '.join(found)}, which is a result and no choice"
    inside = tally(table, region)
    if 2 * inside.lines < counts.lines:
        yield (
            f"the region `{region}` covers {inside.lines} of {counts.lines} settings: "
            "at least half needed"
        )
    if verdict == "held in":
        yield from _standing_faults(inside, f"in the region `{region}` of {path.name}")


def confirmation_faults(path: Path, settings: Path, region: str) -> Iterator[str]:
    """Yield what keeps a table of fresh runs from confirming a region of the table `settings`."""
    if (recorded := recorded_region(path)) != one_line(region):
        made_for = f"for the region `{recorded}`" if recorded else "without a region"
        yield (
            f"{path.name} was made {made_for}, the row has `{one_line(region)}`: draw fresh runs, "
            "with new ids, for this one"
        )
    fresh = read_columns(path)
    asked = read_columns(settings)
    if set(fresh) != set(asked):
        yield f"{path.name} has the columns {', '.join(fresh)}, not {', '.join(asked)}"
        return
    used = set(map(str, asked[DATA].tolist()))
    if again := sorted(used & set(map(str, fresh[DATA].tolist()))):
        yield f"{path.name} is not from fresh runs: {settings.name} has {', '.join(again)}, too"
    counts = tally(fresh)
    if counts.data < FEWEST:
        yield f"{path.name} is made from {counts.data} sets of runs: at least {FEWEST} needed"
    if outside := int(np.count_nonzero(~in_region(fresh, region))):
        yield f"{outside} of {counts.lines} lines of {path.name} lie outside of `{region}`"
    yield from _standing_faults(counts, f"of {path.name}")


def _standing_faults(counts: Tally, where: str) -> Iterator[str]:
    """Yield whether too many lines are against or too few stand."""
    if counts.against > MOST_AGAINST * counts.lines:
        yield f"{counts.against} of {counts.lines} settings {where} are against: at most 1 in 20"
    if counts.standing < LEAST_STANDING * counts.lines:
        yield f"{counts.standing} of {counts.lines} settings {where} stand: at least half needed"


def one_line(text: str) -> str:
    """Return a text with single blanks, as the header of a table holds it."""
    return " ".join(text.split())


def choices_in_words(table: Columns) -> str:
    """Return what was tried of each choice, as `rate 0.01, 0.1; start cold, warm`."""
    parts = []
    for name in choices(table):
        tried = np.unique(table[name])
        are_numbers = tried.dtype.kind in "if"
        words = [f"{level:g}" if are_numbers else str(level) for level in tried]
        if len(words) > 6 and are_numbers:
            words = [f"{words[0]} to {words[-1]}"]
        parts.append(f"{name.replace('_', ' ')} {', '.join(words)}")
    return "; ".join(parts)


def tried_in_words(tables: Sequence[Columns]) -> str:
    """Return the range of each choice over tables, as `rate 0.01 to 0.1; start cold, warm`.

    Random draws are left out: nobody asks for what they were.
    """
    parts = []
    for name in choices(tables[0]):
        if is_draw(name):
            continue
        tried = np.unique(np.concatenate([table[name] for table in tables]))
        words = [f"{level:g}" if tried.dtype.kind in "if" else str(level) for level in tried]
        if tried.dtype.kind in "if" and len(words) > 1:
            words = [f"{words[0]} to {words[-1]}"]
        parts.append(f"{name.replace('_', ' ')} {', '.join(words)}")
    return "; ".join(parts)


def in_words(table: Columns, region: str = "") -> str:
    """Return choices, runs and counts of a robustness table in one sentence for the claims page."""
    least = written(float(table["value"].min()), ".2g")
    largest = written(float(table["value"].max()), ".2g")
    where = f"; with `{region}` {tally(table, region)}" if region else ""
    return f"{tally(table)} ({choices_in_words(table)}); {least} to {largest}{where}"
