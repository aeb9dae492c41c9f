"""The stored tables of chapter 11b."""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
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


@stored(HERE / "retrieval.csv", units=grid(dim=NETWORKS, load=LOADS, fraction=FRACTIONS))
def RETRIEVAL(dim: int, load: float, fraction: float) -> Rows:
    """Overlap kept and energy below the temperature of melting."""
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


@stored(HERE / "melting.csv", units=grid(dim=NETWORKS, load=LOADS))
def MELTING(dim: int, load: float) -> Rows:
    """Where heated networks lose their pattern, a row for each."""
    seed = dim + round(1e4 * load) + 1
    fractions = melting(dim, load=load, networks=NETWORKS[dim], seed=seed)
    return [{"network": index, "fraction": value} for index, value in enumerate(fractions)]


@stored(HERE / "copies.csv", units=grid(dim=(500, 1000, 2000), temperature=GLASS_TEMPERATURES))
def COPIES(dim: int, temperature: float) -> Rows:
    """Squared overlap of two copies that started at random."""
    squared = copies_overlap(
        dim,
        load=GLASS_LOAD,
        temperature=temperature,
        networks=NETWORKS[500] // 2,
        seed=dim + round(100 * temperature),
    )
    return [{"squared": squared.value, "squared_error": squared.error}]


@stored(HERE / "settings_A6b.csv", units=MELTING.units, seconds=0.5)
def MELTS_LATER(dim: int, load: float) -> Rows:
    """Temperature at which networks lose a pattern, less that at which the theory's glass ends."""
    table = MELTING.read()
    lost = table["fraction"][(table["dim"] == dim) & (table["load"] == load)]
    return mean_rows(lost * melting_temperature(load) - glass_temperature(load))
