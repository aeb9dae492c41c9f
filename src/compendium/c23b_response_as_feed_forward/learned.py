"""How much of the response a network learns, against data and training: table `learned`.

For every seed: a score matrix A, four prototypes, systems of 12 tokens in 16 channels at β = 1 and
g = 0.5, and networks of `per_token`. R² on a quarter of the systems that the training has not seen,
and on as many systems around four other prototypes.

Written down before the table was made: around four prototypes, with both inputs and width 128,
twice the data and 2,500 steps instead of 400 raise R² from about 0.72 to 0.79 at γ = 1 and from
0.40 to 0.51 at γ = 3, in every one of the ten seeds; most of the gain comes from the steps and
not from the data; for random directions, at γ = 1, it is less than 0.02; on other prototypes R²
stays below zero, and longer training makes it worse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bookmaker.tables import Rows, Table
from compendium.c23_anatomy.study import draw_bilinear, draw_tokens
from compendium.c23b_response_as_feed_forward.per_token import (
    fit_per_token,
    own_token_share,
    per_token_data,
)

SITES, DIM = 12, 16
SEEDS = 10
# (systems, steps, width, input) of the networks.
FITS = {
    "clusters": (
        (1500, 400, 128, "both"),
        (1500, 2500, 128, "both"),
        (3000, 2500, 128, "both"),
    ),
    "random": ((1500, 400, 128, "both"), (3000, 2500, 128, "both")),
}


def learned_rows(
    *,
    gamma: float,
    surroundings: str,
    seed: int,
    fits: tuple[tuple[int, int, int, str], ...] | None = None,
    owners: int = 400,
) -> Rows:
    """Rows of the table for one draw: a row a network, with `decided`, the share of the variance
    that the own field decides, and R² on its training systems, on unseen ones and elsewhere.

    `surroundings` is "clusters" or "random"; `elsewhere` is NaN for random directions. The same
    seed draws the same systems for every number of them, the first of which are the same.

    >>> unit = {"gamma": 1.0, "surroundings": "clusters", "seed": 0}
    >>> (row,) = learned_rows(**unit, fits=((40, 20, 0, "both"),), owners=20)
    >>> row["systems"], 0 < row["test"] < row["decided"] + 0.5
    (40, True)
    """
    bilinear = draw_bilinear(DIM, seed=100 * seed + 1)
    physics: dict[str, Any] = {"bilinear": bilinear, "gamma": gamma, "beta": 1.0, "strength": 0.5}
    centres, others = (
        draw_tokens(1, sites=4, dim=DIM, seed=100 * seed + n)[0]
        if surroundings == "clusters"
        else None
        for n in (2, 3)
    )
    decided = own_token_share(
        sites=SITES,
        owners=owners,
        environments=12,
        seed=100 * seed + 4,
        prototypes=centres,
        **physics,
    )
    chosen = FITS[surroundings] if fits is None else fits
    most = max(systems for systems, *_ in chosen)
    sizes: dict[str, Any] = {"sites": SITES, "dim": DIM}
    h = draw_tokens(most, seed=100 * seed + 5, prototypes=centres, **sizes)
    inputs, targets = per_token_data(h, **physics)
    away = None
    if others is not None:
        h = draw_tokens(most // 4, seed=100 * seed + 6, prototypes=others, **sizes)
        away = per_token_data(h, **physics)
    rows = []
    for systems, steps, width, name in chosen:
        part = slice(0, systems * SITES)
        fit = fit_per_token(
            inputs[name][part],
            targets=targets[part],
            width=width,
            steps=steps,
            seed=seed,
            elsewhere=None if away is None else (away[0][name], away[1]),
        )
        rows.append(
            {
                "systems": systems,
                "steps": steps,
                "width": width,
                "input": name,
                "decided": decided,
                "train": fit.train,
                "test": fit.test,
                "elsewhere": fit.elsewhere,
            }
        )
    return rows


LEARNED = Table(
    path=Path(__file__).with_name("learned.csv"),
    units=[
        {"gamma": gamma, "surroundings": surroundings, "seed": seed}
        for seed in range(SEEDS)
        for surroundings, gamma in (("clusters", 1.0), ("clusters", 3.0), ("random", 1.0))
    ],
    rows=learned_rows,
)
