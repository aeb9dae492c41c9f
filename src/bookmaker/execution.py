"""Run notebooks: the committed ones with their defaults, a reader's with other parameters."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from papermill.exceptions import PapermillExecutionError

from bookmaker.errors import BookError, RunError
from bookmaker.files import write_atomically
from bookmaker.freshness import read_notebook, spliced
from bookmaker.meaning import has_tag
from bookmaker.page import write_page
from bookmaker.pictures import keep_pictures
from bookmaker.source import Chapter

# One thread for each library: the same sums in the same order on every machine, and as many
# processes at a time as there are cores.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_IN_CELL = re.compile(r"Cell In\[\d+\], line (\d+)")


class CellFailed(RunError):
    """A cell raised, wrote to stderr, or its kernel died; `partial` is the notebook so far."""

    def __init__(self, message: str, partial: nbformat.NotebookNode) -> None:
        """Keep the notebook for whoever wants to look at it."""
        super().__init__(message)
        self.partial = partial


class KernelDied(CellFailed):
    """The kernel's process ended: out of memory, killed, or the fault of a cell."""


def execute(chapter: Chapter, values: Mapping[str, Any] | None = None) -> nbformat.NotebookNode:
    """Return the chapter's notebook, executed in a fresh folder with `values` as parameters.

    Raises SourceError or ParameterError before a kernel starts, CellFailed if a cell raises or
    writes to stderr or the kernel dies.
    """
    chapter.require_sound()
    checked = chapter.check_values(values or {})
    for name in THREADS:
        os.environ.setdefault(name, "1")
    # Away from the checkout, so that no chapter depends on where it is run.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saved:
        reached = Path(saved) / f"{chapter.name}.ipynb"
        problem: Exception | None = None
        try:
            papermill.execute_notebook(
                nbformat.from_dict(chapter.template),
                reached,
                parameters=checked,
                cwd=folder,
                kernel_name="python3",
                # A bar where somebody looks.
                progress_bar={"desc": chapter.name, "disable": None},
                # What a cell writes comes as its output; a kernel whose worker ends under it may
                # complain on the terminal.
                extra_arguments=["--IPKernelApp.log_level=50", "--IPKernelApp.no_stderr=True"],
                # A kernel that is asked to end while a cell runs, since Ctrl-C or a worker's end
                # stops the run, closes its sockets under that cell and complains of it.
                shutdown_kernel="immediate",
            )
        except (DeadKernelError, PapermillExecutionError) as error:
            problem = error
        notebook = nbformat.read(reached, as_version=4)
    # papermill says of each code cell how far it is; the last one begun is where it ended.
    states = [cell.metadata.get("papermill", {}).get("status") for cell in notebook.cells]
    last = max((n for n, state in enumerate(states) if state not in (None, "pending")), default=0)
    _forget_the_run(notebook, chapter)
    if isinstance(problem, DeadKernelError):
        message = "the kernel died in this cell (out of memory?)"
        raise KernelDied(_at(chapter, notebook.cells[last].id, 1, message), notebook)
    for cell in notebook.cells:
        said = [o.text for o in cell.get("outputs", []) if o.get("name") == "stderr"]
        if said and not problem:
            message = f"the cell writes to stderr: {said[0].strip()}"
            raise CellFailed(_at(chapter, cell.id, 1, message), notebook)
    if problem:
        raise CellFailed(_told(chapter, notebook, last, problem), notebook)
    return notebook


def rebuild(chapter: Chapter) -> None:
    """Execute a chapter with its defaults and replace its committed notebook."""
    write_notebook(chapter, execute(chapter))


def write_notebook(chapter: Chapter, executed: nbformat.NotebookNode) -> None:
    """Replace the committed notebook by the source's with the outputs of `executed`.

    A picture that differs from the committed one by rounding is left as it was.
    """
    # A notebook that is not there, or is damaged, has no picture worth keeping.
    with contextlib.suppress(BookError, ValueError, OSError, SyntaxError):
        keep_pictures(executed, read_notebook(chapter.notebook_path))
    notebook = spliced(chapter, executed)
    write_atomically(chapter.notebook_path, nbformat.writes(notebook) + "\n")


def rebuild_all(waiting: Sequence[Chapter], jobs: int) -> Iterator[tuple[str, str]]:
    """Rebuild chapters, `jobs` at a time; yield (name, problem or "") as each one ends."""
    if jobs == 1:
        yield from ((chapter.name, _problem(chapter)) for chapter in waiting)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(_problem, Chapter(chapter.root, chapter.name)): chapter.name
            for chapter in waiting
        }
        try:
            for ended in as_completed(running):
                name, killed = running[ended], ended.exception()
                yield name, f"{name} not run: {killed}" if killed else ended.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _problem(chapter: Chapter) -> str:
    try:
        rebuild(chapter)
    except (BookError, OSError) as error:
        return str(error)
    return ""


def run(
    chapter: Chapter, folder: Path, values: Mapping[str, Any], *, html: bool = False
) -> list[Path]:
    """Run a chapter with other parameters into `folder`; return the files written there.

    If a cell fails, the notebook is kept as far as it came; the error says where.
    """
    chapter.check_values(values)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chapter.name}.ipynb"
    try:
        notebook = execute(chapter, values)
    except CellFailed as error:
        write_atomically(path, nbformat.writes(error.partial) + "\n")
        raise RunError(f"{error}\nThe notebook as far as it came: {path}") from None
    write_atomically(path, nbformat.writes(notebook) + "\n")
    return [path, *([write_page(chapter, notebook, folder)] if html else [])]


def _forget_the_run(notebook: nbformat.NotebookNode, chapter: Chapter) -> None:
    # Times, versions and paths, and where in time a cell's prints are cut into messages, would
    # make two runs of the same code differ.
    CoalesceStreamsPreprocessor().preprocess(notebook, {})
    notebook.metadata = nbformat.from_dict(chapter.template.metadata)
    ids = {(cell.cell_type, cell.source): cell.id for cell in chapter.template.cells}
    for position, cell in enumerate(notebook.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        injected = has_tag(cell, "injected-parameters")
        added = "injected-parameters" if injected else f"added-{position}"
        cell.id = ids.get((cell.cell_type, cell.source), added)


def _at(chapter: Chapter, cell: str, line: int, message: str) -> str:
    """Return `message` with the place in the source, "" for a cell that is not from there."""
    begins = dict(zip((c.id for c in chapter.template.cells), chapter.cell_lines, strict=True))
    if cell in begins:
        return str(chapter.fault(begins[cell] + line - 1, message))
    return f"{chapter.name}: {message}"


def _told(chapter: Chapter, notebook: nbformat.NotebookNode, last: int, error: Any) -> str:
    """Return what a cell raised, and where."""
    cell = notebook.cells[last]
    match = _IN_CELL.search(_ESCAPE.sub("", "\n".join(error.traceback)))
    what = f"{error.ename}: {' '.join(_ESCAPE.sub('', error.evalue or '').split())}"
    if not error.traceback:
        # A magic that does not exist raises nothing and says so on stderr.
        what = " ".join(o.text.strip() for o in cell.outputs if o.get("name") == "stderr")
    return _at(chapter, cell.id, int(match[1]) if match else 1, what)
