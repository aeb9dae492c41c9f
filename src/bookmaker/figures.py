"""Take a named figure out of an executed chapter, for pages without code."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat

from bookmaker.errors import ChapterError
from bookmaker.freshness import read_notebook

COVER = ("33_phase_transitions", "fig-phase-wide")


def figure_png(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """Return the image drawn by the cell whose figure is called `name`; ChapterError if none."""
    for cell in notebook.cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output.data["image/png"])
    raise ChapterError(f"no cell draws a figure named {name!r}")


def cover_png(root: Path) -> bytes:
    """Return the figure that README.md and the front page show."""
    chapter, name = COVER
    return figure_png(read_notebook(root / "notebooks" / f"{chapter}.ipynb"), name)
