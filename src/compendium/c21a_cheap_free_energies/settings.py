"""Robustness of what chapter 21a says of theories and overlaps.

The stored errors and overlaps are divided into groups of systems, so that every line of a table
has systems of its own; lines of the same group share their `data`.

The regions were written before the confirming tables were drawn. B7: β up to 0.75. B7b: β from 0.7
to 0.8, of memories 0.5. B7c: β up to 1, where the line is at 1.37.
"""

from itertools import product
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c21a_cheap_free_energies.study import (
    BETAS,
    COLD,
    OVERLAPS,
    OVERLAPS_AGAIN,
    approximation_errors,
    colder_table,
    errors_table,
    overlap_run,
    theory_errors,
    trend,
)
from compendium.common.rows import Columns, median_rows, numbered, parameter_product
from spinformer.core.statistics import Estimate
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.replica_symmetry import replica_symmetric_state

# What an approximation may be off by, root mean square over the spins, and stand in for the sum.
OFF = 0.05
STAND_INS = {"TAP": "tap", "third order": "plefka3", "adaptive TAP": "adaptive"}


def stand_in_rows(data: int, beta: float, size: int, field_std: float) -> Rows:
    """How far each theory is below `OFF`, by the median of 24 systems with exact sums."""
    couplings, fields = sherrington_kirkpatrick(size, seed=data, count=24, field_std=field_std)
    truth = solve_exact(couplings, fields=fields, beta=beta)
    rows = []
    for theory, method in STAND_INS.items():
        errors, _, _ = approximation_errors(
            couplings, fields=fields, beta=beta, method=method, truth=truth
        )
        (line,) = median_rows(OFF - errors)
        rows.append({"theory": theory} | line)
    return rows


_NEAR = {"value": 1e-3, "low": 1e-3, "high": 1e-3}
settings_b7 = stored(
    "settings_B7",
    numbered(
        parameter_product(beta=(0.25, 0.5, 0.75, 1.0), size=(8, 12, 16), field_std=(0.2, 0.5, 1.0)),
        first=100,
    ),
    seconds=0.2,
    within=_NEAR,
)(stand_in_rows)
# Other systems of other sizes, fields and temperatures, drawn after the region.
confirm_b7 = stored(
    "confirm_B7",
    numbered(
        parameter_product(beta=(0.4, 0.6, 0.75), size=(10, 14), field_std=(0.3, 0.7)), first=500
    ),
    seconds=0.2,
    within=_NEAR,
)(stand_in_rows)


# Of which theory an exponent is asked, and of which one it must be ahead, by how much.
CLAUSES = {
    "gaussian: naive stays": ("gaussian", "naive", None, -0.3),
    "gaussian: TAP falls": ("gaussian", "tap", None, -0.7),
    "gaussian: adaptive falls": ("gaussian", "adaptive", None, -0.7),
    "gaussian: adaptive before TAP": ("gaussian", "adaptive", "tap", 0.0),
    "memory: adaptive before TAP": ("patterns", "adaptive", "tap", 0.4),
    "rotated: adaptive before TAP": ("rotated", "adaptive", "tap", 0.4),
    "sparse: beliefs before adaptive": ("sparse", "beliefs", "adaptive", 0.4),
}
# Groups of systems by the kind of their couplings: of rotated ones three sizes are above their
# errors only if all are taken together.
GROUPS = {"gaussian": 3, "patterns": 3, "rotated": 1, "sparse": 2}
COLD_GROUPS = 4


def exponent_row(slope: Estimate, *, against: float, sign: int) -> dict[str, Any]:
    """A line for an exponent: how far it lies on the side that is asked for, with 95 %."""
    value = sign * (float(slope.value) - against)
    half = 1.96 * float(slope.error)
    return {"value": value, "low": value - half, "high": value + half, "runs": slope.samples}


def several_of_each_size(table: Columns, here: np.ndarray) -> np.ndarray:
    """Those of the rows whose size two systems or more have."""
    sizes, counts = np.unique(table["size"][here], return_counts=True)
    return here & np.isin(table["size"], sizes[counts > 1])


def clause_row(clause: str, table: Columns, here: np.ndarray) -> dict[str, Any]:
    """How far an exponent of B7b, or a difference of two, lies on the side that is asked for."""
    _, theory, rival, bound = CLAUSES[clause]
    mine = trend(table, theory, here).slope
    if rival is None:
        return exponent_row(mine, against=bound, sign=1 if theory == "naive" else -1)
    other = trend(table, rival, here).slope
    gap = Estimate(
        value=other.value - mine.value,
        error=np.hypot(other.error, mine.error),
        samples=mine.samples,
    )
    return exponent_row(gap, against=bound, sign=1)


@stored(
    "settings_B7b",
    [
        *(
            {"clause": clause, "beta": BETAS[kind], "group": group}
            for clause, (kind, *_) in CLAUSES.items()
            for group in range(GROUPS[kind])
        ),
        *(
            {"clause": clause, "beta": COLD, "group": group}
            for clause, (kind, *_) in CLAUSES.items()
            if kind == "gaussian"
            for group in range(COLD_GROUPS)
        ),
    ],
    seconds=0.1,
)
def settings_b7b(clause: str, beta: float, group: int) -> Rows:
    """How far an exponent of B7b, or a difference of two, lies on the side that is asked for."""
    kind, *_ = CLAUSES[clause]
    cold = beta == COLD
    table = (colder_table if cold else errors_table).read()
    here = table["copy"] % (COLD_GROUPS if cold else GROUPS[kind]) == group
    if not cold:
        here &= table["kind"] == kind
    here = several_of_each_size(table, here)
    row = clause_row(clause, table, here)
    return [{"data": f"{kind} {beta:g}, group {group}"} | row]


# Systems of each size in a group that confirms B7b, and the couplings of the groups. In larger
# systems with a rotated spectrum the error of adaptive TAP is below that of the simulation.
FRESH_ERRORS = {32: 60, 64: 40, 128: 30, 256: 20}
FRESH_ROTATED = {24: 50, 32: 40, 48: 30, 64: 30}
FRESH_GROUPS = [
    *parameter_product(kind=("gaussian",), beta=(0.7, 0.74, 0.77, 0.8)),
    *parameter_product(kind=("patterns",), beta=[0.5] * 3),
    *parameter_product(kind=("rotated",), beta=(0.72, 0.8)),
    *parameter_product(kind=("sparse",), beta=(0.7, 0.76, 0.8)),
]


@stored(
    "confirm_B7b",
    [{"group": group} for group in range(len(FRESH_GROUPS))],
    seconds=40.0,
    within={"value": 0.2, "low": 0.3, "high": 0.3},
)
def confirm_b7b(group: int) -> Rows:
    """As `settings_b7b` before the line, of systems of its own, up to 256 spins."""
    kind, beta = FRESH_GROUPS[group].values()
    rows = []
    sizes = FRESH_ROTATED if kind == "rotated" else FRESH_ERRORS
    for size, count in sizes.items():
        for number in range(count):
            seed = 60_000_000 + 100_000 * group + 100 * size + number
            errors = theory_errors(kind, size=size, sweeps=10_000, seed=seed, beta=beta)
            rows.append({"size": size} | errors)
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    everything = np.full(len(rows), True)
    run = {"beta": beta, "data": f"fresh {group}"}
    return [
        {"clause": clause} | run | clause_row(clause, table, everything)
        for clause, (of_kind, *_) in CLAUSES.items()
        if of_kind == kind
    ]


def adaptive_exponents() -> np.ndarray:
    """Exponents of the squared error of adaptive TAP, by ranges of sizes and halves of systems."""
    table = errors_table.read()
    found = []
    for smallest, largest, half in product((32, 64, 128), (512, 1024), (0, 1)):
        here = (table["kind"] == "gaussian") & (table["copy"] % 2 == half)
        here &= (table["size"] >= smallest) & (table["size"] <= largest)
        found.append(float(trend(table, "adaptive", here).slope.value))
    return np.array(found)


# Groups of the stored systems, one with every number of copies modulo this.
OVERLAP_GROUPS = 12


def width_row(beta: float, slope: Estimate) -> dict[str, Any]:
    """Before the line how much faster, beyond it how much slower than on it widths fall."""
    beyond = replica_symmetric_state(beta, field_std=0.2).stability > 1
    return exponent_row(slope, against=-1 / 3, sign=1 if beyond else -1)


@stored(
    "settings_B7c",
    parameter_product(beta=(0.8, 1.0, 2.0, 3.0), group=tuple(range(OVERLAP_GROUPS))),
    seconds=0.1,
)
def settings_b7c(beta: float, group: int) -> Rows:
    """`width_row` of the stored systems, sizes 32 to 512, by groups."""
    pools = [OVERLAPS.read(), OVERLAPS_AGAIN.read()]
    table = {name: np.concatenate([pool[name] for pool in pools]) for name in pools[0]}
    here = (table["beta"] == beta) & (table["copy"] % OVERLAP_GROUPS == group)
    slope = trend(table, "spread", several_of_each_size(table, here)).slope
    return [{"data": f"group {group}"} | width_row(beta, slope)]


# Systems of each size in a group that confirms, and the temperatures of its ladder.
FRESH = {32: 12, 64: 8, 128: 5}
BEFORE_THE_LINE = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
CONFIRMED_AT = (0.5, 0.7, 0.9, 1.0)


@stored(
    "confirm_B7c",
    [{"group": group} for group in range(12)],
    seconds=20.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def confirm_b7c(group: int) -> Rows:
    """As `settings_b7c` at four temperatures before the line, of systems of its own."""
    columns: dict[str, list[float]] = {"size": [], "beta": [], "spread": []}
    for size, count in FRESH.items():
        for number in range(count):
            seed = 30_000_000 + 100_000 * group + 100 * size + number
            run = overlap_run(size, sweeps=6_000, seed=seed, ladder=BEFORE_THE_LINE)
            for beta in CONFIRMED_AT:
                place = int(np.argmin(np.abs(BEFORE_THE_LINE - beta)))
                columns["size"].append(size)
                columns["beta"].append(beta)
                columns["spread"].append(float(run.overlaps[:, place].std()))
    table = {name: np.array(values) for name, values in columns.items()}
    rows = []
    for beta in CONFIRMED_AT:
        slope = trend(table, "spread", table["beta"] == beta).slope
        rows.append({"beta": beta, "data": f"new {group}"} | width_row(beta, slope))
    return rows
