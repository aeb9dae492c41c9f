"""Robustness of adaptive TAP for vector spins: three spins against exact sums, at many choices.

The region was written before the confirming table was drawn: couplings up to 0.6 of the
temperature; fields have a deviation of one half or one, and β is one.
"""

import numpy as np
from scipy.special import stdtrit

from bookmaker.tables import Rows, stored
from compendium.c22_vector_spins.study import triple_errors
from compendium.common.rows import numbered, parameter_product

RIVALS = ("naive", "tap", "saddle")
TRIPLES = 12


def log_ratio(rival: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    """ln of the ratio of two root mean squares, (systems,) each, and its jackknife error."""
    count = len(own)
    whole = 0.5 * np.log(rival.sum() / own.sum())
    without = 0.5 * np.log((rival.sum() - rival) / (own.sum() - own))
    return float(whole), float((count - 1) ** 0.5 * np.std(without))


def advantage_rows(data: int, components: int, strength: float, field: float) -> Rows:
    """ln of the error of the best rival over that of adaptive TAP at β = 1, with its interval.

    The best of naive theory, TAP and the saddle point.
    """
    squared = triple_errors(
        components, strength=strength, field=field, beta=1.0, draws=TRIPLES, seed=data
    )
    best = min(RIVALS, key=lambda name: float(squared[name].mean()))
    value, error = log_ratio(squared[best], squared["adaptive"])
    half = float(stdtrit(TRIPLES - 1, 0.975)) * error
    return [{"value": value, "low": value - half, "high": value + half, "runs": TRIPLES}]


settings_b7e = stored(
    "settings_B7e",
    numbered(
        parameter_product(
            components=(1, 2, 4, 16), strength=(0.15, 0.3, 0.6, 1.0), field=(0.5, 1.0)
        ),
        first=100,
    ),
    seconds=2.0,
    rtol=1e-3,
)(advantage_rows)
# Other triples, drawn after the region.
confirm_b7e = stored(
    "confirm_B7e",
    numbered(
        parameter_product(
            components=(1, 2, 3, 8), strength=(0.2, 0.3, 0.45, 0.6), field=(0.5, 1.0)
        ),
        first=500,
    ),
    seconds=2.0,
    rtol=1e-3,
)(advantage_rows)
