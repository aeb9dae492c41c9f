"""Spins in the place of attention in a layer, and correlations along a stack: grids of trainings.

The predictions of the chapter were written before any of these tables was made. The regions were
written before the confirming tables were drawn, on splits that no grid has: B11 starts up to
g = 0.3. B8c had three regions, starts from g = 0.6, from there to 3, and to 2. Of sixteen new
trainings in the first two failed, and of twelve in each of the others one, all of them in recall.
The latter 24 are in `fresh_B8c`.
"""

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import median_rows, parameter_product
from compendium.common.token_tasks import digit_task, recall_task
from compendium.common.token_training import train_arm
from compendium.common.training_grids import (
    FRESH_SPLITS,
    QUARTERS,
    WITHIN_LEADS,
    Cell,
    Grid,
    best_rate,
    fresh_trainings,
    lead_rows,
    stored_leads,
    trainings,
)

FOLDER = Path(__file__).parent
# What spins may lose against attention and still stand in its place.
MARGIN = 0.05
MIXERS = ("attention", "averaging", "identity")
LAYERS = ("layer of spins", "layer of attention", "layer of averaging", "layer of identity")
GRIDS = {
    grid.name: grid
    for grid in (
        Grid(
            "depth",
            FOLDER,
            digit_task,
            range(20, 25),
            {"saddle": QUARTERS[1:8:2]},
            [(("saddle",), (0.3, 0.6, 0.2, 0.45), (120,))],
            depth=4,
        ),
        Grid(
            "depth_weaker",
            FOLDER,
            digit_task,
            range(20, 25),
            {"saddle": QUARTERS[1:4:2]},
            [(("saddle",), (0.1, 0.15), (120,))],
            depth=4,
        ),
        # Spins and attention change places again on splits drawn after the verdict.
        *(
            Grid(
                f"layers_{name}{again}",
                FOLDER,
                task,
                splits,
                dict.fromkeys(arms, QUARTERS[1:last:2]),
                [(arms, (0.6,), (200,)), (LAYERS[:1], (0.3, 2.0), (200,))],
            )
            for name, task, last in (("digits", digit_task, 8), ("recall", recall_task, 6))
            for again, splits, arms in (
                ("", range(20, 25), MIXERS + LAYERS),
                ("_again", range(25, 30), LAYERS[:2]),
            )
        ),
    )
}
TABLES = {name: grid.table for name, grid in GRIDS.items()}


@stored(
    "settings_B8c",
    parameter_product(task=("digits", "recall"), strength=(0.3, 0.6, 2.0)),
    seconds=0.1,
)
def settings_b8c(task: str, strength: float) -> Rows:
    """What spins in a layer may still lose against attention there, of 0.05, split by split."""
    cells = [Cell("layer of spins", strength, 200), Cell("layer of attention", 0.6, 200)]
    return [
        line
        for again in ("", "_again")
        for line in stored_leads(
            GRIDS[f"layers_{task}{again}"], *cells, task=task, seen=200, margin=MARGIN
        )
    ]


@stored(
    "fresh_B8c",
    parameter_product(task=("digits", "recall"), strength=(0.8, 1.4, 3.0), first=FRESH_SPLITS[6:7])
    + parameter_product(
        task=("digits", "recall"), strength=(0.7, 1.2, 2.0), first=FRESH_SPLITS[8:9]
    ),
    seconds=20.0,
    within=WITHIN_LEADS,
)
def fresh_b8c(task: str, strength: float, first: int) -> Rows:
    """As `settings_b8c`, from new starts and two new splits, at the best rate from g = 0.6."""
    grid = GRIDS[f"layers_{task}"]
    splits = (first, first + 1)
    rate = best_rate(grid, Cell("layer of spins", 0.6, 200), seen=200)
    cells = parameter_product(rate=[rate], split=splits, strength=[strength])
    trained = train_arm("layer of spins", grid.task, cells, steps=200, looks=(200,), probed=0)
    spins = np.array([one.looks[0].accuracy for one in trained])
    usual = Cell("layer of attention", 0.6, 200)
    (attention,) = fresh_trainings(grid, usual, looks=(200,), splits=splits)
    runs = [f"{task} g{strength} split {split}" for split in splits]
    return lead_rows(spins, attention, task=task, runs=runs, margin=MARGIN)


def driven_growth(first: np.ndarray, last: np.ndarray, undriven: np.ndarray) -> np.ndarray:
    """The smaller of what correlations grow by along a stack and what the share of the last ones
    that is left undriven lacks to one half."""
    return np.minimum(last - first, 0.5 - undriven / last)


@stored(
    "settings_B11",
    parameter_product(strength=(0.1, 0.15, 0.2, 0.3, 0.45, 0.6), rate=QUARTERS[1:4:2]),
    seconds=0.1,
)
def settings_b11(strength: float, rate: float) -> Rows:
    """`driven_growth` of five stacks half way and at the end, by the median."""
    grid = GRIDS["depth" if strength >= 0.2 else "depth_weaker"]
    cell = Cell("saddle", strength, 120)
    rows = []
    for seen in (60, 120):
        growth = driven_growth(
            trainings(grid, cell, seen=seen, column="first", rate=rate),
            trainings(grid, cell, seen=seen, column="last", rate=rate),
            trainings(grid, cell, seen=seen, column="undriven", rate=rate),
        )
        (line,) = median_rows(growth)
        rows.append({"data": f"g{strength} rate {rate}", "seen": seen} | line)
    return rows


@stored(
    "confirm_B11",
    parameter_product(strength=(0.1, 0.15, 0.2, 0.22, 0.25, 0.3), rate=QUARTERS[1:4:2]),
    small={"strength": 0.2, "rate": 0.0018, "count": 2, "updates": 8},
    seconds=5.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def confirm_b11(strength: float, rate: float, count: int | None = None, updates: int = 120) -> Rows:
    """As `settings_b11`, from new splits, five for each line."""
    # No two lines have a split in common.
    start = round(1000 * strength) + (500 if rate > 0.003 else 0)
    splits = range(start, start + 5)[:count]
    cells = parameter_product(rate=[rate], split=splits, strength=[strength])
    looks = (updates // 2, updates)
    trained = train_arm("saddle", digit_task, cells, depth=4, steps=updates, looks=looks, probed=40)
    rows = []
    for place, seen in enumerate(looks):
        layers = [looked[place].layers for _, _, _, looked in trained]
        growth = driven_growth(
            np.array([one[0]["correlation"] for one in layers]),
            np.array([one[-1]["correlation"] for one in layers]),
            np.array([one[-1]["undriven"] for one in layers]),
        )
        (line,) = median_rows(growth)
        rows.append({"data": f"new g{strength} rate {rate}", "seen": seen} | line)
    return rows
