"""Stored tables of chapter 11: what is left of a pattern, exponents, and the birthday law.

`capacity`: mean overlap at the end of descents from stored patterns, a row for each network and
load. `exponents`: the number of patterns at one per cent of errors, for each degree and size, with
the power law through them. `birthday`: share of exponential memories in which every pattern is
fixed, for sizes N around the law's own and, last, for N = 2^{d/2}; with the N at probability ½.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c11_discrete_memories.study import (
    Curve,
    all_fixed_probability,
    capacity_exponent,
    curve,
    end_overlaps,
    half_capacity,
)

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
    return [
        {"load": load, "network": network, "overlap": overlap}
        for load, row in zip(LOADS, ends, strict=True)
        for network, overlap in enumerate(row)
    ]


@stored(
    HERE / "exponents.csv",
    units=[{"degree": degree} for degree in SIZES],
    seconds=3.0,
    within={"capacity": 0.02, "error": 0.2, "exponent": 0.02, "exponent_error": 0.01},
)
def EXPONENTS(degree: int) -> Rows:
    """Capacity at one per cent of errors, a row for each size, and the fitted power."""
    fit = capacity_exponent(SIZES[degree], degree=degree, bits=20_000, blocks=10, seed=degree)
    return [
        {
            "dim": dim,
            "capacity": capacity,
            "error": error,
            "exponent": fit.exponent.value,
            "exponent_error": fit.exponent.error,
            "predicted": fit.predicted_exponent,
        }
        for dim, capacity, error in zip(
            fit.dims, fit.capacity.value, fit.capacity.error, strict=True
        )
    ]


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
    last = all_fixed_probability(
        dim, counts=[all_of_them], networks=MEMORIES // 4, seed=2 * dim
    ).estimate.value[0]
    half = half_capacity(found)
    return [
        {"count": count, "share": share, "half": half.value, "half_error": half.error}
        for count, share in [
            *zip(counts, found.estimate.value, strict=True),
            (all_of_them, last),
        ]
    ]


def capacity_curve(dim: int) -> Curve:
    """Overlap left against the load, from the stored table."""
    table = CAPACITY.read()
    rows = table["dim"] == dim
    return curve(LOADS, samples=table["overlap"][rows].reshape(LOADS.size, -1))
