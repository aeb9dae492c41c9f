"""Results that take longer than a chapter may: small tables, each with the command that makes it.

The table `NAME.csv` lies in its chapter's folder, beside the module that defines it. Its first
line is a comment with the command, then come the names of the columns and one line a case. The
module states the units of work (a seed, a setting) and a function that computes the rows of one.
`python -m bookmaker table CHAPTER NAME` makes it. What is done is kept in `NAME.csv.part`: an
interrupted command goes on where it stopped, and the table is replaced when all units are there.
`--workers 2` or `--scheduler ADDRESS` let Dask compute the units (`bookmaker.sweeps`); a row
depends on its unit alone, so the table is the same. Two processes cannot make one table at a time.

Numbers are written with six significant digits. Trainings amplify rounding, so that another
processor gives slightly different rows; a chapter prints from a table what an interval or a
margin covers, and a test computes one unit again and compares it within what its study states.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
from tqdm import tqdm

from bookmaker.files import write_atomically
from bookmaker.sweeps.engine import Workers, stream
from bookmaker.sweeps.store import Store
from spinformer.core.checks import check_integer
from spinformer.core.records import record

Rows = list[dict[str, Any]]


@record
class Table:
    """One table: where it lies, the units of work, and `rows(**unit)`, a list of dictionaries.

    `units` are dictionaries of numbers and words; every row has the columns of its unit, then
    those that `rows` gives, the same for all units.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = Table(path=Path(folder) / "squares.csv", units=[{"x": 2}, {"x": 3}],
    ...                   rows=lambda x: [{"square": x**2}])
    ...     table.make(progress=False)
    ...     table.read()["square"]
    True
    array([4, 9])
    """

    path: Path
    units: Sequence[dict[str, Any]]
    rows: Callable[..., Rows]

    @property
    def command(self) -> str:
        """What to type to make it anew."""
        chapter = self.path.parent.name.removeprefix("c")
        return f"python -m bookmaker table {chapter} {self.path.stem}"

    def read(self) -> dict[str, np.ndarray]:
        """Columns by name, as int64, float64 or strings; FileNotFoundError names the command."""
        if not self.path.exists():
            raise FileNotFoundError(f"no {self.path.name}; it is made by: {self.command}")
        return read_columns(self.path)

    def make(
        self,
        *,
        progress: bool = True,
        limit: int | None = None,
        workers: Workers | None = None,
    ) -> bool:
        """Compute the units that are not done yet and write the table; whether all are done.

        `limit` ends the call after so many units; the next call goes on. `workers` compute the
        units, this process if none are given. Raises ValueError where the columns of a row are not
        those of the first, StoreError if another process makes the table, SweepError if there are
        no workers, and what `rows` raises.
        """
        if limit is not None:
            limit = check_integer("limit", limit, low=0)
        part = self.path.with_suffix(".csv.part")
        with Store(part, about={"table": self.path.stem}) as store:
            missing = [unit for unit in self.units if json.dumps(unit) not in store.done][:limit]
            say = tqdm.write if progress else None
            outcomes = stream(self.rows, missing, workers=workers, say=say)
            bar = tqdm(outcomes, desc=self.path.stem, total=len(missing), disable=not progress)
            with closing(outcomes), bar:
                for outcome in bar:
                    if outcome.error is not None:
                        raise outcome.error
                    found = [
                        {name: _written(value) for name, value in {**outcome.unit, **row}.items()}
                        for row in outcome.value
                    ]
                    columns = list(next(iter(store.done.values()), found)[0])
                    for row in found:
                        if list(row) != columns:
                            raise ValueError(
                                f"rows must have the columns {columns}, got {list(row)}"
                            )
                    store.add({json.dumps(outcome.unit): found})
            if not all(json.dumps(unit) in store.done for unit in self.units):
                return False
            lines = [row for unit in self.units for row in store.done[json.dumps(unit)]]
            text = io.StringIO()
            text.write(f"# {self.command}\n")
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(lines[0])
            writer.writerows(row.values() for row in lines)
            write_atomically(self.path, text.getvalue())
            store.remove()
        return True


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a stored table by name, as int64, float64 or strings.

    The first line is a comment, the second holds the names.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "squares.csv"
    ...     _ = path.write_text("# made by hand\\nx,square\\n2,4\\n3,9\\n")
    ...     read_columns(path)["square"]
    array([4, 9])
    """
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        names, *lines = csv.reader(file)
    return {
        name: _column(values) for name, values in zip(names, zip(*lines, strict=True), strict=True)
    }


def tables_of(chapter: str) -> dict[str, Table]:
    """The stored tables of a chapter by name, from the modules of its folder.

    >>> sorted(tables_of("33b_lifetimes"))
    ['columns', 'crisis', 'lifetimes']
    """
    package = f"compendium.c{chapter}"
    if not find_spec("compendium") or not find_spec(package):
        return {}
    folder = import_module(package)
    found: dict[str, Table] = {}
    for module in iter_modules(folder.__path__, f"{package}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Table) and value.path.parent == Path(folder.__path__[0]):
                found[value.path.stem] = value
    return found


def _column(values: Sequence[str]) -> np.ndarray:
    for kind in (np.int64, np.float64):
        try:
            return np.array(values).astype(kind)
        except ValueError:
            continue
    return np.array(values)


def _written(value: Any) -> str:
    return f"{float(value):.6g}" if isinstance(value, (float, np.floating)) else str(value)
