"""Take a named figure out of an executed chapter, for pages without code."""

from __future__ import annotations

from html import escape

import nbformat

from bookmaker.errors import ChapterError

SVG = "image/svg+xml"


def figure_file(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """Return the SVG file of the figure called `name`; ChapterError if no cell draws it."""
    for cell in notebook.cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            for output in cell.outputs:
                if picture := output.get("data", {}).get(SVG):
                    return str(picture).encode()
    raise ChapterError(f"no cell draws a figure named {name!r}")


def labelled(svg: str, alt: str) -> str:
    """Return an SVG that says in words what it shows, as the alt text of an image does."""
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
