"""Tables of random networks: what is held, frozen, ordered or chaotic, by temperature and size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c31_asymmetric_hopfield.networks import (
    analog_exponents,
    asymmetric_gain,
    mean_order,
    spin_memory,
)
from compendium.c31_asymmetric_hopfield.pairs import iterate_pair
from compendium.common.rows import estimate_rows, grid, mean_rows, rows_of
from spinformer.core.random import numpy_generator
from spinformer.core.states import overlaps
from spinformer.core.statistics import Estimate

_HERE = Path(__file__).parent
LAGS = np.array([2, 4, 8, 16, 32, 64, 250])  # of the table of memory, in updates


@stored(
    _HERE / "exponents.csv",
    units=[
        {"size": size, "symmetry": symmetry, "beta": beta, "networks": 20}
        for size, symmetry, betas in (
            (500, 0.0, (0.6, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)),
            (500, 1.0, (0.6, 1.0, 1.5, 2.0, 3.0, 4.0)),
            (125, 0.0, (3.0,)),
            (250, 0.0, (3.0,)),
            (1000, 0.0, (3.0,)),
        )
        for beta in betas
    ],
    checked=13,
    seconds=1.0,
    # Chaos amplifies rounding: another processor follows other orbits.
    within={"exponent": 0.01, "error": 0.003},
)
def EXPONENTS(size: int, *, symmetry: float, beta: float, networks: int) -> Rows:
    """Mean and standard error over networks, 600 steps each."""
    found = analog_exponents(size, symmetry=symmetry, beta=beta, count=networks, seed=0, steps=600)
    return [{"exponent": float(found.value), "error": float(found.error)}]


@stored(
    _HERE / "memory.csv",
    units=[
        *({"symmetry": symmetry, "beta": 2.0} for symmetry in (1.0, 0.5, 0.0)),
        {"symmetry": 1.0, "beta": 0.5},
    ],
    seconds=2.0,
    within={"kept": 0.1, "error": 0.05},
)
def MEMORY(symmetry: float, *, beta: float) -> Rows:
    """C(τ) at `LAGS` of ten networks of 500 spins, a row for each lag, with errors."""
    found = spin_memory(
        500, symmetry=symmetry, beta=beta, lags=LAGS, steps=1000, replicas=10, seed=0
    )
    return rows_of(lag=LAGS, kept=found.value, error=found.error)


@stored(
    _HERE / "order.csv",
    units=grid(ratio=(0.5, 0.8, 1.0, 1.2, 1.5, 2.0), beta=(2.0,)),
    seconds=1.0,
    within={"order": 0.1, "error": 0.05},
)
def ORDER(ratio: float, *, beta: float) -> Rows:
    """|m| of ten networks of 500 spins, independent couplings; their mean over the critical one."""
    mean = ratio / asymmetric_gain(beta)
    found = mean_order(500, mean=mean, beta=beta, replicas=10, seed=0)
    return [{"order": float(found.value), "error": float(found.error)}]


@stored(
    _HERE / "settings_C1a.csv",
    units=grid(beta=(0.5, 0.8, 1.2, 1.5, 3.0), size=(1000, 10_000), features=(1, 3, 10)),
    seconds=2.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def HELD(beta: float, size: int, features: int) -> Rows:
    """Overlap with the first feature over updates 30 to 60, from 0.5, less 0.1; ten draws."""
    found = []
    for rng in numpy_generator(features).spawn(10):
        kept = rng.choice([-1.0, 1.0], (features, size))
        start = np.where(rng.random(size) < 0.75, 1.0, -1.0) * kept[0]
        path = iterate_pair(start, left=kept, right=kept, beta=beta, steps=60, seed=rng)
        found.append(overlaps(path[30:], patterns=kept)[:, 0].mean() - 0.1)
    return mean_rows(np.array(found))


@stored(
    _HERE / "settings_C1c.csv",
    units=grid(beta=(0.5, 0.8, 1.25, 1.5, 2.0, 3.0), size=(200, 800), lag=(50, 250)),
    seconds=3.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def FROZEN(beta: float, size: int, lag: int) -> Rows:
    """C(lag) of symmetric couplings, less 0.05; ten networks."""
    run = {"steps": 1000, "replicas": 10, "seed": size}
    kept = spin_memory(size, symmetry=1.0, beta=beta, lags=np.array([lag]), **run)
    return estimate_rows(
        Estimate(value=float(kept.value[0]), error=float(kept.error[0]), samples=10), bound=0.05
    )


@stored(
    _HERE / "settings_C1d.csv",
    units=grid(ratio=(0.0, 0.5, 0.8, 1.2, 1.5, 2.0), beta=(1.0, 2.0, 4.0), size=(250, 1000)),
    seconds=2.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def ORDERED(ratio: float, beta: float, size: int) -> Rows:
    """|m| of independent couplings, their mean over the critical one, less 0.1; ten networks."""
    mean = ratio / asymmetric_gain(beta)
    return estimate_rows(mean_order(size, mean=mean, beta=beta, replicas=10, seed=size), bound=0.1)


@stored(
    _HERE / "settings_C1e.csv",
    units=[{name: unit[name] for name in ("symmetry", "beta", "size")} for unit in EXPONENTS.units],
    seconds=0.1,
)
def SETTINGS(symmetry: float, beta: float, size: int) -> Rows:
    """C1e: one kind of couplings at one temperature and size."""
    table = EXPONENTS.read()
    here = (table["symmetry"] == symmetry) & (table["beta"] == beta) & (table["size"] == size)
    ((value, error, runs),) = zip(
        *(table[name][here] for name in ("exponent", "error", "networks")), strict=True
    )
    return estimate_rows(Estimate(value=value, error=error, samples=runs))
