"""The stored tables of chapter 12b."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c12b_continuous_capacity.random_energy import ENSEMBLES, capacity, retrieval_fold
from compendium.c12b_continuous_capacity.study import (
    half_log_count,
    half_overlap,
    kept_patterns,
    level_log_sums,
    outweighed_at,
    weight_concentration,
)
from compendium.common.rows import estimate_rows, grid, mean_rows
from spinformer.core.statistics import Estimate, mean_estimate

HERE = Path(__file__).parent
BETAS = (0.25, 0.5, 1.0, 2.0)
ONE_STEP_DRAWS = 12
BASIN_BETA = 1.0
BASIN_DIMS = {0.1: (32, 48, 64, 80, 96), 0.2: (16, 24, 32, 40, 48), 0.3: (12, 16, 20, 26, 32)}
FOLD_DIMS = (49, 64, 81, 100, 121, 144, 169, 196)
COUNTS = tuple(4**k for k in range(3, 9))
DIMS = tuple(2**k for k in range(4, 11))


def one_step_dims(beta: float, *, ensemble: str) -> list[int]:
    """Four widths at which e^{5} to e^{11} patterns reach the capacity of the theory."""
    return [round(log / capacity(beta, ensemble=ensemble)) for log in (5, 7, 9, 11)]


@stored(
    HERE / "one_step.csv",
    units=[
        {"ensemble": ensemble, "beta": beta, "dim": dim}
        for ensemble in ENSEMBLES
        for beta in BETAS
        for dim in one_step_dims(beta, ensemble=ensemble)
    ],
)
def ONE_STEP(ensemble: str, beta: float, dim: int) -> Rows:
    """ln N at which half of the patterns are outweighed in one step."""
    medians = [
        np.median(outweighed_at(dim, beta=beta, ensemble=ensemble, seed=1000 * dim + draw))
        for draw in range(ONE_STEP_DRAWS)
    ]
    found = mean_estimate(np.log(medians))
    return [{"log_count": found.value, "log_count_error": found.error}]


@stored(
    HERE / "basins.csv",
    units=[{"load": load, "dim": dim} for load, dims in BASIN_DIMS.items() for dim in dims],
)
def BASINS(load: float, dim: int) -> Rows:
    """Overlap that half of the noisy queries need, beside that of independent levels."""
    count = round(np.exp(load * dim))
    halves = half_overlap(count, dim=dim, beta=BASIN_BETA, memories=8, seed=dim)
    levels = level_log_sums(count - 1, dim=dim, beta=BASIN_BETA, samples=400, seed=dim + 1)
    one_step, at_rest = (mean_estimate(samples) for samples in halves)
    return [
        {
            "count": count,
            "one_step": one_step.value,
            "one_step_error": one_step.error,
            "at_rest": at_rest.value,
            "at_rest_error": at_rest.error,
            "levels": float(np.median(levels)) / (BASIN_BETA * dim),
        }
    ]


@stored(HERE / "fold.csv", units=grid(dim=FOLD_DIMS))
def FOLD(dim: int) -> Rows:
    """ln N at which half of the patterns lose their state."""
    fold = retrieval_fold(dim, beta=dim**-0.5)
    log_counts = fold.log_count + fold.spread * np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])
    found = half_log_count(dim, beta=dim**-0.5, log_counts=log_counts, memories=6, seed=dim)
    estimate = mean_estimate(found)
    return [{"log_count": estimate.value, "log_count_error": estimate.error}]


def _memories(count: int) -> int:
    return 10 if count <= 1024 else 3


@stored(HERE / "kept.csv", units=grid(count=COUNTS, dim=DIMS))
def KEPT_TABLE(count: int, dim: int) -> Rows:
    """Overlap that is left of stored patterns, and the share that is kept."""
    kept = kept_patterns(
        count, dim=dim, beta=dim**-0.5, memories=_memories(count), seed=count + dim
    )
    return [
        {
            "overlap": kept.overlap.value,
            "overlap_error": kept.overlap.error,
            "share": kept.share.value,
            "share_error": kept.share.error,
        }
    ]


@stored(
    HERE / "settings_A13b.csv",
    units=grid(count=(128, 512, 2048), dim=(16, 64, 256), hotter=(1.0, 1.5)),
    seconds=1.0,
)
def CROWDS(count: int, dim: int, hotter: float) -> Rows:
    """Y of an unrelated query at β = `hotter`/√d, less the 0.1 of a glass."""
    found = weight_concentration(count, dim=dim, spreads=[hotter], memories=10, seed=count)
    return mean_rows(found[0] - 0.1)


@stored(HERE / "settings_A13.csv", units=KEPT_TABLE.units, seconds=0.1)
def FOUND(count: int, dim: int) -> Rows:
    """Overlap kept, less a half, and whether the theory's fold at that width is passed."""
    table = KEPT_TABLE.read()
    ((here,),) = ((table["count"] == count) & (table["dim"] == dim)).nonzero()
    overlap = Estimate(
        value=table["overlap"][here], error=table["overlap_error"][here], samples=_memories(count)
    )
    passed = np.log(count) > retrieval_fold(dim, beta=dim**-0.5).log_count
    return [{"fold": "passed" if passed else "ahead", **estimate_rows(overlap, bound=0.5)[0]}]
