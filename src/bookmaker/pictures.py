"""Pictures that rounding moved: on another processor a line ends a hair's breadth further."""

from __future__ import annotations

import base64
import io
import re

import nbformat
import numpy as np

from bookmaker.figures import SVG

# Of 255. A line that is 1/40 of a pixel further changes its edges by as much.
SHADES = 6
# In points, of which an ordinary screen shows four in three pixels.
BREADTH = 0.06

_NAMES = re.compile(r"\bf[0-9a-f]{8}-")
_EMBEDDED = re.compile(r"(?<=base64,)[^\"]+")
_WORDS = re.compile(r"(?<=>)[^<>]*\S[^<>]*(?=<)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(one: bytes, other: bytes) -> bool:
    """Whether two PNG files show the same up to rounding: no pixel differs by more than `SHADES`.

    >>> from matplotlib.image import imsave
    >>> def gray(shade):
    ...     stream = io.BytesIO()
    ...     imsave(stream, np.full((2, 2, 3), shade, dtype=np.uint8), format="png")
    ...     return stream.getvalue()
    >>> alike(gray(100), gray(103)), alike(gray(100), gray(120))
    (True, False)
    """
    # Here, since only a build looks at pictures, and the command's other parts start faster.
    from matplotlib.image import imread

    first, second = (imread(io.BytesIO(data), format="png") for data in (one, other))
    if first.shape != second.shape:
        return False
    return float(np.abs(first - second).max(initial=0.0)) < (SHADES + 0.5) / 255


def alike_svg(one: str, other: str) -> bool:
    """Whether two SVG files show the same up to rounding: the same words, no point moved.

    Pictures within them are compared as `alike` does.

    >>> def line(x, word):
    ...     return f'<svg><path d="M{x} 1"/><text>{word}</text></svg>'
    >>> others = line(1, "a 2"), line(1, "a 3"), line(2, "a 2")
    >>> [alike_svg(line(1.01, "a 2"), other) for other in others]
    [True, False, False]
    """
    if _WORDS.findall(one) != _WORDS.findall(other):
        return False
    pictures = [[base64.b64decode(p) for p in _EMBEDDED.findall(text)] for text in (one, other)]
    plain = [_EMBEDDED.sub("", _NAMES.sub("", _WORDS.sub("", text))) for text in (one, other)]
    if len({_NUMBER.sub("0", text) for text in plain}) > 1:
        return False
    first, second = (np.array(_NUMBER.findall(text), dtype=float) for text in plain)
    moved = np.abs(first - second).max(initial=0.0)
    return bool(moved < BREADTH) and all(alike(*pair) for pair in zip(*pictures, strict=True))


def keep_pictures(executed: nbformat.NotebookNode, before: nbformat.NotebookNode) -> None:
    """Put back the pictures of `before` that cells of `executed` drew again, up to rounding.

    So a chapter that is executed on another processor leaves its notebook as it was.
    """
    known = {cell.id: cell for cell in before.cells if cell.cell_type == "code"}
    for cell in executed.cells:
        old = known.get(cell.id)
        if cell.cell_type != "code" or old is None:
            continue
        drawn, kept = (
            [output.data for output in outputs if SVG in output.get("data", {})]
            for outputs in (cell.outputs, old.outputs)
        )
        if len(drawn) == len(kept) == 1 and alike_svg(drawn[0][SVG], kept[0][SVG]):
            drawn[0][SVG] = kept[0][SVG]
