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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import nbformat
from jupyter_core.utils import ensure_event_loop
from tqdm import tqdm

from bookmaker.errors import ChapterError, OutputError, ParameterError
from bookmaker.execution import CellFailed, KernelDied, execute
from bookmaker.files import prepare_folder, write_atomically
from bookmaker.meaning import PACKAGES, SOURCE, code_digest
from bookmaker.points import Point
from bookmaker.results import claims_of, results
from bookmaker.source import Chapter
from bookmaker.sweeps import store
from bookmaker.sweeps.engine import Lost, SweepError, Workers, stream

TABLE, POINTS = "table.csv", "points"
_VERSIONS = ("spinformer", "numpy", "scipy", "torch", "numba")

Row = dict[str, Any]
Rows = dict[str, Row]


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
        total = self.computed + self.there + self.refused
        lines = [
            f"{total} points: {self.computed} computed now, {self.there} there already, "
            f"{self.refused} refused; {len(self.failed)} failed"
        ]
        lines += [f"  {point}: {error.splitlines()[0]}" for point, error in self.failed[:10]]
        if len(self.failed) > 10:
            lines.append(f"  and {len(self.failed) - 10} more, see the column `error`")
        return "\n".join([*lines, f"pandas.read_csv({str(self.table)!r})"])


def finished(chapter: Chapter, folder: Path, points: Sequence[Point] | None = None) -> Rows:
    """Return the rows of the points that are finished in `folder`, by key; of all, or of `points`.

    Raises ChapterError if they are those of another chapter, or of other code.
    """
    about = store.belongs_to(folder / POINTS)
    if about and about != _about(chapter):
        raise ChapterError(
            f"{folder} holds points of {about.get('chapter')}, computed by other code than that of "
            f"{chapter.name} now: choose another folder"
        )
    return store.finished(folder / POINTS, None if points is None else [p.key for p in points])


def sweep_chapter(
    chapter: Chapter,
    folder: Path,
    points: Sequence[Point],
    *,
    workers: Workers,
    again: bool = False,
    progress: bool = True,
) -> Report:
    """Compute the points that are not finished in `folder` and write the table of all.

    `again` computes points that failed once more. Raises ChapterError for a folder of other work
    or one that another process works on, SweepError if there are no workers, OutputError if the
    folder cannot be written; what is finished by then is kept.
    """
    chapter.require_sound()
    prepare_folder(folder / POINTS, [])
    wanted = [point for point in points if not point.error]
    try:
        with store.writing(folder / POINTS, about=_about(chapter)):
            done = finished(chapter, folder)
            missing = [p for p in wanted if p.key not in done or (again and done[p.key]["error"])]
            try:
                for key, row in _compute(chapter, folder, missing, workers, progress):
                    done[key] = row
            finally:
                write_atomically(folder / TABLE, _table(chapter, points, done))
    except store.StoreError as error:
        finished(chapter, folder, [])  # says it better if the code is another one
        raise ChapterError(str(error)) from None
    except OSError as error:
        raise OutputError(
            f"{error.filename or folder}: {error.strerror or error}; "
            f"{len(finished(chapter, folder, points))} of {len(points)} points are finished and "
            "kept, the same command goes on"
        ) from None
    errors = [(point, point.error or done[point.key]["error"]) for point in points]
    there, refused = len(wanted) - len(missing), len(points) - len(wanted)
    failed = [(point, error) for point, error in errors if error]
    return Report(len(missing), there, refused, failed, folder / TABLE)


def _compute(
    chapter: Chapter, folder: Path, missing: Sequence[Point], workers: Workers, progress: bool
) -> Iterator[tuple[str, Row]]:
    """Compute points; yield the row of each one when it is kept."""
    claims = claims_of(chapter.root, chapter.name) if missing else []
    function = partial(run_point, root=str(chapter.root), name=chapter.name, code=chapter.digest)
    units = [{"values": dict(point.values)} for point in missing]
    outcomes = stream(function, units, workers=workers, chunk=1, say=tqdm.write)
    bar = tqdm(outcomes, desc=chapter.name, total=len(units), disable=not progress or not units)
    with closing(outcomes), bar:
        for outcome in bar:
            if outcome.error is not None and not isinstance(outcome.error, Lost):
                raise outcome.error
            key = missing[outcome.place].key
            came = outcome.value or {"notebook": "", "error": str(outcome.error), "versions": ""}
            figures = {}
            if came["notebook"]:
                # Before the row: a point that is finished has its notebook.
                write_atomically(folder / POINTS / f"{key}.ipynb", came["notebook"] + "\n")
                figures = results(nbformat.reads(came["notebook"], as_version=4), claims)
            row = {
                "values": outcome.unit["values"],
                "figures": figures,
                "seconds": round(outcome.seconds, 3),
                "versions": came["versions"],
                "error": came["error"],
            }
            store.add(folder / POINTS, key, row)
            yield key, row


def run_point(*, root: str, name: str, code: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Run a chapter at one point, on a worker: the notebook, the error ("" if none), the versions.

    Raises Lost if the kernel died, SweepError if the worker has other code than `code`.
    """
    chapter = _chapter(root, name)
    if _digest(chapter, _signature()) != code:
        raise SweepError(
            f"the code of {name} changed during the sweep, or a worker has another checkout"
        )
    found = {"versions": versions_here(), "notebook": "", "error": ""}
    try:
        found["notebook"] = nbformat.writes(execute(chapter, values, progress=False))
    except KernelDied as error:
        raise Lost(str(error)) from None
    except CellFailed as error:
        found["notebook"] = nbformat.writes(error.partial)
        found["error"] = str(error)
    except ParameterError as error:  # a path that is not there on the worker's machine
        found["error"] = str(error)
    finally:
        # The client of the kernel made a loop for this task, and nobody else closes it.
        ensure_event_loop().close()
    return found


@cache
def versions_here() -> str:
    """Return the versions of Python and of the libraries that decide about the numbers."""
    found = [f"python {platform.python_version()}"]
    for name in _VERSIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def _chapter(root: str, name: str) -> Chapter:
    # Converted once on each worker.
    return Chapter(Path(root), name)


def _signature() -> tuple[tuple[str, int], ...]:
    """When each file of the package changed: a thousand times faster than what its code means."""
    folders = [SOURCE / name for name in PACKAGES]
    files = (path for top in folders for path in top.rglob("*.*") if path.suffix != ".pyc")
    return tuple(sorted((str(path), path.stat().st_mtime_ns) for path in files if path.is_file()))


@cache
def _digest(chapter: Chapter, _signature: tuple[tuple[str, int], ...]) -> str:
    return code_digest(chapter.template)


def _about(chapter: Chapter) -> dict[str, str]:
    return {"chapter": chapter.name, "code": chapter.digest}


def _table(chapter: Chapter, points: Sequence[Point], done: Rows) -> str:
    """One line for each finished or refused point: parameters, results, time, versions, error."""
    refused = {point.key: point for point in points if point.error}
    asked = [point.key for point in points]
    keys = [key for key in asked if key in done or key in refused]
    keys += sorted(set(done) - set(asked))
    parameters = [parameter.name for parameter in chapter.parameters]
    figures = dict.fromkeys(name for key in keys if key in done for name in done[key]["figures"])
    last = ["seconds", "versions", "error"]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["point", *parameters, *figures, *last], lineterminator="\n")
    writer.writeheader()
    for key in keys:
        row = done.get(key) or {"values": refused[key].values, "error": refused[key].error}
        values = {name: row["values"][name] for name in parameters if name in row["values"]}
        told = {name: row[name] for name in last if name in row}
        writer.writerow({"point": key, **values, **row.get("figures", {}), **told})
    return text.getvalue()
