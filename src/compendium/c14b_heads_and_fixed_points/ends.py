"""Where the queries of seven texts end in the four loops of `iteration`: a stored table.

One unit is a text and a loop: the first 128 tokens, all layers and heads, as `end_points` counts
them. The least share of queries that came to rest says whether the counts cover all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table
from compendium.c14b_heads_and_fixed_points.gain import first_window
from compendium.c14b_heads_and_fixed_points.iteration import LOOPS, EndPoints, end_points
from spinformer.language.encoder import LanguageModel, run_model
from spinformer.language.text import TEXTS

SHARES = ("single", "metastable", "average")  # as in `hopfield.fixed_points.KINDS`
TOLERANCE = 1e-7  # in the units of `iteration`: a hundredth of the radius that joins end points


def end_rows(
    model: LanguageModel, loop: str, *, tokens: torch.Tensor, layers: range | None = None
) -> Rows:
    """Rows of the table for one window of tokens (1, N): one a layer and head."""
    traces = run_model(model, tokens)
    rows = []
    for layer in range(len(traces)) if layers is None else layers:
        found = end_points(model, traces[layer], loop, tolerance=TOLERANCE)
        rows += [
            {
                "layer": layer,
                "head": head,
                **dict(zip(SHARES, found.shares[head].tolist(), strict=True)),
                "count": int(found.count[head]),
                "largest": float(found.largest[head]),
                "entries": float(found.entries[head]),
                "resting": float(found.resting[head]),
            }
            for head in range(len(found.count))
        ]
    return rows


def _rows(loop: str, source: str) -> Rows:
    model, window = first_window(source)
    return end_rows(model, loop, tokens=window)


ENDS = Table(
    path=Path(__file__).with_name("ends.csv"),
    units=[{"loop": loop, "source": name} for loop in LOOPS for name in TEXTS],
    rows=_rows,
)


def read_ends(loop: str) -> EndPoints:
    """The stored end points of a loop, as arrays (texts, L, H), texts as in TEXTS, shares
    (texts, L, H, 3).
    """
    table = ENDS.read()
    chosen = table["loop"] == loop
    shape = [len(np.unique(table[name][chosen])) for name in ("source", "layer", "head")]
    columns = {
        name: table[name][chosen].reshape(shape)
        for name in ("count", "largest", "entries", "resting", *SHARES)
    }
    shares = np.stack([columns.pop(name) for name in SHARES], axis=-1)
    return EndPoints(shares=shares, **columns)
