"""Table of settings of C18e: exponents of finite networks against that of the mean field.

value: what they may differ by less what they differ by, with two errors over pairs of texts.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
from compendium.c32c_fluctuations.study import EXPONENTS
from compendium.common.rows import near_rows

PAIRS = 24


@stored(
    Path(__file__).with_name("settings_C18e.csv"),
    units=[
        {name: unit[name] for name in ("beta", "exponent", "seed")} | {"allowed": allowed}
        for unit in EXPONENTS.units
        if unit["exponent"] > 5
        for allowed in (0.015, 0.03)
    ],
    seconds=0.1,
)
def EXPONENTS_APART(beta: float, exponent: float, seed: int, allowed: float) -> Rows:
    """10^`exponent` bits at one temperature."""
    table = EXPONENTS.read()
    here = (table["beta"] == beta) & (table["exponent"] == exponent) & (table["seed"] == seed)
    ((growth, error, limit),) = zip(
        *(table[name][here] for name in ("growth", "error", "limit")), strict=True
    )
    found = (growth, growth - 2.0 * error, growth + 2.0 * error)
    return near_rows(found, aim=limit, within=allowed, runs=PAIRS)
