"""A chapter that was run, as a page to read."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from spinformer.chapters.files import write_atomically
from spinformer.chapters.source import Chapter


def page_files(chapter: Chapter) -> list[str]:
    """Return the names of the files that `write_page` writes."""
    return [f"{chapter.name}.html"]


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> list[Path]:
    """Write the page of an executed chapter into `folder`; return its files."""
    page, _ = HTMLExporter().from_notebook_node(notebook)
    path = folder / f"{chapter.name}.html"
    write_atomically(path, page)
    return [path]
