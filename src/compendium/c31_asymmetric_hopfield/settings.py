"""Table of settings of C1e: the Lyapunov exponent by symmetry, temperature and size.

value: the exponent itself, per unit of time, with two errors over networks.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, Table
from compendium.c31_asymmetric_hopfield.study import EXPONENTS


def setting_rows(symmetry: float, beta: float, size: int) -> Rows:
    """One kind of couplings at one temperature and size."""
    table = EXPONENTS.read()
    here = (table["symmetry"] == symmetry) & (table["beta"] == beta) & (table["size"] == size)
    ((value, error, runs),) = zip(
        *(table[name][here] for name in ("exponent", "error", "networks")), strict=True
    )
    return [{"value": value, "low": value - 2 * error, "high": value + 2 * error, "runs": runs}]


SETTINGS = Table(
    path=Path(__file__).with_name("settings_C1e.csv"),
    units=[{name: unit[name] for name in ("symmetry", "beta", "size")} for unit in EXPONENTS.units],
    rows=setting_rows,
    seconds=0.1,
)
