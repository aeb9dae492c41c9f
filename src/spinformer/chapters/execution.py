"""Run notebooks: the committed ones with their defaults, a reader's with other parameters."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbconvert import HTMLExporter

from spinformer.chapters.parameters import check_values
from spinformer.chapters.project import citation_text, readme_text, repository_address
from spinformer.chapters.source import Chapter, ChapterError, stamp


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`: a reader sees the old file or the whole new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        partial.chmod(0o644)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def execute(
    chapter: Chapter, values: Mapping[str, Any] | None = None, *, progress: bool = True
) -> nbformat.NotebookNode:
    """Return the chapter's notebook, executed in a fresh folder with `values` as parameters.

    Raises ParameterError before a kernel starts if `values` does not fit, papermill's
    PapermillExecutionError if a cell fails, ChapterError if a cell writes to stderr.
    """
    checked = check_values(chapter.parameters, values or {})
    notebook = nbformat.from_dict(chapter.template)
    # Away from the checkout, so that no chapter depends on where it is run.
    with tempfile.TemporaryDirectory() as folder:
        notebook = papermill.execute_notebook(
            notebook,
            None,
            parameters=checked,
            cwd=folder,
            kernel_name="python3",
            progress_bar={"desc": chapter.name} if progress else False,
            extra_arguments=["--IPKernelApp.log_level=50"],
        )
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise ChapterError(f"{chapter.name}, {cell.id} writes to stderr: {output.text}")
    _forget_the_run(notebook, chapter)
    return notebook


def rebuild(chapter: Chapter, *, progress: bool = True) -> None:
    """Execute a chapter with its defaults and replace its committed notebook."""
    notebook = execute(chapter, progress=progress)
    notebook.metadata["spinformer"] = {
        "source": chapter.source_path.name,
        "digest": chapter.digest,
    }
    stamp(notebook, repository_address(chapter.root))
    write_atomically(chapter.notebook_path, nbformat.writes(notebook) + "\n")


def stamp_project(root: Path) -> None:
    """Write today's public address into README.md and CITATION.cff."""
    address = repository_address(root)
    for name, rewrite in (("README.md", readme_text), ("CITATION.cff", citation_text)):
        path = root / name
        before = path.read_text(encoding="utf-8")
        if (after := rewrite(before, address)) != before:
            write_atomically(path, after)


def restamp(chapter: Chapter) -> None:
    """Write today's public address into a notebook that is otherwise up to date."""
    notebook = nbformat.read(chapter.notebook_path, as_version=4)
    before = nbformat.writes(notebook)
    stamp(notebook, repository_address(chapter.root))
    after = nbformat.writes(notebook)
    if after != before:
        write_atomically(chapter.notebook_path, after + "\n")


def run(
    chapter: Chapter,
    folder: Path,
    values: Mapping[str, Any],
    *,
    html: bool = False,
    progress: bool = True,
) -> list[Path]:
    """Run a chapter with other parameters into `folder`; return the files written there."""
    notebook = execute(chapter, values, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{chapter.name}.ipynb"]
    write_atomically(written[0], nbformat.writes(notebook) + "\n")
    if html:
        page, _ = HTMLExporter().from_notebook_node(notebook)
        written.append(folder / f"{chapter.name}.html")
        write_atomically(written[-1], page)
    return written


def _forget_the_run(notebook: nbformat.NotebookNode, chapter: Chapter) -> None:
    # Times, versions and paths would make two runs of the same code differ.
    notebook.metadata = nbformat.from_dict(chapter.template.metadata)
    ids = {cell.source: cell.id for cell in chapter.template.cells}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        cell.id = ids.get(cell.source, "injected-parameters")
