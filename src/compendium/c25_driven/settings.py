"""Robustness of the mean-field theory of driven spins: its error at many couplings and sizes.

The region was written before the confirming table was drawn: couplings that are independent in both
directions, or β up to 0.5.
"""

import math

from bookmaker.tables import Rows, stored
from compendium.c25_driven.study import squared_errors
from compendium.common.rows import numbered, parameter_product

# What a mean spin may be off by, root mean square.
OFF = 0.05
WITHIN = {"value": 0.01, "low": 0.01, "high": 0.01}


def error_rows(data: int, symmetry: float, beta: float, size: int) -> Rows:
    """How far the theory of Gaussian fields is below `OFF` after eight steps, by six systems.

    The squared error is a product of two halves of a simulation, which may come out negative
    where it is small.
    """
    systems = 6
    found = squared_errors(
        size,
        symmetry=symmetry,
        beta=beta,
        steps=8,
        systems=systems,
        replicas=2000,
        seed=data,
    )["gaussian"]
    value = float(found.value)
    half = 2.0 * float(found.error)
    return [
        {
            "value": OFF - math.sqrt(max(value, 0.0)),
            "low": OFF - math.sqrt(max(value + half, 0.0)),
            "high": OFF - math.sqrt(max(value - half, 0.0)),
            "runs": systems,
        }
    ]


settings_b13 = stored(
    "settings_B13",
    numbered(
        parameter_product(symmetry=(0.0, 0.5, 1.0), beta=(0.3, 0.5, 1.0, 1.5), size=(64, 256)),
        first=100_000,
        step=1_000,
    ),
    seconds=1.0,
    within=WITHIN,
)(error_rows)
# Other systems, drawn after the region.
confirm_b13 = stored(
    "confirm_B13",
    numbered(
        [
            *parameter_product(symmetry=(0.0,), beta=(0.4, 0.8, 1.2, 1.6), size=(96, 192)),
            *parameter_product(symmetry=(0.4, 0.8), beta=(0.4, 0.5), size=(96, 192)),
        ],
        first=500_000,
        step=1_000,
    ),
    seconds=1.0,
    within=WITHIN,
)(error_rows)
