"""Run notebooks: the committed ones with their defaults, a reader's with other parameters."""

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
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
from bookmaker.page import write_page
from bookmaker.pictures import keep_pictures
from bookmaker.source import Chapter

# One thread for each library: the same sums in the same order on every machine, and as many
# processes at a time as there are cores.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_IN_CELL = re.compile(r"Cell In\[\d+\], line (\d+)")


def execute(
    chapter: Chapter, values: Mapping[str, Any] | None = None
) -> tuple[nbformat.NotebookNode, str, bool]:
    """Return the chapter's notebook, executed in a fresh folder with `values` as parameters.

    Behind it comes what is wrong, with its line: a cell raised or wrote to stderr, or the kernel
    died, which the last value says; "" if nothing is. Raises SourceError or ParameterError before a
    kernel starts.
    """
    checked = chapter.check_values(values or {})
    for name in THREADS:
        os.environ.setdefault(name, "1")
    problem, line, died = "", 1, False
    # Away from the checkout, so that no chapter depends on where it is run.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saved:
        reached = Path(saved) / f"{chapter.name}.ipynb"
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
        except DeadKernelError:
            problem, died = "the kernel died in this cell (out of memory?)", True
        except PapermillExecutionError as error:
            # A magic that does not exist raises nothing and says so on stderr.
            if error.traceback:
                problem = f"{error.ename}: {' '.join(_ESCAPE.sub('', error.evalue).split())}"
            if found := _IN_CELL.search(_ESCAPE.sub("", "\n".join(error.traceback))):
                line = int(found[1])
        notebook = nbformat.read(reached, as_version=4)
    # Times, versions, and where in time a cell's prints are cut into messages, would make two runs
    # of the same code differ.
    CoalesceStreamsPreprocessor().preprocess(notebook, {})
    notebook.metadata = nbformat.from_dict(chapter.template.metadata)
    ids = {(cell.cell_type, cell.source): cell.id for cell in chapter.template.cells}
    for number, cell in enumerate(notebook.cells):
        cell.id = ids.get((cell.cell_type, cell.source), f"added-{number}")
        cell.metadata.pop("execution", None)
    # papermill says of each code cell how far it is; the last one begun is where it ended.
    states = {c.id: c.metadata.pop("papermill", {}).get("status") for c in notebook.cells}
    place = [name for name, state in states.items() if state not in (None, "pending")][-1]
    outputs = [(cell.id, output) for cell in notebook.cells for output in cell.get("outputs", [])]
    loud = [(name, output.text) for name, output in outputs if output.get("name") == "stderr"]
    if loud and not problem:
        place, problem = loud[0][0], f"the cell writes to stderr: {loud[0][1].strip()}"
    return notebook, problem and str(chapter.at(place, line, problem)), died


def rebuild(root: Path, name: str) -> str:
    """Execute a chapter with its defaults and replace its committed notebook; say what failed."""
    chapter = Chapter(root, name)
    try:
        notebook, problem, _ = execute(chapter)
        if not problem:
            write_notebook(chapter, notebook)
        return problem
    except (BookError, OSError) as error:
        return str(error)


def write_notebook(chapter: Chapter, executed: nbformat.NotebookNode) -> None:
    """Replace the committed notebook by the source's with the outputs of `executed`.

    A picture that differs from the committed one by rounding is left as it was.
    """
    # A notebook that is not there, or is damaged, has no picture worth keeping.
    with contextlib.suppress(ValueError, OSError, SyntaxError):
        keep_pictures(executed, read_notebook(chapter.notebook_path))
    notebook = spliced(chapter, executed)
    write_atomically(chapter.notebook_path, nbformat.writes(notebook) + "\n")


def run(
    chapter: Chapter, folder: Path, values: Mapping[str, Any], *, html: bool = False
) -> list[Path]:
    """Run a chapter with other parameters into `folder`; return the files written there.

    If a cell fails, the notebook is kept as far as it came; the error says where.
    """
    chapter.check_values(values)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chapter.name}.ipynb"
    notebook, problem, _ = execute(chapter, values)
    write_atomically(path, nbformat.writes(notebook) + "\n")
    if problem:
        raise RunError(f"{problem}\nThe notebook as far as it came: {path}")
    return [path, *([write_page(chapter, notebook, folder)] if html else [])]
