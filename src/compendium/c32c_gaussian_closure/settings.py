"""Tables of settings of C18a, C18b and C18f, from starts that no other table has.

The table `confirm_C18b` was drawn after the region of its row had been written down.
"""

from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c32c_gaussian_closure.study import (
    BREAKS_AGAIN,
    REGIMES,
    breaks_table,
    closed_gains,
)
from compendium.common.finite_size import median_slope, whole_bits
from compendium.common.rows import estimate_rows, mean_rows, parameter_product
from compendium.common.stored_exponents import exponent_of_chaos
from spinformer.core.statistics import Estimate

# Starts of a line of C18a; each of the two stored tables has six times as many.
_STARTS = 20


@stored(
    "settings_C18a",
    [{"data": group, "sizes_from": least} for group in range(12) for least in (1e4, 1e6)],
    seconds=0.1,
)
def settings_c18a(data: int, sizes_from: float) -> Rows:
    """Tokens that an e-fold of N buys, times twice the exponent of chaos, from twenty starts."""
    table = breaks_table.read() if data < 6 else BREAKS_AGAIN.read()
    bits = np.unique(table["bits"])
    first = _STARTS * (data % 6)
    measured = table["measured"].reshape(-1, len(bits))[first : first + _STARTS]
    use = bits > 0.9 * sizes_from
    pace = median_slope(np.log(bits[use]), rows=measured[:, use], seed=0)
    twice = 2.0 * float(exponent_of_chaos(1.28).value)
    scaled = Estimate(value=twice * pace.value, error=twice * pace.error, samples=_STARTS)
    return estimate_rows(scaled)


# Tokens over which the error of the closure is averaged, starts and texts behind a line of C18b.
_HORIZONS = (15, 30, 60, 120)
_REGULAR = [regime for regime in REGIMES if regime != "chaotic"]


def closure_gains(
    data: str, regime: str, bits: int, *, first: int, starts: int = 12, **choices: Any
) -> Rows:
    """ln of the naive mean field's error over the closure's, over so many tokens; twelve starts.

    `choices` are those of `closed_gains`: the number of texts, and whether bits are independent.
    """
    size = whole_bits(bits)
    gains = np.array(
        [
            closed_gains(regime, start=start, bits=size, horizons=_HORIZONS, **choices)
            for start in range(first, first + starts)
        ]
    )
    return [
        {"tokens": horizon} | mean_rows(gains[:, column])[0]
        for column, horizon in enumerate(_HORIZONS)
    ]


def first_gains(data: str, regime: str, bits: int, **fewer: int) -> Rows:
    """`closure_gains` of the starts 100 to 111."""
    return closure_gains(data, regime, bits, first=100, **fewer)


def fresh_gains(data: str, regime: str, bits: int, **fewer: int) -> Rows:
    """`closure_gains` of the starts 300 to 311; of periodic motion over thirty tokens at most."""
    rows = closure_gains(data, regime, bits, first=300, **fewer)
    return [row for row in rows if regime != "periodic" or row["tokens"] <= 30]


_UNITS = parameter_product(regime=_REGULAR, bits=[10**decade for decade in range(3, 8)])
_SMALL = {"data": "driven 1000", "regime": "driven", "bits": 1000, "starts": 2, "texts": 100}
settings_c18b = stored(
    "settings_C18b",
    [{"data": f"{unit['regime']} {unit['bits']}"} | unit for unit in _UNITS],
    small=_SMALL,
    seconds=0.3,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)(first_gains)

confirm_c18b = stored(
    "confirm_C18b",
    [
        {"data": f"{unit['regime']} {unit['bits']} again"} | unit
        for unit in parameter_product(
            regime=_REGULAR, bits=(2000, 20_000, 200_000, 2_000_000, 5_000_000)
        )
    ],
    small=_SMALL | {"data": "driven 1000 again"},
    seconds=0.3,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)(fresh_gains)


def kinetic_gains(data: str, regime: str, bits: int, **fewer: int) -> Rows:
    """`closure_gains` of independent bits, of the starts 400 to 411."""
    return closure_gains(data, regime, bits, first=400, **fewer, independent=True)


settings_c18f = stored(
    "settings_C18f",
    [{"data": f"{unit['regime']} {unit['bits']} independent"} | unit for unit in _UNITS],
    small=_SMALL | {"data": "driven 1000 independent"},
    seconds=0.3,
    within={"value": 0.1, "low": 0.2, "high": 0.2},
)(kinetic_gains)
