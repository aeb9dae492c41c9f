"""The table of settings of C16: samples of networks, by position strength, that show all motions.

The table `confirm_C16` was drawn after the region of its row had been written, from other families.
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c33e_census.study import document_size_table, network_row, select
from compendium.common.networks import draw_networks
from compendium.common.rows import share_rows

# Networks of a sample; share of them that "some" asks for.
_SAMPLE = 50
_SOME = 0.05
# Position strength and family of the stored networks, and how many of them there are.
_STORED = ((0.02, 0, 500), (0.02, 1, 200), (0.002, 0, 100), (0.1, 0, 100), (0.3, 0, 100))


def _share_rows(quasi: np.ndarray, chaos: np.ndarray) -> Rows:
    """The line for networks that show so many values of β with either motion."""
    shows = (quasi > 0) & (chaos > 0)
    return share_rows(int(shows.sum()), trials=len(shows), bound=_SOME)


@stored(
    "settings_C16",
    [
        {
            "data": f"{family}-{epsilon}-{first}",
            "epsilon": epsilon,
            "family": family,
            "first": first,
        }
        for epsilon, family, count in _STORED
        for first in range(0, count, _SAMPLE)
    ],
    seconds=0.1,
)
def settings_c16(data: str, epsilon: float, family: int, first: int) -> Rows:
    """Share of fifty networks with quasi-periodic and chaotic motion at some β, minus 0.05."""
    table = select(document_size_table.read(), family=family, epsilon=epsilon)
    chosen = slice(first, first + _SAMPLE)
    return _share_rows(table["seen_quasi"][chosen], table["seen_chaos"][chosen])


@stored(
    "confirm_C16",
    [
        {"data": f"{family}-{epsilon}-0", "epsilon": epsilon, "family": family, "first": 0}
        for family, epsilon in enumerate((0.005, 0.01, 0.02, 0.03, 0.05, 0.08) * 2, 3000)
    ],
    small={"data": "3000-0.005-0", "epsilon": 0.005, "family": 3000, "first": 0, "networks": 3},
    seconds=0.6,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def confirm_c16(
    data: str, epsilon: float, family: int, first: int, *, networks: int = _SAMPLE
) -> Rows:
    """The same of fifty networks of a family that was not drawn before."""
    drawn = draw_networks(
        family=family, features=3, segments=3, context=4, epsilon=epsilon, count=networks
    )
    rows = [network_row(network, seed) for seed, network in drawn.items()]
    quasi = np.array([row["seen_quasi"] for row in rows])
    chaos = np.array([row["seen_chaos"] for row in rows])
    return _share_rows(quasi, chaos)
