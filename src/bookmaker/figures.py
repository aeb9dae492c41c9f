"""Take a named figure out of an executed chapter, for pages without code."""

from __future__ import annotations

import base64
from html import escape

import nbformat

from bookmaker.errors import ChapterError

PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def figure_file(notebook: nbformat.NotebookNode, name: str) -> tuple[str, bytes]:
    """Return the kind ("svg", "png") and the data of the figure called `name`.

    Raises ChapterError if no cell draws it.
    """
    for cell in notebook.cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            for output in cell.outputs:
                for kind, suffix in PICTURES.items():
                    if picture := output.get("data", {}).get(kind):
                        return suffix, picture_bytes(kind, picture)
    raise ChapterError(f"no cell draws a figure named {name!r}")


def picture_bytes(kind: str, picture: str) -> bytes:
    """Return a picture as a notebook holds it, text or base64, as a file."""
    return picture.encode() if kind == "image/svg+xml" else base64.b64decode(picture)


def labelled(svg: str, alt: str) -> str:
    """Return an SVG that says in words what it shows, as the alt text of an image does."""
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
