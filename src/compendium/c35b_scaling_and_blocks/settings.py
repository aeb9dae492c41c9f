"""Tables of settings of C22 and C23.

The table `confirm_C22` was drawn after the region of its row had been written, from other texts.
"""

from functools import cache

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c35b_scaling_and_blocks.blocks import census_table
from compendium.c35b_scaling_and_blocks.loaded import distances_from_theory
from compendium.common.rows import mean_rows, numbered, parameter_product

_TEXTS = 5


def nearer_to_theory(data: int, load: float, beta: float, gamma: float, size: int) -> Rows:
    """ln of a text's distance from the theory without load over that with it, five texts."""
    logs = []
    for seed in range(_TEXTS * data, _TEXTS * (data + 1)):
        loaded, bare = distances_from_theory(gamma, size=size, load=load, beta=beta, seed=seed)
        logs.append(np.log(bare / loaded))
    return mean_rows(np.array(logs))


_NEARLY = {"value": 0.2, "low": 0.3, "high": 0.3}

settings_c22 = stored(
    "settings_C22",
    numbered(
        parameter_product(
            load=(0.1, 0.25, 0.5),
            beta=(1.0, 1.4, 2.0),
            gamma=(1.0, 5.0, 20.0, 127.0),
            size=(600, 1200),
        ),
        first=0,
    ),
    seconds=0.3,
    within=_NEARLY,
)(nearer_to_theory)

confirm_c22 = stored(
    "confirm_C22",
    numbered(
        parameter_product(
            load=(0.3, 0.4, 0.6), beta=(1.2, 1.7), gamma=(3.0, 10.0, 60.0), size=(600, 900)
        ),
        first=1000,
    ),
    seconds=0.3,
    within=_NEARLY,
)(nearer_to_theory)


# In standard deviations over networks, an increase that would count: half of one.
LEAST_EFFECT = 0.5
_MEASURES = ("chaos", "dimension", "variety", "exponent")


@cache
def _sample(family: int, condition: str, epsilon: float) -> dict[str, np.ndarray]:
    """The rows of sixty networks that are not in the census, as columns."""
    rows = []
    for chunk in range(5):
        rows += census_table.rows(condition=condition, family=family, chunk=chunk, epsilon=epsilon)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@stored(
    "settings_C23",
    [
        {"data": f"{unit['family']}-{unit['epsilon']}-{unit['condition']}"} | unit
        for unit in parameter_product(
            condition=("residual 1/2", "residual 1", "feed 1", "both 1/2, 1"),
            epsilon=(0.02, 0.1),
            family=(2, 3, 4),
        )
    ],
    seconds=25.0,
    # Rounding can lead the chaotic orbit of a network elsewhere: one of sixty, by five deviations.
    within={"value": 0.08, "low": 0.1, "high": 0.1},
)
def settings_c23(data: str, condition: str, epsilon: float, family: int) -> Rows:
    """Mean paired difference of sixty networks from the bare ones, minus the least that counts.

    By four readings of complexity, in standard deviations of each over the bare networks.
    """
    own = _sample(family, condition, epsilon)
    bare = _sample(family, "bare", epsilon)
    rows = []
    for name in _MEASURES:
        effect = (own[name] - bare[name]) / bare[name].std(ddof=1)
        rows.append({"measure": name} | mean_rows(effect - LEAST_EFFECT)[0])
    return rows
