"""Run notebooks: the committed ones with their defaults, a reader's with other parameters."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from papermill.exceptions import PapermillExecutionError

from bookmaker.errors import BookError, OutputError, RunError
from bookmaker.files import keep, prepare_folder, write_atomically
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

    def __init__(
        self, message: str, partial: nbformat.NotebookNode, *, traceback: str = ""
    ) -> None:
        """Keep the notebook for whoever wants to look at it."""
        super().__init__(message)
        self.partial = partial
        self.traceback = traceback


class KernelDied(CellFailed):
    """The kernel's process ended: out of memory, killed, or the fault of a cell."""


def execute(
    chapter: Chapter, values: Mapping[str, Any] | None = None, *, progress: bool = True
) -> nbformat.NotebookNode:
    """Return the chapter's notebook, executed in a fresh folder with `values` as parameters.

    Raises SourceError or ParameterError before a kernel starts, CellFailed if a cell raises or
    writes to stderr or the kernel dies, RunError if there is no kernel.
    """
    chapter.require_sound()
    checked = chapter.check_values(values or {})
    for name in THREADS:
        os.environ.setdefault(name, "1")
    # Away from the checkout, so that no chapter depends on where it is run.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saved:
        reached = Path(saved) / f"{chapter.name}.ipynb"
        try:
            notebook = papermill.execute_notebook(
                nbformat.from_dict(chapter.template),
                reached,
                parameters=checked,
                cwd=folder,
                kernel_name="python3",
                progress_bar={"desc": chapter.name} if progress else False,
                extra_arguments=["--IPKernelApp.log_level=50"],
                # A kernel that is asked to end while a cell runs, since Ctrl-C or a worker's end
                # stops the run, closes its sockets under that cell and complains of it.
                shutdown_kernel="immediate",
            )
        except NoSuchKernel:
            message = "Jupyter knows no kernel named python3: `python -m ipykernel install --user`"
            raise RunError(f"{chapter.name}: {message}") from None
        except DeadKernelError:
            partial = read_notebook(reached)
            # papermill says of each code cell how far it is; the last one begun is where it died.
            states = [c.metadata.get("papermill", {}).get("status") for c in partial.cells]
            begun = [n for n, state in enumerate(states) if state not in (None, "pending")]
            partial = _forget_the_run(partial, chapter)
            message = "the kernel died in this cell (out of memory?)"
            cell = partial.cells[begun[-1]].id if begun else ""
            raise KernelDied(_at(chapter, cell, 1, message), partial) from None
        except PapermillExecutionError as error:
            partial = _forget_the_run(read_notebook(reached), chapter)
            raise _cell_failed(chapter, partial, error) from None
    notebook = _forget_the_run(notebook, chapter)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                message = f"the cell writes to stderr: {output.text.strip()}"
                raise CellFailed(_at(chapter, cell.id, 1, message), notebook)
    return notebook


def rebuild(chapter: Chapter, *, progress: bool = True) -> None:
    """Execute a chapter with its defaults and replace its committed notebook."""
    write_notebook(chapter, execute(chapter, progress=progress))


def write_notebook(chapter: Chapter, executed: nbformat.NotebookNode) -> None:
    """Replace the committed notebook by the source's with the outputs of `executed`.

    A picture that differs from the committed one by rounding is left as it was.
    """
    # A notebook that is not there, or is damaged, has no picture worth keeping.
    with contextlib.suppress(BookError, ValueError, OSError, SyntaxError):
        keep_pictures(executed, read_notebook(chapter.notebook_path))
    notebook = spliced(chapter, executed)
    write_atomically(chapter.notebook_path, nbformat.writes(notebook) + "\n")


def rebuild_all(
    waiting: Sequence[Chapter], jobs: int, *, progress: bool = True
) -> Iterator[tuple[str, str]]:
    """Rebuild chapters, `jobs` at a time; yield (name, problem or "") as each one ends."""
    if jobs == 1:
        for chapter in waiting:
            yield _try_to_rebuild(chapter, progress)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(_try_to_rebuild, Chapter(chapter.root, chapter.name), progress): chapter
            for chapter in waiting
        }
        try:
            for ended in as_completed(running):
                try:
                    yield ended.result()
                except BrokenProcessPool:
                    yield running[ended].name, "not run: a worker was killed (out of memory?)"
        finally:
            pool.shutdown(cancel_futures=True)


def _try_to_rebuild(chapter: Chapter, progress: bool) -> tuple[str, str]:
    try:
        rebuild(chapter, progress=progress)
    except CellFailed as error:
        return chapter.name, f"{error}\n{error.traceback}".strip()
    except BookError as error:
        return chapter.name, str(error)
    except OSError as error:
        return chapter.name, f"cannot write the notebook: {error.strerror}"
    return chapter.name, ""


def run(
    chapter: Chapter,
    folder: Path,
    values: Mapping[str, Any],
    *,
    html: bool = False,
    progress: bool = True,
) -> list[Path]:
    """Run a chapter with other parameters into `folder`; return the files written there.

    Whatever goes wrong after the first cell ran, the notebook is kept: in `folder`, or in a
    temporary folder if it cannot be written there any more. The error says where.
    """
    chapter.require_sound()
    checked = chapter.check_values(values)
    name = f"{chapter.name}.ipynb"
    prepare_folder(folder, [name, *([f"{chapter.name}.html"] if html else [])])
    try:
        notebook = execute(chapter, checked, progress=progress)
    except CellFailed as error:
        path = keep(folder, name, nbformat.writes(error.partial) + "\n")
        raise RunError(f"{error}\nThe notebook as far as it came: {path}") from None
    path = keep(folder, name, nbformat.writes(notebook) + "\n")
    if path.parent != folder:
        raise OutputError(f"{folder} could not be written any more; the notebook is {path}")
    return [path, *(write_page(chapter, notebook, folder) if html else [])]


def _forget_the_run(notebook: nbformat.NotebookNode, chapter: Chapter) -> nbformat.NotebookNode:
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
    return notebook


def _at(chapter: Chapter, cell: str, line: int, message: str) -> str:
    """Return `message` with the place in the source, "" for a cell that is not from there."""
    for known, begin in zip(chapter.template.cells, chapter.cell_lines, strict=True):
        if known.id == cell:
            return str(chapter.fault(begin + line - 1, message))
    return f"{chapter.name}: {message}"


def _cell_failed(
    chapter: Chapter, partial: nbformat.NotebookNode, error: PapermillExecutionError
) -> CellFailed:
    traceback = _ESCAPE.sub("", "\n".join(error.traceback))
    match = _IN_CELL.search(traceback)
    what = f"{error.ename}: {' '.join(_ESCAPE.sub('', error.evalue or '').split())}"
    place = f"{chapter.name}: {what}"
    for cell in partial.cells:
        outputs = cell.get("outputs", [])
        failed = any(output.output_type == "error" for output in outputs)
        if failed or (not traceback and cell.get("execution_count") == error.exec_count):
            # A magic that does not exist raises nothing and says so on stderr.
            printed = " ".join(o.text.strip() for o in outputs if o.get("name") == "stderr")
            line = int(match[1]) if match else 1
            place = _at(chapter, cell.id, line, what if failed or not printed else printed)
            break
    return CellFailed(place, partial, traceback=traceback)
