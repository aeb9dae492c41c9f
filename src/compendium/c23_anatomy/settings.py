"""Robustness of what chapter 23 says of the parts of the magnetization, on drawn systems.

With the diagonal of the couplings masked, as in the chapter, or kept, as in [bal2021transformers],
whose sums run over all pairs.

The regions were written before the confirming tables were drawn. B9: couplings up to g = 0.2, at
any of the scores that were tried (γ up to 3). B12: γ up to 1, and tokens around prototypes or the
diagonal kept.
"""

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c23_anatomy.study import (
    SHORT,
    dissect,
    draw_bilinear,
    draw_tokens,
    learned_kept,
    learned_rows,
    learned_table,
)
from compendium.common.rows import array_of, mean_rows, median_rows, numbered, parameter_product

CHANNELS = 32
SYSTEMS = 12
WITHIN = {"value": 0.02, "low": 0.02, "high": 0.02}


def residual_rows(
    data: int, strength: float, gamma: float, sites: int, scores: str, diagonal: str
) -> Rows:
    """Share of the residual in the magnetization less one half: mean of twelve systems."""
    fields = draw_tokens(SYSTEMS, sites=sites, dim=CHANNELS, seed=data)
    if scores == "random":
        bilinear = draw_bilinear(CHANNELS, seed=data + 1)
    else:
        bilinear = torch.eye(CHANNELS, dtype=torch.float64)
    parts = dissect(
        fields,
        bilinear=bilinear,
        beta=1.0,
        gamma=gamma,
        strength=strength,
        mask_diagonal=diagonal == "masked",
    )
    return mean_rows(parts.shares()["residual"].numpy() - 0.5)


settings_b9 = stored(
    "settings_B9",
    numbered(
        parameter_product(
            strength=(0.1, 0.2, 0.5, 1.0),
            gamma=(0.3, 1.0, 3.0),
            sites=(12, 48),
            scores=("random", "identity"),
            diagonal=("masked", "kept"),
        ),
        first=1000,
        step=2,
    ),
    seconds=0.1,
    within=WITHIN,
)(residual_rows)
# Other systems at other strengths, scores and sizes, drawn after the region.
confirm_b9 = stored(
    "confirm_B9",
    numbered(
        parameter_product(
            strength=(0.05, 0.15, 0.2),
            gamma=(0.5, 2.0, 3.0),
            sites=(24, 96),
            scores=("random", "identity"),
            diagonal=("masked", "kept"),
        ),
        first=5000,
        step=2,
    ),
    seconds=0.1,
    within=WITHIN,
)(residual_rows)


@stored(
    "settings_B12",
    [
        {"diagonal": diagonal, "surroundings": surroundings, "gamma": gamma, "steps": steps}
        for diagonal in ("masked", "kept")
        for surroundings, gamma in (("clusters", 1.0), ("clusters", 3.0), ("random", 1.0))
        for steps in (400, 2500)
    ],
    seconds=0.1,
)
def settings_b12(diagonal: str, surroundings: str, gamma: float, steps: int) -> Rows:
    """How far what is learned of the response is above one half: median and range of five.

    After short training, or after long training on twice the systems.
    """
    table = (learned_table if diagonal == "masked" else learned_kept).read()
    learned = array_of(
        table,
        "test",
        "seed",
        surroundings=surroundings,
        gamma=gamma,
        steps=steps,
        systems=1500 if steps == 400 else 3000,
    )
    rows = []
    for half, seeds in (("first", slice(5)), ("last", slice(5, 10))):
        (line,) = median_rows(learned[seeds] - 0.5)
        rows.append({"data": f"{diagonal} {surroundings} {gamma:g} {half}"} | line)
    return rows


@stored(
    "confirm_B12",
    [
        {"diagonal": diagonal, "surroundings": surroundings, "gamma": gamma, "steps": 400}
        for gamma in (0.5, 1.0)
        for diagonal, surroundings in (
            ("masked", "clusters"),
            ("kept", "clusters"),
            ("kept", "random"),
        )
    ],
    seconds=20.0,
    within=dict.fromkeys(WITHIN, 0.05),
)
def confirm_b12(diagonal: str, surroundings: str, gamma: float, steps: int) -> Rows:
    """As `settings_b12` after short training, from other seeds."""
    rows = []
    for seeds in (range(20, 25), range(25, 30)):
        learned = [
            learned_rows(
                gamma,
                surroundings,
                seed,
                lessons=(SHORT,),
                mask_diagonal=diagonal == "masked",
                beside=False,
            )[0]["test"]
            for seed in seeds
        ]
        (line,) = median_rows(np.array(learned) - 0.5)
        run = f"{diagonal} {surroundings} {gamma:g} from seed {seeds[0]}"
        rows.append({"data": run} | line)
    return rows
