"""Where the queries of seven texts end in the four loops of `iteration`: a stored table.

One unit is a text and a loop: the first 128 tokens, all layers and heads, as `end_points` counts
them. The least share of queries that came to rest says whether the counts cover all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.gain import first_window
from compendium.c14b_heads_and_fixed_points.iteration import LOOPS, SHARES, end_points
from compendium.common.rows import array_of, grid, mean_rows
from spinformer.language.encoder import run_model
from spinformer.language.text import TEXTS

TOLERANCE = 1e-7  # in the units of `iteration`: a hundredth of the radius that joins end points


@stored(Path(__file__).with_name("ends.csv"), units=grid(loop=LOOPS, source=TEXTS))
def ENDS(loop: str, source: str) -> Rows:
    """The end points of one text in one loop, one row a layer and head."""
    model, window = first_window(source)
    return [
        {"layer": trace.layer, "head": head, **found}
        for trace in run_model(model, window)
        for head, found in enumerate(end_points(model, trace, loop, tolerance=TOLERANCE))
    ]


@stored(
    Path(__file__).with_name("settings_A15.csv"),
    units=grid(loop=("keys", "readback"), source=TEXTS, asked=(0.02, 0.05)),
    seconds=0.1,
)
def SETTINGS(loop: str, source: str, asked: float) -> Rows:
    """Table of settings of A15: a row for each kind of end point, by loop and text.

    value: the mean share over heads of the queries that end there, less the share asked for.
    """
    table = ENDS.read()
    here = (table["loop"] == loop) & (table["source"] == source)
    return [{"kind": k} | row for k in SHARES for row in mean_rows(table[k][here] - asked)]


def read_ends(loop: str) -> dict[str, np.ndarray]:
    """The stored end points of a loop by name, as arrays (texts, L, H), texts as in TEXTS.

    "shares" (texts, L, H, 3), one for each of SHARES.
    """
    table, axes = ENDS.read(), ("source", "layer", "head")
    names = ("count", "largest", "entries", "resting")
    shares = np.stack([array_of(table, name, *axes, loop=loop) for name in SHARES], axis=-1)
    return {"shares": shares} | {n: array_of(table, n, *axes, loop=loop) for n in names}
