"""Whether a committed notebook is what its source says, and what it takes to make it so.

A notebook carries two digests: of what the code meant when it was executed, and of the outputs it
then gave. Where both still hold, everything else (prose, captions, tags, comments in the code) is
taken over from the source without executing anything.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nbformat

from bookmaker.errors import BookError
from bookmaker.meaning import code_cells, has_tag, outputs_digest
from bookmaker.project import repository_address
from bookmaker.source import Chapter, install_source


@dataclass(frozen=True)
class State:
    """Why a notebook must be written anew ("" if it is up to date), and whether by executing."""

    reason: str = ""
    execute: bool = False


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook; BookError that names the file if it cannot be read."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except Exception as error:
        # nbformat raises a dozen kinds of errors for what is not a notebook.
        first = str(error).strip().partition("\n")[0]
        message = f"notebooks/{path.name} cannot be read ({first}): `make notebooks` writes it anew"
        raise BookError(message) from None


@lru_cache(maxsize=100)
def _parsed(text: str) -> nbformat.NotebookNode:
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    return notebook


def state(chapter: Chapter) -> State:
    """Return whether and how the committed notebook must be written anew."""
    try:
        notebook = read_notebook(chapter.notebook_path)
    except BookError as error:
        return State(str(error), True)
    known = notebook.metadata.get("spinformer", {})
    if known.get("code") != chapter.digest:
        return State("its code or what it imports changed", True)
    if known.get("outputs") != outputs_digest(notebook):
        return State("its outputs are not those it was executed with", True)
    if spliced(chapter, notebook) != notebook:
        return State("its text is not that of the source", False)
    return State()


def spliced(chapter: Chapter, executed: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook of the source with the outputs of `executed`, cell by code cell."""
    notebook = nbformat.from_dict(chapter.template)
    for cell, done in zip(code_cells(notebook), code_cells(executed), strict=True):
        cell.outputs = nbformat.from_dict(done.outputs)
        cell.execution_count = done.execution_count
        if has_tag(cell, "install"):
            cell.source = install_source(repository_address(chapter.root))
    notebook.metadata["spinformer"] = {
        "source": chapter.source_path.name,
        "code": chapter.digest,
        "outputs": outputs_digest(notebook),
    }
    return notebook
