"""Results that take longer than a chapter may: small tables, each with the command that makes it.

The table `NAME.csv` lies in its chapter's folder, beside the module that defines it. Its first
line is a comment with the command, then come the names of the columns and one line a case:

    @stored("growth", [{"seed": seed} for seed in range(9)], seconds=4.0)
    def GROWTH(seed: int) -> Rows:
        return [{"size": size, "growth": measured(size, seed=seed)} for size in SIZES]

`python -m bookmaker table CHAPTER NAME` makes it. What is done is kept in `NAME.csv.part`, a file
a unit: an interrupted command goes on where it stopped, and the table is replaced when all units
are there. Two processes cannot make one table at a time.

Every table names the unit that `tests/test_tables.py` computes again, and what it costs: up to
one and a half seconds in `make test`, up to a minute in `make test-all`. Where every unit is
dearer, `small` is one of the same code at a smaller size, whose rows lie in `NAME.small.csv`;
`--small` makes these.

Numbers are written with six significant digits. Trainings amplify rounding, so that another
processor gives slightly different rows; a chapter prints from a table what an interval or a
margin covers, and a unit computed again is compared within what the table states.
"""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from bookmaker.base import BookError, WorkerDied, csv_text, write_atomically
from bookmaker.sweeps.engine import (
    HERE,
    Workers,
    complete,
    finished,
    locked_store,
    parameter_hash,
    remove,
)

Rows = list[dict[str, Any]]
_COMPENDIUM = Path(__file__).parents[1] / "compendium"
# The columns of a robustness table (`robustness`) that are no choices: what a line gave, and the id
# of the raw runs behind it.
OUTCOME = ("value", "low", "high", "runs")
DATA = "data"
# A table called confirm_ID is drawn for a region, which its first line records behind this.
CONFIRM = "confirm_"
_REGION = "  # region: "


def choices(table: Mapping[str, Any]) -> list[str]:
    """Return the columns that are choices: those before the outcome, without the id of the runs.

    >>> choices(dict.fromkeys(["data", "rate", "value", "low", "high", "runs", "final_loss"]))
    ['rate']
    """
    names = list(table)
    return [name for name in names[: names.index(OUTCOME[0])] if name != DATA]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: where it lies, the units of work, and `rows(**unit)`, a list of dictionaries.

    `units` are dictionaries of numbers and words; every row has the columns of its unit, then
    those that `rows` gives, the same for all units. A test computes the unit `checked` again or,
    where every unit is too dear, the unit `small`: arguments of `rows` that ask for less work, with
    a table of its own. It takes about `seconds` of one core; numbers may differ by
    `rtol` of their size, or by what `within` says of their column (infinite: the column is not
    compared).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Table(path=Path(folder) / "squares.csv", units=[{"x": 2}, {"x": 3}],
    ...                   rows=lambda x: [{"square": x**2}], seconds=0.1)
    ...     table.make()
    ...     table.read()["square"]
    array([4, 9])
    """

    path: Path
    units: Sequence[dict[str, Any]]
    rows: Callable[..., Rows]
    seconds: float
    checked: int = 0
    small: Mapping[str, Any] | None = None
    rtol: float = 1e-5
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """What to type to make it anew."""
        chapter = self.path.parent.name.removeprefix("c")
        name, _, small = self.path.stem.partition(".")
        return f"python -m bookmaker table {chapter} {name}{small and ' --small'}"

    @property
    def again(self) -> "Table":
        """The table whose unit `checked` is computed again: this one, or that of unit `small`."""
        if self.small is None:
            return self
        path = self.path.with_suffix(".small.csv")
        return replace(self, path=path, units=[dict(self.small)], checked=0, small=None)

    @property
    def part(self) -> Path:
        """The folder that keeps what is done until all is."""
        return self.path.with_suffix(".csv.part")

    def read(self) -> dict[str, np.ndarray]:
        """Columns by name, as int64, float64 or strings; FileNotFoundError if it was not made."""
        return read_columns(self.path)

    def make(self, workers: Workers = HERE, *, region: str = "") -> None:
        """Compute the units that are not done yet and write the table.

        Of a confirming table the first line records the `region` that it was drawn for; what was
        done for another region is not gone on with.

        Raises ValueError where the columns of a row are not those of the first or a unit has no
        row, RunError if another process makes the table, RunError if there are no workers, and what
        `rows` raises.
        """
        part = self.part
        units = {parameter_hash(unit): unit for unit in self.units}

        def kept(key: str, rows: Rows | WorkerDied) -> Rows:
            if isinstance(rows, WorkerDied):
                raise rows
            if not rows:
                raise ValueError(f"the unit {units[key]} of {self.path.stem} has no row")
            return rows_as_text(units[key], rows)

        recorded = {"region": region} if region else {}
        with locked_store(part, about={"table": self.path.stem} | recorded):
            done = finished(part, sound=_are_rows)
            missing = {key: unit for key, unit in units.items() if key not in done}
            complete(part, self.rows, missing, workers=workers, title=self.path.stem, kept=kept)
            done = finished(part, sound=_are_rows)
            rows = [row for key in units for row in done[key]]
            text = csv_text(list(rows[0]), rows)
            header = f"# {self.command}{_REGION}{region}" if region else f"# {self.command}"
            write_atomically(self.path, f"{header}\n{text}")
            remove(part)


def stored(
    name: str, units: Sequence[dict[str, Any]], **settings: Any
) -> Callable[[Callable[..., Rows]], Table]:
    """Make the `Table` `name`.csv of the function that computes the rows of a unit.

    It lies beside the module that defines the function; settings are those of a `Table`.
    """

    def table(rows: Callable[..., Rows]) -> Table:
        # Of the module, not of the code: rows may be wrapped, in torch.no_grad() say.
        path = Path(str(sys.modules[rows.__module__].__file__)).with_name(f"{name}.csv")
        return Table(path=path, units=units, rows=rows, **settings)

    return table


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a stored table by name, as int64, float64 or strings.

    The first line is a comment, the second holds the names.
    """
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        names, *lines = csv.reader(file)
    return {
        name: _column(values) for name, values in zip(names, zip(*lines, strict=True), strict=True)
    }


def recorded_region(path: Path) -> str:
    """Return the region that a confirming table was drawn for, by its first line; "" if none."""
    with path.open(encoding="utf-8") as file:
        return file.readline().partition(_REGION)[2].strip()


def tables_of(chapter: str) -> dict[str, Table]:
    """The stored tables of a chapter by name, from the modules of its folder.

    Raises BookError if no folder is called like the chapter.
    """
    folders = {p.name[1:]: p for p in _COMPENDIUM.glob("c[0-9]*") if p.is_dir()}
    if chapter not in folders:
        there = ", ".join(sorted(folders))
        raise BookError(f"no folder of stored tables for {chapter!r}; there are: {there}")
    folder = folders[chapter]
    tables: dict[str, Table] = {}
    for module in iter_modules([str(folder)], f"compendium.{folder.name}."):
        for value in vars(import_module(module.name)).values():
            for table in value.values() if isinstance(value, dict) else [value]:
                if isinstance(table, Table) and table.path.parent == folder:
                    tables[table.path.stem] = table
    return tables


def _are_rows(_key: str, rows: object) -> bool:
    """Whether a stored result is what `rows_as_text` gives."""
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) for row in rows)


def _column(values: Sequence[str]) -> np.ndarray:
    for kind in (np.int64, np.float64):
        with suppress(ValueError):
            return np.array(values).astype(kind)
    return np.array(values)


def rows_as_text(unit: Mapping[str, Any], rows: Rows) -> Rows:
    """The rows of a unit as they stand in the table."""
    return [
        {
            name: f"{float(v):.6g}" if isinstance(v, float | np.floating) else str(v)
            for name, v in {**unit, **row}.items()
        }
        for row in rows
    ]
