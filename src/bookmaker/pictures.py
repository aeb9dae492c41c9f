"""Pictures that rounding moved: on another processor a line ends a hair's breadth further."""

from __future__ import annotations

import base64
import io
import re

import nbformat
import numpy as np

SVG = "image/svg+xml"
# Of 255. A line that is 1/40 of a pixel further changes its edges by as much.
SHADES = 6
# In points, of which an ordinary screen shows four in three pixels.
BREADTH = 0.06

_NAMES = re.compile(r"\bf[0-9a-f]{8}-")
_EMBEDDED = re.compile(r"(?<=base64,)[^\"]+")
_WORDS = re.compile(r"(?<=>)[^<>]*\S[^<>]*(?=<)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(one: str, other: str) -> bool:
    """Whether two SVG files show the same up to rounding: the same words, no point moved.

    In pictures within them no pixel differs by more than `SHADES`.

    >>> def line(x, word):
    ...     return f'<svg><path d="M{x} 1"/><text>{word}</text></svg>'
    >>> others = line(1, "a 2"), line(1, "a 3"), line(2, "a 2")
    >>> [alike(line(1.01, "a 2"), other) for other in others]
    [True, False, False]
    """
    plain = [_EMBEDDED.sub("", _NAMES.sub("", _WORDS.sub("", text))) for text in (one, other)]
    forms = [
        (_NUMBER.sub("0", text), *_WORDS.findall(svg))
        for text, svg in zip(plain, (one, other), strict=True)
    ]
    if forms[0] != forms[1]:
        return False
    first, second = (np.array(_NUMBER.findall(text), dtype=float) for text in plain)
    pairs = zip(_EMBEDDED.findall(one), _EMBEDDED.findall(other), strict=True)
    moved = np.abs(first - second).max(initial=0.0) >= BREADTH
    return not moved and all(_same_pixels(*pair) for pair in pairs)


def _same_pixels(one: str, other: str) -> bool:
    # Here, since only a build looks at pictures, and the command's other parts start faster.
    from matplotlib.image import imread

    first, second = (
        imread(io.BytesIO(base64.b64decode(data)), format="png") for data in (one, other)
    )
    limit = (SHADES + 0.5) / 255
    return first.shape == second.shape and bool(np.abs(first - second).max() < limit)


def keep_pictures(executed: nbformat.NotebookNode, before: nbformat.NotebookNode) -> None:
    """Put back the pictures of `before` that cells of `executed` drew again, up to rounding.

    So a chapter that is executed on another processor leaves its notebook as it was.
    """
    known = {cell.id: drawing(cell) for cell in before.cells}
    for cell in executed.cells:
        old, new = known.get(cell.id), drawing(cell)
        if old and new and alike(new[SVG], old[SVG]):
            new[SVG] = old[SVG]


def drawing(cell: nbformat.NotebookNode) -> dict[str, str]:
    """Return the data of a cell's output that is a drawing, nothing if it has none."""
    drawn = (output.data for output in cell.get("outputs", []) if SVG in output.get("data", {}))
    return next(drawn, {})


def figure_file(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """Return the SVG file of the figure called `name` that a cell of the notebook draws."""
    named = (
        c
        for c in notebook.cells
        if c.metadata.get("mystnb", {}).get("figure", {}).get("name") == name
    )
    return drawing(next(named))[SVG].encode()
