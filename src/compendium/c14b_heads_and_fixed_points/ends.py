"""Where the queries of seven texts end in the four loops of `iteration`: a stored table.

One unit is a text and a loop: the first 128 tokens, all layers and heads, as `end_points` counts
them. The least share of queries that came to rest says whether the counts cover all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.gain import first_window
from compendium.c14b_heads_and_fixed_points.iteration import LOOPS, SHARES, end_points
from compendium.common.rows import array_of, grid
from spinformer.language.encoder import LanguageModel, run_model
from spinformer.language.text import TEXTS

TOLERANCE = 1e-7  # in the units of `iteration`: a hundredth of the radius that joins end points


def end_rows(
    model: LanguageModel, loop: str, *, tokens: torch.Tensor, layers: range | None = None
) -> Rows:
    """Rows of the table for one window of tokens (1, N): one a layer and head."""
    traces = run_model(model, tokens)
    return [
        {"layer": layer, "head": head, **found}
        for layer in (range(len(traces)) if layers is None else layers)
        for head, found in enumerate(end_points(model, traces[layer], loop, tolerance=TOLERANCE))
    ]


@stored(Path(__file__).with_name("ends.csv"), units=grid(loop=LOOPS, source=TEXTS))
def ENDS(loop: str, source: str) -> Rows:
    """The end points of one text in one loop."""
    model, window = first_window(source)
    return end_rows(model, loop, tokens=window)


def read_ends(loop: str) -> dict[str, np.ndarray]:
    """The stored end points of a loop by name, as arrays (texts, L, H), texts as in TEXTS.

    "shares" (texts, L, H, 3), one for each of SHARES.
    """
    table, axes = ENDS.read(), ("source", "layer", "head")
    names = ("count", "largest", "entries", "resting")
    shares = np.stack([array_of(table, name, *axes, loop=loop) for name in SHARES], axis=-1)
    return {"shares": shares} | {n: array_of(table, n, *axes, loop=loop) for n in names}
