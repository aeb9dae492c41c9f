"""Robustness of the mean-field theory of driven spins: its error at many couplings and sizes.

The region was written before the confirming table was drawn: couplings that are independent in both
directions, or β up to 0.5.
"""

import math
from typing import Any

from bookmaker.tables import Rows, stored
from compendium.c25_driven.study import squared_errors
from compendium.common.rows import grid

# What a mean spin may be off by, root mean square.
OFF = 0.05
ASKED = grid(symmetry=(0.0, 0.5, 1.0), beta=(0.3, 0.5, 1.0, 1.5), size=(64, 256))
ASKED_AGAIN = [
    *grid(symmetry=(0.0,), beta=(0.4, 0.8, 1.2, 1.6), size=(96, 192)),
    *grid(symmetry=(0.4, 0.8), beta=(0.4, 0.5), size=(96, 192)),
]
WITHIN = {"value": 0.01, "low": 0.01, "high": 0.01}


def error_rows(symmetry: float, beta: float, size: int, *, seed: int) -> Rows:
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
        seed=seed,
    )["gaussian"]
    value = float(found.value)
    half = 2.0 * float(found.error)
    return [
        {
            "data": f"seed {seed}",
            "value": OFF - math.sqrt(max(value, 0.0)),
            "low": OFF - math.sqrt(max(value + half, 0.0)),
            "high": OFF - math.sqrt(max(value - half, 0.0)),
            "runs": systems,
        }
    ]


@stored("settings_B13", ASKED, seconds=1.0, within=WITHIN)
def settings_b13(**choices: Any) -> Rows:
    """How far the theory is below what it may be off by; systems of their own for each line."""
    return error_rows(**choices, seed=100_000 + 1_000 * ASKED.index(choices))


@stored("confirm_B13", ASKED_AGAIN, seconds=1.0, within=WITHIN)
def confirm_b13(**choices: Any) -> Rows:
    """As `settings_b13`, from other systems."""
    return error_rows(**choices, seed=500_000 + 1_000 * ASKED_AGAIN.index(choices))
