"""Tables of settings of C18d and C21.

The table `confirm_C21` was drawn after the region of its row had been written, from other orbits
and temperatures.
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c33b_lifetimes.finite_size_escapes import rate_over_action
from compendium.c33b_lifetimes.switching import (
    LASTING,
    chaotic_orbits,
    growth_afterwards,
    lasting_orbits,
    mode_times,
)
from compendium.common.rows import median_rows, near_rows, parameter_product

# By how much the rate may be off the least action.
_QUARTER = 0.25


@stored(
    "settings_C18d",
    [
        {"data": f"{unit['cycle']}-{unit['seed']}"} | unit
        for unit in parameter_product(cycle=range(4), seed=range(4), sizes=("all", "larger half"))
    ],
    seconds=0.1,
)
def settings_c18d(data: str, cycle: int, seed: int, sizes: str) -> Rows:
    """What the rate of one cycle at β = 3 may be off its least action minus what it is off.

    The power of N in front of the exponential is the ½ of [lehmann2000surmounting].
    """
    rate = rate_over_action(cycle, power=0.5, seeds=[seed], larger_half=sizes != "all")
    wide = 2.0 * rate.error
    ends = (rate.value, rate.value - wide, rate.value + wide)
    return near_rows(ends, aim=1.0, within=_QUARTER, runs=rate.samples)


_NULLS = {"next mode": "next", "same spectrum": "surrogate", "shuffled blocks": "shuffled"}


@stored(
    "settings_C21",
    [
        {"data": f"{unit['beta']}-{unit['seed']}"} | unit | {"null": null}
        for unit in parameter_product(beta=(1.2655, 1.266, 1.2665, 1.28, 1.3, 1.4), seed=(1, 2))
        for null in _NULLS
    ],
    seconds=0.1,
)
def settings_c21(data: str, beta: float, seed: int, null: str) -> Rows:
    """ln of the time of the slowest mode over three times that of a null, orbit by orbit."""
    table = lasting_orbits()
    here = (table["beta"] == beta) & (table["seed"] == seed)
    return median_rows(np.log(table["slow"] / (3.0 * table[_NULLS[null]]))[here])


# At 1.2663, which was chosen first, no orbit is chaotic to the end: there is nothing to ask.
@stored(
    "confirm_C21",
    [
        {"data": f"{unit['beta']}-{unit['seed']}"} | unit
        for unit in parameter_product(beta=(1.2657, 1.2664, 1.2667), seed=(11, 12, 13, 14))
    ],
    small={"data": "1.2657-11", "beta": 1.2657, "seed": 11, "flashes": 2000},
    seconds=3.0,
    within={"value": 0.3, "low": 1.0, "high": 1.0, "runs": 2},
)
def confirm_c21(data: str, beta: float, seed: int, *, flashes: int = 30_000) -> Rows:
    """The same of other orbits, those that are chaotic to the end."""
    points, context = chaotic_orbits(beta, count=12, flashes=flashes, seed=seed)
    lasting = growth_afterwards(context, beta=beta) > LASTING
    times = mode_times(points, seed=seed)
    rows = []
    for null, column in _NULLS.items():
        above = np.log(times["slow"] / (3.0 * times[column]))[lasting]
        rows.append({"null": null} | median_rows(above)[0])
    return rows
