"""Run notebooks: the committed ones with their defaults, a reader's with other parameters.

The page of a chapter that was run reads without a network: pictures and style are in it, MathJax
lies in a folder beside it.
"""

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import DeadKernelError
from nbconvert import HTMLExporter
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from papermill.exceptions import PapermillExecutionError

from bookmaker.base import BookError, RunError, SourceError, WorkerDied, write_atomically
from bookmaker.figures import FIGURES
from bookmaker.pictures import keep_pictures
from bookmaker.provenance import stored_cells
from bookmaker.source import Chapter, has_tag, read_notebook

# What stands for a number that a run did not hand over.
MISSING = "(not computed)"
# Below a cell of a run with other parameters.
STORED = (
    "> *From a stored table, which the parameters of this run do not change: it describes the "
    "defaults.*"
)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_IN_CELL = re.compile(r"Cell In\[\d+\], line (\d+)")
_TEMPLATE = Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
# That a kernel died is said here; papermill says so, too, where nobody has set up logging.
logging.getLogger("papermill").addHandler(logging.NullHandler())
# What MyST adds to Markdown, in HTML: sources, boxes, labels of equations, links within the book.
_MYST = {
    r"\{cite(?::\w+)?\}`([^`]+)`": r"[\1]",
    r"(?m)^( *):{3,}\{\w+\} *(.*)\n(?: *:\w+:.*\n)*((?:.*\n)*?)\1:{3,}$": (
        r'\1<div class="box">\n\n\1**\2**\n\n\3\n\1</div>'
    ),
    r"\$\$ \((eq-[\w-]+)\)": r'$$ <a id="\1"></a>(\1)',
    r"(?<!!)\[\]\((?!https?:|#)[^)\s]*?([^/)\s]+?)\.\w+(?:#\S+)?\)": r"\1",
    r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)\s]+\)": r"\1",
}


class QuietKernel(AsyncKernelManager):
    """A kernel that says nothing on the terminal, also while it starts, or is ended then.

    It draws into the notebook, also where a reader's environment names another backend.
    """

    # The asynchronous manager of the library itself departs from its parent in this type.
    async def start_kernel(  # type: ignore[override]
        self, *arguments: Any, **options: Any
    ) -> None:
        """Start it with nowhere to complain to."""
        environment = dict(options.pop("env", os.environ))
        environment.pop("MPLBACKEND", None)
        await super().start_kernel(
            *arguments, stderr=subprocess.DEVNULL, env=environment, **options
        )


def execute(
    chapter: Chapter, values: Mapping[str, Any]
) -> tuple[nbformat.NotebookNode, RunError | None]:
    """Return the chapter's notebook, executed in a fresh folder with `values` as parameters.

    Below its title it says which values are not the defaults. Behind it comes what is wrong, with
    its line: a cell raised or wrote to stderr, or (`WorkerDied`) the kernel died. Raises
    SourceError or ParameterError before a kernel starts.
    """
    checked = chapter.check_values(values)
    # One thread, OpenBLAS and MKL read this, too: the same sums in the same order on every machine,
    # and as many processes at a time as there are cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    problem = ""
    place = ""
    line = 1
    kind = RunError
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
                kernel_manager_class=QuietKernel,
                # A kernel that is asked to end while a cell runs, since Ctrl-C or a worker's end
                # stops the run, closes its sockets under that cell and complains of it.
                shutdown_kernel="immediate",
            )
        except KeyboardInterrupt:
            _end_tasks()
            raise
        except DeadKernelError:
            problem = "the kernel died in this cell (out of memory?)"
            kind = WorkerDied
        except RuntimeError as error:
            raise WorkerDied(f"{chapter.name}: no kernel could be started: {error}") from None
        except PapermillExecutionError as error:
            # A magic that does not exist raises nothing and says so on stderr.
            if error.traceback:
                problem = f"{error.ename}: {' '.join(_ESCAPE.sub('', error.evalue).split())}"
            if match := _IN_CELL.search(_ESCAPE.sub("", "\n".join(error.traceback))):
                line = int(match[1])
        notebook = nbformat.read(reached, as_version=4)
    # Times, versions, and where in time a cell's prints are cut into messages, would make two runs
    # of the same code differ.
    CoalesceStreamsPreprocessor().preprocess(notebook, {})
    notebook.metadata = nbformat.from_dict(chapter.template.metadata)
    ids = {(cell.cell_type, cell.source): cell.id for cell in chapter.template.cells}
    loud = []
    for number, cell in enumerate(notebook.cells):
        cell.id = ids.get((cell.cell_type, cell.source), f"added-{number}")
        cell.metadata.pop("execution", None)
        # papermill says of each code cell how far it is; the last one begun is where it ended.
        if cell.metadata.pop("papermill", {}).get("status") not in (None, "pending"):
            place = cell.id
        outputs = cell.get("outputs", [])
        loud += [(cell.id, o.text) for o in outputs if o.get("name") == "stderr"]
    fill_text(chapter, notebook)
    if loud and not problem:
        place = loud[0][0]
        problem = f"the cell writes to stderr: {loud[0][1].strip()}"
    if note := parameters_told(chapter, checked):
        title, _, text = notebook.cells[0].source.partition("\n")
        notebook.cells[0].source = f"{title}\n\n{note}\n\n{text.lstrip()}"
        mark_stored(chapter.root, notebook)
    return notebook, kind(str(chapter.fault(line, problem, place))) if problem else None


def mark_stored(root: Path, notebook: nbformat.NotebookNode) -> None:
    """Say below each output that is read from a stored table that no parameter changes it."""
    stored = stored_cells(root, notebook)
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        shown = [o for o in cell.get("outputs", []) if set(o.get("data", "-")) != {FIGURES}]
        if cell.id in stored and shown:
            cells.append(nbformat.v4.new_markdown_cell(STORED, id=f"{cell.id[:50]}-stored"))
    notebook.cells = cells


def _end_tasks() -> None:
    """Cancel what a run that was stopped has left waiting for its kernel, which complains else."""
    loop = ensure_event_loop()
    # What already ended with an error, since its kernel did, was to be read by nobody.
    loop.set_exception_handler(lambda *_: None)
    waiting = asyncio.all_tasks(loop)
    for task in waiting:
        task.cancel()
    if waiting and not loop.is_running():
        loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))


def parameters_told(chapter: Chapter, values: Mapping[str, Any]) -> str:
    """Return what a reader of a run with other parameters must know, "" where all are defaults."""
    defaults = chapter.parameter_cell.defaults
    changed = [
        f"`{name}` = `{value!r}` (default `{defaults[name]!r}`)"
        for name, value in values.items()
        if value != defaults[name]
    ]
    if not changed:
        return ""
    return (
        f"> **Run with other parameters:** {', '.join(changed)}. Figures, tables and the "
        "numbers that the text reads from them are those of this run. The words of the text, the "
        "verdicts on claims and what is read from stored tables, which is marked, describe the "
        "defaults."
    )


def rebuild(root: Path, name: str) -> str:
    """Execute a chapter with its defaults and replace its committed notebook; say what failed."""
    chapter = Chapter(root, name)
    try:
        notebook, failed = execute(chapter, {})
        if not failed:
            write_notebook(chapter, notebook)
        return str(failed or "")
    except (BookError, OSError) as error:
        return str(error)


def write_notebook(chapter: Chapter, executed: nbformat.NotebookNode) -> None:
    """Replace the committed notebook by the source's with the outputs of `executed`.

    A picture that differs from the committed one by rounding is left as it was. Raises SourceError
    if the text reads a figure that no cell handed over; what was executed is kept even then, so
    that a name can be mended without executing again.
    """
    # A notebook that is not there, or is damaged, has no picture worth keeping.
    with contextlib.suppress(ValueError, OSError, SyntaxError):
        keep_pictures(executed, read_notebook(chapter.notebook_path))
    try:
        notebook = chapter.merge_outputs(executed)
        problem = None
    except SourceError as error:
        notebook = chapter.merge_outputs(executed, missing=MISSING)
        problem = error
    write_atomically(chapter.notebook_path, nbformat.writes(notebook) + "\n")
    if problem:
        raise problem


def run(
    chapter: Chapter, folder: Path, values: Mapping[str, Any], *, html: bool = False
) -> list[Path]:
    """Run a chapter with other parameters into `folder`; return the files written there.

    If a cell fails, the notebook is kept as far as it came; the error says where.
    """
    chapter.check_values(values)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chapter.name}.ipynb"
    notebook, error = execute(chapter, values)
    write_atomically(path, nbformat.writes(notebook) + "\n")
    if error:
        raise RunError(f"{error}\nThe notebook as far as it came: {path}")
    if not html:
        return [path]
    try:
        return [path, write_page(chapter, notebook, folder)]
    except OSError as problem:
        raise RunError(f"the page could not be written, {problem}; {path} is kept") from None


def fill_text(chapter: Chapter, executed: nbformat.NotebookNode) -> None:
    """Put the numbers of a run into the text, captions and alt texts of its notebook."""
    texts = {cell.id: cell for cell in chapter.filled_template(executed, MISSING).cells}
    for cell in executed.cells:
        if filled_cell := texts.get(cell.id):
            cell.metadata = filled_cell.metadata
            if cell.cell_type == "markdown":
                cell.source = filled_cell.source


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> Path:
    """Write the page of an executed chapter into `folder`, with MathJax beside it."""
    shown = nbformat.from_dict(notebook)
    shown.cells = [cell for cell in shown.cells if not has_tag(cell, "remove-cell")]
    for cell in shown.cells:
        if cell.cell_type == "markdown":
            cell.source = _plain(cell.source)
        else:
            # Figures by name are for the text, nothing to show.
            cell.outputs = [o for o in cell.outputs if set(o.get("data", "-")) != {FIGURES}]
    exporter = HTMLExporter(raw_template=_TEMPLATE, filters={"plain": _plain})
    text, _ = exporter.from_notebook_node(shown, {"metadata": {"name": chapter.title}})
    static = chapter.root / "book" / "_static"
    for file in sorted((static / "mathjax").rglob("*")):
        if file.is_file():
            copy = folder / file.relative_to(static)
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copy, file.read_bytes())
    page = folder / f"{chapter.name}.html"
    write_atomically(page, text)
    return page


def _plain(text: str) -> str:
    for pattern, words in _MYST.items():
        text = re.sub(pattern, words, text)
    return text
