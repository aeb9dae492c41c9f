"""The stored tables of chapter 11b: their units of work and how a row is computed."""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, Table, stored
from compendium.c11b_load_and_temperature.replica import glass_temperature, melting_temperature
from compendium.c11b_load_and_temperature.study import copies_overlap, melting, retrieval
from compendium.common.rows import grid, mean_rows

HERE = Path(__file__).parent
LOADS = (0.02, 0.05, 0.08, 0.11)
FRACTIONS = (0.4, 0.6, 0.8)
# Networks at each size: the larger ones scatter less.
NETWORKS = {500: 64, 1000: 48, 2000: 32, 4000: 16}
GLASS_LOAD = 0.05
GLASS_TEMPERATURES = (0.9, 1.0, 1.1, 1.35, 1.5, 1.8)


def _retrieval_rows(dim: int, load: float, fraction: float) -> Rows:
    overlap, energy = retrieval(
        dim, load=load, fraction=fraction, networks=NETWORKS[dim], seed=dim + round(1e4 * load)
    )
    return [
        {
            "overlap": overlap.value,
            "overlap_error": overlap.error,
            "energy": energy.value,
            "energy_error": energy.error,
        }
    ]


def _melting_rows(dim: int, load: float) -> Rows:
    heated = melting(dim, load=load, networks=NETWORKS[dim], seed=dim + round(1e4 * load) + 1)
    return [{"network": index, "fraction": value} for index, value in enumerate(heated.fractions)]


def _copies_rows(dim: int, temperature: float) -> Rows:
    squared = copies_overlap(
        dim,
        load=GLASS_LOAD,
        temperature=temperature,
        networks=NETWORKS[500] // 2,
        seed=dim + round(100 * temperature),
    )
    return [{"squared": squared.value, "squared_error": squared.error}]


RETRIEVAL = Table(
    path=HERE / "retrieval.csv",
    units=grid(dim=NETWORKS, load=LOADS, fraction=FRACTIONS),
    rows=_retrieval_rows,
)
MELTING = Table(
    path=HERE / "melting.csv",
    units=[{"dim": dim, "load": load} for dim in NETWORKS for load in LOADS],
    rows=_melting_rows,
)
COPIES = Table(
    path=HERE / "copies.csv",
    units=grid(dim=(500, 1000, 2000), temperature=GLASS_TEMPERATURES),
    rows=_copies_rows,
)


@stored(HERE / "settings_A6b.csv", units=MELTING.units, seconds=0.5)
def MELTS_LATER(dim: int, load: float) -> Rows:
    """Temperature at which networks lose a pattern, less that at which the theory's glass ends."""
    table = MELTING.read()
    lost = table["fraction"][(table["dim"] == dim) & (table["load"] == load)]
    return mean_rows(lost * melting_temperature(load) - glass_temperature(load))
