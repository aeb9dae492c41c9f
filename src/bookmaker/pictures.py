"""Pictures that rounding moved: on another processor an edge may be a few shades lighter."""

from __future__ import annotations

import base64
import io

import nbformat
import numpy as np

# Of 255. A line that is 1/40 of a pixel further changes its edges by as much.
SHADES = 6


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
            [output.data for output in one.outputs if "image/png" in output.get("data", {})]
            for one in (cell, old)
        )
        if len(drawn) == len(kept) == 1 and _same(drawn[0], kept[0]):
            drawn[0]["image/png"] = kept[0]["image/png"]


def _same(one: nbformat.NotebookNode, other: nbformat.NotebookNode) -> bool:
    return alike(base64.b64decode(one["image/png"]), base64.b64decode(other["image/png"]))
