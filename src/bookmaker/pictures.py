"""Pictures that rounding moved: on another processor a line ends a hair's breadth further."""

import re

import nbformat
import numpy as np

SVG = "image/svg+xml"
# In points, of which an ordinary screen shows four in three pixels.
BREADTH = 0.06

_TAGS = re.compile("(<[^>]*>)")
_NAMES = re.compile(r"\bf[0-9a-f]{8}-")
_EMBEDDED = re.compile(r"(?<=base64,)[^\"]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(one: str, other: str) -> bool:
    """Whether two SVG files show the same up to rounding: the same words, no point moved."""
    forms = []
    places = []
    for svg in (one, other):
        _, *pieces = _TAGS.split(svg)
        tags = _EMBEDDED.sub("", _NAMES.sub("", "".join(pieces[::2])))
        # Words, pictures within the drawing, and everything but numbers in the rest.
        forms.append((pieces[1::2], _EMBEDDED.findall(svg), _NUMBER.sub("0", tags)))
        places.append(np.array(_NUMBER.findall(tags), dtype=float))
    return forms[0] == forms[1] and bool(np.abs(places[0] - places[1]).max(initial=0) < BREADTH)


def keep_pictures(executed: nbformat.NotebookNode, before: nbformat.NotebookNode) -> None:
    """Put back the pictures of `before` that cells of `executed` drew again, up to rounding.

    So a chapter that is executed on another processor leaves its notebook as it was.
    """
    drawn_before = {cell.id: drawing(cell) for cell in before.cells}
    for cell in executed.cells:
        old = drawn_before.get(cell.id)
        new = drawing(cell)
        if old and new and alike(new[SVG], old[SVG]):
            new[SVG] = old[SVG]


def drawing(cell: nbformat.NotebookNode) -> dict[str, str]:
    """Return the data of a cell's output that is a drawing, nothing if it has none."""
    drawn = (output.data for output in cell.get("outputs", []) if SVG in output.get("data", {}))
    return next(drawn, {})


def figure_file(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """Return the SVG file of the figure called `name` that a cell of the notebook draws."""
    for cell in notebook.cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == name:
            return drawing(cell)[SVG].encode()
    raise KeyError(name)


def panel_of(svg: str, number: int) -> str:
    """Return an SVG that shows one panel of a drawing, counted from the left.

    Where a drawing may be cut `spinformer.plot.vector` writes into it (`data-columns`); one that
    has a single column is returned as it is.

    >>> whole = '<svg data-columns="0.25" width="8pt" height="2pt" viewBox="0 0 8 2">'
    >>> panel_of(whole, 2)
    '<svg width="6pt" height="2pt" viewBox="2 0 6 2">'
    """
    found = re.search(r' data-columns="([^"]*)"', svg)
    view = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if not found or not view:
        return svg
    width = float(view[1])
    edges = [0.0, *(float(share) * width for share in found[1].split()), width]
    number = min(number, len(edges) - 1)
    left = edges[number - 1]
    wide = edges[number] - left
    shown = f'viewBox="{left:g} 0 {wide:g} {view[2]}"'
    svg = svg.replace(found[0], "", 1).replace(view[0], shown, 1)
    return re.sub(r'width="[\d.]+pt"', f'width="{wide:g}pt"', svg, count=1)
