"""Stored tables of chapter 11: what is left of a pattern, exponents, and the birthday law.

`capacity`: mean overlap at the end of descents from stored patterns, a row for each network and
load. `exponents`: the number of patterns at one per cent of errors, for each degree and size, with
the power law through them. `birthday`: share of exponential memories in which every pattern is
fixed, for sizes N around the law's own and, last, for N = 2^{d/2}; with the N at probability ½.
Tables of settings: A6 by the loads and sizes compared, A7 by what counts as an error, A8 by the
share of networks at which N is read, and with or without the law's root of d.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c11_discrete_memories.study import (
    Curve,
    all_fixed_probability,
    capacity_exponent,
    end_overlaps,
    half_capacity,
)
from compendium.common.rows import estimate_rows, grid, near_rows, rows_of
from spinformer.core.statistics import Estimate, mean_estimate

HERE = Path(__file__).parent
NETWORKS = {500: 32, 1000: 16, 2000: 8}
LOADS = np.round(np.arange(0.10, 0.181, 0.01), 2)
SIZES = {2: (200, 400, 800, 1600), 3: (50, 80, 126, 200), 4: (36, 50, 70)}
MEMORIES = 1000


@stored(
    HERE / "capacity.csv",
    units=[{"dim": dim} for dim in NETWORKS],
    seconds=3.0,
    within={"overlap": 0.05},
)
def CAPACITY(dim: int) -> Rows:
    """Overlap left of a stored pattern, a row for each load and network."""
    ends = end_overlaps(dim, loads=LOADS.tolist(), networks=NETWORKS[dim], seed=dim)[0].mean(-1)
    load, network = np.indices(ends.shape).reshape(2, -1)
    return rows_of(load=LOADS[load], network=network, overlap=ends.ravel())


@stored(
    HERE / "exponents.csv",
    units=[{"degree": degree} for degree in SIZES],
    seconds=3.0,
    within={"capacity": 0.02, "error": 0.2, "exponent": 0.02, "exponent_error": 0.01},
)
def EXPONENTS(degree: int) -> Rows:
    """Capacity at one per cent of errors, a row for each size, and the fitted power."""
    fit = capacity_exponent(SIZES[degree], degree=degree, bits=20_000, blocks=10, seed=degree)
    return rows_of(
        dim=SIZES[degree],
        capacity=fit.capacity.value,
        error=fit.capacity.error,
        exponent=fit.exponent.value,
        exponent_error=fit.exponent.error,
        predicted=fit.predicted_exponent,
    )


@stored(
    HERE / "birthday.csv",
    units=[{"dim": dim} for dim in (10, 13, 16)],
    seconds=3.0,
    within={"share": 0.02, "half": 0.5, "half_error": 0.1},
)
def BIRTHDAY(dim: int) -> Rows:
    """Share of networks without a lost pattern, a row for each number of patterns."""
    unit = np.sqrt(2.0 ** (dim + 1) / dim)
    counts = np.rint(unit * np.array([0.3, 0.6, 0.9, 1.3, 1.8])).astype(int)
    found = all_fixed_probability(dim, counts=counts.tolist(), networks=MEMORIES, seed=dim)
    all_of_them = round(2 ** (dim / 2))
    last = all_fixed_probability(dim, counts=[all_of_them], networks=MEMORIES // 4, seed=2 * dim)
    half = half_capacity(found)
    return rows_of(
        count=[*counts, all_of_them],
        share=[*found.estimate.value, *last.estimate.value],
        half=half.value,
        half_error=half.error,
    )


def capacity_curve(dim: int) -> Curve:
    """Overlap left against the load, from the stored table."""
    table = CAPACITY.read()
    rows = table["dim"] == dim
    return Curve(x=LOADS, samples=table["overlap"][rows].reshape(LOADS.size, -1))


@stored(
    HERE / "settings_A6.csv",
    units=grid(below=(0.11, 0.12, 0.13), above=(0.15, 0.16, 0.17), sizes=("500 1000", "1000 2000")),
    seconds=0.1,
)
def STEEPER(below: float, above: float, sizes: str) -> Rows:
    """Overlap lost between two loads around 0.14: by how much more in the larger networks."""
    small, large = (
        mean_estimate(found.samples[below == LOADS][0] - found.samples[above == LOADS][0])
        for found in (capacity_curve(int(dim)) for dim in sizes.split())
    )
    error = float(np.hypot(small.error, large.error))
    runs = min(small.samples, large.samples)
    return estimate_rows(Estimate(value=large.value - small.value, error=error, samples=runs))


@stored(
    HERE / "settings_A7.csv",
    units=grid(degree=tuple(SIZES), target=(0.003, 0.01, 0.03, 0.1)),
    seconds=3.0,
    within={"value": 0.03, "low": 0.03, "high": 0.03},
)
def DEGREES(degree: int, target: float) -> Rows:
    """Capacity at a share `target` of errors: what its exponent lacks to be 0.1 from a - 1."""
    power = capacity_exponent(
        SIZES[degree], degree=degree, target=target, bits=20_000, blocks=10, seed=10 + degree
    ).exponent
    wide = 2.0 * power.error
    found = (power.value, power.value - wide, power.value + wide)
    return near_rows(found, aim=degree - 1, within=0.1, runs=10)


@cache
def birthday_scale(dim: int, *, filling: float) -> tuple[float, float]:
    """log2 of the scale H of the birthday law 2^{-N(N-1)/H²}, with its error, from one share.

    Of `MEMORIES` networks with N = `filling` times the number at which the law turns.
    """
    count = round(filling * np.sqrt(2.0 ** (dim + 1) / dim))
    found = all_fixed_probability(dim, counts=[count], networks=MEMORIES, seed=3 * dim)
    share = float(found.estimate.value[0])
    scale = 0.5 * np.log2(count * (count - 1) * np.log(2) / -np.log(share))
    return scale, np.sqrt((1 - share) / share / MEMORIES) / (2 * np.log(2) * -np.log(share))


@stored(
    HERE / "settings_A8.csv",
    units=grid(small=(9, 10, 11), filling=(0.6, 0.9, 1.3, 1.6), root=("of d", "none")),
    seconds=5.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def DOUBLINGS(small: int, filling: float, root: str) -> Rows:
    """What κ of N = 2^{κd} (over √d, or not) lacks to be 0.1 from a half, from d to d + 6."""
    (first, one), (second, other) = (
        birthday_scale(dim, filling=filling) for dim in (small, small + 6)
    )
    if root == "of d":
        second += 0.5 * np.log2((small + 6) / small)
    kappa, wide = (second - first) / 6, 2 * np.hypot(one, other) / 6
    return near_rows((kappa, kappa - wide, kappa + wide), aim=0.5, within=0.1, runs=MEMORIES)
