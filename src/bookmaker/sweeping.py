"""A chapter at many points: an executed notebook and one row of one table for each.

A point that a chapter does not allow is a point all the same: it fails alone.

A folder of results holds `points/KEY.ipynb` and `points/KEY.json` for each finished point (a store
of `bookmaker.sweeps`) and `table.csv`, which is written anew at the end of every call, also of one
that was stopped. The table holds every point that was ever finished in the folder:
those asked for first, in their order. All were computed by the same code; a folder whose points
came from other code is refused.
"""

import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from jupyter_core.utils import ensure_event_loop

from bookmaker.base import (
    BookError,
    ParameterError,
    RunError,
    WorkerDied,
    csv_text,
    write_atomically,
)
from bookmaker.claims import read_claims, results
from bookmaker.execution import execute
from bookmaker.parameters import Parameter, read_number
from bookmaker.source import Chapter
from bookmaker.sweeps.engine import Workers, complete, finished, locked_store, parameter_hash

TABLE = "table.csv"
POINTS = "points"
# The most points that one command asks for.
MOST = 100_000
_LIBRARIES = ("spinformer", "numpy", "scipy", "torch", "numba")

Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One point: what was asked for, in words, the values of all parameters, why it is refused.

    `key` is the name of the point in a folder of results; it depends on the values alone. `values`
    are complete, those that are not asked for at their defaults; those of a point that is refused
    are as they were asked for.
    """

    key: str
    asked: str
    values: Mapping[str, Any]
    error: str = ""


def read_points(chapter: Chapter, asked: Mapping[str, str]) -> list[Point]:
    """Return the points that options ask for, by the name of the parameter, each once, in order.

    Raises ParameterError for a name that the chapter does not have, a range that is none, more than
    100,000 points, or where no point at all is allowed.
    """
    cell = chapter.parameter_cell
    lists = [_values(cell.named(name), text) for name, text in asked.items()]
    if (count := math.prod(map(len, lists))) > MOST:
        raise ParameterError(f"{count} points are asked for, at most {MOST} at a time")
    points: dict[str, Point] = {}
    for chosen in product(*lists):
        texts = dict(zip(asked, chosen, strict=True))
        words = ", ".join(f"{name} = {text}" for name, text in texts.items()) or "the defaults"
        try:
            values = cell.defaults | chapter.check_values(texts)
            point = Point(parameter_hash(values), words, values)
        except ParameterError as error:
            point = Point(parameter_hash({"asked": texts}), words, texts, str(error))
        points.setdefault(point.key, point)
    if all(point.error for point in points.values()):
        raise ParameterError(next(iter(points.values())).error)
    return list(points.values())


def _values(parameter: Parameter, text: str) -> list[str]:
    """The values that a text asks for; only the numbers of a range are computed."""
    if parameter.path:
        return [text]
    texts: list[str] = []
    for part in text.split(","):
        if ":" not in part or parameter.type == "str":
            texts.append(part.strip())
            continue
        values = _spaced(parameter.name, part)
        # Twelve digits: 1.23, not 1.2300000000000002; whole numbers without a point.
        texts += [f"{value:.12g}" for value in values]
    return texts


def _spaced(name: str, text: str) -> np.ndarray:
    """The values of a range: as many as its third number says, not that far from one another."""
    error = ParameterError(
        f"{name}: a range reads low:high:count, 40:80:5 say for five values from 40 to 80, with a "
        f"count from 1 to {MOST}, got {text!r:.60}"
    )
    try:
        low, high, count = text.split(":")
        ends = (read_number(low, "float"), read_number(high, "float"))
        number = int(read_number(count, "int"))
    except ValueError:
        raise error from None
    if not 1 <= number <= MOST:
        raise error
    # Numbers near the largest one overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.linspace(*ends, number)
    if not np.isfinite(values).all():
        raise error
    return values


def finished_points(folder: Path) -> dict[str, Row]:
    """Return the rows of the points that are finished in a folder of results, by key."""
    return finished(folder / POINTS, sound=_is_row)


def _is_row(key: str, row: Any) -> bool:
    """Whether a stored result is a row, and that of the point it is called after."""
    if not isinstance(row, dict) or not isinstance(row.get("error"), str):
        return False
    values = row.get("values")
    figures = row.get("figures")
    return isinstance(values, dict) and isinstance(figures, dict) and parameter_hash(values) == key


def sweep_chapter(
    chapter: Chapter, folder: Path, points: list[Point], *, workers: Workers, again: bool = False
) -> tuple[str, int]:
    """Compute the points that are not finished in `folder` and write the table of all.

    Returns what was done, in words, and how many points have no result. `again` computes points
    that failed once more. Raises RunError for a folder of other work, one that another process
    works on, or if there are no workers, OSError if the folder cannot be written; what is finished
    by then is kept.
    """
    chapter.require_sound()
    wanted = [point for point in points if not point.error]
    claims = [claim for claim in read_claims(chapter.root) if claim.chapter == chapter.name]
    kept_in = folder / POINTS
    table = folder / TABLE

    def kept(key: str, row: Row | WorkerDied) -> Row:
        if isinstance(row, WorkerDied):
            row = {"error": str(row)}
        figures = {}
        if text := row.pop("notebook", ""):
            # Before the row: a point that is finished has its notebook.
            write_atomically(kept_in / f"{key}.ipynb", text + "\n")
            figures = results(nbformat.reads(text, as_version=4), claims)
        return row | {"values": units[key]["values"], "figures": figures}

    with locked_store(kept_in, about={"chapter": chapter.name, "code": chapter.digest}):
        done = finished_points(folder)
        units = {
            point.key: {"values": dict(point.values)}
            for point in wanted
            if point.key not in done or (again and done[point.key]["error"])
        }
        run = partial(run_point, root=str(chapter.root), name=chapter.name, code=chapter.digest)
        try:
            complete(kept_in, run, units, workers=workers, title=chapter.name, kept=kept)
        finally:
            done = finished_points(folder)
            write_atomically(table, _table(chapter, points, done))
    errors = [(point, point.error or done[point.key]["error"]) for point in points]
    failed = [f"  {point.asked}: {error.splitlines()[0]}" for point, error in errors if error]
    summary = f"{len(points)} points: {len(units)} computed now, {len(wanted) - len(units)} there "
    summary += f"already, {len(points) - len(wanted)} refused; {len(failed)} failed"
    return "\n".join([summary, *failed[:10], f"pandas.read_csv({str(table)!r})"]), len(failed)


def run_point(*, root: str, name: str, code: str, values: Mapping[str, Any]) -> Row:
    """Run a chapter at one point, on a worker: notebook, seconds, versions, the error if any.

    Raises WorkerDied if the kernel died, RunError if the worker has other code than `code`.
    """
    begin = time.perf_counter()
    chapter = Chapter(Path(root), name)
    if chapter.digest != code:
        message = f"the code of {name} changed during the sweep, or a worker has another checkout"
        raise RunError(message)
    text = ""
    problem: BookError | None
    try:
        notebook, problem = execute(chapter, values)
        text = nbformat.writes(notebook)
    except ParameterError as error:  # a path that is not there on the worker's machine
        problem = error
    finally:
        # The client of the kernel made a loop for this task, and nobody else closes it.
        ensure_event_loop().close()
    if isinstance(problem, WorkerDied):
        raise problem
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    return {
        "notebook": text,
        "seconds": round(time.perf_counter() - begin, 3),
        "versions": ", ".join([f"python {platform.python_version()}", *libraries]),
        "error": str(problem or ""),
    }


def _table(chapter: Chapter, points: Sequence[Point], done: Mapping[str, Row]) -> str:
    """One line for each finished or refused point: parameters, results, time, versions, error."""
    results: dict[str, Row] = dict(done)
    results |= {p.key: {"values": p.values, "error": p.error} for p in points if p.error}
    keys = dict.fromkeys([*(p.key for p in points if p.key in results), *done])
    figures = dict.fromkeys(name for key in keys for name in results[key].get("figures", ()))
    names = ["point", *chapter.parameter_cell.parameters, *figures, "seconds", "versions", "error"]
    rows = [results[key] | results[key]["values"] | results[key].get("figures", {}) for key in keys]
    lines = ({"point": key, **row} for key, row in zip(keys, rows, strict=True))
    return csv_text(names, lines, extrasaction="ignore")
