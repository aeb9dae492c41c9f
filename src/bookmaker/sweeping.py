"""A chapter at many points: an executed notebook and one row of one table for each.

A folder of results holds `points/KEY.ipynb` and `points/KEY.json` for each finished point (a store
of `bookmaker.sweeps`) and `table.csv`, which is written anew at the end of every call, also of one
that was stopped. The table holds every point that was ever finished in the folder:
those asked for first, in their order. All were computed by the same code; a folder whose points
came from other code is refused.
"""

from __future__ import annotations

import csv
import io
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from bookmaker.claims import claims_of, results
from bookmaker.errors import ParameterError
from bookmaker.execution import CellFailed, KernelDied, execute
from bookmaker.files import write_atomically
from bookmaker.points import Point
from bookmaker.source import Chapter
from bookmaker.sweeps import store
from bookmaker.sweeps.engine import Lost, SweepError, Workers, stream

TABLE, POINTS = "table.csv", "points"
_LIBRARIES = ("spinformer", "numpy", "scipy", "torch", "numba")

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What a call did: points computed now, there already, and refused as not allowed.

    `failed` holds those that have no result, with their errors.
    """

    computed: int
    there: int
    refused: int
    failed: list[tuple[Point, str]]
    table: Path

    def __str__(self) -> str:
        """The summary at the end."""
        lines = [
            f"{self.computed + self.there + self.refused} points: {self.computed} computed now, "
            f"{self.there} there already, {self.refused} refused; {len(self.failed)} failed"
        ]
        lines += [f"  {point}: {error.splitlines()[0]}" for point, error in self.failed[:10]]
        return "\n".join([*lines, f"pandas.read_csv({str(self.table)!r})"])


def sweep_chapter(
    chapter: Chapter,
    folder: Path,
    points: Sequence[Point],
    *,
    workers: Workers,
    again: bool = False,
) -> Report:
    """Compute the points that are not finished in `folder` and write the table of all.

    `again` computes points that failed once more. Raises StoreError for a folder of other work
    or one that another process works on, SweepError if there are no workers, OSError if the
    folder cannot be written; what is finished by then is kept.
    """
    chapter.require_sound()
    wanted = [point for point in points if not point.error]
    about = {"chapter": chapter.name, "code": chapter.digest}
    with store.writing(folder / POINTS, about=about):
        done = store.finished(folder / POINTS)
        missing = [p for p in wanted if p.key not in done or (again and done[p.key]["error"])]
        try:
            for key, row in _compute(chapter, folder, missing, workers):
                done[key] = row
        finally:
            write_atomically(folder / TABLE, _table(chapter, points, done))
    errors = [(point, point.error or done[point.key]["error"]) for point in points]
    there, refused = len(wanted) - len(missing), len(points) - len(wanted)
    failed = [(point, error) for point, error in errors if error]
    return Report(len(missing), there, refused, failed, folder / TABLE)


def _compute(
    chapter: Chapter, folder: Path, missing: Sequence[Point], workers: Workers
) -> Iterator[tuple[str, Row]]:
    """Compute points; yield the row of each one when it is kept."""
    claims = claims_of(chapter.root, chapter.name) if missing else []
    function = partial(run_point, root=str(chapter.root), name=chapter.name, code=chapter.digest)
    units = [{"values": dict(point.values)} for point in missing]
    outcomes = stream(function, units, workers=workers, say=tqdm.write)
    bar = tqdm(outcomes, desc=chapter.name, total=len(units), disable=None)
    with closing(outcomes), bar:
        for place, row in bar:
            key = missing[place].key
            if isinstance(row, Lost):
                row = {"notebook": "", "seconds": "", "versions": "", "error": str(row)}
            figures = {}
            if text := row.pop("notebook"):
                # Before the row: a point that is finished has its notebook.
                write_atomically(folder / POINTS / f"{key}.ipynb", text + "\n")
                figures = results(nbformat.reads(text, as_version=4), claims)
            row |= {"values": units[place]["values"], "figures": figures}
            store.add(folder / POINTS, key, row)
            yield key, row


def run_point(*, root: str, name: str, code: str, values: Mapping[str, Any]) -> Row:
    """Run a chapter at one point, on a worker: notebook, seconds, versions, the error if any.

    Raises Lost if the kernel died, SweepError if the worker has other code than `code`.
    """
    begin = time.perf_counter()
    chapter = Chapter(Path(root), name)
    if chapter.digest != code:
        raise SweepError(
            f"the code of {name} changed during the sweep, or a worker has another checkout"
        )
    notebook, problem = None, ""
    try:
        notebook = execute(chapter, values)
    except KernelDied as error:
        raise Lost(str(error)) from None
    except CellFailed as error:
        notebook, problem = error.partial, str(error)
    except ParameterError as error:  # a path that is not there on the worker's machine
        problem = str(error)
    finally:
        # The client of the kernel made a loop for this task, and nobody else closes it.
        ensure_event_loop().close()
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    return {
        "notebook": nbformat.writes(notebook) if notebook else "",
        "seconds": round(time.perf_counter() - begin, 3),
        "versions": ", ".join([f"python {platform.python_version()}", *libraries]),
        "error": problem,
    }


def _table(chapter: Chapter, points: Sequence[Point], done: Mapping[str, Row]) -> str:
    """One line for each finished or refused point: parameters, results, time, versions, error."""
    refused = {p.key: {"values": p.values, "error": p.error} for p in points if p.error}
    rows: dict[str, Row] = {**refused, **done}
    asked = [point.key for point in points if point.key in rows]
    keys = [*asked, *sorted(set(done) - set(asked))]
    parameters = [parameter.name for parameter in chapter.parameter_cell.parameters]
    figures = dict.fromkeys(name for key in keys for name in rows[key].get("figures", {}))
    text = io.StringIO()
    names = ["point", *parameters, *figures, "seconds", "versions", "error"]
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for key in keys:
        row = rows[key]
        writer.writerow({**row, **row["values"], **row.get("figures", {}), "point": key})
    return text.getvalue()
